package pass

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-io/spillway/schemas/event"
)

//go:embed sql/judge_*.sql sql/verdict.sql
var judgeSQL embed.FS

// lanes is how many chunks are judged at once; each has scratch tables of its own.
const lanes = 2

// judgement is the statements of one lane, in order.
type judgement struct {
	scratch, placed, sizes, spread, facts, holdings, free, verdict, store string
}

func newJudgements() ([lanes]judgement, error) {
	var out [lanes]judgement
	t, err := template.New("").Option("missingkey=error").ParseFS(judgeSQL, "sql/*.sql")
	if err != nil {
		return out, fmt.Errorf("read judge statements: %w", err)
	}
	for lane := range out {
		j := &out[lane]
		for name, to := range map[string]*string{
			"judge_scratch.sql": &j.scratch, "judge_placed.sql": &j.placed, "judge_sizes.sql": &j.sizes, "judge_spread.sql": &j.spread,
			"judge_facts.sql": &j.facts, "judge_holdings.sql": &j.holdings, "judge_free.sql": &j.free, "verdict.sql": &j.verdict,
			"judge_store.sql": &j.store,
		} {
			var b strings.Builder
			if err := t.ExecuteTemplate(&b, name, lane); err != nil {
				return out, fmt.Errorf("read judge statements: %w", err)
			}
			*to = b.String()
		}
	}
	return out, nil
}

// clusterFacts are what a judgement needs to know of a cluster as a whole.
type clusterFacts struct {
	topologyFrom int64 // until then its topology was not yet reported in full
	usualGPUs    int64 // of a node that nobody counted; -1 = nobody counted any
	fromHeld     bool  // nodes are not reported: usualGPUs is the most that a job held of one
}

// judge brings the verdicts of placements up to date and gives how many are new or changed. It is the same work for
// twenty placements and for a million: sorted by time and cut into chunks.
func (p *Passes) judge(ctx context.Context, keys []placementKey) (int, error) {
	slices.SortFunc(keys, compareKeys)
	keys = slices.CompactFunc(keys, func(a, b placementKey) bool { a.from = b.from; return a == b })
	p.m.touched.Add(float64(len(keys)))
	chunks, err := p.chunks(ctx, keys)
	if err != nil || len(chunks) == 0 {
		return 0, err
	}
	queue := make(chan []placementKey, len(chunks))
	for _, c := range chunks {
		queue <- c
	}
	close(queue)
	var judged [lanes]int
	g, gctx := errgroup.WithContext(ctx)
	for lane := range min(lanes, len(chunks)) {
		g.Go(func() error {
			for chunk := range queue {
				n, err := p.judgeChunk(gctx, lane, chunk)
				if err != nil {
					return fmt.Errorf("judge %d placements of cluster %s: %w", len(chunk), chunk[0].cluster, err)
				}
				judged[lane] += n
			}
			return nil
		})
	}
	err = g.Wait()
	total := 0
	for _, n := range judged {
		total += n
	}
	return total, err
}

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

func (p *Passes) with(ctx context.Context, params clickhouse.Parameters) context.Context {
	return clickhouse.Context(ctx, clickhouse.WithParameters(params))
}

