package main

import (
	"os"
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

// shellOf says what the shell makes of a command: `scontrol` is a function there that tells the job as Slurm prints it, with
// this AdminComment, and prints each of its words when it is to update. Nothing is told of a job that is gone.
func shellOf(t *testing.T, command, comment string, gone bool) ([]string, error) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell here")
	}
	show := `printf 'JobId=4711 JobName=x\n   Comment=AdminComment=no\n   Power=\n'; [ -z "$OLD" ] || printf '   AdminComment=%s \n   StdErr=/x\n' "$OLD"`
	if gone {
		show = "return 1"
	}
	cmd := exec.Command(sh, "-c", `scontrol() { if [ "$1" = show ]; then `+show+`; else for w in "$@"; do printf '%s\n' "$w"; done; fi; }; `+command)
	cmd.Env = append(os.Environ(), "OLD="+comment)
	out, err := cmd.CombinedOutput()
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), err
}

func TestAdminCommentKeepsWhatIsThere(t *testing.T) {
	const before, now = "spillway: No spill: job 4711.", "spillway: Spilled by policy. Next time: sbatch --segment=16 keeps all 16 nodes in one domain."
	command, err := adminComment(explained("4711", "Spilled by policy."))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ old, want string }{
		"none yet":                             {"", now},
		"another program's":                    {"JS1:H4sIAAAA/+x9", "JS1:H4sIAAAA/+x9 | " + now},
		"ours alone makes room":                {before, now},
		"ours behind another's makes room":     {"JS1:H4sIAAAA/+x9 | " + before, "JS1:H4sIAAAA/+x9 | " + now},
		"quotes and commands stay what it was": {`$(reboot) 'a' "b" \ %s`, `$(reboot) 'a' "b" \ %s | ` + now},
	} {
		words, err := shellOf(t, command, test.old, false)
		if err != nil || len(words) != 3 || words[2] != "AdminComment="+test.want {
			t.Errorf("%s: got %q %v, want %q", name, words, err, test.want)
		}
		again, err := shellOf(t, command, strings.TrimPrefix(words[2], "AdminComment="), false)
		if err != nil || again[2] != words[2] {
			t.Errorf("%s: told twice it is %q", name, again)
		}
	}
	if words, err := shellOf(t, command, "kept", true); err == nil || strings.Contains(strings.Join(words, " "), "update") {
		t.Errorf("a job that Slurm no longer knows: got %q, %v; nothing may be set where nothing could be read", words, err)
	}
}

func TestAdminCommentIsTwoPlainWordsToTheShell(t *testing.T) {
	for _, name := range append(hostile, "pretrain") {
		command, err := adminComment(explained("4711_3", "Spilled by policy: job 4711_3 ("+name+"), 64 GPUs."))
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(command, "\n\x00\x1b") {
			t.Errorf("%q: the command has more than one line or control characters: %q", name, command)
		}
		words, err := shellOf(t, command, "", false)
		if err != nil {
			t.Fatalf("%q: %v: %q", name, err, words)
		}
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

// TestAdminCommentOnARealSlurm runs the command where a real slurmctld keeps the comment.
func TestAdminCommentOnARealSlurm(t *testing.T) {
	c := startTree(t)
	id, _, _ := c.sbatch([]string{"sbatch"}, "--hold")
	comment := func() string {
		for line := range strings.Lines(c.show(id)) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), "AdminComment="); ok {
				return text
			}
		}
		return ""
	}
	command, err := adminComment(explained(id, "Spilled by policy: it's job $(reboot)."))
	if err != nil {
		t.Fatal(err)
	}
	want := "spillway: Spilled by policy: it's job $(reboot). Next time: sbatch --segment=16 keeps all 16 nodes in one domain."
	for name, step := range map[string]struct{ before, want string }{
		"none":               {"", want},
		"of another program": {"JS1:H4sIAAAA/+x9", "JS1:H4sIAAAA/+x9 | " + want},
	} {
		if out, err := exec.Command("scontrol", "update", "JobId="+id, "AdminComment="+step.before).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for range 2 { // told twice, it stands there once
			if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got := comment(); got != step.want {
				t.Errorf("%s: the comment is %q, want %q", name, got, step.want)
			}
		}
	}
}
