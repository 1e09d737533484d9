package traffic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-io/spillway/enrich/pass"
	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// state is what the pass remembers; all of it can be read again from the tables.
type state struct {
	ready     bool
	next      map[int32]int64 // by Kafka partition: the first offset of counters not counted yet
	loaded    time.Time       // when the newest counted row was loaded
	judged    uint64          // version of the last pass over placements whose rows were taken
	version   uint64
	finished  uint64 // version of the last pass that finished
	finishing uint64 // version of the last pass whose progress was sent, stored or not
	seen      string
	hours     map[time.Time]bool // whose minutes have changed since the hour was computed
	cut       map[node][2]int64  // nodes that have MIG instances, and when these were told of first and last, in Unix ms
}

const passName = "traffic"

// key names a placement.
type key struct {
	cluster, job, attempt string
	seq                   uint16
}

// node is one node of a cluster.
type node struct{ cluster, name string }

// span is [from, to).
type span struct{ from, to time.Time }

// Once takes in all that is new: minutes with new counters, and placements and verdicts that changed. It ends with
// pass.ErrNotAlone when somebody else does the same: rows of two are the same rows, but the newer version is not always of
// whoever saw more, and one that is ended half-way leaves the other's behind it.
func (p *Pass) Once(ctx context.Context) error {
	// No match in a LEFT JOIN is NULL: what is not known is not zero. The other setting turns off a search for comparisons that
	// follow from others, which finds none here and is a quarter of what the join of a minute costs (305 ms with it, 228 without,
	// of 288 nodes: most is analysis).
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"join_use_nulls": 1, "optimize_and_compare_chain": 0}))
	if err := p.load(ctx); err != nil {
		return err
	}
	var seen string
	var judged, newest uint64
	// The number of rows and the newest load time are kept with every part: this reads no rows.
	err := p.conn.QueryRow(ctx, `SELECT toString((SELECT (count(), max(loaded_at)) FROM counters)),
		(SELECT max(version) FROM pass_progress WHERE pass = '`+pass.Name+`' AND raw_table = ''), (SELECT max(version) FROM pass_progress WHERE pass = '`+passName+`')`).
		Scan(&seen, &judged, &newest)
	if err == nil {
		err = pass.Alone(newest, p.state.finished, p.state.finishing)
	}
	if err != nil {
		return fmt.Errorf("look for new counters: %w", err)
	}
	if seen == p.state.seen && judged == p.state.judged {
		return p.rollHours(ctx)
	}
	p.state.version = max(p.state.version+1, uint64(p.now().UnixMicro()))
	batch, minutes, loaded, err := p.news(ctx)
	if err != nil {
		return err
	}
	if err := p.instances(ctx); err != nil {
		return err
	}
	counted, err := p.counted(ctx)
	if err != nil {
		return err
	}
	changed, err := p.changed(ctx, judged, counted)
	if err != nil {
		return err
	}
	touched, err := p.count(ctx, minutes)
	if err != nil {
		return err
	}
	late, err := p.recount(ctx, changed, counted)
	if err != nil {
		return err
	}
	read := map[key]placement{}
	for _, c := range changed {
		touched = append(touched, c.key)
		read[c.key] = c.now
	}
	if err := p.weigh(ctx, append(touched, late...), judged, read); err != nil {
		return err
	}
	if err := p.finish(ctx, batch, judged); err != nil {
		return err
	}
	p.state.seen, p.state.judged, p.state.loaded = seen, judged, loaded
	p.m.passes.WithLabelValues("ok").Inc()
	return p.rollHours(ctx)
}