// judgeChunk runs the statements over one chunk: all of one cluster, sorted by time.
func (p *Passes) judgeChunk(ctx context.Context, lane int, chunk []placementKey) (int, error) {
	j := &p.state.judgements[lane]
	if p.state.scratch[lane] {
		for _, t := range []string{"placed", "sizes", "spread", "facts", "holdings", "free", "verdicts"} {
			if err := p.conn.Exec(ctx, fmt.Sprintf("TRUNCATE TABLE pass_%s_%d", t, lane)); err != nil {
				return 0, fmt.Errorf("empty the scratch tables: %w", err)
			}
		}
	} else {
		for statement := range strings.SplitSeq(j.scratch, ";") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if err := p.conn.Exec(ctx, statement); err != nil {
				return 0, fmt.Errorf("make the scratch tables: %w", err)
			}
		}
		p.state.scratch[lane] = true
	}
	touched, err := ext.NewTable("touched", ext.Column("id", "UInt32"), ext.Column("job_id", "String"), ext.Column("attempt", "String"), ext.Column("seq", "UInt16"))
	if err != nil {
		return 0, err
	}
	for i, k := range chunk {
		if err := touched.Append(uint32(i), k.job, k.attempt, k.seq); err != nil {
			return 0, fmt.Errorf("name the placements: %w", err)
		}
	}
	cluster := chunk[0].cluster
	facts := p.state.clusters[cluster]
	number := strconv.FormatUint(p.version, 10) + strconv.Itoa(lane)
	params := clickhouse.Parameters{
		"cluster": cluster, "first": sqlTime(chunk[0].from), "last": sqlTime(chunk[len(chunk)-1].from),
		"window_ms": millis(p.cfg.Window.Milliseconds()), "node_gpus": strconv.FormatInt(facts.usualGPUs, 10), "topology_from": sqlTime(facts.topologyFrom),
		"judged_at_ms": millis(p.now().UnixMilli()), "version": strconv.FormatUint(p.version, 10), "chunk": number, "rows": strconv.Itoa(len(chunk)),
	}
	plain := p.with(ctx, params)
	step := func(name, statement string, ctx context.Context) error {
		begun := time.Now()
		err := p.conn.Exec(ctx, statement)
		p.m.seconds.WithLabelValues("judge_" + name).Observe(time.Since(begun).Seconds())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return step("placed", j.placed, clickhouse.Context(gctx, clickhouse.WithParameters(params), clickhouse.WithExternalTable(touched)))
	})
	g.Go(func() error { return step("sizes", j.sizes, p.with(gctx, params)) })
	if err := g.Wait(); err != nil {
		return 0, err
	}
	if err := step("spread", j.spread, plain); err != nil {
		return 0, err
	}
	if err := step("facts", j.facts, plain); err != nil {
		return 0, err
	}
	var disputed uint64
	if err := p.conn.QueryRow(ctx, fmt.Sprintf("SELECT countIf(disputed) FROM pass_facts_%d", lane)).Scan(&disputed); err != nil {
		return 0, fmt.Errorf("count disputed placements: %w", err)
	}
	if disputed > 0 {
		if err := step("holdings", j.holdings, plain); err != nil {
			return 0, err
		}
		if err := step("free", j.free, plain); err != nil {
			return 0, err
		}
	}
	if err := step("verdict", j.verdict, plain); err != nil {
		return 0, err
	}
	if err := step("store", j.store, plain); err != nil {
		return 0, err
	}
	return p.report(ctx, params, fmt.Sprintf("cluster = {cluster:String} AND version = {version:UInt64} AND job_id IN (SELECT job_id FROM pass_facts_%d)"+
		" AND (job_id, attempt, seq) IN (SELECT job_id, attempt, seq FROM pass_facts_%d)", lane, lane))
}

// sqlTime is a time as a DateTime64 parameter.
func sqlTime(ms int64) string { return moment(ms).Format("2006-01-02 15:04:05.000") }

// emitRows is how many spill records go out at once.
const emitRows = 1000

// withdrawn is the outcome in a spill record whose placement turned out not to be one.
const withdrawn = "withdrawn"

