package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Job is all runs of one job, newest first.
type Job struct {
	Cluster   string    `json:"cluster"`
	JobID     string    `json:"job_id"`
	Attempts  []Attempt `json:"attempts"`
	Freshness Freshness `json:"freshness"`
}

// Attempt is one run of a job, with where it sat and what was judged of it.
type Attempt struct {
	Attempt        uint32      `json:"attempt" doc:"Runs of this job before this one: 0 is the first."`
	Key            string      `json:"attempt_key" doc:"The attempt's key in the tables."`
	Scheduler      string      `json:"scheduler"`
	Components     []string    `json:"components" doc:"Ids of a heterogeneous job's components."`
	ArrayJobID     *string     `json:"array_job_id"`
	ArrayTask      *uint32     `json:"array_task"`
	Name           string      `json:"name"`
	User           string      `json:"user"`
	Account        string      `json:"account"`
	Queue          string      `json:"queue"`
	QOS            string      `json:"qos"`
	ServiceClass   string      `json:"service_class"`
	Probe          bool        `json:"probe"`
	State          string      `json:"state"`
	StateRaw       string      `json:"state_raw"`
	Submit         *time.Time  `json:"submit"`
	Eligible       *time.Time  `json:"eligible"`
	Start          *time.Time  `json:"start" doc:"null = not started"`
	End            *time.Time  `json:"end" doc:"null = not ended"`
	EndEarliest    *time.Time  `json:"end_earliest" doc:"Set when the end is only known to lie in [end_earliest, end]."`
	ExpectedEnd    *time.Time  `json:"expected_end" doc:"By the time limit; null when there is none."`
	RequestedGPUs  *uint32     `json:"requested_gpus"`
	RequestedNodes *uint32     `json:"requested_nodes"`
	GPUs           *uint32     `json:"gpus"`
	SegmentNodes   *uint32     `json:"segment_nodes"`
	PendingReason  *string     `json:"pending_reason"`
	PlannedStart   *time.Time  `json:"planned_start"`
	PlannedNodes   []string    `json:"planned_nodes"`
	Sources        []string    `json:"sources"`
	ObservedLast   time.Time   `json:"observed_last"`
	Placements     []Placement `json:"placements"`
	Verdict        *Verdict    `json:"verdict" doc:"Of the latest placement; null when nothing was placed or it holds no GPU."`
}

// Placement is what an attempt holds over one interval.
type Placement struct {
	Seq       uint16     `json:"seq"`
	From      time.Time  `json:"from"`
	To        *time.Time `json:"to" doc:"null = still held"`
	GPUs      *uint32    `json:"gpus"`
	GPUsBasis string     `json:"gpus_basis" enum:"exact,even,unknown" doc:"How GPUs per node are known."`
	Nodes     []Held     `json:"nodes"`
	Verdict   *Verdict   `json:"verdict"`
}

// Held is one node of a placement.
type Held struct {
	Node     string   `json:"node"`
	GPUs     *uint16  `json:"gpus"`
	GPUIndex []uint16 `json:"gpu_index" doc:"Empty = not known."`
}

// newestRow is what the newest row of a key says beside its facts. Rows that were taken back are left out, and the rest put
// in order, here and not in the statements: one more step over so many columns costs ClickHouse more than reading them.
type newestRow struct {
	Cluster string `ch:"cluster"`
	Deleted uint8  `ch:"is_deleted"`
}

