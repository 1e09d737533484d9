package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/spillway-io/spillway/query/read"
)

type jobTrafficParam struct {
	JobParam
	Attempt int32     `query:"attempt" minimum:"-1" default:"-1" doc:"Which attempt, from 0; -1 = the newest."`
	Since   time.Time `query:"since" doc:"RFC 3339; empty = the attempt's start."`
	Until   time.Time `query:"until" doc:"RFC 3339; empty = its end, or now."`
}

func (s *Server) traffic(ctx context.Context, in *jobTrafficParam) (*read.JobTraffic, error) {
	if !in.Since.IsZero() && !in.Until.IsZero() && !in.Since.Before(in.Until) {
		return nil, huma.Error422UnprocessableEntity("since is not before until: swap them, or leave one out")
	}
	return s.deps.Reader.JobTraffic(ctx, in.Cluster, in.Job, in.Attempt, in.Since, in.Until)
}
