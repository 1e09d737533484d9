package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/schemas/event"
)

// authority signs certificates of its own kind only.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.file = filepath.Join(a.dir, "ca.pem")
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// sign makes a certificate for a name or an address, and gives the files of it and of its key.
func (a *authority) sign(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
	return certFile, keyFile
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// server is the TLS of a broker whose certificate is of a name.
func (a *authority) server(t testing.TB, name string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.sign(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

const password = "correct horse"

// guarded is the options of brokers that want a login, by any mechanism.
func guarded() []kfake.Opt {
	o := []kfake.Opt{kfake.EnableSASL()}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		o = append(o, kfake.Superuser(mechanism, "spillway", password))
	}
	return o
}

// configured starts brokers and reaches them by a configuration, as a process does.
func configured(t testing.TB, broker []kfake.Opt, c engine.KafkaConfig) engine.Kafka {
	t.Helper()
	cluster, err := kfake.NewCluster(append(broker, kfake.NumBrokers(2))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c.Brokers = cluster.ListenAddrs()
	e, err := engine.Start(t.Context(), engine.Config{ClickHouse: engine.ClickHouseConfig{Mode: engine.ModeNone}, Kafka: c}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return e.Kafka
}

// login is the configuration of a login with a password from a file.
func login(t testing.TB, mechanism, password string) engine.SASLConfig {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return engine.SASLConfig{Mechanism: mechanism, User: "spillway", PasswordFile: file}
}

func TestRecordsGoThroughTLSAndLogin(t *testing.T) {
	a := newAuthority(t)
	certFile, keyFile := a.sign(t, "spillway")
	byAddress, byName, mutual := a.server(t, "127.0.0.1"), a.server(t, "kafka.example.com"), a.server(t, "127.0.0.1")
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	mutual.ClientCAs.AddCert(a.cert)
	trusted := engine.TLSConfig{Enabled: true, CAFile: a.file}
	for name, c := range map[string]struct {
		broker []kfake.Opt
		config engine.KafkaConfig
	}{
		"TLS":                            {[]kfake.Opt{kfake.TLS(byAddress)}, engine.KafkaConfig{TLS: trusted}},
		"TLS, brokers by another name":   {[]kfake.Opt{kfake.TLS(byName)}, engine.KafkaConfig{TLS: engine.TLSConfig{Enabled: true, CAFile: a.file, ServerName: "kafka.example.com"}}},
		"TLS with a certificate of ours": {[]kfake.Opt{kfake.TLS(mutual)}, engine.KafkaConfig{TLS: engine.TLSConfig{Enabled: true, CAFile: a.file, CertFile: certFile, KeyFile: keyFile}}},
		"a login without TLS":            {guarded(), engine.KafkaConfig{SASL: login(t, "scram-sha-512", password)}},
		"TLS and plain":                  {append(guarded(), kfake.TLS(byAddress)), engine.KafkaConfig{TLS: trusted, SASL: login(t, "plain", password)}},
		"TLS and SCRAM-SHA-256":          {append(guarded(), kfake.TLS(byAddress)), engine.KafkaConfig{TLS: trusted, SASL: login(t, "SCRAM-SHA-256", password)}},
		"TLS and SCRAM-SHA-512":          {append(guarded(), kfake.TLS(byAddress)), engine.KafkaConfig{TLS: trusted, SASL: login(t, "scram-sha-512", password)}},
	} {
		t.Run(name, func(t *testing.T) {
			k := configured(t, c.broker, c.config)
			if err := EnsureTopics(t.Context(), k, topics); err != nil {
				t.Fatal(err)
			}
			thereAndBack(t, k)
		})
	}
}

// thereAndBack sends records and reads them again, by every way of this package that dials.
func thereAndBack(t *testing.T, k engine.Kafka) {
	t.Helper()
	const total = 20
	var records []event.Record
	for i := range total {
		records = append(records, node(fmt.Sprint(i)))
	}
	if err := producer(t, k, Deps{}).Emit(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	if list, err := Partitions(t.Context(), k, event.TopicNode); err != nil || len(list) != topics.Partitions {
		t.Errorf("%d partitions are listed, want %d: %v", len(list), topics.Partitions, err)
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all := func(ctx context.Context, p *Partition) error {
		s, err := p.Open(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		for s.next < s.End {
			r, ok, err := s.Next(time.Second)
			if err != nil {
				return err
			}
			if ok {
				mu.Lock()
				seen[string(r.Key)] = true
				mu.Unlock()
			}
		}
		return p.Commit(s.End)
	}
	err := Consume(ctx, k, ConsumerConfig{Group: "g", SessionTimeout: 6 * time.Second, Backoff: 50 * time.Millisecond}, []string{event.TopicNode}, quiet,
		func(ctx context.Context, p *Partition, _ int) {
			err := all(ctx, p)
			mu.Lock()
			if err != nil {
				t.Error(err)
			}
			if err != nil || len(seen) == total {
				cancel()
			}
			mu.Unlock()
			<-ctx.Done()
		})
	if err != nil || len(seen) != total {
		t.Errorf("read %d of %d records: %v", len(seen), total, err)
	}
}

// firstWarning keeps the first warning that is logged, and ends a context with it.
type firstWarning struct {
	slog.Handler
	stop context.CancelCauseFunc
}

func (h firstWarning) Enabled(context.Context, slog.Level) bool { return true }

func (h firstWarning) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && r.Level >= slog.LevelWarn {
			h.stop(err)
		}
		return true
	})
	return nil
}

// refused joins a group and gives what Consume says of not being let in.
func refused(ctx context.Context, k engine.Kafka, session time.Duration) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := Consume(ctx, k, ConsumerConfig{Group: "g", SessionTimeout: session, Backoff: 50 * time.Millisecond}, []string{event.TopicNode},
		slog.New(firstWarning{stop: stop}), func(context.Context, *Partition, int) {})
	return errors.Join(err, context.Cause(ctx))
}

func makeTopics(ctx context.Context, k engine.Kafka) error { return EnsureTopics(ctx, k, topics) }

func openPartition(ctx context.Context, k engine.Kafka) error {
	_, err := (&Partition{Topic: event.TopicNode, kafka: k}).Open(ctx)
	return err
}

// TestARefusalSaysWhatToDo: whoever sets up TLS and a login gets one of them wrong at first, and any part of a process may
// be the one to find out.
func TestARefusalSaysWhatToDo(t *testing.T) {
	dials := map[string]func(ctx context.Context, k engine.Kafka) error{
		"make topics": makeTopics,
		"list partitions": func(ctx context.Context, k engine.Kafka) error {
			_, err := Partitions(ctx, k, event.TopicNode)
			return err
		},
		"open a partition": openPartition,
		"send": func(ctx context.Context, k engine.Kafka) error {
			p := NewProducer(k, Deps{Log: quiet})
			return errors.Join(p.Emit(ctx, node("n")), p.Close())
		},
		"join a group": func(ctx context.Context, k engine.Kafka) error { return refused(ctx, k, 6*time.Second) },
	}
	a, other := newAuthority(t), newAuthority(t)
	server, elsewhere, mutual := a.server(t, "127.0.0.1"), a.server(t, "kafka.example.com"), a.server(t, "127.0.0.1")
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	mutual.ClientCAs.AddCert(a.cert)
	trusted := engine.TLSConfig{Enabled: true, CAFile: a.file}
	closed := "the broker closed the connection; if it always does"
	for name, c := range map[string]struct {
		broker []kfake.Opt
		config engine.KafkaConfig
		want   string
	}{
		"a wrong password, plain":         {append(guarded(), kfake.TLS(server)), engine.KafkaConfig{TLS: trusted, SASL: login(t, "plain", "no secret")}, "check engine.kafka.sasl.user, mechanism, and what is in password_file"},
		"a wrong password, SCRAM-SHA-256": {append(guarded(), kfake.TLS(server)), engine.KafkaConfig{TLS: trusted, SASL: login(t, "scram-sha-256", "no secret")}, "check engine.kafka.sasl.user, mechanism, and what is in password_file"},
		"a wrong password, SCRAM-SHA-512": {guarded(), engine.KafkaConfig{SASL: login(t, "scram-sha-512", "no secret")}, "check engine.kafka.sasl.user, mechanism, and what is in password_file"},
		"an unknown authority":            {[]kfake.Opt{kfake.TLS(server)}, engine.KafkaConfig{TLS: engine.TLSConfig{Enabled: true, CAFile: other.file}}, "engine.kafka.tls.ca_file"},
		"the system's authorities":        {[]kfake.Opt{kfake.TLS(server)}, engine.KafkaConfig{TLS: engine.TLSConfig{Enabled: true}}, "engine.kafka.tls.ca_file"},
		"a certificate of another name":   {[]kfake.Opt{kfake.TLS(elsewhere)}, engine.KafkaConfig{TLS: trusted}, "engine.kafka.tls.server_name"},
		"no certificate of ours":          {[]kfake.Opt{kfake.TLS(mutual)}, engine.KafkaConfig{TLS: trusted}, "engine.kafka.tls.cert_file"},
		"no TLS to a TLS port":            {[]kfake.Opt{kfake.TLS(server)}, engine.KafkaConfig{}, "engine.kafka.tls"},
		"no login where one is wanted":    {guarded(), engine.KafkaConfig{}, "engine.kafka.sasl"},
	} {
		for step, dial := range dials {
			t.Run(name+"/"+step, func(t *testing.T) {
				k := configured(t, c.broker, c.config)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := dial(ctx, k)
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "no secret") {
					t.Errorf("got %v, want word of %s", err, c.want)
				}
				// Whoever closes without a word may just be about to start.
				if err != nil && step == "make topics" && Passing(err) != strings.Contains(err.Error(), closed) {
					t.Errorf("worth another try is %v of %v", Passing(err), err)
				}
			})
		}
	}
}

func TestWhatPassesIsToldFromWhatStays(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	_, refused := net.Dial("tcp", free.Addr().String())
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nobody listens":               {refused, true},
		"a name that is not known yet": {&net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}, true},
		"the connection broke":         {fmt.Errorf("read: %w", io.EOF), true},
		"the connection was reset":     {&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, true},
		"it took too long":             {fmt.Errorf("ask: %w", context.DeadlineExceeded), true},
		"another is the controller":    {fmt.Errorf("make: %w", kafka.NotController), true},
		"no leader yet":                {kafka.LeaderNotAvailable, true},
		"no broker that is known yet":  {kafka.BrokerNotAvailable, true},
		"asked to end":                 {context.Canceled, false},
		"a login refused":              {kafka.SASLAuthenticationFailed, false},
		"a right that is missing":      {errors.Join(context.DeadlineExceeded, kafka.TopicAuthorizationFailed), false},
		"more copies than brokers":     {kafka.InvalidReplicationFactor, false},
		"another's certificate":        {&net.OpError{Op: "dial", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}, false},
		"no TLS over there":            {tls.RecordHeaderError{Msg: "no TLS"}, false},
		"no certificate of ours":       {&net.OpError{Op: tlsRefused, Err: errors.New("tls: certificate required")}, false},
		"a setting that cannot be":     {TopicConfig{}.Validate(), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Passing(c.err); got != c.want {
				t.Errorf("got %v for %v, want %v", got, c.err, c.want)
			}
		})
	}
}

