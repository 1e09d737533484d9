package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/internal/config"
)

const shippedFile = "../../deploy/config/spillway.yaml"

func TestTheShippedFileHasEveryKeyAndItsDefault(t *testing.T) {
	defaults := defaultSettings()
	dump, err := config.Dump(&defaults)
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile(shippedFile)
	if err != nil {
		t.Fatal(err)
	}
	want, got := keys(t, []byte(dump)), keys(t, shipped)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of the defaults (-) and of %s (+):\n%s", shippedFile, diff)
	}
	read := defaultSettings()
	read.Collect.Simulate.Clusters = nil
	if err := config.Load(shippedFile, &read, config.WithEnv(nil)); err != nil {
		t.Fatal(err)
	}
	// The one list whose entries have defaults of their own is written out in the file.
	read.Collect.Simulate.Clusters = defaults.Collect.Simulate.Clusters
	again, err := config.Dump(&read)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dump, again); diff != "" {
		t.Errorf("values of the defaults (-) and of %s (+):\n%s", shippedFile, diff)
	}
}

// keys lists the paths of a YAML text's mappings; lists end a path.
func keys(t *testing.T, text []byte) []string {
	t.Helper()
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var out []string
	var walk func(prefix string, m map[string]any)
	walk = func(prefix string, m map[string]any) {
		for key, value := range m {
			out = append(out, prefix+key)
			if below, ok := value.(map[string]any); ok {
				walk(prefix+key+".", below)
			}
		}
	}
	walk("", root)
	slices.Sort(out)
	return out
}

func TestEveryCollectorIsInTheShippedFile(t *testing.T) {
	shipped, err := os.ReadFile(shippedFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range collectorNames() {
		if !strings.Contains(string(shipped), "\n  "+name+":") {
			t.Errorf("%s has no block for the collector %s", shippedFile, name)
		}
	}
}

func TestUnknownSourcesAreRefusedWithTheList(t *testing.T) {
	s := defaultSettings()
	s.Collect.Sources = []string{"slurmm"}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "[dcgm fabric kubernetes nccl nic simulate slurm topology]") {
		t.Errorf("got %v, want the list of sources", err)
	}
	s = defaultSettings()
	s.Collect.Sources = []string{"slurm"}
	w := strings.Join(s.Warnings(), "\n")
	if !strings.Contains(w, "without topology") {
		t.Errorf("got %q, want a warning that every verdict will be unknown", w)
	}
	if !strings.Contains(w, "collect.slurm.service_classes is empty") {
		t.Errorf("got %q, want a warning that SensitiveSpill has no class to go by", w)
	}
}

// TestTheLeastForSlurmIsEnough: what the pages tell somebody with a Slurm to start with is good, and nothing in it is suspect.
func TestTheLeastForSlurmIsEnough(t *testing.T) {
	const file = "deploy/slurm/spillway.yaml"
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"check", "-c", top + "/" + file}, &stdout, &stderr); code != exitOK || strings.Contains(stdout.String(), "warning") {
		t.Errorf("exit code %d: %s%s", code, stdout.String(), stderr.String())
	}
	s := defaultSettings()
	if err := config.Load(top+"/"+file, &s, config.WithEnv(nil)); err != nil {
		t.Fatal(err)
	}
	if s.Collect.Slurm.Cluster != s.Collect.Topology.Cluster {
		t.Errorf("jobs are of the cluster %q, the topology is of %q", s.Collect.Slurm.Cluster, s.Collect.Topology.Cluster)
	}
	for _, page := range []string{"README.md", "deploy/docs/install.md", "deploy/slurm/README.md"} {
		if !strings.Contains(strings.ReplaceAll(ofTree(t, page), "deploy/slurm/", ""), "spillway up -c spillway.yaml") {
			t.Errorf("%s does not say how to start with %s", page, file)
		}
	}
}

func TestAServiceClassIsOfOneAdviceClass(t *testing.T) {
	t.Setenv("SPILLWAY_ADVISE_CLASSES", "{big: {service_classes: [training]}}")
	var out bytes.Buffer
	want := `advise.classes.train: service_classes: "training" is named by advise.classes.big too`
	if code := run(t.Context(), []string{"check"}, &out, &out); code != exitUsage || !strings.Contains(out.String(), want) {
		t.Errorf("exit code %d, %q, want %s", code, out.String(), want)
	}
}

func TestASourceNamedTwiceIsRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"on the command line": {"collect", "simulate", "simulate"},
		"in the settings":     {"check"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "in the settings" {
				t.Setenv("SPILLWAY_COLLECT_SOURCES", "simulate,simulate")
			}
			var out bytes.Buffer
			if code := run(t.Context(), args, &out, &out); code != exitUsage || !strings.Contains(out.String(), "simulate is named twice") {
				t.Errorf("exit code %d, %q", code, out.String())
			}
		})
	}
}

func TestAKeyOfAnEarlierVersionIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "old.yaml")
	if err := os.WriteFile(file, []byte("engine:\n  kafka:\n    partitions: 8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPILLWAY_ENGINE_KAFKA_PARTITIONS", "8")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"check", "-c", file}, &stdout, &stderr); code != exitOK {
		t.Errorf("exit code %d, want %d: %s", code, exitOK, stderr.String())
	}
	want := "spillway: note: " + file + ":3: engine.kafka.partitions does nothing any more: topics are made with topics.partitions\n" +
		"spillway: note: SPILLWAY_ENGINE_KAFKA_PARTITIONS (engine.kafka.partitions) does nothing any more: topics are made with topics.partitions\n"
	if got := stderr.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMistypedVariableIsTold(t *testing.T) {
	t.Setenv("SPILLWAY_LOAD_GRUOP", "mine")
	// Variables of ours that are no keys, and one of the reader's own.
	for _, name := range []string{"CONFIG", "URL", "EVENTS_URL", "TOKEN_FILE", "CACHE", "REQUIRE_SERVICES", "HEADERS", "TIMEOUT", "CLASS", "USE", "SHOTS", "CHAOS_ROUNDS", "GPUS_PER_NODE", "NVML_LIBRARY"} {
		t.Setenv("SPILLWAY_"+name, "")
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"check"}, &stdout, &stderr); code != exitOK {
		t.Errorf("exit code %d, want %d: %s", code, exitOK, stderr.String())
	}
	if got, want := stderr.String(), "spillway: note: SPILLWAY_LOAD_GRUOP sets nothing; did you mean SPILLWAY_LOAD_GROUP?\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
