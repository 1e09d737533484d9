package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.Cluster = "k"
	cfg.ServiceClasses = []collect.ClassRule{
		{Class: "pretraining", Match: collect.Match{Users: []string{"team-pretrain"}}},
		{Class: "inference", Match: collect.Match{Users: []string{"*-infer"}}},
	}
	return cfg
}

// keep is an Emitter that remembers.
type keep struct{ records []event.Record }

func (k *keep) Emit(_ context.Context, records ...event.Record) error {
	k.records = append(k.records, records...)
	return nil
}

func replayed(t testing.TB, names ...string) []event.Record {
	t.Helper()
	var paths []string
	for _, n := range names {
		paths = append(paths, filepath.Join("testdata", n))
	}
	var out keep
	if err := ReplayFiles(t.Context(), paths, ReplayOptions{Config: testConfig()}, &out); err != nil {
		t.Fatal(err)
	}
	return out.records
}

// moment are the recorded lists of one moment.
func moment(name string) (out []string) {
	for _, k := range []kind{kindNodes, kindPods, kindWorkloads, kindClaims, kindSlices, kindDomains, kindCliques} {
		out = append(out, name+"-"+string(k)+".json.gz")
	}
	return out
}

// recorded is the content of a file under testdata, unpacked.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	f, err := collect.OpenRecorded(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lines prints records one a line, in a form that does not change from run to run.
func lines(t testing.TB, records []event.Record) string {
	t.Helper()
	var b bytes.Buffer
	for _, r := range records {
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", r.RecordKey(), err)
		}
		raw, err := protojson.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(strings.TrimPrefix(fmt.Sprintf("%T ", r), "*event."))
		if err := json.Compact(&b, raw); err != nil {
			t.Fatal(err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// golden compares with a file under testdata/golden; SPILLWAY_UPDATE_GOLDEN=1 writes it anew.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if os.Getenv("SPILLWAY_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("differs from %s at line %d; run with SPILLWAY_UPDATE_GOLDEN=1 and read the diff\n got %s\nwant %s", path, i+1, line(g, i), line(w, i))
		}
	}
}

func line(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

func placements(records []event.Record) (out []*event.Placement) {
	for _, r := range records {
		if p, ok := r.(*event.Placement); ok {
			out = append(out, p)
		}
	}
	return out
}

// at is a moment of the tests that make up their objects.
func at(seconds int) time.Time {
	return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func nothing() *slog.Logger { return slog.New(slog.DiscardHandler) }
