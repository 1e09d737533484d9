package pass

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	chcolumn "github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-io/spillway/schemas/event"
)

// lanes is how many chunks are judged at once.
const lanes = 2

// verdictRow is a row of verdicts; -1 = NULL.
type verdictRow struct {
	cluster, jobID, attempt          string
	seq                              uint16
	from, to                         int64
	outcome, reason                  string
	gpus                             int64
	nodeCount, unknownNodes          uint32
	used, fewest, excess, partitions int64
	domains                          []string
	domainGPUs                       []int64
	domainNodes                      []uint32
	balance                          float32
	smallest                         int64
	intent                           string
	intentMet                        int8
	aligned                          bool
	cause                            string
	detail                           map[string]string
	source                           string
	generation                       uint64
	judgedAt                         int64
	version                          uint64
	deleted                          uint8
}

var verdictColumns = columns[verdictRow]{
	plain("cluster", func(r *verdictRow) *string { return &r.cluster }),
	plain("job_id", func(r *verdictRow) *string { return &r.jobID }),
	plain("attempt", func(r *verdictRow) *string { return &r.attempt }),
	plain("seq", func(r *verdictRow) *uint16 { return &r.seq }),
	instant("valid_from", func(r *verdictRow) *int64 { return &r.from }),
	instant("valid_to", func(r *verdictRow) *int64 { return &r.to }),
	plain("outcome", func(r *verdictRow) *string { return &r.outcome }),
	plain("outcome_reason", func(r *verdictRow) *string { return &r.reason }),
	maybe[uint32]("gpus", func(r *verdictRow) *int64 { return &r.gpus }),
	plain("node_count", func(r *verdictRow) *uint32 { return &r.nodeCount }),
	plain("unknown_nodes", func(r *verdictRow) *uint32 { return &r.unknownNodes }),
	maybe[uint32]("domains_used", func(r *verdictRow) *int64 { return &r.used }),
	maybe[uint32]("domains_min", func(r *verdictRow) *int64 { return &r.fewest }),
	maybe[int32]("excess_domains", func(r *verdictRow) *int64 { return &r.excess }),
	maybe[uint32]("partitions_used", func(r *verdictRow) *int64 { return &r.partitions }),
	list("domains", "domains", func(r *verdictRow) *[]string { return &r.domains }, equal[string]),
	maybeList[uint32]("domain_gpus", func(r *verdictRow) *[]int64 { return &r.domainGPUs }),
	list("domain_nodes", "domain_nodes", func(r *verdictRow) *[]uint32 { return &r.domainNodes }, equal[uint32]),
	maybeBy("balance", "ifNull(balance, -1)", func(r *verdictRow) *float32 { return &r.balance }, func(v float32) *float32 { return known(v, v >= 0) }),
	maybe[uint32]("smallest_shard", func(r *verdictRow) *int64 { return &r.smallest }),
	plain("intent", func(r *verdictRow) *string { return &r.intent }),
	maybeBy("intent_met", "toInt8(ifNull(toInt8(intent_met), -1))", func(r *verdictRow) *int8 { return &r.intentMet }, func(v int8) *bool { return known(v > 0, v >= 0) }),
	plain("aligned", func(r *verdictRow) *bool { return &r.aligned }),
	plain("cause", func(r *verdictRow) *string { return &r.cause }),
	details("cause_detail", func(r *verdictRow) *map[string]string { return &r.detail }),
	plain("membership_source", func(r *verdictRow) *string { return &r.source }),
	meta(plain("membership_generation", func(r *verdictRow) *uint64 { return &r.generation })),
	meta(instant("judged_at", func(r *verdictRow) *int64 { return &r.judgedAt })),
	meta(plain("version", func(r *verdictRow) *uint64 { return &r.version })),
	plain("is_deleted", func(r *verdictRow) *uint8 { return &r.deleted }),
}

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
			err := p.readChunk(gctx, k)
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
	err = read(ctx, p.conn, placementFields, newestRows(placementFields, "placements", "cluster = {cluster:String} AND (job_id IN (SELECT job_id FROM wanted) OR job_id IN (SELECT job_id FROM placements WHERE cluster = {cluster:String}"+
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
	if err := read(ctx, p.conn, askedFields, newestRows(askedFields, "attempts", wanted), func(r attemptRow) {
		k.jobs[r.jobID].attempts = append(k.jobs[r.jobID].attempts, r)
	}); err != nil {
		return err
	}
	k.history = clusterHistory{homes: k.cluster.homes, offers: k.cluster.offers, claims: claims, usual: int(max(k.cluster.facts.usualGPUs, 0))}
	return read(ctx, p.conn, verdictColumns, newestRows(verdictColumns, "verdicts", wanted), func(r verdictRow) {
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
	if err := verdictColumns.insert(ctx, p.conn, "verdicts", out); err != nil {
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

// factColumns are the columns of the table `facts`; sql/verdict.sql says what they mean.
var factColumns = []struct {
	name string
	kind chcolumn.Type
}{
	{"id", "UInt32"}, {"gpus", "UInt32"}, {"node_count", "UInt32"}, {"unknown_nodes", "UInt32"}, {"unknown_reason", "String"},
	{"domain_gpus", "Array(Int64)"}, {"domain_nodes", "Array(UInt32)"},
	{"partitions_used", "UInt32"}, {"partition_unknown", "UInt8"}, {"levels_used", "UInt32"}, {"level_unknown", "UInt8"},
	{"sized", "UInt8"}, {"assumed", "UInt8"}, {"largest_nodes", "UInt32"}, {"needed_for_gpus", "UInt32"}, {"needed_for_nodes", "UInt32"},
	{"free_first", "Array(Int64)"}, {"later_first", "Array(Int64)"}, {"free_total", "Int64"}, {"held_by_others", "Int64"},
	{"mode", "String"}, {"level", "String"}, {"segment", "UInt32"}, {"spread_segments", "UInt8"}, {"consolidate_segments", "UInt8"},
	{"exclusive", "UInt8"}, {"max_switches", "UInt32"},
}

// row is the facts in the order of factColumns, but for the id.
func (f *placementFacts) row() []any {
	free, asked := cmp.Or(f.free, &freeFacts{}), cmp.Or(f.attempt, &attemptRow{})
	return []any{
		uint32(f.gpus), uint32(len(f.placement.nodes)), f.unknownNodes, f.unknownReason,
		f.domainGPUs, f.domainNodes,
		uint32(len(f.partitions)), bit(slices.Contains(f.partitions, "")), uint32(len(f.levels)), bit(slices.Contains(f.levels, "")),
		bit(f.sized), bit(f.assumed), f.largestNodes, f.neededForGPUs, f.neededForNodes,
		free.first, free.later, free.total, free.held,
		asked.mode, f.level(), uint32(max(asked.segment, 0)), bit(asked.spread), bit(asked.consolidate),
		bit(asked.exclusive), uint32(max(asked.switches, 0)),
	}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// ruling is what sql/verdict.sql makes of facts; -1 = NULL.
type ruling struct {
	outcome, reason            string
	fewest, excess, partitions int64
	smallest                   int64
	balance                    float32
	intent                     string
	intentMet                  int8
	aligned                    uint8
	cause                      string
	detail                     map[string]string
}

// rulingsKept bounds how many rulings are remembered.
const rulingsKept = 50_000

// rulings remembers what the rule makes of facts: it is a function of them alone, and most placements are alike (so many
// GPUs in one domain, nothing asked).
type rulings struct {
	mu    sync.Mutex
	known map[string]*ruling
}

func (r *rulings) get(key string) *ruling {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[key]
}

func (r *rulings) put(key string, made *ruling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= rulingsKept {
		r.known = map[string]*ruling{}
	}
	r.known[key] = made
}

// rule has ClickHouse judge facts; the verdicts come in the order of the facts.
func (p *Passes) rule(ctx context.Context, c *cluster, facts []placementFacts) ([]verdictRow, error) {
	made := make([]*ruling, len(facts))
	asked := map[string]int{} // facts that are not known, by the first of them
	var like []int            // for each of the facts: the first with the same
	var table *ext.Table
	var key []byte
	for i := range facts {
		row := facts[i].row()
		key = fmt.Appendf(key[:0], "%d %v", c.facts.usualGPUs, row)
		like = append(like, i)
		if made[i] = p.state.rulings.get(string(key)); made[i] != nil {
			continue
		}
		if first, again := asked[string(key)]; again {
			like[i] = first
			continue
		}
		asked[string(key)] = i
		if table == nil {
			var err error
			if table, err = factTable(); err != nil {
				return nil, err
			}
		}
		if err := table.Append(append([]any{uint32(i)}, row...)...); err != nil {
			return nil, fmt.Errorf("name the facts: %w", err)
		}
	}
	if table != nil {
		if err := p.apply(ctx, c, table, made); err != nil {
			return nil, fmt.Errorf("apply the rule: %w", err)
		}
		for key, i := range asked {
			if made[i] == nil {
				return nil, fmt.Errorf("apply the rule: no verdict for the facts %s", key)
			}
			p.state.rulings.put(key, made[i])
		}
	}
	out := make([]verdictRow, len(facts))
	for i := range facts {
		f, r, m := &facts[i], facts[i].placement, made[like[i]]
		out[i] = verdictRow{
			cluster: c.name, jobID: r.jobID, attempt: r.attempt, seq: r.seq, from: r.from, to: r.to, gpus: f.gpus, nodeCount: uint32(len(r.nodes)),
			unknownNodes: f.unknownNodes, used: int64(len(f.domains)), domains: f.domains, domainGPUs: f.domainGPUs, domainNodes: f.domainNodes,
			source: f.source, generation: f.generation,
			outcome: m.outcome, reason: m.reason, fewest: m.fewest, excess: m.excess, partitions: m.partitions, smallest: m.smallest, balance: m.balance,
			intent: m.intent, intentMet: m.intentMet, aligned: m.aligned == 1, cause: m.cause, detail: m.detail,
		}
		if out[i].used == 0 {
			out[i].used = -1 // cannot say
		}
	}
	return out, nil
}

func factTable() (*ext.Table, error) {
	var columns []func(*ext.Table) error
	for _, c := range factColumns {
		columns = append(columns, ext.Column(c.name, c.kind))
	}
	table, err := ext.NewTable("facts", columns...)
	if err != nil {
		return nil, fmt.Errorf("name the facts: %w", err)
	}
	return table, nil
}

// apply applies sql/verdict.sql; made[id] is what it makes of the facts with that id.
func (p *Passes) apply(ctx context.Context, c *cluster, facts *ext.Table, made []*ruling) error {
	text, err := statements.ReadFile("sql/verdict.sql")
	if err != nil {
		return err
	}
	rows, err := p.conn.Query(clickhouse.Context(ctx, clickhouse.WithExternalTable(facts), clickhouse.WithParameters(clickhouse.Parameters{
		"node_gpus": strconv.FormatInt(c.facts.usualGPUs, 10), "window_ms": millis(p.cfg.Window.Milliseconds()),
	})), string(text))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id uint32
		var r ruling
		if err := rows.Scan(&id, &r.outcome, &r.reason, &r.fewest, &r.excess, &r.partitions, &r.smallest, &r.balance, &r.intent, &r.intentMet, &r.aligned,
			&r.cause, &r.detail); err != nil {
			return err
		}
		made[id] = &r
	}
	return rows.Err()
}

// emitRows is how many spill records go out at once.
const emitRows = 1000

// withdrawn is the outcome in a spill record whose placement turned out not to be one.
const withdrawn = "withdrawn"

// send counts verdicts just written, and sends them out if somebody wants them.
func (p *Passes) send(ctx context.Context, verdicts []verdictRow, of []*attemptRow) error {
	for batch := range slices.Chunk(verdicts, emitRows) {
		records := make([]event.Record, 0, len(batch))
		for i := range batch {
			s := batch[i].spill(of[i])
			p.m.judged.WithLabelValues(s.GetOutcome()).Inc()
			records = append(records, s)
		}
		of = of[len(batch):]
		if p.emit == nil {
			continue
		}
		if err := p.emit(ctx, records...); err != nil {
			return fmt.Errorf("send spill records: %w", err)
		}
		p.m.emitted.Add(float64(len(records)))
	}
	return nil
}

// spill is the verdict as the record that goes out; a is what is known of the attempt, nil: nothing.
func (v *verdictRow) spill(a *attemptRow) *event.Spill {
	unsigned := func(n int64) *uint32 { return known(uint32(n), n >= 0) }
	a = cmp.Or(a, &attemptRow{})
	s := &event.Spill{
		Cluster: v.cluster, JobId: v.jobID, Attempt: v.attempt, Seq: uint32(v.seq), Outcome: v.outcome, Cause: v.cause,
		DomainsUsed: unsigned(v.used), DomainsMin: unsigned(v.fewest), Domains: v.domains, UnknownNodes: v.unknownNodes,
		IntentMet: known(v.intentMet > 0, v.intentMet >= 0), FromMs: v.from, ToMs: known(v.to, v.to != forever), MembershipGeneration: v.generation,
		JudgedAtMs: v.judgedAt, Name: a.name, User: a.user, Account: a.account, ServiceClass: a.class,
	}
	if v.deleted == 1 {
		s.Outcome = withdrawn
	}
	if !slices.Contains(v.domainGPUs, -1) {
		for _, n := range v.domainGPUs {
			s.DomainGpus = append(s.DomainGpus, uint32(n))
		}
	}
	return s
}

// known is a pointer to a value, nil when it is not known.
func known[T any](v T, is bool) *T {
	if !is {
		return nil
	}
	return &v
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
