package api

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/ledger"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/query/read"
)

// advisor answers from memory alone.
type advisor struct {
	cfg    *advise.Config
	feed   *live.Feed     // nil: this process keeps no picture
	ledger *ledger.Ledger // nil: answers are not kept
	now    func() time.Time
	slots  chan struct{}
	maxLag time.Duration
	prefix string
	last   atomic.Uint64
	gangs  *gangs
	holds  *holds
	past   chan struct{} // one question about the past at a time
}

func newAdvisor(c AdviseConfig, deps Deps, cfg *advise.Config) *advisor {
	var prefix [4]byte
	_, _ = rand.Read(prefix[:]) // never fails
	return &advisor{
		cfg: cfg, maxLag: c.MaxTopologyLag, feed: deps.Feed, ledger: deps.Ledger, now: deps.Now, slots: make(chan struct{}, c.MaxConcurrent),
		prefix: hex.EncodeToString(prefix[:]), gangs: newGangs(), holds: newHolds(c.Holds, deps.Registry), past: make(chan struct{}, 1),
	}
}

// Codes of refusals beyond those of query/advise.
const (
	codeNotReady     = "not_ready"
	codeUnknown      = "unknown_cluster"
	codeOverloaded   = "overloaded"
	codeHoldConflict = "hold_conflict" // what is held for this request, or cannot be
	codeUnknownHold  = "unknown_hold"
)

// Advice is an answer with advice. The same picture, short holds and request give the same advice; advice_id is new each time.
type Advice struct {
	AdviceID string `json:"advice_id,omitempty" doc:"Names this answer in POST /v1/feedback and in the ledger; absent with as_of, of which nothing becomes."`
	Cluster  string `json:"cluster"`
	Hold     *Hold  `json:"hold,omitempty" doc:"Nodes that are kept for this request, where hold_s asked for it and a start now was advised."`
	advise.Response

	Freshness *read.Freshness `json:"freshness,omitempty" doc:"With as_of: how complete the tables are that it was read from."`

	written []byte // the answer as JSON: written out once, for the caller and for the ledger
}

// NoAdvice is the problem answered where there is no opinion: place the job as without advice.
type NoAdvice struct {
	Type     string         `json:"type,omitempty"`
	Title    string         `json:"title"`
	Status   int            `json:"status"`
	Detail   string         `json:"detail"`
	Code     string         `json:"code" doc:"Why: does not change between versions."`
	Remedy   string         `json:"remedy" doc:"What to do."`
	AdviceID string         `json:"advice_id,omitempty"`
	Legal    []int          `json:"legal,omitempty" doc:"The nearest sizes in GPUs, or segments in nodes, that would be answered."`
	Counts   []advise.Count `json:"counts,omitempty" doc:"How many nodes each reason excludes."`

	MakeRoom *advise.MakeRoom     `json:"make_room,omitempty" doc:"The plan to make room that was asked for."`
	Snapshot *advise.SnapshotInfo `json:"snapshot,omitempty" doc:"The picture that was looked at; absent where there is none."`
}

// Error implements error.
func (n *NoAdvice) Error() string { return n.Code + ": " + n.Detail + ": " + n.Remedy }

// GetStatus implements huma.StatusError.
func (n *NoAdvice) GetStatus() int { return n.Status }

// ContentType implements huma.ContentTypeFilter.
func (n *NoAdvice) ContentType(string) string { return "application/problem+json" }

// GetHeaders implements huma.HeadersError: callers that read nothing else see from the header to go on as before.
func (n *NoAdvice) GetHeaders() http.Header {
	h := http.Header{"X-Advice": {"none"}}
	if n.Code == codeOverloaded {
		h.Set("Retry-After", "1")
	}
	return h
}

