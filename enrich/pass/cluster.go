package pass

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// keepEnded is how long after its end a job is still kept in memory: its last events come late, and others that ended
// at about the same time are judged by what it held.
const keepEnded = 15 * time.Minute

// keepJobs bounds the jobs in memory; of more, those that ended first are left to the tables.
const keepJobs = 50_000

// cluster is what the passes keep in memory of one cluster, so that a pass over a few events costs what they are and
// not what is stored. All of it is in the tables, and what is older is read from there.
type cluster struct {
	name   string
	homes  map[string][]interval[home]  // of all time, by node
	offers map[string][]interval[offer] // of all time, by node
	jobs   map[string]*job              // those of which something was held at since or later, and more
	since  int64                        // Unix ms
	rows   map[capacityKey]capacityRow  // of domain_capacity, the minutes from since on

	facts       clusterFacts
	settled     map[string][]interval[home] // see settled
	mostHeld    int64                       // GPUs that a job held of one node, at most
	usualJudged int64                       // facts.usualGPUs that the verdicts were found with
	history     *clusterHistory
}

// usualUnread is a usual number of GPUs that no cluster has.
const usualUnread = -2

// clusterFacts are what a judgement needs to know of a cluster as a whole.
type clusterFacts struct {
	topologyFrom int64 // until then its topology was not yet reported in full
	usualGPUs    int64 // of a node that nobody counted; -1 = nobody counted any
}

// job is the newest rows of one job.
type job struct {
	attempts   []attemptRow
	placements []placementRow
	verdicts   []verdictRow
	used       int64 // when a pass last had to do with it, Unix ms
}

// ends is when the job holds nothing any more.
func (j *job) ends() int64 {
	var end int64
	for i := range j.placements {
		if j.placements[i].deleted == 0 {
			end = max(end, j.placements[i].to)
		}
	}
	return end
}

func (j *job) attempt(key string) *attemptRow {
	for i := range j.attempts {
		if j.attempts[i].attempt == key {
			return &j.attempts[i]
		}
	}
	return nil
}

func (j *job) placement(attempt string, seq uint16) *placementRow {
	for i := range j.placements {
		if j.placements[i].attempt == attempt && j.placements[i].seq == seq {
			return &j.placements[i]
		}
	}
	return nil
}

func (j *job) verdict(attempt string, seq uint16) *verdictRow {
	for i := range j.verdicts {
		if j.verdicts[i].attempt == attempt && j.verdicts[i].seq == seq {
			return &j.verdicts[i]
		}
	}
	return nil
}

// put replaces or adds a row.
func put[R any](list []R, r R, same func(a, b *R) bool) []R {
	for i := range list {
		if same(&list[i], &r) {
			list[i] = r
			return list
		}
	}
	return append(list, r)
}

// cluster gives what is in memory of a cluster, and reads it first when nothing is.
func (p *Passes) cluster(ctx context.Context, name string) (*cluster, error) {
	if c := p.state.clusters[name]; c != nil {
		return c, nil
	}
	c := &cluster{name: name, jobs: map[string]*job{}, usualJudged: usualUnread, since: p.now().Add(-keepEnded).UnixMilli()}
	c.since -= c.since % minute
	p.m.loads.Inc()
	var err error
	if c.homes, c.offers, err = p.nodeHistory(ctx, name); err != nil {
		return nil, err
	}
	if err := p.loadJobs(ctx, c); err != nil {
		return nil, err
	}
	if c.rows, err = p.capacityRows(ctx, name, c.since, forever); err != nil {
		return nil, err
	}
	if err := p.conn.QueryRow(p.about(ctx, name), `SELECT ifNull(maxOrNull(toInt64(arrayMax(arrayMap(x -> ifNull(x, 0), node_gpus)))), 0)
		FROM placements WHERE cluster = {cluster:String} AND notEmpty(node_gpus)`).Scan(&c.mostHeld); err != nil {
		return nil, fmt.Errorf("read the most GPUs held of a node of cluster %s: %w", name, err)
	}
	c.settle(p.cfg.Settle)
	p.state.clusters[name] = c
	return c, nil
}

