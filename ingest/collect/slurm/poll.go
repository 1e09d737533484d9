package slurm

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// Jobs is one document of jobs, however it comes: it hands over each job as it is read. Only a nil error makes what was
// handed over the full answer.
type Jobs func(yield func(*slurmjson.Job) error) (slurmjson.Meta, error)

// Poller turns a series of full answers about the jobs of one cluster into records of what changed. It knows no transport
// and no clock.
//
// Every method that returns records only proposes: the records count as told, and what was learned is kept, when Commit is
// called. So records that the pipeline did not take are proposed again at the next poll.
//
// A run that is no longer listed waits in Missing until accounting tells its end (Account) or GiveUp makes it vanish.
type Poller struct {
	cfg  *Config
	fold folder
	log  *slog.Logger
	seed maphash.Seed
	// trust is how many answers in a row without any job are believed to mean that there is none.
	trust int

	state  pollState
	staged *pollState // nil = nothing to commit
	name   atomic.Pointer[string]
}

// pollState is what a Poller knows. Per job listed it is a key and about 60 bytes, and for a run that has not ended its
// last record in the contract's encoding.
type pollState struct {
	cluster string              // as the last document said
	at      time.Time           // of the last good poll; every known job was listed then
	first   time.Time           // of the first
	known   map[jobKey]knownJob // by the job's own id
	missing []missingRun
	empty   int // polls in a row that listed no job
}

// jobKey is the own id of a job, in the cluster as the job says it.
type jobKey struct {
	cluster string
	id      uint32
}

// runKey is what tells the runs of one job apart.
type runKey struct {
	sluid   string
	restart int64 // -1 = not known
	start   int64 // Unix milliseconds; 0 = not known or not started
}

type knownJob struct {
	run     runKey
	hash    uint64 // of the record as the document alone gave it
	emitted int64  // Unix milliseconds; 0 = it could not be read, or broke the contract
	planned int64  // the planned start last emitted
	rec     []byte // the run's last record; nil = the run has ended
	stop    stop
}

// stop is what is known of the end of a run while it is COMPLETING. Slurm's end of a run is when it stopped to compute.
type stop struct {
	end      int64 // Unix milliseconds, by Slurm; 0 = not known
	computed int64 // when the run was last listed and not completing; 0 = never
}

// missingRun is a run that should have been listed and was not.
type missingRun struct {
	key      jobKey
	run      runKey
	rec      []byte
	stop     stop
	seen     time.Time // listed last
	missed   time.Time // not listed first
	requeued bool      // the job is listed, with its next run
	next     time.Time // when the next run was submitted
}

// emptyPolls is how many times in a row Slurm must list no job at all, where it listed some before, to be believed: a
// lost permission or a restart looks the same.
const emptyPolls = 3

// planSlack is how far the planned start of a pending job moves before that alone makes a record: the scheduler plans anew
// about every half minute.
const planSlack = 5 * time.Minute

// NewPoller gives a Poller that knows nothing yet. note is told, by reason, how many facts could not be used.
func NewPoller(cfg *Config, log *slog.Logger, note func(reason string, facts int)) *Poller {
	p := &Poller{cfg: cfg, log: log, seed: maphash.MakeSeed(), trust: emptyPolls, fold: folder{cfg: cfg, note: note}}
	p.state.known = map[jobKey]knownJob{}
	return p
}

// Commit makes what the last call proposed the truth.
func (p *Poller) Commit() {
	if p.staged != nil {
		p.state, p.staged = *p.staged, nil
		p.name.Store(new(p.state.cluster))
	}
}

// Known is how many jobs the last answer listed.
func (p *Poller) Known() int { return len(p.state.known) }

// ToldSince is when the first answer was read, if all that the last one lists was told since then: a run that was told
// before and not since was not listed any more. Else it is zero, also while it is not believed that there is no job.
func (p *Poller) ToldSince() time.Time {
	if len(p.state.known) == 0 && p.state.empty < p.trust {
		return time.Time{}
	}
	for _, j := range p.state.known {
		if j.emitted == 0 {
			return time.Time{}
		}
	}
	return p.state.first
}

// Cluster is the cluster's name, "" before the first document that tells it. Unlike the other methods it may be called
// while another runs.
func (p *Poller) Cluster() string {
	own := ""
	if name := p.name.Load(); name != nil {
		own = *name
	}
	return p.fold.cluster(own)
}