// TestWhatStaysIsTold: of several brokers, one that is away must not hide that another refuses for good.
func TestWhatStaysIsTold(t *testing.T) {
	a := newAuthority(t)
	k := configured(t, []kfake.Opt{kfake.TLS(a.server(t, "127.0.0.1"))}, engine.KafkaConfig{TLS: engine.TLSConfig{Enabled: true}})
	k.Brokers = append(k.Brokers, "127.0.0.1:1")
	if err := makeTopics(t.Context(), k); err == nil || Passing(err) {
		t.Errorf("got %v, which is worth another try: %v", err, Passing(err))
	}
}

// TestTopicsMayBeMadeBySomebodyElse: many sites let no program create topics.
func TestTopicsMayBeMadeBySomebodyElse(t *testing.T) {
	var rights []kfake.ACL
	for _, operation := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe} {
		rights = append(rights, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "spillway.", Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: operation, Allow: true})
	}
	group := kfake.ACL{Resource: kmsg.ACLResourceTypeGroup, Name: "g", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", password),
		kfake.User("PLAIN", "spillway", password, append(rights, group)...), kfake.User("PLAIN", "visitor", password, rights...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	as := func(user string) engine.Kafka {
		return engine.Kafka{Brokers: cluster.ListenAddrs(), SASL: plain.Mechanism{Username: user, Password: password}}
	}
	if err := EnsureTopics(t.Context(), as("spillway"), topics); err == nil || !strings.Contains(err.Error(), "allow this user to create topics, or make it before: 4 partitions, 1 copies, retention.ms=3600000") {
		t.Errorf("without topics it said %v", err)
	}
	for _, user := range []string{"admin", "spillway"} {
		if err := EnsureTopics(t.Context(), as(user), topics); err != nil {
			t.Fatal(err)
		}
	}
	thereAndBack(t, as("spillway"))
	if err := refused(t.Context(), as("visitor"), 6*time.Second); !strings.Contains(err.Error(), "READ on the loader's group") {
		t.Errorf("without a right to the group it said %v", err)
	}
}

// TestALoginThatIsNotAnsweredEnds: a broker that has stopped still accepts connections.
func TestALoginThatIsNotAnsweredEnds(t *testing.T) {
	for name, dial := range map[string]func(context.Context, engine.Kafka) error{
		"open a partition": openPartition,
		"make topics":      makeTopics,
		"join a group":     func(ctx context.Context, k engine.Kafka) error { return refused(ctx, k, time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var stopped sync.WaitGroup
			stopped.Go(func() {
				for {
					c, err := listener.Accept()
					if err != nil {
						return
					}
					defer c.Close()
					_, _ = c.Read(make([]byte, 1)) // the login has begun
					cancel()
				}
			})
			defer stopped.Wait()
			defer listener.Close()
			k := engine.Kafka{Brokers: []string{listener.Addr().String()}, SASL: plain.Mechanism{Username: "spillway", Password: password}}
			if err := dial(ctx, k); err == nil {
				t.Error("it went well")
			}
		})
	}
}