// statuses of the codes; others are 422.
var statuses = map[string]int{
	advise.NoCapacityNow: http.StatusConflict, advise.NoEstimates: http.StatusConflict, codeHoldConflict: http.StatusConflict,
	advise.TenantForbidden: http.StatusForbidden, codeUnknownHold: http.StatusNotFound, advise.TopologyUnknown: http.StatusServiceUnavailable,
	advise.StaleSnapshot: http.StatusServiceUnavailable, codeNotReady: http.StatusServiceUnavailable,
	codeOverloaded: http.StatusServiceUnavailable, codeUnknown: http.StatusNotFound,
}

func noAdvice(r *advise.Refusal) *NoAdvice {
	status, ok := statuses[r.Code]
	if !ok {
		status = http.StatusUnprocessableEntity
	}
	return &NoAdvice{
		Title: http.StatusText(status), Status: status, Detail: r.Detail, Code: r.Code, Remedy: r.Remedy, Legal: r.Legal, Counts: r.Counts,
		MakeRoom: r.MakeRoom,
	}
}

// view gives the picture of a cluster, or why there is none.
func (a *advisor) view(cluster string) (*live.View, *advise.Refusal) {
	if a.feed == nil {
		return nil, &advise.Refusal{Code: codeNotReady, Detail: "this process keeps no picture of the fleet", Remedy: "ask one that serves with Kafka configured"}
	}
	v, err := a.feed.Cluster(cluster)
	switch {
	case errors.Is(err, live.ErrNotReady):
		return nil, &advise.Refusal{Code: codeNotReady, Detail: err.Error(), Remedy: "place the job without advice; ask again in some seconds"}
	case err != nil:
		return nil, &advise.Refusal{Code: codeUnknown, Detail: err.Error(), Remedy: "name a cluster that is collected"}
	}
	return v, nil
}

// ask answers one request and keeps the answer. Exactly one of the results is nil.
func (a *advisor) ask(caller string, r *advise.Request) (*Advice, *NoAdvice) {
	start := time.Now()
	id := a.prefix + strconv.FormatUint(a.last.Add(1), 36)
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		return nil, a.refuse(caller, id, r, nil, start, &advise.Refusal{
			Code: codeOverloaded, Detail: fmt.Sprintf("%d questions are in work", cap(a.slots)), Remedy: "place the job without advice, or ask again in a second"})
	}
	if r.HoldS != 0 {
		if refusal := a.holds.allowed(r); refusal != nil {
			return nil, a.refuse(caller, id, r, nil, start, refusal)
		}
		a.holds.taking.Lock()
		defer a.holds.taking.Unlock()
	}
	v, refusal := a.view(r.Cluster)
	if refusal != nil {
		return nil, a.refuse(caller, id, r, nil, start, refusal)
	}
	now := a.now()
	if r.HoldS != 0 {
		before, refusal := a.holds.asked(v, r, now)
		if refusal != nil {
			return nil, a.refuse(caller, id, r, v, start, refusal)
		}
		if before != nil {
			return before, nil
		}
	}
	resp, refusal := a.advise(v, r, now)
	if refusal != nil {
		return nil, a.refuse(caller, id, r, v, start, refusal)
	}
	out := &Advice{AdviceID: id, Cluster: v.Cluster, Response: *resp}
	if r.HoldS != 0 {
		if refusal := a.holds.take(v, r, out, now); refusal != nil {
			return nil, a.refuse(caller, id, r, v, start, refusal)
		}
	}
	var err error
	if out.written, err = written(out); err != nil {
		a.holds.release(id)
		return nil, a.refuse(caller, id, r, v, start, &advise.Refusal{Code: advise.InvalidRequest, Detail: err.Error(), Remedy: "change the request"})
	}
	if a.ledger != nil {
		row := a.row(caller, id, r, v, start)
		row.Cluster, row.Strategy, row.Recommendation = v.Cluster, resp.Strategy, resp.Recommendation
		if len(resp.Candidates) > 0 {
			c := &resp.Candidates[0]
			wait := uint32(min(max(0, c.WaitS), 1<<32-1))
			row.WaitS = &wait
			for _, d := range c.Domains {
				row.Domains, row.DomainNodes = append(row.Domains, d.ID), append(row.DomainNodes, uint32(d.Nodes))
			}
			if s := c.Predicted.Slowdown; s != nil {
				low, high := float32(s[0]), float32(s[1])
				row.SlowdownLow, row.SlowdownHigh = &low, &high
			}
			row.Basis = c.Predicted.Basis
		}
		row.Answer = out.written[:len(out.written)-1] // without the end of the line
		a.ledger.Add(row)
	}
	return out, nil
}

