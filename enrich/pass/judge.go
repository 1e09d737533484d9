package pass

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"golang.org/x/sync/errgroup"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// lanes is how many chunks are judged at once.
const lanes = 2

// judge brings the verdicts of placements up to date and gives how many are new or changed. What began lately is judged
// by what is in memory, the rest in chunks of time that are read for it.
func (p *Passes) judge(ctx context.Context, keys []placementKey) (int, error) {
	slices.SortFunc(keys, compareKeys)
	keys = slices.CompactFunc(keys, func(a, b placementKey) bool { a.from, a.ended = b.from, b.ended; return a == b })
	p.m.touched.Add(float64(len(keys)))
	var recent, old []placementKey
	for _, k := range keys {
		c, err := p.cluster(ctx, k.cluster)
		if err != nil {
			return 0, err
		}
		j := c.jobs[k.job]
		if k.ended = k.ended && j != nil && p.lasts(c, j, k); k.ended || k.from >= c.since && j != nil {
			recent = append(recent, k)
		} else {
			old = append(old, k)
		}
	}
	judged := 0
	for len(recent) > 0 {
		n := 1
		for n < len(recent) && recent[n].cluster == recent[0].cluster {
			n++
		}
		c := p.state.clusters[recent[0].cluster]
		written, err := p.judgeChunk(ctx, &chunk{cluster: c, keys: recent[:n], history: c.now(), jobs: c.jobs})
		if err != nil {
			return 0, fmt.Errorf("judge %d placements of cluster %s: %w", n, c.name, err)
		}
		c.hear(written)
		judged += len(written)
		recent = recent[n:]
	}
	more, err := p.judgeOld(ctx, old)
	return judged + more, err
}

// lasts says that a verdict holds whenever its placement ends: all that it depends on is from when that began, but for
// nodes that become known while it runs.
func (p *Passes) lasts(c *cluster, j *job, k placementKey) bool {
	v, r := j.verdict(k.attempt, k.seq), j.placement(k.attempt, k.seq)
	return v != nil && v.deleted == 0 && !p.unfinished(v) && r != nil && !slices.ContainsFunc(r.nodes, func(node string) bool {
		h := at(c.homes[node], r.from)
		return h == nil || h.domain == ""
	})
}

// chunk is placements of one cluster that are judged together, in order of time, and what that takes.
type chunk struct {
	cluster *cluster
	keys    []placementKey
	history clusterHistory
	jobs    map[string]*job
}

