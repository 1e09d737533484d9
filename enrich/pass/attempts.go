package pass

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// placementKey names one placement; from is where it is in time.
type placementKey struct {
	cluster, job, attempt string
	seq                   uint16
	from                  int64
	ended                 bool // nothing of it changed but its end
}

// attemptSpan says that a placement has to be judged because it or what was asked for it changed, and over which time
// what it held is not what it was ([0]: from, [1]: to, Unix ms; empty when that is the same).
type attemptSpan struct {
	placementKey
	held [2]int64
}

// flushRows is how many rows go into one insert of attempts and of placements.
const flushRows = 100_000

// smallBatch is up to how many records of placements a batch is folded by what is in memory of their jobs.
const smallBatch = 5_000

var recordColumns = slices.Concat(columns[record]{
	plain("cluster", func(r *record) *string { return &r.cluster }),
	plain("job_id", func(r *record) *string { return &r.jobID }),
	plain("component", func(r *record) *string { return &r.component }),
	plain("scheduler", func(r *record) *string { return &r.scheduler }),
	plain("source", func(r *record) *string { return &r.source }),
	plain("run_id", func(r *record) *string { return &r.runID }),
	maybe[uint32]("restart", func(r *record) *int64 { return &r.restart }),
	plain("array_job_id", func(r *record) *string { return &r.arrayJobID }),
	maybe[uint32]("array_task", func(r *record) *int64 { return &r.arrayTask }),
	plain("name", func(r *record) *string { return &r.name }),
	plain("user", func(r *record) *string { return &r.user }),
	plain("account", func(r *record) *string { return &r.account }),
	plain("queue", func(r *record) *string { return &r.queue }),
	plain("qos", func(r *record) *string { return &r.qos }),
	plain("reservation", func(r *record) *string { return &r.reservation }),
	plain("service_class", func(r *record) *string { return &r.class }),
	plain("probe", func(r *record) *bool { return &r.probe }),
	reading("toInt8(state)", plain("state", func(r *record) *int8 { return &r.state })),
	plain("state_raw", func(r *record) *string { return &r.stateRaw }),
	maybeInstant("submit", func(r *record) *int64 { return &r.submit }),
	maybeInstant("eligible", func(r *record) *int64 { return &r.eligible }),
	maybeInstant("start", func(r *record) *int64 { return &r.start }),
	maybeInstant("end", func(r *record) *int64 { return &r.end }),
	maybeInstant("end_earliest", func(r *record) *int64 { return &r.endEarliest }),
	reading("ifNull(time_limit_ms, 0)", plain("time_limit_ms", func(r *record) *int64 { return &r.timeLimit })),
	maybe[uint32]("requested_gpus", func(r *record) *int64 { return &r.requestedGPUs }),
	maybe[uint32]("requested_nodes", func(r *record) *int64 { return &r.requestedNodes }),
	maybe[uint32]("gpus", func(r *record) *int64 { return &r.gpus }),
	reading("toString(intent_mode)", plain("intent_mode", func(r *record) *string { return &r.mode })),
	plain("intent_level", func(r *record) *string { return &r.level }),
	maybe[uint32]("segment_nodes", func(r *record) *int64 { return &r.segment }),
	plain("spread_segments", func(r *record) *bool { return &r.spread }),
	plain("consolidate_segments", func(r *record) *bool { return &r.consolidate }),
	plain("exclusive_domain", func(r *record) *bool { return &r.exclusive }),
	maybe[uint32]("max_switches", func(r *record) *int64 { return &r.switches }),
	reading(`arrayStringConcat(nodes, '\n')`, plain("nodes", func(r *record) *string { return &r.packed.nodes })),
	reading("toString(node_gpus)", plain("node_gpus", func(r *record) *string { return &r.packed.gpus })),
	reading("toString(node_gpu_index)", plain("node_gpu_index", func(r *record) *string { return &r.packed.index })),
	reading("toString(node_from)", plain("node_from", func(r *record) *string { return &r.packed.from })),
	reading("toString(node_to)", plain("node_to", func(r *record) *string { return &r.packed.to })),
	reading(`arrayStringConcat(arrayMap(p -> arrayStringConcat(p, '\t'), node_pods), '\n')`, plain("node_pods", func(r *record) *string { return &r.packed.pods })),
	plain("partial", func(r *record) *bool { return &r.partial }),
	plain("pending_reason", func(r *record) *string { return &r.pendingReason }),
	maybeInstant("planned_start", func(r *record) *int64 { return &r.plannedStart }),
	reading(`arrayStringConcat(planned_nodes, '\n')`, plain("planned_nodes", func(r *record) *string { return &r.packed.planned })),
	instant("observed_at", func(r *record) *int64 { return &r.observed }),
	plain("revision", func(r *record) *uint64 { return &r.revision }),
	plain("traceparent", func(r *record) *string { return &r.traceparent }),
	plain("kafka_partition", func(r *record) *int32 { return &r.partition }),
	plain("kafka_offset", func(r *record) *int64 { return &r.offset }),
}, priceColumns(func(r *record) *price { return &r.price }))

