package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

// world is a server that the test makes up, read by the real decoder.
type world struct {
	t      *testing.T
	d      *decoder
	m      *model
	counts map[string]int
}

func newWorld(t *testing.T, change func(*Config)) *world {
	cfg := testConfig()
	cfg.Refresh = 0
	if change != nil {
		change(&cfg)
	}
	w := &world{t: t, d: newDecoder(&cfg), counts: map[string]int{}}
	w.m = newModel(&cfg, nothing(), func(reason string, n int) { w.counts[reason] += n })
	for i := 1; i <= 4; i++ {
		w.put(0, kindNodes, nodeOf(fmt.Sprintf("n%d", i), ""))
	}
	w.tell(0)
	return w
}

func nodeOf(name, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"labels":{"kubernetes.io/hostname":"host-%s","nvidia.com/gpu.clique":"A.1"}},
		"status":{"capacity":{"nvidia.com/gpu":"4"},"allocatable":{"nvidia.com/gpu":"4"},"conditions":[{"type":"Ready","status":"True"}]}%s}`, name, name, name, more)
}

func (w *world) read(k kind, text string) *object {
	w.t.Helper()
	o, err := w.d.read(k, []byte(text))
	if o == nil {
		w.t.Fatal(err)
	}
	o.bad = err
	return o
}

func (w *world) put(second int, k kind, text string) {
	w.t.Helper()
	w.m.put(k, w.read(k, text), at(second))
}

func (w *world) gone(second int, k kind, text string) {
	w.t.Helper()
	w.m.remove(k, w.read(k, text), time.Time{}, at(second))
}

// tell commits what is proposed, and gives its placements, one a line.
func (w *world) tell(second int) string {
	w.t.Helper()
	b := w.m.propose(at(second))
	b.commit()
	return w.say(b.records)
}

func (w *world) say(records []event.Record) string {
	w.t.Helper()
	var out []string
	for _, r := range records {
		if err := r.Validate(); err != nil {
			w.t.Error(err)
		}
		if p, ok := r.(*event.Placement); ok {
			out = append(out, sentence(p))
		}
	}
	return strings.Join(out, "\n")
}

// sentence is what a test says of a placement: times in seconds.
func sentence(p *event.Placement) string {
	second := func(ms *int64) string { return fmt.Sprint((*ms - at(0).UnixMilli()) / 1000) }
	s := p.JobId + " " + p.RunId + " " + strings.ToLower(p.State.String())
	if p.StartMs != nil {
		s += " from " + second(p.StartMs)
	}
	if p.EndEarliestMs != nil {
		s += " until " + second(p.EndEarliestMs) + ".." + second(p.EndMs)
	} else if p.EndMs != nil {
		s += " until " + second(p.EndMs)
	}
	if p.Gpus != nil {
		s += fmt.Sprintf(" gpus %d", *p.Gpus)
	}
	for _, n := range p.Placements {
		s += " " + n.Node + ":"
		if n.Gpus != nil {
			s += fmt.Sprint(*n.Gpus)
		} else {
			s += "?"
		}
		if n.FromMs != nil {
			s += " since " + second(n.FromMs)
		}
		if n.ToMs != nil {
			s += " to " + second(n.ToMs)
		}
	}
	if p.PendingReason != "" {
		s += " (" + p.PendingReason + ")"
	}
	if len(p.PlannedNodes) > 0 {
		s += " planned " + strings.Join(p.PlannedNodes, ",")
	}
	return s
}

func stamp8601(second int) string { return at(second).Format(time.RFC3339) }

// made are the seconds at which pods were made, by name; others at 0.
var made = map[string]int{"b": 4}

// podOf is a pod of four GPUs; more are further members of its metadata.
func podOf(name, more, node string, bound int, status string) string {
	s := fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"u-%s","creationTimestamp":%q%s},
		"spec":{"nodeName":%q,"containers":[{"resources":{"limits":{"nvidia.com/gpu":"4"}}}]},"status":{"conditions":[`, name, name, stamp8601(made[name]), more, node)
	if node != "" {
		s += fmt.Sprintf(`{"type":"PodScheduled","status":"True","lastTransitionTime":%q}`, stamp8601(bound))
	} else {
		s += `{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/4 nodes are available"}`
	}
	return s + `]` + status + `}}`
}