// judgeOld judges what is no longer in memory.
func (p *Passes) judgeOld(ctx context.Context, keys []placementKey) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if err := p.written(); err != nil {
		return 0, err
	}
	chunks, err := p.chunks(ctx, keys)
	if err != nil || len(chunks) == 0 {
		return 0, err
	}
	judged := 0
	var heard []verdictRow
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lanes)
	for _, keys := range chunks {
		g.Go(func() error {
			k := &chunk{cluster: p.state.clusters[keys[0].cluster], keys: keys}
			var written []verdictRow
			begun := time.Now()
			err := p.readChunk(gctx, k)
			p.m.seconds.WithLabelValues("judge_read").Observe(time.Since(begun).Seconds())
			if err == nil {
				written, err = p.judgeChunk(gctx, k)
			}
			if err != nil {
				return fmt.Errorf("judge %d placements of cluster %s: %w", len(keys), k.cluster.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			judged += len(written)
			for i := range written {
				if k.cluster.jobs[written[i].jobID] != nil {
					heard = append(heard, written[i])
				}
			}
			return nil
		})
	}
	err = g.Wait()
	for i := range heard {
		p.state.clusters[heard[i].cluster].hear(heard[i : i+1])
	}
	return judged, err
}

// hear takes over new verdicts on jobs in memory.
func (c *cluster) hear(verdicts []verdictRow) {
	for _, v := range verdicts {
		j := c.jobs[v.jobID]
		j.verdicts = put(j.verdicts, v, func(a, b *verdictRow) bool { return a.attempt == b.attempt && a.seq == b.seq })
	}
}

// readChunk reads the placements of a chunk, the others that held GPUs meanwhile, and the verdicts so far.
func (p *Passes) readChunk(ctx context.Context, k *chunk) error {
	k.jobs = map[string]*job{}
	for _, key := range k.keys {
		if k.jobs[key.job] == nil {
			k.jobs[key.job] = &job{}
		}
	}
	ids := make([][]any, 0, len(k.jobs))
	for id := range k.jobs {
		ids = append(ids, []any{id})
	}
	table, err := wantedTable([]string{"job_id"}, ids)
	if err != nil {
		return err
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithExternalTable(table), clickhouse.WithParameters(clickhouse.Parameters{
		"cluster": k.cluster.name, "first": millis(k.keys[0].from), "last": millis(k.keys[len(k.keys)-1].from),
	}))
	claims := map[string][]interval[claim]{}
	first, last := k.keys[0].from, k.keys[len(k.keys)-1].from
	wanted := "cluster = {cluster:String} AND job_id IN (SELECT job_id FROM wanted)"
	err = read(ctx, p.conn, placementFields, newestRows(placementFields, schema.TablePlacements, "cluster = {cluster:String} AND (job_id IN (SELECT job_id FROM wanted) OR job_id IN (SELECT job_id FROM placements WHERE cluster = {cluster:String}"+
		" AND valid_from <= fromUnixTimestamp64Milli({last:Int64}) AND valid_to > fromUnixTimestamp64Milli({first:Int64})))"), func(r placementRow) {
		if r.deleted == 0 && r.from <= last && r.to > first {
			r.claim(claims)
		}
		if j := k.jobs[r.jobID]; j != nil {
			j.placements = append(j.placements, r)
		}
	})
	if err != nil {
		return err
	}
	if err := read(ctx, p.conn, askedFields, newestRows(askedFields, schema.TableAttempts, wanted), func(r attemptRow) {
		k.jobs[r.jobID].attempts = append(k.jobs[r.jobID].attempts, r)
	}); err != nil {
		return err
	}
	k.history = clusterHistory{homes: k.cluster.homes, settled: k.cluster.settled, offers: k.cluster.offers, claims: claims, usual: int(max(k.cluster.facts.usualGPUs, 0))}
	return read(ctx, p.conn, verdictColumns, newestRows(verdictColumns, schema.TableVerdicts, wanted), func(r verdictRow) {
		k.jobs[r.jobID].verdicts = append(k.jobs[r.jobID].verdicts, r)
	})
}

// Columns that a judgement needs.
var (
	placementFields = placementColumns.only("job_id", "attempt", "seq", "valid_from", "valid_to", "nodes", "node_gpus", "gpus", "probe", "expected_end", "is_deleted")
	askedFields     = attemptColumns.only("job_id", "attempt", "name", "user", "account", "service_class", "gpus", "requested_nodes", "intent_mode", "intent_level",
		"segment_nodes", "spread_segments", "consolidate_segments", "exclusive_domain", "max_switches")
)

// chunks cuts keys, which are sorted, so that none holds more than ChunkRows placements nor spans a time in which many
// more began: those take part in what was free.
func (p *Passes) chunks(ctx context.Context, keys []placementKey) ([][]placementKey, error) {
	var out [][]placementKey
	for len(keys) > 0 {
		n := 1
		for n < len(keys) && keys[n].cluster == keys[0].cluster {
			n++
		}
		cut, err := p.chunksOfCluster(ctx, keys[:n])
		if err != nil {
			return nil, fmt.Errorf("cut into chunks: %w", err)
		}
		out = append(out, cut...)
		keys = keys[n:]
	}
	return out, nil
}

const hour = int64(time.Hour / time.Millisecond)

func (p *Passes) chunksOfCluster(ctx context.Context, keys []placementKey) ([][]placementKey, error) {
	begun := map[int64]int{} // placements by hour
	first, last := keys[0].from, keys[len(keys)-1].from
	if last-first > hour {
		rows, err := p.conn.Query(p.with(ctx, clickhouse.Parameters{"cluster": keys[0].cluster, "first": millis(first), "last": millis(last)}),
			`SELECT intDiv(toUnixTimestamp64Milli(valid_from), 3600000) AS h, count() FROM placements
			WHERE cluster = {cluster:String} AND valid_from >= fromUnixTimestamp64Milli({first:Int64}) AND valid_from <= fromUnixTimestamp64Milli({last:Int64}) GROUP BY h`)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var h int64
			var n uint64
			if err := rows.Scan(&h, &n); err != nil {
				return nil, err
			}
			begun[h] = int(n)
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	var out [][]placementKey
	start, others := 0, 0
	for i := range keys {
		if i > 0 {
			for h := keys[i-1].from/hour + 1; h <= keys[i].from/hour && others <= 2*p.cfg.ChunkRows; h++ {
				others += begun[h]
			}
		}
		if i-start >= p.cfg.ChunkRows || i > start && others > 2*p.cfg.ChunkRows {
			out = append(out, keys[start:i])
			start, others = i, begun[keys[i].from/hour]
		}
	}
	return append(out, keys[start:]), nil
}

// judgeChunk finds the facts, has ClickHouse judge them by sql/verdict.sql, and stores and sends what is new.
func (p *Passes) judgeChunk(ctx context.Context, k *chunk) ([]verdictRow, error) {
	begun := time.Now()
	took := func(step string) {
		p.m.seconds.WithLabelValues("judge_" + step).Observe(time.Since(begun).Seconds())
		begun = time.Now()
	}
	var sweep *factSweep
	var facts []placementFacts // to judge
	var out []verdictRow
	var of []*attemptRow // by verdict of out
	for _, key := range k.keys {
		j := k.jobs[key.job]
		r := j.placement(key.attempt, key.seq)
		if r == nil {
			return nil, fmt.Errorf("placement %d of attempt %q of job %q is not stored", key.seq, key.attempt, key.job)
		}
		if key.ended {
			v := *j.verdict(key.attempt, key.seq)
			v.to = r.to
			out, of = append(out, v), append(of, j.attempt(key.attempt))
			continue
		}
		if sweep == nil {
			sweep = newFactSweep(k.history, k.cluster.facts, p.cfg.Window.Milliseconds(), key.from)
		}
		f := sweep.facts(r, j.attempt(key.attempt))
		if f.judged() {
			facts = append(facts, f)
			continue
		}
		if before := j.verdict(key.attempt, key.seq); before != nil && (before.deleted == 0 || p.unfinished(before)) {
			gone := *before
			gone.deleted = 1
			out, of = append(out, gone), append(of, f.attempt)
		}
	}
	took("facts")
	verdicts, err := p.rule(ctx, k.cluster, facts)
	if err != nil {
		return nil, err
	}
	took("rule")
	for i := range verdicts {
		f := &facts[i]
		before := k.jobs[f.placement.jobID].verdict(f.placement.attempt, f.placement.seq)
		if before == nil || p.unfinished(before) || !verdictColumns.same(before, &verdicts[i]) {
			out, of = append(out, verdicts[i]), append(of, f.attempt)
		}
	}
	now := p.now().UnixMilli()
	for i := range out {
		out[i].judgedAt, out[i].version = now, p.version
	}
	if err := verdictColumns.insert(ctx, p.conn, schema.TableVerdicts, out); err != nil {
		return nil, err
	}
	took("store")
	if err := p.send(ctx, out, of); err != nil {
		return nil, err
	}
	took("send")
	return out, nil
}

// unfinished says that a verdict is of a pass that did not finish: it may not have been sent out.
func (p *Passes) unfinished(v *verdictRow) bool {
	return p.state.unclean && v.version > p.state.watermark
}

func (p *Passes) with(ctx context.Context, params clickhouse.Parameters) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithParameters(params))
}

