package dcgm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/collecttest"
	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// smiOf writes a script that answers as nvidia-smi does, and the two files it prints.
func smiOf(t *testing.T, data, states string) (script, dataFile, statesFile string) {
	t.Helper()
	dir := t.TempDir()
	script, dataFile, statesFile = filepath.Join(dir, "nvidia-smi"), filepath.Join(dir, "data"), filepath.Join(dir, "states")
	put(t, dataFile, data)
	put(t, statesFile, states)
	text := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = nvlink ] || exit 2\nif [ \"$2\" = -s ]; then exec cat %s; fi\nexec cat %s\n", statesFile, dataFile)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script, dataFile, statesFile
}

// dataOf makes the text of -gt d that belongs to one of -s, and the other way round.
func dataOf(states string) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(states) {
		link, rest, isLink := strings.Cut(line, ": ")
		switch {
		case !strings.Contains(link, "Link"):
			b.WriteString(line)
		case isLink && strings.Contains(rest, "inactive"):
			b.WriteString(line)
		default:
			n++
			fmt.Fprintf(&b, "%s: Data Tx: %d KiB\n%s: Data Rx: %d KiB\n", link, n, link, 1000*n)
		}
	}
	return b.String()
}

func statesOf(data string) string {
	var b strings.Builder
	for line := range strings.Lines(data) {
		link, rest, _ := strings.Cut(line, ": ")
		switch {
		case !strings.Contains(link, "Link"):
			b.WriteString(line)
		case strings.HasPrefix(rest, "Data Tx"):
			b.WriteString(link + ": 26.562 GB/s\n")
		}
	}
	return b.String()
}

// TestSMIGolden reads the recorded outputs, each with one that belongs to it.
func TestSMIGolden(t *testing.T) {
	states, data := string(sample(t, "nvidia_smi_nvlink_s.txt")), string(sample(t, "nvidia_smi_nvlink_gt_d.txt"))
	for name, c := range map[string][2]string{
		"nvidia_smi_nvlink_s":    {dataOf(states), states},
		"nvidia_smi_nvlink_gt_d": {data, statesOf(data)},
	} {
		t.Run(name, func(t *testing.T) {
			script, _, _ := smiOf(t, c[0], c[1])
			text, err := askSMI(t.Context(), &scrape.Command{}, []string{script}, moment, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			r, tgt := newTestReader(t, testConfig()), *target
			tgt.Node = "n1"
			records, _, err := r.Read(&tgt, text, moment)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, show(records, r))
		})
	}
}

func TestSMIConformance(t *testing.T) {
	data := string(sample(t, "nvidia_smi_nvlink_gt_d.txt"))
	script, dataFile, _ := smiOf(t, data, statesOf(data))
	collecttest.Run(t, collecttest.Source{
		Cluster: "c1",
		Full:    []string{"spillway.counters.v1 c1/n1"},
		New: func(t *testing.T) collect.Collector {
			cfg := testConfig()
			cfg.Interval = 20 * time.Millisecond
			cfg.Direct.Enabled, cfg.Direct.Node, cfg.Direct.Command = true, "n1", []string{script}
			c, err := New(cfg, Deps{})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		Change: func(t *testing.T) []string {
			put(t, dataFile, strings.Replace(data, "32484353899", "32484353999", 1))
			return []string{"spillway.counters.v1 c1/n1"}
		},
		Break: func(t *testing.T) { put(t, dataFile, data[:len(data)/2]) },
		Mend:  func(t *testing.T) { put(t, dataFile, data) },
	})
}

func TestSMIRefused(t *testing.T) {
	data := string(sample(t, "nvidia_smi_nvlink_gt_d.txt"))
	states := statesOf(data)
	for name, c := range map[string]struct{ data, states, want string }{
		"an error in place of it": {"NVIDIA-SMI has failed.\n", states, "lists no GPU"},
		"nothing":                 {"", states, "in the middle of a line"},
		"a GPU less":              {data + "GPU 2: NVIDIA H100 (UUID: GPU-x)\n", states, "lists 3 GPUs with -gt d, and 2 with -s"},
		"another GPU":             {strings.Replace(data, "UUID: GPU-078a", "UUID: GPU-178a", 1), states, "where it lists"},
		"the same GPU again":      {data + data, states, "one output at a time"},
		"a link more":             {data + "\t Link 99: Data Tx: 1 KiB\n", states, "link 99 of GPU 1 with -gt d alone"},
	} {
		t.Run(name, func(t *testing.T) {
			script, _, _ := smiOf(t, c.data, c.states)
			if text, err := askSMI(t.Context(), &scrape.Command{}, []string{script}, moment, 1<<20); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("read as %.300q, error %v", text, err)
			}
		})
	}
	if _, err := askSMI(t.Context(), &scrape.Command{}, []string{"yes"}, moment, 1<<20); err == nil {
		t.Error("an output without end is taken")
	}
	if _, err := askSMI(t.Context(), &scrape.Command{}, []string{"/nowhere/nvidia-smi"}, moment, 1<<20); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no nvidia-smi: error %v", err)
	}
}

