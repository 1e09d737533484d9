package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// client asks an API server. What it is asked is a list or a watch, and never anything else.
type client struct {
	rest *rest.RESTClient
	api  string
}

// close ends the connections that are kept for the next question.
func (c *client) close() { utilnet.CloseIdleConnectionsFor(c.rest.Client.Transport) }

const (
	inCluster = "https://kubernetes.default.svc"
	inPod     = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

func newClient(cfg *Config) (*client, error) {
	api := cmp.Or(cfg.API, inCluster)
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	config := &rest.Config{
		Host: strings.TrimSuffix(api, "/"), BearerTokenFile: cmp.Or(cfg.TokenFile, inPod+"token"), UserAgent: "spillway",
		QPS:            -1, // the server's own limits are those that count
		WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			GroupVersion: &v1, NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(), AcceptContentTypes: "application/json",
		},
	}
	if strings.HasPrefix(api, "https:") {
		config.CAFile = cmp.Or(cfg.CAFile, inPod+"ca.crt")
	}
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("prepare to ask %s: %w; check token_file and ca_file", api, err)
	}
	return &client{c, api}, nil
}

// get asks for a path and gives the answer's body. Errors of the server are those of apierrors.
func (c *client) get(ctx context.Context, path string, opts *metav1.ListOptions) (io.ReadCloser, error) {
	r := c.rest.Get().AbsPath(path).MaxRetries(0)
	if opts != nil {
		r = r.SpecificallyVersionedParams(opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	}
	return r.Stream(ctx)
}

// served is a kind that the server has, and where.
type served struct {
	kind     kind
	path     string
	selector string // of fields
}

// apiOf says where a kind may be, the best version first; the core group has no name.
type apiOf struct {
	kind     kind
	group    string
	versions []string
	selector string
}

// wanted are the kinds to read besides nodes and pods.
func (c *Config) wanted() (out []apiOf) {
	if c.Kueue {
		out = append(out, apiOf{kind: kindWorkloads, group: "kueue.x-k8s.io", versions: []string{"v1beta2", "v1beta1"}})
	}
	if c.DRA {
		versions := []string{"v1", "v1beta2", "v1beta1"}
		out = append(out, apiOf{kind: kindClaims, group: "resource.k8s.io", versions: versions},
			apiOf{kind: kindSlices, group: "resource.k8s.io", versions: versions, selector: "spec.driver=" + gpuDriver})
	}
	if c.ComputeDomains {
		out = append(out, apiOf{kind: kindDomains, group: "resource.nvidia.com", versions: []string{"v1beta1"}},
			apiOf{kind: kindCliques, group: "resource.nvidia.com", versions: []string{"v1beta1"}})
	}
	return out
}

// discover finds which of the wanted kinds the server has, nodes and pods first.
func (c *client) discover(ctx context.Context, wanted []apiOf) ([]served, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var groups metav1.APIGroupList
	if err := c.ask(ctx, "/apis", &groups); err != nil {
		return nil, err
	}
	out := []served{{kind: kindNodes, path: "/api/v1/nodes"}, {kind: kindPods, path: "/api/v1/pods"}}
	for _, w := range wanted {
		i := slices.IndexFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == w.group })
		if i < 0 {
			continue
		}
		for _, v := range w.versions {
			if !slices.ContainsFunc(groups.Groups[i].Versions, func(s metav1.GroupVersionForDiscovery) bool { return s.Version == v }) {
				continue
			}
			path := "/apis/" + w.group + "/" + v
			var resources metav1.APIResourceList
			if err := c.ask(ctx, path, &resources); err != nil {
				return nil, err
			}
			if slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == string(w.kind) }) {
				out = append(out, served{kind: w.kind, path: path + "/" + string(w.kind), selector: w.selector})
				break
			}
		}
	}
	return out, nil
}

// maxDiscovery bounds the answers that tell what a server has.
const maxDiscovery = 16 << 20

func (c *client) ask(ctx context.Context, path string, into any) error {
	body, err := c.get(ctx, path, nil)
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", c.api, path, err)
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxDiscovery)).Decode(into); err != nil {
		return fmt.Errorf("ask %s for %s: read the answer: %w", c.api, path, err)
	}
	return nil
}

// list is one page of a list, as client-go takes lists.
type list struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*object
}

// DeepCopyObject implements runtime.Object.
func (l *list) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// listHead is the metadata of a list that is used.
type listHead struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

