package slurm

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestStates(t *testing.T) {
	for words, want := range map[string]struct{ poll, accounting event.State }{
		"PENDING":                            {event.State_PENDING, event.State_PENDING},
		"PENDING,REQUEUED":                   {event.State_PENDING, event.State_REQUEUED},
		"PENDING,COMPLETING":                 {event.State_COMPLETING, event.State_COMPLETING},
		"PENDING,REQUEUE_HOLD":               {event.State_PENDING, event.State_PENDING},
		"PENDING,SPECIAL_EXIT":               {event.State_PENDING, event.State_PENDING},
		"PENDING,REVOKED":                    {event.State_CANCELLED, event.State_CANCELLED},
		"RUNNING":                            {event.State_RUNNING, event.State_RUNNING},
		"RUNNING,CONFIGURING":                {event.State_RUNNING, event.State_RUNNING},
		"RUNNING,POWER_UP_NODE":              {event.State_RUNNING, event.State_RUNNING},
		"RUNNING,SIGNALING":                  {event.State_RUNNING, event.State_RUNNING},
		"RUNNING,COMPLETING":                 {event.State_COMPLETING, event.State_COMPLETING},
		"RUNNING,STOPPED":                    {event.State_SUSPENDED, event.State_SUSPENDED},
		"RUNNING,SOMETHING_NEW":              {event.State_RUNNING, event.State_RUNNING},
		"CONFIGURING":                        {event.State_RUNNING, event.State_RUNNING},
		"RESIZING":                           {event.State_RUNNING, event.State_RUNNING},
		"SUSPENDED":                          {event.State_SUSPENDED, event.State_SUSPENDED},
		"COMPLETED":                          {event.State_COMPLETED, event.State_COMPLETED},
		"COMPLETED,COMPLETING":               {event.State_COMPLETING, event.State_COMPLETING},
		"CANCELLED":                          {event.State_CANCELLED, event.State_CANCELLED},
		"CANCELLED by 1000":                  {event.State_CANCELLED, event.State_CANCELLED},
		"FAILED,LAUNCH_FAILED":               {event.State_FAILED, event.State_FAILED},
		"OUT_OF_MEMORY":                      {event.State_FAILED, event.State_FAILED},
		"TIMEOUT":                            {event.State_TIMEOUT, event.State_TIMEOUT},
		"DEADLINE":                           {event.State_TIMEOUT, event.State_TIMEOUT},
		"NODE_FAIL":                          {event.State_NODE_FAIL, event.State_NODE_FAIL},
		"NODE_FAIL,REQUEUED":                 {event.State_NODE_FAIL, event.State_NODE_FAIL},
		"BOOT_FAIL":                          {event.State_NODE_FAIL, event.State_NODE_FAIL},
		"PREEMPTED":                          {event.State_PREEMPTED, event.State_PREEMPTED},
		"REQUEUED":                           {event.State_STATE_UNSPECIFIED, event.State_REQUEUED},
		"COMPLETING,COMPLETED,RECONFIG_FAIL": {event.State_COMPLETING, event.State_COMPLETING},
		"SOMETHING_NEW":                      {},
		"":                                   {},
	} {
		t.Run(words, func(t *testing.T) {
			list := strings.Split(words, ",")
			if got := readState(list, false).state; got != want.poll {
				t.Errorf("in a poll %v, want %v", got, want.poll)
			}
			if got := readState(list, true).state; got != want.accounting {
				t.Errorf("in accounting %v, want %v", got, want.accounting)
			}
		})
	}
}

// foldJSON folds one job as squeue would print it, on top of what every job has.
func foldJSON(t testing.TB, members string) (*run, map[string]int, error) {
	t.Helper()
	cfg := testConfig()
	notes := map[string]int{}
	f := folder{cfg: &cfg, note: func(reason string, n int) { notes[reason] += n }}
	doc := `{"jobs":[{"job_id":5,"cluster":"nvl","name":"j","user_name":"u","submit_time":1795959000,` + members + `}]}`
	var r *run
	var err error
	if _, decodeErr := slurmjson.DecodeJobs(strings.NewReader(doc), func(j *slurmjson.Job) error {
		r, err = f.job(j, SourceSqueue)
		return nil
	}); decodeErr != nil {
		t.Fatal(decodeErr)
	}
	return r, notes, err
}

