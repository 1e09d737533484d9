package load

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ClickHouse/ch-go/proto"
)

// countersOrder finds the order of the table's key for the rows of a block. The server looks whether rows are in order; where
// they are not, it sorts them and moves all columns, a seventh of what an insert costs it. Here the order is nearly known:
// records come in order of time, and the rows of a layout have theirs once and for all. Should it ever be wrong, the server
// still sorts.
type countersOrder struct {
	number  uint64 // of the block that is put in order
	groups  []countersGroup
	place   map[countersPlace]int // in groups
	sorted  []int                 // of groups, in order
	records []countersRecord      // by group

	// The rows in order: where each lies among those that came, and which of them follow each other with the same layout
	// and row of it.
	from []uint32
	runs []countersRun
	same bool // they came in this order
}

// countersPlace is a node of a cluster, by their keys in the dictionaries, in one hour.
type countersPlace struct {
	cluster, node uint32
	hour          int64
}

// countersGroup is the records of one place.
type countersGroup struct {
	cluster, node string
	hour          int64
	begin, end    int // in records
	layouts       []*countersLayout
}

type countersRun struct {
	layout *countersLayout
	row    *layoutRow
	rows   int
}

const hourMillis = 3_600_000

// find puts the rows of these records, whose layouts have their keys, in order, and fills the columns that are the
// record's own.
func (o *countersOrder) find(records []countersRecord, offset []int64, observed []proto.DateTime64) {
	o.gather(records)
	from, runs, same := resize(&o.from, len(offset))[:0], o.runs[:0], true
	for _, g := range o.sorted {
		group := &o.groups[g]
		own := o.records[group.begin:group.end]
		if byTime := func(a, b countersRecord) int { return cmp.Compare(a.observed, b.observed) }; !slices.IsSortedFunc(own, byTime) {
			slices.SortStableFunc(own, byTime)
		}
		for _, l := range group.layouts {
			l.left = l.order
		}
		for {
			var least *layoutRow
			for _, l := range group.layouts {
				if len(l.left) > 0 && (least == nil || l.rows[l.left[0]].compare(least) < 0) {
					least = &l.rows[l.left[0]]
				}
			}
			if least == nil {
				break
			}
			for _, l := range group.layouts {
				l.at = -1
				if len(l.left) > 0 && l.rows[l.left[0]].compare(least) == 0 {
					l.at, l.left = int(l.left[0]), l.left[1:]
				}
			}
			run := countersRun{}
			for i := range own {
				l := own[i].layout
				if l.at < 0 {
					continue
				}
				if run.layout != l {
					if run.rows > 0 {
						runs = append(runs, run)
					}
					run = countersRun{l, &l.rows[l.at], 0}
				}
				run.rows++
				row := own[i].row + l.at
				at := len(from)
				same = same && row == at
				offset[at], observed[at] = own[i].offset, proto.DateTime64(own[i].observed)
				from = append(from, uint32(row))
			}
			runs = append(runs, run)
		}
	}
	o.from, o.runs, o.same = from, runs, same
}

// gather puts records into groups, and groups in order.
func (o *countersOrder) gather(records []countersRecord) {
	o.number++
	if o.place == nil {
		o.place = map[countersPlace]int{}
	}
	clear(o.place)
	groups := o.groups[:0]
	for i := range records {
		l, hour := records[i].layout, records[i].observed/hourMillis
		if l.ordered != o.number || l.hour != hour {
			place := countersPlace{l.keys[textCluster], l.keys[textNode], hour}
			g, ok := o.place[place]
			if !ok {
				g = len(groups)
				o.place[place] = g
				groups = slices.Grow(groups, 1)[:g+1]
				groups[g] = countersGroup{l.texts[textCluster], l.texts[textNode], hour, 0, 0, groups[g].layouts[:0]}
			}
			if group := &groups[g]; !slices.Contains(group.layouts, l) {
				group.layouts = append(group.layouts, l)
			}
			l.ordered, l.hour, l.group = o.number, hour, g
		}
		groups[l.group].end++
	}
	o.sorted = o.sorted[:0]
	for g := range groups {
		o.sorted = append(o.sorted, g)
	}
	slices.SortFunc(o.sorted, func(a, b int) int {
		x, y := &groups[a], &groups[b]
		return cmp.Or(strings.Compare(x.cluster, y.cluster), cmp.Compare(x.hour, y.hour), strings.Compare(x.node, y.node))
	})
	at := 0
	for _, g := range o.sorted {
		group := &groups[g]
		group.begin, group.end, at = at, at, at+group.end
	}
	o.groups = groups
	resize(&o.records, len(records))
	for i := range records {
		l, hour := records[i].layout, records[i].observed/hourMillis
		if l.hour != hour {
			l.hour, l.group = hour, o.place[countersPlace{l.keys[textCluster], l.keys[textNode], hour}]
		}
		group := &groups[l.group]
		o.records[group.end] = records[i]
		group.end++
	}
}

// compare is the order of the table's key within a node.
func (r *layoutRow) compare(other *layoutRow) int {
	return cmp.Or(cmp.Compare(r.entity, other.entity), cmp.Compare(r.gpu, other.gpu), cmp.Compare(r.part, other.part),
		strings.Compare(r.texts[textName-recordTexts], other.texts[textName-recordTexts]))
}

// reset lets go of what the next block does not have.
func (o *countersOrder) reset() {
	clear(o.records)
	clear(o.runs)
	for i := range o.groups {
		clear(o.groups[i].layouts)
	}
	o.records, o.runs = o.records[:0], o.runs[:0]
}