// load reads how far the pass has come.
func (p *Pass) load(ctx context.Context) error {
	s := &p.state
	if s.ready {
		return nil
	}
	s.next, s.hours, s.cut = map[int32]int64{}, map[time.Time]bool{}, map[node][2]int64{}
	rows, err := p.conn.Query(ctx, `SELECT raw_table, kafka_partition, next_offset, version FROM pass_progress
		WHERE pass = '`+passName+`' ORDER BY version DESC LIMIT 1 BY raw_table, kafka_partition`)
	if err != nil {
		return fmt.Errorf("read progress of counters: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		var partition int32
		var next int64
		var version uint64
		if err := rows.Scan(&table, &partition, &next, &version); err != nil {
			return fmt.Errorf("read progress of counters: %w", err)
		}
		s.finished = max(s.finished, version)
		if table == schema.TableCounters {
			s.next[partition] = next
		} else {
			s.judged = uint64(next)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read progress of counters: %w", err)
	}
	// A pass that did not finish may have written newer rows; they are written over.
	s.version = max(s.version, s.finished)
	for _, table := range []string{schema.TableCountersMinute, schema.TableJobTraffic, schema.TableTrafficEvidence} {
		var v uint64
		if err := p.conn.QueryRow(ctx, "SELECT max(version) FROM "+table).Scan(&v); err != nil {
			return fmt.Errorf("read the newest version of %s: %w", table, err)
		}
		s.version = max(s.version, v)
	}
	// Hours of the last two days that a stopped process left behind their minutes.
	hours, err := p.conn.Query(ctx, `SELECT h FROM (SELECT toStartOfHour(minute) AS h, max(version) AS v FROM counters_minute WHERE minute >= {since:DateTime} GROUP BY h) AS m
		LEFT JOIN (SELECT hour, max(version) AS v FROM counters_hour WHERE hour >= {since:DateTime} GROUP BY hour) AS done ON m.h = done.hour
		WHERE m.v > ifNull(done.v, 0)`, clickhouse.Named("since", p.now().Add(-48*time.Hour).UTC().Format(time.DateTime)))
	if err != nil {
		return fmt.Errorf("find hours that are not rolled up: %w", err)
	}
	defer hours.Close()
	for hours.Next() {
		var h time.Time
		if err := hours.Scan(&h); err != nil {
			return fmt.Errorf("find hours that are not rolled up: %w", err)
		}
		s.hours[h.UTC()] = true
	}
	if err := hours.Err(); err != nil {
		return fmt.Errorf("find hours that are not rolled up: %w", err)
	}
	s.ready = true
	return nil
}

// loadSlack is how far the clocks of loaders may differ, and how long an insert may be on its way.
const loadSlack = 10 * time.Minute

// news gives the offsets not counted yet, and the minutes they tell of with those that the next scrape may fall in.
func (p *Pass) news(ctx context.Context) (batch map[int32]int64, minutes []time.Time, loaded time.Time, err error) {
	defer p.step("news")()
	cond := "1"
	for partition, next := range p.state.next {
		cond += fmt.Sprintf(" AND NOT (kafka_partition = %d AND kafka_offset < %d)", partition, next)
	}
	loaded = p.state.loaded
	if !loaded.IsZero() { // the rest of the table is older, and its granules are left alone
		cond += " AND loaded_at >= " + at64(loaded.Add(-loadSlack))
	}
	rows, err := p.conn.Query(ctx, "SELECT kafka_partition, max(kafka_offset) + 1, groupUniqArray(toStartOfMinute(observed_at)), max(loaded_at) FROM counters WHERE "+cond+" GROUP BY kafka_partition")
	if err != nil {
		return nil, nil, loaded, fmt.Errorf("find new counters: %w", err)
	}
	defer rows.Close()
	batch = map[int32]int64{}
	for rows.Next() {
		var partition int32
		var next int64
		var told []time.Time
		var at time.Time
		if err := rows.Scan(&partition, &next, &told, &at); err != nil {
			return nil, nil, loaded, fmt.Errorf("find new counters: %w", err)
		}
		batch[partition] = next
		if at.After(loaded) {
			loaded = at
		}
		for _, m := range told {
			// The difference to the scrape after a late one changes too.
			for after := time.Duration(0); after <= p.cfg.MaxGap; after += time.Minute {
				minutes = append(minutes, m.UTC().Add(after))
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, nil, loaded, fmt.Errorf("find new counters: %w", err)
	}
	slices.SortFunc(minutes, time.Time.Compare)
	return batch, slices.Compact(minutes), loaded, nil
}

// instances learns which nodes have MIG instances, from counters loaded since the last time, and from all of them at first.
func (p *Pass) instances(ctx context.Context) error {
	defer p.step("instances")()
	cond := "entity = 'mig'"
	if !p.state.loaded.IsZero() {
		cond += " AND loaded_at >= " + at64(p.state.loaded.Add(-loadSlack))
	}
	rows, err := p.conn.Query(ctx, "SELECT cluster, node, toUnixTimestamp64Milli(min(observed_at)), toUnixTimestamp64Milli(max(observed_at)) FROM counters WHERE "+cond+" GROUP BY cluster, node")
	if err != nil {
		return fmt.Errorf("find nodes with MIG instances: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var n node
		var told [2]int64
		if err := rows.Scan(&n.cluster, &n.name, &told[0], &told[1]); err != nil {
			return fmt.Errorf("find nodes with MIG instances: %w", err)
		}
		if was, ok := p.state.cut[n]; ok {
			told = [2]int64{min(told[0], was[0]), max(told[1], was[1])}
		}
		p.state.cut[n] = told
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("find nodes with MIG instances: %w", err)
	}
	return nil
}

// unsure is a context whose statements over some minutes come with the tables cut and parts, see placed.sql.
func (p *Pass) unsure(ctx context.Context, minutes []time.Time) (context.Context, error) {
	defer p.step("unsure")()
	from, to := minutes[0], minutes[len(minutes)-1].Add(time.Minute)
	cut, err := ext.NewTable("cut", ext.Column("cluster", "String"), ext.Column("node", "String"))
	for n, told := range p.state.cut {
		if err == nil && told[0] < to.UnixMilli() && told[1] >= from.UnixMilli() {
			err = cut.Append(n.cluster, n.name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("name nodes with MIG instances: %w", err)
	}
	parts, err := ext.NewTable("parts", ext.Column("cluster", "String"), ext.Column("job_id", "String"), ext.Column("attempt", "String"), ext.Column("seq", "UInt16"),
		ext.Column("node", "String"))
	if err != nil {
		return nil, fmt.Errorf("name parts of nodes: %w", err)
	}
	asked := clickhouse.Context(ctx, clickhouse.WithExternalTable(cut), clickhouse.WithParameters(clickhouse.Parameters{"from": stamp(from), "to": stamp(to)}))
	rows, err := p.conn.Query(asked, statement("unsure", nil))
	if err != nil {
		return nil, fmt.Errorf("find parts of nodes: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var k key
		var name string
		if err := rows.Scan(&k.cluster, &k.job, &k.attempt, &k.seq, &name); err != nil {
			return nil, fmt.Errorf("find parts of nodes: %w", err)
		}
		if err := parts.Append(k.cluster, k.job, k.attempt, k.seq, name); err != nil {
			return nil, fmt.Errorf("name parts of nodes: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("find parts of nodes: %w", err)
	}
	return clickhouse.Context(ctx, clickhouse.WithExternalTable(cut, parts)), nil
}

// chunk is how many minutes one statement takes; it bounds ClickHouse's memory.
const chunk = 10

// parallel is how many statements run at once: ClickHouse works at most of one on one core.
const parallel = 2

// count computes minutes anew, for the whole fleet, and gives the placements that moved anything in them.
func (p *Pass) count(ctx context.Context, minutes []time.Time) (touched []key, err error) {
	var work []func(context.Context) error
	var mu sync.Mutex
	for part := range slices.Chunk(minutes, chunk) {
		work = append(work, func(ctx context.Context) error {
			if err := p.exec(ctx, "minutes", part, "1", "1"); err != nil {
				return err
			}
			ctx, err := p.unsure(ctx, part)
			if err != nil {
				return err
			}
			keys, err := p.join(ctx, part, "1", "1")
			mu.Lock()
			defer mu.Unlock()
			touched = append(touched, keys...)
			return err
		})
	}
	if err := inParallel(ctx, work); err != nil {
		return nil, err
	}
	for _, m := range minutes {
		p.state.hours[m.Truncate(time.Hour)] = true
	}
	p.m.minutes.Add(float64(len(minutes)))
	return touched, nil
}

// inParallel does all of the work, some at a time, and stops at the first error.
func inParallel(ctx context.Context, work []func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, w := range work {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return w(ctx)
		})
	}
	return g.Wait()
}

// join writes job_traffic of some minutes and gives the placements it has written to.
func (p *Pass) join(ctx context.Context, minutes []time.Time, scope, keys string) ([]key, error) {
	if err := p.exec(ctx, "job_traffic", minutes, scope, keys); err != nil {
		return nil, err
	}
	if err := p.exec(ctx, "withdraw", minutes, scope, keys); err != nil {
		return nil, err
	}
	return p.keys(ctx, fmt.Sprintf(`SELECT DISTINCT cluster, job_id, attempt, seq FROM job_traffic
		WHERE minute >= toDateTime(%s) AND minute <= toDateTime(%s) AND version = %d`,
		at64(minutes[0]), at64(minutes[len(minutes)-1]), p.state.version))
}

// exec runs a statement over some minutes of some nodes and placements.
func (p *Pass) exec(ctx context.Context, name string, minutes []time.Time, scope, keys string) error {
	defer p.step(name)()
	list := make([]string, len(minutes))
	for i, m := range minutes {
		list[i] = fmt.Sprintf("toDateTime(%d, 'UTC')", m.Unix())
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{
		"from": stamp(minutes[0]), "to": stamp(minutes[len(minutes)-1].Add(time.Minute)),
		"max_gap": fmt.Sprint(int(p.cfg.MaxGap.Seconds())), "version": fmt.Sprint(p.state.version),
	}))
	text := statement(name, map[string]string{"minutes": strings.Join(list, ", "), "scope": scope, "keys": keys})
	if err := p.conn.Exec(ctx, text); err != nil {
		return fmt.Errorf("compute %s from %s on: %w", name, minutes[0].Format(time.RFC3339), err)
	}
	return nil
}

// step times a step.
func (p *Pass) step(name string) func() {
	begun := time.Now()
	return func() { p.m.seconds.WithLabelValues(name).Observe(time.Since(begun).Seconds()) }
}

// placement is what decides whose traffic counts for a placement.
type placement struct {
	span
	holding uint64 // hash of its nodes, GPUs and pods
	gone    uint8  // 1: it was withdrawn
}

// change is a placement that is new or not what it was, and when that makes a difference.
type change struct {
	key
	now   placement
	spans []span
}

// counted is the time whose minutes are known, no further back than the lookback; empty when none are.
func (p *Pass) counted(ctx context.Context) (s span, err error) {
	err = p.conn.QueryRow(ctx, "SELECT min(minute), max(minute) FROM counters_minute WHERE minute >= toDateTime("+at64(p.now().Add(-p.cfg.Lookback))+")").Scan(&s.from, &s.to)
	if err != nil {
		return s, fmt.Errorf("find the minutes that were counted: %w", err)
	}
	if s.to.Unix() <= 0 {
		return span{}, nil
	}
	s.to = s.to.Add(time.Minute)
	return s, nil
}

// changed lists placements and verdicts written since the last time by passes that finished, as far as they were counted or
// reach into the time that was. What a placement was when it was counted last stands in its evidence.
func (p *Pass) changed(ctx context.Context, judged uint64, counted span) ([]change, error) {
	defer p.step("changed")()
	if judged == p.state.judged || counted.to.IsZero() {
		return nil, nil // whoever holds GPUs when the first counters come is counted with these
	}
	rows, err := p.conn.Query(ctx, fmt.Sprintf(`WITH keys AS
		(
			SELECT DISTINCT cluster, job_id, attempt, seq FROM placements WHERE version > %[1]d AND version <= %[2]d
				AND (valid_to >= %[3]s OR (cluster, job_id) IN (SELECT cluster, job_id FROM traffic_evidence))
			UNION DISTINCT
			SELECT DISTINCT cluster, job_id, attempt, seq FROM verdicts WHERE version > %[1]d AND version <= %[2]d
				AND (cluster, job_id) IN (SELECT cluster, job_id FROM traffic_evidence)
		)
		SELECT n.cluster, n.job_id, n.attempt, n.seq, n.valid_from, n.valid_to, n.is_deleted, n.holding, c.valid_from, c.valid_to, c.holding
		FROM
		(
			SELECT cluster, job_id, attempt, seq, valid_from, valid_to, is_deleted, `+holding+` AS holding
			FROM placements WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM keys) AND (cluster, job_id, attempt, seq) IN (SELECT * FROM keys)
			ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq
		) AS n
		LEFT JOIN
		(
			SELECT cluster, job_id, attempt, seq, valid_from, valid_to, holding, is_deleted
			FROM traffic_evidence WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM keys)
			ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq
		) AS c ON n.cluster = c.cluster AND n.job_id = c.job_id AND n.attempt = c.attempt AND n.seq = c.seq AND c.is_deleted = 0`, p.state.judged, judged, at64(counted.from)))
	if err != nil {
		return nil, fmt.Errorf("find placements that changed: %w", err)
	}
	defer rows.Close()
	var out []change
	for rows.Next() {
		var c change
		var wasFrom, wasTo *time.Time
		var wasHolding *uint64
		if err := rows.Scan(&c.cluster, &c.job, &c.attempt, &c.seq, &c.now.from, &c.now.to, &c.now.gone, &c.now.holding, &wasFrom, &wasTo, &wasHolding); err != nil {
			return nil, fmt.Errorf("find placements that changed: %w", err)
		}
		switch {
		case wasFrom == nil:
			if c.now.gone == 0 {
				c.spans = []span{c.now.span}
			}
		case c.now.gone == 1 || *wasHolding != c.now.holding:
			c.spans = []span{c.now.span, {*wasFrom, *wasTo}}
		default:
			c.spans = []span{between(c.now.from, *wasFrom), between(c.now.to, *wasTo)}
		}
		out = append(out, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("find placements that changed: %w", err)
	}
	return out, nil
}

func between(a, b time.Time) span {
	if a.After(b) {
		a, b = b, a
	}
	return span{a, b}
}

// recount joins again the minutes in which placements are not what they were, for them and for those that shared nodes with
// them. It gives the placements it has written to.
func (p *Pass) recount(ctx context.Context, changed []change, counted span) (touched []key, err error) {
	defer p.step("recount")()
	byMinute := map[time.Time]bool{}
	var keys []key
	for _, c := range changed {
		for _, s := range c.spans {
			from, to := s.from, s.to
			if from.Before(counted.from) {
				from = counted.from
			}
			if to.After(counted.to) {
				to = counted.to
			}
			if !from.Before(to) {
				continue
			}
			// A scrape at the very end still counts, and lies in the minute that begins there.
			for m := from.UTC().Truncate(time.Minute); !m.After(to) && m.Before(counted.to); m = m.Add(time.Minute) {
				byMinute[m] = true
			}
			keys = append(keys, c.key)
		}
	}
	if len(byMinute) == 0 {
		return nil, nil
	}
	minutes := make([]time.Time, 0, len(byMinute))
	for m := range byMinute {
		minutes = append(minutes, m)
	}
	slices.SortFunc(minutes, time.Time.Compare)
	for part := range slices.Chunk(minutes, chunk) {
		ctx, err := p.unsure(ctx, part)
		if err != nil {
			return nil, err
		}
		for some := range slices.Chunk(distinct(keys), maxKeys) {
			ctx := clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{
				"from": stamp(part[0]), "to": stamp(part[len(part)-1].Add(time.Minute)),
			}))
			asked, err := named(ctx, some)
			if err != nil {
				return nil, err
			}
			shared, err := p.keys(asked, statement("sharing", map[string]string{"keys": isNamed}))
			if err != nil {
				return nil, err
			}
			if asked, err = named(ctx, append(shared, some...)); err != nil {
				return nil, err
			}
			keys, err := p.join(asked, part, "(cluster, node) IN (SELECT cluster, arrayJoin(nodes) FROM placements WHERE "+isNamed+")", isNamed)
			if err != nil {
				return nil, err
			}
			touched = append(touched, keys...)
		}
	}
	return touched, nil
}

// maxKeys is how many placements one statement names.
const maxKeys = 2000

func distinct(keys []key) []key {
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(strings.Compare(a.cluster, b.cluster), strings.Compare(a.job, b.job), strings.Compare(a.attempt, b.attempt), cmp.Compare(a.seq, b.seq))
	})
	return slices.Compact(keys)
}

// weigh writes the evidence of placements whose traffic, time or verdict changed. Some were read before their traffic was
// counted, by when the pass over placements judged had finished. One that changes later, and is counted as it was or as it
// will be, is among the changed of the next pass; its evidence still says what it was.
func (p *Pass) weigh(ctx context.Context, keys []key, judged uint64, read map[key]placement) error {
	defer p.step("evidence")()
	for some := range slices.Chunk(distinct(keys), maxKeys) {
		ctx := clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{
			"quiet_nvlink": fmt.Sprint(p.cfg.QuietNVLink), "quiet_ports": fmt.Sprint(p.cfg.QuietPorts), "busy_ports": fmt.Sprint(p.cfg.BusyPorts),
			"min_seconds": fmt.Sprint(p.cfg.MinMeasured.Seconds()), "outlier_factor": fmt.Sprint(p.cfg.OutlierFactor),
			"recent": p.now().Add(-time.Hour).UTC().Format(time.DateTime), "judged": fmt.Sprint(judged), "version": fmt.Sprint(p.state.version),
		}))
		ctx, err := namedAs(ctx, some, read)
		if err != nil {
			return err
		}
		if err := p.conn.Exec(ctx, statement("evidence", map[string]string{"keys": isNamed})); err != nil {
			return fmt.Errorf("weigh the traffic of %d placements: %w", len(some), err)
		}
	}
	return nil
}

// finish writes the progress of a pass: its last statement.
func (p *Pass) finish(ctx context.Context, batch map[int32]int64, judged uint64) error {
	b, err := p.conn.PrepareBatch(ctx, "INSERT INTO pass_progress (pass, raw_table, kafka_partition, next_offset, version)")
	if err != nil {
		return fmt.Errorf("write progress of counters: %w", err)
	}
	defer b.Close()
	for partition, next := range batch {
		if err := b.Append(passName, schema.TableCounters, partition, next, p.state.version); err != nil {
			return fmt.Errorf("write progress of counters: %w", err)
		}
	}
	// Placements are followed by version, so this row's next_offset holds one: up to it they are taken in.
	if err := b.Append(passName, schema.TablePlacements, int32(0), int64(judged), p.state.version); err != nil {
		return fmt.Errorf("write progress of counters: %w", err)
	}
	p.state.finishing = p.state.version
	if err := b.Send(); err != nil {
		return fmt.Errorf("write progress of counters: %w", err)
	}
	p.state.finished = p.state.version
	for partition, next := range batch {
		p.state.next[partition] = next
	}
	return nil
}

// rollHours computes the hours that are over and whose minutes changed.
func (p *Pass) rollHours(ctx context.Context) error {
	defer p.step("hours")()
	for hour := range p.state.hours {
		if p.now().Sub(hour) < time.Hour+p.cfg.MaxGap {
			continue
		}
		ctx := clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{
			"from": hour.Format(time.DateTime), "to": hour.Add(time.Hour).Format(time.DateTime), "version": fmt.Sprint(p.state.version),
		}))
		if err := p.conn.Exec(ctx, statement("hours", nil)); err != nil {
			return fmt.Errorf("compute the hour %s: %w", hour.Format(time.RFC3339), err)
		}
		delete(p.state.hours, hour)
	}
	return nil
}