var attemptColumns = slices.Concat(columns[attemptRow]{
	plain("cluster", func(r *attemptRow) *string { return &r.cluster }),
	plain("job_id", func(r *attemptRow) *string { return &r.jobID }),
	plain("attempt", func(r *attemptRow) *string { return &r.attempt }),
	plain("number", func(r *attemptRow) *uint32 { return &r.number }),
	plain("scheduler", func(r *attemptRow) *string { return &r.scheduler }),
	list("components", "components", func(r *attemptRow) *[]string { return &r.components }, equal[string]),
	plain("array_job_id", func(r *attemptRow) *string { return &r.arrayJobID }),
	maybe[uint32]("array_task", func(r *attemptRow) *int64 { return &r.arrayTask }),
	plain("name", func(r *attemptRow) *string { return &r.name }),
	plain("user", func(r *attemptRow) *string { return &r.user }),
	plain("account", func(r *attemptRow) *string { return &r.account }),
	plain("queue", func(r *attemptRow) *string { return &r.queue }),
	plain("qos", func(r *attemptRow) *string { return &r.qos }),
	plain("reservation", func(r *attemptRow) *string { return &r.reservation }),
	plain("service_class", func(r *attemptRow) *string { return &r.class }),
	plain("probe", func(r *attemptRow) *bool { return &r.probe }),
	plain("state", func(r *attemptRow) *string { return &r.state }),
	plain("state_raw", func(r *attemptRow) *string { return &r.stateRaw }),
	maybeInstant("submit", func(r *attemptRow) *int64 { return &r.submit }),
	maybeInstant("eligible", func(r *attemptRow) *int64 { return &r.eligible }),
	maybeInstant("start", func(r *attemptRow) *int64 { return &r.start }),
	maybeInstant("end", func(r *attemptRow) *int64 { return &r.end }),
	maybeInstant("end_earliest", func(r *attemptRow) *int64 { return &r.endEarliest }),
	maybeInstant("expected_end", func(r *attemptRow) *int64 { return &r.expectedEnd }),
	maybe[uint32]("requested_gpus", func(r *attemptRow) *int64 { return &r.requestedGPUs }),
	maybe[uint32]("requested_nodes", func(r *attemptRow) *int64 { return &r.requestedNodes }),
	maybe[uint32]("gpus", func(r *attemptRow) *int64 { return &r.gpus }),
	plain("intent_mode", func(r *attemptRow) *string { return &r.mode }),
	plain("intent_level", func(r *attemptRow) *string { return &r.level }),
	maybe[uint32]("segment_nodes", func(r *attemptRow) *int64 { return &r.segment }),
	plain("spread_segments", func(r *attemptRow) *bool { return &r.spread }),
	plain("consolidate_segments", func(r *attemptRow) *bool { return &r.consolidate }),
	plain("exclusive_domain", func(r *attemptRow) *bool { return &r.exclusive }),
	maybe[uint32]("max_switches", func(r *attemptRow) *int64 { return &r.switches }),
	plain("pending_reason", func(r *attemptRow) *string { return &r.pendingReason }),
	maybeInstant("planned_start", func(r *attemptRow) *int64 { return &r.plannedStart }),
	list("planned_nodes", "planned_nodes", func(r *attemptRow) *[]string { return &r.plannedNodes }, equal[string]),
	list("sources", "sources", func(r *attemptRow) *[]string { return &r.sources }, equal[string]),
	instant("observed_first", func(r *attemptRow) *int64 { return &r.observedFirst }),
	instant("observed_last", func(r *attemptRow) *int64 { return &r.observedLast }),
	plain("is_deleted", func(r *attemptRow) *uint8 { return &r.deleted }),
	meta(plain("version", func(r *attemptRow) *uint64 { return &r.version })),
}, priceColumns(func(r *attemptRow) *price { return &r.price }))

