package slurm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// Sources of records, by the way they came in.
const (
	SourceSqueue  = "slurm.squeue"
	SourceREST    = "slurm.rest"
	SourceSacct   = "slurm.sacct"
	SourceSlurmDB = "slurm.slurmdb"
	SourceJobComp = "slurm.jobcomp"
	SourceProlog  = "slurm.prolog"
	SourceNodes   = "slurm.nodes"
)

const scheduler = "slurm"

// folder turns what Slurm says of jobs and nodes into records. It decides from one job alone: what it knew of the job
// before is the Poller's.
type folder struct {
	cfg *Config
	// note counts, by reason, what had to be left unknown in a record.
	note func(reason string, facts int)
}

// run is a placement record in the making, with what the record itself does not hold.
type run struct {
	rec *event.Placement
	// ending is how a COMPLETING run ended, if the words say so.
	ending event.State
	// stopped is when a COMPLETING run stopped to compute, in Unix milliseconds; 0 = not known.
	stopped int64
	// resized is when the job last changed its size; zero = never.
	resized time.Time
}

// dropped is a fact that cannot be a record. reason is its label in the metrics.
type dropped struct {
	reason string
	err    error
}

func (d *dropped) Error() string { return d.err.Error() }
func (d *dropped) Unwrap() error { return d.err }

func drop(reason, format string, args ...any) error {
	return &dropped{reason, fmt.Errorf(format, args...)}
}

// job folds a job of a poll or of accounting. The record lacks the time of observation, and the cluster if the job does
// not say it.
func (f *folder) job(j *slurmjson.Job, source string) (*run, error) {
	words := readState(j.States, j.Accounting)
	return f.fold(j, words, source)
}

// completion folds a message of the jobcomp plugin.
func (f *folder) completion(c *slurmjson.Completion) (*run, error) {
	switch c.Kind {
	case slurmjson.JobStarted: // its state is null
		return f.fold(c.Job, jobState{state: event.State_RUNNING}, SourceJobComp)
	case slurmjson.JobRequeued:
		return f.fold(c.Job, jobState{state: event.State_REQUEUED}, SourceJobComp)
	default:
		return f.fold(c.Job, readState(c.Job.States, true), SourceJobComp)
	}
}

func (f *folder) fold(j *slurmjson.Job, s jobState, source string) (*run, error) {
	if j.Submit.IsZero() && j.Name == "" && j.User == "" {
		return nil, drop("states_only", "job %d has an id and a state and nothing else; jobs/state does not tell enough, jobs/ does", j.JobID)
	}
	if s.state == event.State_STATE_UNSPECIFIED {
		return nil, drop("state_unknown", "job %d: the state %q is not known", j.JobID, strings.Join(j.States, ","))
	}
	p := &event.Placement{
		Cluster: f.cluster(j.Cluster), Scheduler: scheduler, Source: source,
		RunId: j.SLUID, Restart: j.RestartCnt,
		Name: j.Name, User: j.User, Account: j.Account, Queue: j.Partition, Qos: j.QOS, Reservation: j.Reservation,
		State: s.state, StateRaw: strings.Join(j.States, ","),
		SubmitMs: event.Millis(j.Submit), EligibleMs: event.Millis(j.Eligible),
		Intent: intent(j),
	}
	identify(p, j.JobID, j.HetJobID, j.ArrayJobID, j.ArrayTaskID)
	f.classify(p)
	if l := j.TimeLimit; l.Set && !l.Infinite && l.Duration > 0 {
		p.TimeLimitMs = new(l.Duration.Milliseconds())
	}
	f.request(p, j)

	r := &run{rec: p, ending: s.ending}
	if s.state == event.State_PENDING {
		return r, f.plan(p, j)
	}
	if s.state.Holding() && j.Priority != nil {
		p.Priority = new(int64(*j.Priority)) // of a pending job it changes by the minute
	}
	if s.state.Ended() && j.Nodes == "" {
		// Cancelled while it was pending: Slurm prints the time of the cancel as the start, too.
		p.EndMs = event.Millis(j.End)
		return r, nil
	}
	if !s.requeued {
		p.StartMs = event.Millis(j.Start)
	} else if j.RestartCnt != nil && *j.RestartCnt > 0 {
		p.Restart = new(*j.RestartCnt - 1)
	}
	if p.StartMs == nil && !s.requeued {
		return nil, drop("no_start", "job %d is %s and has no start time", j.JobID, p.StateRaw)
	}
	if s.state.Holding() && !s.requeued && !j.Preemptable.Before(j.Start) { // one before the start is of another run
		p.PreemptibleMs = event.Millis(j.Preemptable)
	}
	if j.Resize.After(j.Start) {
		r.resized = j.Resize
	}
	if err := f.nodes(p, j); err != nil {
		return nil, err
	}
	end := event.Millis(j.End)
	if end != nil && p.StartMs != nil && *end < *p.StartMs {
		// Slurm moves the start into the future while nodes boot; a run that ends before it never computed.
		f.note("end_before_start", 1)
		p.StartMs = end
	}
	switch {
	case s.state.Ended():
		p.EndMs = end
	case s.interval:
		for _, n := range p.Placements {
			n.FromMs, n.ToMs = p.StartMs, end
		}
	case s.state == event.State_COMPLETING && s.ending.Ended() && !s.requeued:
		if end != nil {
			r.stopped = *end
		}
		f.release(p, j, end)
	}
	return r, nil
}

