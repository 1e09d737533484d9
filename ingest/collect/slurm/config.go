package slurm

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"
)

// Config says how to read one Slurm cluster.
type Config struct {
	// Cluster overrides the cluster's name; empty takes the one Slurm reports.
	Cluster string `yaml:"cluster"`
	// Interval is how often jobs are read: one RPC to slurmctld a time.
	Interval time.Duration `yaml:"interval"`
	// NodesInterval is how often nodes are read: one RPC too.
	NodesInterval time.Duration `yaml:"nodes_interval"`
	// Timeout bounds one read, from the question to the last byte of the answer.
	Timeout time.Duration `yaml:"timeout"`
	// Refresh is how often what has not changed is emitted again.
	Refresh time.Duration `yaml:"refresh"`
	// LookBack is how far accounting is read at the start for runs that ended while no collector was running; 0 = not.
	LookBack time.Duration `yaml:"look_back"`
	// CloseWait is how long accounting is asked for the end of a run that is no longer listed, before the run counts as
	// vanished.
	CloseWait time.Duration `yaml:"close_wait"`

	// REST is slurmrestd. Without a URL the commands are run.
	REST REST `yaml:"rest"`
	// Commands are Slurm's own tools on this machine.
	Commands Commands `yaml:"commands"`
	// JobComp are the topics of the jobcomp/kafka plugin, read besides.
	JobComp JobComp `yaml:"jobcomp"`
	// Events is where prolog and epilog scripts post, besides.
	Events Events `yaml:"events"`

	// ServiceClasses name the class of a job; the first rule that matches decides.
	ServiceClasses []ClassRule `yaml:"service_classes"`
	// Probes are the verification jobs that any real job may evict.
	Probes []Match `yaml:"probes"`
	// Preemptible are the jobs that may be ended for one of higher priority, as PreemptMode of their QOS or partition says:
	// a job's own record tells no more than when its PreemptExemptTime has passed. Empty = not known of any.
	Preemptible []Match `yaml:"preemptible"`
}

// REST is how to reach slurmrestd.
type REST struct {
	// URL is http://host:port, https://host:port or unix:///path/of/the/socket.
	URL string `yaml:"url"`
	// User is sent as X-SLURM-USER-NAME; needed with a token.
	User string `yaml:"user"`
	// TokenFile holds the JWT, or the line SLURM_JWT=… that scontrol token prints. It is read again for every request.
	TokenFile string `yaml:"token_file"`
	// Version is the data_parser version to ask for, as v0.0.42; "auto" takes the newest that answers.
	Version string `yaml:"version"`
	// CAFile are the certificates to trust instead of the system's; CertFile and KeyFile are shown to the server.
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// Accounting asks slurmdbd, through slurmrestd, how runs ended.
	Accounting bool `yaml:"accounting"`
}

// Commands are argument lists; no shell reads them. An empty list leaves that read out.
type Commands struct {
	Jobs  []string `yaml:"jobs"`
	Nodes []string `yaml:"nodes"`
	// Accounting gets -j and the job ids, or -S and -E with times in UTC, appended.
	Accounting []string `yaml:"accounting"`
}

// JobComp are the two topics of jobcomp/kafka; empty = not read.
type JobComp struct {
	// StartTopic is topic_job_start of Slurm's JobCompParams, FinishTopic its topic.
	StartTopic  string `yaml:"start_topic"`
	FinishTopic string `yaml:"finish_topic"`
	// Group is the consumer group that remembers how far they were read.
	Group string `yaml:"group"`
}

// Events is the endpoint for prolog and epilog scripts.
type Events struct {
	// Listen is the address, as 127.0.0.1:8471; empty = no endpoint. Compute nodes must reach it; an address other
	// than loopback needs a token.
	Listen string `yaml:"listen"`
	// TokenFile holds the bearer token that posts must carry.
	TokenFile string `yaml:"token_file"`
}

