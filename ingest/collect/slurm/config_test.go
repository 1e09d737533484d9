package slurm

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

func TestDefaultsAreGood(t *testing.T) {
	cfg := DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	written, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var read Config
	if err := yaml.UnmarshalWithOptions(written, &read, yaml.Strict()); err != nil {
		t.Fatalf("%v in\n%s", err, written)
	}
	if err := read.Validate(); err != nil || read.Interval != cfg.Interval || !cmp.Equal(read.Commands, cfg.Commands) {
		t.Errorf("read back %+v, %v", read, err)
	}
}

func TestConfigurationFiles(t *testing.T) {
	for name, c := range map[string]struct{ yaml, says string }{
		"everything set": {`
cluster: prod
interval: 30s
rest: {url: "https://slurm.example:6820", user: spillway, token_file: /etc/spillway/token, version: v0.0.42, ca_file: /a, cert_file: /b, key_file: /c, accounting: false}
jobcomp: {start_topic: a, finish_topic: b}
events: {listen: "0.0.0.0:8471", token_file: /etc/spillway/post-token}
service_classes:
  - {class: pretraining, accounts: [ml-*], partitions: [gb200]}
  - {class: other}
probes: [{names: [nccl-test*]}]
`, ""},
		"a socket":                               {`rest: {url: "unix:///run/slurmrestd.sock"}`, ""},
		"events on loopback need no token":       {`events: {listen: "127.0.0.1:8471"}`, ""},
		"a key that is not known":                {`intervall: 30s`, "intervall"},
		"no waiting at all":                      {`interval: 0s`, "interval: 0s is not a time to wait"},
		"a time before now":                      {`look_back: -1h`, "look_back"},
		"neither REST nor commands":              {`commands: {jobs: []}`, "commands.jobs"},
		"a URL of another kind":                  {`rest: {url: "slurm.example:6820"}`, "rest.url"},
		"a token without its user":               {`rest: {url: "http://slurm.example:6820", token_file: /t}`, "rest.user"},
		"a version that is none":                 {`rest: {url: "http://slurm.example:6820", version: "25.11"}`, "rest.version"},
		"a certificate without key":              {`rest: {url: "https://slurm.example:6820", cert_file: /c}`, "rest.cert_file"},
		"one topic of two":                       {`jobcomp: {finish_topic: nvl}`, "jobcomp"},
		"one topic for both":                     {`jobcomp: {start_topic: nvl, finish_topic: nvl}`, "topic_job_start"},
		"an address without port":                {`events: {listen: localhost}`, "events.listen"},
		"events for everybody":                   {`events: {listen: ":8471"}`, "events.token_file"},
		"a class without a name":                 {`service_classes: [{accounts: [a]}]`, "service_classes[0].class"},
		"a probe rule that would take every job": {`probes: [{}]`, "probes[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			err := yaml.UnmarshalWithOptions([]byte(c.yaml), &cfg, yaml.Strict())
			if err == nil {
				err = cfg.Validate()
			}
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, want it to say %q", err, c.says)
			}
		})
	}
	cfg := DefaultConfig()
	cfg.JobComp = JobComp{StartTopic: "a", FinishTopic: "b", Group: "g"}
	if _, err := New(cfg, Deps{}); err == nil {
		t.Error("topics without anything to read them were taken")
	}
}

func TestBackoffGrowsAndEnds(t *testing.T) {
	b := backoff{first: time.Second}
	for i := range 20 {
		d := b.next()
		want := min(time.Second<<i, maxBackoff)
		if i > 10 {
			want = maxBackoff
		}
		if d < want*8/10 || d > want*12/10 {
			t.Errorf("delay %d is %v, want about %v", i, d, want)
		}
	}
	b.reset()
	if d := b.next(); d > 2*time.Second {
		t.Errorf("after a reset %v", d)
	}
}
