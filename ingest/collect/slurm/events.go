package slurm

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/slurm/prolog"
	"github.com/spillway-io/spillway/schemas/event"
)

// EventsPath is where prolog and epilog scripts post their environment.
const EventsPath = "/v1/slurm/events"

const (
	maxEvent   = 256 << 10 // bytes of one post; a job's environment has a few KB
	maxQueued  = 1 << 14   // posts that wait for the pipeline
	maxHeaders = 16 << 10
)

// nodeEvent turns what a prolog or epilog was told into a record. A node's script knows only its own node, so its record is
// partial; the controller's knows the nodes of the whole job and no GPUs. Neither ends a run: an epilog runs while the GPUs
// are still held, and does not know how the run ended.
func (p *Poller) nodeEvent(e *prolog.NodeEvent, observed time.Time) (*event.Placement, error) {
	rec := &event.Placement{
		Cluster: p.fold.cluster(clean(e.Cluster)), Scheduler: scheduler, Source: SourceProlog,
		RunId: clean(e.SLUID), Restart: e.RestartCnt,
		Name: clean(e.Name), User: clean(e.User), Account: clean(e.Account), Queue: clean(e.Partition), Qos: clean(e.QOS), Reservation: clean(e.Reservation),
		State: event.State_RUNNING, StateRaw: "RUNNING", StartMs: event.Millis(e.Start),
		Partial: !e.Controller,
	}
	if !e.Begin {
		rec.State, rec.StateRaw = event.State_COMPLETING, "COMPLETING"
	}
	identify(rec, e.JobID, e.HetJobID, e.ArrayJobID, e.ArrayTaskID)
	if rec.StartMs == nil {
		if !e.Begin {
			return nil, drop("no_start", "job %d: SLURM_JOB_START_TIME is missing; Slurm sets it since 23.02", e.JobID)
		}
		rec.StartMs = event.Millis(observed)
	}
	if e.Exclusive == "TOPO" {
		rec.Intent = &event.Intent{ExclusiveDomain: true}
	}
	p.fold.classify(rec)
	if e.Controller {
		names, err := expand(e.Nodes)
		if err != nil {
			return nil, drop("nodes_unreadable", "job %d: SLURM_JOB_NODELIST: %w", e.JobID, err)
		}
		for _, name := range names {
			rec.Placements = append(rec.Placements, &event.NodePlacement{Node: name})
		}
	} else {
		n := &event.NodePlacement{Node: clean(e.Node)}
		for _, i := range e.GPUs {
			n.GpuIndex = append(n.GpuIndex, uint32(i))
		}
		if len(e.GPUs) > 0 {
			n.Gpus = new(uint32(len(e.GPUs)))
		}
		rec.Placements = []*event.NodePlacement{n}
	}
	return rec, stamp(rec, p.Cluster(), observed)
}

// clean makes text of another machine fit for the contract, which takes UTF-8 only.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// stamp sets cluster and time of a record that comes alone, and checks it.
func stamp(rec *event.Placement, cluster string, observed time.Time) error {
	if rec.Cluster == "" {
		rec.Cluster = cluster
	}
	rec.ObservedAtMs, rec.Revision = observed.UnixMilli(), event.Revision(observed)
	if rec.State.Ended() && rec.EndMs == nil {
		rec.EndEarliestMs, rec.EndMs = rec.StartMs, new(max(rec.ObservedAtMs, rec.GetStartMs()))
	}
	if err := rec.Validate(); err != nil {
		return drop("invalid", "job %s: %w", rec.JobId, err)
	}
	return nil
}

// Handler answers posts of prolog and epilog scripts: 202 once the event is queued. It never makes a script wait for the
// pipeline; a full queue is 503, and the poll tells the same a little later.
func (c *Collector) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+EventsPath, func(w http.ResponseWriter, r *http.Request) {
		if err := c.authorized(r); err != nil {
			c.metrics.Dropped("event_unauthorized", 1)
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEvent))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			c.metrics.Dropped("event_too_large", 1)
			http.Error(w, fmt.Sprintf("at most %d bytes are taken; send the variables that begin with SLURM", maxEvent), http.StatusRequestEntityTooLarge)
			return
		} else if err != nil {
			c.metrics.Dropped("event_cut_short", 1)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e, err := prolog.Decode(body)
		var rec *event.Placement
		if err == nil {
			rec, err = c.poller.nodeEvent(e, c.deps.Now())
		}
		if err != nil {
			c.metrics.Dropped("event_unreadable", 1)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case c.events <- rec:
			w.WriteHeader(http.StatusAccepted)
		default:
			c.metrics.Dropped("event_queue_full", 1)
			http.Error(w, "the pipeline is behind; go on without", http.StatusServiceUnavailable)
		}
	})
	return mux
}

func (c *Collector) authorized(r *http.Request) error {
	if c.cfg.Events.TokenFile == "" {
		return nil
	}
	b, err := os.ReadFile(c.cfg.Events.TokenFile)
	want := strings.TrimSpace(string(b))
	if err != nil || want == "" {
		return errors.New("the server cannot read its token file (events.token_file)")
	}
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(got), []byte(want)) != 1 {
		return errors.New("send the header Authorization: Bearer with the token in the file of events.token_file")
	}
	return nil
}

// listen opens the endpoint, so that an address in use is an error at the start.
func (c *Collector) listen(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.cfg.Events.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for prolog and epilog events: %w; choose another address in events.listen", err)
	}
	return l, nil
}

// serve answers posts until ctx ends.
func (c *Collector) serve(ctx context.Context, l net.Listener) {
	s := &http.Server{
		Handler: c.Handler(), ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: maxHeaders,
	}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		c.metrics.Failed("events")
		c.log.Error("serve prolog and epilog events", "error", err)
	}
}

// forward emits queued events in batches.
func (c *Collector) forward(ctx context.Context, out collect.Emitter) {
	for {
		var batch []event.Record
		select {
		case <-ctx.Done():
			return
		case rec := <-c.events:
			batch = append(batch, rec)
		}
		for more := true; more && len(batch) < 500; {
			select {
			case rec := <-c.events:
				batch = append(batch, rec)
			default:
				more = false
			}
		}
		if !c.emitted(ctx, out, "events", batch) {
			return
		}
	}
}