// loadJobs reads the jobs that held something at c.since or later.
func (p *Passes) loadJobs(ctx context.Context, c *cluster) error {
	return c.read(p.with(ctx, clickhouse.Parameters{"cluster": c.name, "since": millis(c.since)}), p.conn,
		"cluster = {cluster:String} AND job_id IN (SELECT job_id FROM placements WHERE cluster = {cluster:String} AND valid_to >= fromUnixTimestamp64Milli({since:Int64}))")
}

// remember reads jobs into memory, whenever they ended.
func (p *Passes) remember(ctx context.Context, c *cluster, ids []string) error {
	table, err := wantedTable([]string{"job_id"}, namesOf(ids))
	if err != nil {
		return err
	}
	now := p.now().UnixMilli()
	for _, id := range ids {
		c.jobs[id] = &job{used: now}
	}
	p.m.remembered.Add(float64(len(ids)))
	return c.read(clickhouse.Context(ctx, clickhouse.WithExternalTable(table), clickhouse.WithParameters(clickhouse.Parameters{"cluster": c.name})), p.conn,
		"cluster = {cluster:String} AND job_id IN (SELECT job_id FROM wanted)")
}

// read reads the newest rows of jobs.
func (c *cluster) read(ctx context.Context, conn driver.Conn, jobs string) error {
	of := func(id string) *job {
		if c.jobs[id] == nil {
			c.jobs[id] = &job{}
		}
		return c.jobs[id]
	}
	if err := read(ctx, conn, placementColumns, newestRows(placementColumns, schema.TablePlacements, jobs), func(r placementRow) {
		of(r.jobID).placements = append(of(r.jobID).placements, r)
	}); err != nil {
		return err
	}
	if err := read(ctx, conn, attemptColumns, newestRows(attemptColumns, schema.TableAttempts, jobs), func(r attemptRow) {
		of(r.jobID).attempts = append(of(r.jobID).attempts, r)
	}); err != nil {
		return err
	}
	return read(ctx, conn, verdictColumns, newestRows(verdictColumns, schema.TableVerdicts, jobs), func(r verdictRow) {
		of(r.jobID).verdicts = append(of(r.jobID).verdicts, r)
	})
}

// forget drops all that is in memory: it will be read from the tables again.
func (p *Passes) forget() { clear(p.state.clusters) }

// settle works out what follows from the nodes' records and what jobs hold.
func (c *cluster) settle(settle time.Duration) {
	c.history = nil
	first := int64(0)
	for _, list := range c.homes {
		for _, iv := range list {
			if iv.value.domain != "" && (first == 0 || iv.from < first) {
				first = iv.from
			}
		}
	}
	usual := int64(usualOffer(c.offers))
	if usual == 0 { // nobody reports nodes: the most that a job held of one
		usual = c.mostHeld
	}
	if usual == 0 {
		usual = -1
	}
	c.facts = clusterFacts{topologyFrom: first + settle.Milliseconds(), usualGPUs: usual}
	c.settled = settled(c.homes, c.facts.topologyFrom)
}

// tell takes over rows of this cluster that are new, and says whether a job holds more of a node than any did.
func (c *cluster) tell(attempts []attemptRow, placements []placementRow, now int64) bool {
	held := c.mostHeld
	of := func(id string) *job {
		if c.jobs[id] == nil {
			c.jobs[id] = &job{}
		}
		c.jobs[id].used = now
		return c.jobs[id]
	}
	for _, r := range attempts {
		if r.cluster != c.name {
			continue
		}
		j := of(r.jobID)
		j.attempts = put(j.attempts, r, func(a, b *attemptRow) bool { return a.attempt == b.attempt })
	}
	for _, r := range placements {
		if r.cluster != c.name {
			continue
		}
		j := of(r.jobID)
		j.placements = put(j.placements, r, func(a, b *placementRow) bool { return a.attempt == b.attempt && a.seq == b.seq })
		for _, n := range r.nodeGPUs {
			c.mostHeld = max(c.mostHeld, int64(n))
		}
	}
	c.history = nil
	return c.mostHeld > held
}