// report counts the verdicts just written, and sends them out if somebody wants them.
func (p *Passes) report(ctx context.Context, params clickhouse.Parameters, where string) (int, error) {
	total := 0
	if p.emit == nil {
		rows, err := p.conn.Query(p.with(ctx, params), "SELECT if(is_deleted, 'withdrawn', toString(outcome)) AS o, count() FROM verdicts WHERE "+where+" GROUP BY o")
		if err != nil {
			return 0, fmt.Errorf("count verdicts: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var outcome string
			var n uint64
			if err := rows.Scan(&outcome, &n); err != nil {
				return 0, fmt.Errorf("count verdicts: %w", err)
			}
			p.m.judged.WithLabelValues(outcome).Add(float64(n))
			total += int(n)
		}
		return total, rows.Err()
	}
	rows, err := p.conn.Query(p.with(ctx, params), `SELECT v.cluster, v.job_id, v.attempt, v.seq, if(v.is_deleted, 'withdrawn', toString(v.outcome)), v.cause, v.domains_used, v.domains_min,
			v.domains, if(has(v.domain_gpus, NULL), [], arrayMap(x -> assumeNotNull(x), v.domain_gpus)), v.unknown_nodes, v.intent_met,
			toUnixTimestamp64Milli(v.valid_from), toUnixTimestamp64Milli(v.valid_to), v.membership_generation, toUnixTimestamp64Milli(v.judged_at),
			a.name, a.user, a.account, a.service_class
		FROM (SELECT * FROM verdicts WHERE `+where+`) AS v
		LEFT JOIN (SELECT cluster, job_id, attempt, name, user, account, service_class FROM attempts
			WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM verdicts WHERE `+where+`)
			ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt) AS a ON v.cluster = a.cluster AND v.job_id = a.job_id AND v.attempt = a.attempt`)
	if err != nil {
		return 0, fmt.Errorf("read verdicts: %w", err)
	}
	defer rows.Close()
	var out []event.Record
	send := func() error {
		if len(out) == 0 {
			return nil
		}
		if err := p.emit(ctx, out...); err != nil {
			return fmt.Errorf("send spill records: %w", err)
		}
		p.m.emitted.Add(float64(len(out)))
		out = nil
		return nil
	}
	for rows.Next() {
		s, err := scanSpill(rows)
		if err != nil {
			return 0, fmt.Errorf("read verdicts: %w", err)
		}
		p.m.judged.WithLabelValues(s.GetOutcome()).Inc()
		total++
		if out = append(out, s); len(out) == emitRows {
			if err := send(); err != nil {
				return 0, err
			}
		}
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("read verdicts: %w", err)
	}
	return total, send()
}

func scanSpill(rows driver.Rows) (*event.Spill, error) {
	s := &event.Spill{}
	var seq uint16
	var to int64
	if err := rows.Scan(&s.Cluster, &s.JobId, &s.Attempt, &seq, &s.Outcome, &s.Cause, &s.DomainsUsed, &s.DomainsMin, &s.Domains, &s.DomainGpus,
		&s.UnknownNodes, &s.IntentMet, &s.FromMs, &to, &s.MembershipGeneration, &s.JudgedAtMs, &s.Name, &s.User, &s.Account, &s.ServiceClass); err != nil {
		return nil, err
	}
	s.Seq = uint32(seq)
	if to != forever {
		s.ToMs = &to
	}
	return s, nil
}

// affected finds the placements whose verdict may depend on something that changed (all of one cluster):
//   - membership: what ran while it was different, and what began before the cluster was first known in full;
//   - what nodes offer: what began while it was different;
//   - GPUs held by others: the spills, and those that asked to be alone, that began while they were different.
func (p *Passes) affected(ctx context.Context, cluster string, membership, offers, held []clusterSpan) ([]placementKey, error) {
	settle := p.cfg.Settle.Milliseconds()
	var where []string
	for _, s := range membership {
		where = append(where, fmt.Sprintf("valid_from < %s AND valid_to > %s", at64(s.To.UnixMilli()+settle), at64(s.From.UnixMilli()-settle)))
	}
	for _, s := range offers {
		where = append(where, fmt.Sprintf("valid_from >= %s AND valid_from < %s", at64(s.From.UnixMilli()), at64(s.To.UnixMilli())))
	}
	var keys []string
	if len(where) > 0 {
		keys = append(keys, "SELECT job_id, attempt, seq FROM placements WHERE cluster = {cluster:String} AND ("+strings.Join(where, " OR ")+")")
	}
	where = nil
	for _, s := range held {
		where = append(where, fmt.Sprintf("valid_from >= %s AND valid_from < %s", at64(s.From.UnixMilli()), at64(s.To.UnixMilli())))
	}
	if len(where) > 0 {
		keys = append(keys, "SELECT job_id, attempt, seq FROM verdicts WHERE cluster = {cluster:String} AND ("+strings.Join(where, " OR ")+
			") AND (outcome = 'spill' OR intent LIKE '%exclusive domain%')")
	}
	return p.keysOf(ctx, cluster, strings.Join(keys, " UNION DISTINCT "))
}

// keysOf reads where the placements that a subquery names are in time.
func (p *Passes) keysOf(ctx context.Context, cluster, subquery string) ([]placementKey, error) {
	if subquery == "" {
		return nil, nil
	}
	return p.keys(p.with(ctx, clickhouse.Parameters{"cluster": cluster}), `WITH named AS (`+subquery+`)
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
