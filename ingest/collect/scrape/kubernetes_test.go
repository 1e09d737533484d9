package scrape

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

// apiServer speaks as much of the Kubernetes API as discovery needs: lists in pages and watches, over TLS, with a token.
type apiServer struct {
	path string // of the list

	mu       sync.Mutex
	changed  chan struct{} // closed at the next change
	token    string
	version  int
	objects  map[string]string // by name, without their version
	versions map[string]int
	events   []apiEvent
	oldest   int  // versions below are forgotten
	softGone bool // say so as an event of the watch, not as the answer's status
	cut      bool // end watches now
	abort    bool // cut the connections of watches now, as a proxy does
	refuse   int  // HTTP status of every answer
	noWatch  bool // refuse watches alone
	listed   []time.Time
	pages    int  // how many pages were asked for beyond the first of a list
	expire   bool // the next page of a list is forgotten
	lists    int
	told     int      // the newest version that a watch was sent
	tokens   []string // of all questions
	queries  []string
}

type apiEvent struct {
	version      int
	kind, object string
}

func (a *apiServer) do(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

// put adds or changes an object, whose text has %s for the metadata that every object has.
func (a *apiServer) put(name, object string) {
	a.do(func() {
		a.version++
		kind := "ADDED"
		if _, ok := a.objects[name]; ok {
			kind = "MODIFIED"
		}
		a.objects[name], a.versions[name] = object, a.version
		a.events = append(a.events, apiEvent{a.version, kind, a.text(name, object, a.version)})
	})
}

func (a *apiServer) remove(name string) {
	a.do(func() {
		a.version++
		a.events = append(a.events, apiEvent{a.version, "DELETED", a.text(name, a.objects[name], a.version)})
		delete(a.objects, name)
	})
}

func (*apiServer) text(name, object string, version int) string {
	return fmt.Sprintf(object, fmt.Sprintf(`"namespace":"gpus","name":%q,"resourceVersion":"%d"`, name, version))
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = append(a.tokens, r.Header.Get("Authorization"))
	query := r.URL.Query()
	a.queries = append(a.queries, r.URL.RawQuery)
	status := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s","code":%d}`, reason, code)
	}
	switch {
	case a.refuse != 0:
		status(a.refuse, "refused")
	case r.Header.Get("Authorization") != "Bearer "+a.token:
		status(401, "Unauthorized")
	case r.URL.Path != a.path || query.Get("labelSelector") != "app=exporter":
		status(404, "the server could not find the requested resource")
	case query.Get("watch") != "" && a.noWatch:
		status(403, "forbidden")
	case query.Get("watch") != "":
		a.watch(w, r, query.Get("resourceVersion"))
	default:
		a.list(w, query.Get("continue"), status)
	}
}

// list answers with pages of two.
func (a *apiServer) list(w http.ResponseWriter, from string, status func(int, string)) {
	names := slices.Sorted(maps.Keys(a.objects))
	if from == "" {
		a.lists++
		a.listed = append(a.listed, time.Now())
	} else {
		a.pages++
		if a.expire {
			a.expire = false
			status(410, "The provided continue parameter is too old")
			return
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n <= from })
	}
	more := ""
	if len(names) > 2 {
		names = names[:2]
		more = names[1]
	}
	items := []json.RawMessage{}
	for _, n := range names {
		items = append(items, json.RawMessage(a.text(n, a.objects[n], a.versions[n])))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "List", "metadata": map[string]string{"resourceVersion": strconv.Itoa(a.version), "continue": more}, "items": items,
	})
}

