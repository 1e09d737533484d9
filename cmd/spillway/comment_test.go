package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/spillway-io/spillway/query/read"
)

func textp(s string) *string { return &s }

func explained(job, line string) read.Explanation {
	return read.Explanation{
		Cluster: "alpha", JobID: job, Outcome: textp("spill"), Cause: textp("policy"), Advice: textp("sbatch --segment=16 keeps all 16 nodes in one domain."),
		Lines: []string{line, "Its shards: rack01 60 + rack02 4; the smallest has 4 GPUs."}, Freshness: read.Freshness{Complete: true},
	}
}

// hostile are names that somebody may give a job.
var hostile = []string{
	"'; touch /tmp/owned; echo '", "$(reboot)", "`id`", `\'`, "a\nscontrol shutdown", "\x1b]0;owned\a", "-- JobId=1", "é' \"$HOME\"", "'", strings.Repeat("'", 600), "\xff\xfe'",
}

// The shell itself says what it makes of the command: `scontrol` is a function there that prints each of its words.
func TestAdminCommentIsTwoPlainWordsToTheShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	for _, name := range append(hostile, "pretrain") {
		command, err := adminComment(explained("4711_3", "Spilled by policy: job 4711_3 ("+name+"), 64 GPUs."))
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(command, "\n\x00\x1b") {
			t.Errorf("%q: the command has more than one line or control characters: %q", name, command)
		}
		out, err := exec.Command(sh, "-c", `scontrol() { for w in "$@"; do printf '%s\n' "$w"; done; }; `+command).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", name, err, out)
		}
		words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
		if len(words) != 3 || words[0] != "update" || words[1] != "JobId=4711_3" || !strings.HasPrefix(words[2], "AdminComment=spillway: Spilled by policy") {
			t.Errorf("%q: the shell sees %q", name, words)
		}
		if len(words[2]) > maxComment+len("AdminComment=") {
			t.Errorf("%q: the comment has %d bytes", name, len(words[2]))
		}
	}
	for _, job := range []string{"", "1;reboot", "4711 Priority=9", "ns/name", "-1", "1_2_3", "١"} {
		if got, err := adminComment(explained(job, "x")); err == nil {
			t.Errorf("job %q: got %s, want a refusal", job, got)
		}
	}
}

func TestKubeEventIsOneEventWhateverTheNames(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for _, name := range append(hostile, "pretrain", "a: b", "- x", "{}", strings.Repeat("é", 2000)) {
		text, err := kubeEvent(explained("team-a/train.1", "Spilled by policy: job ("+name+")"), "kueue.x-k8s.io/v1beta1/Workload", now)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			APIVersion     string `yaml:"apiVersion"`
			Kind           string
			Metadata       struct{ Name, Namespace string }
			InvolvedObject struct {
				APIVersion            string `yaml:"apiVersion"`
				Kind, Namespace, Name string
			} `yaml:"involvedObject"`
			Type, Reason, Message string
			Source                struct{ Component string }
			FirstTimestamp        string `yaml:"firstTimestamp"`
			LastTimestamp         string `yaml:"lastTimestamp"`
			Count                 int
		}
		if err := yaml.UnmarshalWithOptions([]byte(text), &got, yaml.Strict()); err != nil {
			t.Fatalf("%q: %v in\n%s", name, err, text)
		}
		if got.Kind != "Event" || got.InvolvedObject.APIVersion != "kueue.x-k8s.io/v1beta1" || got.InvolvedObject.Kind != "Workload" ||
			got.InvolvedObject.Name != "train.1" || got.Metadata.Namespace != "team-a" || got.Type != "Warning" || got.Reason != "NVLinkSpill" ||
			!strings.HasPrefix(got.Message, "Spilled by policy") || len(got.Message) > maxEventMessage || !kubeName.MatchString(got.Metadata.Name) {
			t.Errorf("%q: got %+v", name, got)
		}
	}
	for _, job := range []string{"4711", "a/b/c", "UPPER/x", "a/", "/b", "a/b\nkind: Secret"} {
		if got, err := kubeEvent(explained(job, "x"), "batch/v1/Job", now); err == nil {
			t.Errorf("job %q: got %s, want a refusal", job, got)
		}
	}
	if _, err := kubeEvent(explained("a/b", "x"), "Job", now); err == nil || !strings.Contains(err.Error(), "group/version/Kind") {
		t.Errorf("kind without a version: got %v", err)
	}
}

func TestMailFitsEveryReader(t *testing.T) {
	e := explained("4711", "Spilled by policy: job 4711 ("+strings.Repeat("word ", 60)+"), 64 GPUs.")
	e.Freshness = read.Freshness{Gaps: []string{"slurm of alpha fails since noon"}}
	got := mailText(e, "http://spillway.example:8470/")
	for _, line := range strings.Split(got, "\n") {
		if len(line) > mailWidth && !strings.HasPrefix(line, "http") {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	if !strings.Contains(got, "http://spillway.example:8470/jobs/4711?attempt=0&cluster=alpha") || !strings.Contains(got, "slurm of alpha fails") {
		t.Errorf("got\n%s", got)
	}
}
