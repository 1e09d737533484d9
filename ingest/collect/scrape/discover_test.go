package scrape

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func testConfig() Config {
	cfg := DefaultConfig(9400)
	cfg.Cluster = "c1"
	return cfg
}

func validate(cfg Config) error {
	var errs Errors
	cfg.Validate(errs.Fail)
	return errs.Err("test")
}

func TestTargets(t *testing.T) {
	for name, c := range map[string]struct {
		address string
		labels  map[string]string
		want    Target // the zero target = refused
	}{
		"a name":              {"n1", nil, Target{URL: "http://n1:9400/metrics", Cluster: "c1", Host: "n1"}},
		"a name with a port":  {"n1:9500", nil, Target{URL: "http://n1:9500/metrics", Cluster: "c1", Host: "n1"}},
		"a number":            {"192.0.2.1", nil, Target{URL: "http://192.0.2.1:9400/metrics", Cluster: "c1"}},
		"an IPv6 number":      {"[2001:db8::1]:9400", nil, Target{URL: "http://[2001:db8::1]:9400/metrics", Cluster: "c1"}},
		"a bare IPv6 number":  {"2001:db8::1", nil, Target{URL: "http://[2001:db8::1]:9400/metrics", Cluster: "c1"}},
		"this machine":        {"localhost", nil, Target{URL: "http://localhost:9400/metrics", Cluster: "c1"}},
		"labels that count":   {"n1", map[string]string{"node": "x", "cluster": "c2", "__scheme__": "https", "__metrics_path__": "/m", "rack": "r"}, Target{URL: "https://n1:9400/m", Cluster: "c2", Node: "x", Host: "n1"}},
		"no address":          {"", nil, Target{}},
		"an address with a /": {"n1/metrics", nil, Target{}},
		"a URL":               {"http://n1:9400", nil, Target{}},
		"an odd scheme":       {"n1", map[string]string{"__scheme__": "file"}, Target{}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			got, err := cfg.target(c.address, c.labels)
			if got != c.want || (err != nil) != (c.want == Target{}) {
				t.Errorf("%+v, error %v, want %+v", got, err, c.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// found gives the hosts of the targets, in order, and whether there was an error.
func findHosts(t *testing.T, d *discovery) (string, error) {
	t.Helper()
	targets, err := d.find(t.Context())
	var hosts []string
	for _, target := range targets {
		hosts = append(hosts, strings.TrimSuffix(strings.TrimPrefix(target.URL, "http://"), "/metrics"))
	}
	return strings.Join(hosts, " "), err
}

func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.yml")
	cfg := testConfig()
	cfg.Files = []string{filepath.Join(dir, "*.json"), b}
	cfg.Targets = []Group{{Targets: []string{"static"}}}
	d := &discovery{cfg: &cfg, resolver: net.DefaultResolver, known: map[string][]Group{}}
	expect := func(what, want string, fails bool) {
		t.Helper()
		got, err := findHosts(t, d)
		if got != want || (err != nil) != fails {
			t.Errorf("%s: %q, error %v, want %q", what, got, err, want)
		}
	}
	expect("no file yet", "static:9400", true)
	write(t, a, `[{"targets": ["n1", "n2:1"], "labels": {"rack": "r1"}}]`)
	write(t, b, "- targets: [n3]\n  labels: {cluster: c2}\n- targets:\n  - n1\n")
	expect("both", "static:9400 n1:9400 n2:1 n3:9400", false)
	write(t, a, "")
	expect("a file that is being written keeps its targets", "static:9400 n1:9400 n2:1 n3:9400", true)
	write(t, a, `[{"targets": ["n1", "n2:1"]`)
	expect("so does one that was cut", "static:9400 n1:9400 n2:1 n3:9400", true)
	write(t, a, `[{"targets": ["n1"], "lables": {}}]`)
	expect("and one with a slip in a key", "static:9400 n1:9400 n2:1 n3:9400", true)
	write(t, a, `[{"targets": ["n1", "a b"]}]`)
	expect("one bad address harms no other", "static:9400 n1:9400 n3:9400", true)
	write(t, a, "[]")
	expect("an empty list is one", "static:9400 n3:9400 n1:9400", false)
	write(t, filepath.Join(dir, "c.json"), `[{"targets": ["n4"]}]`)
	expect("a new file", "static:9400 n3:9400 n1:9400 n4:9400", false)
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	write(t, a, `[{"targets": ["n5"]}]`)
	if err := os.Remove(filepath.Join(dir, "c.json")); err != nil {
		t.Fatal(err)
	}
	expect("a file that is gone while others are there", "static:9400 n5:9400 n3:9400 n1:9400", false)
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	expect("all files gone at once", "static:9400 n5:9400 n3:9400 n1:9400", true)
}

func TestEveryPrefixOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	text := `[{"targets": ["n1", "n2:1"], "labels": {"node": "x"}}]`
	for i := range text {
		write(t, path, text[:i])
		if groups, err := readFile(path); err == nil {
			t.Errorf("%q gives %v", text[:i], groups)
		}
	}
}

// dnsServer answers on this machine from a list of records, and gives a resolver that asks it.
func dnsServer(t *testing.T, records func() map[string][]dnsmessage.Resource) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			all, ok := records()[q.Name.String()]
			if !ok {
				m.RCode = dnsmessage.RCodeNameError
			}
			for _, r := range all {
				if r.Header.Type = typeOf(r.Body); r.Header.Type == q.Type {
					r.Header.Name, r.Header.Class = q.Name, dnsmessage.ClassINET
					m.Answers = append(m.Answers, r)
				}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func typeOf(body dnsmessage.ResourceBody) dnsmessage.Type {
	switch body.(type) {
	case *dnsmessage.SRVResource:
		return dnsmessage.TypeSRV
	case *dnsmessage.AResource:
		return dnsmessage.TypeA
	}
	return dnsmessage.TypeAAAA
}

func TestDNS(t *testing.T) {
	srv := func(host string, port uint16) dnsmessage.Resource {
		return dnsmessage.Resource{Body: &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(host), Port: port, Priority: port}}
	}
	records := map[string][]dnsmessage.Resource{
		"_dcgm._tcp.example.com.": {srv("n1.example.com.", 9400), srv("n2.example.com.", 9401)},
		"gpus.example.com.": {
			{Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}}},
			{Body: &dnsmessage.AAAAResource{AAAA: [16]byte{0x20, 1, 0xd, 0xb8, 15: 1}}},
		},
	}
	var silent atomic.Bool
	cfg := testConfig()
	cfg.DNS = []DNS{
		{Names: []string{"_dcgm._tcp.example.com."}, Type: "SRV"},
		{Names: []string{"gpus.example.com."}, Type: "A"}, {Names: []string{"gpus.example.com."}, Type: "AAAA"},
	}
	if err := validate(cfg); err != nil {
		t.Fatal(err)
	}
	d := &discovery{cfg: &cfg, known: map[string][]Group{}, resolver: dnsServer(t, func() map[string][]dnsmessage.Resource {
		if silent.Load() {
			return nil
		}
		return records
	})}
	want := "192.0.2.1:9400 [2001:db8::1]:9400 n1.example.com:9400 n2.example.com:9401"
	if got, err := findHosts(t, d); got != want || err != nil {
		t.Errorf("%q, error %v, want %q", got, err, want)
	}
	silent.Store(true)
	got, err := findHosts(t, d)
	if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound || got != want {
		t.Errorf("names that are gone: %q, error %v, want the last list", got, err)
	}
}

func TestConfigurations(t *testing.T) {
	for key, change := range map[string]func(*Config){
		"cluster":       func(c *Config) { c.Cluster = "" },
		"cluster: ":     func(c *Config) { c.Cluster = "a/b" },
		"interval":      func(c *Config) { c.Interval = 0 },
		"timeout":       func(c *Config) { c.Timeout = -1 },
		"rediscover":    func(c *Config) { c.Rediscover = 0 },
		"concurrency":   func(c *Config) { c.Concurrency = 0 },
		"max_bytes":     func(c *Config) { c.MaxBytes = 10 },
		"tolerate":      func(c *Config) { c.Tolerate = 1 },
		"port":          func(c *Config) { c.Port = 0 },
		"scheme":        func(c *Config) { c.Scheme = "gopher" },
		"path":          func(c *Config) { c.Path = "metrics" },
		"cert_file":     func(c *Config) { c.CertFile = "x" },
		"targets[0]":    func(c *Config) { c.Targets = []Group{{Targets: []string{"a b"}}} },
		"files[0]":      func(c *Config) { c.Files = []string{"x.txt"} },
		"files[0]: ":    func(c *Config) { c.Files = []string{"[x.json"} },
		"dns[0].names":  func(c *Config) { c.DNS = []DNS{{Type: "SRV"}} },
		"dns[0].type: ": func(c *Config) { c.DNS = []DNS{{Names: []string{"a"}, Type: "MX"}} },
	} {
		cfg := testConfig()
		change(&cfg)
		if err := validate(cfg); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error %v", key, err)
		}
	}
	if err := validate(testConfig()); err != nil {
		t.Error(err)
	}
	slow := testConfig()
	slow.Timeout = slow.Interval + 1
	if w := slow.Warnings(); len(w) != 2 || !slices.ContainsFunc(w, func(s string) bool { return strings.HasPrefix(s, "timeout") }) {
		t.Errorf("warnings %q", w)
	}
}
