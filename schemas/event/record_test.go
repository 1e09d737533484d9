package event

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

const noon = 1_795_953_600_000

// held is a placement that keeps every rule.
func held() *Placement {
	return &Placement{
		Cluster: "alpha", Scheduler: "slurm", JobId: "4711", Source: "slurm.squeue", State: State_RUNNING,
		StartMs: proto.Int64(noon), ObservedAtMs: noon, Intent: &Intent{Mode: Intent_REQUIRED},
		Placements: []*NodePlacement{{Node: "n1", Gpus: proto.Uint32(2), GpuIndex: []uint32{0, 1}}},
	}
}

func TestValidate(t *testing.T) {
	placement := func(change func(*Placement)) Record {
		p := held()
		change(p)
		return p
	}
	counters := func(change func(*Counters)) Record {
		c := &Counters{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon, GpuIndex: []uint32{0, 1}}
		change(c)
		return c
	}
	for name, c := range map[string]struct {
		record Record
		want   string // empty: it keeps the rules
	}{
		"a placement that keeps every rule":         {held(), ""},
		"a pending job has no start":                {placement(func(p *Placement) { p.State, p.StartMs, p.Placements = State_PENDING, nil, nil }), ""},
		"a job that vanished need not have started": {placement(func(p *Placement) { p.State, p.StartMs = State_VANISHED, nil }), ""},
		"no cluster":                           {placement(func(p *Placement) { p.Cluster = "" }), "cluster is empty: the collector must set it"},
		"a slash in the cluster":               {placement(func(p *Placement) { p.Cluster = "a/b" }), `cluster "a/b" holds a slash`},
		"a slash in the job id is fine":        {placement(func(p *Placement) { p.JobId = "ns/job" }), ""},
		"a line end in the job id":             {placement(func(p *Placement) { p.JobId = "1\n2" }), `job_id "1\n2" holds a control character`},
		"a name without end":                   {placement(func(p *Placement) { p.JobId = strings.Repeat("x", 1025) }), "job_id has 1025 bytes, at most 1024 are taken"},
		"no observation":                       {placement(func(p *Placement) { p.ObservedAtMs = 0 }), "observed_at_ms is not set"},
		"seconds for milliseconds":             {placement(func(p *Placement) { p.ObservedAtMs = noon / 1000 }), "observed_at_ms 1795953600 is not between the years 2000 and 2100: the unit is milliseconds"},
		"microseconds for milliseconds":        {placement(func(p *Placement) { p.SubmitMs = proto.Int64(noon * 1000) }), "submit_ms 1795953600000000 is not between"},
		"a planned start in seconds":           {placement(func(p *Placement) { p.PlannedStartMs = proto.Int64(noon / 1000) }), "planned_start_ms 1795953600 is not between"},
		"a checkpoint in microseconds":         {placement(func(p *Placement) { p.CheckpointMs = proto.Int64(noon * 1000) }), "checkpoint_ms 1795953600000000 is not between"},
		"no state":                             {placement(func(p *Placement) { p.State, p.StateRaw = 0, "FROZEN" }), `state is not set (state_raw "FROZEN")`},
		"running without a start":              {placement(func(p *Placement) { p.StartMs = nil }), "state RUNNING without start_ms"},
		"an end before the start":              {placement(func(p *Placement) { p.EndMs = proto.Int64(noon - 1) }), "end_ms 1795953599999 is before start_ms 1795953600000"},
		"an end earlier than the earliest end": {placement(func(p *Placement) { p.EndMs, p.EndEarliestMs = proto.Int64(noon+1), proto.Int64(noon+2) }), "end_ms 1795953600001 is before end_earliest_ms"},
		"a node without a name":                {placement(func(p *Placement) { p.Placements[0].Node = "" }), "placements.node is empty"},
		"a line end in the name of a pod":      {placement(func(p *Placement) { p.Placements[0].Pods = []string{"ml/a", "ml/b\n"} }), `placements.pods "ml/b\n" holds a control character`},
		"indices and count that differ":        {placement(func(p *Placement) { p.Placements[0].Gpus = proto.Uint32(3) }), "placements[0] (n1) says 3 gpus and lists 2 indices"},
		"a count without indices":              {placement(func(p *Placement) { p.Placements[0].GpuIndex = nil }), ""},
		"a node left before it was taken": {placement(func(p *Placement) {
			p.Placements[0].FromMs, p.Placements[0].ToMs = proto.Int64(noon), proto.Int64(noon-1)
		}), "placements.to_ms"},
		"a membership that says nothing":                {&Membership{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon}, ""},
		"a level without a value":                       {&Membership{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon, Levels: []*Level{{Level: "block"}}}, "levels.value of block is empty"},
		"a membership of no source":                     {&Membership{Cluster: "a", Node: "n", ObservedAtMs: noon}, "source is empty"},
		"a node of nothing":                             {&Node{}, "cluster is empty"},
		"more healthy GPUs than there are":              {&Node{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon, GpusPresent: proto.Uint32(4), GpusHealthy: proto.Uint32(5)}, "gpus_healthy 5 is more than gpus_present 4"},
		"healthy GPUs where the number is not known":    {&Node{Cluster: "a", Node: "n", Source: "s", ObservedAtMs: noon, GpusHealthy: proto.Uint32(5)}, ""},
		"counters without a column":                     {counters(func(*Counters) {}), ""},
		"a column that is too short":                    {counters(func(c *Counters) { c.NvlinkTxBytes = []float64{1} }), "nvlink_tx_bytes has 1 entries for 2 entities"},
		"a number that is absent":                       {counters(func(c *Counters) { c.NvlinkTxBytes = []float64{math.NaN(), 0} }), ""},
		"a negative counter":                            {counters(func(c *Counters) { c.NvlinkTxBytes = []float64{0, -1} }), "nvlink_tx_bytes[1] is -1: a number that is not known is NaN"},
		"an infinite counter":                           {counters(func(c *Counters) { c.NvlinkTxBytes = []float64{0, math.Inf(1)} }), "nvlink_tx_bytes[1] is +Inf"},
		"a link of a GPU that is not there":             {counters(func(c *Counters) { c.LinkGpu, c.Link = []uint32{2}, []uint32{0} }), "link_gpu[0] is 2, and there are 2 GPUs"},
		"a domain without a name":                       {&Domain{Cluster: "a", Source: "s", ObservedAtMs: noon}, "domain is empty"},
		"a workload without a job":                      {&Workload{Cluster: "a", ObservedAtMs: noon}, "job_id is empty"},
		"a source that was never read":                  {&Source{Cluster: "a", Source: "s", ObservedAtMs: noon}, ""},
		"a source read in another unit":                 {&Source{Cluster: "a", Source: "s", ObservedAtMs: noon, GoodAtMs: proto.Int64(7)}, "good_at_ms 7 is not between"},
		"a spill without an outcome":                    {&Spill{Cluster: "a", JobId: "1", Attempt: "r0"}, "outcome is empty"},
		"a spill whose shares do not match its domains": {&Spill{Cluster: "a", JobId: "1", Attempt: "r0", Outcome: "spill", Domains: []string{"d"}, DomainGpus: []uint32{1, 2}}, "domain_gpus has 2 entries for 1 domains"},
		"a dead letter without a reason":                {&DeadLetter{Topic: "t", Stage: "load", ObservedAtMs: noon}, "reason is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.record.Validate()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v; want %q", err, c.want)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	long := held()
	for range 60_000 {
		long.Placements = append(long.Placements, &NodePlacement{Node: "a-node-name-of-some-length"})
	}
	text := held()
	text.Name = "\xff"
	for name, c := range map[string]struct {
		record Record
		want   string
	}{
		"a record that breaks a rule":        {&Node{}, "encode spillway.node.v1: record breaks the contract: cluster is empty"},
		"a record that no broker would take": {long, "at most 900000 are taken"},
		"a name that is no text":             {text, "invalid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Encode(c.record); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want %q", err, c.want)
			}
		})
	}
}

