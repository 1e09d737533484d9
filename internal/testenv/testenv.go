// Package testenv gives tests the real services they run against: a ClickHouse, a Kafka, programs from outside. It
// belongs beside the flow and never inside it: only tests import it.
//
// A service that is absent makes a test skip, loudly; with SPILLWAY_REQUIRE_SERVICES=1 it makes it fail, so that no
// build can pass by skipping.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
)

// RequireVariable is the environment variable that turns a skip into a failure.
const RequireVariable = "SPILLWAY_REQUIRE_SERVICES"

// shared is the ClickHouse of this test process: starting one per test would cost more than most tests.
var shared struct {
	main    atomic.Bool // Main ran, so a child process finds its way
	once    sync.Once
	engines *engine.Engines
	err     error
	next    atomic.Int64
}

// Main is the whole TestMain of a package that uses services or starts goroutines: it becomes the ClickHouse child when
// started as one, runs the tests, stops what they started and fails on leaked goroutines.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
func Main(m *testing.M, leakOptions ...goleak.Option) {
	engine.MaybeRunChild()
	shared.main.Store(true)
	code := m.Run()
	if shared.engines != nil {
		if err := shared.engines.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "testenv:", err)
			code = max(code, 1)
		}
	}
	if code == 0 {
		if err := goleak.Find(leakOptions...); err != nil {
			fmt.Fprintln(os.Stderr, "testenv: goroutines are left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Unavailable skips the test, or fails it when services are required.
func Unavailable(t testing.TB, what string, why error) {
	t.Helper()
	if os.Getenv(RequireVariable) == "1" {
		t.Fatalf("%s is required (%s=1) and not available: %v", what, RequireVariable, why)
	}
	t.Skipf("SKIPPED, NOT PASSED: %s is not available: %v", what, why)
}

// Server is a ClickHouse database of one test.
type Server struct {
	driver.Conn                // connected as the owner, to Database
	Database    string         // new and empty, dropped after the test
	Owner       chconn.Options // to open more connections as the owner
	Reader      chconn.Options // and as the read-only account
	HTTP        string         // host:port of the HTTP interface
}

// ClickHouse returns an empty database on the real ClickHouse of this test process, which the first caller starts.
func ClickHouse(t testing.TB) *Server {
	t.Helper()
	if !shared.main.Load() {
		t.Fatal("testenv.ClickHouse needs func TestMain(m *testing.M) { testenv.Main(m) } in this package")
	}
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // the first use on a machine fetches the engine
		defer cancel()
		cfg := engine.DefaultConfig()
		cfg.Kafka.Mode = engine.ModeNone
		shared.engines, shared.err = engine.StartThrowaway(ctx, cfg, quiet())
	})
	if errors.Is(shared.err, engine.ErrNoClickHouse) {
		Unavailable(t, "ClickHouse", shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	ch := shared.engines.ClickHouse
	h := fnv.New32a()
	h.Write([]byte(t.Name()))
	name := fmt.Sprintf("t%d_%08x", shared.next.Add(1), h.Sum32())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := chconn.Open(ch.Owner)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("create the test's database: %v", err)
	}
	s := &Server{Database: name, Owner: ch.Owner.With(name), Reader: ch.Reader.With(name), HTTP: ch.HTTP}
	if s.Conn, err = chconn.Open(s.Owner); err != nil {
		t.Fatal(err)
	}
	s.Conn = keeper{s.Conn}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Exec(ctx, "DROP DATABASE IF EXISTS "+name+" SYNC"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
		s.Close()
	})
	return s
}

// keeper is a connection on which tables are made that lose no row by its age: what tests store has fixed dates, and what they
// find does not depend on the day.
type keeper struct{ driver.Conn }

func (k keeper) Exec(ctx context.Context, query string, args ...any) error {
	err := k.Conn.Exec(ctx, query, args...)
	if err == nil && strings.HasPrefix(query, "CREATE TABLE") && strings.Contains(query, "TTL") {
		err = k.Conn.Exec(ctx, "SYSTEM STOP TTL MERGES") // of all tables that there are now
	}
	return err
}

// Kafka returns a broker of the test's own, empty and gone after it. Topics are made by whoever needs them.
func Kafka(t testing.TB) engine.Kafka {
	t.Helper()
	cfg := engine.DefaultConfig()
	cfg.DataDir = t.TempDir()
	return KafkaAt(t, cfg).Kafka
}

// KafkaAt is Kafka with a configuration of the test's own, for tests that stop a broker and start it again on the same
// directory.
func KafkaAt(t testing.TB, cfg engine.Config) *engine.Engines {
	t.Helper()
	cfg.ClickHouse.Mode = engine.ModeNone
	e, err := engine.Start(context.Background(), cfg, quiet())
	if err != nil {
		t.Fatalf("start the test's kafka: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Errorf("stop the test's kafka: %v", err)
		}
	})
	return e
}

// Binary returns the path of a program from outside, such as promtool. Whoever lacks it skips or fails, see Unavailable.
func Binary(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Unavailable(t, name, err)
	}
	return path
}

// Eventually polls until ok returns nil and fails the test with its last error after the deadline.
func Eventually(t testing.TB, within time.Duration, ok func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s still: %v", within, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Until is Eventually for a condition, which what names as it will be, and waits for a minute at most.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Eventually(t, time.Minute, func() error {
		if holds() {
			return nil
		}
		return fmt.Errorf("not so: %s", what)
	})
}

// quiet passes only what somebody running tests should see: the one long download, and trouble.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(writer{}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type writer struct{}

func (writer) Write(b []byte) (int, error) {
	if s := string(b); strings.Contains(s, "level=INFO") && !strings.Contains(s, "fetch") {
		return len(b), nil
	}
	return os.Stderr.Write(b)
}
