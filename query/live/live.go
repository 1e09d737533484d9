// Package live keeps the advisor's picture of every cluster in memory: it is read once from the derived tables and then
// follows the topics from exactly the offsets that those tables hold. It stands between the enriched state and
// query/advise. It never answers a question itself, never writes, and never asks ClickHouse while somebody waits for
// advice, but whoever asks about the past.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/query/advise"
	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// Config tunes how the picture is kept.
type Config struct {
	Publish time.Duration `yaml:"publish"` // how long changes are gathered before they show in advice
	Resync  time.Duration `yaml:"resync"`  // how often the picture is read anew, whatever happens
	History time.Duration `yaml:"history"` // how far back run times are looked at for end estimates
}

// DefaultConfig shows a change after a twentieth of a second.
func DefaultConfig() Config {
	return Config{Publish: 50 * time.Millisecond, Resync: 10 * time.Minute, History: 30 * 24 * time.Hour}
}

// Validate says what cannot be.
func (c Config) Validate() error {
	if c.Publish <= 0 || c.Resync < 10*time.Second || c.History <= 0 {
		return fmt.Errorf("publish %s and history %s must be positive, resync %s at least 10s", c.Publish, c.History, c.Resync)
	}
	return nil
}

// ErrGap says that a partition no longer has the records that were asked for.
var ErrGap = errors.New("records are gone from the topic")

// Log reads topics.
type Log interface {
	// Partitions lists the partitions of a topic.
	Partitions(ctx context.Context, topic string) ([]int, error)
	// Follow gives every record of a partition from an offset on, in order, until ctx ends or reading fails. It calls
	// ended at least twice a second while there is nothing more to read. An error that wraps ErrGap says that records
	// from the offset on are gone; first is then where the partition begins.
	Follow(ctx context.Context, topic string, partition int, from int64,
		record func(offset int64, value []byte), ended func()) (first int64, err error)
}

// Deps is what the feed works with.
type Deps struct {
	Conn     driver.Conn // SELECT is enough
	Log      Log
	Logger   *slog.Logger          // nil: nothing is logged
	Registry prometheus.Registerer // nil: metrics are kept but not registered
	Now      func() time.Time      // nil: time.Now
}

// Feed keeps the picture. Run is its only writer; the other methods may be called from anywhere.
type Feed struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	now     func() time.Time
	m       *metrics
	current atomic.Pointer[session] // the one that answers; nil before the first is complete
	seq     atomic.Uint64
	lost    chan string // why the picture has to be read anew
}

// New prepares a feed and reads nothing.
func New(cfg Config, deps Deps) (*Feed, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("advise: %w", err)
	}
	f := &Feed{cfg: cfg, deps: deps, log: deps.Logger, now: deps.Now, lost: make(chan string, 1)}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.now == nil {
		f.now = time.Now
	}
	f.m = newMetrics(deps.Registry, f)
	return f, nil
}

// Name is the component's name.
func (f *Feed) Name() string { return "advise" }

// Limits of how the picture is read.
const (
	retryAfter   = 2 * time.Second  // a failed reading
	resyncGap    = 3 * time.Second  // the shortest time between two readings
	passesWithin = 30 * time.Second // how long a changed topology waits for the passes to have folded it
)

// Run keeps the picture until ctx ends. A new picture is built beside the one that answers and takes over when it has
// caught up, so that no question ever meets half of one.
func (f *Feed) Run(ctx context.Context) error {
	var running *session
	defer func() {
		if running != nil {
			running.stop()
		}
	}()
	why := "start"
	for ctx.Err() == nil {
		next, err := f.open(ctx, running)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			f.m.failures.Inc()
			f.log.Warn("reading the advisor's picture failed, trying again", "why", why, "error", err)
			pause(ctx, retryAfter)
			continue
		}
		f.m.resyncs.WithLabelValues(why).Inc()
		if running != nil {
			f.m.drift.Set(float64(running.differs(next)))
			running.stop()
		}
		running = next
		f.current.Store(next)
		pause(ctx, resyncGap)
		why = f.wait(ctx, running)
	}
	return nil
}

// wait returns why the picture is to be read anew, or when ctx ends.
func (f *Feed) wait(ctx context.Context, s *session) string {
	due := time.NewTimer(f.cfg.Resync)
	defer due.Stop()
	select {
	case <-ctx.Done():
		return ""
	case <-due.C:
		return "due"
	case why := <-f.lost:
		if why == lostTopology {
			f.folded(ctx, s)
		}
		return why
	}
}