func TestUnknownTopic(t *testing.T) {
	if _, err := Decode("spillway.placement.v9", nil); err == nil || !strings.Contains(err.Error(), "expected one of spillway.placement.v1,") {
		t.Errorf("got %v", err)
	}
	for _, topic := range Topics() {
		if r, err := New(topic); err != nil || r.RecordTopic() != topic {
			t.Errorf("New(%s) is %v, %v", topic, r, err)
		}
	}
}

// TestKeys draws names with slashes and empty-looking parts: two entities never share a key, one always has the same.
func TestKeys(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	name := func(letters string) string {
		b := make([]byte, 1+random.IntN(4))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	type entity struct{ topic, cluster, id string }
	owner := map[string]entity{}
	for range 50_000 {
		cluster, id := name("ab-"), name("ab-/.")
		for _, r := range []Record{
			&Placement{Cluster: cluster, JobId: id},
			&Membership{Cluster: cluster, Node: id},
			&Node{Cluster: cluster, Node: id},
			&Counters{Cluster: cluster, Node: id},
			&Domain{Cluster: cluster, Domain: id},
			&Workload{Cluster: cluster, JobId: id},
			&Source{Cluster: cluster, Source: id},
			&Spill{Cluster: cluster, JobId: id},
		} {
			key := r.RecordTopic() + " " + r.RecordKey()
			e := entity{r.RecordTopic(), cluster, id}
			if was, ok := owner[key]; ok && was != e {
				t.Fatalf("%v and %v share the key %q", was, e, key)
			}
			owner[key] = e
			if !strings.HasPrefix(r.RecordKey(), cluster+"/") {
				t.Fatalf("key %q does not begin with the cluster", key)
			}
		}
	}
	// Whatever else a record says, the key stays.
	a, b := held(), &Placement{Cluster: "alpha", JobId: "4711", RunId: "other", Source: "other", State: State_FAILED}
	if a.RecordKey() != b.RecordKey() {
		t.Errorf("two runs of a job have the keys %s and %s", a.RecordKey(), b.RecordKey())
	}
	if k := (&DeadLetter{Topic: "t", Partition: 3}).RecordKey(); k != "t/3" {
		t.Errorf("a dead letter has the key %s", k)
	}
}

// TestADeadLetterCanAlwaysBeWritten, whatever it holds.
func TestADeadLetterCanAlwaysBeWritten(t *testing.T) {
	big := make([]byte, 2_000_000)
	for name, c := range map[string]struct {
		why        error
		key, value []byte
		reason     string
		length     int
	}{
		"a plain one":                  {errors.New("no protobuf"), []byte("k"), []byte("v"), "no protobuf", 1},
		"nothing at all":               {errors.New(""), nil, nil, "no reason was given", 0},
		"a reason of many lines":       {errors.New("a\nb\x00c\xffd"), nil, nil, "a b c d", 0},
		"a reason without end":         {errors.New(strings.Repeat("ü", 5000)), nil, nil, strings.Repeat("ü", 500), 0},
		"a value that no broker takes": {errors.New("too long"), big, big, "value cut to its first 890000 of 2000000 bytes: too long", 890_000},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDeadLetter(TopicNode, 1, 2, "load", c.why, c.key, c.value, time.UnixMilli(noon))
			if d.GetReason() != c.reason || len(d.GetValue()) != c.length {
				t.Errorf("reason %q, %d bytes", d.GetReason(), len(d.GetValue()))
			}
			if _, _, err := Encode(d); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 7_000_000, time.UTC)
	if got := Time(Millis(at)); !got.Equal(at) {
		t.Errorf("%v became %v", at, got)
	}
	if Millis(time.Time{}) != nil || !Time(nil).IsZero() {
		t.Error("unknown does not stay unknown")
	}
	if a, b := Revision(at), Revision(at.Add(time.Microsecond)); a >= b {
		t.Errorf("revisions %d and %d are not in order", a, b)
	}
}

func TestStatesEitherHoldOrHaveEndedOrNeither(t *testing.T) {
	want := map[State]string{
		State_PENDING: "", State_RUNNING: "holding", State_SUSPENDED: "holding", State_COMPLETING: "holding",
		State_COMPLETED: "ended", State_FAILED: "ended", State_CANCELLED: "ended", State_TIMEOUT: "ended", State_NODE_FAIL: "ended",
		State_PREEMPTED: "ended", State_REQUEUED: "ended", State_VANISHED: "ended", State_STATE_UNSPECIFIED: "",
	}
	for n, name := range State_name {
		got := map[[2]bool]string{{false, false}: "", {true, false}: "holding", {false, true}: "ended"}[[2]bool{State(n).Holding(), State(n).Ended()}]
		if w, ok := want[State(n)]; !ok || got != w {
			t.Errorf("%s is %q, want %q", name, got, w)
		}
	}
}

func ExampleEncode() {
	key, value, err := Encode(&Node{Cluster: "alpha", Node: "n1", Source: "slurm", ObservedAtMs: noon})
	fmt.Printf("%s %d %v\n", key, len(value), err)
	// Output: alpha/n1 25 <nil>
}
