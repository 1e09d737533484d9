package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// probed is a flow without collectors, and a prober of it.
func probed(t *testing.T, run stages, out func(*flow) collect.Emitter, within time.Duration) *prober {
	t.Helper()
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	f := running(t, &s, run)
	api := &client{base: "http://" + f.server.Addr(), output: "json", formats: []string{"json"}}
	return newProber(out(f), api, within, prometheus.NewRegistry())
}

// value is that of one counter or gauge.
func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetCounter().GetValue() + d.GetGauge().GetValue()
}

var allButCollect = stages{load: true, enrich: true, serve: true}

func TestProbeSeesASpillComeAndGo(t *testing.T) {
	p := probed(t, allButCollect, func(f *flow) collect.Emitter { return f.producer }, 60*time.Second)
	for range 2 { // the second finds what the first left
		took, err := p.once(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seen in %s, gone in %s", took.seen, took.gone)
	}
	if n := value(t, p.results.WithLabelValues("ok")); n != 2 {
		t.Errorf("%v probes went well, want 2", n)
	}
	if value(t, p.last) == 0 {
		t.Error("the time of the last success is not told")
	}
}

// dropping loses every placement on its way.
type dropping struct{ collect.Emitter }

func (d dropping) Emit(ctx context.Context, records ...event.Record) error {
	for _, r := range records {
		if _, ok := r.(*event.Placement); !ok {
			if err := d.Emitter.Emit(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestProbeTellsWhatIsBroken(t *testing.T) {
	p := probed(t, allButCollect, func(f *flow) collect.Emitter { return dropping{f.producer} }, 2*time.Second)
	_, err := p.once(t.Context())
	var failed *errProbe
	if !errors.As(err, &failed) || failed.step != "verdict" || !strings.Contains(err.Error(), "never seen") {
		t.Errorf("got %v, want a failure at the verdict", err)
	}
	if n := value(t, p.results.WithLabelValues("verdict")); n != 1 {
		t.Errorf("%v failures at the verdict are counted, want 1", n)
	}
}
