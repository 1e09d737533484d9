package scrape

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Config says which targets are asked, and how often.
type Config struct {
	// Cluster is the name of the cluster; no exporter tells it. A target may have another one by its label cluster.
	Cluster string `yaml:"cluster"`
	// Interval is how often each target is asked. Each has a time slot of its own, so that they are not asked together.
	Interval time.Duration `yaml:"interval"`
	// Timeout bounds one answer, from the connection to the last byte.
	Timeout time.Duration `yaml:"timeout"`
	// Concurrency is how many targets are asked at the same time.
	Concurrency int `yaml:"concurrency"`
	// MaxBytes bounds one answer; a longer one is refused. Concurrency times this is the most memory that answers take.
	MaxBytes int `yaml:"max_bytes"`
	// Tolerate is the share of targets that may fail before the source as a whole counts as failing.
	Tolerate float64 `yaml:"tolerate"`
	// ShortNames cuts node names at the first dot, for exporters that say node1.example.com where the scheduler says node1.
	ShortNames bool `yaml:"short_names"`

	// Targets are written down here.
	Targets []Group `yaml:"targets"`
	// Files are lists of targets in the form of Prometheus's file_sd, JSON or YAML; the last part of a path may hold *.
	Files []string `yaml:"files"`
	// DNS are names whose records are the targets.
	DNS []DNS `yaml:"dns"`
	// Kubernetes are API servers whose pods, or slices of endpoints, are the targets.
	Kubernetes []Kubernetes `yaml:"kubernetes"`
	// Rediscover is how often files and names are read again. What fails keeps its last good list.
	Rediscover time.Duration `yaml:"rediscover"`

	// Port is for targets that have none, Path and Scheme for those without the label __metrics_path__ or __scheme__.
	Port   int    `yaml:"port"`
	Path   string `yaml:"path"`
	Scheme string `yaml:"scheme"`
	// TokenFile holds a bearer token to send. It is read again for every request.
	TokenFile string `yaml:"token_file"`
	// CAFile are the certificates to trust instead of the system's; CertFile and KeyFile are shown to the exporter.
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Group is a list of targets with common labels, as Prometheus writes it. Four labels count here: node is the node's
// name, in place of the one the exporter gives; cluster; __metrics_path__ and __scheme__.
type Group struct {
	Targets []string          `yaml:"targets" json:"targets"`
	Labels  map[string]string `yaml:"labels" json:"labels"`
}

// DNS is names to look up.
type DNS struct {
	Names []string `yaml:"names"`
	// Type is SRV, A or AAAA. SRV gives the port too.
	Type string `yaml:"type"`
}

// DefaultConfig has no target.
func DefaultConfig(port int) Config {
	return Config{
		Interval: 10 * time.Second, Timeout: 8 * time.Second, Concurrency: 32, MaxBytes: 16 << 20, Tolerate: 0.1,
		Rediscover: 30 * time.Second, Port: port, Path: "/metrics", Scheme: "http",
	}
}

// Validate calls fail for each key that is wrong, with what to write instead.
func (c *Config) Validate(fail func(key, format string, args ...any)) {
	if c.Cluster == "" {
		fail("cluster", "an exporter does not tell whose it is; name the cluster as the scheduler does")
	} else if strings.Contains(c.Cluster, "/") {
		fail("cluster", "%q holds a slash, which separates the parts of a key; leave it out", c.Cluster)
	}
	for _, d := range []struct {
		key string
		v   time.Duration
	}{{"interval", c.Interval}, {"timeout", c.Timeout}, {"rediscover", c.Rediscover}} {
		if d.v <= 0 {
			fail(d.key, "%v is not a time to wait; write for example 10s", d.v)
		}
	}
	if c.Concurrency < 1 {
		fail("concurrency", "%d targets at the same time is none; write for example 32", c.Concurrency)
	}
	if c.MaxBytes < 1<<10 {
		fail("max_bytes", "%d bytes hold no answer; write for example 16777216", c.MaxBytes)
	}
	if c.Tolerate < 0 || c.Tolerate >= 1 {
		fail("tolerate", "%v is no share; write for example 0.1, or 0 to report any target that fails", c.Tolerate)
	}
	if c.Port < 1 || c.Port > 65535 {
		fail("port", "%d is no port; write one between 1 and 65535", c.Port)
	}
	if c.Scheme != "http" && c.Scheme != "https" {
		fail("scheme", "%q is not known; write http or https", c.Scheme)
	}
	if !strings.HasPrefix(c.Path, "/") {
		fail("path", "%q does not begin with a slash; write for example /metrics", c.Path)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		fail("cert_file", "a certificate and its key belong together; set both cert_file and key_file")
	}
	for i, g := range c.Targets {
		for _, address := range g.Targets {
			if _, err := c.target(address, g.Labels); err != nil {
				fail(fmt.Sprintf("targets[%d]", i), "%v", err)
			}
		}
	}
	for i, path := range c.Files {
		if _, err := filepath.Match(path, ""); err != nil {
			fail(fmt.Sprintf("files[%d]", i), "%q is not a path with an optional * in its last part: %v", path, err)
		}
		switch filepath.Ext(path) {
		case ".json", ".yml", ".yaml":
		default:
			fail(fmt.Sprintf("files[%d]", i), "%q ends neither in .json nor in .yml or .yaml, which tells its form", path)
		}
	}
	for i := range c.Kubernetes {
		c.Kubernetes[i].validate(fmt.Sprintf("kubernetes[%d]", i), fail)
	}
	for i, d := range c.DNS {
		if len(d.Names) == 0 {
			fail(fmt.Sprintf("dns[%d].names", i), "there is none; give one, for example _dcgm._tcp.example.com")
		}
		switch d.Type {
		case "SRV", "A", "AAAA":
		default:
			fail(fmt.Sprintf("dns[%d].type", i), "%q is not known; write SRV, A or AAAA", d.Type)
		}
	}
}

// Warnings are settings that are legal but likely a slip.
func (c *Config) Warnings() []string {
	var out []string
	if c.Timeout > c.Interval {
		out = append(out, fmt.Sprintf("timeout: %v is longer than interval, so a target that hangs misses its next slots", c.Timeout))
	}
	if len(c.Targets) == 0 && len(c.Files) == 0 && len(c.DNS) == 0 && len(c.Kubernetes) == 0 {
		out = append(out, "targets: there is none, and neither files, dns nor kubernetes to find them")
	}
	return out
}

// Target is one exporter.
type Target struct {
	// URL is what is asked.
	URL string
	// Cluster is the cluster of what the exporter tells.
	Cluster string
	// Node is the node's name as declared; empty = the answer tells it.
	Node string
	// Host is the name in the address, for answers that do not tell theirs; empty where the address is a number or
	// this machine.
	Host string
}

// target makes a target of an address and the labels of its group.
func (c *Config) target(address string, labels map[string]string) (Target, error) {
	value := func(label, otherwise string) string {
		if v := labels[label]; v != "" {
			return v
		}
		return otherwise
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), strconv.Itoa(c.Port)
	}
	t := Target{Cluster: value("cluster", c.Cluster), Node: labels["node"], Host: host}
	if net.ParseIP(host) != nil || host == "localhost" {
		t.Host = ""
	}
	u, err := url.Parse(value("__scheme__", c.Scheme) + "://" + net.JoinHostPort(host, port) + value("__metrics_path__", c.Path))
	if err != nil || host == "" || u.Hostname() != host || (u.Scheme != "http" && u.Scheme != "https") {
		return Target{}, fmt.Errorf("%q is not the address of a target; write for example node1:%d", address, c.Port)
	}
	t.URL = u.String()
	return t, nil
}

