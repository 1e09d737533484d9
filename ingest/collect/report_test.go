package collect

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/schemas/event"
)

// reports keeps the source records that it is given, unless the pipeline is down.
type reports struct {
	down    bool
	records []string
}

func (r *reports) Emit(_ context.Context, records ...event.Record) error {
	if r.down {
		return errors.New("the pipeline is down")
	}
	for _, record := range records {
		s := record.(*event.Source)
		line := time.UnixMilli(s.ObservedAtMs).UTC().Format("04:05")
		if s.GoodAtMs != nil {
			line += " good " + time.UnixMilli(*s.GoodAtMs).UTC().Format("04:05")
		}
		for _, told := range s.Told {
			line += " told " + told.Source
		}
		r.records = append(r.records, strings.TrimSpace(line+" "+s.Problem))
	}
	return nil
}

// TestReporter: a source that turns bad or good is reported at once, else every ten seconds, and again where that failed.
func TestReporter(t *testing.T) {
	now := time.Unix(0, 0)
	r := Reporter{
		Cluster: "c", Source: "s", Interval: time.Second, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
		Told: func() []*event.Told { return []*event.Told{{Source: "s.nodes"}} },
	}
	var out reports
	for _, step := range []struct {
		at   int
		bad  bool
		down bool
		want string // the record; "" = none
	}{
		{0, true, false, "00:00 told s.nodes no answer"},
		{1, true, false, ""},
		{2, false, false, "00:02 good 00:02 told s.nodes"},
		{11, false, false, ""},
		{12, false, true, ""},
		{13, false, false, "00:13 good 00:13 told s.nodes"},
		{14, true, false, "00:14 good 00:13 told s.nodes no answer"},
	} {
		now, out.down, out.records = time.Unix(int64(step.at), 0), step.down, nil
		if !step.bad {
			r.Good(now)
		}
		emitted := r.Report(t.Context(), &out, step.bad, func() string { return "no answer" })
		if got := strings.Join(out.records, "; "); got != step.want || emitted != (step.want != "") {
			t.Errorf("after %d s: %t and %q, want %q", step.at, emitted, got, step.want)
		}
	}
}

func TestSummary(t *testing.T) {
	got := []string{Summary(nil, "files"), Summary(map[string]string{"a": "gone"}, "files"), Summary(map[string]string{"a": "old", "b": "gone"}, "files")}
	if diff := cmp.Diff([]string{"", "gone", "2 files are not read, as: gone"}, got); diff != "" {
		t.Error(diff)
	}
}
