package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// kinds are the objects that are used, by the kind that they say they are of.
var kinds = map[string]kind{
	"Node": kindNodes, "Pod": kindPods, "Workload": kindWorkloads, "ResourceClaim": kindClaims, "ResourceSlice": kindSlices,
	"ComputeDomain": kindDomains, "ComputeDomainClique": kindCliques,
}

// ReplayOptions say how recorded answers are read.
type ReplayOptions struct {
	// Config gives the cluster's name, the rules and the labels; how to reach a server is not used.
	Config Config
	Log    *slog.Logger // nil = nobody is told what is left out
}

// Recognize reports whether a file is a list of an API server or of kubectl, or a recorded watch, by its content. The error is
// about reading the file.
func Recognize(path string) (bool, error) {
	f, err := collect.OpenRecorded(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, isList, isWatch := recognize(f)
	return isList || isWatch, nil
}

// recognize reads the members of the first object until they tell.
func recognize(src io.Reader) (of string, isList, isWatch bool) {
	in := jsontext.NewDecoder(src, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return "", false, false
	}
	version, items := false, false
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			break
		}
		switch n := name.String(); {
		case n == "type" && in.PeekKind() == '"':
			t, _ := in.ReadToken()
			switch watch.EventType(t.String()) {
			case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error:
			default:
				return "", false, false
			}
			next, err := in.ReadToken()
			return "", false, err == nil && next.Kind() == '"' && next.String() == "object" && in.PeekKind() == '{'
		case n == "kind" && in.PeekKind() == '"':
			t, _ := in.ReadToken()
			of = t.String()
		case n == "apiVersion":
			version = true
			if in.SkipValue() != nil {
				return "", false, false
			}
		case n == "items" && in.PeekKind() == '[':
			items = true
			if version && of != "" {
				return of, strings.HasSuffix(of, "List"), false
			}
			if in.SkipValue() != nil {
				return "", false, false
			}
		default:
			if in.SkipValue() != nil {
				return "", false, false
			}
		}
		if items && version && of != "" {
			break
		}
	}
	return of, items && version && strings.HasSuffix(of, "List"), false
}