// errShape says that an answer is no list or watch.
var errShape = errors.New("the answer is none of a Kubernetes API server")

// readList decodes a list object by object, so that no more of it is in memory than what is kept. It is called for each
// object, also for those with errUnreadable.
func (d *decoder) readList(k kind, src io.Reader, each func(*object, error)) (listHead, error) {
	var head listHead
	in := jsontext.NewDecoder(src, d.opts)
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return head, cut(err, errShape)
	}
	items := false
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			return head, cut(err, nil)
		}
		switch name.String() {
		case "metadata":
			raw, err := in.ReadValue()
			if err != nil {
				return head, cut(err, nil)
			}
			if err := json.Unmarshal(raw, &head); err != nil {
				return head, fmt.Errorf("%w: read its metadata: %w", errShape, err)
			}
		case "items":
			items = true
			if err := d.readItems(k, in, each); err != nil {
				return head, err
			}
		default:
			if err := in.SkipValue(); err != nil {
				return head, cut(err, nil)
			}
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return head, cut(err, nil)
	}
	if _, err := in.ReadToken(); !errors.Is(err, io.EOF) {
		return head, cut(err, errShape)
	}
	if !items || head.ResourceVersion == "" {
		return head, fmt.Errorf("%w: it has no items, or no resourceVersion", errShape)
	}
	return head, nil
}

func (d *decoder) readItems(k kind, in *jsontext.Decoder, each func(*object, error)) error {
	if in.PeekKind() == 'n' { // an empty list of Go
		return cut(in.SkipValue(), nil)
	}
	if t, err := in.ReadToken(); err != nil || t.Kind() != '[' {
		return cut(err, errShape)
	}
	for in.PeekKind() != ']' {
		raw, err := in.ReadValue()
		if err != nil {
			return cut(err, nil)
		}
		o, err := d.read(k, raw)
		if o == nil {
			return err
		}
		each(o, err)
	}
	_, err := in.ReadToken()
	return cut(err, nil)
}

// cut makes the end of an answer in its middle an unexpected one.
func cut(err, otherwise error) error {
	switch {
	case err == nil:
		return otherwise
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// change is one event of a watch.
type change struct {
	kind   watch.EventType
	object *object
	bad    error          // why the object could not be read
	status *metav1.Status // of an ERROR
}

// readChange decodes the next event of a watch. io.EOF is the end between two events.
func (d *decoder) readChange(k kind, in *jsontext.Decoder) (change, error) {
	raw, err := in.ReadValue()
	if err != nil {
		if len(bytes.TrimSpace(in.UnreadBuffer())) > 0 { // in the middle of an event
			err = cut(err, nil)
		} else if isCut(err) {
			err = io.EOF
		}
		return change{}, err
	}
	var e struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return change{}, fmt.Errorf("%w: read an event: %w", errShape, err)
	}
	switch e.Type {
	case watch.Error:
		c := change{kind: e.Type, status: &metav1.Status{}}
		if err := json.Unmarshal(e.Object, c.status); err != nil {
			return change{}, fmt.Errorf("%w: read an error of a watch: %w", errShape, err)
		}
		return c, nil
	case watch.Bookmark:
		o := &object{}
		var b struct {
			Metadata struct {
				ResourceVersion string            `json:"resourceVersion"`
				Annotations     map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(e.Object, &b); err != nil {
			return change{}, fmt.Errorf("%w: read a bookmark: %w", errShape, err)
		}
		o.ResourceVersion, o.Annotations = b.Metadata.ResourceVersion, b.Metadata.Annotations
		return change{kind: e.Type, object: o}, nil
	case watch.Added, watch.Modified, watch.Deleted:
		o, err := d.read(k, e.Object)
		if o == nil {
			return change{}, err
		}
		return change{kind: e.Type, object: o, bad: err}, nil
	}
	return change{}, fmt.Errorf("%w: an event of the type %q", errShape, e.Type)
}

func isCut(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// hint says what to do about an error of the server.
func hint(err error, k kind) string {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnauthorized:
		return "; the token is not taken: is token_file that of a service account of this cluster?"
	case metav1.StatusReasonForbidden:
		return "; the service account needs the verbs get, list and watch on " + string(k) + " in all namespaces"
	}
	if s := apierrors.APIStatus(nil); errors.As(err, &s) && s.Status().Code == http.StatusNotFound {
		return "; the server no longer has them: start again"
	}
	return ""
}
