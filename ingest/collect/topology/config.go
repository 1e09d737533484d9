package topology

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// Config says where the topology of one cluster is read.
type Config struct {
	// Cluster is the name of the cluster; no source of a topology tells it.
	Cluster string `yaml:"cluster"`
	// Interval is how often each source is read. What has not changed is not parsed again.
	Interval time.Duration `yaml:"interval"`
	// Timeout bounds one read.
	Timeout time.Duration `yaml:"timeout"`
	// Refresh is how often what has not changed is emitted again; 0 = never.
	Refresh time.Duration `yaml:"refresh"`
	// Sources are read side by side; each speaks for itself.
	Sources []Source `yaml:"sources"`
}

// Source is one thing to read. Exactly one of File, Command and URL is set.
type Source struct {
	// Source is what its records are known by: slurm_topology, topograph, static or cloud_label, which have a place in
	// the order of precedence, or another name, which comes last.
	Source string `yaml:"source"`

	// File is read again whenever its content changes.
	File string `yaml:"file"`
	// Command is an argument list that prints the topology; no shell reads it. Where topology.yaml is in force,
	// [scontrol, show, topoconf] prints all topologies; [scontrol, show, topology] prints the default one alone.
	Command []string `yaml:"command"`
	// URL is read with GET: the nodes of slurmrestd, as http://host:6820/slurm/v0.0.43/nodes/, or a graph of Topograph.
	URL string `yaml:"url"`
	// User is sent as X-SLURM-USER-NAME, and the content of TokenFile as X-SLURM-USER-TOKEN.
	User      string `yaml:"user"`
	TokenFile string `yaml:"token_file"`

	// Format is topology.conf, topology.yaml, scontrol, nodes, graph, csv or static; "auto" or empty: the content tells.
	Format Format `yaml:"format"`
	// InstancesFile maps instance ids of a graph to node names: {"id": "node"}, or the request Topograph was given.
	InstancesFile string `yaml:"instances_file"`

	// Topologies are those of the source to merge, by name; where two give a level, the first wins. Empty: the default
	// block topology and the first tree.
	Topologies []string `yaml:"topologies"`
	// DomainLevel is the level that is the NVLink domain: empty for block, another level such as block_group or rack,
	// or "none". Where the source names domains itself they count.
	DomainLevel string `yaml:"domain_level"`
	// Kinds tells block or tree for topologies whose nodes have one unit each in a node listing, which does not say.
	Kinds map[string]Kind `yaml:"kinds"`
	// AllowEmpty lets an answer without any node remove all nodes. Without it such an answer is refused.
	AllowEmpty bool `yaml:"allow_empty"`
	// ValidFrom is since when the topology is as it is read first, as 2026-01-31 or 2026-01-31T08:00:00Z; empty: since
	// it was read. A later change counts from when it is seen. Leave it empty once nodes move: a restart declares anew.
	ValidFrom string `yaml:"valid_from"`
}

// DefaultConfig has no source.
func DefaultConfig() Config {
	return Config{Interval: 30 * time.Second, Timeout: 30 * time.Second, Refresh: time.Hour}
}

func (s *Source) choice() Choice {
	c := Choice{Topologies: s.Topologies, DomainLevel: s.DomainLevel, Kinds: s.Kinds}
	if c.DomainLevel == "" {
		c.DomainLevel = event.LevelBlock
	}
	return c
}

func (s *Source) validFrom() (time.Time, error) {
	if s.ValidFrom == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s.ValidFrom); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a date such as 2026-01-31 nor a time such as 2026-01-31T08:00:00Z", s.ValidFrom)
}

// where names what is read, for logs and messages.
func (s *Source) where() string {
	switch {
	case s.File != "":
		return s.File
	case s.URL != "":
		return s.URL
	}
	return strings.Join(s.Command, " ")
}

// Validate returns what is wrong, each with the key and what to write instead.
func (c *Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.Cluster == "" {
		fail("cluster", "a topology does not tell whose it is; name the cluster as Slurm's ClusterName does")
	} else if strings.Contains(c.Cluster, "/") {
		fail("cluster", "%q holds a slash, which separates the parts of a key; leave it out", c.Cluster)
	}
	if c.Interval <= 0 {
		fail("interval", "%v is not a time to wait; write for example 30s", c.Interval)
	}
	if c.Timeout <= 0 {
		fail("timeout", "%v is not a time to wait; write for example 30s", c.Timeout)
	}
	if c.Refresh < 0 {
		fail("refresh", "%v is not a time to wait; write for example 1h, or 0 for never", c.Refresh)
	}
	if len(c.Sources) == 0 {
		fail("sources", "there is none; give one, for example {source: slurm_topology, file: /etc/slurm/topology.yaml}")
	}
	names := map[string]int{}
	for i, s := range c.Sources {
		key := fmt.Sprintf("sources[%d]", i)
		s.validate(func(k, format string, args ...any) { fail(key+"."+k, format, args...) })
		if before, ok := names[s.Source]; ok && s.Source != "" {
			fail(key+".source", "%s is sources[%d] already, and two would overwrite each other; give one another name", s.Source, before)
		}
		names[s.Source] = i
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("configuration of the topology collector: %w", errors.Join(errs...))
}

func (s *Source) validate(fail func(key, format string, args ...any)) {
	if s.Source == "" {
		fail("source", "it has no name; choose one of %s", strings.Join(event.MembershipSources(), ", "))
	}
	ways := 0
	for _, given := range []bool{s.File != "", len(s.Command) > 0, s.URL != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		fail("file", "%d of file, command and url are set; set one of them", ways)
	}
	if s.URL != "" {
		if u, err := url.Parse(s.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			fail("url", "%q is not http://host:port/path", s.URL)
		}
	}
	if s.URL == "" && (s.User != "" || s.TokenFile != "") {
		fail("token_file", "user and token_file are for a url, and there is none")
	}
	if s.Format != "" && !slices.Contains(Formats(), s.Format) {
		fail("format", "%q is not known; expected one of %v", s.Format, Formats())
	}
	for name, k := range s.Kinds {
		if unitLevel(k) == "" {
			fail("kinds", "%q of %s is not a kind with units; expected block, tree, ring or torus3d", k, name)
		}
	}
	if _, err := s.validFrom(); err != nil {
		fail("valid_from", "%v", err)
	}
}

// Warnings returns settings that are legal but likely a slip.
func (c *Config) Warnings() []string {
	var out []string
	warn := func(i int, key, text string) {
		out = append(out, fmt.Sprintf("topology: sources[%d].%s: %s", i, key, text))
	}
	for i, s := range c.Sources {
		if s.Source != "" && !slices.Contains(event.MembershipSources(), s.Source) {
			warn(i, "source", fmt.Sprintf("%s is in no order of precedence, so it is believed last; known are %s",
				s.Source, strings.Join(event.MembershipSources(), ", ")))
		}
		switch s.DomainLevel {
		case event.LevelLeaf, event.LevelSpine, levelCore:
			warn(i, "domain_level", s.DomainLevel+" is a level of network switches, which no NVLink fabric spans")
		}
		if s.AllowEmpty {
			warn(i, "allow_empty", "an answer that is empty by mistake makes the place of every node unknown")
		}
	}
	if c.Refresh > 0 && c.Refresh < c.Interval {
		out = append(out, fmt.Sprintf("topology: refresh: %v is shorter than interval, so everything is emitted at every read", c.Refresh))
	}
	return out
}