// Observe reads one answer to "which jobs are there" and proposes the records of what changed since the last. source is
// the records' source, observed the time of the answer; zero takes the document's own. A document that cannot be read to
// its end is refused whole; one that says that nothing changed ends no run.
func (p *Poller) Observe(jobs Jobs, source string, observed time.Time) ([]event.Record, slurmjson.Meta, error) {
	p.staged = nil
	o := observation{
		p: p, source: source, observed: observed,
		next: pollState{known: make(map[jobKey]knownJob, len(p.state.known)), missing: slices.Clone(p.state.missing)},
	}
	meta, err := jobs(o.job)
	if err != nil {
		return nil, meta, err
	}
	if observed.IsZero() {
		if observed = meta.LastUpdate; observed.IsZero() {
			return nil, meta, errors.New("the document does not say its time; put the time into the file's name, as squeue-20261129T142633Z.json")
		}
	}
	o.next.cluster = p.state.cluster
	if meta.Cluster != "" {
		o.next.cluster = meta.Cluster
	}
	o.next.at, o.next.first = observed, p.state.first
	if o.next.first.IsZero() {
		o.next.first = observed
	}
	switch {
	case meta.Unchanged:
		o.next.known = p.state.known
	case len(o.next.known) == 0 && len(p.state.known) > 0 && p.state.empty+1 < p.trust:
		p.state.empty++
		return nil, meta, fmt.Errorf("slurm lists no job at all where it listed %d before; that is believed after %d such answers in a row, "+
			"check that the user may see all jobs (PrivateData)", len(p.state.known), p.trust)
	default:
		o.vanish(observed)
	}
	if len(o.next.known) == 0 {
		o.next.empty = p.state.empty + 1
	}
	records, err := p.seal(o.records, o.next.cluster, observed, func(i int) {
		j := o.next.known[o.keys[i]]
		j.emitted = 0
		o.next.known[o.keys[i]] = j
	})
	if err != nil {
		return nil, meta, err
	}
	p.countUnread(meta)
	p.staged = &o.next
	return records, meta, nil
}

// observation is one document on its way into the Poller.
type observation struct {
	p        *Poller
	source   string
	observed time.Time
	next     pollState
	records  []*event.Placement
	keys     []jobKey // of the records
}

func (o *observation) job(j *slurmjson.Job) error {
	p := o.p
	key := jobKey{j.Cluster, j.JobID}
	if _, twice := o.next.known[key]; twice {
		return fmt.Errorf("job %d is listed twice; the document is not an answer of Slurm, refuse it", j.JobID)
	}
	old, had := p.state.known[key]
	r, err := p.fold.job(j, o.source)
	if err != nil {
		p.dropped(err)
		o.next.known[key] = old // still listed, so not missing
		return nil
	}
	now := knownJob{run: runOf(r.rec), planned: r.rec.GetPlannedStartMs()}
	if had && old.rec != nil && !old.run.same(now.run) {
		o.next.missing = append(o.next.missing, missingRun{
			key: key, run: old.run, rec: old.rec, stop: old.stop, seen: p.state.at, requeued: true, next: j.Submit,
		})
		old, had = knownJob{}, false
	}
	if now.hash, err = p.hash(r.rec); err != nil {
		p.dropped(err)
		o.next.known[key] = old
		return nil
	}
	if had && old.hash == now.hash && !moved(old.planned, now.planned) && (old.rec == nil || !o.due(old)) {
		o.next.known[key] = old
		return nil
	}
	if found, ok := o.found(key, now.run); ok && !had {
		old, had = found, true
	}
	var before *event.Placement
	if had && old.rec != nil {
		if before, err = decodePlacement(old.rec); err != nil {
			return err
		}
	}
	if err := p.complete(r, before); err != nil {
		p.dropped(err)
		o.next.known[key] = old
		return nil
	}
	if now.run.start == 0 && r.rec.StartMs != nil {
		now.run.start = *r.rec.StartMs
	}
	if r.rec.State == event.State_COMPLETING {
		now.stop = stop{end: r.stopped, computed: old.stop.computed}
		if before != nil && before.State != event.State_COMPLETING {
			now.stop.computed = p.state.at.UnixMilli()
		}
	}
	if !r.rec.State.Ended() {
		if now.rec, err = encodePlacement(r.rec); err != nil {
			return err
		}
	}
	now.emitted = o.observed.UnixMilli()
	o.next.known[key] = now
	o.records, o.keys = append(o.records, r.rec), append(o.keys, key)
	return nil
}

// due reports whether a record that has not changed is to be emitted again.
func (o *observation) due(old knownJob) bool {
	refresh := o.p.cfg.Refresh.Milliseconds()
	return refresh > 0 && !o.observed.IsZero() && o.observed.UnixMilli()-old.emitted >= refresh
}

// found takes a run off the missing ones that is listed again.
func (o *observation) found(key jobKey, run runKey) (knownJob, bool) {
	for i, m := range o.next.missing {
		if m.key == key && m.run.same(run) && !m.requeued {
			o.next.missing = slices.Delete(o.next.missing, i, i+1)
			return knownJob{run: m.run, rec: m.rec, stop: m.stop}, true
		}
	}
	return knownJob{}, false
}