func running() string { return `,"phase":"Running"` }

func endedAt(phase string, second int) string {
	return fmt.Sprintf(`,"phase":%q,"containerStatuses":[{"state":{"terminated":{"finishedAt":%q}}}]`, phase, stamp8601(second))
}

const ofJob = `,"labels":{"batch.kubernetes.io/job-name":"j","batch.kubernetes.io/controller-uid":"ju"},"ownerReferences":[{"kind":"Job","name":"j","uid":"ju","controller":true}]`

func (w *world) want(second int, want string) {
	w.t.Helper()
	if diff := cmp.Diff(strings.TrimSpace(want), w.tell(second)); diff != "" {
		w.t.Errorf("at %d (-want +got):\n%s", second, diff)
	}
}

// madeAt is the end of the run id of an attempt whose first pod was made then.
func madeAt(second int) string { return fmt.Sprintf("@%d", at(second).Unix()) }

func TestAJobRunsAgainAfterItFailed(t *testing.T) {
	w := newWorld(t, nil)
	w.put(1, kindPods, podOf("a", ofJob, "", 0, `,"phase":"Pending"`))
	w.want(1, "ns/j ju"+madeAt(0)+" pending (Unschedulable: 0/4 nodes are available)")
	w.put(5, kindPods, podOf("a", ofJob, "n1", 5, running()))
	w.want(5, "ns/j ju"+madeAt(0)+" running from 5 gpus 4 n1:4")
	w.want(6, "")
	w.put(20, kindPods, podOf("a", ofJob, "n1", 5, endedAt("Failed", 19)))
	w.want(20, "ns/j ju"+madeAt(0)+" failed from 5 until 19 gpus 4 n1:4")
	w.put(30, kindPods, podOf("b", ofJob, "n2", 30, running()))
	w.want(30, "ns/j ju"+madeAt(4)+" running from 30 gpus 4 n2:4")
	w.put(40, kindPods, podOf("b", ofJob, "n2", 30, endedAt("Succeeded", 39)))
	w.want(40, "ns/j ju"+madeAt(4)+" completed from 30 until 39 gpus 4 n2:4")
	w.gone(50, kindPods, podOf("a", ofJob, "n1", 5, endedAt("Failed", 19)))
	w.gone(50, kindPods, podOf("b", ofJob, "n2", 30, endedAt("Succeeded", 39)))
	w.want(50, "")
	if len(w.m.pods)+len(w.m.runs)+len(w.m.claimants) > 0 {
		t.Errorf("%d pods and %d runs are kept of what is gone", len(w.m.pods), len(w.m.runs))
	}
	for name := range w.m.told {
		if strings.HasPrefix(name, "run ") {
			t.Errorf("%s is kept as told", name)
		}
	}
}

// TestARestartSeesTheSameRuns: a collector that knows nothing of before gives runs the names they had.
func TestARestartSeesTheSameRuns(t *testing.T) {
	w := newWorld(t, nil)
	w.put(60, kindPods, podOf("a", ofJob, "n1", 5, endedAt("Failed", 19)))
	w.put(60, kindPods, podOf("b", ofJob, "n2", 30, running()))
	w.want(60, "ns/j ju"+madeAt(0)+" failed from 5 until 19 gpus 4 n1:4\nns/j ju"+madeAt(4)+" running from 30 gpus 4 n2:4")
}

// TestWhatEndedLongAgoIsNotTold: Kueue keeps what has finished, and a start is not to tell all of it again.
func TestWhatEndedLongAgoIsNotTold(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.LookBack = time.Minute })
	admitted := conditionJSON("QuotaReserved", "True", "QuotaReserved", 10) + "," + conditionJSON("Admitted", "True", "Admitted", 10)
	done := workloadJSON(admitted+","+conditionJSON("Finished", "True", "Succeeded", 100), assignedTwo, 0)
	w.put(200, kindWorkloads, done)
	w.put(200, kindPods, podOf("a", "", "n1", 5, endedAt("Succeeded", 100)))
	w.put(200, kindPods, podOf("b", "", "n1", 5, endedAt("Succeeded", 150)))
	w.want(200, "ns/b u-b completed from 5 until 150 gpus 4 n1:4")
	w.put(210, kindWorkloads, done)
	w.want(210, "")
	late := newWorld(t, nil)
	late.put(200, kindWorkloads, done) // its pods are gone, and with them where it ran
	late.want(200, "ns/j wu completed from 10 until 100")
}

