package dcgm

import (
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
)

// Config says which dcgm-exporters are scraped and how they are set up.
type Config struct {
	scrape.Config `yaml:",inline"`

	// Direct asks this machine in place of exporters.
	Direct Direct `yaml:"direct"`

	// ExporterInterval is how often the exporters themselves ask the GPUs (their option -c). To scrape faster repeats
	// values. A rate that has not changed for three of these times is stale, and counts as absent.
	ExporterInterval time.Duration `yaml:"exporter_interval"`
	// Refresh is how often a fabric that has not changed is emitted again.
	Refresh time.Duration `yaml:"refresh"`
	// Forget is how long a GPU or a link that vanished is reported as missing.
	Forget time.Duration `yaml:"forget"`
	// Names maps metric names that an operator has chosen to ids of DCGM's fields, as {nvlink_tx: 1201}. The names that
	// DCGM itself gives, before and after 4.6, are known.
	Names map[string]uint16 `yaml:"names"`
	// Labels maps labels that an operator has chosen to what they say: gpu, uuid, device, model, node, mig_id, mig_profile,
	// link, driver_version, cluster_uuid, job, namespace, pod, container or pod_uid. The exporter's own are known.
	Labels map[string]string `yaml:"labels"`
	// NVLinkBytesPerSecond is what the links of one GPU carry in one direction, by a part of the GPU model's name; of
	// several that fit the longest counts, and "" is for all others. What exceeds it by more than 7 % is no measurement.
	NVLinkBytesPerSecond map[string]float64 `yaml:"nvlink_bytes_per_second"`
}

// overshoot is what a rate may be above the nominal: links are signalled a little faster than they carry data.
const overshoot = 1.07

// DefaultConfig has no target.
func DefaultConfig() Config {
	return Config{
		Config:           scrape.DefaultConfig(9400),
		Direct:           Direct{Command: []string{}, Address: "127.0.0.1:5555", Links: true},
		ExporterInterval: 30 * time.Second,
		Refresh:          time.Hour,
		Forget:           24 * time.Hour,
		NVLinkBytesPerSecond: map[string]float64{
			"A100": 300e9, "A800": 200e9, "H100": 450e9, "H200": 450e9, "GH200": 450e9, "H800": 200e9,
			"B200": 900e9, "B300": 900e9, "GB200": 900e9, "GB300": 900e9, "": 1800e9,
		},
	}
}

// Validate returns what is wrong, each with the key and what to write instead.
func (c *Config) Validate() error {
	var errs scrape.Errors
	c.Config.Validate(errs.Fail)
	for _, d := range []struct {
		key string
		v   time.Duration
	}{{"exporter_interval", c.ExporterInterval}, {"refresh", c.Refresh}, {"forget", c.Forget}} {
		if d.v <= 0 {
			errs.Fail(d.key, "%v is not a time; write for example 30s", d.v)
		}
	}
	if _, err := byName(c.Names); err != nil {
		errs.Fail("names", "%v", err)
	}
	for label, name := range c.Labels {
		if _, ok := roleNames[name]; !ok {
			errs.Fail("labels", "%s is said to be %q, which is not known; expected one of %s", label, name, roleList())
		}
	}
	if c.Direct.Enabled && c.Direct.Address == "" {
		errs.Fail("direct.address", "it is empty; write where nv-hostengine listens, for example 127.0.0.1:5555")
	}
	for model, v := range c.NVLinkBytesPerSecond {
		if !(v > 0) {
			errs.Fail("nvlink_bytes_per_second", "%v for %q is not a rate; write for example 900e9", v, model)
		}
	}
	return errs.Err(Name)
}

// Warnings returns settings that are legal but likely a slip.
func (c *Config) Warnings() []string {
	if c.Direct.Enabled {
		return nil // there are no targets to warn of
	}
	var out []string
	for _, w := range c.Config.Warnings() {
		out = append(out, Name+": "+w)
	}
	return out
}

func (c *Config) staleAfter() time.Duration { return 3 * c.ExporterInterval }

// most is the greatest rate that counts as measured, of one direction of all links of a GPU; 0 = any.
func (c *Config) most(model string) float64 {
	best, most := -1, 0.0
	for part, v := range c.NVLinkBytesPerSecond {
		if len(part) > best && strings.Contains(model, part) {
			best, most = len(part), v*overshoot
		}
	}
	return most
}