// moved reports whether a pending job's planned start, 0 for none, moved so far that it is worth a record.
func moved(from, to int64) bool {
	if from == 0 || to == 0 {
		return from != to
	}
	return abs(to-from) >= planSlack.Milliseconds()
}

// vanish finds the runs that are not listed any more.
func (o *observation) vanish(observed time.Time) {
	for i := range o.next.missing {
		if m := &o.next.missing[i]; m.missed.IsZero() {
			m.missed = observed
		}
	}
	for key, old := range o.p.state.known {
		if _, listed := o.next.known[key]; !listed && old.rec != nil {
			o.next.missing = append(o.next.missing, missingRun{key: key, run: old.run, rec: old.rec, stop: old.stop, seen: o.p.state.at, missed: observed})
		}
	}
}

// complete adds to a record what only earlier records of the same run knew.
func (p *Poller) complete(r *run, before *event.Placement) error {
	rec := r.rec
	if before == nil {
		if rec.State.Holding() && rec.StartMs == nil {
			return drop("start_unknown", "job %s is being requeued and was not seen before, so when this run started is not known; accounting tells", rec.JobId)
		}
		return nil
	}
	if rec.State.Holding() && rec.StartMs == nil {
		if rec.StartMs = before.StartMs; rec.StartMs == nil {
			return drop("start_unknown", "job %s is being requeued and was not seen running; accounting tells when it started", rec.JobId)
		}
	}
	if rec.State == event.State_PENDING {
		return nil
	}
	held := make(map[string]*event.NodePlacement, len(before.Placements))
	for _, n := range before.Placements {
		held[n.Node] = n
	}
	for _, n := range rec.Placements {
		was := held[n.Node]
		delete(held, n.Node)
		switch {
		case was == nil && !r.resized.IsZero() && len(before.Placements) > 0:
			n.FromMs = event.Millis(r.resized)
		case was != nil:
			if n.Gpus == nil && len(n.GpuIndex) == 0 {
				n.Gpus, n.GpuIndex = was.Gpus, was.GpuIndex
			}
			if n.FromMs == nil {
				n.FromMs = was.FromMs
			}
		}
	}
	if rec.State == event.State_COMPLETING {
		// Nodes drop out of the list one by one while the run completes; they were no less its own.
		for _, n := range before.Placements {
			if held[n.Node] != nil {
				rec.Placements = append(rec.Placements, n)
			}
		}
	}
	if rec.Gpus == nil {
		rec.Gpus = before.Gpus
	}
	return nil
}