func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, from string) {
	at, err := strconv.Atoi(from)
	if err != nil {
		w.WriteHeader(400)
		return
	}
	gone := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}`
	if at < a.oldest && !a.softGone {
		w.WriteHeader(410)
		fmt.Fprintln(w, gone)
		return
	}
	w.(http.Flusher).Flush()
	for {
		if at < a.oldest {
			fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", gone)
			return
		}
		for _, e := range a.events {
			if e.version > at {
				fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", e.kind, e.object)
				at = e.version
				a.told = at
			}
		}
		w.(http.Flusher).Flush()
		if a.abort {
			panic(http.ErrAbortHandler)
		}
		if a.cut {
			return
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		a.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}

// bookmark tells watchers a version without a change.
func (a *apiServer) bookmark() {
	a.do(func() {
		a.version += 100
		a.events = append(a.events, apiEvent{a.version, "BOOKMARK", fmt.Sprintf(`{"kind":"Pod","metadata":{"resourceVersion":"%d"}}`, a.version)})
	})
}

func pod(node, ip, phase, more string) string {
	return `{"metadata":{%s` + more + `},"spec":{"nodeName":"` + node + `","containers":[{"ports":[{"name":"other","containerPort":1}]},` +
		`{"ports":[{"name":"metrics","containerPort":9400}]}]},"status":{"phase":"` + phase + `","podIP":"` + ip + `"}}`
}

// kubernetes starts an API server and what follows it, and gives a function that waits for a list of targets.
func kubernetes(t *testing.T, path string, change func(*Kubernetes)) (a *apiServer, token, ca string, want func(string), w *kubeWatch) {
	t.Helper()
	a = &apiServer{path: path, changed: make(chan struct{}), token: "one", objects: map[string]string{}, versions: map[string]int{}, version: 7}
	s := httptest.NewTLSServer(a)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	dir := t.TempDir()
	ca, token = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	write(t, token, "one\n")
	cfg := fast()
	k := Kubernetes{API: s.URL, TokenFile: token, CAFile: ca, Namespace: "gpus", Selector: "app=exporter", Port: "metrics"}
	if change != nil {
		change(&k)
	}
	cfg.Kubernetes = []Kubernetes{k}
	if err := validate(cfg); err != nil {
		t.Fatal(err)
	}
	w = newKubeWatch(&cfg, k, slog.New(slog.DiscardHandler), make(chan struct{}, 1))
	d := &discovery{cfg: &cfg, known: map[string][]Group{}, watches: []*kubeWatch{w}}
	want = func(hosts string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			targets, err := d.find(t.Context())
			var list []string
			for _, target := range targets {
				list = append(list, strings.TrimSuffix(strings.TrimPrefix(target.URL, "http://"), "/metrics")+"="+target.Node)
			}
			if got = strings.Join(list, " "); err != nil {
				got += " error: " + err.Error()
			}
			if got == hosts || strings.HasSuffix(hosts, "...") && strings.HasPrefix(got, strings.TrimSuffix(hosts, "...")) {
				return
			}
		}
		t.Fatalf("targets are\n%s\nwant\n%s", got, hosts)
	}
	return a, token, ca, want, w
}

func follow(t *testing.T, w *kubeWatch) {
	t.Helper()
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { defer close(ended); w.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

func TestPods(t *testing.T) {
	a, token, _, want, w := kubernetes(t, "/api/v1/namespaces/gpus/pods", nil)
	a.put("a", pod("n1", "10.0.0.1", "Running", ""))
	a.put("b", pod("n2", "", "Pending", ""))
	a.put("c", pod("n3", "10.0.0.3", "Failed", ""))
	a.put("d", pod("n4", "fd00::4", "Running", ""))
	a.put("e", pod("n5", "10.0.0.5", "Running", `,"deletionTimestamp":"2026-11-03T12:00:00Z"`))
	follow(t, w)
	want("10.0.0.1:9400=n1 [fd00::4]:9400=n4") // of three pages; a pod without an address, one that failed and one that ends are none

	a.put("b", pod("n2", "10.0.0.2", "Running", ""))
	want("10.0.0.1:9400=n1 10.0.0.2:9400=n2 [fd00::4]:9400=n4")
	a.put("a", pod("n1", "10.0.0.1", "Running", `,"deletionTimestamp":"2026-11-03T12:00:00Z"`))
	want("10.0.0.2:9400=n2 [fd00::4]:9400=n4")
	a.remove("d")
	want("10.0.0.2:9400=n2")
	a.put("odd", strings.Replace(pod("n9", "10.0.0.9", "Running", ""), `"metrics"`, `"web"`, 1)) // has no such port
	a.put("f", pod("n6", "10.0.0.6", "Running", ""))
	want("10.0.0.2:9400=n2 10.0.0.6:9400=n6")

	// A bookmark moves the version on: after the watch ends, it goes on from there, and nothing is listed again.
	a.bookmark()
	for a.count(func() int { return a.version - a.told }) > 0 {
		runtime.Gosched()
	}
	lists := a.count(func() int { return a.lists })
	a.do(func() { a.cut, a.oldest = true, a.version })
	a.do(func() { a.cut = false })
	a.put("g", pod("n7", "10.0.0.7", "Running", ""))
	want("10.0.0.2:9400=n2 10.0.0.6:9400=n6 10.0.0.7:9400=n7")
	if n := a.count(func() int { return a.lists }); n != lists {
		t.Errorf("%d lists after a bookmark, %d before", n, lists)
	}

	// What happened while nobody watched is found once all is listed anew, whichever way the server says that it forgot.
	for i, soft := range []bool{false, true} {
		a.do(func() { // forgets everything up to now, with a change that no watch will tell
			a.softGone, a.cut = soft, true
			a.version += 10
			delete(a.objects, "g")
			a.objects["h"], a.versions["h"] = pod("n8", "10.0.0.8"+strconv.Itoa(i), "Running", ""), a.version
			a.oldest, a.events = a.version, nil
		})
		a.do(func() { a.cut = false })
		want("10.0.0.2:9400=n2 10.0.0.6:9400=n6 10.0.0.8" + strconv.Itoa(i) + ":9400=n8")
	}

	// The token is renewed: the old one stops being taken at the next question.
	a.do(func() { a.token, a.cut = "two", true })
	want("10.0.0.2:9400=n2 10.0.0.6:9400=n6 10.0.0.81:9400=n8 error: ask ...")
	a.do(func() { a.cut = false })
	write(t, token, "two\n")
	want("10.0.0.2:9400=n2 10.0.0.6:9400=n6 10.0.0.81:9400=n8")

	// A server that cannot be asked takes nothing away.
	a.do(func() { a.refuse, a.cut = 503, true })
	want("10.0.0.2:9400=n2 10.0.0.6:9400=n6 10.0.0.81:9400=n8 error: ask ...")
	a.do(func() { a.refuse, a.cut = 0, false })
	a.remove("h")
	want("10.0.0.2:9400=n2 10.0.0.6:9400=n6")
}

func (a *apiServer) count(of func() int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return of()
}

func TestAPageThatIsForgotten(t *testing.T) {
	a, _, _, want, w := kubernetes(t, "/api/v1/namespaces/gpus/pods", nil)
	for i := range 5 {
		a.put(fmt.Sprint("p", i), pod(fmt.Sprint("n", i), fmt.Sprint("10.0.0.", i+1), "Running", ""))
	}
	a.do(func() { a.expire = true })
	follow(t, w)
	want("10.0.0.1:9400=n0 10.0.0.2:9400=n1 10.0.0.3:9400=n2 10.0.0.4:9400=n3 10.0.0.5:9400=n4")
	if lists := a.count(func() int { return a.lists }); lists != 2 {
		t.Errorf("%d lists, want 2", lists)
	}
}

// TestListWithoutWatch: a service account that may list and not watch does not list all over again at the same short wait.
func TestListWithoutWatch(t *testing.T) {
	a, _, _, want, w := kubernetes(t, "/api/v1/namespaces/gpus/pods", nil)
	a.put("a", pod("n1", "10.0.0.1", "Running", ""))
	a.do(func() { a.noWatch = true })
	follow(t, w)
	want("10.0.0.1:9400=n1 error: ask ...")
	for a.count(func() int { return a.lists }) < 5 {
		if _, err := w.groups(); err == nil || !strings.Contains(err.Error(), "list and watch") {
			t.Fatalf("while no watch is granted the error is %v", err)
		}
		runtime.Gosched()
	}
	retry := w.cfg.Rediscover
	if took := a.listed[4].Sub(a.listed[0]); took < (1+2+4+8)*retry {
		t.Errorf("five lists in %v, with a wait of %v that doubles", took, retry)
	}
	a.do(func() { a.noWatch = false })
	want("10.0.0.1:9400=n1")
}

// TestAWatchThatIsCut goes on from where it was: nothing is listed again, and nothing is wrong.
func TestAWatchThatIsCut(t *testing.T) {
	a, _, _, want, w := kubernetes(t, "/api/v1/namespaces/gpus/pods", nil)
	a.put("a", pod("n1", "10.0.0.1", "Running", ""))
	follow(t, w)
	want("10.0.0.1:9400=n1")
	for i := range 3 {
		questions := len(a.asked())
		a.do(func() { a.abort = true })
		for len(a.asked()) < questions+2 {
			if _, err := w.groups(); err != nil {
				t.Fatal(err)
			}
			runtime.Gosched()
		}
		a.do(func() { a.abort = false })
		a.put("a", pod("n1", fmt.Sprint("10.0.1.", i), "Running", ""))
		want(fmt.Sprintf("10.0.1.%d:9400=n1", i))
	}
	if lists := a.count(func() int { return a.lists }); lists != 1 {
		t.Errorf("%d lists, want 1", lists)
	}
}

func (a *apiServer) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.queries)
}

// TestNoNews: a change that leaves the targets as they are does not make all files and names be read again.
func TestNoNews(t *testing.T) {
	a, _, _, want, w := kubernetes(t, "/api/v1/namespaces/gpus/pods", nil)
	news := make(chan struct{}, 1)
	w.changed = news
	a.put("a", pod("n1", "10.0.0.1", "Running", ""))
	follow(t, w)
	want("10.0.0.1:9400=n1")
	<-news
	a.put("a", pod("n1", "10.0.0.1", "Running", `,"annotations":{"seen":"now"}`))
	a.put("b", pod("n2", "", "Pending", ""))
	a.remove("b")
	// The next watch goes on from the newest version only once all of that was taken.
	newest := fmt.Sprint("resourceVersion=", a.count(func() int { return a.version }), "&")
	a.do(func() { a.cut = true })
	for !slices.ContainsFunc(a.asked(), func(q string) bool { return strings.Contains(q, newest) }) {
		runtime.Gosched()
	}
	select {
	case <-news:
		t.Error("told of a change that is none")
	default:
	}
	a.do(func() { a.cut = false })
	a.put("a", pod("n1", "10.0.0.2", "Running", ""))
	<-news
}

func TestAPortThatIsMissingIsWarnedOfOnce(t *testing.T) {
	var log strings.Builder
	cfg := testConfig()
	w := newKubeWatch(&cfg, Kubernetes{Port: "metrics"}, slog.New(slog.NewTextHandler(&log, nil)), make(chan struct{}, 1))
	for range 3 {
		for _, name := range []string{"web-1", "web-2"} {
			var o kubeObject
			text := fmt.Sprintf(strings.Replace(pod("n1", "10.0.0.1", "Running", ""), `"metrics"`, `"web"`, 1), `"namespace":"gpus","name":"`+name+`"`)
			if err := json.Unmarshal([]byte(text), &o); err != nil || len(w.targets(&o)) > 0 {
				t.Fatal(err)
			}
		}
	}
	if got := log.String(); strings.Count(got, "name=gpus/web-1") != 1 || strings.Count(got, "name=gpus/web-2") != 1 || strings.Count(got, "\n") != 2 {
		t.Errorf("%s", got)
	}
}

func TestEndpointSlices(t *testing.T) {
	a, _, _, want, w := kubernetes(t, "/apis/discovery.k8s.io/v1/namespaces/gpus/endpointslices", func(k *Kubernetes) { k.Role = "endpointslices" })
	slice := func(endpoints string) string {
		return `{"metadata":{%s},"addressType":"IPv4","endpoints":` + endpoints + `,"ports":[{"name":"web","port":80},{"name":"metrics","port":9401}]}`
	}
	a.put("a", slice(`[{"addresses":["10.0.0.1"],"nodeName":"n1","conditions":{"ready":true,"serving":true,"terminating":false}},
		{"addresses":["10.0.0.2"],"nodeName":"n2","conditions":{"ready":false,"serving":true,"terminating":true}},
		{"addresses":["10.0.0.3"],"nodeName":"n3","conditions":{"ready":false}},{"addresses":["10.0.0.4"],"conditions":{}}]`))
	a.put("b", slice("null"))
	follow(t, w)
	want("10.0.0.1:9401=n1 10.0.0.3:9401=n3 10.0.0.4:9401=")
	a.put("b", slice(`[{"addresses":["10.0.0.5","10.0.0.6"],"nodeName":"n5","conditions":{"ready":true}},{"addresses":["10.0.0.1"],"nodeName":"n1"}]`))
	want("10.0.0.1:9401=n1 10.0.0.3:9401=n3 10.0.0.4:9401= 10.0.0.5:9401=n5") // one endpoint in two slices is one target
	a.remove("a")
	want("10.0.0.5:9401=n5 10.0.0.1:9401=n1")
}

// TestKubernetesEndToEnd: pods that an API server names are scraped, and told apart by their nodes.
func TestKubernetesEndToEnd(t *testing.T) {
	host, port, _ := strings.Cut(serve(t, text("from_pod 1\n")), ":")
	a, _, _, _, w := kubernetes(t, "/api/v1/namespaces/gpus/pods", func(k *Kubernetes) { k.Port = port })
	cfg := *w.cfg
	out := &collecttest.Sink{}
	a.do(func() { a.refuse = 403 })
	start(t, cfg, out, nil)
	out.Wait(t, "a report of what is missing", func(r []event.Record) bool {
		p, _ := problem(r)
		return strings.Contains(p, "needs the verbs list and watch on pods")
	})
	a.do(func() { a.refuse = 0 })
	a.put("a", pod("n1", host, "Running", ""))
	out.Wait(t, "what the pod tells", named("from_pod"))
}

func TestKubernetesConfiguration(t *testing.T) {
	for key, k := range map[string]Kubernetes{
		"kubernetes[0].api":      {API: "10.0.0.1:6443", Selector: "a=b"},
		"kubernetes[0].role":     {Role: "services", Selector: "a=b"},
		"kubernetes[0].selector": {},
	} {
		cfg := testConfig()
		cfg.Kubernetes = []Kubernetes{k}
		if err := validate(cfg); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error %v", key, err)
		}
	}
	_, _, ca, want, w := kubernetes(t, "/", nil)
	write(t, ca, "no certificate")
	follow(t, w)
	want(" error: ask ...")
	if _, err := w.groups(); !strings.Contains(err.Error(), "no certificate in PEM form") {
		t.Errorf("error %v", err)
	}
}

func FuzzKubernetesObject(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(pod("n1", "10.0.0.1", "Running", ""), `"name":"a"`)), false)
	f.Add([]byte(`{"metadata":{},"endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"metrics","port":1}]}`), true)
	cfg := testConfig()
	f.Fuzz(func(t *testing.T, text []byte, slices bool) {
		var o kubeObject
		if json.Unmarshal(text, &o) != nil {
			return
		}
		k := Kubernetes{Port: "metrics"}
		if slices {
			k.Role = roleSlices
		}
		w := newKubeWatch(&cfg, k, slog.New(slog.DiscardHandler), make(chan struct{}, 1))
		for _, g := range w.targets(&o) {
			if len(g.Targets) != 1 {
				t.Errorf("%v", g)
			}
		}
	})
}