const running = `"job_state":["RUNNING"],"start_time":1795959896,"nodes":"n[1-2]","tres_alloc_str":"node=2,gres/gpu=8"`

func TestGPUsOfNodes(t *testing.T) {
	type gpus struct {
		total, n1, n2 string
		note          string
	}
	for name, c := range map[string]struct {
		members string
		want    gpus
	}{
		"one text a node": {running + `,"gres_detail":["gpu:gb200:4(IDX:0-3)","gpu:gb200:4(IDX:0,2-4)"]`, gpus{"8", "4 of 0-3", "4 of 0,2-4", ""}},
		"the order of job_resources counts": {running + `,"gres_detail":["gpu:1(IDX:3)","gpu:2(IDX:0-1)"],"job_resources":{"nodes":{"allocation":[{"name":"n2"},{"name":"n1"}]}}`,
			gpus{"8", "2 of 0-1", "1 of 3", ""}},
		"fewer texts than nodes: nothing is guessed": {running + `,"gres_detail":["gpu:gb200:4(IDX:0-3)"]`, gpus{"8", "?", "?", "gres_nodes_disagree"}},
		"names that are not the nodes": {running + `,"gres_detail":["gpu:4(IDX:0-3)","gpu:4(IDX:0-3)"],"job_resources":{"nodes":{"allocation":[{"name":"n1"}]}}`,
			gpus{"8", "?", "?", "nodes_disagree"}},
		"a node named twice":                     {strings.Replace(running, "n[1-2]", "n1,n1", 1) + `,"gres_detail":["gpu:4(IDX:0-3)","gpu:4(IDX:0-3)"]`, gpus{"8", "?", "", "nodes_repeated"}},
		"a count without indices":                {running + `,"gres_detail":["gpu(CNT:4)","gpu:4(IDX:0-3)"]`, gpus{"8", "4", "4 of 0-3", ""}},
		"two types on one node":                  {running + `,"gres_detail":["gpu:a:1(IDX:2),gpu:b:2(IDX:0-1)","gpu:a:1(IDX:0)"]`, gpus{"8", "3 of 0-2", "1 of 0", ""}},
		"MIG instances: an index is not a GPU's": {running + `,"gres_detail":["gpu:1g.5gb:2(IDX:3-4)","gpu:nvidia_a100_3g.20gb:1(IDX:1)"]`, gpus{"8", "2", "1", ""}},
		"a GPU and an instance":                  {running + `,"gres_detail":["gpu:h100:1(IDX:2),gpu:1c.1g.10gb+me:1(IDX:0)","gpu:h100:1(IDX:2)"]`, gpus{"8", "2", "1 of 2", ""}},
		"a type that only looks like one":        {running + `,"gres_detail":["gpu:h200-141gb:1(IDX:2)","gpu:4g:1(IDX:2)"]`, gpus{"8", "1 of 2", "1 of 2", ""}},
		"a node without GPUs, and other GRES":    {running + `,"gres_detail":["mps:100(50/100)","nic:2(IDX:0-1),gpu:1(IDX:1)"]`, gpus{"8", "0", "1 of 1", ""}},
		"more indices than the count":            {running + `,"gres_detail":["gpu:1(IDX:0-3)","gpu:1(IDX:0)"]`, gpus{"8", "1", "1 of 0", "gres_index_disagrees"}},
		"a text that cannot be read":             {running + `,"gres_detail":["gpu:4(IDX:0-3)","gpu:x(y)z"]`, gpus{"8", "4 of 0-3", "?", "gres_unreadable"}},
		"no total: the sum of the nodes": {strings.Replace(running, ",gres/gpu=8", "", 1) + `,"gres_detail":["gpu:4(IDX:0-3)","gpu:2(IDX:0-1)"]`,
			gpus{"6", "4 of 0-3", "2 of 0-1", ""}},
		"no GPU asked, none listed": {strings.Replace(running, ",gres/gpu=8", "", 1) + `,"gres_detail":[],"tres_req_str":"node=2"`, gpus{"0", "?", "?", ""}},
		"none listed, but asked through tres_per_task": {strings.Replace(running, ",gres/gpu=8", "", 1) + `,"gres_detail":[],"tres_req_str":"node=2","tres_per_task":"gres/gpu:1"`,
			gpus{"?", "?", "?", ""}},
		"whole nodes without a list may hold GPUs": {strings.Replace(running, ",gres/gpu=8", "", 1) + `,"tres_req_str":"node=2","job_resources":{"nodes":{"whole":true,"allocation":[{"name":"n1"},{"name":"n2"}]}}`,
			gpus{"?", "?", "?", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			r, notes, err := foldJSON(t, c.members)
			if err != nil {
				t.Fatal(err)
			}
			got := gpus{total: "?"}
			if r.rec.Gpus != nil {
				got.total = ranges([]uint32{*r.rec.Gpus})
			}
			for _, n := range r.rec.Placements {
				s := "?"
				if n.Gpus != nil {
					s = ranges([]uint32{*n.Gpus})
				}
				if len(n.GpuIndex) > 0 {
					s += " of " + ranges(n.GpuIndex)
				}
				switch n.Node {
				case "n1":
					got.n1 = s
				case "n2":
					got.n2 = s
				}
			}
			for reason := range notes {
				got.note = reason
			}
			if got != c.want || len(notes) > 1 {
				t.Errorf("got %+v, want %+v (notes %v)", got, c.want, notes)
			}
		})
	}
}