// priceColumns are named alike in placement_events and in attempts.
func priceColumns[R any](at func(*R) *price) columns[R] {
	return columns[R]{
		maybeBy("priority", "ifNull(priority, toInt64("+strconv.FormatInt(unknownPriority, 10)+"))", func(r *R) *int64 { return &at(r).priority },
			func(v int64) *int64 { return known(v, v != unknownPriority) }),
		maybeBy("preemptible", "ifNull(toInt8(preemptible), -1)", func(r *R) *int8 { return &at(r).preemptible },
			func(v int8) *bool { return known(v == 1, v >= 0) }),
		maybeInstant("preemptible_from", func(r *R) *int64 { return &at(r).preemptibleFrom }),
		maybeInstant("checkpoint", func(r *R) *int64 { return &at(r).checkpoint }),
		maybe[int64]("checkpoint_every_ms", func(r *R) *int64 { return &at(r).checkpointEvery }),
		maybe[int64]("restart_ms", func(r *R) *int64 { return &at(r).restartTakes }),
	}
}

var placementColumns = columns[placementRow]{
	plain("cluster", func(r *placementRow) *string { return &r.cluster }),
	plain("job_id", func(r *placementRow) *string { return &r.jobID }),
	plain("attempt", func(r *placementRow) *string { return &r.attempt }),
	plain("seq", func(r *placementRow) *uint16 { return &r.seq }),
	instant("valid_from", func(r *placementRow) *int64 { return &r.from }),
	instant("valid_to", func(r *placementRow) *int64 { return &r.to }),
	list("nodes", "nodes", func(r *placementRow) *[]string { return &r.nodes }, equal[string]),
	nodeGPUs("node_gpus", func(r *placementRow) *[]int32 { return &r.nodeGPUs }),
	lists("node_gpu_index", func(r *placementRow) *[][]uint16 { return &r.gpuIndex }),
	lists("node_pods", func(r *placementRow) *[][]string { return &r.nodePods }),
	maybe[uint32]("gpus", func(r *placementRow) *int64 { return &r.gpus }),
	plain("gpus_basis", func(r *placementRow) *string { return &r.basis }),
	plain("probe", func(r *placementRow) *bool { return &r.probe }),
	maybeInstant("expected_end", func(r *placementRow) *int64 { return &r.expectedEnd }),
	plain("is_deleted", func(r *placementRow) *uint8 { return &r.deleted }),
	meta(plain("version", func(r *placementRow) *uint64 { return &r.version })),
}

// packed is the arrays of a raw record as text: an array is several times dearer to scan than a string, and most of them
// are empty. Names stand on lines of their own, those of a node's pods between tabs, the others as ClickHouse writes arrays.
type packed struct{ nodes, gpus, index, from, to, pods, planned string }

// unpack fills the arrays of a record. One in which nothing is known is nil.
func (r *record) unpack() {
	p := &r.packed
	r.nodes, r.plannedNodes = words(p.nodes, "\n"), words(p.planned, "\n")
	for _, w := range words(arrayText(p.gpus), ",") {
		r.nodeGPUs = append(r.nodeGPUs, int32(numberOr(w, -1)))
	}
	if text := arrayText(p.index); text != "" {
		for w := range strings.SplitSeq(text[1:len(text)-1], "],[") {
			var index []uint16
			for _, x := range words(w, ",") {
				index = append(index, uint16(numberOr(x, 0)))
			}
			r.gpuIndex = append(r.gpuIndex, index)
		}
	}
	for _, w := range words(arrayText(p.from), ",") {
		r.nodeFrom = append(r.nodeFrom, instantOr(w, 0))
	}
	for _, w := range words(arrayText(p.to), ",") {
		r.nodeTo = append(r.nodeTo, instantOr(w, 0))
	}
	if strings.Trim(p.pods, "\n") != "" {
		for line := range strings.SplitSeq(p.pods, "\n") {
			r.nodePods = append(r.nodePods, words(line, "\t"))
		}
	}
	r.packed = packed{}
}

func words(text, sep string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, sep)
}

// arrayText is what stands between the brackets of an array of numbers or times, and "" when none of them is known.
func arrayText(text string) string {
	if !strings.ContainsAny(text, "0123456789") {
		return ""
	}
	return text[1 : len(text)-1]
}

func numberOr(text string, unknown int64) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return unknown // NULL
}

// instantOr is a DateTime64(3, 'UTC') of an array in Unix ms.
func instantOr(text string, unknown int64) int64 {
	if t, err := time.Parse("'2006-01-02 15:04:05.000'", text); err == nil {
		return t.UnixMilli()
	}
	return unknown // NULL
}

