package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/spillway-io/spillway/query/read"
)

// answer is a JSON body.
type answer[T any] struct{ Body T }

// ClusterParam, JobParam and AtParam are exported because the router fills embedded fields by reflection.
type ClusterParam struct {
	Cluster string `query:"cluster" maxLength:"1024" doc:"Names are unique only inside a cluster; empty = all but that of spillway probe."`
}

// JobParam names one job.
type JobParam struct {
	ClusterParam
	Job string `path:"job" minLength:"1" maxLength:"1024" doc:"The scheduler's own id; a slash is written %2F."`
}

type jobAttemptParam struct {
	JobParam
	Attempt int32 `query:"attempt" minimum:"-1" default:"-1" doc:"Which attempt, from 0; -1 = the newest."`
}

type slotsParam struct {
	ClusterParam
	GPUs     uint32 `query:"gpus" minimum:"1" maximum:"65535" default:"64" doc:"Slot size."`
	GPUModel string `query:"gpu_model" maxLength:"1024" doc:"Only domains of this model; empty = all."`
	Tenant   string `query:"tenant" maxLength:"1024" doc:"Account or reservation: only what it may use counts (advise.tenants), and what is reserved for it, too."`
}

// AtParam names a moment.
type AtParam struct {
	At time.Time `query:"at" doc:"RFC 3339; empty = now."`
}

type domainsParam struct {
	ClusterParam
	AtParam
}

type domainParam struct {
	ClusterParam
	AtParam
	ID string `path:"id" minLength:"1" maxLength:"1024" doc:"The domain's id; a slash is written %2F."`
}

type spillsParam struct {
	ClusterParam
	State  string    `query:"state" enum:"any,running" default:"any" doc:"running = only those that hold their GPUs now."`
	User   string    `query:"user" maxLength:"1024"`
	Acct   string    `query:"account" maxLength:"1024"`
	Class  string    `query:"service_class" maxLength:"1024"`
	Cause  string    `query:"cause" enum:",policy,timing,repack,capacity"`
	Says   string    `query:"traffic" enum:",silent_fallback,confirmed,contradicted,idle,unknown" doc:"Only those of which the counters say so; silent_fallback lists jobs inside one domain that talk over the scale-out network."`
	Since  time.Time `query:"since" doc:"RFC 3339; empty = a day before until."`
	Until  time.Time `query:"until" doc:"RFC 3339; empty = now."`
	Sort   string    `query:"sort" enum:"severity,newest" default:"severity" doc:"severity = most excess domains, then most GPUs."`
	Limit  uint32    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string    `query:"cursor" maxLength:"64" doc:"next of the page before."`
}

type reportParam struct {
	ClusterParam
	Since    time.Time `query:"since" doc:"RFC 3339; empty = a week before until."`
	Until    time.Time `query:"until" doc:"RFC 3339; empty = now."`
	SlotGPUs uint32    `query:"slot_gpus" minimum:"1" maximum:"65535" default:"64" doc:"Size of the slots by which fragmentation is measured; one that capacity is counted for, or above one node's GPUs."`
}

type spillsPage struct {
	read.Spills
	Next *string `json:"next" doc:"Cursor of the next page; null = this is the last."`
}

func (s *Server) routes() {
	get(s, "list-slots", "/v1/slots", "How many slots of a size each NVLink domain has now", s.slots)
	get(s, "list-spills", "/v1/spills", "Which placements spilled", s.spills)
	get(s, "get-job", "/v1/jobs/{job}", "All runs of a job, where they sat and what was judged", s.job)
	get(s, "explain-job", "/v1/jobs/{job}/explain", "A verdict in words, cause first", s.explain)
	get(s, "get-job-traffic", "/v1/jobs/{job}/traffic", "What a run moved over NVLink and over the scale-out network, by time and node", s.traffic)
	get(s, "list-domains", "/v1/domains", "Capacity of every NVLink domain, now or at a moment", s.domains)
	get(s, "get-domain", "/v1/domains/{id}", "One domain's nodes and jobs, now or at a moment", s.domain)
	get(s, "get-map", "/v1/map", "Every domain, node and holder, column by column, now or at a moment", s.fleetMap)
	get(s, "get-report", "/v1/report", "GPU-hours exposed to spill and stranded by fragmentation, and what to change", s.report)
	get(s, "get-topology-health", "/v1/topology/health", "How much of the fleet has a known domain, and what disagrees", s.topology)
	get(s, "get-status", "/v1/status", "What each hop of the flow last did and what waits", s.status)
}

// get registers one GET operation and measures it.
func get[I, O any](s *Server, id, path, summary string, fn func(context.Context, *I) (*O, error)) {
	op := huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary,
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable, http.StatusGatewayTimeout},
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*answer[O], error) {
		out, err := observed(s, id, func() (*O, error) { return fn(ctx, in) })
		if err != nil {
			return nil, err
		}
		return &answer[O]{Body: *out}, nil
	})
}

// observed answers one call of an operation, and counts how long that takes and what comes of it.
func observed[O any](s *Server, id string, fn func() (O, error)) (O, error) {
	start := time.Now()
	out, err := fn()
	status, err := s.failure(id, err)
	s.metrics.seconds.WithLabelValues(id, strconv.Itoa(status)).Observe(time.Since(start).Seconds())
	return out, err
}