// settled is how long an instant must be over to be asked about: what was told of it is in the tables by then.
const settled = time.Minute

// askPast answers a question about a past instant from the tables, beside the way of those that place jobs: one at a time, and
// not in the ledger.
func (a *advisor) askPast(ctx context.Context, r *advise.Request, fresh func(context.Context, string) (read.Freshness, error)) (*Advice, error) {
	at := r.AsOf.UTC()
	switch {
	case r.HoldS != 0:
		return nil, noAdvice(&advise.Refusal{Code: advise.InvalidRequest, Detail: "hold_s and as_of", Remedy: "the past cannot be held: leave one of them out"})
	case at.After(a.now().Add(-settled)):
		return nil, noAdvice(&advise.Refusal{Code: advise.InvalidRequest, Detail: fmt.Sprintf("as_of %s is not a minute over", at.Format(time.RFC3339)),
			Remedy: "leave as_of out to ask about now"})
	}
	select {
	case a.past <- struct{}{}:
		defer func() { <-a.past }()
	default:
		return nil, noAdvice(&advise.Refusal{Code: codeOverloaded, Detail: "another question about the past is in work", Remedy: "ask again in a second"})
	}
	now, refusal := a.view(r.Cluster)
	if refusal != nil {
		return nil, noAdvice(refusal)
	}
	v, err := a.feed.Past(ctx, now.Cluster, at)
	if errors.Is(err, live.ErrUnknown) {
		return nil, noAdvice(&advise.Refusal{Code: advise.TopologyUnknown, Detail: "where nodes sat is not known: " + err.Error(), Remedy: "ask about a later instant"})
	} else if err != nil {
		return nil, err
	}
	complete, err := fresh(ctx, v.Cluster)
	if err != nil {
		return nil, err
	}
	resp, refusal := a.advise(v, r, at)
	if refusal != nil {
		none := noAdvice(refusal)
		none.Snapshot = a.snapshot(v, at)
		return nil, none
	}
	out := &Advice{Cluster: v.Cluster, Response: *resp, Freshness: &complete}
	out.written, err = written(out)
	return out, err
}

// written is JSON as every answer of the API is written: a line, with < and & as they are.
func written(v any) ([]byte, error) {
	var out line
	to := json.NewEncoder(&out)
	to.SetEscapeHTML(false)
	err := to.Encode(v)
	return out, err
}

// line keeps what is written to it, and no room for more: an encoder writes all at once.
type line []byte

// Write implements io.Writer.
func (l *line) Write(text []byte) (int, error) {
	*l = append(*l, text...)
	return len(text), nil
}

// advise answers from a picture, with what is known of earlier runs of the same user and name filled in.
func (a *advisor) advise(v *live.View, r *advise.Request, now time.Time) (*advise.Response, *advise.Refusal) {
	if r.GPUModel != "" && !modelKnown(v.Snapshot.Topology) {
		return nil, &advise.Refusal{Code: advise.TopologyUnknown, Detail: "the GPU model of no node is known", Remedy: "ask without gpu_model"}
	}
	lag := v.TopologyLag(now)
	if lag > a.maxLag && !r.AllowStale {
		return nil, &advise.Refusal{Code: advise.StaleSnapshot, Detail: fmt.Sprintf("nodes have been moving between domains for %d s and the passes have not judged it yet", int64(lag.Seconds())),
			Remedy: "place the job without advice, or set allow_stale; the operator should look at `spillway enrich`"}
	}
	filled := *r
	filled.Cluster = v.Cluster
	if filled.DurationS == 0 || filled.MeasuredGBps == 0 {
		seconds, gbps := v.Usual(r.User, r.Name)
		if filled.DurationS == 0 && seconds > 0 {
			filled.DurationS, filled.DurationBasis = seconds, "history"
		}
		if filled.MeasuredGBps == 0 {
			filled.MeasuredGBps = gbps
		}
	}
	resp, err := a.cfg.AdviseAged(v.Snapshot, &filled, now, age(v, now), a.keptFor(v, r, now))
	if err == nil {
		a.complete(&resp.Snapshot, v, now)
		return resp, nil
	}
	var refusal *advise.Refusal
	if errors.As(err, &refusal) {
		return nil, refusal
	}
	return nil, &advise.Refusal{Code: advise.InvalidRequest, Detail: err.Error(), Remedy: "change the request"}
}