// reading replaces the expression that reads a column.
func reading[R any](expression string, c column[R]) column[R] {
	c.read = expression
	return c
}

// meta is a column that is no part of what a row says.
func meta[R any](c column[R]) column[R] {
	c.same = nil
	return c
}

// nodeGPUs is Array(Nullable(UInt16)), -1 for NULL.
func nodeGPUs[R any](name string, at func(*R) *[]int32) column[R] {
	c := list(name, "arrayMap(x -> ifNull(toInt32(x), -1), "+name+")", at, equal[int32])
	c.collect = func(rows []R) any {
		out := make([][]*uint16, len(rows))
		for i := range rows {
			values := make([]uint16, len(*at(&rows[i])))
			out[i] = make([]*uint16, len(values))
			for n, v := range *at(&rows[i]) {
				if v >= 0 {
					values[n] = uint16(v)
					out[i][n] = &values[n]
				}
			}
		}
		return out
	}
	return c
}

// lists is an array of arrays, with one for each node.
func lists[T comparable, R any](name string, at func(*R) *[][]T) column[R] {
	c := list(name, name, at, slices.Equal[[]T])
	collect := c.collect
	c.collect = func(rows []R) any {
		out := collect(rows).([][][]T)
		for _, nodes := range out {
			for n := range nodes {
				if nodes[n] == nil {
					nodes[n] = []T{}
				}
			}
		}
		return out
	}
	return c
}

// foldAttempts folds all records of the jobs the batch names into attempts and placements, writes what changed and says
// what of it has to be judged. A run whose key turned out to be another one is withdrawn under the old key. The writing
// of a small batch goes on when it returns, see Passes.written.
func (p *Passes) foldAttempts(ctx context.Context, b batch) (touched []attemptSpan, err error) {
	ranges := b.of(rawPlacements)
	if len(ranges) == 0 {
		return nil, nil
	}
	rows := batch(ranges).rows()
	jobs := "(cluster, job_id) IN (SELECT cluster, job_id FROM placement_events WHERE " + b.where(rawPlacements) + ")"
	f := &attemptsFold{p: p, ctx: clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"optimize_read_in_order": 1}))}
	defer f.close()
	reading := f.ctx
	if named := b.jobs(); named != nil && rows <= smallBatch {
		table, err := wantedTable([]string{"cluster", "job_id"}, named)
		if err != nil {
			return nil, fmt.Errorf("fold attempts: %w", err)
		}
		jobs = "(cluster, job_id) IN (SELECT cluster, job_id FROM wanted)"
		reading = clickhouse.Context(reading, clickhouse.WithExternalTable(table))
	}
	if f.records, err = openCursor(reading, p.conn, recordColumns, "SELECT "+recordColumns.reads()+" FROM placement_events WHERE "+jobs+" AND "+
		b.seen(rawPlacements)+" ORDER BY cluster, job_id"); err != nil {
		return nil, fmt.Errorf("fold attempts: read records: %w", err)
	}
	if rows <= smallBatch {
		err = f.small(ranges)
	} else {
		err = f.large(jobs)
	}
	if err != nil {
		return nil, fmt.Errorf("fold attempts: %w", err)
	}
	if rows <= smallBatch {
		w := &writing{done: make(chan struct{})}
		p.state.writing = w
		go func() {
			defer close(w.done)
			if err := f.flush(0); err != nil {
				w.err = fmt.Errorf("fold attempts: %w", err)
			}
		}()
	}
	return f.touched, nil
}

// writing is attempts and placements on their way into the tables, while what is in memory of them is judged.
type writing struct {
	done chan struct{}
	err  error
}

// written waits until what the pass has folded is in the tables. Whoever reads it from there calls it first, and so does
// the end of the pass.
func (p *Passes) written() error {
	w := p.state.writing
	if w == nil {
		return nil
	}
	<-w.done
	return w.err
}

// attemptsFold folds records job by job.
type attemptsFold struct {
	p             *Passes
	ctx           context.Context
	records       *cursor[record]
	attempts      *cursor[attemptRow] // of a large batch: as stored
	placements    *cursor[placementRow]
	newAttempts   []attemptRow
	newPlacements []placementRow
	touched       []attemptSpan
}

func (f *attemptsFold) close() {
	if f.records != nil {
		f.records.close()
	}
	if f.attempts != nil {
		f.attempts.close()
	}
	if f.placements != nil {
		f.placements.close()
	}
}

