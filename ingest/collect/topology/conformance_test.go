package topology

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/schemas/event"
)

func TestConformance(t *testing.T) {
	const (
		whole   = "BlockName=a BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
		changed = "BlockName=a BlockIndex=0 Nodes=n[1-3] BlockSize=2\nBlockName=b BlockIndex=1 Nodes=n4 BlockSize=2\n"
	)
	key := func(node string) string { return event.TopicMembership + " nvl/" + node }
	write := func(t *testing.T, path, text string) {
		t.Helper()
		// By rename, as configuration management does: a read sees the old content or the new.
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	for name, breaks := range map[string]struct {
		source func(path string) Source
		broken string
	}{
		"file": {func(path string) Source {
			return Source{Source: "slurm_topology", File: path}
		}, whole[:len(whole)-20]},
		// The command prints the first half, and ends badly for want of the file of that name.
		"command": {func(path string) Source {
			return Source{Source: "slurm_topology", Command: []string{"sh", "-c", `while read -r line; do test "$line" != FAIL || exit 1; echo "$line"; done <"$0"`, path}}
		}, "BlockName=a BlockIndex=0 Nodes=n[1-2] BlockSize=2\nFAIL\n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "topology")
			content := whole
			write(t, path, content)
			cfg := DefaultConfig()
			cfg.Cluster, cfg.Interval = "nvl", 20*time.Millisecond
			cfg.Sources = []Source{breaks.source(path)}
			collecttest.Run(t, collecttest.Source{
				New: func(t *testing.T) collect.Collector {
					t.Helper()
					c, err := New(cfg, Deps{})
					if err != nil {
						t.Fatal(err)
					}
					return c
				},
				Cluster: "nvl",
				Full:    []string{key("n1"), key("n2"), key("n3"), key("n4")},
				Change: func(t *testing.T) []string {
					content = changed
					write(t, path, content)
					return []string{key("n3")}
				},
				Break: func(t *testing.T) { write(t, path, breaks.broken) },
				Mend:  func(t *testing.T) { write(t, path, content) },
			})
		})
	}
}