// keptFor are the nodes that short holds keep from an asker.
func (a *advisor) keptFor(v *live.View, r *advise.Request, now time.Time) []advise.Kept {
	if v.IsPast() {
		return nil
	}
	return a.holds.kept(v, r, now)
}

func modelKnown(t *advise.Topology) bool {
	for i := range t.Domains {
		if t.Domains[i].Model != "" {
			return true
		}
	}
	return false
}

func (a *advisor) row(caller, id string, r *advise.Request, v *live.View, start time.Time) ledger.Answer {
	row := ledger.Answer{
		AskedAt: a.now(), Cluster: r.Cluster, AdviceID: id, RequestID: r.RequestID, Caller: caller, JobID: r.Job, User: r.User, JobName: r.Name,
		Tenant: r.Tenant, Class: r.Class, Mode: string(r.Mode), GPUs: uint32(max(0, r.GPUs)), SegmentNodes: uint32(max(0, r.SegmentNodes)),
		TookUS: uint32(min(time.Since(start).Microseconds(), 1<<31)),
	}
	if v != nil {
		row.Cluster, row.SnapshotSeq, row.Generation = v.Cluster, v.Snapshot.Seq, v.Snapshot.Topology.Generation
		if age, known := v.Age(a.now()); known {
			ms := uint32(min(age.Milliseconds(), 1<<31))
			row.AgeMS = &ms
		}
	}
	return row
}

func (a *advisor) refuse(caller, id string, r *advise.Request, v *live.View, start time.Time, refusal *advise.Refusal) *NoAdvice {
	out := noAdvice(refusal)
	out.AdviceID, out.Snapshot = id, a.snapshot(v, a.now())
	if a.ledger != nil {
		row := a.row(caller, id, r, v, start)
		row.Code = refusal.Code
		row.Answer, _ = json.Marshal(out)
		a.ledger.Add(row)
	}
	return out
}

// snapshot says what an answer from a picture rests on; nil where there is none.
func (a *advisor) snapshot(v *live.View, now time.Time) *advise.SnapshotInfo {
	if v == nil {
		return nil
	}
	info := a.cfg.Info(v.Snapshot, age(v, now))
	a.complete(&info, v, now)
	return &info
}

// complete adds what a snapshot does not know of itself: that its topology is behind by so much, which makes it stale too, and
// of which past instant it is.
func (a *advisor) complete(info *advise.SnapshotInfo, v *live.View, now time.Time) {
	lag := v.TopologyLag(now)
	info.TopologyLagMS, info.Stale = lag.Milliseconds(), info.Stale || lag > a.maxLag
	if v.IsPast() {
		at := v.AsOf()
		info.AsOf = &at
	}
}

// age is how old a picture is; nil where nobody can say.
func age(v *live.View, now time.Time) *time.Duration {
	if old, known := v.Age(now); known {
		return &old
	}
	return nil
}

