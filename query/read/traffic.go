package read

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// fallback is the evidence of a job that sits in one domain and talks over the scale-out network.
const fallback = "silent_fallback"

// Traffic is what the counters of a placement's GPUs and ports say of its verdict. Rates are GB/s (1e9 bytes) per GPU, both
// directions together.
type Traffic struct {
	Evidence     string    `json:"evidence" enum:"unknown,silent_fallback,confirmed,contradicted,in_domain,expected,idle" doc:"confirmed and contradicted are of spills; silent_fallback: inside one domain, yet over the scale-out network; expected: spread because of its size."`
	Reason       *string   `json:"reason" doc:"Why it is unknown; counters_stopped: it still holds its GPUs, and its last counters are more than 15 minutes old."`
	NVLinkGBs    *float64  `json:"nvlink_gb_s"`
	ScaleOutGBs  *float64  `json:"scale_out_gb_s"`
	GPUsMeasured uint32    `json:"gpus_measured"`
	Seconds      float64   `json:"seconds" doc:"Measured, of the usual GPU."`
	OutlierNodes []string  `json:"outlier_nodes" doc:"Nodes whose NVLinks lately moved far less than those of the others."`
	Until        time.Time `json:"until" doc:"The last minute measured."`
}

type evidenceRow struct {
	EvidenceAttempt string    `ch:"evidence_attempt"`
	EvidenceSeq     uint16    `ch:"evidence_seq"`
	Evidence        string    `ch:"evidence"`
	EvidenceHeld    string    `ch:"evidence_held"` // what it says now if the placement holds its GPUs still
	EvidenceReason  string    `ch:"evidence_reason"`
	NVLink          *float64  `ch:"nvlink_bytes_per_second"`
	ScaleOut        *float64  `ch:"scale_out_bytes_per_second"`
	GPUsMeasured    uint32    `ch:"gpus_measured"`
	Measured        float64   `ch:"measured_seconds"`
	Outliers        []string  `ch:"outlier_nodes"`
	LastMinute      time.Time `ch:"last_minute"`
}

// countersStopped is how old the last counters of a placement that still holds its GPUs may be, by the rule of
// sql/evidence_now.sql.
const countersStopped = 15 * time.Minute

// traffic is nil when nobody measured.
func (e evidenceRow) traffic(of Verdict) *Traffic {
	if e.Evidence == "" || e.NVLink == nil && e.ScaleOut == nil {
		return nil
	}
	if of.To == nil && e.Evidence != e.EvidenceHeld {
		e.Evidence, e.EvidenceReason = e.EvidenceHeld, "counters_stopped"
	}
	return &Traffic{
		Evidence: e.Evidence, Reason: text(e.EvidenceReason), NVLinkGBs: giga(e.NVLink), ScaleOutGBs: giga(e.ScaleOut),
		GPUsMeasured: e.GPUsMeasured, Seconds: e.Measured, OutlierNodes: append([]string{}, e.Outliers...), Until: e.LastMinute,
	}
}

func giga(v *float64) *float64 {
	if v == nil {
		return nil
	}
	g := *v / 1e9
	return &g
}

// JobTraffic is what one run of a job moved.
type JobTraffic struct {
	Cluster     string        `json:"cluster"`
	JobID       string        `json:"job_id"`
	Attempt     uint32        `json:"attempt"`
	Since       time.Time     `json:"since"`
	Until       time.Time     `json:"until"`
	StepSeconds uint32        `json:"step_seconds"`
	Steps       []TrafficStep `json:"steps" doc:"Steps without any counters are left out: nothing is known of them."`
	NodesSince  time.Time     `json:"nodes_since"`
	Nodes       []NodeTraffic `json:"nodes" doc:"Over the last hour of the time asked for, least NVLink traffic first; the 1,000 that move least."`
	Freshness   Freshness     `json:"freshness"`
}

// TrafficStep is one step of time. A null is not measured, never zero.
type TrafficStep struct {
	At           time.Time `json:"at"`
	NVLinkGBs    *float64  `json:"nvlink_gb_s" doc:"1e9 bytes per second and GPU, both directions."`
	ScaleOutGBs  *float64  `json:"scale_out_gb_s"`
	GPUsMeasured uint32    `json:"gpus_measured"`
	SharedNodes  uint32    `json:"shared_nodes" doc:"Nodes others held GPUs of too: their ports tell nothing of this job."`
}

// NodeTraffic is one node of a run.
type NodeTraffic struct {
	Node        string     `json:"node"`
	GPUs        []uint16   `json:"gpus"`
	GPUNVLink   []*float64 `json:"gpu_nvlink_gb_s"`
	NVLinkGBs   *float64   `json:"nvlink_gb_s" doc:"Per GPU."`
	ScaleOutGBs *float64   `json:"scale_out_gb_s" doc:"Per GPU; null = not measured, or the node was shared."`
}

