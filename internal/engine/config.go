package engine

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// Modes of an engine. The empty mode means external when addresses are given and embedded otherwise.
const (
	ModeEmbedded = "embedded" // run it here
	ModeExternal = "external" // it runs already
	ModeNone     = "none"     // this process has no use for it
)

// Config chooses and tunes both engines. Secrets are named by file, never written in the configuration itself.
type Config struct {
	// DataDir holds everything the embedded engines write. It belongs to one process at a time.
	DataDir    string           `yaml:"data_dir"`
	ClickHouse ClickHouseConfig `yaml:"clickhouse"`
	Kafka      KafkaConfig      `yaml:"kafka"`
}

// ClickHouseConfig describes a ClickHouse: one to run here (embedded) or one that runs already (external).
type ClickHouseConfig struct {
	Mode     string `yaml:"mode"`     // embedded | external | none | empty
	Database string `yaml:"database"` // database of all tables; default "spillway"

	// External only.
	Addresses    []string  `yaml:"addresses"`     // host:port of the native protocol
	HTTPAddress  string    `yaml:"http_address"`  // host:port of the HTTP interface, for dashboards; may be empty
	User         string    `yaml:"user"`          // default "default"
	PasswordFile string    `yaml:"password_file"` // file holding the user's password; empty: no password
	TLS          TLSConfig `yaml:"tls"`

	// Embedded only.
	Listen        string `yaml:"listen"`          // IP address to listen on; default 127.0.0.1
	TCPPort       int    `yaml:"tcp_port"`        // native protocol; 0: a free port
	HTTPPort      int    `yaml:"http_port"`       // HTTP interface; 0: a free port
	MemoryLimitMB int    `yaml:"memory_limit_mb"` // server-wide limit on queries and merges; default 2048
	Library       string `yaml:"library"`         // libchdb to load instead of the cached one
	Binary        string `yaml:"binary"`          // clickhouse binary to run instead of the library; "none": ignore the one on PATH

	// Cluster names the cluster whose nodes are listed; Nodes may be empty in external mode, where the server knows them.
	Cluster           string        `yaml:"cluster"`
	Nodes             []ClusterNode `yaml:"nodes"`
	ClusterSecretFile string        `yaml:"cluster_secret_file"` // shared by the nodes of an embedded cluster
}

// ClusterNode is one server of a cluster. Nodes with equal Shard are replicas of each other.
type ClusterNode struct {
	Shard int    `yaml:"shard"` // from 1
	Host  string `yaml:"host"`
	Port  int    `yaml:"port"` // native protocol
}

// KafkaConfig describes a Kafka: one to run here (embedded) or one that runs already (external).
type KafkaConfig struct {
	Mode    string     `yaml:"mode"`    // embedded | external | none | empty
	Brokers []string   `yaml:"brokers"` // external: host:port of one or more brokers
	TLS     TLSConfig  `yaml:"tls"`     // external
	SASL    SASLConfig `yaml:"sasl"`    // external
	Port    int        `yaml:"port"`    // embedded: 0: a free port

	// AutoCreate lets clients of the embedded broker make topics by writing to them, such as Slurm's jobcomp/kafka, of one
	// partition each. An external broker has its own rule.
	AutoCreate bool `yaml:"auto_create"`
	// RetentionMB bounds the embedded broker's log per partition; default 256. There is no bound by age: records replayed
	// from an old recording carry old times and must not be dropped for it.
	RetentionMB int `yaml:"retention_mb"`
}

// TLSConfig names the files of a TLS client. The zero value means plain text.
type TLSConfig struct {
	Enabled    bool   `yaml:"enabled"`
	CAFile     string `yaml:"ca_file"`     // PEM; empty: the system's roots
	CertFile   string `yaml:"cert_file"`   // PEM client certificate; needs KeyFile
	KeyFile    string `yaml:"key_file"`    // PEM
	ServerName string `yaml:"server_name"` // empty: the host dialled
}