// failure maps an error to a problem: what the caller can mend is told to the caller, the rest goes to the log.
func (s *Server) failure(operation string, err error) (int, error) {
	var bad huma.StatusError
	switch {
	case err == nil:
		return http.StatusOK, nil
	case errors.As(err, &bad):
		return bad.GetStatus(), err
	case errors.Is(err, read.ErrNotFound):
		return http.StatusNotFound, huma.Error404NotFound(err.Error())
	case errors.Is(err, read.ErrAmbiguous):
		return http.StatusConflict, huma.Error409Conflict(err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout, huma.Error504GatewayTimeout(
			fmt.Sprintf("no answer within %s: narrow the question or raise api.timeout", s.cfg.Timeout))
	case errors.Is(err, context.Canceled):
		return 499, err // the caller left; nobody reads this
	}
	s.deps.Log.Error("answering failed", "operation", operation, "error", err)
	return http.StatusServiceUnavailable, huma.Error503ServiceUnavailable("the store did not answer: see the service's log and /readyz")
}

func (s *Server) at(t time.Time) time.Time {
	if t.IsZero() {
		return s.deps.Now()
	}
	return t
}

func (s *Server) slots(ctx context.Context, in *slotsParam) (*read.Slots, error) {
	if out := s.liveSlots(in); out != nil {
		return out, nil
	}
	if in.GPUModel != "" || in.Tenant != "" {
		return nil, huma.Error503ServiceUnavailable("only the advisor's picture knows GPU models and reservations, and there is none that is fresh enough: " +
			"ask again, or without gpu_model and tenant; /v1/topology/health says which collector is late")
	}
	return s.deps.Reader.Slots(ctx, in.Cluster, in.GPUs)
}

func (s *Server) spills(ctx context.Context, in *spillsParam) (*spillsPage, error) {
	offset, err := cursorOffset(in.Cursor)
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	span := SpanParam{Since: in.Since, Until: s.at(in.Until)}
	if span.Since.IsZero() {
		span.Since = span.Until.Add(-24 * time.Hour)
	}
	since, until, err := s.span(span)
	if err != nil {
		return nil, err
	}
	page, err := s.deps.Reader.Spills(ctx, read.SpillFilter{
		Cluster: in.Cluster, User: in.User, Account: in.Acct, ServiceClass: in.Class, Cause: in.Cause, Traffic: in.Says,
		Running: in.State == "running", Since: since, Until: until, BySeverity: in.Sort == "severity",
		Limit: in.Limit, Offset: offset,
	})
	if err != nil {
		return nil, err
	}
	out := &spillsPage{Spills: *page}
	if after := uint64(offset) + uint64(len(page.Spills)); after < page.Total {
		next := base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(after, 10)))
		out.Next = &next
	}
	return out, nil
}

func cursorOffset(cursor string) (uint32, error) {
	if cursor == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		var n uint64
		if n, err = strconv.ParseUint(string(text), 10, 32); err == nil {
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("cursor %q is not one of ours: pass `next` of the page before, or none", cursor)
}

func (s *Server) job(ctx context.Context, in *JobParam) (*read.Job, error) {
	return s.deps.Reader.Job(ctx, in.Cluster, in.Job)
}

func (s *Server) explain(ctx context.Context, in *jobAttemptParam) (*read.Explanation, error) {
	job, err := s.deps.Reader.Job(ctx, in.Cluster, in.Job)
	if err != nil {
		return nil, err
	}
	a, err := job.Pick(in.Attempt)
	if err != nil {
		return nil, err
	}
	e := read.Explain(job, a, s.cfg.Links)
	return &e, nil
}

func (s *Server) domains(ctx context.Context, in *domainsParam) (*read.Domains, error) {
	if in.At.IsZero() {
		return s.deps.Reader.DomainsNow(ctx, in.Cluster)
	}
	return s.deps.Reader.DomainsAt(ctx, in.Cluster, in.At)
}

func (s *Server) domain(ctx context.Context, in *domainParam) (*read.DomainAt, error) {
	return s.deps.Reader.DomainAt(ctx, in.Cluster, in.ID, s.at(in.At))
}

func (s *Server) fleetMap(ctx context.Context, in *domainsParam) (*read.Map, error) {
	if in.At.IsZero() {
		return s.deps.Reader.MapNow(ctx, in.Cluster)
	}
	return s.deps.Reader.MapAt(ctx, in.Cluster, in.At)
}

func (s *Server) report(ctx context.Context, in *reportParam) (*read.Report, error) {
	since, until, err := s.span(SpanParam{Since: in.Since, Until: in.Until})
	if err != nil {
		return nil, err
	}
	return s.deps.Reader.Report(ctx, in.Cluster, since, until, in.SlotGPUs, s.cfg.Links)
}

func (s *Server) topology(ctx context.Context, in *ClusterParam) (*read.TopologyHealth, error) {
	return s.deps.Reader.TopologyHealth(ctx, in.Cluster)
}

func (s *Server) status(ctx context.Context, _ *struct{}) (*read.Status, error) {
	return s.deps.Reader.Status(ctx)
}
