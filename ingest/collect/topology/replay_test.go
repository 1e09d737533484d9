package topology

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func replay(t *testing.T, opts ReplayOptions, files map[string]string, order ...string) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, name := range order {
		path := filepath.Join("testdata", name)
		if text, ok := files[name]; ok {
			path = filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		paths = append(paths, path)
	}
	if opts.Cluster == "" {
		opts.Cluster = "nvl"
	}
	var s sink
	err := ReplayFiles(t.Context(), paths, opts, &s)
	members, sources := s.taken()
	if len(sources) > 0 {
		t.Errorf("a replay reports no source, got %q", sources)
	}
	return members, err
}

func TestReplayDeclaresFilesValidFromTheBeginning(t *testing.T) {
	got, err := replay(t, ReplayOptions{}, map[string]string{"a.conf": confTwo, "b.csv": "node,domain\nn1,r\n"}, "a.conf", "b.csv")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"00:00:00 slurm_topology/default n1: block=a domain=a since 2000-01-01",
		"00:00:00 slurm_topology/default n2: block=b domain=b since 2000-01-01",
		"00:00:00 static/static n1: domain=r since 2000-01-01",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	later, err := replay(t, ReplayOptions{ValidFrom: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Choice: Choice{DomainLevel: "none"}}, map[string]string{"a.conf": confOne}, "a.conf")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"03:04:05 slurm_topology/default n1: block=a since 2026-01-02"}, later); d != "" {
		t.Error(d)
	}
}

// All that one cluster's Slurm says of one topology, in any order, is one membership per node under its own name.
func TestReplayTakesTheFilesOfOneSourceTogether(t *testing.T) {
	orders := [][]string{
		{"topology.yaml", "topology.txt", "topoconf.yaml", "nodes.json"},
		{"topology.txt", "nodes.json", "topoconf.yaml"},
		{"nodes.json", "scontrol_topology.txt", "topology.conf"},
	}
	for _, order := range orders {
		got, err := replay(t, ReplayOptions{}, nil, order...)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 54 || got[0] != "00:00:00 slurm_topology/nvl gb-r01-n01: spine=spine leaf=leaf1 block_group=rack[01-02] block=rack01 domain=rack01 since 2000-01-01" {
			t.Errorf("%v: %d records, first %s", order, len(got), got[0])
		}
	}
}

func TestReplayOfNodesWithTopologiesOfTheirOwn(t *testing.T) {
	got, err := replay(t, ReplayOptions{Choice: Choice{Kinds: map[string]Kind{"nvl": KindBlock}}}, nil, "nodes_dynamic.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"00:00:00 slurm_topology/nvl gb-r01-n01: spine=spine leaf=leaf1 block=rack01 domain=rack01 since 2000-01-01",
		"00:00:00 slurm_topology/nvl gb-r03-n01: torus=t1 block=rack03 domain=rack03 since 2000-01-01",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestReplayErrors(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		order []string
		want  string
	}{
		"two files that disagree": {map[string]string{"a.conf": confTwo, "b.conf": confMoved}, []string{"a.conf", "b.conf"},
			"replay topology: DIR/a.conf and DIR/b.conf disagree on the block topology default, and neither says when it held; replay the one that was in force"},
		"a file that is none":      {map[string]string{"x": "hello"}, []string{"x"}, "replay topology: DIR/x: not a topology that is known here"},
		"a file that is not there": {nil, []string{"gone"}, "replay topology: open topology: open testdata/gone: no such file or directory"},
		"a name that is no name":   {map[string]string{"a": "BlockName=\"\x01\" Nodes=n1"}, []string{"a"}, "replay topology: node n1: record breaks the contract"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := replay(t, ReplayOptions{}, c.files, c.order...)
			text := fmt.Sprint(err)
			if i := strings.Index(text, os.TempDir()); i >= 0 {
				text = strings.ReplaceAll(text, filepath.Dir(strings.FieldsFunc(text[i:], func(r rune) bool { return r == ' ' || r == ':' })[0]), "DIR")
			}
			if !strings.HasPrefix(text, c.want) {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
	if err := ReplayFiles(t.Context(), nil, ReplayOptions{}, &sink{}); err == nil {
		t.Error("a replay needs a cluster")
	}
}

func TestRecognize(t *testing.T) {
	packed := filepath.Join(t.TempDir(), "nodes.json.gz")
	f, err := os.Create(packed)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write(testdata(t, "nodes.json")); err != nil || z.Close() != nil || f.Close() != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		packed: true, "testdata/topology.conf": true, "testdata/topograph-request.json": false, "replay_test.go": false, os.DevNull: false,
	} {
		if got, err := Recognize(path); err != nil || got != want {
			t.Errorf("%s: %v %v, want %v", path, got, err, want)
		}
	}
}
