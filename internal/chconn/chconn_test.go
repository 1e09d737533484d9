package chconn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestAConnectionInsertsSynchronouslyUnlessToldOtherwise(t *testing.T) {
	s := testenv.ClickHouse(t)
	for _, c := range []struct {
		settings map[string]any
		want     string
	}{{nil, "0"}, {map[string]any{"async_insert": 1}, "1"}} {
		o := s.Owner
		o.Settings = c.settings
		conn, err := chconn.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT value FROM system.settings WHERE name = 'async_insert'").Scan(&got); err != nil || got != c.want {
			t.Errorf("with %v async_insert is %q, %v; want %s", c.settings, got, err, c.want)
		}
	}
}

func TestAnotherDatabaseIsACopy(t *testing.T) {
	o := chconn.Options{Database: "a"}
	if got := o.With("b").Database; got != "b" || o.Database != "a" {
		t.Errorf("got %s, and the original is %s; want b and a", got, o.Database)
	}
}

func TestOpenNamesABadAddress(t *testing.T) {
	for _, addresses := range [][]string{nil, {"host-without-port"}} {
		if _, err := chconn.Open(chconn.Options{Addresses: addresses}); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%v: got %v, want what an address looks like", addresses, err)
		}
	}
}

func TestWaitReadyReturnsAtOnceWhenWaitingCannotHelp(t *testing.T) {
	s := testenv.ClickHouse(t)
	for name, change := range map[string]func(*chconn.Options){
		"a wrong password":    func(o *chconn.Options) { o.Password = "guess" },
		"an unknown user":     func(o *chconn.Options) { o.User = "nobody" },
		"an unknown database": func(o *chconn.Options) { o.Database = "nowhere" },
	} {
		t.Run(name, func(t *testing.T) {
			o := s.Owner
			change(&o)
			conn, err := chconn.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := chconn.WaitReady(ctx, conn); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the refusal", err)
			}
			if ctx.Err() != nil {
				t.Error("it waited for what cannot come")
			}
		})
	}
}

func TestWaitReadyGivesUpWithTheLastReason(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	conn, err := chconn.Open(chconn.Options{Addresses: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err = chconn.WaitReady(ctx, conn)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want the deadline and the refused connection", err)
	}
}

// recovering is a server that refuses once.
type recovering struct {
	driver.Conn
	err error
}

func (r *recovering) Ping(context.Context) (err error) {
	err, r.err = r.err, nil
	return err
}

func TestWhatPassesIsToldFromWhatStays(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nobody listens":            {&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		"the connection broke":      {fmt.Errorf("read: %w", io.EOF), true},
		"no memory for now":         {fmt.Errorf("apply: %w", &clickhouse.Exception{Code: 241}), true},
		"a server that shuts down":  {&clickhouse.Exception{Code: 394}, true},
		"a wrong password":          {fmt.Errorf("apply: %w", &clickhouse.Exception{Code: 516}), false},
		"a right that is missing":   {&clickhouse.Exception{Code: 497}, false},
		"a table that is not there": {&clickhouse.Exception{Code: 60}, false},
		"an unknown answer":         {&clickhouse.Exception{Code: 9999}, false},
		"another's certificate":     {fmt.Errorf("dial: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := chconn.Passing(c.err); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if err := chconn.WaitReady(t.Context(), &recovering{err: c.err}); (err == nil) != c.want {
				t.Errorf("whoever waits until it is ready got %v", err)
			}
		})
	}
}
