package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// call is a filter call in kube-scheduler's own form.
const call = `{"Pod":{"metadata":{"name":"train-0","namespace":"team","labels":{"batch.kubernetes.io/job-name":"train"},` +
	`"annotations":{"kueue.x-k8s.io/podset-required-topology":"nvidia.com/gpu.clique","spillway.io/gang-pods":"16"},` +
	`"ownerReferences":[{"uid":"u1"}]},"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"4"}}}],"resourceClaims":[{"name":"cd"}]}},` +
	`"Nodes":null,"NodeNames":["n1","n2"]}`

// send sends a body to a server without a picture, which has no opinion.
func send(s *Server, path string, body []byte) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodPost, path, bufio.NewReader(bytes.NewReader(body))))
	return rec
}

func extending(t testing.TB) *Server {
	t.Helper()
	on := DefaultAdviseConfig()
	on.Extender = true
	s, err := New(DefaultConfig(), Deps{Now: time.Now, Log: slog.New(slog.DiscardHandler), Advise: &on})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWithoutAnOpinionEveryNodeStays(t *testing.T) {
	s := extending(t)
	var kept filterResult
	if rec := send(s, "/scheduler/filter", []byte(call)); json.Unmarshal(rec.Body.Bytes(), &kept) != nil || len(*kept.NodeNames) != 2 || len(kept.FailedNodes) != 0 {
		t.Errorf("got %d %s, want both nodes", rec.Code, rec.Body)
	}
	whole := strings.Replace(call, `"Nodes":null,"NodeNames":["n1","n2"]`, `"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1","extra":1}}]},"NodeNames":null`, 1)
	if rec := send(s, "/scheduler/filter", []byte(whole)); !strings.Contains(rec.Body.String(), `"items":[{"metadata":{"name":"n1","extra":1}}]`) {
		t.Errorf("got %s, want the node as it came", rec.Body)
	}
	var scores []hostPriority
	if rec := send(s, "/scheduler/prioritize", []byte(call)); json.Unmarshal(rec.Body.Bytes(), &scores) != nil || len(scores) != 2 || scores[0].Score != 0 {
		t.Errorf("got %s, want two scores of 0", rec.Body)
	}
	if rec := send(newServer(t, DefaultConfig(), nil), "/scheduler/filter", []byte(call)); rec.Code == http.StatusOK {
		t.Errorf("the extender is not turned on, and got %d", rec.Code)
	}
}

// declared is a call that says how long it is, whatever it then sends.
func declared(path string, length int64, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.ContentLength = length
	return r
}

// TestSchedulersShareOneBoundOfMemory: what the calls in work may take together is bounded, and whoever finds it taken
// schedules as if there were no extender.
func TestSchedulersShareOneBoundOfMemory(t *testing.T) {
	s := extending(t)
	begun := func(length int64) (finish func() *httptest.ResponseRecorder) {
		body, more := io.Pipe()
		done := make(chan *httptest.ResponseRecorder, 1)
		go func() {
			rec := httptest.NewRecorder()
			s.Handler().ServeHTTP(rec, declared("/scheduler/filter", length, body))
			done <- rec
		}()
		if _, err := io.WriteString(more, call[:1]); err != nil { // returns when the call is being read
			t.Fatal(err)
		}
		return func() *httptest.ResponseRecorder {
			if _, err := io.WriteString(more, call[1:]); err != nil {
				t.Fatal(err)
			}
			more.Close()
			return <-done
		}
	}
	answer := func(path string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, declared(path, int64(len(call)), strings.NewReader(call)))
		return rec
	}
	for name, length := range map[string]int64{"one of an unknown length": -1, "the longest": maxExtender} {
		finish := begun(length)
		if rec := answer("/scheduler/filter"); rec.Code != http.StatusServiceUnavailable || rec.Header().Get("X-Advice") != "none" {
			t.Errorf("a filter beside %s: got %d %v, want no opinion", name, rec.Code, rec.Header())
		}
		if rec := answer("/scheduler/prioritize"); rec.Code != http.StatusOK || rec.Body.String() != "[]\n" || rec.Header().Get("X-Advice") != "none" {
			t.Errorf("scores beside %s: got %d %v %s, want none", name, rec.Code, rec.Header(), rec.Body)
		}
		if rec := finish(); rec.Code != http.StatusOK {
			t.Errorf("%s: got %d %s", name, rec.Code, rec.Body)
		}
		if rec := answer("/scheduler/filter"); rec.Code != http.StatusOK {
			t.Errorf("after %s: got %d %s", name, rec.Code, rec.Body)
		}
	}
	finish := begun(maxExtender / 2)
	if rec := answer("/scheduler/filter"); rec.Code != http.StatusOK {
		t.Errorf("beside one of half the memory: got %d %s", rec.Code, rec.Body)
	}
	finish()
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, declared("/scheduler/filter", maxExtender+1, nil))
	if rec.Code != http.StatusRequestEntityTooLarge || !strings.Contains(rec.Body.String(), "nodeCacheCapable") {
		t.Errorf("one that is too long: got %d %s", rec.Code, rec.Body)
	}
}