type attemptRow struct {
	newestRow
	JobID          string     `ch:"job_id"`
	Attempt        string     `ch:"attempt"`
	Number         uint32     `ch:"number"`
	Scheduler      string     `ch:"scheduler"`
	Components     []string   `ch:"components"`
	ArrayJobID     string     `ch:"array_job_id"`
	ArrayTask      *uint32    `ch:"array_task"`
	Name           string     `ch:"name"`
	User           string     `ch:"user"`
	Account        string     `ch:"account"`
	Queue          string     `ch:"queue"`
	QOS            string     `ch:"qos"`
	ServiceClass   string     `ch:"service_class"`
	Probe          bool       `ch:"probe"`
	State          string     `ch:"state"`
	StateRaw       string     `ch:"state_raw"`
	Submit         *time.Time `ch:"submit"`
	Eligible       *time.Time `ch:"eligible"`
	Start          *time.Time `ch:"start"`
	End            *time.Time `ch:"end"`
	EndEarliest    *time.Time `ch:"end_earliest"`
	ExpectedEnd    *time.Time `ch:"expected_end"`
	RequestedGPUs  *uint32    `ch:"requested_gpus"`
	RequestedNodes *uint32    `ch:"requested_nodes"`
	GPUs           *uint32    `ch:"gpus"`
	IntentMode     string     `ch:"intent_mode"`
	SegmentNodes   *uint32    `ch:"segment_nodes"`
	PendingReason  string     `ch:"pending_reason"`
	PlannedStart   *time.Time `ch:"planned_start"`
	PlannedNodes   []string   `ch:"planned_nodes"`
	Sources        []string   `ch:"sources"`
	ObservedLast   time.Time  `ch:"observed_last"`
}

type placementRow struct {
	newestRow
	Attempt      string     `ch:"attempt"`
	Seq          uint16     `ch:"seq"`
	ValidFrom    time.Time  `ch:"valid_from"`
	ValidTo      time.Time  `ch:"valid_to"`
	Nodes        []string   `ch:"nodes"`
	NodeGPUs     []*uint16  `ch:"node_gpus"`
	NodeGPUIndex [][]uint16 `ch:"node_gpu_index"`
	GPUs         *uint32    `ch:"gpus"`
	GPUsBasis    string     `ch:"gpus_basis"`
}

type judgedRow struct {
	newestRow
	verdictRow
}

type toldRow struct {
	newestRow
	evidenceRow
}

// mostRuns bounds the runs in one answer.
const mostRuns = 1000

// Job gives one job by the scheduler's own id. An empty cluster is fine while the id exists in one cluster only;
// otherwise the error wraps ErrAmbiguous and names them. An unknown id wraps ErrNotFound.
func (r *Reader) Job(ctx context.Context, cluster, jobID string) (*Job, error) {
	var runs []attemptRow
	var held []placementRow
	var verdicts []judgedRow
	var told []toldRow
	var names *labels
	var heard reports
	// Each is short and mostly waiting for the server, so none waits for another, even to learn which cluster it is.
	key := params{"cluster": cluster, "job_id": jobID}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { runs, err = rows[attemptRow](gctx, r, "attempts_of_job", key); return })
	g.Go(func() (err error) { held, err = rows[placementRow](gctx, r, "placements_of_job", key); return })
	g.Go(func() (err error) { verdicts, err = rows[judgedRow](gctx, r, "verdicts_of_job", key); return })
	g.Go(func() (err error) { told, err = rows[toldRow](gctx, r, "evidence_of_job", key); return })
	g.Go(func() (err error) { names, err = r.freshLabels(gctx); return })
	g.Go(func() (err error) { heard, err = r.reports(gctx); return })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	runs = slices.DeleteFunc(runs, func(run attemptRow) bool { return run.Deleted != 0 })
	if len(runs) == 0 {
		where := "any cluster"
		if cluster != "" {
			where = "cluster " + cluster
		}
		return nil, unknownJob(jobID, where)
	}
	slices.SortFunc(runs, func(a, b attemptRow) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(b.Number, a.Number), newerStart(a.Start, b.Start))
	})
	for _, run := range runs {
		if run.Cluster != runs[0].Cluster {
			return nil, fmt.Errorf("job %s is known in %s and %s: %w: say which with cluster", jobID, runs[0].Cluster,
				run.Cluster, ErrAmbiguous)
		}
	}
	runs = runs[:min(len(runs), mostRuns)]
	cluster = runs[0].Cluster
	here := func(row newestRow) bool { return row.Cluster == cluster && row.Deleted == 0 }
	slices.SortFunc(held, func(a, b placementRow) int { return cmp.Compare(a.Seq, b.Seq) })
	job := &Job{Cluster: cluster, JobID: jobID, Attempts: make([]Attempt, len(runs)), Freshness: heard.freshness(cluster, r.now())}
	for i, run := range runs {
		a := run.attempt()
		for _, h := range held {
			if !here(h.newestRow) || h.Attempt != run.Attempt {
				continue
			}
			p := h.placement()
			for _, v := range verdicts {
				if here(v.newestRow) && v.Attempt == run.Attempt && v.Seq == h.Seq {
					judged := v.verdict(cluster, names)
					for _, e := range told {
						if here(e.newestRow) && e.EvidenceAttempt == run.Attempt && e.EvidenceSeq == h.Seq {
							judged.Traffic = e.traffic(judged)
						}
					}
					p.Verdict, a.Verdict = &judged, &judged
				}
			}
			a.Placements = append(a.Placements, p)
		}
		job.Attempts[i] = a
	}
	return job, nil
}