// TestPodsOfAGangComeAndGoOneByOne: none of that is a change of where the job is.
func TestPodsOfAGangComeAndGoOneByOne(t *testing.T) {
	w := newWorld(t, nil)
	w.put(5, kindPods, podOf("a", ofJob, "n1", 5, running()))
	w.want(5, "ns/j ju"+madeAt(0)+" running from 5 gpus 4 n1:4")
	w.put(9, kindPods, podOf("b", ofJob, "n2", 9, running()))
	w.want(9, "ns/j ju"+madeAt(0)+" running from 5 gpus 8 n1:4 n2:4")
	w.put(90, kindPods, podOf("c", ofJob, "n3", 90, running())) // long after: it has grown
	w.want(90, "ns/j ju"+madeAt(0)+" running from 5 gpus 12 n1:4 n2:4 n3:4 since 90")
	w.put(100, kindPods, podOf("a", ofJob, "n1", 5, endedAt("Succeeded", 100)))
	w.want(101, "")                                                                          // the others may follow
	w.want(131, "ns/j ju"+madeAt(0)+" running from 5 gpus 8 n1:4 to 100 n2:4 n3:4 since 90") // they did not
	w.put(140, kindPods, podOf("b", ofJob, "n2", 9, endedAt("Succeeded", 140)))
	w.put(140, kindPods, podOf("c", ofJob, "n3", 90, endedAt("Succeeded", 139)))
	w.want(140, "ns/j ju"+madeAt(0)+" completed from 5 until 140 gpus 12 n1:4 n2:4 n3:4 since 90")
}

// TestADeletedPodHasAnUncertainEnd: it ended between the moment it was asked to, or was last heard of, and its going.
func TestADeletedPodHasAnUncertainEnd(t *testing.T) {
	w := newWorld(t, nil)
	deleting := fmt.Sprintf(`,"deletionTimestamp":%q,"deletionGracePeriodSeconds":30`, stamp8601(70)) // asked for at 40
	w.put(5, kindPods, podOf("a", "", "n1", 5, running()))
	w.put(5, kindPods, podOf("b", "", "n2", 5, running()))
	w.put(5, kindPods, podOf("c", "", "n3", 5, running()))
	w.tell(5)
	w.gone(60, kindPods, podOf("a", deleting, "n1", 5, running()))
	w.gone(60, kindPods, podOf("b", "", "n2", 5, running()))
	w.gone(60, kindPods, podOf("c", deleting, "n3", 5, endedAt("Failed", 50))) // the last word tells
	w.want(61, `
ns/a u-a cancelled from 5 until 40..60 gpus 4 n1:4
ns/b u-b vanished from 5 until 5..60 gpus 4 n2:4
ns/c u-c cancelled from 5 until 50 gpus 4 n3:4`)
}

// TestAFullListEndsWhatIsNotInIt: after a cut nobody knows more than when the server was last heard.
func TestAFullListEndsWhatIsNotInIt(t *testing.T) {
	w := newWorld(t, nil)
	a, b := podOf("a", "", "n1", 5, running()), podOf("b", "", "n2", 5, running())
	w.put(5, kindPods, a)
	w.put(5, kindPods, b)
	w.tell(5)
	w.m.replace(kindPods, []*object{w.read(kindPods, b)}, at(50), at(80))
	w.want(80, "ns/a u-a vanished from 5 until 50..80 gpus 4 n1:4")
}