// TestAJobMayBePreemptedFromWhenItsExemptTimeHasPassed: only of a run that holds nodes, and only where Slurm says when.
func TestAJobMayBePreemptedFromWhenItsExemptTimeHasPassed(t *testing.T) {
	for name, c := range map[string]struct {
		members string
		want    int64 // Unix seconds; 0 = not told
	}{
		"as an object":                    {running + `,"preemptable_time":{"set":true,"infinite":false,"number":1795960796}`, 1795960796},
		"as Unix seconds":                 {running + `,"preemptable_time":1795960796`, 1795960796},
		"its start, without an exemption": {running + `,"preemptable_time":1795959896`, 1795959896},
		"0 is not told":                   {running + `,"preemptable_time":{"set":true,"infinite":false,"number":0}`, 0},
		"unset":                           {running + `,"preemptable_time":{"set":false,"infinite":false,"number":7}`, 0},
		"infinite":                        {running + `,"preemptable_time":{"set":true,"infinite":true,"number":0}`, 0},
		"no such member":                  {running, 0},
		"one of an earlier run":           {running + `,"preemptable_time":1795959895`, 0},
		"a job that waits":                {`"job_state":["PENDING"],"preemptable_time":1795960796`, 0},
		"a job that has ended":            {`"job_state":["COMPLETED"],"start_time":1795959896,"end_time":1795959996,"nodes":"n1","preemptable_time":1795960796`, 0},
		"a requeued one that lets go":     {`"job_state":["PENDING","COMPLETING"],"start_time":1795959896,"nodes":"n1","preemptable_time":1795960796`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, err := foldJSON(t, c.members)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.rec.GetPreemptibleMs(); got != c.want*1000 || (r.rec.PreemptibleMs != nil) != (c.want != 0) {
				t.Errorf("may be preempted from %v on, want %d s", r.rec.PreemptibleMs, c.want)
			}
		})
	}
}

