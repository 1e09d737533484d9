package live

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/spillway-io/spillway/query/advise"
	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// offsetKey names a partition by its raw table.
type offsetKey struct {
	table string
	id    int
}

// ask runs one SQL file and scans its rows into T by column name.
func ask[T any](ctx context.Context, conn driver.Conn, file string, params clickhouse.Parameters) ([]T, error) {
	text, err := sqlFiles.ReadFile("sql/" + file + ".sql")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var out []T
	if err := conn.Select(clickhouse.Context(ctx, clickhouse.WithParameters(params)), &out, string(text)); err != nil {
		return nil, fmt.Errorf("read the advisor's %s: %w", file, err)
	}
	return out, nil
}

// moment is when a picture is of.
type moment struct {
	now  time.Time
	open time.Time // what is so then is what the tables' intervals are read by
}

// present is the moment now: what has not ended is so, whatever the clock of whoever began it.
func present(now time.Time) moment { return moment{now, schema.OpenEnd.Add(-time.Millisecond)} }

// since are the parameters of a statement that looks back for so long.
func (m moment) since(back time.Duration) clickhouse.Parameters {
	text := func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }
	return clickhouse.Parameters{"since": text(m.now.Add(-back)), "open": text(m.open)}
}

func readProgress(ctx context.Context, conn driver.Conn) (map[offsetKey]int64, error) {
	type row struct {
		Table     string `ch:"raw_table"`
		Partition int32  `ch:"kafka_partition"`
		Next      int64  `ch:"next_offset"`
	}
	rows, err := ask[row](ctx, conn, "progress", nil)
	out := map[offsetKey]int64{}
	for _, r := range rows {
		out[offsetKey{r.Table, int(r.Partition)}] = r.Next
	}
	return out, err
}

// once gives the one copy of a name that the picture keeps: rows tell the same names again and again.
func (s *session) once(name string) string {
	if kept, ok := s.names[name]; ok {
		return kept
	}
	s.names[name] = name
	return name
}

