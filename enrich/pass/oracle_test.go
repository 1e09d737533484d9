package pass

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// world is a random cluster with its whole history, as it truly was. All times are minutes of one day, as Unix ms.
type world struct {
	nodes []string
	homes map[string][]truth[worldHome] // in order of time
	offer map[string][]truth[int]       // usable GPUs
	jobs  []worldJob
}

type truth[V any] struct {
	at int64
	is V
}

type worldHome struct{ domain, partition, leaf string }

type worldJob struct {
	id              string
	restart         uint32
	start, end      int64 // end 0 = runs
	limit           int64 // 0 = none
	nodes           []string
	gpus            []int // of each node
	probe           bool
	mode, level     string
	segment         uint32
	switches        uint32
	exclusive       bool
	completingSince int64 // 0 = never seen to complete
}

var day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

func randomWorld(rng *rand.Rand) *world {
	w := &world{homes: map[string][]truth[worldHome]{}, offer: map[string][]truth[int]{}}
	clock := func(from, to int) int64 { return day + int64(from+rng.IntN(to-from))*60_000 }
	domains := 2 + rng.IntN(3)
	for d := range domains {
		for i := range 2 + rng.IntN(4) {
			n := fmt.Sprintf("%c%d", 'a'+d, i)
			w.nodes = append(w.nodes, n)
			home := worldHome{string(rune('A' + d)), "", fmt.Sprintf("leaf%d", d/2)}
			home.partition = home.domain + strconv.Itoa(i%(1+rng.IntN(2)))
			first := clock(0, 8)
			switch rng.IntN(8) {
			case 0: // never known
				continue
			case 1: // known late
				first = clock(60, 200)
			}
			w.homes[n] = []truth[worldHome]{{first, home}}
			if rng.IntN(5) == 0 { // moved, or gone for a while
				other := worldHome{}
				if rng.IntN(2) == 0 {
					other = worldHome{"Z", "Z1", "leaf9"}
				}
				w.homes[n] = append(w.homes[n], truth[worldHome]{clock(210, 300), other}, truth[worldHome]{clock(300, 400), home})
			}
			if rng.IntN(6) > 0 {
				w.offer[n] = []truth[int]{{clock(0, 100), 4}}
				if rng.IntN(3) == 0 {
					w.offer[n] = append(w.offer[n], truth[int]{clock(100, 250), 0}, truth[int]{clock(250, 400), 4})
				}
			}
		}
	}
	w.offer[w.nodes[0]] = []truth[int]{{day, 4}} // somebody counted one: the usual number is known
	pick := func(n int) []string {
		all := slices.Clone(w.nodes)
		if rng.IntN(2) == 0 { // neighbours
			at := rng.IntN(len(all))
			return slices.Clone(append(all[at:], all[:at]...)[:n])
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:n]
	}
	for i := range 25 {
		j := worldJob{id: strconv.Itoa(100 + i), nodes: pick(1 + rng.IntN(min(6, len(w.nodes)))), start: clock(1, 420), probe: rng.IntN(8) == 0}
		slices.Sort(j.nodes)
		for range j.nodes {
			j.gpus = append(j.gpus, []int{4, 4, 4, 2, 1}[rng.IntN(5)])
		}
		if rng.IntN(4) > 0 {
			j.end = j.start + int64(rng.IntN(90))*60_000
		} else if rng.IntN(2) == 0 {
			j.completingSince = j.start + 60_000
		}
		if rng.IntN(2) == 0 {
			j.limit = int64(5+rng.IntN(90)) * 60_000
		}
		switch rng.IntN(10) {
		case 0:
			j.mode, j.level = "required", []string{"domain", "leaf", "partition", "rack"}[rng.IntN(4)]
		case 1:
			j.mode, j.level = "preferred", "domain"
		case 2, 3:
			j.segment = uint32(1 + rng.IntN(3))
		case 4:
			j.switches = 1
		case 5:
			j.exclusive = true
		}
		w.jobs = append(w.jobs, j)
		if j.end > 0 && rng.IntN(5) == 0 { // requeued elsewhere
			again := worldJob{id: j.id, restart: 1, start: j.end + 120_000, nodes: pick(len(j.nodes)), gpus: j.gpus, probe: j.probe, limit: j.limit}
			slices.Sort(again.nodes)
			w.jobs = append(w.jobs, again)
		}
	}
	return w
}

