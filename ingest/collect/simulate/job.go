package simulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// job is one job from submission until it holds nothing any more and never will. A requeue keeps it and counts Restart.
type job struct {
	ID       uint64      `json:"id"`
	Tail     uint64      `json:"tail,omitempty"`  // of a heterogeneous job: the id of its second component
	Array    uint64      `json:"array,omitempty"` // of an array task: the id of the array
	Task     uint32      `json:"task,omitempty"`
	Part     int         `json:"part"` // index of its partition
	Priority int         `json:"priority"`
	Name     string      `json:"name"`
	User     string      `json:"user"`
	Account  string      `json:"account"`
	Class    string      `json:"class"`
	QOS      string      `json:"qos"`
	Probe    bool        `json:"probe,omitempty"`
	GPUs     int         `json:"gpus"`
	Segment  int         `json:"segment,omitempty"`
	Run      int64       `json:"run"`   // fleet milliseconds it runs
	Limit    int64       `json:"limit"` // fleet milliseconds its user asked for
	Fate     event.State `json:"fate"`  // how it ends, if nothing intervenes
	Requeue  int64       `json:"requeue,omitempty"`

	State   event.State `json:"state"`
	Restart uint32      `json:"restart,omitempty"`
	Submit  int64       `json:"submit"`          // wall milliseconds, like all times below
	Queued  bool        `json:"queued"`          // in its partition's queue: submitted and eligible
	Order   uint64      `json:"order"`           // of joining the queue
	Start   int64       `json:"start,omitempty"` // 0 = not started
	EndsBy  int64       `json:"ends_by,omitempty"`
	Grants  []grant     `json:"grants,omitempty"`

	Reason       string `json:"reason,omitempty"` // why it is pending, as last told
	PlannedStart int64  `json:"planned_start,omitempty"`
	PlannedNodes []int  `json:"planned_nodes,omitempty"`
}

func (j *job) request() request { return request{gpus: j.GPUs, segment: j.Segment} }

func (j *job) holding() bool { return j.State.Holding() }

// before is the order of a queue: priority, then first come.
func (j *job) before(k *job) bool {
	return j.Priority > k.Priority || j.Priority == k.Priority && j.Order < k.Order
}

// Service classes.
const (
	classTraining  = "training"
	classFinetune  = "finetune"
	classInference = "inference"
	classProbe     = "probe"
)

// tenants are the accounts and users of a simulated fleet, busiest first.
var tenants = []struct {
	account string
	users   []string
}{
	{"foundation", []string{"amara", "bjorn", "chidi", "dalia"}},
	{"alignment", []string{"emre", "farah", "goran"}},
	{"vision", []string{"hana", "ivo", "jia"}},
	{"speech", []string{"kofi", "lena"}},
	{"products", []string{"mateo", "nadia", "omar"}},
	{"science", []string{"priya", "quang"}},
}

var jobNames = map[string][]string{
	classTraining:  {"pretrain-8b", "pretrain-70b", "moe-8x22b", "vit-giant", "asr-large"},
	classFinetune:  {"sft-chat", "lora-sweep", "dpo-70b", "reward-model"},
	classInference: {"serve-chat", "batch-embed", "eval-suite"},
}

const (
	shortestRun = 10 * time.Second
	longestRun  = 7 * 24 * time.Hour

	shareCrash   = 0.05 // ends within seconds, often below one
	shareTimeout = 0.04
	shareFail    = 0.06
	shareCancel  = 0.05
	shareRequeue = 0.02
	shareArray   = 0.04
	shareHet     = 0.015
	shareSegment = 0.5 // of the jobs in a block partition that a segment suits
	// shareWorked is how much of the run time drawn is worked: crashes lose all of it, other early ends about half.
	shareWorked = 1 - shareCrash - (shareTimeout+shareFail+shareCancel)/2
	limitGrid   = int64(15 * time.Minute / time.Millisecond)
)

// draw makes one job of a size: who, what, how long and how it will end.
func draw(rng *rand.Rand, z size, sigma float64) *job {
	class := drawClass(rng, z.gpus)
	tenant := tenants[min(int(rng.ExpFloat64()*1.6), len(tenants)-1)]
	j := &job{
		State:   event.State_PENDING,
		Name:    pick(rng, jobNames[class]),
		User:    pick(rng, tenant.users),
		Account: tenant.account,
		Class:   class,
		QOS:     "normal",
		GPUs:    z.gpus,
	}
	if class == classInference {
		j.QOS, j.Priority = "high", 1
	}
	j.Run = drawRun(rng, z.mean, sigma)
	// Users ask for more than they need, by anything from a little to many times.
	j.Limit = int64(float64(j.Run) * (1.05 + 0.8*math.Exp(rng.NormFloat64())))
	j.Limit = min((j.Limit/limitGrid+1)*limitGrid, longestRun.Milliseconds())
	switch u := rng.Float64(); {
	case u < shareCrash:
		j.Run, j.Fate = 300+rng.Int64N(20_000), event.State_FAILED
	case u < shareCrash+shareTimeout:
		j.Limit = max(j.Run/2/limitGrid, 1) * limitGrid
		j.Run, j.Fate = j.Limit, event.State_TIMEOUT
	case u < shareCrash+shareTimeout+shareFail:
		j.Run, j.Fate = 1+int64(float64(j.Run)*rng.Float64()), event.State_FAILED
	case u < shareCrash+shareTimeout+shareFail+shareCancel:
		j.Run, j.Fate = 1+int64(float64(j.Run)*rng.Float64()), event.State_CANCELLED
	default:
		j.Fate = event.State_COMPLETED
		if rng.Float64() < shareRequeue {
			j.Requeue = 1 + int64(float64(j.Run)*rng.Float64())
		}
	}
	j.Limit = max(j.Limit, j.Run)
	return j
}

// drawRun is a run time of a mean: lognormal, the mean kept where it is not clipped.
func drawRun(rng *rand.Rand, mean time.Duration, sigma float64) int64 {
	run := math.Exp(math.Log(float64(mean.Milliseconds())) - sigma*sigma/2 + sigma*rng.NormFloat64())
	return int64(min(max(run, float64(shortestRun.Milliseconds())), float64(longestRun.Milliseconds())))
}

func drawClass(rng *rand.Rand, gpus int) string {
	u := rng.Float64()
	switch {
	case gpus <= 2 && u < .5, gpus <= 8 && u < .2:
		return classInference
	case gpus <= 2 && u < .8, gpus <= 8 && u < .7, u < .2:
		return classFinetune
	}
	return classTraining
}

// suitableSegment is the --segment a user would ask for: whole racks less two spare trays for large jobs, four trays
// for middling ones, none below; always a divisor of the nodes.
func suitableSegment(nodes int) int {
	switch {
	case nodes >= 32:
		for s := 16; s >= 8; s-- {
			if nodes%s == 0 {
				return s
			}
		}
	case nodes >= 8 && nodes%4 == 0:
		return 4
	}
	return 0
}

func pick(rng *rand.Rand, from []string) string { return from[rng.IntN(len(from))] }

// insert keeps a slice of jobs sorted by less.
func insert(jobs []*job, j *job, less func(a, b *job) bool) []*job {
	i, _ := slices.BinarySearchFunc(jobs, j, func(a, b *job) int {
		if less(a, b) {
			return -1
		}
		return 1
	})
	return slices.Insert(jobs, i, j)
}

func remove(jobs []*job, j *job) []*job {
	if i := slices.Index(jobs, j); i >= 0 {
		return slices.Delete(jobs, i, i+1)
	}
	return jobs
}