// about is a context whose statements ask about one cluster.
func (p *Passes) about(ctx context.Context, cluster string) context.Context {
	return p.with(ctx, clickhouse.Parameters{"cluster": cluster})
}

// affected finds the placements whose verdict may depend on something that changed (all of one cluster):
//   - membership: what ran while it was different, and what began before the cluster was first known in full;
//   - what nodes offer: what began while it was different;
//   - GPUs held by others: the spills, and those that asked to be alone, that began while they were different.
func (p *Passes) affected(ctx context.Context, c *cluster, membership, offers, held []clusterSpan) ([]placementKey, error) {
	settle := p.cfg.Settle
	for i := range membership {
		membership[i].From, membership[i].To = membership[i].From.Add(-settle), membership[i].To.Add(settle)
	}
	for _, s := range slices.Concat(membership, offers, held) {
		if s.From.UnixMilli() < c.since {
			return p.affectedStored(ctx, c.name, membership, offers, held)
		}
	}
	var out []placementKey
	begin := func(spans []clusterSpan, from int64) bool {
		return slices.ContainsFunc(spans, func(s clusterSpan) bool { return from >= s.From.UnixMilli() && from < s.To.UnixMilli() })
	}
	for id, j := range c.jobs {
		for i := range j.placements {
			r := &j.placements[i]
			hit := r.deleted == 0 && begin(offers, r.from) || slices.ContainsFunc(membership, func(s clusterSpan) bool { return r.from < s.To.UnixMilli() && r.to > s.From.UnixMilli() })
			if !hit && begin(held, r.from) {
				v, a := j.verdict(r.attempt, r.seq), j.attempt(r.attempt)
				hit = v != nil && v.outcome == "spill" || a != nil && a.exclusive
			}
			if hit {
				out = append(out, placementKey{cluster: c.name, job: id, attempt: r.attempt, seq: r.seq, from: r.from})
			}
		}
	}
	return out, nil
}