func workloadJSON(conditions, admission string, evictions int) string {
	stats := ""
	if evictions >= 0 {
		stats = fmt.Sprintf(`,"schedulingStats":{"evictions":[{"reason":"Preempted","count":%d}]}`, evictions)
	}
	return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"job-j-1","uid":"wu","creationTimestamp":%q,"annotations":{"kueue.x-k8s.io/job-owner-name":"j"},
		"ownerReferences":[{"kind":"Job","name":"j","uid":"ju","controller":true}]},
		"spec":{"queueName":"lq","priority":7,"maximumExecutionTimeSeconds":3600,"podSets":[{"name":"main","count":2,"template":{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"4"}}}]}},
		"topologyRequest":{"required":"nvidia.com/gpu.clique","podSetSliceRequiredTopology":"nvidia.com/gpu.clique","podSetSliceSize":2}}]},
		"status":{"conditions":[%s]%s%s}}`, stamp8601(0), conditions, admission, stats)
}

func conditionJSON(of, status, reason string, second int) string {
	return fmt.Sprintf(`{"type":%q,"status":%q,"reason":%q,"message":"why","lastTransitionTime":%q}`, of, status, reason, stamp8601(second))
}

const assignedTwo = `,"admission":{"clusterQueue":"cq","podSetAssignments":[{"name":"main","count":2,"topologyAssignment":{"levels":["kubernetes.io/hostname"],
	"slices":[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"host-","roots":["n1","n2"]}}],"podCounts":{"universal":1}}]}}]}`

const ofWorkload = `,"annotations":{"kueue.x-k8s.io/workload":"job-j-1"},"labels":{"batch.kubernetes.io/job-name":"j","batch.kubernetes.io/controller-uid":"ju"}`

// TestAnEvictionEndsOneAttemptAndTheNextWaits is a job that Kueue admits, evicts and admits again.
func TestAnEvictionEndsOneAttemptAndTheNextWaits(t *testing.T) {
	w := newWorld(t, nil)
	w.put(1, kindWorkloads, workloadJSON(conditionJSON("QuotaReserved", "False", "WaitingForQuota", 1), "", 0))
	w.want(1, "ns/j wu pending (WaitingForQuota: why)")
	admitted := conditionJSON("QuotaReserved", "True", "QuotaReserved", 10) + "," + conditionJSON("Admitted", "True", "Admitted", 10)
	w.put(10, kindWorkloads, workloadJSON(admitted, assignedTwo, 0))
	w.want(10, "ns/j wu pending planned n1,n2")
	w.put(12, kindPods, podOf("a", ofWorkload, "n1", 11, running()))
	w.put(12, kindPods, podOf("b", ofWorkload, "n2", 12, running()))
	w.want(12, "ns/j wu running from 10 gpus 8 n1:4 n2:4")

	// Decided: its pods are about to end, and still hold their GPUs.
	w.put(50, kindWorkloads, workloadJSON(admitted+","+conditionJSON("Evicted", "True", "Preempted", 50), assignedTwo, 1))
	w.want(50, "ns/j wu completing from 10 gpus 8 n1:4 n2:4")
	w.gone(60, kindPods, podOf("a", ofWorkload, "n1", 11, endedAt("Failed", 55)))
	w.gone(60, kindPods, podOf("b", ofWorkload, "n2", 12, endedAt("Failed", 58)))
	waits := conditionJSON("QuotaReserved", "False", "Pending", 60) + "," + conditionJSON("Admitted", "False", "NoReservation", 60) + "," + conditionJSON("Evicted", "True", "Preempted", 50)
	w.put(60, kindWorkloads, workloadJSON(waits, "", 1))
	w.want(60, "ns/j wu preempted from 10 until 58 gpus 8 n1:4 n2:4\nns/j wu/1 pending (Pending: why)")

	again := conditionJSON("QuotaReserved", "True", "QuotaReserved", 90) + "," + conditionJSON("Admitted", "True", "Admitted", 90) + "," + conditionJSON("Evicted", "False", "QuotaReserved", 90)
	w.put(90, kindWorkloads, workloadJSON(again, assignedTwo, 1))
	w.put(92, kindPods, podOf("c", ofWorkload, "n3", 91, running()))
	w.want(92, "ns/j wu/1 running from 90 gpus 4 n3:4")
	w.put(100, kindPods, podOf("c", ofWorkload, "n3", 91, endedAt("Succeeded", 99)))
	w.put(100, kindWorkloads, workloadJSON(again+","+conditionJSON("Finished", "True", "Succeeded", 100), assignedTwo, 1))
	w.want(100, "ns/j wu/1 completed from 90 until 99 gpus 4 n3:4")
	w.want(200, "")
	w.gone(300, kindWorkloads, workloadJSON(again, assignedTwo, 1))
	w.gone(300, kindPods, podOf("c", ofWorkload, "n3", 91, endedAt("Succeeded", 99)))
	w.want(300, "")
	if len(w.m.pods)+len(w.m.runs) > 0 {
		t.Errorf("%d pods and %d runs are kept of what is gone", len(w.m.pods), len(w.m.runs))
	}
}

// TestPodsThatEndAfterTheirQuotaIsGone: they hold their GPUs while the next attempt waits already.
func TestPodsThatEndAfterTheirQuotaIsGone(t *testing.T) {
	w := newWorld(t, nil)
	admitted := conditionJSON("QuotaReserved", "True", "QuotaReserved", 10) + "," + conditionJSON("Admitted", "True", "Admitted", 10)
	w.put(12, kindWorkloads, workloadJSON(admitted, assignedTwo, 0))
	w.put(12, kindPods, podOf("a", ofWorkload, "n1", 12, running()))
	w.want(12, "ns/j wu running from 10 gpus 4 n1:4")
	waits := conditionJSON("QuotaReserved", "False", "Pending", 60) + "," + conditionJSON("Admitted", "False", "NoReservation", 60) + "," + conditionJSON("Evicted", "True", "Preempted", 50)
	w.put(60, kindWorkloads, workloadJSON(waits, "", 1))
	w.want(60, "ns/j wu completing from 10 gpus 4 n1:4\nns/j wu/1 pending (Pending: why)")
	w.m.again()
	w.want(65, "")
	w.gone(70, kindPods, podOf("a", ofWorkload, "n1", 12, endedAt("Failed", 69)))
	w.want(70, "ns/j wu preempted from 10 until 69 gpus 4 n1:4")
	again := conditionJSON("QuotaReserved", "True", "QuotaReserved", 90) + "," + conditionJSON("Admitted", "True", "Admitted", 90) + "," + conditionJSON("Evicted", "False", "QuotaReserved", 90)
	w.put(90, kindWorkloads, workloadJSON(again, assignedTwo, 1))
	w.put(92, kindPods, podOf("c", ofWorkload, "n3", 91, running()))
	w.want(92, "ns/j wu/1 running from 90 gpus 4 n3:4")
	w.gone(99, kindPods, podOf("c", ofWorkload, "n3", 91, endedAt("Succeeded", 98)))
	w.put(99, kindWorkloads, workloadJSON(again+","+conditionJSON("Finished", "True", "Succeeded", 99), assignedTwo, 1))
	w.want(99, "ns/j wu/1 completed from 90 until 98 gpus 4 n3:4")
}

// TestAWorkload: what of it goes into its records.
func TestAWorkload(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Probes = []Probe{{Labels: map[string]string{labelJobName: "j*"}, PriorityBelow: new(int64(8))}}
	})
	admitted := conditionJSON("QuotaReserved", "True", "QuotaReserved", 10) + "," + conditionJSON("Admitted", "True", "Admitted", 10)
	w.put(10, kindWorkloads, workloadJSON(admitted, assignedTwo, -1))
	w.put(12, kindPods, podOf("a", ofWorkload, "n1", 11, running()))
	b := w.m.propose(at(12))
	b.commit()
	p := b.records[0].(*event.Placement)
	want := &event.Placement{
		Cluster: "k", Scheduler: "kubernetes", JobId: "ns/j", RunId: "wu", Restart: new(uint32(0)), Name: "j", User: "ns", Account: "cq", Queue: "lq",
		Probe: true, State: event.State_RUNNING, StateRaw: "QuotaReserved,Admitted", SubmitMs: new(at(0).UnixMilli()), StartMs: new(at(10).UnixMilli()),
		TimeLimitMs: new(int64(3_600_000)), RequestedGpus: new(uint32(8)), RequestedNodes: new(uint32(2)), Gpus: new(uint32(4)), Priority: new(int64(7)),
		Intent:     &event.Intent{Mode: event.Intent_REQUIRED, Level: "partition", SegmentNodes: new(uint32(2))},
		Placements: []*event.NodePlacement{{Node: "n1", Gpus: new(uint32(4)), Pods: []string{"ns/a"}}},
		Source:     SourcePods, ObservedAtMs: at(12).UnixMilli(), Revision: event.Revision(at(12)),
	}
	if diff := cmp.Diff(collecttest.Lines(t, []event.Record{want}), collecttest.Lines(t, []event.Record{p})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// Deleted while it runs: it runs on until its pods have ended.
	w.gone(50, kindWorkloads, workloadJSON(admitted, assignedTwo, -1))
	w.want(50, "")
	w.gone(60, kindPods, podOf("a", ofWorkload, "n1", 11, endedAt("Failed", 59)))
	w.want(60, "ns/j wu failed from 10 until 59 gpus 4 n1:4")
}

// TestAJobThatKueueForgot: a Workload that goes before any of it ran.
func TestAWorkloadThatGoesBeforeItRan(t *testing.T) {
	w := newWorld(t, nil)
	waits := workloadJSON(conditionJSON("QuotaReserved", "False", "WaitingForQuota", 1), "", 0)
	w.put(1, kindWorkloads, waits)
	w.tell(1)
	w.gone(9, kindWorkloads, waits)
	w.want(9, "ns/j wu cancelled until 9")
	if len(w.m.runs) > 0 {
		t.Error("the run is kept")
	}
}

func TestPartsOfGPUsAndClaims(t *testing.T) {
	w := newWorld(t, nil)
	spec := func(name, spec, status string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"u-%s"},"spec":{"nodeName":"n1",%s},"status":{"phase":"Running","conditions":[
			{"type":"PodScheduled","status":"True","lastTransitionTime":%q}]%s}}`, name, name, spec, stamp8601(5), status)
	}
	w.put(5, kindPods, spec("mig", `"containers":[{"resources":{"limits":{"nvidia.com/mig-1g.12gb":"1"}}}]`, ""))
	w.put(5, kindPods, spec("cpu", `"containers":[{}]`, ""))
	claimed := func(name, claim string) string {
		return spec(name, `"containers":[{}],"resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"t"}]`,
			`,"resourceClaimStatuses":[{"name":"gpu","resourceClaimName":"`+claim+`"}]`)
	}
	claim := func(name, class, results string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"c-%s"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":%q}}]}},
			"status":{"allocation":{"devices":{"results":[%s]}}}}`, name, name, class, results)
	}
	result := func(driver, device, more string) string {
		return fmt.Sprintf(`{"request":"r","driver":%q,"pool":"n1","device":%q%s}`, driver, device, more)
	}
	w.put(5, kindPods, claimed("two", "c1"))
	w.put(5, kindPods, claimed("net", "c2"))
	w.put(5, kindPods, claimed("sliver", "c3"))
	w.put(5, kindClaims, claim("c1", "gpu.nvidia.com", result("gpu.nvidia.com", "gpu-0", "")+","+result("gpu.nvidia.com", "gpu-1", "")+","+result("gpu.nvidia.com", "gpu-2", `,"adminAccess":true`)))
	w.put(5, kindClaims, claim("c2", "nics.example.com", result("nics.example.com", "nic-0", "")))
	w.put(5, kindClaims, claim("c3", "mig.nvidia.com", result("gpu.nvidia.com", "gpu-3-mig-1g12gb-0", "")))
	w.want(5, `
