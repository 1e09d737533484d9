package slurm

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

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