// records are the events that tell of a world.
func (w *world) records() []event.Record {
	var out []event.Record
	for _, n := range w.nodes {
		for _, h := range w.homes[n] {
			m := &event.Membership{Cluster: "c", Node: n, Source: "static", ObservedAtMs: h.at, Revision: uint64(h.at) * 1000, Removed: h.is.domain == ""}
			if h.is.domain != "" {
				m.Levels = []*event.Level{{Level: "leaf", Value: h.is.leaf}, {Level: "domain", Value: h.is.domain}, {Level: "partition", Value: h.is.partition}}
			}
			out = append(out, m)
		}
		for _, o := range w.offer[n] {
			out = append(out, &event.Node{Cluster: "c", Node: n, Source: "slurm", GpusPresent: new(uint32(4)), Schedulable: new(o.is > 0), ObservedAtMs: o.at, Revision: uint64(o.at) * 1000})
		}
	}
	for _, j := range w.jobs {
		tell := func(at int64, state event.State, also func(*event.Placement)) {
			p := &event.Placement{Cluster: "c", JobId: j.id, Restart: new(j.restart), Scheduler: "slurm", Source: "slurm.squeue", State: state, Probe: j.probe,
				ObservedAtMs: at, Revision: uint64(at) * 1000}
			if also != nil {
				also(p)
			}
			out = append(out, p)
		}
		tell(j.start-30_000, event.State_PENDING, nil)
		running := func(p *event.Placement) {
			p.StartMs = new(j.start)
			if j.limit > 0 {
				p.TimeLimitMs = new(j.limit)
			}
			total := 0
			for i, n := range j.nodes {
				p.Placements = append(p.Placements, &event.NodePlacement{Node: n, Gpus: new(uint32(j.gpus[i]))})
				total += j.gpus[i]
			}
			p.Gpus = new(uint32(total))
			p.Intent = &event.Intent{Mode: event.Intent_Mode(event.Intent_Mode_value[strings.ToUpper(cmp.Or(j.mode, "none"))]), Level: j.level, ExclusiveDomain: j.exclusive}
			if j.segment > 0 {
				p.Intent.SegmentNodes = new(j.segment)
			}
			if j.switches > 0 {
				p.Intent.MaxSwitches = new(j.switches)
			}
		}
		tell(j.start+1000, event.State_RUNNING, running)
		if j.completingSince > 0 {
			tell(j.completingSince, event.State_COMPLETING, running)
		}
		if j.end > 0 {
			tell(j.end+1000, event.State_COMPLETED, func(p *event.Placement) { p.StartMs, p.EndMs, p.Source = new(j.start), new(j.end), "slurm.sacct" })
		}
	}
	return out
}

// homeAt is where a node was, the zero home when nobody knows.
func (w *world) homeAt(node string, t int64) worldHome {
	var h worldHome
	for _, x := range w.homes[node] {
		if x.at <= t {
			h = x.is
		}
	}
	return h
}

// settled is when the cluster had been reported in full.
func (w *world) settled() int64 {
	first := int64(math.MaxInt64)
	for _, list := range w.homes {
		for _, x := range list {
			if x.is.domain != "" {
				first = min(first, x.at)
			}
		}
	}
	if first == math.MaxInt64 {
		return DefaultConfig().Settle.Milliseconds()
	}
	return first + DefaultConfig().Settle.Milliseconds()
}

// offers is what a node could offer, and whether anybody says so.
func (w *world) offers(node string, t int64) (int, bool) {
	n, told := 4, false
	for _, x := range w.offer[node] {
		if x.at <= t {
			n, told = x.is, true
		}
	}
	return n, told
}