ns/mig u-mig running from 5 n1:?
ns/sliver u-sliver running from 5 n1:?
ns/two u-two running from 5 gpus 2 n1:2`)

	// Where a node gives the same GPU to several pods, what they ask for are no GPUs.
	w.put(6, kindNodes, strings.Replace(nodeOf("n2", ""), `"labels":{`, `"labels":{"nvidia.com/gpu.replicas":"4",`, 1))
	w.put(6, kindPods, podOf("share", "", "n2", 6, running()))
	w.want(6, "ns/share u-share running from 6 n2:?")
}

// TestTwoPodsShareAClaim: its devices count once.
func TestTwoPodsShareAClaim(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"a", "b"} {
		w.put(5, kindPods, strings.Replace(podOf(name, ofJob, "n1", 5, running()), `"containers":[{"resources":{"limits":{"nvidia.com/gpu":"4"}}}]`,
			`"containers":[{}],"resourceClaims":[{"name":"gpu","resourceClaimName":"shared"}]`, 1))
	}
	w.put(5, kindClaims, `{"metadata":{"namespace":"ns","name":"shared","uid":"c"},"status":{"allocation":{"devices":{"results":[
		{"driver":"gpu.nvidia.com","pool":"n1","device":"gpu-0"},{"driver":"gpu.nvidia.com","pool":"n1","device":"gpu-1"}]}}}}`)
	w.want(5, "ns/j ju"+madeAt(0)+" running from 5 gpus 2 n1:2")
}

func TestWhatAPodBelongsTo(t *testing.T) {
	for name, c := range map[string]struct{ metadata, spec, job string }{
		"a pod alone":                     {``, ``, "ns/p"},
		"a Job":                           {ofJob, ``, "ns/j"},
		"a Job of before 1.27":            {`,"labels":{"job-name":"old","controller-uid":"ou"}`, ``, "ns/old"},
		"a JobSet":                        {`,"labels":{"jobset.sigs.k8s.io/jobset-uid":"su","jobset.sigs.k8s.io/jobset-name":"set","batch.kubernetes.io/job-name":"set-r-0"}`, ``, "ns/set"},
		"one group of a LeaderWorkerSet":  {`,"labels":{"leaderworkerset.sigs.k8s.io/name":"llm","leaderworkerset.sigs.k8s.io/group-index":"2"}`, ``, "ns/llm-2"},
		"a pod group":                     {`,"labels":{"scheduling.x-k8s.io/pod-group":"pg"}`, ``, "ns/pg"},
		"a pod group of Kueue":            {`,"labels":{"kueue.x-k8s.io/pod-group-name":"kg"}`, ``, "ns/kg"},
		"a pod group of Kubernetes":       {``, `,"schedulingGroup":{"podGroupName":"sg"}`, "ns/sg"},
		"any owner":                       {`,"ownerReferences":[{"kind":"PyTorchJob","name":"torch","uid":"tu","controller":true}]`, ``, "ns/torch"},
		"an owner that does not manage":   {`,"ownerReferences":[{"kind":"Lease","name":"l","uid":"lu"}]`, ``, "ns/p"},
		"a replica":                       {`,"ownerReferences":[{"kind":"ReplicaSet","name":"serve-7f","uid":"ru","controller":true}]`, ``, "ns/p"},
		"a Workload that the pod names":   {ofWorkload, ``, "ns/j"},
		"a Workload that is its Job's":    {ofJob, ``, "ns/j"},
		"a Workload, named by its label":  {`,"labels":{"kueue.x-k8s.io/workload":"job-j-1"}`, ``, "ns/j"},
		"a Workload that is not there":    {`,"annotations":{"kueue.x-k8s.io/workload":"gone"}` + ofJob, ``, "ns/j"},
		"a static pod belongs to no node": {`,"ownerReferences":[{"kind":"Node","name":"n1","uid":"nu","controller":true}]`, ``, "ns/p"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			if strings.Contains(name, "Workload") && !strings.Contains(name, "not there") {
				w.put(1, kindWorkloads, workloadJSON(conditionJSON("QuotaReserved", "True", "x", 1), "", 0))
			}
			pod := strings.Replace(podOf("p", c.metadata, "n1", 5, running()), `"spec":{`, `"spec":{"z":0`+c.spec+`,`, 1)
			w.put(5, kindPods, pod)
			if got := w.tell(5); !strings.HasPrefix(got, c.job+" ") || strings.Contains(got, "\n") {
				t.Errorf("it is %q, want one of %s", got, c.job)
			}
		})
	}
}

// TestAWorkloadThatComesAfterItsPod: the pod then is part of it, and nothing ends.
func TestAWorkloadThatComesAfterItsPod(t *testing.T) {
	w := newWorld(t, nil)
	w.put(1, kindPods, podOf("a", ofJob, "", 0, `,"phase":"Pending"`))
	w.want(1, "ns/j ju"+madeAt(0)+" pending (Unschedulable: 0/4 nodes are available)")
	w.put(3, kindWorkloads, workloadJSON(conditionJSON("QuotaReserved", "False", "WaitingForQuota", 1), "", 0))
	w.want(3, "ns/j wu pending (WaitingForQuota: why)")
	if len(w.m.runs) != 1 {
		t.Errorf("%d runs are kept", len(w.m.runs))
	}
}

func TestHowPodsEnd(t *testing.T) {
	for name, c := range map[string]struct{ metadata, status, state string }{
		"well":                        {"", endedAt("Succeeded", 9), "completed"},
		"badly":                       {"", endedAt("Failed", 9), "failed"},
		"too late":                    {"", endedAt("Failed", 9) + `,"reason":"DeadlineExceeded"`, "timeout"},
		"with their node":             {"", endedAt("Failed", 9) + `,"reason":"NodeShutdown"`, "node_fail"},
		"deleted":                     {fmt.Sprintf(`,"deletionTimestamp":%q`, stamp8601(9)), endedAt("Failed", 9), "cancelled"},
		"deleted after they ended":    {fmt.Sprintf(`,"deletionTimestamp":%q`, stamp8601(9)), endedAt("Succeeded", 9), "completed"},
		"without a word of their end": {"", `,"phase":"Failed"`, "failed from 5 until 5..10"},
	} {
		w := newWorld(t, nil)
		w.put(10, kindPods, podOf("a", c.metadata, "n1", 5, c.status))
		if got := w.tell(10); !strings.Contains(got, " "+c.state+" ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for reason, want := range map[string]string{
		"PreemptionByScheduler": "preempted", "DeletionByTaintManager": "node_fail", "EvictionByEvictionAPI": "cancelled", "DeletionByPodGC": "node_fail",
	} {
		w := newWorld(t, nil)
		pod := strings.Replace(podOf("a", "", "n1", 5, endedAt("Failed", 9)), `"conditions":[`, `"conditions":[{"type":"DisruptionTarget","status":"True","reason":"`+reason+`"},`, 1)
		w.put(10, kindPods, pod)
		if got := w.tell(10); !strings.Contains(got, " "+want+" ") {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

// TestWhatIsNotTakenIsProposedAgain: state advances by commit alone.
func TestWhatIsNotTakenIsProposedAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.put(5, kindPods, podOf("a", "", "n1", 5, running()))
	w.m.propose(at(5)).withdraw()
	w.want(6, "ns/a u-a running from 5 gpus 4 n1:4")
	w.put(9, kindPods, podOf("a", "", "n1", 5, endedAt("Succeeded", 9)))
	w.m.propose(at(9)).withdraw()
	w.want(10, "ns/a u-a completed from 5 until 9 gpus 4 n1:4")
	w.put(11, kindNodes, nodeOf("n9", ""))
	b := w.m.propose(at(11))
	b.withdraw()
	if again := w.m.propose(at(12)); len(b.records) != 2 || len(again.records) != 2 {
		t.Errorf("%d records of a node, and then %d", len(b.records), len(again.records))
	}
}

func TestWhatHasNotChangedIsToldAgain(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Refresh = time.Minute })
	w.put(5, kindPods, podOf("a", "", "n1", 5, running()))
	w.tell(5)
	w.m.again()
	w.want(30, "")
	w.m.again()
	b := w.m.propose(at(70))
	b.commit()
	if len(b.records) != 9 { // four nodes, their places, and the pod
		t.Errorf("%d records: %s", len(b.records), collecttest.Lines(t, b.records))
	}
}

// TestAJobOfMorePodsThanARecordHolds: where it runs is told, and not by which pods.
func TestAJobOfMorePodsThanARecordHolds(t *testing.T) {
	w := newWorld(t, nil)
	long := strings.Repeat("x", 200)
	for i := range 4500 {
		w.put(5, kindPods, podOf(fmt.Sprintf("%s%d", long, i), ofJob, fmt.Sprintf("node%d", i), 5, running()))
	}
	b := w.m.propose(at(5))
	p := b.records[0].(*event.Placement)
	if _, _, err := event.Encode(p); err != nil || len(p.Placements) != 4500 || len(p.Placements[0].Pods) > 0 || w.counts["pods_left_out"] != 1 {
		t.Errorf("%d nodes, %v, %v", len(p.Placements), err, w.counts)
	}
}

// TestWhatCannotBeReadStands: and then not all that is listed was told.
func TestWhatCannotBeReadStands(t *testing.T) {
	w := newWorld(t, nil)
	good, bad := podOf("a", "", "n1", 5, running()), `{"metadata":{"namespace":"ns","name":"a","uid":"u-a"},"spec":{"nodeName":7}}`
	w.put(5, kindPods, good)
	w.tell(5)
	w.m.replace(kindPods, []*object{w.read(kindPods, bad)}, at(5), at(6))
	w.want(6, "")
	if w.m.wholly("run ", kindPods) == nil || w.counts["unreadable"] != 1 {
		t.Errorf("all is told, and %v", w.counts)
	}
	w.put(7, kindPods, good)
	if err := w.m.wholly("run ", kindPods); err != nil {
		t.Error(err)
	}
}