// Missing lists the jobs whose run is neither listed nor known to have ended, and since when the first was not seen.
func (p *Poller) Missing() (ids []uint32, since time.Time) {
	for _, m := range p.state.missing {
		ids = append(ids, m.key.id)
		if since.IsZero() || m.seen.Before(since) {
			since = m.seen
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), since
}

// Account reads an answer of accounting and proposes a record for each run that has ended; with open also for those that
// have not, which is for when accounting is the only source. It closes the missing runs it tells of.
func (p *Poller) Account(jobs Jobs, source string, observed time.Time, open bool) ([]event.Record, slurmjson.Meta, error) {
	p.staged = nil
	next := p.state
	next.missing = nil
	told := make([]bool, len(p.state.missing))
	var records []*event.Placement
	meta, err := jobs(func(j *slurmjson.Job) error {
		j.Accounting = true
		r, err := p.fold.job(j, source)
		if err != nil {
			p.dropped(err)
			return nil
		}
		ended := r.rec.State.Ended()
		if !ended && !open {
			return nil
		}
		run := runOf(r.rec)
		var before *event.Placement
		for i, m := range p.state.missing {
			if m.key.id == j.JobID && m.run.same(run) {
				told[i] = told[i] || ended
				if before, err = decodePlacement(m.rec); err != nil {
					return err
				}
			}
		}
		if err := p.complete(r, before); err != nil {
			p.dropped(err)
			return nil
		}
		records = append(records, r.rec)
		return nil
	})
	if err != nil {
		return nil, meta, err
	}
	for i, m := range p.state.missing {
		if !told[i] {
			next.missing = append(next.missing, m)
		}
	}
	if meta.Cluster != "" && next.cluster == "" {
		next.cluster = meta.Cluster
	}
	sealed, err := p.seal(records, next.cluster, observed, func(int) {})
	if err != nil {
		return nil, meta, err
	}
	p.countUnread(meta)
	p.staged = &next
	return sealed, meta, nil
}

// GiveUp proposes an end, known only to lie between two polls, for the runs that have been missing since before. A zero
// time gives up on all.
func (p *Poller) GiveUp(before, observed time.Time) ([]event.Record, error) {
	p.staged = nil
	next := p.state
	next.missing = nil
	var records []*event.Placement
	for _, m := range p.state.missing {
		if !before.IsZero() && m.missed.After(before) {
			next.missing = append(next.missing, m)
			continue
		}
		rec, err := decodePlacement(m.rec)
		if err != nil {
			return nil, err
		}
		earliest, latest := m.between(rec)
		// A run last seen COMPLETING has said how it ended; a job that is listed with its next run was requeued.
		ending := readState(strings.Split(rec.StateRaw, ","), false).ending
		switch {
		case ending.Ended():
			rec.State = ending
		case m.requeued && rec.StartMs != nil:
			rec.State = event.State_REQUEUED
		default:
			rec.State = event.State_VANISHED
		}
		rec.EndEarliestMs, rec.EndMs = earliest, latest
		rec.PlannedStartMs, rec.PlannedNodes, rec.PendingReason = nil, nil, ""
		for _, n := range rec.Placements {
			n.ToMs = nil
		}
		records = append(records, rec)
	}
	if len(records) == 0 {
		return nil, nil
	}
	sealed, err := p.seal(records, next.cluster, observed, func(int) {})
	if err != nil {
		return nil, err
	}
	p.staged = &next
	return sealed, nil
}

// between is when a missing run ended, as an interval; earliest is nil when the end is known exactly.
func (m *missingRun) between(rec *event.Placement) (earliest, latest *int64) {
	if m.stop.end != 0 {
		return nil, &m.stop.end
	}
	last := m.missed
	if m.requeued && m.next.After(m.seen) && m.next.Before(last) {
		last = m.next // Slurm sets it when the old run is over
	}
	from, to := m.seen.UnixMilli(), last.UnixMilli()
	if rec.State == event.State_COMPLETING {
		from = m.stop.computed
	}
	from = max(from, rec.GetStartMs())
	to = max(to, from) // Slurm's clock may be ahead of ours
	return &from, &to
}

// seal sets what is known only at the end of a document, and leaves out what breaks the contract.
func (p *Poller) seal(records []*event.Placement, cluster string, observed time.Time, leftOut func(i int)) ([]event.Record, error) {
	cluster = p.fold.cluster(cluster)
	out := make([]event.Record, 0, len(records))
	for i, r := range records {
		if r.Cluster == "" && cluster == "" {
			return nil, errors.New("neither the jobs nor the document name the cluster; set cluster in the configuration of the slurm collector")
		}
		if err := stamp(r, cluster, observed); err != nil {
			p.dropped(err)
			leftOut(i)
			continue
		}
		out = append(out, r)
	}
	return out, nil
}

func (p *Poller) dropped(err error) {
	reason := "invalid"
	if d := (*dropped)(nil); errors.As(err, &d) {
		reason = d.reason
	}
	p.fold.note(reason, 1)
	p.log.Debug("left a job out", "reason", reason, "error", err)
}

func (p *Poller) countUnread(meta slurmjson.Meta) {
	for path, n := range meta.Unread {
		p.fold.note("field_unreadable", n)
		p.log.Debug("a field of slurm's answer has a shape that is not known", "field", path, "times", n)
	}
}

// hash is of the record as the document alone gives it, without the plan's time.
func (p *Poller) hash(rec *event.Placement) (uint64, error) {
	planned, priority := rec.PlannedStartMs, rec.Priority
	rec.PlannedStartMs, rec.Priority = nil, nil // PriorityFlags=CALCULATE_RUNNING changes it all the time
	b, err := encodePlacement(rec)
	rec.PlannedStartMs, rec.Priority = planned, priority
	return maphash.Bytes(p.seed, b), err
}

func encodePlacement(rec *event.Placement) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("keep the record of job %s: %w", rec.JobId, err)
	}
	return b, nil
}

func decodePlacement(b []byte) (*event.Placement, error) {
	rec := &event.Placement{}
	if err := proto.Unmarshal(b, rec); err != nil {
		return nil, fmt.Errorf("recall a record: %w", err)
	}
	return rec, nil
}

func runOf(rec *event.Placement) runKey {
	k := runKey{sluid: rec.RunId, restart: -1}
	if rec.Restart != nil {
		k.restart = int64(*rec.Restart)
	}
	if rec.StartMs != nil {
		k.start = *rec.StartMs
	}
	return k
}

// same reports whether two records of one job are of the same run, by the best key that both have.
func (a runKey) same(b runKey) bool {
	switch {
	case a.sluid != "" && b.sluid != "":
		return a.sluid == b.sluid
	case a.restart >= 0 && b.restart >= 0:
		return a.restart == b.restart
	case a.start != 0 && b.start != 0:
		return a.start == b.start
	}
	return true
}

func abs(n int64) int64 { return max(n, -n) }
