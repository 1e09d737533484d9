package pass

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/spillway-io/spillway/schemas/event"
)

// record is one raw placement record. Unknown is 0 for times, -1 for numbers, "" for names.
type record struct {
	cluster, jobID, component, scheduler, source, runID  string
	restart                                              int64
	arrayJobID                                           string
	arrayTask                                            int64
	name, user, account, queue, qos, reservation, class  string
	probe                                                bool
	state                                                int8 // numbers of event.State
	stateRaw                                             string
	submit, eligible, start, end, endEarliest, timeLimit int64
	requestedGPUs, requestedNodes, gpus                  int64
	mode, level                                          string
	segment                                              int64
	spread, consolidate, exclusive                       bool
	switches                                             int64
	nodes                                                []string
	nodeGPUs                                             []int32 // -1 = not told
	gpuIndex                                             [][]uint16
	nodeFrom, nodeTo                                     []int64
	nodePods                                             [][]string
	partial                                              bool
	pendingReason                                        string
	plannedStart                                         int64
	plannedNodes                                         []string
	observed                                             int64
	revision                                             uint64
	partition                                            int32
	offset                                               int64
	traceparent                                          string
	packed                                               packed
	price
}

// price is what it takes to move a run: the scheduler's priority of it, whether it may be ended for another (1) or not (0)
// and from when on, when its work was last saved, and how often it is saved and how long it takes to start again in ms.
type price struct {
	priority                      int64 // unknownPriority = not told
	preemptible                   int8  // -1 = not told
	preemptibleFrom               int64
	checkpoint                    int64
	checkpointEvery, restartTakes int64
}

// unknownPriority is no scheduler's: some count below 0.
const unknownPriority = math.MinInt64

func (r *record) holding() bool { return event.State(r.state).Holding() }
func (r *record) ended() bool   { return event.State(r.state).Ended() }
func (r *record) vanished() bool {
	return event.State(r.state) == event.State_VANISHED
}

// attemptRow is a row of attempts; unknown as in record.
type attemptRow struct {
	cluster, jobID, attempt                             string
	number                                              uint32
	scheduler                                           string
	components                                          []string
	arrayJobID                                          string
	arrayTask                                           int64
	name, user, account, queue, qos, reservation, class string
	probe                                               bool
	state, stateRaw                                     string
	submit, eligible, start, end, endEarliest           int64
	expectedEnd                                         int64
	requestedGPUs, requestedNodes, gpus                 int64
	mode, level                                         string
	segment                                             int64
	spread, consolidate, exclusive                      bool
	switches                                            int64
	pendingReason                                       string
	plannedStart                                        int64
	plannedNodes                                        []string
	sources                                             []string
	observedFirst, observedLast                         int64
	version                                             uint64
	deleted                                             uint8
	price
}

// placementRow is a row of placements.
type placementRow struct {
	cluster, jobID, attempt string
	seq                     uint16
	from, to                int64
	nodes                   []string
	nodeGPUs                []int32 // -1 = not known
	gpuIndex                [][]uint16
	nodePods                [][]string // nil = told of none
	gpus                    int64
	basis                   string
	probe                   bool
	expectedEnd             int64
	version                 uint64
	deleted                 uint8
}

// foldedJob is what the records of one job say.
type foldedJob struct {
	attempts   []attemptRow
	placements []placementRow
	clamped    map[string]int // times moved, by reason
}

// foldJob folds all records of one job. The result depends on what the records say, not on the order in
// which they came nor on how often.
func foldJob(records []record) foldedJob {
	slices.SortFunc(records, compareRecords)
	out := foldedJob{clamped: map[string]int{}}
	for rank, run := range runsOf(records) {
		a, p := run.fold(rank, out.clamped)
		out.attempts = append(out.attempts, a)
		out.placements = append(out.placements, p...)
	}
	return out
}

// compareRecords orders by revision. The rest only makes the order of equals independent of arrival.
func compareRecords(a, b record) int {
	return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.source, b.source), cmp.Compare(a.component, b.component),
		cmp.Compare(a.observed, b.observed), cmp.Compare(a.state, b.state), cmp.Compare(a.start, b.start),
		slices.Compare(a.nodes, b.nodes), cmp.Compare(a.offset, b.offset))
}