// load reads the picture and gives the offsets from which the topics go on. The offsets are read first: what the tables
// then hold beyond them is folded again, which changes nothing.
func (s *session) load(ctx context.Context) (map[offsetKey]int64, error) {
	conn, now := s.feed.deps.Conn, present(s.feed.now())
	from, err := readProgress(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := s.read(ctx, conn, now); err != nil {
		return nil, err
	}
	return from, s.loadSources(ctx, conn, now, from)
}

// read reads what was so at a moment.
func (s *session) read(ctx context.Context, conn driver.Conn, at moment) error {
	s.names = map[string]string{}
	defer func() { s.names = nil }()
	for _, step := range []func(context.Context, driver.Conn, moment) error{s.loadNodes, s.loadModels, s.loadTopology, s.loadHistory, s.loadTraffic, s.loadHolds} {
		if err := step(ctx, conn, at); err != nil {
			return err
		}
	}
	return nil
}

// said is how far back the word of a source is looked for that it says again within the hour.
const said = 2 * time.Hour

func (s *session) loadNodes(ctx context.Context, conn driver.Conn, at moment) error {
	type row struct {
		Cluster     string  `ch:"cluster"`
		Node        string  `ch:"node"`
		Source      string  `ch:"source"`
		Present     *uint16 `ch:"gpus_present"`
		Healthy     *uint16 `ch:"gpus_healthy"`
		Allocatable *uint16 `ch:"gpus_allocatable"`
		Schedulable *bool   `ch:"schedulable"`
		Removed     bool    `ch:"removed"`
		Revision    uint64  `ch:"revision"`
	}
	rows, err := ask[row](ctx, conn, "nodes", at.since(0))
	if err != nil {
		return err
	}
	number := func(n *uint16) int32 {
		if n == nil {
			return -1
		}
		return int32(*n)
	}
	for _, r := range rows {
		f := capacity{
			source: s.once(r.Source), present: number(r.Present), healthy: number(r.Healthy), allocatable: number(r.Allocatable), schedulable: -1,
			removed: r.Removed, revision: r.Revision,
		}
		if r.Schedulable != nil {
			f.schedulable = 0
			if *r.Schedulable {
				f.schedulable = 1
			}
		}
		c := s.cluster(r.Cluster)
		node := s.once(r.Node)
		if at, known := sourceOf(c.capacity[node], f.source); !known {
			c.capacity[node] = slices.Insert(c.capacity[node], at, f)
		} else {
			c.capacity[node][at] = f
		}
	}
	type reserved struct {
		Cluster     string `ch:"cluster"`
		Node        string `ch:"node"`
		Source      string `ch:"source"`
		Reservation string `ch:"reservation"`
	}
	kept, err := ask[reserved](ctx, conn, "reservations", at.since(said))
	for _, r := range kept {
		all := s.cluster(r.Cluster).capacity[r.Node]
		if at, known := sourceOf(all, r.Source); known {
			all[at].reservation = s.once(r.Reservation)
		}
	}
	return err
}

func (s *session) loadModels(ctx context.Context, conn driver.Conn, at moment) error {
	type row struct {
		Cluster string `ch:"cluster"`
		Node    string `ch:"node"`
		Model   string `ch:"model"`
	}
	rows, err := ask[row](ctx, conn, "models", at.since(said))
	for _, r := range rows {
		s.cluster(r.Cluster).models[s.once(r.Node)] = s.once(r.Model)
	}
	return err
}

// levels above a domain, widest first.
var levels = []string{event.LevelSpine, event.LevelLeaf, event.LevelBlockGroup, event.LevelBlock, event.LevelRack}

type memberRow struct {
	Cluster    string            `ch:"cluster"`
	Node       string            `ch:"node"`
	Domain     string            `ch:"domain"`
	Partition  string            `ch:"partition"`
	Levels     map[string]string `ch:"levels"`
	Generation uint64            `ch:"generation"`
}

func (s *session) loadTopology(ctx context.Context, conn driver.Conn, at moment) error {
	rows, err := ask[memberRow](ctx, conn, "topology", at.since(0))
	if err != nil {
		return err
	}
	members := map[string][]memberRow{}
	for _, r := range rows {
		r.Node, r.Domain, r.Partition = s.once(r.Node), s.once(r.Domain), s.once(r.Partition)
		members[r.Cluster] = append(members[r.Cluster], r)
	}
	for name, rows := range members {
		c := s.cluster(name)
		t, err := c.topology(rows)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		c.state, c.dirty = advise.NewState(t), true
		for _, n := range t.Nodes {
			c.applyNode(n.Name)
		}
	}
	return nil
}

// topology builds the tree of the cluster's nodes. A node without GPUs is no part of it. One whose GPU count nobody tells has
// as many as most of the cluster's; where no count is known at all, it is listed as unknown.
func (c *cluster) topology(rows []memberRow) (*advise.Topology, error) {
	counts := map[int]int{}
	gpus := func(node string) int {
		n := -1
		for _, f := range c.capacity[node] {
			n = max(n, int(f.present), int(f.healthy))
		}
		return n
	}
	generation, seen := uint64(0), map[string]bool{}
	type domain struct{ id, partition string }
	paths := map[domain]map[string]string{} // per level: the value, or "" where nodes disagree
	models := map[domain]string{}           // likewise
	for _, r := range rows {
		generation = max(generation, r.Generation)
		counts[gpus(r.Node)]++
		d := domain{r.Domain, r.Partition}
		if paths[d] == nil {
			paths[d], models[d] = map[string]string{}, c.models[r.Node]
		}
		if models[d] != c.models[r.Node] {
			models[d] = ""
		}
		for level, value := range r.Levels {
			seen[level] = true
			if old, ok := paths[d][level]; ok && old != value {
				value = ""
			}
			paths[d][level] = value
		}
	}
	usual := 0
	for _, n := range slices.Sorted(maps.Keys(counts)) {
		if n > 0 && (usual == 0 || counts[n] > counts[usual]) {
			usual = n
		}
	}
	known := slices.DeleteFunc(slices.Clone(levels), func(l string) bool { return !seen[l] })
	var specs []advise.NodeSpec
	for _, r := range rows {
		n := gpus(r.Node)
		switch {
		case n == 0:
			continue
		case n < 0:
			n = usual
		}
		spec := advise.NodeSpec{Name: r.Node, Domain: r.Domain, Partition: r.Partition, Model: models[domain{r.Domain, r.Partition}], GPUs: max(1, min(n, 16)), Path: make([]string, len(known))}
		if n == 0 {
			spec.Domain = "" // how many GPUs it has is not known
		}
		for i, l := range known {
			spec.Path[i] = paths[domain{r.Domain, r.Partition}][l]
		}
		specs = append(specs, spec)
	}
	return advise.NewTopology(generation, known, specs)
}

func (s *session) loadHistory(ctx context.Context, conn driver.Conn, at moment) error {
	type row struct {
		Cluster   string  `ch:"cluster"`
		User      string  `ch:"user"`
		Name      string  `ch:"name"`
		Durations []int32 `ch:"durations"`
	}
	rows, err := ask[row](ctx, conn, "history", at.since(s.feed.cfg.History))
	for _, r := range rows {
		s.cluster(r.Cluster).history[[2]string{r.User, r.Name}] = r.Durations
	}
	return err
}

func (s *session) loadTraffic(ctx context.Context, conn driver.Conn, at moment) error {
	type row struct {
		Cluster string  `ch:"cluster"`
		User    string  `ch:"user"`
		Name    string  `ch:"name"`
		GBps    float64 `ch:"gbps"`
	}
	rows, err := ask[row](ctx, conn, "traffic", at.since(s.feed.cfg.History))
	for _, r := range rows {
		s.cluster(r.Cluster).traffic[[2]string{r.User, r.Name}] = r.GBps
	}
	return err
}

func (s *session) loadHolds(ctx context.Context, conn driver.Conn, at moment) error {
	type row struct {
		Cluster string     `ch:"cluster"`
		Job     string     `ch:"job_id"`
		Attempt string     `ch:"attempt"`
		Nodes   []string   `ch:"nodes"`
		GPUs    []*uint16  `ch:"node_gpus"`
		Probe   bool       `ch:"probe"`
		Name    string     `ch:"name"`
		User    string     `ch:"user"`
		Account string     `ch:"account"`
		Class   string     `ch:"service_class"`
		Start   *time.Time `ch:"start"`
		End     *time.Time `ch:"expected_end"`
		Het     uint8      `ch:"het"`
		Sources []string   `ch:"sources"`

		Priority        *int64 `ch:"priority"`
		Preemptible     *bool  `ch:"preemptible"`
		PreemptibleFrom *int64 `ch:"preemptible_ms"`
		Checkpoint      *int64 `ch:"checkpoint_ms"`
		CheckpointEvery *int64 `ch:"checkpoint_every_ms"`
		RestartTakes    *int64 `ch:"restart_ms"`
	}
	rows, err := ask[row](ctx, conn, "holds", at.since(0))
	if err != nil {
		return err
	}
	for _, r := range rows {
		c := s.cluster(r.Cluster)
		for _, source := range r.Sources {
			collector, _, _ := strings.Cut(source, ".")
			c.speakers[collector] = true
		}
		if c.state == nil {
			continue
		}
		key := runKey(r.Job, "")
		one := &run{runID: r.Attempt, restart: -1, user: s.once(r.User), jobName: s.once(r.Name), whole: r.Het != 0}
		if n, ok := strings.CutPrefix(r.Attempt, "r"); ok {
			if restart, err := strconv.ParseInt(n, 10, 64); err == nil {
				one.runID, one.restart = "", restart
			}
		} else if strings.HasPrefix(r.Attempt, "@") {
			one.runID = ""
		}
		h := &advise.Hold{Key: key, Job: r.Job, Tenant: s.once(r.Account), Class: s.once(r.Class), Probe: r.Probe, Unsaved: -1, Restart: -1}
		if r.Start != nil {
			one.start = r.Start.Unix()
			h.Start = one.start
			if r.End != nil {
				one.limit = r.End.Unix() - one.start
			}
		}
		tell(h, &event.Placement{Priority: r.Priority, Preemptible: r.Preemptible, PreemptibleMs: r.PreemptibleFrom,
			CheckpointMs: r.Checkpoint, CheckpointEveryMs: r.CheckpointEvery, RestartMs: r.RestartTakes})
		if h.Saved > at.now.Unix() { // told after the moment: what was saved before it is not kept
			h.Saved, h.SaveEvery = 0, 0
		}
		c.estimate(h, one, at.now.Unix())
		for i, node := range r.Nodes {
			n, ok := c.state.Topology.Node(node)
			if !ok {
				c.unplaced++
				continue
			}
			gpus := c.state.Topology.Nodes[n].GPUs
			if i < len(r.GPUs) && r.GPUs[i] != nil {
				gpus = min(gpus, int32(*r.GPUs[i]))
			}
			if gpus > 0 {
				h.Nodes = append(h.Nodes, advise.Share{Node: n, GPUs: gpus})
			}
		}
		one.hold = h
		if cur := c.runs[key]; cur != nil && one.before(cur) {
			continue
		}
		c.runs[key] = one
		c.hold(h)
	}
	return nil
}

func (s *session) loadSources(ctx context.Context, conn driver.Conn, at moment, from map[offsetKey]int64) error {
	type row struct {
		Cluster   string     `ch:"cluster"`
		Source    string     `ch:"source"`
		GoodAt    *time.Time `ch:"good_at"`
		Problem   string     `ch:"problem"`
		Interval  *uint32    `ch:"interval_ms"`
		Reported  time.Time  `ch:"reported_at"`
		Partition int32      `ch:"kafka_partition"`
		Last      int64      `ch:"last_offset"`
	}
	rows, err := ask[row](ctx, conn, "sources", at.since(forgotten))
	for _, r := range rows {
		report := &event.Source{Cluster: r.Cluster, Source: r.Source, ObservedAtMs: r.Reported.UnixMilli(), Problem: r.Problem, IntervalMs: r.Interval}
		if r.GoodAt != nil {
			report.GoodAtMs = event.Millis(*r.GoodAt)
		}
		s.cluster(r.Cluster).source(report)
		key := offsetKey{schema.TableSourceEvents, int(r.Partition)}
		from[key] = max(from[key], r.Last+1)
	}
	return err
}
