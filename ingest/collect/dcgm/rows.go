package dcgm

import (
	"math"
	"strconv"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
)

// cell is one value of an answer.
type cell struct {
	value float64
	raw   float64 // as the exporter printed it
	from  *field  // that gave it; nil = absent
	by    int32   // position of the set of labels that it came with
}

// put stores a value, and gives the reason why not, where it does not.
func (c *cell) put(f *field, value, raw float64, by int32) string {
	switch {
	case c.from == nil || f.rank < c.from.rank:
		*c = cell{value, raw, f, by}
	case f != c.from: // from a field that is believed less
	case by == c.by:
		return dropDuplicate
	case value != c.value:
		return dropConflict
	}
	// What is left is a copy: an exporter prints a sample once for each job and for each MIG instance of a GPU.
	return ""
}

// gpuRow is one GPU in an answer.
type gpuRow struct {
	node   string // as the exporter calls it; "" = it does not
	index  uint32
	known  bool // the index is
	uuid   string
	model  string
	driver string
	fabric fabric
	cells  [gpuColumns]cell
}

type migRow struct {
	gpu     int
	id      uint32
	profile string
	cells   [migColumns]cell
}

type linkRow struct {
	gpu    int
	number uint32
	cells  [linkColumns]cell
}

type jobRow struct {
	gpu int
	mig int32 // -1 = the whole GPU
	job job
}

// owner is what a set of labels belongs to, as positions in the rows; -1 = none.
type owner struct{ gpu, mig, link int }

type migKey struct {
	gpu int
	id  uint32
}

type linkKey struct {
	gpu    int
	number uint32
}

type indexKey struct {
	node  string
	index uint32
}

// rows are the GPUs of one answer, and all that belongs to them. They are reused.
type rows struct {
	fields map[string]*field
	labels map[string]labelRole

	owners  map[string]int32 // by the text of the labels, position in list
	list    []owner
	gpus    []gpuRow
	migs    []migRow
	links   []linkRow
	jobs    []jobRow
	byUUID  map[string]int
	byIndex map[indexKey]int
	byMIG   map[migKey]int
	byLink  map[linkKey]int
	byJob   map[jobRow]struct{}
	dropped map[string]int // by reason
	block   block
	stale   int64 // samples with a time before this, in Unix ms, are not current
}

func newRows(fields map[string]*field, labels map[string]labelRole) *rows {
	return &rows{
		fields: fields, labels: labels,
		owners: map[string]int32{}, byUUID: map[string]int{}, byIndex: map[indexKey]int{}, byMIG: map[migKey]int{},
		byLink: map[linkKey]int{}, byJob: map[jobRow]struct{}{}, dropped: map[string]int{},
	}
}

func (r *rows) reset() {
	clear(r.owners)
	clear(r.byUUID)
	clear(r.byIndex)
	clear(r.byMIG)
	clear(r.byLink)
	clear(r.byJob)
	clear(r.dropped)
	r.list, r.gpus, r.migs, r.links, r.jobs = r.list[:0], r.gpus[:0], r.migs[:0], r.links[:0], r.jobs[:0]
}

func (r *rows) drop(reason string) {
	if reason != "" {
		r.dropped[reason]++
	}
}

// take stores one sample. The labels of a metric that is not used count all the same: they tell that a GPU is there, and
// who uses it.
func (r *rows) take(l *scrape.Line) {
	labels := l.Block()
	if len(labels) == 0 {
		return
	}
	at, ok := r.owners[string(labels)]
	if !ok {
		at = int32(len(r.list))
		r.list = append(r.list, r.owner(l))
		r.owners[string(labels)] = at
	}
	o := r.list[at]
	f := r.fields[string(l.Name())]
	if f == nil || o.gpu < 0 {
		return
	}
	if l.Millis != 0 && l.Millis < r.stale {
		r.drop(dropStale)
		return
	}
	v, reason := f.clean(l.Value)
	if reason != "" {
		r.drop(reason)
		return
	}
	if f.kind == identity {
		r.gpus[o.gpu].fabric.take(f.id, v)
		return
	}
	if f.number >= 0 {
		o.link = r.link(o.gpu, uint32(f.number))
	}
	switch {
	case o.link >= 0 && f.link != 0:
		r.drop(r.links[o.link].cells[f.link].put(f, v, l.Value, at))
	case o.link >= 0: // of a link, and nothing of it is recorded
	case o.mig >= 0 && f.mig != 0:
		r.drop(r.migs[o.mig].cells[f.mig].put(f, v, l.Value, at))
	case f.gpu != 0: // with a MIG instance in its labels too: an exporter repeats there what is the GPU's
		r.drop(r.gpus[o.gpu].cells[f.gpu].put(f, v, l.Value, at))
	}
}