// jobRun is the records of one attempt, in order of revision.
type jobRun struct {
	records  []record
	runID    string
	restarts []int64
	starts   []int64 // whole seconds: sources differ in what they keep below
	het      bool
}

func (r *jobRun) add(rec record) {
	r.records = append(r.records, rec)
	if rec.restart >= 0 && !slices.Contains(r.restarts, rec.restart) {
		r.restarts = append(r.restarts, rec.restart)
	}
	if s := rec.start / 1000; rec.start > 0 && !slices.Contains(r.starts, s) {
		r.starts = append(r.starts, s)
	}
}

func (r *jobRun) absorb(other *jobRun) {
	for _, rec := range other.records {
		r.add(rec)
	}
}

// first is the start by which runs of one job are ordered; a run that has not started is the latest.
func (r *jobRun) first() int64 {
	if len(r.starts) == 0 {
		return forever
	}
	return slices.Min(r.starts)
}

func intersects(a, b []int64) bool {
	return slices.ContainsFunc(a, func(x int64) bool { return slices.Contains(b, x) })
}

// alike reports whether two runs are one: the same restart, or the same start unless their restarts say otherwise.
func (r *jobRun) alike(other *jobRun) bool {
	if len(r.restarts) > 0 && len(other.restarts) > 0 {
		return intersects(r.restarts, other.restarts)
	}
	return intersects(r.starts, other.starts)
}