// TestASilentLinkLeavesTheSumOut: a GPU whose links do not all tell has no total, and a total is no guess.
func TestASilentLinkLeavesTheSumOut(t *testing.T) {
	data := "GPU 0: G (UUID: GPU-a)\n Link 0: Data Tx: 1 KiB\n Link 0: Data Rx: 2 KiB\n Link 1: N/A\n"
	for states, want := range map[string]bool{
		"GPU 0: G (UUID: GPU-a)\n Link 0: 25 GB/s\n Link 1: 25 GB/s\n":    false,
		"GPU 0: G (UUID: GPU-a)\n Link 0: 25 GB/s\n Link 1: <inactive>\n": true,
	} {
		script, _, _ := smiOf(t, data, states)
		text, err := askSMI(t.Context(), &scrape.Command{}, []string{script}, moment, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		r, tgt := newTestReader(t, testConfig()), *target
		tgt.Node = "n1"
		records, _, err := r.Read(&tgt, text, moment)
		if err != nil {
			t.Fatal(err)
		}
		c := records[0].(*event.Counters)
		if got := len(c.NvlinkTxBytes) > 0; got != want || want && (c.NvlinkTxBytes[0] != 1024 || c.NvlinkRxBytes[0] != 2048) {
			t.Errorf("%q: total %v", states, c.NvlinkTxBytes)
		}
	}
}

// TestALinkThatComesBackResetsTheSum: what a link has carried in its life is nothing that its GPU carried just now.
func TestALinkThatComesBackResetsTheSum(t *testing.T) {
	cfg := testConfig()
	cfg.Direct.Enabled, cfg.Direct.Node, cfg.Direct.Command = true, "n1", []string{"nvidia-smi"}
	r, tgt := newTestReader(t, cfg), *target
	tgt.Node = "n1"
	const gpu = "GPU 0: G (UUID: GPU-a)\n"
	one := func(kib int) string {
		return fmt.Sprintf("%s Link 0: Data Tx: %d KiB\n Link 0: Data Rx: %d KiB\n", gpu, kib, kib)
	}
	both := func(kib int) string {
		return one(kib) + fmt.Sprintf(" Link 1: Data Tx: %d KiB\n Link 1: Data Rx: %d KiB\n", kib, kib)
	}
	const up, down = gpu + " Link 0: 25 GB/s\n Link 1: 25 GB/s\n", gpu + " Link 0: 25 GB/s\n Link 1: <inactive>\n"
	for i, step := range []struct {
		what, data, states string
		total              float64 // in KiB
		reset              bool
	}{
		{"the first answer", both(10), up, 20, false},
		{"goes on", both(20), up, 40, false},
		{"a link goes down, and the other carries more than it ever did", one(90), down, 90, true},
		{"stays down", one(100), down, 100, false},
		{"comes back", both(110), up, 220, true},
		{"goes on again", both(120), up, 240, false},
		{"a link does not tell, so that there is no total", one(130), up, 0, false},
		{"tells again", both(140), up, 280, false},
	} {
		script, _, _ := smiOf(t, step.data, step.states)
		at := moment.Add(time.Duration(i) * cfg.Interval)
		text, err := askSMI(t.Context(), &scrape.Command{}, []string{script}, at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		records, _, err := r.Read(&tgt, text, at)
		if err != nil {
			t.Fatal(err)
		}
		c := records[0].(*event.Counters)
		if got := len(c.GpuReset) > 0; got != step.reset || len(c.NvlinkTxBytes) > 0 != (step.total > 0) || step.total > 0 && c.NvlinkTxBytes[0] != 1024*step.total {
			t.Errorf("%s: reset %v, total %v", step.what, got, c.NvlinkTxBytes)
		}
	}
}

// TestEveryPrefixOfSMI: a cut output never gives other numbers than the whole, beside another that is whole.
func TestEveryPrefixOfSMI(t *testing.T) {
	data := sample(t, "nvidia_smi_nvlink_gt_d.txt")
	whole, err := parseSMI(data, 1)
	if err != nil {
		t.Fatal(err)
	}
	states, err := parseSMI([]byte(statesOf(string(data))), 1)
	if err != nil {
		t.Fatal(err)
	}
	want, err := joinSMI(whole, states)
	if err != nil || len(want[0].values) != 2 || len(want[1].values) != 2 {
		t.Fatalf("%v, %v", want, err)
	}
	for i := range data {
		gpus, err := parseSMI(data[:i:i], 1)
		if err != nil {
			continue
		}
		states, err := parseSMI([]byte(statesOf(string(data))), 1)
		if err != nil {
			t.Fatal(err)
		}
		joined, err := joinSMI(gpus, states)
		if err != nil {
			continue
		}
		for g := range joined {
			for v, total := range joined[g].values {
				if total != want[g].values[v] {
					t.Fatalf("%d of %d bytes give GPU %d the total %v", i, len(data), g, total)
				}
			}
		}
	}
}

func FuzzParseSMI(f *testing.F) {
	f.Add(sample(f, "nvidia_smi_nvlink_gt_d.txt"))
	f.Add(sample(f, "nvidia_smi_nvlink_s.txt"))
	f.Fuzz(func(t *testing.T, text []byte) {
		gpus, err := parseSMI(text, 1)
		if err != nil {
			return
		}
		again, err := parseSMI(text, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := joinSMI(gpus, again); err != nil {
			t.Errorf("an output does not fit itself: %v", err)
		}
	})
}
