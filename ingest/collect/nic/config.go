package nic

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
)

// Config says whose ports are read: those of node_exporters that are scraped, or those of this machine.
type Config struct {
	scrape.Config `yaml:",inline"`

	// Sysfs reads this machine's ports in place of node_exporters.
	Sysfs Sysfs `yaml:"sysfs"`
	// Devices are the names of the devices that are read, as regular expressions of whole names; empty: all. Except
	// takes some out again, as [mlx5_bond_.*] for those of storage and front end.
	Devices []string `yaml:"devices"`
	Except  []string `yaml:"except"`
	// Forget is how long a port that vanished is reported as missing.
	Forget time.Duration `yaml:"forget"`
}

// Sysfs is this machine.
type Sysfs struct {
	Enabled bool `yaml:"enabled"`
	// Root is where sysfs is mounted; in a container that sees the host's files elsewhere, that place.
	Root string `yaml:"root"`
	// Node is the name of this machine; empty: the host name up to its first dot.
	Node string `yaml:"node"`
}

// DefaultConfig has no target.
func DefaultConfig() Config {
	return Config{Config: scrape.DefaultConfig(9100), Sysfs: Sysfs{Root: "/sys"}, Forget: 24 * time.Hour}
}

// Validate returns what is wrong, each with the key and what to write instead.
func (c *Config) Validate() error {
	var errs scrape.Errors
	c.Config.Validate(errs.Fail)
	if c.Forget <= 0 {
		errs.Fail("forget", "%v is not a time; write for example 24h", c.Forget)
	}
	if _, err := newFilter(c); err != nil {
		errs.Fail("devices", "%v", err)
	}
	if c.Sysfs.Enabled {
		if c.Sysfs.Root == "" {
			errs.Fail("sysfs.root", "it is empty; write for example /sys")
		}
		if len(c.Targets) > 0 || len(c.Files) > 0 || len(c.DNS) > 0 || len(c.Kubernetes) > 0 {
			errs.Fail("sysfs.enabled", "node_exporters are scraped already, and ports told twice would count twice; choose one")
		}
	}
	return errs.Err(Name)
}

// Warnings returns settings that are legal but likely a slip.
func (c *Config) Warnings() []string {
	var out []string
	if len(c.Devices) == 0 && len(c.Except) == 0 {
		out = append(out, Name+": devices: all ports count as scale-out traffic of jobs, those of storage and front end too; name the "+
			"compute rails in devices, or the others in except")
	}
	if c.Sysfs.Enabled {
		return out // there are no targets to warn of
	}
	for _, w := range c.Config.Warnings() {
		out = append(out, Name+": "+w)
	}
	return out
}

// filter says which devices are read.
type filter struct{ devices, except *regexp.Regexp }

func newFilter(c *Config) (f filter, err error) {
	compile := func(list []string) (*regexp.Regexp, error) {
		if len(list) == 0 {
			return nil, nil
		}
		for _, one := range list {
			if _, err := regexp.Compile(one); err != nil {
				return nil, fmt.Errorf("%q is not a regular expression: %w", one, err)
			}
		}
		return regexp.Compile("^(?:" + strings.Join(list, "|") + ")$")
	}
	if f.devices, err = compile(c.Devices); err != nil {
		return f, err
	}
	f.except, err = compile(c.Except)
	return f, err
}

func (f filter) wants(device string) bool {
	return (f.devices == nil || f.devices.MatchString(device)) && (f.except == nil || !f.except.MatchString(device))
}
