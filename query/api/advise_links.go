package api

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/ledger"
	"github.com/spillway-io/spillway/query/read"
)

type linksParam struct {
	ClusterParam
	Since  time.Time `query:"since" doc:"RFC 3339; empty = 30 days before until."`
	Until  time.Time `query:"until" doc:"RFC 3339; empty = now."`
	Limit  uint32    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor string    `query:"cursor" maxLength:"64" doc:"next of the page before."`
}

// measuredFreshness says how old measurements are: they come when somebody runs a test, and not with every read of a source.
type measuredFreshness struct {
	AsOf *time.Time `json:"as_of" doc:"When the newest run of the time asked for was; null when there was none."`
	AgeS *float64   `json:"age_seconds" doc:"Seconds since as_of; null when there was none."`
}

type linksPage struct {
	Since     time.Time         `json:"since"`
	Until     time.Time         `json:"until"`
	Total     int               `json:"total"`
	Links     []read.LinkSpeed  `json:"links" doc:"By cluster, level and domains; bytes per second."`
	Next      *string           `json:"next" doc:"Cursor of the next page; null = this is the last."`
	Freshness measuredFreshness `json:"freshness"`
}

// usualHistory of measurements is looked at where nobody says since when.
const usualHistory = 30 * 24 * time.Hour

func (s *Server) links(ctx context.Context, in *linksParam) (*linksPage, error) {
	offset, err := cursorOffset(in.Cursor)
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	span := SpanParam{Since: in.Since, Until: s.at(in.Until)}
	if span.Since.IsZero() {
		span.Since = span.Until.Add(-usualHistory)
	}
	since, until, err := s.span(span)
	if err != nil {
		return nil, err
	}
	all, err := s.deps.Reader.LinkSpeeds(ctx, in.Cluster, since, until)
	if err != nil {
		return nil, err
	}
	from := min(int(offset), len(all))
	to := min(from+int(in.Limit), len(all))
	out := &linksPage{Since: since, Until: until, Total: len(all), Links: append([]read.LinkSpeed{}, all[from:to]...)}
	if to < len(all) {
		next := base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(to)))
		out.Next = &next
	}
	for i := range all {
		if out.Freshness.AsOf == nil || all[i].Newest.After(*out.Freshness.AsOf) {
			out.Freshness.AsOf = &all[i].Newest
		}
	}
	if out.Freshness.AsOf != nil {
		out.Freshness.AgeS = new(s.deps.Now().Sub(*out.Freshness.AsOf).Seconds())
	}
	return out, nil
}

// fit is what is known of the speeds of one cluster beside those that are configured.
type fit struct {
	Cluster     string              `json:"cluster"`
	Calibration *advise.Calibration `json:"calibration,omitempty" doc:"By what splits did to jobs; absent where no split could be compared."`
	Measured    []measuredSpeed     `json:"measured" doc:"By nccl-tests of the same days, for each level. Nothing is changed by it."`
}

// measuredSpeed is what one GPU carried in one direction over the links of a level, by communication tests.
type measuredSpeed struct {
	Level      string    `json:"level" doc:"Innermost level that held all nodes of the runs."`
	Joined     *bool     `json:"multi_node_nvlink" doc:"Whether NCCL joined the nodes by NVLink; null when it does not say."`
	Configured *float64  `json:"configured_GBps,omitempty" doc:"What predictions take for it; absent where the configuration has no speed of this level."`
	Low        float64   `json:"measured_p10_GBps"`
	Middle     float64   `json:"measured_GBps" doc:"The median of the runs."`
	High       float64   `json:"measured_p90_GBps"`
	Runs       uint64    `json:"runs"`
	Newest     time.Time `json:"newest"`
}

// fitted puts calibrations and measurements of each cluster together, by cluster.
func fitted(links advise.Links, fits []ledger.Fit, speeds []read.LinkSpeed) []fit {
	out := []fit{}
	of := func(cluster string) *fit {
		i := slices.IndexFunc(out, func(f fit) bool { return f.Cluster == cluster })
		if i < 0 {
			i, out = len(out), append(out, fit{Cluster: cluster, Measured: []measuredSpeed{}})
		}
		return &out[i]
	}
	for i := range fits {
		of(fits[i].Cluster).Calibration = &fits[i].Calibration
	}
	for _, l := range speeds {
		if !l.WholeLevel || l.PerGPUP50 == nil || l.PerGPUP10 == nil || l.PerGPUP90 == nil {
			continue
		}
		f := of(l.Cluster)
		f.Measured = append(f.Measured, measuredSpeed{
			Level: l.Level, Joined: l.Joined, Configured: configured(links, l), Low: *l.PerGPUP10 / 1e9, Middle: *l.PerGPUP50 / 1e9,
			High: *l.PerGPUP90 / 1e9, Runs: l.RunsPerGPU, Newest: l.Newest,
		})
	}
	slices.SortFunc(out, func(a, b fit) int { return strings.Compare(a.Cluster, b.Cluster) })
	return out
}

// configured is the speed that predictions take for what was measured; nil where they have none of their own for it, as for
// nodes of a domain that NCCL did not join by NVLink.
func configured(links advise.Links, l read.LinkSpeed) *float64 {
	speed := links.Levels[l.Level]
	switch {
	case l.Level == "cluster":
		speed = links.Cluster
	case l.Level == "domain" && l.Joined != nil && *l.Joined:
		speed = links.Domain
	}
	if speed <= 0 {
		return nil
	}
	return &speed
}