// prune forgets what ended long ago.
func (c *cluster) prune(now time.Time) {
	c.since = max(c.since, now.Add(-keepEnded).Truncate(time.Minute).UnixMilli())
	type ended struct {
		id string
		at int64
	}
	var over []ended
	for id, j := range c.jobs {
		if at := max(j.ends(), j.used); at < c.since {
			delete(c.jobs, id)
		} else if end := j.ends(); end < forever && end > 0 {
			over = append(over, ended{id, end})
		}
	}
	if many := len(c.jobs) - keepJobs; many > 0 && len(over) > 0 {
		slices.SortFunc(over, func(a, b ended) int { return cmp.Compare(a.at, b.at) })
		many = min(many+keepJobs/10, len(over))
		for _, e := range over[:many] {
			delete(c.jobs, e.id)
		}
		c.since = max(c.since, over[many-1].at+1)
		c.since += minute - c.since%minute
	}
	maps.DeleteFunc(c.rows, func(k capacityKey, _ capacityRow) bool { return k.minute < c.since })
	c.history = nil
}

// now is the history from c.since on.
func (c *cluster) now() clusterHistory {
	if c.history == nil {
		claims := map[string][]interval[claim]{}
		for _, j := range c.jobs {
			for i := range j.placements {
				if r := &j.placements[i]; r.deleted == 0 && r.to >= c.since {
					r.claim(claims)
				}
			}
		}
		c.history = &clusterHistory{homes: c.homes, settled: c.settled, offers: c.offers, claims: claims, usual: int(max(c.facts.usualGPUs, 0))}
	}
	return *c.history
}

// claim adds what a placement holds to the claims by node.
func (r *placementRow) claim(claims map[string][]interval[claim]) {
	if r.to <= r.from {
		return
	}
	for i, node := range r.nodes {
		if gpus := r.nodeGPUs[i]; gpus != 0 {
			claims[node] = append(claims[node], interval[claim]{r.from, r.to, claim{gpus: int(gpus), probe: r.probe, expectedEnd: r.expectedEnd}})
		}
	}
}

// edited gives a list of intervals after edits.
func edited[V any](list, put, drop []interval[V]) []interval[V] {
	if len(put)+len(drop) == 0 {
		return list
	}
	changed := map[int64]bool{}
	for _, iv := range slices.Concat(put, drop) {
		changed[iv.from] = true
	}
	out := slices.DeleteFunc(slices.Clone(list), func(iv interval[V]) bool { return changed[iv.from] })
	out = append(out, put...)
	slices.SortFunc(out, func(a, b interval[V]) int { return cmp.Compare(a.from, b.from) })
	return out
}

// nodeHistory reads where the nodes of a cluster sat and what they offered, of all time.
func (p *Passes) nodeHistory(ctx context.Context, cluster string) (map[string][]interval[home], map[string][]interval[offer], error) {
	homes, offers := map[string][]interval[home]{}, map[string][]interval[offer]{}
	params := clickhouse.Parameters{"cluster": cluster}
	err := p.ask(ctx, question{file: "cluster_homes", params: params}, func(rows driver.Rows) error {
		var node string
		var iv interval[home]
		h := &iv.value
		if err := rows.Scan(&node, &iv.from, &iv.to, &h.domain, &h.partition, &h.levels, &h.source, &h.reason, &h.generation); err != nil {
			return err
		}
		homes[node] = append(homes[node], iv)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = p.ask(ctx, question{file: "cluster_offers", params: params}, func(rows driver.Rows) error {
		var node string
		var iv interval[offer]
		if err := rows.Scan(&node, &iv.from, &iv.to, &iv.value.present, &iv.value.usable); err != nil {
			return err
		}
		offers[node] = append(offers[node], iv)
		return nil
	})
	return homes, offers, err
}
