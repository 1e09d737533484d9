package advise

import "time"

// Response is advice: candidates, best first, and which to take. It is not a reservation: two askers may be told the same.
type Response struct {
	RequestID  string       `json:"request_id,omitempty"`
	Strategy   string       `json:"strategy"`
	Snapshot   SnapshotInfo `json:"snapshot"`
	Candidates []Candidate  `json:"candidates"`
	MakeRoom   *MakeRoom    `json:"make_room,omitempty"`
	// NotNow says why the best shape cannot start now, with counts; absent where it can. Its code is no_estimates where no
	// start of a better shape is told because jobs have no end estimate.
	NotNow *Refusal `json:"not_now,omitempty"`
	// Recommendation is one of "start rank N", "wait for rank N" and "make room".
	Recommendation string   `json:"recommendation"`
	Why            []string `json:"why"`
	// Slurm are flags for sbatch, and Kueue annotations for the pod set, that ask for the recommended shape. Neither names
	// nodes: a node list fights the scheduler's own topology.
	Slurm     []string          `json:"slurm"`
	Kueue     map[string]string `json:"kueue"`
	ExpiresIn int               `json:"expires_in_s"`
}

// SnapshotInfo says what the advice rests on.
type SnapshotInfo struct {
	Seq        uint64 `json:"seq"`
	Generation uint64 `json:"generation"`
	// AsOf is the past instant that was asked about: the cluster is then as is known of it today, but for what is only kept as
	// last told: time limits, priorities, and what moving a job costs. Absent for now.
	AsOf *time.Time `json:"as_of,omitempty"`
	// AgeMS is null where the age is not known; such a picture is stale.
	AgeMS *int64 `json:"age_ms"`
	Stale bool   `json:"stale"`
	// TopologyLagMS is for how long sources have been saying that nodes sit elsewhere than this answer supposes; 0 where
	// the answer rests on all that was said.
	TopologyLagMS int64 `json:"topology_lag_ms"`
	// Coverage is the share of nodes whose domain is known.
	Coverage float64 `json:"coverage"`
	// Estimates is the share of held nodes whose end has an estimate.
	Estimates float64 `json:"estimates"`
}

// Candidate is one shape at one time.
type Candidate struct {
	Rank int `json:"rank"`
	// Start is "now" or a time by the end estimates, which StartBasis then names; WaitS is how far off it is.
	Start      string `json:"start"`
	StartBasis string `json:"start_basis,omitempty"`
	// StartP90 is when the same nodes are free if every job on them takes as long as its 90th percentile: of ten or more earlier
	// runs of its user and name, or else its limit. Absent for a start now, and where a job has neither or has outlived it.
	StartP90 string        `json:"start_p90,omitempty"`
	WaitS    int64         `json:"wait_s"`
	WaitsFor []string      `json:"waits_for,omitempty"`
	Domains  []DomainShare `json:"domains"`
	// Nodes are for audit and for scheduler extenders; only known for a start now.
	Nodes []string `json:"nodes,omitempty"`
	// Evicts are the probe jobs on those nodes.
	Evicts    []string   `json:"evicts,omitempty"`
	Predicted Prediction `json:"predicted"`
	// LostGPUHours are the expected duration times the predicted slowdown's two ends; absent where either is unknown.
	LostGPUHours *[2]float64 `json:"lost_gpu_hours,omitempty"`
	Frag         *FragChange `json:"frag,omitempty"`
	// MissesDeadline is set where the start and the duration end after the deadline.
	MissesDeadline bool `json:"misses_deadline,omitempty"`
}

// DomainShare is the part of a candidate in one domain.
type DomainShare struct {
	ID        string `json:"id"`
	Partition string `json:"partition,omitempty"`
	Nodes     int32  `json:"nodes"`
	// SparesLeft are the free healthy nodes that would be left to replace a failed one.
	SparesLeft int32 `json:"spares_left"`
}

// Prediction is what the shape is expected to cost.
type Prediction struct {
	// Slowdown is [low, high] against the best shape; absent where there is no basis.
	Slowdown *[2]float64 `json:"slowdown,omitempty"`
	Basis    string      `json:"basis"`
	// LinkRatio is a ratio of link speeds, not a slowdown.
	LinkRatio float64 `json:"link_ratio"`
	// BwGBps is what the configured links give each GPU in one direction in this shape, and BwBasis which of them: NVLink in
	// one domain, and between parts the NICs that the traffic crosses.
	BwGBps  float64 `json:"bw_GBps"`
	BwBasis string  `json:"bw_basis"`
}

// FragChange is what a start now does to the slots of the reference size.
type FragChange struct {
	PhiBefore   float64 `json:"phi_before"`
	PhiAfter    float64 `json:"phi_after"`
	SlotNodes   int32   `json:"slot_nodes"`
	SlotsBefore int32   `json:"slots_before"`
	SlotsAfter  int32   `json:"slots_after"`
}