func TestRequestAndIntent(t *testing.T) {
	pending := `"job_state":["PENDING"],`
	for name, c := range map[string]struct {
		members string
		want    *event.Placement // only the fields asked and the intent
	}{
		"the total of the request": {`"tres_req_str":"node=2,gres/gpu=8,gres/gpu:gb200=8"`, &event.Placement{RequestedNodes: new(uint32(2)), RequestedGpus: new(uint32(8))}},
		"a job's total by type":    {`"tres_req_str":"node=1","tres_per_job":"gres/gpu:gb200:3"`, &event.Placement{RequestedNodes: new(uint32(1)), RequestedGpus: new(uint32(3))}},
		"a count a node":           {`"tres_req_str":"node=4","tres_per_node":"gres:gpu:2"`, &event.Placement{RequestedNodes: new(uint32(4)), RequestedGpus: new(uint32(8))}},
		"a count a node, nodes from node_count": {`"node_count":{"set":true,"infinite":false,"number":3},"tres_per_node":"gres/gpu"`,
			&event.Placement{RequestedNodes: new(uint32(3)), RequestedGpus: new(uint32(3))}},
		"a count a task is not a total": {`"tres_req_str":"node=4","tres_per_task":"gres/gpu:1"`, &event.Placement{RequestedNodes: new(uint32(4))}},
		"no GPU":                        {`"tres_req_str":"node=4,cpu=3"`, &event.Placement{RequestedNodes: new(uint32(4)), RequestedGpus: new(uint32(0))}},
		"nothing known":                 {`"tres_req_str":""`, &event.Placement{}},
		"an absurd count":               {`"tres_req_str":"node=4,gres/gpu=99999999999"`, &event.Placement{RequestedNodes: new(uint32(4))}},
		"segments": {`"segment_size":16,"flags":["SPREAD_SEGMENTS","CONSOLIDATE_SEGMENTS"]`,
			&event.Placement{Intent: &event.Intent{SegmentNodes: new(uint32(16)), SpreadSegments: true, ConsolidateSegments: true}}},
		"no segments":   {`"segment_size":0,"flags":["SPREAD_SEGMENTS"]`, &event.Placement{Intent: &event.Intent{}}},
		"switches":      {`"required_switches":1,"maximum_switch_wait_time":300`, &event.Placement{Intent: &event.Intent{MaxSwitches: new(uint32(1)), MaxSwitchWaitMs: new(int64(300000))}}},
		"a block alone": {`"shared":["topo"]`, &event.Placement{Intent: &event.Intent{ExclusiveDomain: true}}},
		"nodes alone":   {`"shared":["user"]`, &event.Placement{}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, err := foldJSON(t, pending+c.members)
			if err != nil {
				t.Fatal(err)
			}
			got := &event.Placement{RequestedNodes: r.rec.RequestedNodes, RequestedGpus: r.rec.RequestedGpus, Intent: r.rec.Intent}
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	for name, c := range map[string]struct {
		members string
		want    *event.Placement // only times and states
	}{
		"a plan is not a start": {`"job_state":["PENDING"],"start_time":1795967095,"end_time":1795968095,"scheduled_nodes":"n[1-2]"`,
			&event.Placement{State: event.State_PENDING, PlannedStartMs: new(int64(1795967095000)), PlannedNodes: []string{"n1", "n2"}}},
		"cancelled while pending never started": {`"job_state":["CANCELLED"],"start_time":1795959950,"end_time":1795959950,"nodes":""`,
			&event.Placement{State: event.State_CANCELLED, EndMs: new(int64(1795959950000))}},
		"the end of a running job is a plan": {running + `,"end_time":1795969896,"time_limit":{"set":true,"infinite":false,"number":60}`,
			&event.Placement{State: event.State_RUNNING, StartMs: new(int64(1795959896000)), TimeLimitMs: new(int64(3600000))}},
		"no limit": {running + `,"time_limit":{"set":true,"infinite":true,"number":0}`, &event.Placement{State: event.State_RUNNING, StartMs: new(int64(1795959896000))}},
		"a completing run has no end yet": {`"job_state":["FAILED","COMPLETING"],"start_time":1795959896,"end_time":1795959900,"nodes":"n1"`,
			&event.Placement{State: event.State_COMPLETING, StartMs: new(int64(1795959896000))}},
		"a requeue that completes has neither": {`"job_state":["PENDING","COMPLETING"],"start_time":1795959999,"end_time":1795960999,"nodes":"n1","restart_cnt":1`,
			&event.Placement{State: event.State_COMPLETING}},
		"a start that Slurm moved behind the end": {`"job_state":["CANCELLED"],"start_time":1795960300,"end_time":1795960000,"nodes":"n1"`,
			&event.Placement{State: event.State_CANCELLED, StartMs: new(int64(1795960000000)), EndMs: new(int64(1795960000000))}},
		"accounting closed one size of a run": {`"state":{"current":["RESIZING"]},"time":{"submission":1795959000,"start":1795959896,"end":1795959950},"nodes":"n1"`,
			&event.Placement{State: event.State_RUNNING, StartMs: new(int64(1795959896000))}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, err := foldJSON(t, c.members)
			if err != nil {
				t.Fatal(err)
			}
			got := &event.Placement{State: r.rec.State, StartMs: r.rec.StartMs, EndMs: r.rec.EndMs, TimeLimitMs: r.rec.TimeLimitMs,
				PlannedStartMs: r.rec.PlannedStartMs, PlannedNodes: r.rec.PlannedNodes}
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJobsThatCannotBeRecords(t *testing.T) {
	for name, c := range map[string]struct{ members, reason string }{
		"a state nobody knows":           {`"job_state":["FLYING"],"nodes":"n1"`, "state_unknown"},
		"running without a start":        {`"job_state":["RUNNING"],"nodes":"n1"`, "no_start"},
		"nodes that are no hostlist":     {`"job_state":["RUNNING"],"start_time":1795959896,"nodes":"n[1-"`, "nodes_unreadable"},
		"more nodes than a job can have": {`"job_state":["RUNNING"],"start_time":1795959896,"nodes":"a[1-65536],b1"`, "nodes_unreadable"},
		"a plan that is no hostlist":     {`"job_state":["PENDING"],"scheduled_nodes":"n[9-1]"`, "nodes_unreadable"},
		"a state and nothing else":       {`"job_state":["CANCELLED"],"name":"","user_name":"","submit_time":0`, "states_only"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := foldJSON(t, c.members)
			var d *dropped
			if !errors.As(err, &d) || d.reason != c.reason || !strings.Contains(err.Error(), "job 5") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNodeStates(t *testing.T) {
	yes, no := new(true), new(false)
	for states, want := range map[string]*bool{
		"IDLE": yes, "MIXED,PLANNED": yes, "ALLOCATED,COMPLETING": yes, "IDLE,CLOUD,POWERED_DOWN": yes, "IDLE,RESERVED": yes,
		"IDLE,DRAIN": no, "MIXED,DRAIN": no, "DOWN": no, "DOWN,NOT_RESPONDING": no, "IDLE,BLOCKED": no, "IDLE,MAINTENANCE": no,
		"FUTURE": no, "IDLE,INVALID_REG": no, "UNKNOWN": nil, "": nil,
	} {
		t.Run(states, func(t *testing.T) {
			cfg := testConfig()
			f := folder{cfg: &cfg, note: func(string, int) {}}
			got := f.node(&slurmjson.Node{Cluster: "nvl", Name: "n1", States: strings.Split(states, ","), Gres: "gpu:gb200:4(S:0-1),nic:2"})
			if diff := cmp.Diff(want, got.Schedulable); diff != "" || got.GetGpusPresent() != 4 {
				t.Errorf("GPUs %v, schedulable (-want +got):\n%s", got.GetGpusPresent(), diff)
			}
		})
	}
}

// TestANodesModel: GPUs of several models have none in common.
func TestANodesModel(t *testing.T) {
	for gres, want := range map[string]struct {
		model string
		gpus  uint32
	}{
		"":                             {"", 0},
		"gpu:a100:4":                   {"a100", 4},
		"gpu:4":                        {"", 4},
		"gpu:a100:4,gpu:t4:2":          {"", 6},
		"gpu:a:1,gpu:b:1,gpu:b:1":      {"", 3},
		"gpu:a100:4,gpu:2":             {"", 6},
		"gpu:2,gpu:a100:4":             {"", 6},
		"gpu:a100:2,gpu:a100:2":        {"a100", 4},
		"mps:100,gpu:a100:4,nic:mlx:2": {"a100", 4},
	} {
		cfg := testConfig()
		f := folder{cfg: &cfg, note: func(string, int) {}}
		n := f.node(&slurmjson.Node{Name: "n1", Gres: gres})
		if n.GpuModel != want.model || n.GetGpusPresent() != want.gpus {
			t.Errorf("%s: %d GPUs of %q, want %d of %q", gres, n.GetGpusPresent(), n.GpuModel, want.gpus, want.model)
		}
	}
}