// affectedStored is affected from the tables.
func (p *Passes) affectedStored(ctx context.Context, cluster string, membership, offers, held []clusterSpan) ([]placementKey, error) {
	var where []string
	for _, s := range membership {
		where = append(where, fmt.Sprintf("valid_from < %s AND valid_to > %s", at64(s.To.UnixMilli()), at64(s.From.UnixMilli())))
	}
	begin := func(s clusterSpan) string {
		return fmt.Sprintf("valid_from >= %s AND valid_from < %s", at64(s.From.UnixMilli()), at64(s.To.UnixMilli()))
	}
	for _, s := range offers {
		where = append(where, begin(s))
	}
	var keys []string
	if len(where) > 0 {
		keys = append(keys, "SELECT job_id, attempt, seq FROM placements WHERE cluster = {cluster:String} AND ("+strings.Join(where, " OR ")+")")
	}
	where = nil
	for _, s := range held {
		where = append(where, begin(s))
	}
	if len(where) > 0 {
		began := " WHERE cluster = {cluster:String} AND (" + strings.Join(where, " OR ") + ")"
		keys = append(keys, "SELECT job_id, attempt, seq FROM verdicts"+began+" AND outcome = 'spill'",
			"SELECT job_id, attempt, seq FROM placements"+began+" AND (job_id, attempt) IN (SELECT job_id, attempt FROM attempts"+
				" WHERE cluster = {cluster:String} AND exclusive_domain AND job_id IN (SELECT job_id FROM placements"+began+"))")
	}
	return p.keysOf(ctx, cluster, strings.Join(keys, " UNION DISTINCT "))
}

// keysOf reads where the placements that a subquery names are in time.
func (p *Passes) keysOf(ctx context.Context, cluster, subquery string) ([]placementKey, error) {
	if subquery == "" {
		return nil, nil
	}
	if err := p.written(); err != nil {
		return nil, err
	}
	return p.keys(p.about(ctx, cluster), `WITH named AS (`+subquery+`)
		SELECT cluster, job_id, attempt, seq, toUnixTimestamp64Milli(valid_from) FROM placements
		WHERE cluster = {cluster:String} AND job_id IN (SELECT job_id FROM named) AND (job_id, attempt, seq) IN (SELECT job_id, attempt, seq FROM named)
		ORDER BY version DESC LIMIT 1 BY job_id, attempt, seq`)
}

func (p *Passes) keys(ctx context.Context, query string) ([]placementKey, error) {
	rows, err := p.conn.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("find placements to judge: %w", err)
	}
	defer rows.Close()
	var out []placementKey
	for rows.Next() {
		var k placementKey
		if err := rows.Scan(&k.cluster, &k.job, &k.attempt, &k.seq, &k.from); err != nil {
			return nil, fmt.Errorf("find placements to judge: %w", err)
		}
		out = append(out, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("find placements to judge: %w", err)
	}
	return out, nil
}

// at64 is a time in the text of a statement.
func at64(ms int64) string { return "fromUnixTimestamp64Milli(" + millis(min(ms, forever)) + ")" }

// spansLimit bounds the conditions of one statement.
const spansLimit = 64

// spansOf gives the spans of one cluster, merged; of too many, the nearest ones are joined.
func spansOf(spans []clusterSpan, cluster string) []clusterSpan {
	var own []clusterSpan
	for _, s := range spans {
		if s.Cluster == cluster {
			own = append(own, s)
		}
	}
	own = mergeSpans(own)
	for len(own) > spansLimit {
		gaps := make([]int, len(own)-1)
		for i := range gaps {
			gaps[i] = i
		}
		slices.SortFunc(gaps, func(a, b int) int {
			return cmp.Compare(own[a+1].From.Sub(own[a].To), own[b+1].From.Sub(own[b].To))
		})
		for _, i := range gaps[:len(own)-spansLimit] {
			own[i+1].From = own[i].To // they touch now
		}
		own = mergeSpans(own)
	}
	return own
}
