package fabric

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Config says whose GPUs are asked.
type Config struct {
	// Cluster is the name of the cluster.
	Cluster string `yaml:"cluster"`
	// Command prints the state of this machine's GPUs; no shell reads it. Empty: it is not asked.
	Command []string `yaml:"command"`
	// NVML asks the driver itself, in place of the command. It needs a program built with the tag dcgm.
	NVML bool `yaml:"nvml"`
	// Node is the name of this machine; empty: the host name up to its first dot.
	Node string `yaml:"node"`
	// Recorded are outputs of other machines, one a file that is named as the node is, as /var/lib/spillway/smi/*.txt;
	// what a file says counts as of the time it was last written.
	Recorded string `yaml:"recorded"`
	// Interval is how often the command is run and the files are read.
	Interval time.Duration `yaml:"interval"`
	// Timeout bounds one run of the command.
	Timeout time.Duration `yaml:"timeout"`
	// Refresh is how often what has not changed is emitted again.
	Refresh time.Duration `yaml:"refresh"`
}

// DefaultConfig asks this machine's GPUs.
func DefaultConfig() Config {
	return Config{
		Command: []string{"nvidia-smi", "-q"}, Interval: time.Minute, Timeout: 30 * time.Second, Refresh: time.Hour,
	}
}

// Validate returns what is wrong, each with the key and what to write instead.
func (c *Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.Cluster == "" {
		fail("cluster", "a GPU does not tell whose it is; name the cluster as the scheduler does")
	} else if strings.Contains(c.Cluster, "/") {
		fail("cluster", "%q holds a slash, which separates the parts of a key; leave it out", c.Cluster)
	}
	for _, d := range []struct {
		key string
		v   time.Duration
	}{{"interval", c.Interval}, {"timeout", c.Timeout}, {"refresh", c.Refresh}} {
		if d.v <= 0 {
			fail(d.key, "%v is not a time to wait; write for example 1m", d.v)
		}
	}
	if len(c.Command) == 0 && !c.NVML && c.Recorded == "" {
		fail("command", "there is none, and neither nvml nor recorded is set; write for example [nvidia-smi, -q]")
	}
	if _, err := filepath.Match(c.Recorded, ""); err != nil {
		fail("recorded", "%q is not a path with an optional *: %v", c.Recorded, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("configuration of the fabric collector: %w", errors.Join(errs...))
}
