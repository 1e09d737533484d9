package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
)

// server is an API server of a few objects: it lists page by page, watches with bookmarks and initial events, forgets what is
// old, and can fail in the ways that real ones do.
type server struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	version int
	objects map[string]map[string]string // by path, by namespace/name
	history []stored
	oldest  int           // changes up to this one are forgotten
	changed chan struct{} // closed at each change
	cut     chan struct{} // closed to end all watches
	asked   map[string]int
	from    []string // resource versions that watches went on from

	broken      bool              // every answer ends in its middle
	noWatchList bool              // as with etcd 3.4
	busy        map[string]int    // answers of 429 to come, by path
	refuse      map[string]string // answers of 403, by path
	absent      map[string]bool   // groups that are not served
}

type stored struct {
	version            int
	path, what, object string
}

var paths = map[kind]string{
	kindNodes: "/api/v1/nodes", kindPods: "/api/v1/pods", kindWorkloads: "/apis/kueue.x-k8s.io/v1beta2/workloads",
	kindClaims: "/apis/resource.k8s.io/v1/resourceclaims", kindSlices: "/apis/resource.k8s.io/v1/resourceslices",
	kindDomains: "/apis/resource.nvidia.com/v1beta1/computedomains", kindCliques: "/apis/resource.nvidia.com/v1beta1/computedomaincliques",
}

func newServer(t *testing.T) *server {
	s := &server{
		t: t, version: 100, objects: map[string]map[string]string{}, changed: make(chan struct{}), cut: make(chan struct{}),
		asked: map[string]int{}, busy: map[string]int{}, refuse: map[string]string{}, absent: map[string]bool{},
	}
	for _, path := range paths {
		s.objects[path] = map[string]string{}
	}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.cutWatches()
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// set does something under the lock.
func (s *server) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *server) cutWatches() {
	s.set(func() {
		close(s.cut)
		s.cut = make(chan struct{})
	})
}

func (s *server) put(k kind, text string) {
	s.set(func() {
		what := "ADDED"
		if _, there := s.objects[paths[k]][named(s.t, text)]; there {
			what = "MODIFIED"
		}
		s.store(paths[k], what, text)
	})
}

func (s *server) remove(k kind, text string) {
	s.set(func() { s.store(paths[k], "DELETED", text) })
}

func named(t *testing.T, text string) string {
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o.Metadata.Namespace + "/" + o.Metadata.Name
}

func (s *server) store(path, what, text string) {
	s.version++
	text = strings.Replace(text, `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":"%d",`, s.version), 1)
	if what == "DELETED" {
		delete(s.objects[path], named(s.t, text))
	} else {
		s.objects[path][named(s.t, text)] = text
	}
	s.history = append(s.history, stored{s.version, path, what, text})
	s.tell()
}

