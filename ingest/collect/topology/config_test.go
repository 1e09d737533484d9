package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	good := func() Config {
		c := DefaultConfig()
		c.Cluster = "nvl"
		c.Sources = []Source{{Source: "slurm_topology", File: "/etc/slurm/topology.yaml"}}
		return c
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"a good one":              {func(*Config) {}, ""},
		"no cluster":              {func(c *Config) { c.Cluster = "" }, "cluster: a topology does not tell whose it is; name the cluster as Slurm's ClusterName does"},
		"a cluster with a slash":  {func(c *Config) { c.Cluster = "a/b" }, `cluster: "a/b" holds a slash, which separates the parts of a key; leave it out`},
		"no interval":             {func(c *Config) { c.Interval = 0 }, "interval: 0s is not a time to wait; write for example 30s"},
		"no timeout":              {func(c *Config) { c.Timeout = -1 }, "timeout: -1ns is not a time to wait; write for example 30s"},
		"a refresh in the past":   {func(c *Config) { c.Refresh = -time.Second }, "refresh: -1s is not a time to wait; write for example 1h, or 0 for never"},
		"no source":               {func(c *Config) { c.Sources = nil }, "sources: there is none; give one, for example {source: slurm_topology, file: /etc/slurm/topology.yaml}"},
		"a source without a name": {func(c *Config) { c.Sources[0].Source = "" }, "sources[0].source: it has no name; choose one of nvml, dcgm, computedomain, gfd_label, topograph, slurm_topology, cloud_label, static"},
		"two things to read":      {func(c *Config) { c.Sources[0].Command = []string{"x"} }, "sources[0].file: 2 of file, command and url are set; set one of them"},
		"nothing to read":         {func(c *Config) { c.Sources[0].File = "" }, "sources[0].file: 0 of file, command and url are set; set one of them"},
		"a url that is none":      {func(c *Config) { c.Sources[0] = Source{Source: "a", URL: "localhost:6820"} }, `sources[0].url: "localhost:6820" is not http://host:port/path`},
		"a token for a file":      {func(c *Config) { c.Sources[0].TokenFile = "/t" }, "sources[0].token_file: user and token_file are for a url, and there is none"},
		"a format that is none":   {func(c *Config) { c.Sources[0].Format = "xml" }, `sources[0].format: "xml" is not known; expected one of [auto topology.conf topology.yaml scontrol nodes graph csv static]`},
		"a kind that is none":     {func(c *Config) { c.Sources[0].Kinds = map[string]Kind{"nvl": "rack"} }, `sources[0].kinds: "rack" of nvl is not a kind with units; expected block, tree, ring or torus3d`},
		"a date that is none":     {func(c *Config) { c.Sources[0].ValidFrom = "May" }, `sources[0].valid_from: "May" is neither a date such as 2026-01-31 nor a time such as 2026-01-31T08:00:00Z`},
		"a name given twice":      {func(c *Config) { c.Sources = append(c.Sources, c.Sources[0]) }, "sources[1].source: slurm_topology is sources[0] already, and two would overwrite each other; give one another name"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			c.change(&cfg)
			_, err := New(cfg, Deps{})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if want := "configuration of the topology collector: " + c.want; err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	c := DefaultConfig()
	c.Refresh = time.Second
	c.Sources = []Source{
		{Source: "slurm_topology"},
		{Source: "cmdb", DomainLevel: "leaf", AllowEmpty: true},
	}
	want := `
topology: sources[1].source: cmdb is in no order of precedence, so it is believed last; known are nvml, dcgm, computedomain, gfd_label, topograph, slurm_topology, cloud_label, static
topology: sources[1].domain_level: leaf is a level of network switches, which no NVLink fabric spans
topology: sources[1].allow_empty: an answer that is empty by mistake makes the place of every node unknown
topology: refresh: 1s is shorter than interval, so everything is emitted at every read`
	if d := cmp.Diff(want[1:], strings.Join(c.Warnings(), "\n")); d != "" {
		t.Error(d)
	}
}
