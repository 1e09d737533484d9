package api

import (
	"fmt"
	"net"
	"time"

	"github.com/spillway-io/spillway/query/advise"
)

// Config is the `api` block of the configuration.
type Config struct {
	Listen        string        `yaml:"listen"`         // host:port; loopback unless token_file is set
	TokenFile     string        `yaml:"token_file"`     // bearer token every /v1 call must carry; empty = none
	Timeout       time.Duration `yaml:"timeout"`        // of one answer
	MaxConcurrent int           `yaml:"max_concurrent"` // answers in work at once; more get 503
	Links         advise.Links  `yaml:"links"`          // bandwidth per GPU and direction, per level
	MetricSizes   []uint32      `yaml:"metric_sizes"`   // slot sizes in GPUs that /metrics counts, each a series a domain
}

// DefaultConfig listens on loopback without a token.
func DefaultConfig() Config {
	return Config{Listen: "127.0.0.1:8470", Timeout: 10 * time.Second, MaxConcurrent: 64, Links: advise.DefaultLinks(),
		MetricSizes: []uint32{8, 16, 32, 64, 72}}
}

// Validate refuses an address that others can reach without a token.
func (c Config) Validate() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("api.listen %q: %w: write host:port, for example 127.0.0.1:8470", c.Listen, err)
	}
	ip := net.ParseIP(host)
	if loopback := host == "localhost" || (ip != nil && ip.IsLoopback()); !loopback && c.TokenFile == "" {
		return fmt.Errorf("api.listen %s is reachable from outside and api.token_file is not set: "+
			"set token_file (one line, readable to Spillway alone) or listen on 127.0.0.1", c.Listen)
	}
	if c.MaxConcurrent <= 0 || c.Timeout <= 0 {
		return fmt.Errorf("api.max_concurrent %d and api.timeout %s must be positive", c.MaxConcurrent, c.Timeout)
	}
	if c.Links.Domain <= 0 || c.Links.Cluster <= 0 {
		return fmt.Errorf("api.links: domain_gb_s %g and scale_out_gb_s %g must be positive GB/s per GPU and direction",
			c.Links.Domain, c.Links.Cluster)
	}
	return nil
}
