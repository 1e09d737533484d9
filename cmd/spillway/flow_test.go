package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// patience bounds what a test waits for on a machine that has much else to do; it says nothing of how long a thing may take.
const patience = 5 * time.Minute

// running is a throw-away flow that runs until the test ends; a stage that fails fails the test.
func running(t testing.TB, s *settings, run stages) *flow {
	t.Helper()
	f, err := open(context.Background(), s, run, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		f.close()
	})
	return f
}

// dying passes connections on to a server; each of the first ones ends after so many bytes to it, as if the server died.
func dying(t *testing.T, server string, after ...int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		open.Wait()
	})
	open.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			limit := int64(-1)
			if len(after) > 0 {
				limit, after = after[0], after[1:]
			}
			open.Go(func() {
				defer from.Close()
				to, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				open.Go(func() { io.Copy(from, to) })
				if limit < 0 {
					io.Copy(to, from)
				} else {
					io.CopyN(to, from, limit)
				}
				to.Close()
			})
		}
	})
	return l.Addr().String()
}

// starting is a flow that is about to open its store, and its log.
func starting(owner chconn.Options) (*flow, *bytes.Buffer) {
	var log bytes.Buffer
	s := defaultSettings()
	s.Load.RetryMin, s.Load.RetryMax = time.Millisecond, 10*time.Millisecond
	return &flow{settings: &s, log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), engines: &engine.Engines{ClickHouse: engine.ClickHouse{Owner: owner}}}, &log
}

func TestAStartOutlivesAServerThatDies(t *testing.T) {
	db := testenv.ClickHouse(t)
	owner := db.Owner
	owner.Addresses = []string{dying(t, db.Owner.Addresses[0], 0, 0, 300, 2_000, 10_000)}
	f, log := starting(owner)
	if err := f.openStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer f.conn.Close()
	if todo, err := clickhouse.Plan(t.Context(), f.conn, clickhouse.Options{}); err != nil || len(todo) > 0 {
		t.Errorf("%d steps are left, %v", len(todo), err)
	}
	if n := strings.Count(log.String(), `msg="not ready, trying again until it is" what=clickhouse`); n < 2 {
		t.Errorf("the log tells of %d tries:\n%s", n, log)
	}
	for _, once := range []string{"level=WARN", `msg="ready now" what=clickhouse`} {
		if n := strings.Count(log.String(), once); n != 1 {
			t.Errorf("%q stands %d times in the log:\n%s", once, n, log)
		}
	}
}

func TestAStartEndsWhereWaitingCannotHelp(t *testing.T) {
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db, clickhouse.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Exec(t.Context(), "INSERT INTO schema_steps (name, sha256) VALUES ('9999_of_the_future', 'x')"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*chconn.Options)
		want   string
	}{
		"a wrong password":         {func(o *chconn.Options) { o.Password = "guess" }, "uthentication failed"},
		"a database that is newer": {func(*chconn.Options) {}, clickhouse.ErrNewer.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			owner := db.Owner
			c.change(&owner)
			f, log := starting(owner)
			if err := f.openStore(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q; the log:\n%s", err, c.want, log)
			}
		})
	}
	t.Run("whoever waits is asked to end", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		owner := db.Owner
		owner.Addresses = []string{l.Addr().String()}
		f, _ := starting(owner)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := f.openStore(ctx); err == nil || errors.Is(err, clickhouse.ErrNewer) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an embedded server died", func(t *testing.T) {
		cfg := engine.DefaultConfig()
		cfg.DataDir, cfg.Kafka.Mode = t.TempDir(), engine.ModeNone
		engines, err := engine.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer engines.Stop()
		for _, pid := range testenv.ChildrenOf(cfg.DataDir) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		f, _ := starting(engines.ClickHouse.Owner)
		f.engines = engines
		if err := f.openStore(t.Context()); !errors.Is(err, errEngineDied) {
			t.Errorf("got %v, want %v", err, errEngineDied)
		}
	})
}

// spoken passes log lines on as they come.
type spoken chan string

func (c spoken) Write(line []byte) (int, error) {
	c <- string(line)
	return len(line), nil
}

// sending is what a process needs that reaches nothing but a Kafka.
func sending(brokers ...string) *settings {
	s := defaultSettings()
	s.Engine.Kafka.Brokers = brokers
	s.Load.RetryMin, s.Load.RetryMax = time.Millisecond, 10*time.Millisecond
	return &s
}

func TestAStartWaitsForKafka(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	lines, opened := make(spoken, 100), make(chan error, 1)
	go func() {
		f, err := open(t.Context(), sending(l.Addr().String()), stages{collect: true}, false, slog.New(slog.NewTextHandler(lines, nil)))
		if err == nil {
			f.close()
		}
		opened <- err
	}()
	for _, want := range []string{`level=WARN msg="not ready, trying again until it is" what=kafka`, `msg="ready now" what=kafka`} {
		select {
		case line := <-lines:
			if !strings.Contains(line, want) {
				t.Fatalf("it said %s, want %q", line, want)
			}
		case err := <-opened:
			t.Fatalf("it ended with %v, before it said %q", err, want)
		case <-time.After(patience):
			t.Fatalf("it never said %q", want)
		}
		if strings.Contains(want, "not ready") {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(l.Addr().(*net.TCPAddr).Port))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
		}
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestAStartDoesNotWaitForAKafkaThatRefuses(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "spillway", "right"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	s := sending(cluster.ListenAddrs()...)
	s.Engine.Kafka.SASL = engine.SASLConfig{Mechanism: "plain", User: "spillway", PasswordFile: filepath.Join(t.TempDir(), "password")}
	if err := os.WriteFile(s.Engine.Kafka.SASL.PasswordFile, []byte("guess"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t.Context(), s, stages{collect: true}, false, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "engine.kafka.sasl") {
		t.Errorf("got %v, want what to check", err)
	}
	t.Run("whoever waits is asked to end", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := open(ctx, sending("127.0.0.1:1"), stages{collect: true}, false, slog.New(slog.DiscardHandler)); err == nil || ctx.Err() == nil {
			t.Errorf("got %v", err)
		}
	})
}
