package scrape

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Kubernetes finds exporters by asking a Kubernetes API server: which pods there are is listed once and then watched.
type Kubernetes struct {
	// API is the server; empty: that of the cluster this process runs in.
	API string `yaml:"api"`
	// TokenFile and CAFile are for the API server, and read again whenever it is asked; empty: what a pod is given.
	TokenFile string `yaml:"token_file"`
	CAFile    string `yaml:"ca_file"`
	// Role is what is watched: pods, which is what it is empty, or endpointslices.
	Role string `yaml:"role"`
	// Namespace is where; empty: everywhere, which needs a ClusterRole.
	Namespace string `yaml:"namespace"`
	// Selector picks by labels: app.kubernetes.io/name=dcgm-exporter, or kubernetes.io/service-name=dcgm-exporter.
	Selector string `yaml:"selector"`
	// Port is the name of the port, or its number; empty: the port of all targets that have none.
	Port string `yaml:"port"`
}

const (
	inPod        = "/var/run/secrets/kubernetes.io/serviceaccount/"
	rolePods     = "pods"
	roleSlices   = "endpointslices"
	listPage     = 500
	watchFor     = 5 * time.Minute
	watchPause   = 100 * time.Millisecond // between the first news and the new list: pods come and go together
	kubeRetryMax = 30 * time.Second
	maxListBytes = 64 << 20 // of one page of a list
)

func (k *Kubernetes) withDefaults() Kubernetes {
	out := *k
	for _, d := range []struct {
		field *string
		value string
	}{{&out.API, "https://kubernetes.default.svc"}, {&out.TokenFile, inPod + "token"}, {&out.CAFile, inPod + "ca.crt"}, {&out.Role, rolePods}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	return out
}

func (k *Kubernetes) validate(at string, fail func(key, format string, args ...any)) {
	c := k.withDefaults()
	if u, err := url.Parse(c.API); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		fail(at+".api", "%q is no address of an API server; write for example https://10.96.0.1", k.API)
	}
	if c.Role != rolePods && c.Role != roleSlices {
		fail(at+".role", "%q is not known; write pods or endpointslices", k.Role)
	}
	if k.Selector == "" {
		fail(at+".selector", "there is none, and then every pod would be asked; write for example app.kubernetes.io/name=dcgm-exporter")
	}
}

// kubeWatch is what one API server says now. It keeps the last good state while the server cannot be asked.
type kubeWatch struct {
	cfg     *Config
	k       Kubernetes
	log     *slog.Logger
	changed chan<- struct{} // takes one without a reader
	warned  map[string]bool // objects without the port, by namespace/name; used by the goroutine that watches alone

	mu      sync.Mutex
	objects map[string][]Group // by namespace/name
	err     error
	tried   chan struct{} // closed once the server was asked for the first time
	once    sync.Once
}

func newKubeWatch(cfg *Config, k Kubernetes, log *slog.Logger, changed chan<- struct{}) *kubeWatch {
	return &kubeWatch{
		cfg: cfg, k: k.withDefaults(), log: log, changed: changed,
		objects: map[string][]Group{}, warned: map[string]bool{}, tried: make(chan struct{}),
	}
}

// groups is what is known, and what is wrong with it.
func (w *kubeWatch) groups() ([]Group, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Group
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		out = append(out, w.objects[name]...)
	}
	return out, w.err
}

// update changes what is known, and tells so if change says that the targets, or what is wrong, are others than before.
func (w *kubeWatch) update(change func() bool) {
	w.mu.Lock()
	news := change()
	w.mu.Unlock()
	w.once.Do(func() { close(w.tried) })
	if !news {
		return
	}
	select {
	case w.changed <- struct{}{}:
	default: // news are waiting already
	}
}

// put replaces the targets of one object; none: it has none, or is gone.
func (w *kubeWatch) put(name string, targets []Group) {
	w.update(func() bool {
		before := w.objects[name]
		if len(targets) == 0 {
			delete(w.objects, name)
		} else {
			w.objects[name] = targets
		}
		return !slices.EqualFunc(before, targets, equalGroups)
	})
}

func equalGroups(a, b Group) bool {
	return slices.Equal(a.Targets, b.Targets) && maps.Equal(a.Labels, b.Labels)
}

// errExpired says that the server no longer knows the state that a list or a watch goes on from.
var errExpired = errors.New("the server no longer knows what was listed")

// run lists and watches until ctx ends.
func (w *kubeWatch) run(ctx context.Context) {
	retry := min(time.Second, w.cfg.Rediscover)
	wait := retry
	for ctx.Err() == nil {
		err := w.follow(ctx, func() { wait = retry })
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, errExpired) { // else nothing is wrong: all is listed again, after the same wait
			err = fmt.Errorf("ask %s for %s: %w", w.k.API, w.k.Role, err)
			w.update(func() bool {
				news := w.err == nil || w.err.Error() != err.Error()
				w.err = err
				return news
			})
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, kubeRetryMax)
	}
}