// folded waits until the passes have folded the membership that made the picture old, within reason.
func (f *Feed) folded(ctx context.Context, s *session) {
	limit := f.now().Add(passesWithin)
	for ctx.Err() == nil && f.now().Before(limit) {
		done, err := readProgress(ctx, f.deps.Conn)
		if err == nil && s.covered(done) {
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// lose asks for a new picture.
func (f *Feed) lose(why string) {
	select {
	case f.lost <- why:
	default: // it is asked for already
	}
}

// The reasons for a new picture beyond "start" and "due".
const (
	lostTopology = "topology" // a node's place changed, which only the passes may judge
	lostGap      = "gap"      // records are gone from a topic
	lostReading  = "reading"  // a partition could not be read
)

// View is the picture of one cluster. It does not change.
type View struct {
	Cluster  string
	Snapshot *advise.Snapshot
	due      time.Time // from when on a collector of jobs is late; zero = none has ever reported
	behind   time.Time // since when a change of membership waits for the passes; zero = none does
	past     time.Time // the instant that it is of, where that is over; zero = it is of now
	session  *session
}

// Age is how old the picture is, and whether that is known; one of the past is as old as was asked for. It counts from when
// all topics were read to their end, or from when the cluster's slowest collector of jobs was due to have read its source again.
func (v *View) Age(now time.Time) (age time.Duration, known bool) {
	if v.IsPast() {
		return 0, true
	}
	if v.due.IsZero() {
		return 0, false
	}
	return max(0, now.Sub(v.session.caughtUp()), now.Sub(v.due)), true
}

// TopologyLag is for how long a source has been saying something else of where nodes sit than the picture shows, because
// the passes have not judged it yet; 0 where all that was said is in it.
func (v *View) TopologyLag(now time.Time) time.Duration {
	if v.behind.IsZero() {
		return 0
	}
	return max(time.Millisecond, now.Sub(v.behind))
}

// Usual is how long runs of this user and name took, in seconds (their median), and how much NVLink traffic a GPU of
// theirs had in one direction while in one domain, in GB/s; 0 where too little is known.
func (v *View) Usual(user, name string) (seconds int64, gbps float64) {
	if user == "" || name == "" {
		return 0, 0
	}
	v.session.mu.Lock()
	defer v.session.mu.Unlock()
	c := v.session.clusters[v.Cluster]
	if h := c.history[[2]string{user, name}]; len(h) >= enoughRuns {
		seconds = int64(h[len(h)/2])
	}
	return seconds, c.traffic[[2]string{user, name}]
}

// IsPast reports whether the picture is of an instant that is over, see Past.
func (v *View) IsPast() bool { return !v.past.IsZero() }

// AsOf is the time to which the picture is complete.
func (v *View) AsOf() time.Time {
	if v.IsPast() {
		return v.past
	}
	return v.session.caughtUp()
}

// The errors of Cluster.
var (
	ErrNotReady  = errors.New("the advisor has not read its picture yet")
	ErrUnknown   = errors.New("no such cluster is known")
	ErrAmbiguous = errors.New("there are several clusters")
)

// Cluster gives the picture of a cluster; "" is the only one there is beside the probe's.
func (f *Feed) Cluster(name string) (*View, error) {
	s := f.current.Load()
	if s == nil {
		return nil, ErrNotReady
	}
	var one *View
	n := 0
	for cluster, v := range *s.views.Load() {
		if event.Covers(name, cluster) {
			one, n = v, n+1
		}
	}
	if n == 1 {
		return one, nil
	}
	known := names(f.Clusters(""))
	switch {
	case len(known) == 0:
		return nil, fmt.Errorf("%w: nothing has been collected so far", ErrNotReady)
	case name != "":
		return nil, fmt.Errorf("cluster %s: %w: it is one of %v", name, ErrUnknown, known)
	}
	return nil, fmt.Errorf("%w: name one of %v", ErrAmbiguous, known)
}

// Clusters gives the pictures that a question for a cluster (empty = all but the probe's) is about, by name; nil before the
// first is complete.
func (f *Feed) Clusters(name string) map[string]*View {
	s := f.current.Load()
	if s == nil {
		return nil
	}
	out := map[string]*View{}
	for cluster, v := range *s.views.Load() {
		if event.Covers(name, cluster) {
			out[cluster] = v
		}
	}
	return out
}

// Sources gives the newest report of every collector of every cluster heard of in the last day, sorted; nil before the first
// picture is complete. They are not to be changed.
func (f *Feed) Sources() []*event.Source {
	if s := f.current.Load(); s != nil {
		return *s.sources.Load()
	}
	return nil
}

func names(views map[string]*View) []string {
	out := make([]string, 0, len(views))
	for n := range views {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// topics that are followed, with the raw table of each.
var topics = []struct{ topic, table string }{
	{event.TopicPlacement, schema.TablePlacementEvents},
	{event.TopicNode, schema.TableNodeEvents},
	{event.TopicMembership, schema.TableMembershipEvents},
	{event.TopicSource, schema.TableSourceEvents},
}

// partition is one partition of a topic.
type partition struct {
	topic string
	id    int
}

// follower is how far a partition has been read.
type follower struct {
	next   atomic.Int64
	caught atomic.Int64 // Unix nanoseconds: when its end was last reached; 0 = not yet
}

// session is one picture: read once, then kept up.
type session struct {
	feed   *Feed
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu        sync.Mutex // guards what follows
	clusters  map[string]*cluster
	changed   bool
	followers map[partition]*follower
	moved     map[int]int64 // membership partition: offset of the newest record that the topology lacks
	unfolded  map[cell][]change
	names     map[string]string // each name once; nil but while the picture is read

	wake    chan struct{}
	views   atomic.Pointer[map[string]*View]
	sources atomic.Pointer[[]*event.Source]
}

// cell is what one partition of membership says of one cluster.
type cell struct {
	cluster   string
	partition int
}

// change is membership that the topology lacks: one record, or several that follow each other in their cell.
type change struct {
	offset int64     // of the last
	at     time.Time // when the first was seen
}

// mostChanges of a cell are kept apart.
const mostChanges = 64

// lacks adds a change to those of its cell, oldest first. While no pass runs they pile up: two neighbours then become one,
// which waits from the first until the last is folded, so that a lag may show too long and never too short.
func lacks(all []change, c change) []change {
	if all = append(all, c); len(all) <= mostChanges {
		return all
	}
	n := 0
	for i := 0; i < len(all); i += 2 {
		all[n] = change{offset: all[min(i+1, len(all)-1)].offset, at: all[i].at}
		n++
	}
	return all[:n]
}

// open reads a picture and returns when it has caught up with the topics.
func (f *Feed) open(ctx context.Context, old *session) (*session, error) {
	start := f.now()
	s := &session{
		feed: f, clusters: map[string]*cluster{}, followers: map[partition]*follower{}, moved: map[int]int64{}, unfolded: map[cell][]change{},
		wake: make(chan struct{}, 1), changed: true,
	}
	s.views.Store(&map[string]*View{})
	s.sources.Store(&[]*event.Source{})
	from, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		ids, err := f.deps.Log.Partitions(ctx, t.topic)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			p := partition{t.topic, id}
			fw := &follower{}
			fw.next.Store(from[offsetKey{t.table, id}])
			s.followers[p] = fw
		}
	}
	// The old session gives up what it was told: nothing that follows may fail, or the next would inherit nothing.
	if old != nil && s.inherit(old, from) {
		f.lose(lostTopology)
	}
	ctx, s.cancel = context.WithCancel(ctx)
	for p, fw := range s.followers {
		s.done.Go(func() { s.follow(ctx, p, fw) })
	}
	s.done.Go(func() { s.publishing(ctx) })
	for s.caughtUp().IsZero() || s.views.Load() == nil || len(*s.views.Load()) < s.count() {
		if ctx.Err() != nil {
			s.stop()
			return nil, ctx.Err()
		}
		pause(ctx, 5*time.Millisecond)
	}
	f.m.loadSeconds.Set(f.now().Sub(start).Seconds())
	return s, nil
}

// stop ends a session and its goroutines.
func (s *session) stop() {
	s.cancel()
	s.done.Wait()
}

func (s *session) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.clusters {
		if c.state != nil {
			n++
		}
	}
	return n
}

// caughtUp is when the last of all partitions was read to its end; zero before each has been once.
func (s *session) caughtUp() time.Time {
	oldest := int64(0)
	for _, fw := range s.followers {
		at := fw.caught.Load()
		if at == 0 {
			return time.Time{}
		}
		if oldest == 0 || at < oldest {
			oldest = at
		}
	}
	if oldest == 0 {
		return time.Time{}
	}
	return time.Unix(0, oldest)
}

// follow reads one partition until ctx ends.
func (s *session) follow(ctx context.Context, p partition, fw *follower) {
	for ctx.Err() == nil {
		first, err := s.feed.deps.Log.Follow(ctx, p.topic, p.id, fw.next.Load(), func(offset int64, value []byte) {
			s.record(p, offset, value)
			fw.next.Store(offset + 1)
		}, func() { fw.caught.Store(s.feed.now().UnixNano()) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrGap):
			s.feed.m.gaps.Inc()
			fw.next.Store(first)
			s.feed.lose(lostGap)
		case err != nil:
			s.feed.m.failures.Inc()
			s.feed.log.Warn("following a topic failed, trying again", "topic", p.topic, "partition", p.id, "error", err)
			pause(ctx, retryAfter)
		}
	}
}

// record folds one record of a topic.
func (s *session) record(p partition, offset int64, value []byte) {
	r, err := event.Decode(p.topic, value)
	s.feed.m.records.WithLabelValues(p.topic).Inc()
	if err != nil {
		s.feed.m.undecodable.Inc() // the loader keeps it as a dead letter
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.feed.now()
	switch r := r.(type) {
	case *event.Placement:
		if c := s.cluster(r.GetCluster()); c.placement(r, now.Unix()) {
			s.note()
		}
	case *event.Node:
		if c := s.cluster(r.GetCluster()); c.node(r) {
			s.note()
		}
	case *event.Source:
		s.cluster(r.GetCluster()).source(r)
		s.note()
	case *event.Membership:
		if s.cluster(r.GetCluster()).membership(r) {
			s.moved[p.id] = offset
			at := cell{r.GetCluster(), p.id}
			s.unfolded[at] = lacks(s.unfolded[at], change{offset, now})
			s.note()
			s.feed.lose(lostTopology)
		}
	}
}

func (s *session) note() {
	s.changed = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) cluster(name string) *cluster {
	c := s.clusters[name]
	if c == nil {
		c = newCluster(name)
		s.clusters[name] = c
	}
	return c
}

// covered reports whether the passes have folded all membership that this session saw and lacks.
func (s *session) covered(done map[offsetKey]int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, offset := range s.moved {
		if done[offsetKey{schema.TableMembershipEvents, id}] <= offset {
			return false
		}
	}
	return true
}

// inherit keeps what each source last said of a node's place, so that saying it again is no news. It reports whether the
// passes have still not folded some of it.
func (s *session) inherit(old *session, done map[offsetKey]int64) (behind bool) {
	old.mu.Lock()
	defer old.mu.Unlock()
	for id, offset := range old.moved {
		if done[offsetKey{schema.TableMembershipEvents, id}] <= offset {
			s.moved[id], behind = offset, true
		}
	}
	for at, changes := range old.unfolded {
		for _, c := range changes {
			if done[offsetKey{schema.TableMembershipEvents, at.partition}] <= c.offset {
				s.unfolded[at] = lacks(s.unfolded[at], c)
			}
		}
	}
	for name, c := range old.clusters {
		s.cluster(name).told = c.told
		c.told = nil // the old session folds no more of it
	}
	return behind
}

// publishing shows what changed, gathered over a short time. Ends that come closer show without a record, so it
// publishes once a minute at least.
func (s *session) publishing(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		s.publish()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.mu.Lock()
			now := s.feed.now().Unix()
			for _, c := range s.clusters {
				c.estimates(now)
			}
			s.changed = true
			s.mu.Unlock()
		case <-s.wake:
			pause(ctx, s.feed.cfg.Publish)
		}
	}
}

func (s *session) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.changed {
		return
	}
	s.changed = false
	start := time.Now()
	now := s.feed.now()
	behind := map[string]time.Time{}
	for at, changes := range s.unfolded {
		if oldest, ok := behind[at.cluster]; !ok || changes[0].at.Before(oldest) {
			behind[at.cluster] = changes[0].at
		}
	}
	views := make(map[string]*View, len(s.clusters))
	for name, c := range s.clusters {
		if c.state == nil {
			continue
		}
		v := &View{Cluster: name, session: s, due: c.due(now), behind: behind[name]}
		if old := (*s.views.Load())[name]; old != nil && !c.dirty {
			v.Snapshot = old.Snapshot
		} else {
			v.Snapshot = c.state.Publish(now.Unix())
			v.Snapshot.Seq = s.feed.seq.Add(1)
			c.dirty = false
		}
		views[name] = v
	}
	sources := []*event.Source{}
	for _, c := range s.clusters {
		sources = append(sources, c.recent(now)...)
	}
	slices.SortFunc(sources, func(a, b *event.Source) int {
		return cmp.Or(cmp.Compare(a.GetCluster(), b.GetCluster()), cmp.Compare(a.GetSource(), b.GetSource()))
	})
	s.sources.Store(&sources)
	s.views.Store(&views)
	s.feed.m.publishes.Observe(time.Since(start).Seconds())
}

// differs counts the nodes whose use the two pictures disagree on: what following the topics got wrong, or what has
// happened since. Only nodes of the same topology are compared.
func (s *session) differs(other *session) int {
	n := 0
	theirs := *other.views.Load()
	for name, mine := range *s.views.Load() {
		their := theirs[name]
		if their == nil || their.Snapshot.Topology.Generation != mine.Snapshot.Topology.Generation ||
			len(their.Snapshot.Topology.Nodes) != len(mine.Snapshot.Topology.Nodes) {
			continue
		}
		for i := range mine.Snapshot.Topology.Nodes {
			if mine.Snapshot.Used(int32(i)) != their.Snapshot.Used(int32(i)) {
				n++
			}
		}
	}
	return n
}