// newerStart puts the run that has not started first, then the one that started last.
func newerStart(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return b.Compare(*a)
}

func (h placementRow) placement() Placement {
	p := Placement{Seq: h.Seq, From: h.ValidFrom, To: closed(h.ValidTo), GPUs: h.GPUs, GPUsBasis: h.GPUsBasis, Nodes: make([]Held, len(h.Nodes))}
	for n, name := range h.Nodes {
		p.Nodes[n].Node = name
		p.Nodes[n].GPUIndex = []uint16{}
		if n < len(h.NodeGPUs) {
			p.Nodes[n].GPUs = h.NodeGPUs[n]
		}
		if n < len(h.NodeGPUIndex) && h.NodeGPUIndex[n] != nil {
			p.Nodes[n].GPUIndex = h.NodeGPUIndex[n]
		}
	}
	return p
}

func unknownJob(jobID, where string) error {
	return fmt.Errorf("job %s in %s: %w: it was never seen, or the id is of an array (ask for one task's own id)", jobID, where, ErrNotFound)
}

func (run attemptRow) attempt() Attempt {
	return Attempt{
		Attempt: run.Number, Key: run.Attempt, Scheduler: run.Scheduler, Components: run.Components,
		ArrayJobID: text(run.ArrayJobID), ArrayTask: run.ArrayTask, Name: run.Name, User: run.User, Account: run.Account,
		Queue: run.Queue, QOS: run.QOS, ServiceClass: run.ServiceClass, Probe: run.Probe, State: run.State,
		StateRaw: run.StateRaw, Submit: run.Submit, Eligible: run.Eligible, Start: run.Start, End: run.End,
		EndEarliest: run.EndEarliest, ExpectedEnd: run.ExpectedEnd, RequestedGPUs: run.RequestedGPUs,
		RequestedNodes: run.RequestedNodes, GPUs: run.GPUs, SegmentNodes: run.SegmentNodes,
		PendingReason: text(run.PendingReason), PlannedStart: run.PlannedStart, PlannedNodes: run.PlannedNodes,
		Sources: run.Sources, ObservedLast: run.ObservedLast, Placements: []Placement{},
	}
}

// Pick gives one run by its number, or the newest for -1. An unknown number wraps ErrNotFound.
func (j *Job) Pick(number int32) (Attempt, error) {
	for _, a := range j.Attempts {
		if number < 0 || int64(a.Attempt) == int64(number) {
			return a, nil
		}
	}
	return Attempt{}, fmt.Errorf("attempt %d of job %s: %w: it has attempts 0 to %d", number, j.JobID, ErrNotFound,
		j.Attempts[0].Attempt)
}
