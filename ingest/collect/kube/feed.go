package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// feed brings one kind of a server's objects into the model: client-go's reflector lists and watches them, goes on where a
// watch was cut, and lists again where the server no longer knows that place. All of its state is under the collector's lock.
type feed struct {
	served
	c      *Collector
	client *client

	synced   bool // a full list was taken
	open     bool // a watch is open
	opened   time.Time
	seen     bool      // it has told something since
	initial  bool      // what is being told is the full list
	problem  string    // why it is not read; empty = nothing is known to be wrong
	failures int       // since it was last read well
	good     time.Time // when it was last read well
	empty    int       // full lists in a row without any object
	again    context.CancelFunc
}

const (
	listPage   = 500
	emptyLists = 3 // so many times in a row a server must list nothing, where it listed something, to be believed
	retryMost  = 30 * time.Second
)

// run lists and watches until ctx ends.
func (f *feed) run(ctx context.Context) {
	logger := logr.Discard() // what goes wrong is said by f
	for ctx.Err() == nil {
		asking, cancel := context.WithCancel(klog.NewContext(ctx, logger))
		f.locked(func() { f.again = cancel })
		r := cache.NewReflectorWithOptions(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return f.list(ctx, opts) },
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return f.watch(ctx, opts)
			},
		}, nil, f, cache.ReflectorOptions{
			Name: string(f.kind), TypeDescription: string(f.kind), Logger: &logger,
			// The pause after a failure is f's own, as a reflector has none after a watch that was cut.
			Backoff: &wait.Backoff{Duration: f.c.retry, Factor: 1, Steps: 1, Jitter: 0.2},
		})
		r.WatchListPageSize = listPage
		r.RunWithContext(asking)
		cancel()
	}
}

func (f *feed) locked(do func()) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	do()
}

// pause waits before a question that follows failures.
func (f *feed) pause(ctx context.Context) error {
	n := 0
	f.locked(func() { n = f.failures })
	if n == 0 {
		return nil
	}
	t := time.NewTimer(min(f.c.retry<<min(n-1, 16), retryMost))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// failed notes that a question was not answered, or not to its end.
func (f *feed) failed(ctx context.Context, reason string, err error) {
	if ctx.Err() != nil {
		return
	}
	f.c.metrics.Failed(reason)
	err = fmt.Errorf("%s %s of %s: %w%s", reason, f.kind, f.client.api, err, hint(err, f.kind))
	f.locked(func() {
		f.open = false
		f.failures++
		if f.problem != err.Error() {
			f.c.log.Warn("kubernetes is not read; what is known stays", "kind", string(f.kind), "error", err)
		}
		f.problem = err.Error()
	})
	f.c.wake()
}

// list reads one page.
func (f *feed) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if err := f.pause(ctx); err != nil {
		return nil, err
	}
	if opts.Limit > 0 && opts.ResourceVersion == "0" {
		opts.ResourceVersion = "" // pages: with 0 the server gives all at once
	}
	opts.FieldSelector = f.selector
	f.c.metrics.Poll(string(f.kind))
	out := &list{}
	err := func() error {
		body, err := f.client.get(ctx, f.path, &opts)
		if err != nil {
			return err
		}
		defer body.Close()
		head, err := f.c.decoder.readList(f.kind, body, func(o *object, bad error) {
			o.bad = bad
			out.Items = append(out.Items, o)
		})
		out.ResourceVersion, out.Continue = head.ResourceVersion, head.Continue
		return err
	}()
	if err != nil {
		if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // else the list is begun again
			f.failed(ctx, "list", err)
		}
		return nil, err
	}
	return out, nil
}

// watch opens a watch.
func (f *feed) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if err := f.pause(ctx); err != nil {
		return nil, err
	}
	opts.Watch, opts.FieldSelector = true, f.selector
	f.c.metrics.Poll(string(f.kind))
	body, err := f.client.get(ctx, f.path, &opts)
	if err != nil {
		f.failed(ctx, "watch", err)
		return nil, err
	}
	f.locked(func() {
		f.open, f.opened, f.seen = true, f.c.deps.Now(), false
		f.initial = opts.SendInitialEvents != nil && *opts.SendInitialEvents
	})
	s := &stream{f: f, ctx: ctx, body: body, in: jsontext.NewDecoder(body, f.c.decoder.opts)}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "")
	return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), s, reporter), nil
}