// verdictOf is what a verdict must say of a job: slowly, one job at a time, from the words of the decisions.
func (w *world) verdictOf(j worldJob) string {
	const window = 15 * 60_000
	end := j.end
	if end == 0 {
		end = forever
	}
	home := map[string]worldHome{}
	for _, n := range j.nodes {
		home[n] = w.homeAt(n, j.start)
		for _, x := range w.homes[n] {
			if home[n].domain == "" && x.at > j.start && x.at < end && x.is.domain != "" {
				home[n] = x.is
			}
		}
	}
	type shard struct {
		name        string
		gpus, nodes int
	}
	shards := map[string]*shard{}
	partitions, leaves, unknown, total := map[string]bool{}, map[string]bool{}, 0, 0
	for i, n := range j.nodes {
		total += j.gpus[i]
		h := home[n]
		if h.domain == "" {
			unknown++
			continue
		}
		if shards[h.domain] == nil {
			shards[h.domain] = &shard{name: h.domain}
		}
		shards[h.domain].gpus += j.gpus[i]
		shards[h.domain].nodes++
		partitions[h.partition], leaves[h.leaf] = true, true
	}
	var shape []*shard
	for _, s := range shards {
		shape = append(shape, s)
	}
	slices.SortFunc(shape, func(a, b *shard) int { return cmp.Or(b.gpus-a.gpus, b.nodes-a.nodes, cmp.Compare(a.name, b.name)) })
	used := len(shape)

	// What the cluster was: the topology at the start, or as first known in full; own nodes wherever they turned out to be.
	view := func(n string) (domain string, usable int) {
		h := w.homeAt(n, max(j.start, w.settled()))
		usable, _ = w.offers(n, j.start)
		if h.domain == "" && home[n].domain != "" {
			return home[n].domain, 4
		}
		return h.domain, usable
	}
	size, count := map[string]int{}, map[string]int{}
	for _, n := range w.nodes {
		if d, usable := view(n); d != "" {
			size[d] += usable
			if h := w.homeAt(n, max(j.start, w.settled())); h.domain != "" {
				count[d]++
			}
		}
	}
	var sizes []int
	largest := 0
	for d, s := range size {
		sizes = append(sizes, s)
		largest = max(largest, count[d])
	}
	for _, s := range shape {
		largest = max(largest, s.nodes)
	}
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	fewest, sum := 0, 0
	for i, s := range sizes {
		if sum += s; sum >= total && fewest == 0 {
			fewest = i + 1
		}
	}
	minimum := -1 // -1 = cannot say
	switch {
	case unknown == 0 && used == 1:
		minimum = 1
	case len(sizes) == 0 || used == 0:
	case unknown == 0 && (fewest == 0 || fewest > used):
		minimum = used
	case fewest > 0:
		minimum = fewest
	}

	// The rule.
	asked := j.segment > 0 && len(j.nodes) >= int(j.segment) && len(j.nodes)%int(j.segment) == 0 && int(j.segment) <= largest
	kept := asked && unknown == 0
	for _, s := range shape {
		kept = kept && s.nodes%int(j.segment) == 0
	}
	var met []string // yes, no, ?
	say := func(known, ok bool) string {
		switch {
		case !known:
			return "?"
		case ok:
			return "yes"
		}
		return "no"
	}
	if asked {
		met = append(met, say(unknown == 0, kept))
	}
	level := ""
	switch {
	case j.switches > 0:
		level = say(unknown == 0, len(leaves) <= int(j.switches))
	case j.level == "domain":
		level = say(unknown == 0, used == 1)
	case j.level == "partition":
		level = say(unknown == 0, len(partitions) == 1)
	case j.level == "leaf":
		level = say(unknown == 0, len(leaves) == 1)
	case j.level != "":
		level = "?"
	}
	if level != "" {
		met = append(met, level)
	}
	// What others held when it began, floor by node.
	held := func(n string, late bool) (mine, others int) {
		for _, o := range w.jobs {
			oEnd := o.end
			if oEnd == 0 {
				oEnd = forever
			}
			holds := o.start <= j.start && oEnd > j.start && !o.probe
			if late && o.limit > 0 && o.start+o.limit <= j.start+window {
				holds = false
			}
			for i, on := range o.nodes {
				if on != n || !holds {
					continue
				}
				if o.id == j.id && o.restart == j.restart {
					mine += o.gpus[i]
				} else {
					others += o.gpus[i]
				}
			}
		}
		return mine, others
	}
	free := func(late bool) (list []int, all int) {
		by := map[string]int{}
		for _, n := range w.nodes {
			if d, usable := view(n); d != "" {
				_, others := held(n, late)
				by[d] += max(usable-others, 0)
			}
		}
		for _, v := range by {
			list, all = append(list, v), all+v
		}
		slices.SortFunc(list, func(a, b int) int { return b - a })
		return list, all
	}
	if j.exclusive {
		alone := true
		for _, n := range w.nodes {
			d, _ := view(n)
			if _, mine := shards[d]; mine && d != "" {
				if _, others := held(n, false); others > 0 {
					alone = false
				}
			}
		}
		met = append(met, say(unknown == 0, alone))
	}
	intent := "" // nothing asked, or cannot say
	switch {
	case slices.Contains(met, "no"):
		intent = "no"
	case len(met) > 0 && !slices.Contains(met, "?"):
		intent = "yes"
	}
	broken := asked && !kept || j.mode == "required" && level == "no"
	outcome, cause := "", ""
	switch {
	case unknown > 0 && (asked || minimum < 0 || used <= minimum):
		outcome = "unknown"
	case unknown > 0:
		outcome = "spill"
	case used == 1 && len(partitions) == 1:
		outcome = "one_partition"
	case used == 1:
		outcome = "one_domain"
	case minimum < 0:
		outcome = "unknown"
	case kept:
		outcome = "minimal_spread"
	case broken || used > minimum:
		outcome = "spill"
	default:
		outcome = "minimal_spread"
	}
	if outcome == "spill" && unknown == 0 {
		first := func(list []int) (s int) {
			for _, v := range list[:min(minimum, len(list))] {
				s += v
			}
			return s
		}
		now, all := free(false)
		later, _ := free(true)
		switch {
		case first(now) >= total:
			cause = "policy"
		case first(later) >= total:
			cause = "timing"
		case all >= total:
			cause = "repack"
		default:
			cause = "capacity"
		}
	}
	number := func(n int) string {
		if n < 0 {
			return "?"
		}
		return strconv.Itoa(n)
	}
	line := fmt.Sprintf("%s r%d %s unknown=%d min=%s shape=", j.id, j.restart, outcome, unknown, number(minimum))
	for _, s := range shape {
		line += fmt.Sprintf("%s:%d/%d,", s.name, s.gpus, s.nodes)
	}
	return line + fmt.Sprintf(" met=%s aligned=%t cause=%s", intent, kept, cause)
}