// DefaultConfig reads the local cluster with Slurm's own tools.
func DefaultConfig() Config {
	return Config{
		Interval:      15 * time.Second,
		NodesInterval: time.Minute,
		Timeout:       time.Minute,
		Refresh:       15 * time.Minute,
		LookBack:      24 * time.Hour,
		CloseWait:     2 * time.Minute,
		REST:          REST{Version: "auto", Accounting: true},
		JobComp:       JobComp{Group: "spillway-jobcomp"},
		Commands: Commands{
			Jobs:       []string{"squeue", "--json", "--states=all"},
			Nodes:      []string{"scontrol", "show", "nodes", "--json"},
			Accounting: []string{"sacct", "--json", "--duplicates", "--allusers"},
		},
	}
}

// Validate returns what is wrong, each with the key and what to write instead.
func (c *Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	for _, d := range []struct {
		key  string
		d    time.Duration
		zero bool
	}{
		{"interval", c.Interval, false}, {"nodes_interval", c.NodesInterval, false}, {"timeout", c.Timeout, false},
		{"refresh", c.Refresh, true}, {"look_back", c.LookBack, true}, {"close_wait", c.CloseWait, true},
	} {
		if d.d < 0 || d.d == 0 && !d.zero {
			fail(d.key, "%v is not a time to wait; write for example 15s", d.d)
		}
	}
	switch {
	case c.REST.URL != "":
		c.REST.check(fail)
	case len(c.Commands.Jobs) == 0:
		fail("commands.jobs", "there is neither rest.url nor a command to read jobs with; set one of them")
	}
	if (c.JobComp.StartTopic == "") != (c.JobComp.FinishTopic == "") {
		fail("jobcomp", "only one of start_topic and finish_topic is set; set both, the message itself does not say which it is")
	} else if c.JobComp.StartTopic != "" && c.JobComp.StartTopic == c.JobComp.FinishTopic {
		fail("jobcomp", "start_topic and finish_topic are the same; let Slurm write starts to a topic of their own (topic_job_start)")
	}
	if c.JobComp.StartTopic != "" && c.JobComp.Group == "" {
		fail("jobcomp.group", "the topics need a consumer group; write for example spillway-jobcomp")
	}
	if c.Events.Listen != "" {
		host, _, err := net.SplitHostPort(c.Events.Listen)
		switch ip := net.ParseIP(host); {
		case err != nil:
			fail("events.listen", "%q is not host:port; write for example 127.0.0.1:8471", c.Events.Listen)
		case c.Events.TokenFile == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()):
			fail("events.token_file", "%s can be reached from other machines; name a file with a token that posts must carry", c.Events.Listen)
		}
	}
	for i, r := range c.ServiceClasses {
		if r.Class == "" {
			fail(fmt.Sprintf("service_classes[%d].class", i), "the rule names no class")
		}
	}
	for i, m := range c.Probes {
		if m.Empty() {
			fail(fmt.Sprintf("probes[%d]", i), "an empty rule would make every job a probe; name users, accounts, qos, partitions or names")
		}
	}
	for i, m := range c.Preemptible {
		if m.Empty() {
			fail(fmt.Sprintf("preemptible[%d]", i), "an empty rule would make every job preemptible; name users, accounts, qos, partitions or names")
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("configuration of the slurm collector: %w", errors.Join(errs...))
}

func (r *REST) check(fail func(key, format string, args ...any)) {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil:
		fail("rest.url", "%v", err)
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		if r.TokenFile != "" && r.User == "" {
			fail("rest.user", "a token needs the user it was made for")
		}
	case u.Scheme == "unix" && filepath.IsAbs(u.Path):
	default:
		fail("rest.url", "%q is none of http://host:port, https://host:port, unix:///path/of/the/socket", r.URL)
	}
	if r.Version != "auto" && !isVersion(r.Version) {
		fail("rest.version", "%q is neither auto nor of the form v0.0.42", r.Version)
	}
	if (r.CertFile == "") != (r.KeyFile == "") {
		fail("rest.cert_file", "cert_file and key_file go together")
	}
}