// TestSchedulersWaitForNoSlot: their calls are as many as all others' at most.
func TestSchedulersWaitForNoSlot(t *testing.T) {
	on, cfg := DefaultAdviseConfig(), DefaultConfig()
	on.Extender, cfg.MaxConcurrent = true, 1
	s, err := New(cfg, Deps{Now: time.Now, Log: slog.New(slog.DiscardHandler), Advise: &on})
	if err != nil {
		t.Fatal(err)
	}
	body, more := io.Pipe()
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/scheduler/filter", body))
		first <- rec
	}()
	if _, err := io.WriteString(more, call[:1]); err != nil { // returns when the call is being read
		t.Fatal(err)
	}
	for _, path := range []string{"/scheduler/filter", "/scheduler/prioritize"} {
		if rec := send(s, path, []byte(call)); rec.Code != http.StatusServiceUnavailable || rec.Header().Get("X-Advice") != "none" {
			t.Errorf("%s while all slots are taken: got %d %v, want no opinion", path, rec.Code, rec.Header())
		}
	}
	if rec := send(s, "/v1/advice", []byte(`{"gpus":4}`)); !strings.Contains(rec.Body.String(), "too many calls") {
		t.Errorf("the slots are not the same: got %d %s", rec.Code, rec.Body)
	}
	if rec := ask(s, "/healthz"); rec.Code != http.StatusOK {
		t.Errorf("/healthz waits for a slot: got %d", rec.Code)
	}
	if _, err := io.WriteString(more, call[1:]); err != nil {
		t.Fatal(err)
	}
	more.Close()
	if rec := <-first; rec.Code != http.StatusOK {
		t.Errorf("the first call: got %d %s", rec.Code, rec.Body)
	}
	if rec := send(s, "/scheduler/filter", []byte(call)); rec.Code != http.StatusOK {
		t.Errorf("after it: got %d %s", rec.Code, rec.Body)
	}
}

func TestAGangIsToldByItsPods(t *testing.T) {
	var args extenderArgs
	if err := json.Unmarshal([]byte(call), &args); err != nil {
		t.Fatal(err)
	}
	key, job := args.Pod.gang()
	r := args.Pod.request("c1", job, 4)
	if key != "team/u1" || r.GPUs != 64 || r.GPUsPerNode != 4 || r.Mode != "required" || r.Job != "team/train" {
		t.Errorf("got gang %s, request %+v", key, r)
	}
}