// verdictLines reads verdicts in the oracle's form.
func (s *store) verdictLines() []string {
	s.t.Helper()
	rows, err := s.Conn.Query(context.Background(), `SELECT concat(job_id, ' ', attempt, ' ', toString(outcome), ' unknown=', toString(unknown_nodes), ' min=', ifNull(toString(domains_min), '?'),
			' shape=', arrayStringConcat(arrayMap((d, g, n) -> concat(d, ':', ifNull(toString(g), '?'), '/', toString(n), ','), domains, domain_gpus, domain_nodes)),
			' met=', multiIf(intent_met, 'yes', intent_met = false, 'no', ''),
			' aligned=', toString(aligned), ' cause=', cause)
		FROM (SELECT * FROM verdicts ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq) WHERE NOT is_deleted ORDER BY job_id, attempt`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			s.t.Fatal(err)
		}
		out = append(out, line)
	}
	return out
}

// TestVerdictsAgainstOracle runs random worlds through the real statements, as shuffled, repeated events in batches of any
// size, and compares with a slow judgement of the truth behind the events.
func TestVerdictsAgainstOracle(t *testing.T) {
	seeds := 9
	if testing.Short() {
		seeds = 2
	}
	for seed := range uint64(seeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 42))
			w := randomWorld(rng)
			records := w.records()
			for range len(records) / 4 {
				records = append(records, records[rng.IntN(len(records))])
			}
			rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
			s := newStore(t)
			clock := time.UnixMilli(day)
			for len(records) > 0 {
				switch seed % 3 { // else: all of it is long past, and nothing of it in memory
				case 1: // all of it is in memory
					s.Passes.now = func() time.Time { return time.UnixMilli(day) }
				case 2: // time passes, and it is forgotten as it goes
					clock = clock.Add(time.Duration(rng.IntN(40)) * time.Minute)
					s.Passes.now = func() time.Time { return clock }
				}
				n := min(len(records), 1+rng.IntN(60))
				s.feed(records[:n]...)
				s.once()
				records = records[n:]
			}
			var want []string
			for _, j := range w.jobs {
				want = append(want, w.verdictOf(j))
			}
			slices.Sort(want)
			got := s.verdictLines()
			compareLines(t, got, want)
			// Judged again from the beginning, nothing changes.
			stats, err := s.Rejudge(context.Background(), time.UnixMilli(day).AddDate(-1, 0, 0), schema.OpenEnd)
			if err != nil {
				t.Fatal(err)
			}
			if stats.Judged != 0 {
				t.Errorf("judging all again changed %d verdicts: something that they depend on did not lead to a new judgement", stats.Judged)
				t.Log("after that:")
				compareLines(t, s.verdictLines(), want)
			}
		})
	}
}

func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("got  %s\nwant %s", g, w)
		}
	}
}