// keys runs a query for placements.
func (p *Pass) keys(ctx context.Context, query string) ([]key, error) {
	rows, err := p.conn.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("find placements: %w", err)
	}
	defer rows.Close()
	var out []key
	for rows.Next() {
		var k key
		if err := rows.Scan(&k.cluster, &k.job, &k.attempt, &k.seq); err != nil {
			return nil, fmt.Errorf("find placements: %w", err)
		}
		out = append(out, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("find placements: %w", err)
	}
	return out, nil
}

// isNamed is a condition that holds for the placements that come along with a statement, see named. The job alone is
// asked for too, so that the tables' key is used.
const isNamed = "((cluster, job_id) IN (SELECT cluster, job_id FROM named) AND (cluster, job_id, attempt, seq) IN (SELECT cluster, job_id, attempt, seq FROM named))"

// named is a context whose statements come with placements, as the temporary table named.
func named(ctx context.Context, keys []key) (context.Context, error) { return namedAs(ctx, keys, nil) }

// namedAs is named, with what was read of some of the placements; of the others these columns are NULL.
func namedAs(ctx context.Context, keys []key, read map[key]placement) (context.Context, error) {
	table, err := ext.NewTable("named", ext.Column("cluster", "String"), ext.Column("job_id", "String"), ext.Column("attempt", "String"), ext.Column("seq", "UInt16"),
		ext.Column("valid_from", "Nullable(DateTime64(3, 'UTC'))"), ext.Column("valid_to", "Nullable(DateTime64(3, 'UTC'))"),
		ext.Column("holding", "Nullable(UInt64)"), ext.Column("is_deleted", "Nullable(UInt8)"))
	if err != nil {
		return nil, fmt.Errorf("name the placements: %w", err)
	}
	for _, k := range keys {
		if was, ok := read[k]; ok {
			err = table.Append(k.cluster, k.job, k.attempt, k.seq, was.from, was.to, was.holding, was.gone)
		} else {
			err = table.Append(k.cluster, k.job, k.attempt, k.seq, nil, nil, nil, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("name the placements: %w", err)
		}
	}
	return clickhouse.Context(ctx, clickhouse.WithExternalTable(table)), nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

func at64(t time.Time) string {
	return fmt.Sprintf("fromUnixTimestamp64Milli(%d, 'UTC')", t.UnixMilli())
}
