package nccl

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Config says where runs of nccl-tests leave their output.
type Config struct {
	// Cluster is the name of the cluster the tests run in.
	Cluster string `yaml:"cluster"`
	// Files are paths whose last part may hold *, as /shared/nccl-tests/*.log.
	Files []string `yaml:"files"`
	// Interval is how often they are looked through.
	Interval time.Duration `yaml:"interval"`
	// Settle is how long an output without an end must have stood still before it counts as that of a run that died.
	Settle time.Duration `yaml:"settle"`
	// ShortNames cuts host names at the first dot, for hosts that say node1.example.com where the scheduler says node1.
	ShortNames bool `yaml:"short_names"`
}

// DefaultConfig reads nothing.
func DefaultConfig() Config {
	return Config{Files: []string{}, Interval: time.Minute, Settle: 10 * time.Minute}
}

// Validate returns what is wrong, each with the key and what to write instead.
func (c *Config) Validate() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	if c.Cluster == "" {
		fail("cluster", "an output does not tell whose GPUs it measured; name the cluster as the scheduler does")
	} else if strings.Contains(c.Cluster, "/") {
		fail("cluster", "%q holds a slash, which separates the parts of a key; leave it out", c.Cluster)
	}
	if len(c.Files) == 0 {
		fail("files", "there is none; write for example [/shared/nccl-tests/*.log]")
	}
	for i, path := range c.Files {
		if _, err := filepath.Match(path, ""); err != nil {
			fail(fmt.Sprintf("files[%d]", i), "%q is not a path with an optional *: %v", path, err)
		}
	}
	for _, d := range []struct {
		key string
		v   time.Duration
	}{{"interval", c.Interval}, {"settle", c.Settle}} {
		if d.v <= 0 {
			fail(d.key, "%v is not a time to wait; write for example 1m", d.v)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("configuration of the nccl collector: %w", errors.Join(errs...))
}