// take gives the records of the next job.
func (f *attemptsFold) take() ([]record, error) {
	cluster, job := f.records.next.cluster, f.records.next.jobID
	records, err := f.records.take(func(r *record) bool { return r.jobID == job && r.cluster == cluster })
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	for i := range records {
		records[i].unpack()
	}
	return records, nil
}

// small folds by what is in memory of the jobs; what is not is read into it first. It writes nothing.
func (f *attemptsFold) small(ranges []offsetRange) error {
	var jobs [][]record
	missing := map[string][]string{} // jobs by cluster
	for f.records.more {
		records, err := f.take()
		if err != nil {
			return err
		}
		jobs = append(jobs, records)
		cluster, id := records[0].cluster, records[0].jobID
		c, err := f.p.cluster(f.ctx, cluster)
		if err != nil {
			return err
		}
		if c.jobs[id] == nil && (f.p.state.unclean || !allNew(records, ranges)) {
			missing[cluster] = append(missing[cluster], id)
		}
	}
	for cluster, ids := range missing {
		if err := f.p.remember(f.ctx, f.p.state.clusters[cluster], ids); err != nil {
			return err
		}
	}
	f.link(jobs, ranges)
	for _, records := range jobs {
		known := cmp.Or(f.p.state.clusters[records[0].cluster].jobs[records[0].jobID], &job{})
		f.fold(records, known.attempts, known.placements)
	}
	for _, c := range f.p.state.clusters {
		if c.tell(f.newAttempts, f.newPlacements, f.p.now().UnixMilli()) {
			c.settle(f.p.cfg.Settle)
		}
	}
	return nil
}

// maxLinks is how many traces one pass is linked to.
const maxLinks = 32

// link links the pass to the traces of the records that are new.
func (f *attemptsFold) link(jobs [][]record, ranges []offsetRange) {
	span := trace.SpanFromContext(f.ctx)
	if !span.IsRecording() {
		return
	}
	links := 0
	for _, records := range jobs {
		for i := range records {
			if records[i].traceparent == "" || !allNew(records[i:i+1], ranges) {
				continue
			}
			from := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": records[i].traceparent})
			span.AddLink(trace.Link{SpanContext: trace.SpanContextFromContext(from)})
			if links++; links == maxLinks {
				return
			}
		}
	}
}

// allNew says that no record was there before this batch: nothing was folded of the job.
func allNew(records []record, ranges []offsetRange) bool {
	for i := range records {
		r := &records[i]
		if !slices.ContainsFunc(ranges, func(o offsetRange) bool { return o.Partition == r.partition && r.offset >= o.From }) {
			return false
		}
	}
	return true
}

// large walks records, known attempts and known placements in step. What is in memory is of no use afterwards.
func (f *attemptsFold) large(jobs string) (err error) {
	f.p.forget()
	if f.attempts, err = openCursor(f.ctx, f.p.conn, attemptColumns, newestRows(attemptColumns, schema.TableAttempts, jobs)); err != nil {
		return fmt.Errorf("read attempts: %w", err)
	}
	if f.placements, err = openCursor(f.ctx, f.p.conn, placementColumns, newestRows(placementColumns, schema.TablePlacements, jobs)); err != nil {
		return fmt.Errorf("read placements: %w", err)
	}
	for f.records.more {
		records, err := f.take()
		if err != nil {
			return err
		}
		cluster, job := records[0].cluster, records[0].jobID
		known, err := f.attempts.take(func(r *attemptRow) bool { return r.jobID == job && r.cluster == cluster })
		if err != nil {
			return fmt.Errorf("read attempts: %w", err)
		}
		held, err := f.placements.take(func(r *placementRow) bool { return r.jobID == job && r.cluster == cluster })
		if err != nil {
			return fmt.Errorf("read placements: %w", err)
		}
		f.fold(records, known, held)
		if err := f.flush(flushRows); err != nil {
			return err
		}
	}
	return f.flush(0)
}

func (f *attemptsFold) fold(records []record, known []attemptRow, held []placementRow) {
	folded := foldJob(records)
	for reason, n := range folded.clamped {
		f.p.m.clamped.WithLabelValues(reason).Add(float64(n))
	}
	f.compare(folded, known, held)
}