// NodeName is the name that a node goes by which calls itself name, or does not say: the declared one, the node's own,
// or that of the address, in this order. A node that calls itself localhost has said nothing. Empty = not known.
func (c *Config) NodeName(t *Target, name string) string {
	if t.Node != "" {
		return t.Node
	}
	if name == "" || name == "localhost" || strings.HasPrefix(name, "<<<") {
		name = t.Host
	}
	if c.ShortNames {
		name, _, _ = strings.Cut(name, ".")
	}
	return name
}

func (c *Config) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		var err error
		if out.RootCAs, err = readCAs(c.CAFile); err != nil {
			return nil, err
		}
	}
	if c.CertFile != "" && c.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read cert_file: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

func readCAs(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read ca_file: %s holds no certificate in PEM form", path)
	}
	return pool, nil
}

// Errors collects what is wrong with a configuration.
type Errors struct{ all []error }

// Fail notes one key that is wrong.
func (e *Errors) Fail(key, format string, args ...any) {
	e.all = append(e.all, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// Err is all that is wrong with the configuration of the collector of that name, or nil.
func (e *Errors) Err(name string) error {
	if len(e.all) == 0 {
		return nil
	}
	return fmt.Errorf("configuration of the %s collector: %w", name, errors.Join(e.all...))
}