// adviceRoutes registers what rests on the advisor.
func (s *Server) adviceRoutes() {
	s.ask()
	get(s, "grade-advice", "/v1/advice/grade", "What became of the advice that was given", s.gradeAdvice)
	get(s, "list-links", "/v1/links", "How fast links are by tests of communication, by level and domain", s.links)
	get(s, "list-runs", "/v1/runs", "Runs that have ended: what `spillway simulate --from-history` tries policies on", s.runs)
	get(s, "list-holds", "/v1/holds", "Short holds: nodes that this process keeps for those who asked with hold_s", s.listHolds)
	post(s, "release-hold", "/v1/holds/{id}/release", "End a short hold before its time", http.StatusOK, s.releaseHold)
	post(s, "tell-feedback", "/v1/feedback", "Which job an advice was for, what was taken of it and what came of it", http.StatusAccepted, s.feedback)
	post(s, "what-if", "/v1/whatif", "What draining domains or ending jobs would change", http.StatusOK, s.whatIf)
	get(s, "get-fragmentation", "/v1/fragmentation", "How far free GPUs are of use to gangs, now and over time", s.fragmentation)
}

// ask registers the advisor's question. Its answer goes out as it was written for the ledger.
func (s *Server) ask() {
	const id = "advise"
	op := s.posting(id, "/v1/advice", "Where a job should go, when, at what predicted cost, and why", http.StatusOK)
	op.Responses["200"] = &huma.Response{Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(typeOf[Advice](), true, "Advice")}}}
	type lineOf struct{ Body func(huma.Context) }
	huma.Register(s.api, op, func(ctx context.Context, in *struct{ Body advise.Request }) (*lineOf, error) {
		return observed(s, id, func() (*lineOf, error) {
			var out *Advice
			if in.Body.AsOf != nil {
				var err error
				if out, err = s.advisor.askPast(ctx, &in.Body, s.deps.Reader.Freshness); err != nil {
					return nil, err
				}
			} else {
				var none *NoAdvice
				if out, none = s.advisor.ask("api", &in.Body); none != nil {
					return nil, none
				}
			}
			return &lineOf{func(ctx huma.Context) {
				ctx.SetHeader("Content-Type", "application/json")
				ctx.SetStatus(http.StatusOK)
				_, _ = ctx.BodyWriter().Write(out.written)
			}}, nil
		})
	})
}

// post registers one POST operation and measures it.
func post[I, O any](s *Server, id, path, summary string, status int, fn func(context.Context, *I) (*O, error)) {
	huma.Register(s.api, s.posting(id, path, summary, status), func(ctx context.Context, in *I) (*answer[O], error) {
		out, err := observed(s, id, func() (*O, error) { return fn(ctx, in) })
		if err != nil {
			return nil, err
		}
		return &answer[O]{Body: *out}, nil
	})
}

// failsOpen tells callers that read nothing else of an answer that is none to go on as before, whoever refuses: the schema too.
type failsOpen struct{ humaContext }

type humaContext huma.Context

// SetStatus implements huma.Context.
func (c failsOpen) SetStatus(status int) {
	if status >= 400 {
		c.SetHeader("X-Advice", "none")
	}
	c.humaContext.SetStatus(status)
}

// posting describes a POST operation.
func (s *Server) posting(id, path, summary string, status int) huma.Operation {
	problem := s.api.OpenAPI().Components.Schemas.Schema(typeOf[NoAdvice](), true, "NoAdvice")
	op := huma.Operation{OperationID: id, Method: http.MethodPost, Path: path, Summary: summary, DefaultStatus: status, MaxBodyBytes: 1 << 20,
		Responses: map[string]*huma.Response{}, Middlewares: huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) { next(failsOpen{ctx}) }}}
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable} {
		op.Responses[strconv.Itoa(code)] = &huma.Response{Description: http.StatusText(code), Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: problem}}}
	}
	// A request that breaks the schema is refused before it gets here.
	invalid := s.api.OpenAPI().Components.Schemas.Schema(typeOf[huma.ErrorModel](), true, "ErrorModel")
	op.Responses["422"] = &huma.Response{Description: http.StatusText(http.StatusUnprocessableEntity), Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: &huma.Schema{OneOf: []*huma.Schema{problem, invalid}}}}}
	return op
}

type gradeParam struct {
	ClusterParam
	Since time.Time `query:"since" doc:"RFC 3339; empty = a day ago."`
}

