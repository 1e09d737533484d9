// Package chconn opens native ClickHouse connections with the settings every stage relies on. It is plumbing beside the
// flow: it knows servers and credentials, never tables, and it never retries a statement.
package chconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Options says where a ClickHouse is and who is asking. The zero value of every optional field means the default named
// beside it.
type Options struct {
	Addresses   []string       // host:port of the native protocol, tried in order; required
	Database    string         // database of unqualified names; empty: the user's default
	User        string         // empty: "default"
	Password    string         // never logged
	TLS         *tls.Config    // nil: plain text
	DialTimeout time.Duration  // 0: 5 s
	MaxConns    int            // 0: 8 connections at once
	Settings    map[string]any // added to, and winning over, the defaults below
}

// With returns a copy of o that names another database.
func (o Options) With(database string) Options {
	o.Database = database
	return o
}

// Open prepares a pool of native connections: lz4 compression, synchronous inserts, addresses tried in order. It sends
// nothing; use WaitReady to learn whether anybody answers.
func Open(o Options) (driver.Conn, error) {
	if len(o.Addresses) == 0 {
		return nil, errors.New("open clickhouse: no address given: set engine.clickhouse.addresses to host:port of the native protocol")
	}
	for _, a := range o.Addresses {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, fmt.Errorf("open clickhouse: address %q: want host:port (native protocol, usually 9000): %w", a, err)
		}
	}
	// Batches are built here and each is to become one part, so the server must not gather them a second time: newer
	// servers default to asynchronous inserts, hence the explicit 0.
	settings := clickhouse.Settings{"async_insert": 0}
	for k, v := range o.Settings {
		settings[k] = v
	}
	conns := max(o.MaxConns, 0)
	if conns == 0 {
		conns = 8
	}
	dial := o.DialTimeout
	if dial == 0 {
		dial = 5 * time.Second
	}
	conn, err := clickhouse.Open(&clickhouse.Options{
		Addr:             o.Addresses,
		Auth:             clickhouse.Auth{Database: o.Database, Username: o.User, Password: o.Password},
		TLS:              o.TLS,
		Settings:         settings,
		Compression:      &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
		DialTimeout:      dial,
		MaxOpenConns:     conns,
		MaxIdleConns:     min(conns, 4),
		ConnMaxLifetime:  time.Hour,
		ConnOpenStrategy: clickhouse.ConnOpenInOrder,
		ClientInfo:       clickhouse.ClientInfo{Products: []struct{ Name, Version string }{{Name: "spillway", Version: "1"}}},
	})
	if err != nil {
		return nil, fmt.Errorf("open clickhouse at %s: %w", strings.Join(o.Addresses, ", "), err)
	}
	return conn, nil
}

// WaitReady pings until the server answers or ctx ends. What is not Passing (wrong password, unknown user or database) is
// returned at once. The error carries the last refusal, not only the deadline.
func WaitReady(ctx context.Context, conn driver.Conn) error {
	const pause = 20 * time.Millisecond
	var last error
	for {
		ping, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := conn.Ping(ping)
		cancel()
		if err == nil {
			return nil
		}
		if !Passing(err) {
			return fmt.Errorf("reach clickhouse: %w", err)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("reach clickhouse: %w (last try: %w)", ctx.Err(), last)
		case <-time.After(pause):
		}
	}
}

// Passing reports whether what failed may succeed by waiting: no server was reached, or one that is busy, full, cut off from
// its peers, or about to end. Any other answer of a server, and a certificate that does not fit, stays as it is.
func Passing(err error) bool {
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return false
	}
	var ex *clickhouse.Exception
	if !errors.As(err, &ex) {
		return true
	}
	switch ex.Code { // ClickHouse error codes
	case 159, 202, 241, // time or memory is up, too many queries
		75, 243, // cannot write, no space
		209, 210, 225, 242, 279, 999, // no peer, no Keeper, a table read-only for want of it
		236, 394: // queries ended by a server that shuts down
		return true
	}
	return false
}