func (f *folder) cluster(own string) string {
	if f.cfg.Cluster != "" {
		return f.cfg.Cluster
	}
	return own
}

// identify sets the ids. All components of a heterogeneous job have the leader's id.
func identify(p *event.Placement, own, leader, array uint32, task *uint32) {
	p.JobId = strconv.FormatUint(uint64(own), 10)
	if leader != 0 {
		p.Component = p.JobId
		p.JobId = strconv.FormatUint(uint64(leader), 10)
	}
	if array != 0 {
		p.ArrayJobId = strconv.FormatUint(uint64(array), 10)
		p.ArrayTask = task
	}
}

func (f *folder) classify(p *event.Placement) {
	who := collect.Subject{User: p.User, Account: p.Account, QOS: p.Qos, Partition: p.Queue, Name: p.Name}
	p.ServiceClass, p.Probe = collect.ClassOf(f.cfg.ServiceClasses, who), f.cfg.probe(who)
	p.Preemptible = collect.PreemptibleBy(f.cfg.Preemptible, who)
}

// intent is what the submitter asked of the topology; nil where the document does not tell segments, so that "nothing"
// would be a guess. Segments, switches and exclusive blocks are promises of their own, so no mode and level are set beside
// them.
func intent(j *slurmjson.Job) *event.Intent {
	in := &event.Intent{ExclusiveDomain: j.Exclusive == "TOPO"}
	asked := in.ExclusiveDomain
	if n := j.SegmentSize; n != nil && *n > 0 {
		in.SegmentNodes, asked = n, true
		for _, w := range j.Flags {
			in.SpreadSegments = in.SpreadSegments || w == "SPREAD_SEGMENTS"
			in.ConsolidateSegments = in.ConsolidateSegments || w == "CONSOLIDATE_SEGMENTS"
		}
	}
	if n := j.RequiredSwitches; n != nil && *n > 0 {
		in.MaxSwitches, asked = n, true
		if w := j.MaxSwitchWait; w != nil && *w > 0 {
			in.MaxSwitchWaitMs = new(w.Milliseconds())
		}
	}
	if !asked && j.SegmentSize == nil {
		return nil
	}
	return in
}

// request sets what was asked for. Only a poll has the tres_per_* texts, so only there does "no GPU named" mean none.
func (f *folder) request(p *event.Placement, j *slurmjson.Job) {
	total := f.tres(j.TresReq)
	if n, ok := total.Count("node"); ok {
		p.RequestedNodes = f.count(n)
	} else if p.State == event.State_PENDING {
		p.RequestedNodes = j.NodeCount
	}
	if n, ok := total.GPUs(); ok {
		p.RequestedGpus = f.count(n)
		return
	}
	if n, ok := f.tres(j.TresPerJob).GPUs(); ok {
		p.RequestedGpus = f.count(n)
		return
	}
	if n, ok := f.tres(j.TresPerNode).GPUs(); ok {
		if p.RequestedNodes != nil {
			p.RequestedGpus = f.count(n * uint64(*p.RequestedNodes))
		}
		return
	}
	_, perSocket := f.tres(j.TresPerSocket).GPUs()
	_, perTask := f.tres(j.TresPerTask).GPUs()
	if !perSocket && !perTask && !j.Accounting && j.TresReq != "" && p.Source != SourceJobComp {
		p.RequestedGpus = new(uint32(0))
	}
}

// plan sets what the scheduler means to do with a pending job.
func (f *folder) plan(p *event.Placement, j *slurmjson.Job) error {
	if j.StateReason != "None" {
		p.PendingReason = j.StateReason
	}
	if d := j.StateDescription; d != "" {
		p.PendingReason = strings.TrimPrefix(p.PendingReason+": "+d, ": ")
	}
	p.PlannedStartMs = event.Millis(j.Start)
	names, err := expand(j.ScheduledNodes)
	if err != nil {
		return drop("nodes_unreadable", "job %d: scheduled nodes: %w", j.JobID, err)
	}
	p.PlannedNodes = names
	return nil
}

// tres reads a TRES text; one that cannot be read is counted and says nothing.
func (f *folder) tres(s string) slurmjson.TresList {
	l, err := slurmjson.ParseTres(s)
	if err != nil {
		f.note("tres_unreadable", 1)
	}
	return l
}

// maxCount is more of anything than a cluster has; beyond it a number is a mistake.
const maxCount = 1 << 24

func (f *folder) count(n uint64) *uint32 {
	if n > maxCount {
		f.note("count_too_large", 1)
		return nil
	}
	return new(uint32(n))
}