// trafficSteps is about how many steps an answer has.
const trafficSteps = 360

// JobTraffic gives what one attempt of a job moved over [since, until); a zero since is its start, a zero until now or its
// end. attempt is its number, -1 the newest.
func (r *Reader) JobTraffic(ctx context.Context, cluster, jobID string, attempt int32, since, until time.Time) (*JobTraffic, error) {
	job, err := r.Job(ctx, cluster, jobID)
	if err != nil {
		return nil, err
	}
	a, err := job.Pick(attempt)
	if err != nil {
		return nil, err
	}
	if until.IsZero() {
		until = r.now()
		if a.End != nil {
			until = *a.End
		}
	}
	if since.IsZero() {
		since = until.Add(-time.Hour)
		if a.Start != nil {
			since = *a.Start
		}
	}
	since, until = since.UTC().Truncate(time.Minute), until.UTC().Truncate(time.Minute).Add(time.Minute)
	step := max(time.Minute, (until.Sub(since) / trafficSteps).Round(time.Minute))
	out := &JobTraffic{
		Cluster: job.Cluster, JobID: job.JobID, Attempt: a.Attempt, Since: since, Until: until, StepSeconds: uint32(step.Seconds()),
		Steps: []TrafficStep{}, NodesSince: since, Nodes: []NodeTraffic{}, Freshness: job.Freshness,
	}
	key := params{"cluster": job.Cluster, "job_id": job.JobID, "attempt": a.Key}.time("since", since).time("until", until).
		uint("step", uint64(out.StepSeconds))
	steps, err := rows[struct {
		At       time.Time `ch:"at"`
		NVLink   *float64  `ch:"nvlink"`
		ScaleOut *float64  `ch:"scale_out"`
		GPUs     uint32    `ch:"gpus"`
		Shared   uint32    `ch:"shared"`
	}](ctx, r, "traffic_of_job", key)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		out.Steps = append(out.Steps, TrafficStep{
			At: s.At, NVLinkGBs: giga(s.NVLink), ScaleOutGBs: giga(s.ScaleOut), GPUsMeasured: s.GPUs, SharedNodes: s.Shared,
		})
	}
	if hour := until.Add(-time.Hour); hour.After(since) {
		out.NodesSince = hour
		key.time("since", hour)
	}
	nodes, err := rows[struct {
		Node      string     `ch:"node"`
		GPUs      []uint16   `ch:"gpus"`
		GPUNVLink []*float64 `ch:"gpu_nvlink"`
		NVLink    *float64   `ch:"nvlink"`
		ScaleOut  *float64   `ch:"scale_out"`
	}](ctx, r, "traffic_of_nodes", key.uint("limit", 1000))
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		node := NodeTraffic{Node: n.Node, GPUs: n.GPUs, NVLinkGBs: giga(n.NVLink), ScaleOutGBs: giga(n.ScaleOut), GPUNVLink: []*float64{}}
		for _, g := range n.GPUNVLink {
			node.GPUNVLink = append(node.GPUNVLink, giga(g))
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out, nil
}

// trafficText says what traffic tells of a verdict.
func trafficText(t *Traffic) string {
	if t == nil {
		return "Traffic: not measured, so neither confirmed nor cleared; counters come from the dcgm and nic collectors."
	}
	rates := fmt.Sprintf("%s GB/s over NVLink and %s GB/s over the scale-out network, a GPU and both ways", gigaText(t.NVLinkGBs), gigaText(t.ScaleOutGBs))
	line := map[string]string{
		fallback:       "Traffic: silent fallback: placed in one domain, yet it moves " + rates + "; look for NVLink or IMEX faults on its nodes.",
		"confirmed":    "Traffic confirms the spill: " + rates + ".",
		"contradicted": "Traffic contradicts the spill's cost: " + rates + "; its parts hardly talk.",
		"in_domain":    "Traffic stays in the domain: " + rates + ".",
		"expected":     "Traffic crosses domains as its size makes it: " + rates + ".",
		"idle":         "Traffic: next to none: " + rates + ".",
	}[t.Evidence]
	if line == "" {
		line = "Traffic: cannot say: " + rates + "."
		if t.Reason != nil {
			line = fmt.Sprintf("Traffic: cannot say (%s): %s.", strings.ReplaceAll(*t.Reason, "_", " "), rates)
		}
	}
	if len(t.OutlierNodes) > 0 {
		line += fmt.Sprintf(" Far less than the others move: %s.", strings.Join(t.OutlierNodes, ", "))
	}
	return line
}

func gigaText(v *float64) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.3g", *v)
}