// ReplayFiles feeds recorded lists and watches of one API server through the same model as a live collector, in the order of
// their resource versions, which all kinds of one server share. Lists of kinds that are not used are left out. The first file
// that cannot be read whole ends the replay, with an error that names it.
func ReplayFiles(ctx context.Context, paths []string, opts ReplayOptions, out collect.Emitter) error {
	cfg := opts.Config
	cfg.Refresh, cfg.LookBack = 0, math.MaxInt64
	if len(paths) == 0 {
		return nil
	}
	if cfg.Cluster == "" {
		return errors.New("replay: no file of Kubernetes names its cluster: name it with --cluster")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	left := map[string]int{}
	m := newModel(&cfg, opts.Log, func(reason string, facts int) { left[reason] += facts })
	m.declared = event.Millis(collect.RecordedSince)
	r := replay{decoder: newDecoder(&cfg), log: opts.Log}
	for _, path := range paths {
		if err := r.read(path); err != nil {
			return fmt.Errorf("replay %s: %w", path, err)
		}
	}
	slices.SortStableFunc(r.steps, func(a, b step) int { return cmp.Compare(a.version, b.version) })
	var now, flushed time.Time
	flush := func() error {
		if now.IsZero() {
			return nil
		}
		b := m.propose(now)
		if len(b.records) > 0 {
			if err := out.Emit(ctx, b.records...); err != nil {
				return fmt.Errorf("replay: hand on %d records: %w", len(b.records), err)
			}
		}
		b.commit()
		flushed = now
		return nil
	}
	for i, s := range r.steps {
		next := now
		if s.at.After(next) {
			next = s.at
		}
		// What is of one moment is told together: lists of one version, and events that a live collector would gather.
		if i > 0 && s.version != r.steps[i-1].version && (s.full || next.Sub(flushed) >= cfg.Gather) {
			if err := flush(); err != nil {
				return err
			}
		}
		if now = next; flushed.IsZero() {
			flushed = now
		}
		if s.full {
			m.replace(s.kind, s.objects, time.Time{}, now)
		} else if s.gone {
			m.remove(s.kind, s.objects[0], time.Time{}, now)
		} else {
			m.put(s.kind, s.objects[0], now)
		}
	}
	if len(r.steps) == 0 {
		return errors.New("replay: none of the lists is of nodes, pods, workloads, resourceclaims, resourceslices or computedomains, " +
			"so nothing can be told")
	}
	if err := flush(); err != nil {
		return err
	}
	for _, reason := range slices.Sorted(maps.Keys(left)) {
		opts.Log.Warn("replay left facts out", "reason", reason, "facts", left[reason])
	}
	if now.IsZero() { // every list was empty
		return nil
	}
	return out.Emit(ctx, &event.Source{Cluster: cfg.Cluster, Source: Name, ObservedAtMs: now.UnixMilli(), GoodAtMs: event.Millis(now)})
}

// step is one thing that a recording says: a full list of a kind, or that one object changed or went.
type step struct {
	kind    kind
	version uint64
	at      time.Time // the newest time in it
	full    bool
	gone    bool
	objects []*object
}

type replay struct {
	decoder *decoder
	log     *slog.Logger
	steps   []step
}

// stampInName is the time in names such as pods-20261129T142633Z.json.gz.
var stampInName = regexp.MustCompile(`(?:^|[^0-9])(\d{8}T\d{6})Z`)

func (r *replay) read(path string) error {
	f, err := collect.OpenRecorded(path)
	if err != nil {
		return err
	}
	defer f.Close()
	whole, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	of, isList, isWatch := recognize(bytes.NewReader(whole))
	first := len(r.steps)
	switch {
	case isWatch:
		err = r.watched(whole)
	case isList:
		err = r.listed(of, whole)
	default:
		err = errors.New("this is no answer of a Kubernetes API server; give lists, as kubectl get -o json or the server prints them, " +
			"or watches, one event a line")
	}
	if err != nil {
		return err
	}
	return r.date(path, r.steps[first:])
}

// date gives the steps of a file a time that have none: by its name, which counts for all of a list, or when it was written.
func (r *replay) date(path string, steps []step) error {
	if m := stampInName.FindStringSubmatch(filepath.Base(path)); m != nil {
		if at, err := time.Parse("20060102T150405", m[1]); err == nil {
			for i := range steps {
				if steps[i].full || steps[i].at.IsZero() {
					steps[i].at = at
				}
			}
			return nil
		}
	}
	if !slices.ContainsFunc(steps, func(s step) bool { return s.at.IsZero() }) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	for i := range steps {
		if steps[i].at.IsZero() && len(steps[i].objects) > 0 {
			steps[i].at = info.ModTime().UTC()
		}
	}
	return nil
}

// listed reads a list of a server, whose kind names that of its items, or one of kubectl, whose items name their own.
func (r *replay) listed(of string, whole []byte) error {
	if of == "List" {
		return r.mixed(whole)
	}
	k, used := kinds[strings.TrimSuffix(of, "List")]
	if !used {
		r.log.Warn("a list is of a kind that is not used, and left out", "kind", of)
		return nil
	}
	s := step{kind: k, full: true}
	head, err := r.decoder.readList(k, bytes.NewReader(whole), func(o *object, bad error) {
		o.bad = bad
		s.objects = append(s.objects, o)
	})
	if err != nil {
		return err
	}
	s.version = version(head.ResourceVersion)
	s.at = newestOf(s.objects)
	r.steps = append(r.steps, s)
	return nil
}

func (r *replay) mixed(whole []byte) error {
	var doc struct {
		Items []jsontext.Value `json:"items"`
	}
	if err := json.Unmarshal(whole, &doc, r.decoder.opts); err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	steps := map[kind]*step{}
	for _, raw := range doc.Items {
		k, used := kindOf(raw)
		if !used {
			continue
		}
		o, err := r.decoder.read(k, raw)
		if o == nil {
			return err
		}
		o.bad = err
		if steps[k] == nil {
			steps[k] = &step{kind: k, full: true}
		}
		s := steps[k]
		s.objects, s.version = append(s.objects, o), max(s.version, version(o.ResourceVersion))
	}
	newest := uint64(0) // of one answer, so of one moment
	for _, s := range steps {
		newest = max(newest, s.version)
	}
	for _, k := range slices.Sorted(maps.Keys(steps)) {
		steps[k].version, steps[k].at = newest, newestOf(steps[k].objects)
		r.steps = append(r.steps, *steps[k])
	}
	return nil
}

// kindOf is what an object says it is.
func kindOf(raw []byte) (kind, bool) {
	var o struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return "", false
	}
	k, ok := kinds[o.Kind]
	return k, ok
}