// stream is the answer to one watch.
type stream struct {
	f    *feed
	ctx  context.Context
	body io.ReadCloser
	in   *jsontext.Decoder
}

// Decode implements watch.Decoder.
func (s *stream) Decode() (watch.EventType, runtime.Object, error) {
	f := s.f
	c, err := f.c.decoder.readChange(f.kind, s.in)
	var beginning bool
	f.locked(func() {
		beginning = f.initial
		f.seen = f.seen || err == nil && c.status == nil && !f.initial
		f.open = f.open && err == nil && c.status == nil
	})
	switch {
	case errors.Is(err, io.EOF) && beginning:
		f.failed(s.ctx, "watch", errors.New("the answer ended before all was listed"))
		return "", nil, io.EOF
	case errors.Is(err, io.EOF): // a server ends a watch after minutes, a proxy one that is idle
		return "", nil, io.EOF
	case err != nil:
		f.failed(s.ctx, "watch", err)
		if isCut(err) { // the next watch goes on from here
			err = io.ErrUnexpectedEOF
		}
		return "", nil, err
	case c.status != nil:
		// A server that forgot is asked for the list, and so is one that cannot begin a watch with it.
		if c.status.Code != http.StatusGone && !beginning {
			f.failed(s.ctx, "watch", apierrors.FromObject(c.status))
		}
		return watch.Error, c.status, nil
	}
	c.object.bad = c.bad
	return c.kind, c.object, nil
}

// Close implements watch.Decoder.
func (s *stream) Close() { s.body.Close() }

// What client-go asks of a store.

// Add implements cache.ReflectorStore.
func (f *feed) Add(x any) error { return f.Update(x) }

// Update implements cache.ReflectorStore.
func (f *feed) Update(x any) error {
	f.locked(func() { f.c.model.put(f.kind, x.(*object), f.c.deps.Now()) })
	f.c.wake()
	return nil
}

// Delete implements cache.ReflectorStore.
func (f *feed) Delete(x any) error {
	f.locked(func() { f.c.model.remove(f.kind, x.(*object), time.Time{}, f.c.deps.Now()) })
	f.c.wake()
	return nil
}

// Replace implements cache.ReflectorStore. A list that is suddenly empty is asked for again before it is believed.
func (f *feed) Replace(all []any, _ string) error {
	objects := make([]*object, len(all))
	for i, x := range all {
		objects[i] = x.(*object)
	}
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if had := f.c.model.size(f.kind); len(objects) == 0 && had > 0 && f.synced {
		if f.empty++; f.empty < emptyLists {
			f.failures++
			f.open = false
			f.problem = fmt.Sprintf("%s lists none of %s where it listed %d before; that is believed after %d such answers in a row, "+
				"check what the service account may see", f.client.api, f.kind, had, emptyLists)
			f.c.log.Warn("kubernetes suddenly lists nothing; what is known stays", "kind", string(f.kind), "before", had)
			f.again()
			return nil
		}
	}
	f.empty = 0
	f.c.model.replace(f.kind, objects, f.good, f.c.deps.Now())
	f.synced, f.initial, f.seen = true, false, true
	f.c.wake()
	return nil
}

// Resync implements cache.ReflectorStore.
func (f *feed) Resync() error { return nil }

// check says whether what is known of the kind is what the server has now, and notes it. A watch that says nothing is believed
// after a while, as one that breaks at once is not. It is called under the lock.
func (f *feed) check(now time.Time) (live bool) {
	live = f.synced && f.open && !f.initial && (f.seen || now.Sub(f.opened) >= f.c.steady)
	if live {
		f.problem, f.failures, f.good = "", 0, now
	}
	return live
}
