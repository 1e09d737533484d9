package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/internal/engine"
)

const networkLimit = 10 * time.Second // for the broker to answer, beyond what it was asked to wait

// bounded is a connection whose reads end: kafka-go waits without end for what a broker says to a login.
type bounded struct {
	net.Conn
	limit time.Duration
}

func (c bounded) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		t = time.Now().Add(c.limit)
	}
	return c.Conn.SetReadDeadline(t)
}

// boundedDialer is kafka-go's dialer with bounded connections; made is told of each as it is beneath, unless nil.
func boundedDialer(k engine.Kafka, limit time.Duration, made func(net.Conn)) *kafka.Dialer {
	d := k.Dialer()
	secure := d.TLS
	d.TLS, d.DialFunc = nil, func(ctx context.Context, network, address string) (c net.Conn, err error) {
		plain := &net.Dialer{Timeout: d.Timeout}
		if secure != nil {
			c, err = (&tls.Dialer{NetDialer: plain, Config: secure}).DialContext(ctx, network, address)
		} else {
			c, err = plain.DialContext(ctx, network, address)
		}
		if err != nil {
			return nil, err
		}
		if made != nil {
			made(c)
		}
		return bounded{c, limit}, nil
	}
	return d
}

// dialer is one whose connections break when a context ends, until they are released.
type dialer struct {
	*kafka.Dialer
	last   net.Conn // the newest connection
	guards []func() bool
}

func newDialer(ctx context.Context, k engine.Kafka) *dialer {
	d := &dialer{}
	d.Dialer = boundedDialer(k, networkLimit, func(c net.Conn) {
		d.last, d.guards = c, append(d.guards, context.AfterFunc(ctx, func() { c.Close() }))
	})
	return d
}

func (d *dialer) release() {
	for _, stop := range d.guards {
		stop()
	}
}

// reach asks the brokers, one after the other, until one answers. Whoever asks them for more through kafka-go's client is
// not told why none does.
func reach(ctx context.Context, k engine.Kafka) error {
	ctx, cancel := context.WithTimeout(ctx, networkLimit)
	defer cancel()
	if len(k.Brokers) == 0 {
		return errors.New("no broker is named: list some in engine.kafka.brokers")
	}
	var last error
	for _, broker := range k.Brokers {
		conn, err := newDialer(ctx, k).DialContext(ctx, "tcp", broker)
		if err == nil {
			_, err = conn.Brokers()
			conn.Close()
		}
		if err == nil {
			return nil
		}
		if last == nil || Passing(last) { // what stays is what has to be told
			last = fmt.Errorf("%w: %s", err, cmp.Or(remedy(k, err), "is the broker up?"))
		}
	}
	return fmt.Errorf("reach a broker of %v: %w", k.Brokers, last)
}

// Passing reports whether what failed may succeed by waiting: no broker was reached, or one that has yet to find its
// controller, or leaders. A login or a right refused, a certificate that does not fit, and a setting that cannot be, stay.
func Passing(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var network *net.OpError
	var broker kafka.Error
	var other net.Error // also what took too long
	switch {
	case errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &network) && network.Op == tlsRefused:
		return false
	case errors.As(err, &broker):
		return broker.Temporary() || broker == kafka.BrokerNotAvailable
	default:
		return errors.As(err, &other) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	}
}

// tlsRefused is the operation of an error that the other side told in TLS.
const tlsRefused = "remote error"

// explained adds to an error of a connection to the brokers what to do about it, where that can be told.
func explained(k engine.Kafka, err error) error {
	if hint := remedy(k, err); hint != "" {
		return fmt.Errorf("%w: %s", err, hint)
	}
	return err
}

// remedy says what to do about an error of a connection to the brokers; empty when the error says all that is known.
func remedy(k engine.Kafka, err error) string {
	var each kafka.WriteErrors
	if errors.As(err, &each) {
		for _, e := range each {
			if hint := remedy(k, e); hint != "" {
				return hint
			}
		}
		return ""
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	var network *net.OpError
	switch {
	case errors.As(err, &authority):
		return "who signed the broker's certificate is not trusted here: name a PEM file with that authority in engine.kafka.tls.ca_file"
	case errors.As(err, &name):
		return "the broker's certificate is of another name than the address: set engine.kafka.tls.server_name to one of its names, or list the brokers by them"
	case errors.As(err, &record):
		return "the broker speaks no TLS on this port: list its TLS port in engine.kafka.brokers, or unset engine.kafka.tls.enabled"
	case errors.As(err, &network) && network.Op == tlsRefused:
		return "the broker refused the TLS connection: it may want a certificate of ours, see engine.kafka.tls.cert_file and key_file"
	case errors.Is(err, kafka.SASLAuthenticationFailed):
		return "the broker refused the login: check engine.kafka.sasl.user, mechanism, and what is in password_file"
	case errors.Is(err, kafka.UnsupportedSASLMechanism):
		return "the broker does not offer this mechanism: set engine.kafka.sasl.mechanism to one that it does"
	case errors.Is(err, kafka.TopicAuthorizationFailed), errors.Is(err, kafka.GroupAuthorizationFailed), errors.Is(err, kafka.ClusterAuthorizationFailed):
		return "the broker knows this user and does not allow this: give it READ, WRITE and DESCRIBE on the topics spillway.* and READ on the loader's group"
	case errors.Is(err, kafka.InvalidReplicationFactor):
		return "set topics.replication to at most the number of brokers"
	case k.Embedded || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET):
		return ""
	case k.SASL != nil:
		return "the broker closed the connection; if it always does, check engine.kafka.sasl.user, mechanism, and what is in password_file, " +
			"and whether its port speaks TLS (engine.kafka.tls)"
	default:
		return "the broker closed the connection; if it always does, its port may want a login (engine.kafka.sasl), or speak TLS when we " +
			"do not, or the other way round (engine.kafka.tls)"
	}
}
