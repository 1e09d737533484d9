package engine

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

func TestEveryKeyIsReadAndUnknownOnesAreErrors(t *testing.T) {
	const text = `
data_dir: /srv/spillway
clickhouse:
  mode: embedded
  database: fleet
  addresses: []
  http_address: ch:8123
  user: u
  password_file: /secrets/ch
  tls: {enabled: true, ca_file: ca, cert_file: cert, key_file: key, server_name: ch}
  listen: 0.0.0.0
  tcp_port: 9000
  http_port: 8123
  memory_limit_mb: 4096
  library: /lib/libchdb.so
  binary: none
  cluster: c
  nodes: [{shard: 1, host: a, port: 9000}]
  cluster_secret_file: /secrets/cluster
kafka:
  mode: external
  brokers: [k:9092]
  tls: {enabled: true}
  sasl: {mechanism: scram-sha-512, user: u, password_file: /secrets/k}
  port: 9092
  auto_create: true
  retention_mb: 64
`
	want := Config{
		DataDir: "/srv/spillway",
		ClickHouse: ClickHouseConfig{
			Mode: "embedded", Database: "fleet", Addresses: []string{}, HTTPAddress: "ch:8123", User: "u", PasswordFile: "/secrets/ch",
			TLS:    TLSConfig{Enabled: true, CAFile: "ca", CertFile: "cert", KeyFile: "key", ServerName: "ch"},
			Listen: "0.0.0.0", TCPPort: 9000, HTTPPort: 8123, MemoryLimitMB: 4096, Library: "/lib/libchdb.so", Binary: "none",
			Cluster: "c", Nodes: []ClusterNode{{Shard: 1, Host: "a", Port: 9000}}, ClusterSecretFile: "/secrets/cluster",
		},
		Kafka: KafkaConfig{
			Mode: "external", Brokers: []string{"k:9092"}, TLS: TLSConfig{Enabled: true},
			SASL: SASLConfig{Mechanism: "scram-sha-512", User: "u", PasswordFile: "/secrets/k"},
			Port: 9092, AutoCreate: true, RetentionMB: 64,
		},
	}
	got := DefaultConfig()
	if err := yaml.UnmarshalWithOptions([]byte(text), &got, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	if err := yaml.UnmarshalWithOptions([]byte("clickhouse: {adresses: [x]}"), &got, yaml.Strict()); err == nil {
		t.Error("a misspelt key is accepted")
	}
}

func TestFaultsAreNamedByTheirKey(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*Config)
		want   string // empty: valid
	}{
		"the default is valid":                       {func(c *Config) {}, ""},
		"a zero configuration but for its directory": {func(c *Config) { *c = Config{DataDir: "x"} }, ""},
		"embedded engines need a directory":          {func(c *Config) { c.DataDir = "" }, "data_dir"},
		"external engines need none": {func(c *Config) {
			c.DataDir, c.ClickHouse.Addresses, c.Kafka.Brokers = "", []string{"a:9000"}, []string{"b:9092"}
		}, ""},
		"a mode is one of three":                  {func(c *Config) { c.ClickHouse.Mode = "cloud" }, "engine.clickhouse.mode"},
		"a kafka mode is one of three":            {func(c *Config) { c.Kafka.Mode = "cloud" }, "engine.kafka.mode"},
		"external clickhouse needs an address":    {func(c *Config) { c.ClickHouse.Mode = ModeExternal }, "engine.clickhouse.addresses"},
		"external kafka needs a broker":           {func(c *Config) { c.Kafka.Mode = ModeExternal }, "engine.kafka.brokers"},
		"an address needs a port":                 {func(c *Config) { c.ClickHouse.Addresses = []string{"host"} }, "engine.clickhouse.addresses[0]"},
		"embedded contradicts addresses":          {func(c *Config) { c.ClickHouse.Mode, c.ClickHouse.Addresses = ModeEmbedded, []string{"a:1"} }, "engine.clickhouse.mode"},
		"embedded contradicts brokers":            {func(c *Config) { c.Kafka.Mode, c.Kafka.Brokers = ModeEmbedded, []string{"a:1"} }, "engine.kafka.mode"},
		"one listens on an IP address":            {func(c *Config) { c.ClickHouse.Listen = "localhost" }, "engine.clickhouse.listen"},
		"a database is a plain name":              {func(c *Config) { c.ClickHouse.Database = "a`b" }, "engine.clickhouse.database"},
		"a port fits in 16 bits":                  {func(c *Config) { c.Kafka.Port = 70000 }, "engine.kafka.port"},
		"a tcp port is not negative":              {func(c *Config) { c.ClickHouse.TCPPort = -1 }, "engine.clickhouse.tcp_port"},
		"an http port fits in 16 bits":            {func(c *Config) { c.ClickHouse.HTTPPort = 70000 }, "engine.clickhouse.http_port"},
		"a server needs some memory":              {func(c *Config) { c.ClickHouse.MemoryLimitMB = 10 }, "engine.clickhouse.memory_limit_mb"},
		"nodes belong to a named cluster":         {func(c *Config) { c.ClickHouse.Nodes = []ClusterNode{{1, "a", 1}} }, "engine.clickhouse.cluster"},
		"a cluster's name becomes an element":     {func(c *Config) { c.ClickHouse.Cluster = "a b" }, "engine.clickhouse.cluster"},
		"a node is complete":                      {func(c *Config) { c.ClickHouse.Cluster, c.ClickHouse.Nodes = "c", []ClusterNode{{0, "a", 1}} }, "engine.clickhouse.nodes[0]"},
		"retention is not negative":               {func(c *Config) { c.Kafka.RetentionMB = -1 }, "engine.kafka.retention_mb"},
		"a login has a known mechanism":           {func(c *Config) { c.Kafka.SASL.Mechanism = "kerberos" }, "engine.kafka.sasl.mechanism"},
		"a client certificate comes with its key": {func(c *Config) { c.Kafka.TLS.CertFile = "x" }, "engine.kafka.tls"},
	} {
		t.Run(sentence, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			err := cfg.withDefaults().Validate()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("got %v, want no fault", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want a fault of %s", err, c.want)
			}
		})
	}
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	cfg := Config{ClickHouse: ClickHouseConfig{Mode: "x"}, Kafka: KafkaConfig{Mode: "y"}}
	err := cfg.Validate()
	if err == nil || !strings.Contains(err.Error(), "engine.clickhouse.mode") || !strings.Contains(err.Error(), "engine.kafka.mode") {
		t.Errorf("got %v, want both modes named", err)
	}
}