// watched reads the events of a watch, one a line. Those before the bookmark that ends the initial events are a full list.
func (r *replay) watched(whole []byte) error {
	in := jsontext.NewDecoder(bytes.NewReader(whole), r.decoder.opts)
	var steps []step
	for n := 1; ; n++ {
		c, k, err := r.event(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", n, err)
		}
		switch {
		case c.status != nil:
			r.log.Warn("a recorded watch ends with an error", "message", c.status.Message)
		case c.kind == watch.Bookmark:
			if c.object.Annotations[metav1.InitialEventsAnnotationKey] != "true" || len(steps) == 0 {
				continue
			}
			all := step{kind: steps[0].kind, full: true, version: version(c.object.ResourceVersion)}
			for _, s := range steps {
				all.objects = append(all.objects, s.objects...)
			}
			all.at = newestOf(all.objects)
			steps = []step{all}
		case k != "":
			c.object.bad = c.bad
			one := []*object{c.object}
			steps = append(steps, step{
				kind: k, version: version(c.object.ResourceVersion), at: newestOf(one), gone: c.kind == watch.Deleted, objects: one,
			})
		}
	}
	r.steps = append(r.steps, steps...)
	return nil
}

// event reads one event, whose object names its kind; none where that is not used.
func (r *replay) event(in *jsontext.Decoder) (change, kind, error) {
	raw, err := in.ReadValue()
	if err != nil {
		if len(bytes.TrimSpace(in.UnreadBuffer())) > 0 {
			err = cut(err, nil)
		}
		return change{}, "", err
	}
	var e struct {
		Object jsontext.Value `json:"object"`
	}
	if err := json.Unmarshal(raw, &e, r.decoder.opts); err != nil {
		return change{}, "", fmt.Errorf("%w: %w", errShape, err)
	}
	k, used := kindOf(e.Object)
	c, err := r.decoder.readChange(k, jsontext.NewDecoder(bytes.NewReader(raw), r.decoder.opts))
	if err != nil && !used { // of a kind that is not used
		return change{kind: watch.Bookmark, object: &object{}}, "", nil
	}
	return c, k, err
}

// version is a resource version as a number, which it is on every server there is; 0 for one that is none.
func version(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// newestOf is the newest time that objects tell of what has happened.
func newestOf(objects []*object) (newest time.Time) {
	for _, o := range objects {
		times := []time.Time{o.Created, o.deleted()}
		switch {
		case o.node != nil && o.node.ready != nil:
			times = append(times, o.node.ready.Transition)
		case o.pod != nil:
			p := o.pod
			times = append(times, p.scheduled, p.started, p.finished, p.notReady)
		case o.workload != nil:
			for _, c := range o.workload.conditions {
				times = append(times, c.Transition)
			}
		}
		for _, t := range times {
			if t.After(newest) {
				newest = t.UTC()
			}
		}
	}
	return newest
}
