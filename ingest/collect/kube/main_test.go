package kube

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

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

// at is a moment of the tests that make up their objects.
func at(seconds int) time.Time {
	return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func nothing() *slog.Logger { return slog.New(slog.DiscardHandler) }
