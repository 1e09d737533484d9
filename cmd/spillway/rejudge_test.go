package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/internal/testenv"
)

// A longer window makes other figures, and with them other verdicts; judged once more, nothing changes.
func TestRejudgeGoesByTheConfigurationOfNow(t *testing.T) {
	dir := t.TempDir()
	s := defaultSettings()
	s.Engine.DataDir = filepath.Join(dir, "data")
	s.API.Listen = "127.0.0.1:0"
	s.Collect.Sources = []string{"simulate"}
	ctx, stop := context.WithCancel(t.Context())
	f, err := open(ctx, &s, stages{collect: true, load: true, enrich: true}, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	// Of passes that finished: what one that was stopped has written is judged anew at the next start, before anything else.
	testenv.Eventually(t, patience, func() error {
		var spills uint64
		if err := f.conn.QueryRow(ctx, `SELECT count() FROM verdicts WHERE outcome = 'spill' AND cause != ''
			AND version <= (SELECT max(version) FROM pass_progress WHERE pass = 'judge')`).Scan(&spills); err != nil || spills < 5 {
			return fmt.Errorf("%d spills: %w", spills, err)
		}
		return nil
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	f.close()
	config := filepath.Join(dir, "spillway.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "engine: {data_dir: %s}\nenrich: {window: 240h}\ntelemetry: {log_level: warn}\n", s.Engine.DataDir), 0o600); err != nil {
		t.Fatal(err)
	}
	rejudge := func() string {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{"rejudge", "-c", config, "--since", "30d"}, &stdout, &stderr); code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		return stdout.String()
	}
	if said := rejudge(); strings.Contains(said, " 0 verdicts") || strings.HasPrefix(said, "0 placements") {
		t.Errorf("with another window it said %q", said)
	}
	if said := rejudge(); !strings.Contains(said, ": 0 verdicts") {
		t.Errorf("with nothing new it said %q", said)
	}
}