// runsOf groups the records of a job into its runs, earliest first. Records with a run id belong together by it;
// those without join by restart, then by start. The components of a heterogeneous job each have a run id of their own, so
// there it says nothing.
func runsOf(records []record) []*jobRun {
	het := slices.ContainsFunc(records, func(r record) bool { return r.component != "" })
	named := map[string]*jobRun{}
	restarted := map[int64]*jobRun{}
	started := map[int64]*jobRun{}
	var byStart, loose []record
	var runs []*jobRun
	newRun := func() *jobRun {
		r := &jobRun{het: het}
		runs = append(runs, r)
		return r
	}
	for _, rec := range records {
		switch {
		case rec.runID != "" && !het:
			r := named[rec.runID]
			if r == nil {
				r = newRun()
				r.runID, named[rec.runID] = rec.runID, r
			}
			r.add(rec)
		case rec.restart >= 0:
			r := restarted[rec.restart]
			if r == nil {
				r = newRun()
				restarted[rec.restart] = r
			}
			r.add(rec)
		case rec.start > 0:
			byStart = append(byStart, rec)
		default:
			loose = append(loose, rec)
		}
	}
	for _, rec := range byStart {
		r := started[rec.start/1000]
		if r == nil {
			r = newRun()
			started[rec.start/1000] = r
		}
		r.add(rec)
	}
	// Join what has no run id to what has one, and what has only a start to what has a restart.
	strength := func(r *jobRun) int {
		switch {
		case r.runID != "":
			return 0
		case len(r.restarts) > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(runs, func(a, b *jobRun) int {
		return cmp.Or(cmp.Compare(strength(a), strength(b)), cmp.Compare(a.first(), b.first()), cmp.Compare(a.runID, b.runID), slices.Compare(a.restarts, b.restarts))
	})
	var kept []*jobRun
	for _, r := range runs {
		i := slices.IndexFunc(kept, func(k *jobRun) bool { return strength(k) < strength(r) && k.alike(r) })
		if i < 0 {
			kept = append(kept, r)
			continue
		}
		kept[i].absorb(r)
	}
	slices.SortStableFunc(kept, func(a, b *jobRun) int {
		return cmp.Or(cmp.Compare(a.first(), b.first()), slices.Compare(a.restarts, b.restarts), cmp.Compare(a.runID, b.runID))
	})
	// A record that names no run at all is of the newest one.
	if len(loose) > 0 {
		if len(kept) == 0 {
			kept = append(kept, &jobRun{het: het})
		}
		for _, rec := range loose {
			kept[len(kept)-1].add(rec)
		}
	}
	for _, r := range kept {
		slices.SortFunc(r.records, compareRecords)
	}
	return kept
}

// newest is the last value, in order of revision, that is known.
func newest[T comparable](records []record, of func(*record) T, unknown T) T {
	for i := len(records) - 1; i >= 0; i-- {
		if v := of(&records[i]); v != unknown {
			return v
		}
	}
	return unknown
}

// sum adds up the newest known value of each component; -1 when one of them is not known.
func (r *jobRun) sum(of func(*record) int64) int64 {
	var total int64
	for _, c := range r.components() {
		v := newest(r.of(c), of, -1)
		if v < 0 {
			return -1
		}
		total += v
	}
	return total
}

// components of a heterogeneous job; a single "" otherwise.
func (r *jobRun) components() []string {
	var out []string
	for i := range r.records {
		if c := r.records[i].component; !slices.Contains(out, c) && (c != "" || !r.het) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

func (r *jobRun) of(component string) []record {
	if !r.het {
		return r.records
	}
	var out []record
	for _, rec := range r.records {
		if rec.component == component {
			out = append(out, rec)
		}
	}
	return out
}

// last is the newest record for which ok holds.
func last(records []record, ok func(*record) bool) *record {
	for i := len(records) - 1; i >= 0; i-- {
		if ok(&records[i]) {
			return &records[i]
		}
	}
	return nil
}

// refuted reports whether the source that lost sight of a run has seen it again.
func (r *jobRun) refuted(v *record) bool {
	return slices.ContainsFunc(r.records, func(o record) bool { return o.source == v.source && o.holding() && o.revision > v.revision })
}

// final is the record that says how the run ended, nil while nothing says that it did. One that knows how beats one
// that only lost sight of it.
func (r *jobRun) final() *record {
	if t := last(r.records, func(o *record) bool { return o.ended() && !o.vanished() }); t != nil {
		return t
	}
	return last(r.records, func(o *record) bool { return o.vanished() && !r.refuted(o) })
}

// span is the run's start and end, 0 where there is none.
func (r *jobRun) span(clamped map[string]int) (start, end, earliest int64) {
	start = newest(r.records, func(o *record) int64 { return o.start }, 0)
	final := r.final()
	if final == nil {
		return start, 0, 0
	}
	usable := func(exact bool) func(*record) bool {
		return func(o *record) bool {
			return o.ended() && o.end > 0 && (o.endEarliest == 0) == exact && !(o.vanished() && r.refuted(o))
		}
	}
	told := last(r.records, usable(true))
	if told == nil {
		told = last(r.records, usable(false))
	}
	if told != nil {
		end, earliest = told.end, told.endEarliest
	} else { // it has ended, nobody says when: not later than that was seen
		end, earliest = final.observed, start
	}
	if start > 0 && end < start {
		clamped["end_before_start"]++
		end, earliest = start, 0
	}
	if earliest != 0 && earliest < start {
		earliest = start
	}
	return start, end, earliest
}

func (r *jobRun) key() string {
	if r.runID != "" {
		return r.runID
	}
	if n := newest(r.records, func(o *record) int64 { return o.restart }, -1); n >= 0 {
		return "r" + strconv.FormatInt(n, 10)
	}
	if start := newest(r.records, func(o *record) int64 { return o.start }, 0); start > 0 {
		return "@" + strconv.FormatInt(start/1000, 10)
	}
	return "r0"
}

// fold makes the row of one run and of what it held. rank counts the job's runs from 0.
func (r *jobRun) fold(rank int, clamped map[string]int) (attemptRow, []placementRow) {
	text := func(of func(*record) string) string { return newest(r.records, of, "") }
	number := func(of func(*record) int64) int64 { return newest(r.records, of, -1) }
	when := func(of func(*record) int64) int64 { return newest(r.records, of, 0) }
	some := func(is func(*record) bool) bool { return last(r.records, is) != nil }

	a := attemptRow{
		cluster: r.records[0].cluster, jobID: r.records[0].jobID, attempt: r.key(), number: uint32(rank),
		scheduler:   text(func(o *record) string { return o.scheduler }),
		arrayJobID:  text(func(o *record) string { return o.arrayJobID }),
		arrayTask:   number(func(o *record) int64 { return o.arrayTask }),
		name:        text(func(o *record) string { return o.name }),
		user:        text(func(o *record) string { return o.user }),
		account:     text(func(o *record) string { return o.account }),
		queue:       text(func(o *record) string { return o.queue }),
		qos:         text(func(o *record) string { return o.qos }),
		reservation: text(func(o *record) string { return o.reservation }),
		class:       text(func(o *record) string { return o.class }),
		probe:       some(func(o *record) bool { return o.probe }),
		submit:      when(func(o *record) int64 { return o.submit }),
		eligible:    when(func(o *record) int64 { return o.eligible }),

		requestedGPUs: r.sum(func(o *record) int64 { return o.requestedGPUs }), requestedNodes: r.sum(func(o *record) int64 { return o.requestedNodes }),
		gpus: r.sum(func(o *record) int64 { return o.gpus }),

		pendingReason: text(func(o *record) string { return o.pendingReason }),
		plannedStart:  when(func(o *record) int64 { return o.plannedStart }),
		price: price{
			priority:        newest(r.records, func(o *record) int64 { return o.priority }, unknownPriority),
			preemptible:     newest(r.records, func(o *record) int8 { return o.preemptible }, -1),
			preemptibleFrom: when(func(o *record) int64 { return o.preemptibleFrom }),
			checkpoint:      when(func(o *record) int64 { return o.checkpoint }),
			checkpointEvery: number(func(o *record) int64 { return o.checkpointEvery }),
			restartTakes:    number(func(o *record) int64 { return o.restartTakes }),
		},
		mode: "none", segment: -1, switches: -1,
		observedFirst: r.records[0].observed,
	}
	if n := number(func(o *record) int64 { return o.restart }); n >= 0 {
		a.number = uint32(n)
	}
	if r.het {
		a.components = r.components()
	}
	if o := last(r.records, func(o *record) bool { return len(o.plannedNodes) > 0 }); o != nil {
		a.plannedNodes = o.plannedNodes
	}
	// What was asked is one thing: taken whole from the newest record that knows any of it.
	asked := last(r.records, func(o *record) bool {
		return o.mode != "none" && o.mode != "unknown" || o.level != "" || o.segment >= 0 || o.switches >= 0 || o.spread || o.consolidate || o.exclusive
	})
	if a.mode = "unknown"; slices.ContainsFunc(r.records, func(o record) bool { return o.mode == "none" }) {
		a.mode = "none"
	}
	if asked != nil {
		a.mode, a.level, a.segment, a.switches = asked.mode, asked.level, asked.segment, asked.switches
		a.spread, a.consolidate, a.exclusive = asked.spread, asked.consolidate, asked.exclusive
	}
	a.start, a.end, a.endEarliest = r.span(clamped)
	if limit := when(func(o *record) int64 { return o.timeLimit }); limit > 0 && a.start > 0 {
		a.expectedEnd = min(a.start+limit, forever)
	}
	told := r.final()
	if told == nil {
		told = last(r.records, (*record).holding)
	}
	if told == nil {
		told = &r.records[len(r.records)-1]
	}
	a.state, a.stateRaw = stateWords[told.state], told.stateRaw
	for i := range r.records {
		o := &r.records[i]
		a.observedFirst, a.observedLast = min(a.observedFirst, o.observed), max(a.observedLast, o.observed)
		if !slices.Contains(a.sources, o.source) {
			a.sources = append(a.sources, o.source)
		}
	}
	slices.Sort(a.sources)
	return a, r.placements(&a, clamped)
}

// stateWords are the words of placement_events.state.
var stateWords = []string{"", "pending", "running", "suspended", "completing", "completed", "failed", "cancelled", "timeout",
	"node_fail", "preempted", "requeued", "vanished"}
