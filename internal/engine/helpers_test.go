package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/spillway-io/spillway/internal/chconn"
)

// clickHouseOnly is a configuration with an embedded ClickHouse on dir and no Kafka.
func clickHouseOnly(dir string) Config {
	cfg := DefaultConfig()
	cfg.DataDir = dir
	cfg.Kafka.Mode = ModeNone
	return cfg
}

// kafkaOnly is a configuration with an embedded Kafka on dir and no ClickHouse.
func kafkaOnly(dir string) Config {
	cfg := DefaultConfig()
	cfg.DataDir = dir
	cfg.ClickHouse.Mode = ModeNone
	return cfg
}

// mustStart starts engines and stops them after the test. Without an engine to run it skips, or fails where services are
// required.
func mustStart(t *testing.T, cfg Config) *Engines {
	t.Helper()
	e, err := Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if errors.Is(err, ErrNoClickHouse) && os.Getenv("SPILLWAY_REQUIRE_SERVICES") != "1" {
		t.Skip("SKIPPED, NOT PASSED: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Stop() })
	return e
}

func mustStop(t *testing.T, e *Engines) {
	t.Helper()
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, o chconn.Options) driver.Conn {
	t.Helper()
	conn, err := chconn.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func exec1(t *testing.T, conn driver.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func count(t *testing.T, conn driver.Conn, query string) uint64 {
	t.Helper()
	var n uint64
	if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// eventually polls until ok returns nil.
func eventually(t *testing.T, within time.Duration, ok func() error) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s still: %v", within, err)
		}
	}
}

// hosted is a process of its own that runs both engines on a directory.
type hosted struct {
	cmd      *exec.Cmd
	childPID int
	owner    chconn.Options
	broker   string
}

func startHosted(t *testing.T, dir string) *hosted {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &hosted{cmd: exec.Command(self)}
	h.cmd.Env = append(os.Environ(), hostVariable+"="+dir)
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.cmd.Process.Kill()
		h.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	var address, password string
	if _, serr := fmt.Sscanf(line, "ready %d %s %s %s", &h.childPID, &address, &password, &h.broker); serr != nil {
		t.Fatalf("the hosting process said %q (%v)", line, err)
	}
	h.owner = chconn.Options{Addresses: []string{address}, Database: "spillway", User: ownerUser, Password: password}
	return h
}

// kill ends the hosting process as kill -9 does.
func (h *hosted) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

// lockedBuffer collects log lines of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func textLog(w *lockedBuffer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// wantError checks kind and words of a failed start and that nothing was left running.
func wantError(t *testing.T, cfg Config, kind error, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		e.Stop()
		t.Fatalf("it started; want the error %q", kind)
	}
	if !errors.Is(err, kind) {
		t.Fatalf("got %v; want the kind %q", err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}