// compare keeps what differs from what is known, and tombstones of what is known and holds no longer.
func (f *attemptsFold) compare(folded foldedJob, known []attemptRow, held []placementRow) {
	asked := map[string]bool{} // attempts for which something else is asked than before
	for _, a := range folded.attempts {
		i := slices.IndexFunc(known, func(k attemptRow) bool { return k.attempt == a.attempt })
		if i >= 0 && attemptColumns.same(&a, &known[i]) {
			continue
		}
		if i < 0 || known[i].deleted == 1 || !sameAsked(&a, &known[i]) {
			asked[a.attempt] = true
		}
		a.version = f.p.version
		f.newAttempts = append(f.newAttempts, a)
	}
	for _, k := range known {
		if k.deleted == 0 && !slices.ContainsFunc(folded.attempts, func(a attemptRow) bool { return a.attempt == k.attempt }) {
			k.version, k.deleted = f.p.version, 1
			f.newAttempts = append(f.newAttempts, k)
		}
	}
	touch := func(r *placementRow, from, to int64, ended bool) {
		f.touched = append(f.touched, attemptSpan{placementKey{r.cluster, r.jobID, r.attempt, r.seq, r.from, ended}, [2]int64{from, to}})
	}
	for _, r := range folded.placements {
		i := slices.IndexFunc(held, func(k placementRow) bool { return k.attempt == r.attempt && k.seq == r.seq })
		if i >= 0 && placementColumns.same(&r, &held[i]) {
			if asked[r.attempt] {
				touch(&r, 0, 0, false)
			}
			continue
		}
		switch {
		case i < 0 || held[i].deleted == 1:
			touch(&r, r.from, r.to, false)
		default:
			from, to := changedHolding(&held[i], &r)
			before := held[i]
			before.to = r.to
			touch(&r, from, to, !asked[r.attempt] && r.to > r.from && held[i].to > r.from && placementColumns.same(&before, &r))
		}
		r.version = f.p.version
		f.newPlacements = append(f.newPlacements, r)
	}
	for _, k := range held {
		gone := !slices.ContainsFunc(folded.placements, func(r placementRow) bool { return k.attempt == r.attempt && k.seq == r.seq })
		if k.deleted == 0 && gone {
			touch(&k, k.from, k.to, false)
			k.version, k.deleted = f.p.version, 1
			f.newPlacements = append(f.newPlacements, k)
		}
	}
}

// sameAsked reports whether all of an attempt that a verdict depends on is the same.
func sameAsked(a, b *attemptRow) bool {
	return a.gpus == b.gpus && a.requestedNodes == b.requestedNodes && a.mode == b.mode && a.level == b.level && a.segment == b.segment && a.spread == b.spread &&
		a.consolidate == b.consolidate && a.exclusive == b.exclusive && a.switches == b.switches
}

// changedHolding is the time over which a holds other GPUs than b, or is expected to end at another time.
func changedHolding(a, b *placementRow) (from, to int64) {
	if !slices.Equal(a.nodes, b.nodes) || !slices.Equal(a.nodeGPUs, b.nodeGPUs) || a.probe != b.probe || a.expectedEnd != b.expectedEnd ||
		a.from != b.from && a.to != b.to {
		return min(a.from, b.from), max(a.to, b.to)
	}
	if a.from != b.from {
		return min(a.from, b.from), max(a.from, b.from)
	}
	return min(a.to, b.to), max(a.to, b.to)
}

// flush writes what has gathered when it is at least so many rows.
func (f *attemptsFold) flush(atLeast int) error {
	if max(len(f.newAttempts), len(f.newPlacements)) < max(atLeast, 1) {
		return nil
	}
	if err := together(
		func() error { return attemptColumns.insert(f.ctx, f.p.conn, schema.TableAttempts, f.newAttempts) },
		func() error { return placementColumns.insert(f.ctx, f.p.conn, schema.TablePlacements, f.newPlacements) },
	); err != nil {
		return err
	}
	f.newAttempts, f.newPlacements = f.newAttempts[:0], f.newPlacements[:0]
	return nil
}

// heldSpans are the times over which the GPUs held in a cluster changed.
func heldSpans(touched []attemptSpan) []clusterSpan {
	var out []clusterSpan
	for _, t := range touched {
		if t.held[1] > t.held[0] {
			out = append(out, clusterSpan{t.cluster, moment(t.held[0]), moment(t.held[1])})
		}
	}
	return mergeSpans(out)
}

func compareKeys(a, b placementKey) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.from, b.from), cmp.Compare(a.job, b.job), cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.seq, b.seq),
		cmp.Compare(bit(a.ended), bit(b.ended))) // the one that tells more is the first
}