// follow lists all objects and then watches them until something is wrong. good is called whenever a watch has lived, which
// is when it told something or came to its end: who may list and not watch is not to list all over again every second.
func (w *kubeWatch) follow(ctx context.Context, good func()) error {
	client, err := w.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	objects, version, err := w.list(ctx, client)
	if err != nil {
		return err
	}
	maps.DeleteFunc(w.warned, func(name string, _ bool) bool { _, listed := objects[name]; return !listed })
	w.update(func() bool {
		before := w.objects
		w.objects = objects
		maps.DeleteFunc(objects, func(_ string, targets []Group) bool { return len(targets) == 0 })
		return !maps.EqualFunc(before, objects, func(a, b []Group) bool { return slices.EqualFunc(a, b, equalGroups) })
	})
	for {
		began := time.Now()
		if version, err = w.watch(ctx, client, version, good); err != nil {
			return err
		}
		// A server ends a watch after minutes. One that does so at once is not asked again at once.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(time.Second, w.cfg.Rediscover) - time.Since(began)):
		}
	}
}

// client is made anew for every list: the certificates may have changed.
func (w *kubeWatch) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if strings.HasPrefix(w.k.API, "https:") {
		var err error
		if config.RootCAs, err = readCAs(w.k.CAFile); err != nil {
			return nil, err
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, TLSHandshakeTimeout: w.cfg.Timeout, ResponseHeaderTimeout: w.cfg.Timeout,
			DialContext: (&net.Dialer{Timeout: w.cfg.Timeout}).DialContext,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// get asks the server. The token is read for every question: it is renewed every hour or so.
func (w *kubeWatch) get(ctx context.Context, client *http.Client, query url.Values) (*http.Response, error) {
	path := "/api/v1"
	if w.k.Role == roleSlices {
		path = "/apis/discovery.k8s.io/v1"
	}
	if w.k.Namespace != "" {
		path += "/namespaces/" + url.PathEscape(w.k.Namespace)
	}
	query.Set("labelSelector", w.k.Selector)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(w.k.API, "/")+path+"/"+w.k.Role+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(w.k.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
	if resp.StatusCode == http.StatusGone {
		return nil, errExpired
	}
	hint := ""
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		hint = "; the token is not taken: is token_file that of a service account of this cluster?"
	case http.StatusForbidden:
		hint = "; the service account needs the verbs list and watch on " + w.k.Role
	}
	return nil, fmt.Errorf("%s: %.300q%s", resp.Status, text, hint)
}

// list reads all pages of one state of the objects.
func (w *kubeWatch) list(ctx context.Context, client *http.Client) (objects map[string][]Group, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(time.Minute, w.cfg.Timeout))
	defer cancel()
	objects = map[string][]Group{}
	query := url.Values{"limit": {strconv.Itoa(listPage)}}
	for {
		resp, err := w.get(ctx, client, query)
		if err != nil {
			return nil, "", err
		}
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []kubeObject `json:"items"`
		}
		body := &io.LimitedReader{R: resp.Body, N: maxListBytes}
		err = json.NewDecoder(body).Decode(&page)
		resp.Body.Close()
		switch {
		case err != nil && body.N <= 0:
			return nil, "", fmt.Errorf("read the list: it has more than %d bytes; narrow the selector", maxListBytes)
		case err != nil:
			return nil, "", fmt.Errorf("read the list: %w", err)
		case page.Metadata.ResourceVersion == "":
			return nil, "", errors.New("read the list: it has no resourceVersion: is that a Kubernetes API server?")
		}
		for i := range page.Items {
			o := &page.Items[i]
			objects[o.name()] = w.targets(o)
		}
		if page.Metadata.Continue == "" {
			return objects, page.Metadata.ResourceVersion, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// watch follows the changes from a version on, until the server or a proxy between ends the watch, and returns the version
// it came to.
func (w *kubeWatch) watch(ctx context.Context, client *http.Client, version string, good func()) (string, error) {
	// A connection that died without a word is given up a little after the server should have ended the watch.
	ctx, cancel := context.WithTimeout(ctx, watchFor+30*time.Second)
	defer cancel()
	resp, err := w.get(ctx, client, url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {version},
		"timeoutSeconds": {strconv.Itoa(int(watchFor.Seconds()))},
	})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	w.update(func() bool { // it may be listed and watched
		news := w.err != nil
		w.err = nil
		return news
	})
	events := json.NewDecoder(resp.Body)
	for {
		var e struct {
			Type   string     `json:"type"`
			Object kubeObject `json:"object"`
		}
		if err := events.Decode(&e); err != nil {
			// A proxy that ends idle connections cuts the answer short; nothing is lost, as the next watch goes on from here.
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
				good()
				return version, nil
			}
			return "", fmt.Errorf("read the watch: %w", err)
		}
		switch e.Type {
		case "ADDED", "MODIFIED":
			w.put(e.Object.name(), w.targets(&e.Object))
		case "DELETED":
			delete(w.warned, e.Object.name())
			w.put(e.Object.name(), nil)
		case "BOOKMARK":
		case "ERROR":
			if e.Object.Code == http.StatusGone {
				return "", errExpired
			}
			return "", fmt.Errorf("watch: %d %s", e.Object.Code, e.Object.Message)
		default:
			return "", fmt.Errorf("watch: an event of the type %q, which is none", e.Type)
		}
		if e.Object.Metadata.ResourceVersion == "" {
			return "", errors.New("watch: an event without a resourceVersion")
		}
		version = e.Object.Metadata.ResourceVersion
		good()
	}
}

// kubeObject is a Pod, an EndpointSlice, or a Status where something is wrong.
type kubeObject struct {
	Metadata struct {
		Namespace         string  `json:"namespace"`
		Name              string  `json:"name"`
		ResourceVersion   string  `json:"resourceVersion"`
		DeletionTimestamp *string `json:"deletionTimestamp"`
	} `json:"metadata"`

	Spec struct {
		NodeName   string `json:"nodeName"`
		Containers []struct {
			Ports []kubePort `json:"ports"`
		} `json:"containers"`
	} `json:"spec"`
	// Of a Status it is a text, which is not looked at.
	Status json.RawMessage `json:"status"`

	AddressType string `json:"addressType"`
	Endpoints   []struct {
		Addresses  []string `json:"addresses"`
		NodeName   string   `json:"nodeName"`
		Conditions struct {
			Terminating bool `json:"terminating"`
		} `json:"conditions"`
	} `json:"endpoints"`
	Ports []kubePort `json:"ports"`

	Code    int    `json:"code"`
	Message string `json:"message"`
}

type kubePort struct {
	Name          string `json:"name"`
	ContainerPort int    `json:"containerPort"` // of a pod
	Port          int    `json:"port"`          // of a slice
}

func (o *kubeObject) name() string { return o.Metadata.Namespace + "/" + o.Metadata.Name }

// targets are the exporters of one object: of pods that run and are not about to end. A pod that is not ready is asked all
// the same, as its failing says more than its absence.
func (w *kubeWatch) targets(o *kubeObject) []Group {
	if w.k.Role == roleSlices {
		port, ok := w.port(o, o.Ports)
		if !ok {
			return nil
		}
		var out []Group
		for _, e := range o.Endpoints {
			if !e.Conditions.Terminating && len(e.Addresses) > 0 { // all addresses of an endpoint are the same exporter
				out = append(out, groupOf(e.Addresses[0], port, e.NodeName))
			}
		}
		return out
	}
	var status struct {
		Phase string `json:"phase"`
		PodIP string `json:"podIP"`
	}
	if json.Unmarshal(o.Status, &status) != nil || status.PodIP == "" || status.Phase != "Running" || o.Metadata.DeletionTimestamp != nil {
		return nil
	}
	var ports []kubePort
	for _, c := range o.Spec.Containers {
		ports = append(ports, c.Ports...)
	}
	port, ok := w.port(o, ports)
	if !ok {
		return nil
	}
	return []Group{groupOf(status.PodIP, port, o.Spec.NodeName)}
}

func groupOf(address string, port int, node string) Group {
	g := Group{Targets: []string{net.JoinHostPort(address, strconv.Itoa(port))}}
	if node != "" {
		g.Labels = map[string]string{"node": node}
	}
	return g
}

// port finds the port that is asked, by number or by the name it has among those of the object. An object without it is
// warned of once.
func (w *kubeWatch) port(o *kubeObject, ports []kubePort) (int, bool) {
	if w.k.Port == "" {
		return w.cfg.Port, true
	}
	if n, err := strconv.Atoi(w.k.Port); err == nil {
		return n, true
	}
	for _, p := range ports {
		if n := max(p.ContainerPort, p.Port); p.Name == w.k.Port && n > 0 {
			delete(w.warned, o.name())
			return n, true
		}
	}
	if !w.warned[o.name()] {
		w.warned[o.name()] = true
		w.log.Warn("an object has no port of the name that is asked", "role", w.k.Role, "name", o.name(), "port", w.k.Port)
	}
	return 0, false
}
