package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestACommandLineThatIsWrongEndsWithTheCodeOfUsage(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"an unknown command":                {"exlpain 1", "explain"},
		"an unknown command of a group":     {"engine fecth", "`spillway engine` has no command \"fecth\": see `spillway engine --help`"},
		"an argument where none is taken":   {"slots 64", "\"64\" is not understood: `spillway slots` takes flags alone, see `spillway slots --help`"},
		"more arguments than are taken":     {"domains a b", "accepts at most 1 arg"},
		"no argument where one is needed":   {"explain", "try `spillway explain 4711`"},
		"flags that exclude each other":     {"domains --at 2026-01-01T00:00:00Z --since 2026-01-01T00:00:00Z", "[at since] were all set"},
		"three flags that do":               {"explain 1 --mail --k8s-event", "[k8s-event mail] were all set"},
		"an unknown flag":                   {"slots --gpu 4", "unknown flag: --gpu"},
		"a flag whose value is no number":   {"slots --gpus many", "invalid argument \"many\""},
		"a configuration that is not there": {"check -c nowhere.yaml", "check the path"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), strings.Fields(c.line), &out, &errs)
			if code != exitUsage || !strings.HasPrefix(errs.String(), "spillway: ") || !strings.Contains(errs.String(), c.want) {
				t.Errorf("`spillway %s` ends with %d, want %d, and says %q, want %q in it", c.line, code, exitUsage, errs.String(), c.want)
			}
		})
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"replay", "\x1b[2Jgone"}, &out, &errs); code == exitOK || strings.Contains(errs.String(), "\x1b") || !strings.Contains(errs.String(), "[2Jgone") {
		t.Errorf("an error ends with %d and says %q", code, errs.String())
	}
	errs.Reset()
	if code := run(t.Context(), []string{"engine"}, &out, &errs); code != exitOK || !strings.Contains(out.String(), "fetch") {
		t.Errorf("a group alone ends with %d and says %q %q", code, out.String(), errs.String())
	}
}

// TestCheckBuildsEveryStage gives `check` files that only building a stage reads.
func TestCheckBuildsEveryStage(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	short, long := file("short", "secret\n"), file("long", strings.Repeat("s", 32)+"\n")
	gone, jwt := filepath.Join(dir, "gone"), file("jwt", "SLURM_JWT=a.b.c\n")
	slurmTokens := func(rest, events string) string {
		return "collect: {sources: [slurm], slurm: {cluster: c, rest: {url: \"http://s:6820\", user: u, token_file: " + rest + "}, events: {listen: \"127.0.0.1:0\", token_file: " + events + "}}}"
	}
	for name, c := range map[string]struct{ text, want string }{
		"all defaults":                 {"{}", ""},
		"engines elsewhere":            {"engine: {clickhouse: {addresses: [\"a:9000\"], password_file: " + long + "}, kafka: {brokers: [\"a:9092\"], sasl: {mechanism: scram-sha-512, user: u, password_file: " + long + "}}}", ""},
		"a process that only collects": {"engine: {clickhouse: {mode: none}, kafka: {brokers: [\"a:9092\"]}}\ncollect: {sources: [simulate]}", ""},
		"a token":                      {"api: {token_file: " + long + "}", ""},
		"a token that is not there":    {"api: {token_file: " + gone + "}", "read api.token_file"},
		"a token that is too short":    {"api: {token_file: " + short + "}", "holds 6 characters"},
		"ClickHouse's password":        {"engine: {clickhouse: {addresses: [\"a:9000\"], password_file: " + gone + "}}", "engine.clickhouse.password_file"},
		"ClickHouse's CA":              {"engine: {clickhouse: {addresses: [\"a:9000\"], tls: {enabled: true, ca_file: " + long + "}}}", "engine.clickhouse.tls"},
		"Kafka's password":             {"engine: {kafka: {brokers: [\"a:9092\"], sasl: {mechanism: plain, user: u, password_file: " + gone + "}}}", "engine.kafka.sasl.password_file"},
		"Kafka's CA":                   {"engine: {kafka: {brokers: [\"a:9092\"], tls: {enabled: true, ca_file: " + gone + "}}}", "engine.kafka.tls"},
		"the secret of a cluster":      {"engine: {clickhouse: {cluster_secret_file: " + gone + "}}", "engine.clickhouse.cluster_secret_file"},
		"tokens of Slurm":              {slurmTokens(jwt, short), ""},
		"a token that comes later":     {slurmTokens(gone, short), "collect.slurm.rest.token_file: open " + gone},
		"a token that cannot be read":  {slurmTokens(dir, short), "readable to the user"},
		"a token's name without it":    {slurmTokens(file("unset", "SLURM_JWT=\n"), short), "does not hold one token"},
		"an empty token":               {slurmTokens(jwt, file("empty", "\n")), "collect.slurm.events.token_file"},
		"a token for the topology":     {"collect: {sources: [topology], topology: {cluster: c, sources: [{source: slurm_topology, url: \"http://s:6820/\", user: u, token_file: " + gone + "}]}}", "collect.topology.sources[0].token_file"},
		"a token for exporters":        {"collect: {sources: [dcgm], dcgm: {cluster: c, targets: [{targets: [\"n:9400\"]}], token_file: " + gone + "}}", "collect.dcgm.token_file"},
		"a token for node exporters":   {"collect: {sources: [nic], nic: {cluster: c, targets: [{targets: [\"n:9100\"]}], token_file: " + gone + "}}", "collect.nic.token_file"},
		"a token for Kubernetes":       {"collect: {sources: [kubernetes], kubernetes: {cluster: c, token_file: " + gone + "}}", "collect.kubernetes.token_file"},
		"the CA of a collector":        {"collect: {sources: [dcgm], dcgm: {cluster: c, scheme: https, targets: [{targets: [\"n:9400\"]}], ca_file: " + gone + "}}", gone},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"check", "-c", file("spillway.yaml", c.text+"\n")}, &out, &errs)
			switch {
			case c.want == "" && (code != exitOK || !strings.Contains(out.String(), "the configuration is good")):
				t.Errorf("ends with %d and says %q %q", code, out.String(), errs.String())
			case c.want != "" && (code != exitUsage || !strings.Contains(errs.String(), c.want)):
				t.Errorf("ends with %d and says %q %q, want %q", code, out.String(), errs.String(), c.want)
			}
		})
	}
}
