package slurmjson

import "time"

// Job is one job record: the union of what the poll documents (squeue, scontrol, REST jobs), the accounting documents
// (sacct, REST slurmdb jobs) and the job completion messages say. A field a document does not have, or has without a
// value, stays at its zero value: nil, "" and the zero time mean "not stated", never 0.
type Job struct {
	// Accounting is true for a record in the accounting shape. Such a record has one run of the job and never GRES indices.
	Accounting bool

	// Cluster is "" in old versions; Meta.Cluster then has it.
	Cluster string
	JobID   uint32
	// SLUID names one run of the job (data_parser v0.0.44 and later; accounting v0.0.45). It changes at a requeue.
	SLUID string
	// OriginalSLUID is the SLUID of the first run (accounting and job completion only).
	OriginalSLUID string
	// RestartCnt is the number of requeues before this run.
	RestartCnt *uint32
	// Priority is the scheduler's, 0 for a held job.
	Priority *uint32

	// ArrayJobID is the id of the job array, 0 when the job is not of an array.
	ArrayJobID uint32
	// ArrayTaskID is nil for a plain job and for the record of the tasks not split off yet.
	ArrayTaskID *uint32
	// ArrayTaskString lists the tasks not split off yet, for example "2-3%2".
	ArrayTaskString string
	// HetJobID is the id of the heterogeneous job's leader, 0 when the job is not heterogeneous.
	HetJobID uint32
	// HetOffset is the component's number; nil when HetJobID is 0.
	HetOffset *uint32
	// HetSet lists the job ids of all components, for example "7-8".
	HetSet string

	Name, User, Account, QOS string
	// Partition is the partition of the run, or a comma list while a job pends in several.
	Partition   string
	Reservation string

	// States holds the base state first, then the state flags: ["RUNNING","COMPLETING"]. COMPLETING still holds the GPUs.
	//
	// ["PENDING","COMPLETING"] is a requeued job whose last run is still ending: Nodes, TresAlloc and SLUID are those of the
	// last run, but RestartCnt is that of the next one, and Start is the moment of the requeue (seen in Slurm 26.05.3).
	States []string
	// StateReason is why the job pends or ended; "None" as printed. StateDescription says more, where it does.
	StateReason, StateDescription string

	// Times are UTC. Start and End of a pending job lie in the future: they are the scheduler's plan. A job cancelled
	// while pending has Start equal to End, or no Start.
	Submit, Eligible, Start, End, Suspend, Resize, Preempt time.Time
	// Preemptable is from when on the job may be preempted: its PreemptExemptTime has passed then.
	Preemptable time.Time
	// PreSusSeconds is how long the job ran before its last suspension.
	PreSusSeconds *uint64
	TimeLimit     Limit

	// Nodes is the hostlist of the allocation; it stays after the job ended and is "" while the job pends.
	Nodes string
	// ScheduledNodes is the hostlist planned for a pending job.
	ScheduledNodes               string
	RequiredNodes, ExcludedNodes string
	// NodeCount is the allocated number of nodes; in a poll, while pending, the requested one.
	NodeCount *uint32
	// GresDetail has one GRES string per allocated node, in the order of AllocNodeNames. Slurm empties it when the job ends.
	GresDetail []string
	// AllocNodeNames are the allocated nodes in Slurm's own order.
	AllocNodeNames []string
	// WholeNodes says whether the nodes are held whole; nil when not stated.
	WholeNodes *bool

	// TresReq and TresAlloc are in Slurm's TRES string form, "cpu=2,mem=200M,gres/gpu=2", in every flavour. See ParseTres.
	TresReq, TresAlloc string
	// TresPer… are what the submitter asked, "gres/gpu:gb200:4". See ParseTres.
	TresPerJob, TresPerNode, TresPerSocket, TresPerTask string

	// SegmentSize is the number of nodes in a segment, 0 for no segments; nil when the version does not say.
	SegmentSize *uint32
	// RequiredSwitches is the most leaf switches the job may span, 0 for no limit; nil when not stated.
	RequiredSwitches *uint32
	// MaxSwitchWait is how long the job waits for RequiredSwitches; nil when not stated.
	MaxSwitchWait *time.Duration
	Flags         []string
	// Exclusive is NO, NODE, USER, MCS or TOPO; "" when not stated.
	Exclusive string
	// Network is the --network option, for example "unique-channel-per-segment".
	Network string

	Comment, AdminComment string
	ExitCode              ExitCode
}

// Limit is a time limit.
type Limit struct {
	// Set is false when no limit is stated.
	Set bool
	// Infinite is an unlimited job; Duration is then 0.
	Infinite bool
	Duration time.Duration
}

// ExitCode is how the job's batch script ended. Slurm prints SUCCESS and 0 for a job that has not ended.
type ExitCode struct {
	// Status is SUCCESS, ERROR, SIGNALED, CORE_DUMPED, PENDING or "".
	Status     string
	ReturnCode *uint32
	Signal     *uint32
}

// Node is one node record of scontrol show node or REST nodes.
type Node struct {
	Cluster string
	Name    string
	// States holds the base state first, then the flags: ["MIXED","PLANNED"].
	States []string
	Reason string
	// Gres is what the node has, "gpu:gb200:4(S:0-1)". GresUsed has indices, "gpu:gb200:2(IDX:0-1)". See ParseGres.
	Gres, GresUsed, GresDrained string
	// Topology is the node's own topology setting, "nvl:rack03". It is "" when the topology file places the node.
	Topology   string
	Partitions []string
	// Features are the active features.
	Features    []string
	Reservation string
	CPUs        *uint32
	// Tres and TresUsed are in Slurm's TRES string form.
	Tres, TresUsed string
	Version        string
}

// Gres is one generic resource of one node.
type Gres struct {
	Name, Type string
	Count      uint64
	// Index are the positions in the node's gres.conf order; nil when the form has none (N/A, count-only, shared).
	Index []uint16
	// Shared has used and total per device for the sharing resources (mps, shard).
	Shared []Share
}

// Share is the use of one shared device.
type Share struct{ Used, Total uint64 }

// Meta is what a document says about itself. It is complete only when the decoder returned no error.
type Meta struct {
	// DataParser is the schema version, "v0.0.45".
	DataParser string
	// Slurm is the version of the Slurm that wrote the document.
	Slurm Version
	// Cluster is the cluster of the daemon asked.
	Cluster string
	// LastUpdate is the time to ask changes from next; zero when not stated.
	LastUpdate time.Time
	// Warnings and Errors are as printed.
	Warnings, Errors []Message
	// Unchanged means that nothing changed since the asked update_time. The empty list then says nothing about the jobs.
	Unchanged bool
	// Records is how many records were handed over.
	Records int
	// Unread counts the values whose shape the decoder does not know, by path (".jobs.time_limit"). Their fields are absent.
	Unread map[string]int
}

// Version is a Slurm version; all fields are 0 when the document has none.
type Version struct{ Major, Minor, Micro int }

// Message is one entry of the document's warnings or errors.
type Message struct {
	Number      int
	Error       string
	Description string
	Source      string
}