func TestExternalEnginesAreNotDialledAndCarryTheirSecrets(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		ClickHouse: ClickHouseConfig{Addresses: []string{"127.0.0.1:1"}, User: "u", PasswordFile: secret, HTTPAddress: "127.0.0.1:2", Cluster: "c"},
		Kafka:      KafkaConfig{Brokers: []string{"127.0.0.1:3"}, TLS: TLSConfig{Enabled: true}, SASL: SASLConfig{Mechanism: "SCRAM-SHA-256", User: "k", PasswordFile: secret}},
	}
	e := mustStart(t, cfg)
	o := e.ClickHouse.Owner
	if o.Password != "s3cret" || o.User != "u" || o.Database != "spillway" || e.ClickHouse.HTTP != "127.0.0.1:2" || e.ClickHouse.Cluster != "c" || e.ClickHouse.Embedded {
		t.Errorf("clickhouse is %+v", e.ClickHouse)
	}
	if e.Kafka.SASL == nil || e.Kafka.SASL.Name() != "SCRAM-SHA-256" || e.Kafka.TLS == nil || e.Kafka.Embedded {
		t.Errorf("kafka is %+v", e.Kafka)
	}
	cfg.ClickHouse.PasswordFile = filepath.Join(dir, "missing")
	if _, err := Start(t.Context(), cfg, nil); err == nil || !strings.Contains(err.Error(), "engine.clickhouse.password_file") {
		t.Errorf("got %v, want the key of the missing file", err)
	}
}

func TestAWildcardListenerIsReachedOverLoopback(t *testing.T) {
	cfg := clickHouseOnly(t.TempDir())
	cfg.ClickHouse.Listen = "0.0.0.0"
	e := mustStart(t, cfg)
	host, _, err := net.SplitHostPort(e.ClickHouse.Owner.Addresses[0])
	if err != nil || host != "127.0.0.1" {
		t.Errorf("the address is %s, %v; want loopback", e.ClickHouse.Owner.Addresses[0], err)
	}
	if n := count(t, open(t, e.ClickHouse.Owner), "SELECT toUInt64(1)"); n != 1 {
		t.Error("it does not answer")
	}
}

func TestAnErrorSaysTheRemedyBeforeTheLog(t *testing.T) {
	err := error(&Error{Op: "start x", Kind: ErrPortInUse, Hint: "do this", Detail: "line 1\nline 2\n"})
	if want := "start x: port is in use: do this\n  line 1\n  line 2"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if !errors.Is(err, ErrPortInUse) || errors.Is(err, io.EOF) {
		t.Error("the kind is not found")
	}
}