// SASLConfig names how to log in to Kafka. The zero value means no login.
type SASLConfig struct {
	Mechanism    string `yaml:"mechanism"` // plain | scram-sha-256 | scram-sha-512
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// DefaultConfig is both engines embedded, on free loopback ports.
func DefaultConfig() Config {
	return Config{
		DataDir: "var/spillway",
		ClickHouse: ClickHouseConfig{
			Database:      "spillway",
			User:          "default",
			Listen:        "127.0.0.1",
			MemoryLimitMB: 2048,
		},
		Kafka: KafkaConfig{RetentionMB: 256},
	}
}

// Validate reports every fault at once, each naming its key. Zero values that have a default are not faults.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	ch, k := c.ClickHouse, c.Kafka
	if (ch.embedded() || k.embedded()) && c.DataDir == "" {
		bad("engine.data_dir: an embedded engine needs a directory to keep its data in")
	}
	for _, m := range []struct{ key, mode string }{{"clickhouse", ch.Mode}, {"kafka", k.Mode}} {
		switch m.mode {
		case "", ModeEmbedded, ModeExternal, ModeNone:
		default:
			bad("engine.%s.mode: %q: want embedded, external, none or nothing", m.key, m.mode)
		}
	}
	if ch.Mode == ModeExternal && len(ch.Addresses) == 0 {
		bad("engine.clickhouse.addresses: external mode needs at least one host:port of the native protocol")
	}
	for i, a := range ch.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			bad("engine.clickhouse.addresses[%d]: %q: want host:port: %w", i, a, err)
		}
	}
	if ch.Mode == ModeEmbedded && len(ch.Addresses) > 0 {
		bad("engine.clickhouse.mode: embedded contradicts engine.clickhouse.addresses: drop one of the two")
	}
	if ch.Listen != "" && net.ParseIP(ch.Listen) == nil {
		bad("engine.clickhouse.listen: %q: want an IP address such as 127.0.0.1", ch.Listen)
	}
	for _, n := range []struct{ key, name string }{{"database", ch.Database}, {"cluster", ch.Cluster}} {
		if !plainName(n.name) {
			bad("engine.clickhouse.%s: %q: want letters, digits and _, not starting with a digit", n.key, n.name)
		}
	}
	for _, p := range []struct {
		key  string
		port int
	}{{"engine.clickhouse.tcp_port", ch.TCPPort}, {"engine.clickhouse.http_port", ch.HTTPPort}, {"engine.kafka.port", k.Port}} {
		if p.port < 0 || p.port > 65535 {
			bad("%s: %d: want a port, or 0 for a free one", p.key, p.port)
		}
	}
	if ch.MemoryLimitMB != 0 && ch.MemoryLimitMB < 256 {
		bad("engine.clickhouse.memory_limit_mb: %d: want 256 or more, or 0 for the default", ch.MemoryLimitMB)
	}
	if len(ch.Nodes) > 0 && ch.Cluster == "" {
		bad("engine.clickhouse.cluster: engine.clickhouse.nodes are listed but the cluster has no name")
	}
	for i, n := range ch.Nodes {
		if n.Shard < 1 || n.Host == "" || n.Port < 1 {
			bad("engine.clickhouse.nodes[%d]: want shard (from 1), host and port", i)
		}
	}
	if k.Mode == ModeExternal && len(k.Brokers) == 0 {
		bad("engine.kafka.brokers: external mode needs at least one host:port")
	}
	if k.Mode == ModeEmbedded && len(k.Brokers) > 0 {
		bad("engine.kafka.mode: embedded contradicts engine.kafka.brokers: drop one of the two")
	}
	if k.RetentionMB < 0 {
		bad("engine.kafka.retention_mb: %d: it cannot be negative", k.RetentionMB)
	}
	switch strings.ToLower(k.SASL.Mechanism) {
	case "", "plain", "scram-sha-256", "scram-sha-512":
	default:
		bad("engine.kafka.sasl.mechanism: %q: want plain, scram-sha-256 or scram-sha-512", k.SASL.Mechanism)
	}
	for _, t := range []struct {
		key string
		tls TLSConfig
	}{{"engine.clickhouse.tls", ch.TLS}, {"engine.kafka.tls", k.TLS}} {
		if (t.tls.CertFile == "") != (t.tls.KeyFile == "") {
			bad("%s: cert_file and key_file go together", t.key)
		}
	}
	return errors.Join(errs...)
}

func (c ClickHouseConfig) embedded() bool {
	return c.Mode == ModeEmbedded || c.Mode == "" && len(c.Addresses) == 0
}

func (c KafkaConfig) embedded() bool {
	return c.Mode == ModeEmbedded || c.Mode == "" && len(c.Brokers) == 0
}

// withDefaults fills the zero values that have a default, so that a Config written by hand behaves as one that was read
// over DefaultConfig.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	fill := func(s *string, def string) {
		if *s == "" {
			*s = def
		}
	}
	fillInt := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	fill(&c.ClickHouse.Database, d.ClickHouse.Database)
	fill(&c.ClickHouse.User, d.ClickHouse.User)
	fill(&c.ClickHouse.Listen, d.ClickHouse.Listen)
	fillInt(&c.ClickHouse.MemoryLimitMB, d.ClickHouse.MemoryLimitMB)
	fillInt(&c.Kafka.RetentionMB, d.Kafka.RetentionMB)
	return c
}

// plainName reports whether s needs no quoting, neither in SQL nor in XML. Nothing is plain.
func plainName(s string) bool {
	for i, r := range s {
		switch {
		case r == '_', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
		case '0' <= r && r <= '9' && i > 0:
		default:
			return false
		}
	}
	return true
}

// client builds the TLS client the files describe, nil when TLS is off.
func (t TLSConfig) client() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read tls ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read tls ca_file %s: no PEM certificate in it", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read tls cert_file and key_file: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

// readSecret reads a secret file, without the line end an editor leaves. An empty path is an empty secret.
func readSecret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read password file: %w", err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
