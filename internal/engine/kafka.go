package engine

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Kafka says where the brokers are and how to reach them.
type Kafka struct {
	Brokers  []string       // host:port
	Embedded bool           // the broker runs in this process
	TLS      *tls.Config    // nil: plain text
	SASL     sasl.Mechanism // nil: no login
}

// Dialer is what kafka-go's readers, groups and connections need to reach these brokers.
func (k Kafka) Dialer() *kafka.Dialer {
	return &kafka.Dialer{ClientID: "spillway", Timeout: 10 * time.Second, DualStack: true, TLS: k.TLS, SASLMechanism: k.SASL}
}

// Transport is what kafka-go's writers and clients need to reach these brokers. Whoever asks for one closes its idle
// connections when done.
func (k Kafka) Transport() *kafka.Transport {
	return &kafka.Transport{ClientID: "spillway", DialTimeout: 10 * time.Second, TLS: k.TLS, SASL: k.SASL}
}

// externalKafka reads the secrets of brokers that run elsewhere. It does not dial them.
func externalKafka(c KafkaConfig) (Kafka, error) {
	k := Kafka{Brokers: c.Brokers}
	var err error
	if k.TLS, err = c.TLS.client(); err != nil {
		return k, fmt.Errorf("engine.kafka.tls: %w", err)
	}
	password, err := readSecret(c.SASL.PasswordFile)
	if err != nil {
		return k, fmt.Errorf("engine.kafka.sasl.password_file: %w", err)
	}
	switch strings.ToLower(c.SASL.Mechanism) {
	case "":
	case "plain":
		k.SASL = plain.Mechanism{Username: c.SASL.User, Password: password}
	case "scram-sha-256":
		k.SASL, err = scram.Mechanism(scram.SHA256, c.SASL.User, password)
	case "scram-sha-512":
		k.SASL, err = scram.Mechanism(scram.SHA512, c.SASL.User, password)
	default:
		err = fmt.Errorf("unknown mechanism %q", c.SASL.Mechanism)
	}
	if err != nil {
		return k, fmt.Errorf("engine.kafka.sasl: %w", err)
	}
	return k, nil
}

// broker is the embedded Kafka and the goroutine that keeps its log within bounds.
type broker struct {
	cluster *kfake.Cluster
	quit    chan struct{}
	done    chan struct{}
}

// retentionEvery is how often the embedded broker's log is cut to its bound.
const retentionEvery = time.Minute

// startKafka runs a broker in this process that keeps its records below dir.
func startKafka(dir string, c KafkaConfig, log *slog.Logger) (*broker, Kafka, error) {
	const op = "start kafka"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, Kafka{}, diskError(op, err)
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("spillway"),
		kfake.DataDir(dir),
		kfake.DefaultNumPartitions(1),
		kfake.BrokerConfigs(map[string]string{
			"log.retention.bytes": strconv.Itoa(c.RetentionMB << 20),
			"log.retention.ms":    "-1",
			"log.segment.bytes":   strconv.Itoa(max(c.RetentionMB<<20/8, 1<<20)), // only whole segments are dropped
		}),
		kfake.WithLogger(kafkaLogger{log}),
	}
	if c.AutoCreate {
		opts = append(opts, kfake.AllowAutoTopicCreation())
	}
	if c.Port != 0 {
		opts = append(opts, kfake.Ports(c.Port))
	}
	cluster, err := kfake.NewCluster(opts...)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, Kafka{}, &Error{Op: op, Kind: ErrPortInUse,
			Hint: fmt.Sprintf("%s is taken: stop what listens there, or set engine.kafka.port to another port (0: a free one)", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))}
	}
	if err != nil && strings.Contains(err.Error(), "loading persisted state") {
		return nil, Kafka{}, &Error{Op: op, Kind: ErrCorruptData, Detail: err.Error(),
			Hint: "restore " + dir + " from a backup, or move it away to start with empty topics"}
	}
	if err != nil {
		return nil, Kafka{}, diskError(op, err)
	}
	b := &broker{cluster: cluster, quit: make(chan struct{}), done: make(chan struct{})}
	go b.retain()
	k := Kafka{Brokers: cluster.ListenAddrs(), Embedded: true}
	log.Info("kafka is ready", "brokers", strings.Join(k.Brokers, ","))
	return b, k, nil
}

// retain applies the retention bound. The broker does so by itself only for topics that carry a bound of their own.
func (b *broker) retain() {
	defer close(b.done)
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.quit:
			return
		case <-tick.C:
			b.cluster.ApplyRetention()
		}
	}
}

func (b *broker) stop() {
	close(b.quit)
	<-b.done
	b.cluster.Close()
}

// kafkaLogger passes the broker's warnings on; the rest is of no use to whoever runs a pipeline.
type kafkaLogger struct{ log *slog.Logger }

func (l kafkaLogger) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.log.Error("kafka reports an error", "what", fmt.Sprintf(format, args...))
	case kfake.LogLevelWarn:
		l.log.Warn("kafka warns", "what", fmt.Sprintf(format, args...))
	}
}