// owner finds or makes the rows that the labels of a line belong to.
func (r *rows) owner(l *scrape.Line) owner {
	b := &r.block
	b.reset()
	l.Labels(func(name, value string) { b.take(r.labels, r.fields, name, value) })
	o := owner{-1, -1, -1}
	if !b.isGPU() {
		return o
	}
	o.gpu = r.gpu(b)
	whole := int32(-1)
	if id, ok := b.number(roleMIG); ok {
		key := migKey{o.gpu, id}
		at, ok := r.byMIG[key]
		if !ok {
			at = len(r.migs)
			r.byMIG[key] = at
			r.migs = append(r.migs, migRow{gpu: o.gpu, id: id})
		}
		if r.migs[at].profile == "" {
			r.migs[at].profile = b.text[roleMIGProfile]
		}
		o.mig, whole = at, int32(id)
	}
	if n, ok := b.number(roleLink); ok {
		o.link = r.link(o.gpu, n)
	}
	if j := (jobRow{o.gpu, whole, b.job()}); j.job != (job{}) {
		if _, ok := r.byJob[j]; !ok {
			r.byJob[j] = struct{}{}
			r.jobs = append(r.jobs, j)
		}
	}
	return o
}

// gpu finds the row of a GPU by its UUID, or else by its index, and adds what the labels tell of it.
func (r *rows) gpu(b *block) int {
	uuid, node := b.text[roleUUID], b.text[roleNode]
	if node == "localhost" {
		node = ""
	}
	index, known := b.index()
	at, ok := r.byUUID[uuid]
	if uuid == "" || !ok {
		// A row found by its index alone takes the first UUID that comes.
		at, ok = r.byIndex[indexKey{node, index}]
		ok = ok && known && (uuid == "" || r.gpus[at].uuid == "")
	}
	if !ok {
		at = len(r.gpus)
		r.gpus = append(r.gpus, gpuRow{})
	}
	g := &r.gpus[at]
	if uuid != "" {
		g.uuid = uuid
		r.byUUID[uuid] = at
	}
	if known {
		if _, taken := r.byIndex[indexKey{node, index}]; !taken {
			r.byIndex[indexKey{node, index}] = at
		}
		if !g.known {
			g.index, g.known = index, true
		}
	}
	if g.node == "" {
		g.node = node
	}
	if g.model == "" {
		g.model = b.text[roleModel]
	}
	if g.driver == "" {
		g.driver = b.text[roleDriver]
	}
	if cluster := b.text[roleClusterUUID]; cluster != "" {
		b.fabric.clusterUUID, b.fabric.has = cluster, b.fabric.has|hasClusterUUID
	}
	g.fabric.merge(&b.fabric)
	return at
}

func (r *rows) link(gpu int, number uint32) int {
	key := linkKey{gpu, number}
	at, ok := r.byLink[key]
	if !ok {
		at = len(r.links)
		r.byLink[key] = at
		r.links = append(r.links, linkRow{gpu: gpu, number: number})
	}
	return at
}

// id names a GPU of a node from one answer to the next.
func (g *gpuRow) id() string {
	if g.uuid != "" {
		return g.uuid
	}
	return "index " + strconv.FormatUint(uint64(g.index), 10)
}

// number is the value, NaN where there is none.
func (c *cell) number() float64 {
	if c.from == nil {
		return math.NaN()
	}
	return c.value
}
