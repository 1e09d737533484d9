package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/spillway-io/spillway/query/read"
)

// questionRoutes registers what people ask when they compare, plan or look back.
func (s *Server) questionRoutes() {
	get(s, "compare-job", "/v1/jobs/{job}/compare", "A run against earlier ones of the same user and name", s.compare)
	get(s, "list-exceptions", "/v1/exceptions", "Running jobs whose life-cycle facts do not fit together", s.exceptions)
	get(s, "compare-views", "/v1/views", "Where the scheduler's view of the nodes and Spillway's differ", s.views)
	get(s, "list-outcomes", "/v1/outcomes", "What became of what jobs asked of the topology, by queue", s.asked)
	get(s, "get-occupancy", "/v1/audit/occupancy", "Who held GPUs of one NVLink domain over a time", s.occupancy)
}

// SpanParam names a time; an empty since is so long before until as the operation says.
type SpanParam struct {
	Since time.Time `query:"since" doc:"RFC 3339; empty = a week before until."`
	Until time.Time `query:"until" doc:"RFC 3339; empty = now."`
}

type askedParam struct {
	ClusterParam
	SpanParam
}

type occupancyParam struct {
	ClusterParam
	SpanParam
	Domain string `query:"domain" required:"true" minLength:"1" maxLength:"1024" doc:"The domain's id, or the rack or block it is known by."`
	Limit  uint64 `query:"limit" minimum:"1" maximum:"100000" default:"1000"`
}

// span gives both ends, or says why they are none.
func (s *Server) span(p SpanParam) (since, until time.Time, err error) {
	until, since = s.at(p.Until), p.Since
	if since.IsZero() {
		since = until.Add(-7 * 24 * time.Hour)
	}
	if !since.Before(until) {
		return since, until, huma.Error422UnprocessableEntity("since is not before until: swap them, or leave one out")
	}
	return since, until, nil
}

func (s *Server) compare(ctx context.Context, in *jobAttemptParam) (*read.Compare, error) {
	return s.deps.Reader.Compare(ctx, in.Cluster, in.Job, in.Attempt)
}

func (s *Server) exceptions(ctx context.Context, in *ClusterParam) (*read.Exceptions, error) {
	return s.deps.Reader.Exceptions(ctx, in.Cluster)
}

func (s *Server) views(ctx context.Context, in *ClusterParam) (*read.Views, error) {
	return s.deps.Reader.Views(ctx, in.Cluster)
}

func (s *Server) asked(ctx context.Context, in *askedParam) (*read.Asked, error) {
	since, until, err := s.span(in.SpanParam)
	if err != nil {
		return nil, err
	}
	return s.deps.Reader.Asked(ctx, in.Cluster, since, until)
}

func (s *Server) occupancy(ctx context.Context, in *occupancyParam) (*read.Occupancy, error) {
	since, until, err := s.span(in.SpanParam)
	if err != nil {
		return nil, err
	}
	return s.deps.Reader.Occupancy(ctx, in.Cluster, in.Domain, since, until, in.Limit)
}
