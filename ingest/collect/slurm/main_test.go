package slurm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spillway-io/spillway/schemas/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded documents are shared with the decoder's tests.
const samples = "slurmjson/testdata/"

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// testConfig is the default one with rules.
func testConfig() Config {
	cfg := DefaultConfig()
	cfg.ServiceClasses = []ClassRule{
		{Class: "pretraining", Match: Match{Accounts: []string{"ml-pre"}}},
		{Class: "serving", Match: Match{Accounts: []string{"serving"}}},
	}
	cfg.Probes = []Match{{Names: []string{"infer-*"}}}
	return cfg
}

// keep is an Emitter that remembers.
type keep struct {
	mu      sync.Mutex
	records []event.Record
}

func (k *keep) Emit(_ context.Context, records ...event.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records = append(k.records, records...)
	return nil
}

func replayed(t testing.TB, paths ...string) []event.Record {
	t.Helper()
	var out keep
	if err := ReplayFiles(t.Context(), paths, ReplayOptions{Config: testConfig(), Log: quiet()}, &out); err != nil {
		t.Fatal(err)
	}
	return out.records
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
			t.Fatalf("differs from %s at line %d; run with SPILLWAY_UPDATE_GOLDEN=1 and read the diff\n got %s\nwant %s", path, i+1, at(g, i), at(w, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

func placements(records []event.Record) []*event.Placement {
	var out []*event.Placement
	for _, r := range records {
		if p, ok := r.(*event.Placement); ok {
			out = append(out, p)
		}
	}
	return out
}