func (s *server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// bookmark tells all watches how far they are.
func (s *server) bookmark() {
	s.set(func() {
		s.version++
		for _, path := range paths {
			s.history = append(s.history, stored{s.version, path, "BOOKMARK", fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"}}`, s.version)})
		}
		s.tell()
	})
}

// forget makes all versions so far unknown.
func (s *server) forget() {
	s.set(func() { s.oldest, s.history = s.version, nil })
}

func (s *server) questions(part string) (n int) {
	s.set(func() {
		for q, k := range s.asked {
			if strings.Contains(q, part) {
				n += k
			}
		}
	})
	return n
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		s.t.Errorf("it was asked to %s %s", r.Method, r.URL)
	}
	if r.Header.Get("Authorization") != "Bearer secret" {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	s.mu.Lock()
	s.asked[r.URL.Path+"?"+r.URL.RawQuery]++
	broken, busy, refuse := s.broken, s.busy[r.URL.Path] > 0, s.refuse[r.URL.Path]
	if busy {
		s.busy[r.URL.Path]--
	}
	_, known := s.objects[r.URL.Path]
	s.mu.Unlock()
	switch {
	case busy:
		w.Header().Set("Retry-After", "1")
		status(w, http.StatusTooManyRequests, "TooManyRequests", "storage is (re)initializing")
	case refuse != "":
		status(w, http.StatusForbidden, "Forbidden", refuse)
	case strings.HasPrefix(r.URL.Path, "/apis") && !known:
		s.discovery(w, r)
	case !known:
		status(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, broken)
	default:
		s.list(w, r, broken)
	}
}

func (s *server) discovery(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	groups := map[string][]string{}
	resources := map[string][]string{}
	for k, path := range paths {
		parts := strings.Split(path, "/")
		if parts[1] != "apis" || s.absent[parts[2]] {
			continue
		}
		groups[parts[2]] = []string{parts[3]}
		prefix := strings.TrimSuffix(path, "/"+string(k))
		resources[prefix] = append(resources[prefix], fmt.Sprintf(`{"name":%q}`, k))
	}
	if r.URL.Path == "/apis" {
		var list []string
		for _, g := range slices.Sorted(maps.Keys(groups)) {
			list = append(list, fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":"%s/%s","version":%q}]}`, g, g, groups[g][0], groups[g][0]))
		}
		fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, strings.Join(list, ","))
		return
	}
	fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[%s]}`, strings.Join(resources[r.URL.Path], ","))
}

// abort ends an answer in its middle.
func abort(w http.ResponseWriter) {
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func (s *server) list(w http.ResponseWriter, r *http.Request, broken bool) {
	q := r.URL.Query()
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.objects[r.URL.Path]))
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	var items []string
	next := ""
	for i := from; i < len(names); i++ {
		if limit > 0 && len(items) == limit {
			next = strconv.Itoa(i)
			break
		}
		items = append(items, s.objects[r.URL.Path][names[i]])
	}
	version := s.version
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	body := fmt.Sprintf(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":%q},"items":[%s]}`, version, next, strings.Join(items, ","))
	if broken {
		fmt.Fprint(w, body[:len(body)-3])
		abort(w)
	}
	fmt.Fprint(w, body)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, broken bool) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	send := func(what, object string) {
		fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", what, object)
		http.NewResponseController(w).Flush()
	}
	s.mu.Lock()
	s.from = append(s.from, q.Get("resourceVersion"))
	version, _ := strconv.Atoi(q.Get("resourceVersion"))
	oldest, cut, noWatchList := s.oldest, s.cut, s.noWatchList
	var initial []string
	for _, name := range slices.Sorted(maps.Keys(s.objects[r.URL.Path])) {
		initial = append(initial, s.objects[r.URL.Path][name])
	}
	now := s.version
	s.mu.Unlock()
	switch {
	case q.Get("sendInitialEvents") == "true" && noWatchList:
		send("ERROR", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled","reason":"InternalError","code":500}`)
		return
	case q.Get("sendInitialEvents") == "true":
		for _, o := range initial {
			send("ADDED", o)
		}
		if broken {
			fmt.Fprint(w, `{"type":"BOOKMARK","object":{"meta`)
			abort(w)
		}
		send("BOOKMARK", fmt.Sprintf(`{"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}`, now))
		version = now
	case version < oldest:
		send("ERROR", fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: %d (%d)","reason":"Expired","code":410}`, version, oldest))
		return
	}
	if broken {
		fmt.Fprint(w, `{"type":"MODIFIED","object":{"metadata":{"name`)
		abort(w)
	}
	http.NewResponseController(w).Flush()
	for {
		s.mu.Lock()
		changed := s.changed
		var news []stored
		for _, e := range s.history {
			if e.path == r.URL.Path && e.version > version {
				news = append(news, e)
				version = e.version
			}
		}
		s.mu.Unlock()
		for _, e := range news {
			send(e.what, e.object)
		}
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// collectorOf is a collector on the server that does not wait for long.
func collectorOf(t *testing.T, s *server, change func(*Config)) *Collector {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig()
	cfg.API, cfg.TokenFile = s.URL, token
	cfg.Interval, cfg.Gather = 20*time.Millisecond, time.Millisecond
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	c.retry, c.steady = 10*time.Millisecond, 60*time.Millisecond
	return c
}

// start runs a collector until the test ends.
func start(t *testing.T, c *Collector, out collect.Emitter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, out) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