type grades struct {
	Since  time.Time      `json:"since"`
	AsOf   time.Time      `json:"as_of"`
	Grades []ledger.Grade `json:"grades"`
	Fits   []fit          `json:"fits" doc:"The speed between domains that explains best what splits of the last 30 days did to jobs, and the share of them inside the predicted interval with the configured speed and with this one; beside it what tests of the links measured. To use a speed, configure it: api.links, advise.levels."`
}

func (s *Server) gradeAdvice(ctx context.Context, in *gradeParam) (*grades, error) {
	if s.deps.Ledger == nil {
		return nil, noAdvice(&advise.Refusal{Code: codeNotReady, Detail: "this process keeps no ledger", Remedy: "ask one that serves with Kafka configured"})
	}
	out := &grades{Since: in.Since, AsOf: s.deps.Now()}
	if out.Since.IsZero() {
		out.Since = out.AsOf.Add(-24 * time.Hour)
	}
	var err error
	if out.Grades, err = s.deps.Ledger.Grades(ctx, in.Cluster, out.Since); err != nil {
		return nil, err
	}
	since := out.AsOf.Add(-s.advise.Feed.History)
	fits, err := s.deps.Ledger.Calibrate(ctx, in.Cluster, since, s.advisor.cfg.Links)
	if err != nil {
		return nil, err
	}
	speeds, err := s.deps.Reader.LinkSpeeds(ctx, in.Cluster, since, out.AsOf)
	if err != nil {
		return nil, err
	}
	out.Fits = fitted(s.advisor.cfg.Links, fits, speeds)
	return out, nil
}

type runsParam struct {
	ClusterParam
	Since time.Time `query:"since" doc:"RFC 3339; empty = a week before until."`
	Until time.Time `query:"until" doc:"RFC 3339; empty = now."`
	Limit uint64    `query:"limit" minimum:"1" maximum:"200000" default:"50000"`
}

func (s *Server) runs(ctx context.Context, in *runsParam) (*read.Runs, error) {
	until := s.at(in.Until)
	since := in.Since
	if since.IsZero() {
		since = until.Add(-7 * 24 * time.Hour)
	}
	return s.deps.Reader.Runs(ctx, in.Cluster, since, until, in.Limit)
}

type feedbackBody struct {
	AdviceID string   `json:"advice_id" minLength:"1" maxLength:"64"`
	Cluster  string   `json:"cluster,omitempty" maxLength:"1024"`
	Job      string   `json:"job,omitempty" maxLength:"1024" doc:"The scheduler's id of the job that the advice was for."`
	Chosen   *uint8   `json:"chosen,omitempty" doc:"Rank of the candidate taken; 0 = none of them."`
	Slowdown *float32 `json:"slowdown,omitempty" minimum:"0.01" maximum:"1000" doc:"Measured step time over the step time in the best shape."`
	Comment  string   `json:"comment,omitempty" maxLength:"4096"`
}

type accepted struct {
	Accepted bool `json:"accepted"`
}

func (s *Server) feedback(_ context.Context, in *struct{ Body feedbackBody }) (*accepted, error) {
	cluster := in.Body.Cluster
	v, refusal := s.advisor.view(cluster)
	if refusal != nil && (cluster == "" || refusal.Code == codeUnknown) {
		return nil, noAdvice(refusal)
	}
	if v != nil {
		cluster = v.Cluster
	}
	f := ledger.Feedback{
		ToldAt: s.deps.Now(), Cluster: cluster, AdviceID: in.Body.AdviceID, JobID: in.Body.Job, Chosen: in.Body.Chosen,
		Slowdown: in.Body.Slowdown, Comment: in.Body.Comment,
	}
	s.advisor.holds.tell(f.AdviceID, f.JobID, f.Chosen)
	if s.deps.Ledger == nil || !s.deps.Ledger.Tell(f) {
		return nil, noAdvice(&advise.Refusal{Code: codeOverloaded, Detail: "the ledger takes no more feedback now", Remedy: "tell it again in a second"})
	}
	return &accepted{Accepted: true}, nil
}
