package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

const ncclData = "../../ingest/collect/nccl/testdata/"

// TestBenchmarksBecomeLinkSpeeds sends recorded outputs of nccl-tests by the command, twice, through the whole flow: they
// are joined with the domains that their nodes were in when the files were written.
func TestBenchmarksBecomeLinkSpeeds(t *testing.T) {
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	f := running(t, &s, allButCollect)
	written := time.Now().Add(-time.Hour).Truncate(time.Second)
	var members []event.Record
	for _, rack := range []string{"r03", "r05"} {
		for tray := range 18 {
			members = append(members, &event.Membership{
				Cluster: "alpha", Node: fmt.Sprintf("gb200-%s-t%02d", rack, tray), Source: event.SourceStatic,
				Levels:       []*event.Level{{Level: event.LevelLeaf, Value: "l1"}, {Level: event.LevelDomain, Value: rack}},
				ObservedAtMs: written.Add(-time.Hour).UnixMilli(), Revision: 1,
			})
		}
	}
	if err := f.producer.Emit(t.Context(), members...); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"gb200_72gpu_one_domain", "gb200_16gpu_two_domains", "h100_8gpu", "old_format_truncated"} {
		text, err := os.ReadFile(ncclData + "nccl_all_reduce_perf_" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		switch name { // with NCCL's own word for it
		case "gb200_72gpu_one_domain":
			text = append([]byte("gb200-r03-t00:30000:1 [0] NCCL INFO comm 0xa rank 0 nRanks 72 nNodes 1 localRanks 72 localRank 0 MNNVL 1\n"), text...)
		case "gb200_16gpu_two_domains":
			text = append([]byte("gb200-r03-t00:30000:1 [0] NCCL INFO comm 0xa rank 0 nRanks 16 nNodes 4 localRanks 4 localRank 0 MNNVL 0\n"), text...)
		}
		path := filepath.Join(dir, name+".log")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
	}
	t.Setenv("SPILLWAY_ENGINE_KAFKA_BROKERS", strings.Join(f.engines.Kafka.Brokers, ","))
	for range 2 {
		var stdout, stderr bytes.Buffer
		args := append([]string{"nccl", "--cluster", "alpha", "-o", "json"}, files...)
		if code := run(context.Background(), args, &stdout, &stderr); code != exitOK {
			t.Fatalf("exit code %d: %s", code, stderr.String())
		}
		var first benchmarkLine
		if err := json.NewDecoder(&stdout).Decode(&first); err != nil || first.GPUs != 72 || first.Nodes != 18 || first.BusGBs != 842 {
			t.Errorf("%+v, %v", first, err)
		}
	}
	// 8 GPUs of each domain, not joined: each node's 4 GPUs drive 4 NICs, 182.6 GB/s between them.
	want := []string{"domain r03 842 GB/s, 842 a GPU", "leaf r03+r05 182.6 GB/s, 45.65 a GPU", "node  481.2 GB/s, 481.2 a GPU"}
	testenv.Eventually(t, time.Minute, func() error {
		speeds, err := f.reader.LinkSpeeds(t.Context(), "alpha", written.Add(-time.Minute), time.Now())
		if err != nil {
			return err
		}
		var got []string
		for _, l := range speeds {
			if !l.WholeLevel && l.PerGPUP50 != nil && l.Runs == 1 {
				got = append(got, describe(l))
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

func describe(l read.LinkSpeed) string {
	return fmt.Sprintf("%s %s %.4g GB/s, %.4g a GPU", l.Level, strings.Join(l.Domains, "+"), l.BusP50/1e9, *l.PerGPUP50/1e9)
}

func TestNCCLCommandLines(t *testing.T) {
	sample := ncclData + "nccl_all_reduce_perf_h100_8gpu.txt"
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no file":                  {[]string{"--cluster", "a"}, exitUsage, "name at least one output"},
		"no cluster":               {[]string{sample}, exitUsage, "--cluster"},
		"a file that is not there": {[]string{"--cluster", "a", "nowhere.log"}, exitNotFound, "no such file"},
		"another file":             {[]string{"--cluster", "a", "--dry-run", "nccl.go"}, exitFailed, "not an output of nccl-tests"},
		"no Kafka":                 {[]string{"--cluster", "a", sample}, exitUsage, "--dry-run"},
		"printed only":             {[]string{"--cluster", "a", "--dry-run", sample}, exitOK, "481.2"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), append([]string{"nccl"}, c.args...), &stdout, &stderr)
			if code != c.code || !strings.Contains(stdout.String()+stderr.String(), c.want) {
				t.Errorf("exit code %d, want %d: %s%s", code, c.code, stdout.String(), stderr.String())
			}
		})
	}
}