// TestAJobIsCalledAsTheCollectorCallsIt: the kubernetes collector names jobs by the same rules, in its own table of them.
func TestAJobIsCalledAsTheCollectorCallsIt(t *testing.T) {
	for metadata, want := range map[string]string{
		`"name":"p"`: "p",
		`"name":"p","labels":{"batch.kubernetes.io/job-name":"j"},"ownerReferences":[{"kind":"Job","name":"j","uid":"u","controller":true}]`: "j",
		`"name":"p","labels":{"job-name":"old"}`: "old",
		`"name":"p","labels":{"jobset.sigs.k8s.io/jobset-name":"set","batch.kubernetes.io/job-name":"set-r-0"}`:        "set",
		`"name":"p","labels":{"leaderworkerset.sigs.k8s.io/name":"llm","leaderworkerset.sigs.k8s.io/group-index":"2"}`: "llm-2",
		`"name":"p","labels":{"scheduling.x-k8s.io/pod-group":"pg"}`:                                                   "pg",
		`"name":"p","labels":{"kueue.x-k8s.io/pod-group-name":"kg"}`:                                                   "kg",
		`"name":"p","ownerReferences":[{"kind":"PyTorchJob","name":"torch","uid":"u","controller":true}]`:              "torch",
		`"name":"p","ownerReferences":[{"kind":"Lease","name":"l","uid":"u"}]`:                                         "p",
		`"name":"p","ownerReferences":[{"kind":"ReplicaSet","name":"serve-7f","uid":"u","controller":true}]`:           "p",
	} {
		var p extenderPod
		if err := json.Unmarshal([]byte(`{"metadata":{`+metadata+`}}`), &p); err != nil {
			t.Fatal(err)
		}
		if _, job := p.gang(); job != want {
			t.Errorf("%s is of %s, want %s", metadata, job, want)
		}
	}
	var p extenderPod
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"p"},"spec":{"schedulingGroup":{"podGroupName":"sg"}}}`), &p); err != nil {
		t.Fatal(err)
	}
	if _, job := p.gang(); job != "sg" {
		t.Errorf("a pod of a group is of %s", job)
	}
}

// TestAGangIsNeverTakenForAnotherSize: pods name numbers freely, and a product that overflows is some other number.
func TestAGangIsNeverTakenForAnotherSize(t *testing.T) {
	for pods, gpus := range map[string]string{"4611686018427387904": "4", "4611686018427387905": "4", "16": "1152921504606846976", "9223372036854775807": "9223372036854775807"} {
		var args extenderArgs
		text := strings.NewReplacer(`"spillway.io/gang-pods":"16"`, `"spillway.io/gang-pods":"`+pods+`"`, `"nvidia.com/gpu":"4"`, `"nvidia.com/gpu":"`+gpus+`"`).Replace(call)
		if err := json.Unmarshal([]byte(text), &args); err != nil {
			t.Fatal(err)
		}
		if r := args.Pod.request("c1", "train", 4); r.GPUs <= mostGPUs { // the advisor refuses any that is larger
			t.Errorf("%s pods of %s GPUs: got %d", pods, gpus, r.GPUs)
		}
	}
}

// TestPodsSmallerThanANodeShareNodes: a pod that takes a part of a node does not ask for all of it.
func TestPodsSmallerThanANodeShareNodes(t *testing.T) {
	for says, test := range map[string]struct {
		pods, gpus, slice          string
		most, want, per, sliceWant int
	}{
		"one pod of one GPU":                          {"1", "1", "", 4, 1, 4, 0},
		"one pod of three":                            {"1", "3", "", 4, 3, 4, 0},
		"three pods of one fill a part of a node":     {"3", "1", "", 4, 3, 4, 0},
		"four fill a node":                            {"4", "1", "", 4, 4, 4, 0},
		"nine need a third":                           {"9", "1", "", 4, 12, 4, 0},
		"slices are of whole nodes":                   {"16", "2", "8", 4, 32, 4, 4},
		"slices that are not are not asked for":       {"16", "2", "3", 4, 32, 4, 0},
		"pods of three have a node each":              {"6", "3", "2", 4, 18, 3, 2},
		"pods of a node":                              {"16", "4", "8", 4, 64, 4, 8},
		"nodes that differ, or that nobody knows of":  {"8", "1", "4", 0, 8, 1, 4},
		"pods that no node can hold are asked for so": {"2", "8", "", 4, 16, 8, 0},
	} {
		var args extenderArgs
		text := strings.NewReplacer(`"spillway.io/gang-pods":"16"`, `"spillway.io/gang-pods":"`+test.pods+`","kueue.x-k8s.io/podset-slice-size":"`+test.slice+`"`,
			`"nvidia.com/gpu":"4"`, `"nvidia.com/gpu":"`+test.gpus+`"`).Replace(call)
		if err := json.Unmarshal([]byte(text), &args); err != nil {
			t.Fatal(err)
		}
		if r := args.Pod.request("c1", "train", test.most); r.GPUs != test.want || r.GPUsPerNode != test.per || r.SegmentNodes != test.sliceWant {
			t.Errorf("%s: got %d GPUs, %d a node, slices of %d, want %d, %d and %d", says, r.GPUs, r.GPUsPerNode, r.SegmentNodes, test.want, test.per, test.sliceWant)
		}
	}
}

func TestWithoutAPictureThereIsNoAdvice(t *testing.T) {
	s := newServer(t, DefaultConfig(), nil)
	for body, want := range map[string]int{`{"gpus":64}`: http.StatusServiceUnavailable, `{"gpus":"many"}`: http.StatusUnprocessableEntity, `{`: http.StatusBadRequest} {
		req := httptest.NewRequest(http.MethodPost, "/v1/advice", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, req)
		if rec.Code != want || rec.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %s %s, want %d and a problem", body, rec.Code, rec.Header().Get("Content-Type"), rec.Body, want)
		}
		if want == http.StatusServiceUnavailable && (rec.Header().Get("X-Advice") != "none" || !strings.Contains(rec.Body.String(), `"code":"not_ready"`)) {
			t.Errorf("%s: got %v %s, want no opinion and its code", body, rec.Header(), rec.Body)
		}
	}
}

func TestEveryPrefixOfACallIsRefused(t *testing.T) {
	s := extending(t)
	for i := range len(call) {
		if rec := send(s, "/scheduler/filter", []byte(call)[:i:i]); rec.Code != http.StatusBadRequest {
			t.Errorf("%d bytes: got %d", i, rec.Code)
		}
	}
}

func FuzzExtender(f *testing.F) {
	f.Add([]byte(call))
	f.Add([]byte(`{"Pod":{"spec":{"containers":[{"resources":{"requests":{"nvidia.com/gpu":-1}}}]}},"Nodes":{"items":[7]}}`))
	s := extending(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/scheduler/filter", "/scheduler/prioritize"} {
			if rec := send(s, path, body); rec.Code != http.StatusOK && rec.Code != http.StatusBadRequest {
				t.Errorf("%s: got %d for %q", path, rec.Code, body)
			}
		}
	})
}
