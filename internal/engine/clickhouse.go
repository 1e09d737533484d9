package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/internal/chconn"
)

const (
	readyTimeout = 60 * time.Second
	portTries    = 5
)

// server is one embedded ClickHouse: a child process and the place it keeps its data.
type server struct {
	paths    serverPaths
	cred     credentials
	listen   string
	tcpPort  int
	httpPort int
	library  string // what the child loads; empty: a clickhouse binary runs instead

	lifeline *os.File      // closing it asks the child to end
	ended    chan struct{} // closed when the child is gone
	endErr   error         // why, valid after ended
	process  *os.Process
}

// startServer runs a ClickHouse on dir, an absolute path, and returns when it answers. A port of 0 is a free one, chosen
// again if somebody else is faster. When removeDir is given the child removes that directory as it ends.
func startServer(ctx context.Context, dir string, c ClickHouseConfig, removeDir string, log *slog.Logger) (*server, error) {
	const op = "start clickhouse"
	if os.Getenv(childEnv) != "" {
		return nil, errors.New(op + ": this process is itself a clickhouse child: call engine.MaybeRunChild first in main and in TestMain")
	}
	s := &server{paths: pathsBelow(dir), listen: c.Listen}
	program, err := findProgram(ctx, c, log)
	if err != nil {
		return nil, err
	}
	s.library = program.library
	for try := 1; ; try++ {
		if err := os.MkdirAll(s.paths.data, 0o700); err != nil {
			return nil, diskError(op, err)
		}
		if s.cred, err = loadCredentials(s.paths.credentials); err != nil {
			return nil, diskError(op, err)
		}
		if s.tcpPort, s.httpPort, err = choosePorts(c); err != nil {
			return nil, err
		}
		if err := writeServerConfig(s.paths, c, s.cred, s.tcpPort, s.httpPort); err != nil {
			return nil, diskError(op, err)
		}
		if err := s.spawn(program, removeDir); err != nil {
			return nil, err
		}
		err = s.waitReady(ctx)
		if err == nil {
			break
		}
		s.stop()
		if try < portTries && (c.TCPPort == 0 || c.HTTPPort == 0) && errors.Is(err, ErrPortInUse) {
			continue
		}
		return nil, err
	}
	log.Info("clickhouse is ready", "pid", s.process.Pid, "native", s.address(), "http", s.httpAddress(), "engine", program.name)
	return s, nil
}

// choosePorts checks fixed ports and picks free ones for 0. The engine itself says only in its log that a port was taken.
func choosePorts(c ClickHouseConfig) (tcp, http int, err error) {
	take := func(key string, port int) (int, net.Listener) {
		l, lerr := net.Listen("tcp", net.JoinHostPort(c.Listen, strconv.Itoa(port)))
		if lerr == nil {
			return l.Addr().(*net.TCPAddr).Port, l
		}
		e := &Error{Op: "start clickhouse", Kind: fmt.Errorf("listen on %s: %w", net.JoinHostPort(c.Listen, strconv.Itoa(port)), lerr),
			Hint: fmt.Sprintf("set engine.clickhouse.listen and engine.clickhouse.%s to an address and a port this user may listen on", key)}
		if errors.Is(lerr, syscall.EADDRINUSE) {
			e.Kind = ErrPortInUse
			e.Hint = fmt.Sprintf("%s is taken: stop what listens there, or set engine.clickhouse.%s to another port (0: a free one)",
				net.JoinHostPort(c.Listen, strconv.Itoa(port)), key)
		}
		err = errors.Join(err, e)
		return 0, nil
	}
	tcp, tl := take("tcp_port", c.TCPPort)
	http, hl := take("http_port", c.HTTPPort)
	for _, l := range []net.Listener{tl, hl} {
		if l != nil {
			l.Close()
		}
	}
	return tcp, http, err
}

// spawn starts the child. Its thread stays locked until the child ends: see childAttr.
func (s *server) spawn(p program, removeDir string) error {
	output, err := os.OpenFile(s.paths.output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return diskError("start clickhouse", err)
	}
	defer output.Close()
	if err := os.WriteFile(s.paths.log, nil, 0o600); err != nil { // this run's log only: its tail explains this run's failure
		return diskError("start clickhouse", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start clickhouse: make a pipe: %w", err)
	}
	defer r.Close()
	cmd, err := p.command(s.paths.config, removeDir)
	if err != nil {
		w.Close()
		return err
	}
	cmd.Dir = s.paths.dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, output, output
	cmd.SysProcAttr = childAttr()
	s.lifeline, s.ended, s.endErr = w, make(chan struct{}), nil
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		s.endErr = cmd.Wait()
		close(s.ended)
	}()
	if err := <-started; err != nil {
		w.Close()
		return fmt.Errorf("start clickhouse: run %s: %w", cmd.Path, err)
	}
	s.process = cmd.Process
	return nil
}

// waitReady returns when the server answers as its owner, or says why it never will.
func (s *server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	go s.watchStart(ctx, cancel)
	conn, err := chconn.Open(s.owner(""))
	if err != nil {
		return err
	}
	defer conn.Close()
	err = chconn.WaitReady(ctx, conn)
	if err == nil {
		return nil
	}
	if s.failed() {
		return s.diagnose()
	}
	return &Error{Op: "start clickhouse", Kind: ErrNotReady, Detail: err.Error() + "\n" + s.tail(),
		Hint: "see " + s.paths.log + " and " + s.paths.output}
}

// watchStart ends the wait when the child has ended or said that it cannot: after a failed query it stays.
func (s *server) watchStart(ctx context.Context, giveUp func()) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !s.failed() {
		select {
		case <-ctx.Done():
			return
		case <-s.ended:
		case <-tick.C:
		}
	}
	giveUp()
}

// failed reports whether the child ended or printed an exception of its own.
func (s *server) failed() bool {
	select {
	case <-s.ended:
		return true
	default:
	}
	b, err := os.ReadFile(s.paths.output)
	return err == nil && ownException.Match(b)
}

// ownException matches the failure of a query the child itself sent, as opposed to a line of its log.
var ownException = regexp.MustCompile(`(?m)^(Received exception|Code: \d+\. DB::Exception)`)

// diagnose turns what a dead child left in its logs into an error with a remedy.
func (s *server) diagnose() error {
	tail := s.tail()
	select {
	case <-s.ended:
		if s.endErr != nil {
			tail = s.endErr.Error() + "\n" + tail // such as "signal: killed", which is what running out of memory looks like
		}
	default:
	}
	e := &Error{Op: "run clickhouse", Kind: ErrDied, Detail: tail, Hint: "see " + s.paths.log + " and " + s.paths.output}
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(tail, p) {
				return true
			}
		}
		return false
	}
	switch {
	case s.library != "" && !s.loaded():
		e.Kind = ErrLibrary
		e.Hint = s.library + " is damaged or not for this machine: remove it if it is in the cache (it is fetched again), or set engine.clickhouse.library to a good one"
	case has("Address already in use"):
		e.Kind = ErrPortInUse
		e.Hint = fmt.Sprintf("stop what listens on port %d or %d, or set engine.clickhouse.tcp_port and engine.clickhouse.http_port to other ports", s.tcpPort, s.httpPort)
	case has("No space left on device", "NOT_ENOUGH_SPACE"):
		e.Kind = ErrDiskFull
		e.Hint = "make room below " + s.paths.dir + ", or set data_dir to a larger disk"
	case has("Cannot lock file", "Another server instance"):
		e.Kind = ErrDataDirInUse
		e.Hint = "another server runs on " + s.paths.data + ": stop it, or set data_dir to another directory"
	case has("Cannot parse definition from metadata file", "while loading database", "Cannot attach table",
		"CORRUPTED_DATA", "CANNOT_READ_ALL_DATA", "CHECKSUM_DOESNT_MATCH", "UNKNOWN_FORMAT_VERSION"):
		e.Kind = ErrCorruptData
		e.Hint = "what is named below cannot be read: restore " + s.paths.data + " from a backup, or move it away to start empty"
	}
	return e
}

// loaded reports whether the child got as far as having its library.
func (s *server) loaded() bool {
	b, err := os.ReadFile(s.paths.output)
	return err == nil && bytes.Contains(b, []byte(libraryLoaded))
}

// tail is the end of what the child had to complain about, in its own output and then in its log.
func (s *server) tail() string {
	var b strings.Builder
	for _, path := range []string{s.paths.output, s.paths.log} {
		for _, line := range lastComplaints(path, 4) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// complaint tells the lines that name a cause from banners, progress and stack frames.
var complaint = regexp.MustCompile(`(?i)exception|error|fatal|cannot|no space|^SIG[A-Z]+:|clickhouse child: [^l]`)

// lastComplaints reads up to n such lines from the last 64 KiB of a file. A file that cannot be read has none.
func lastComplaints(path string, n int) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		f.Seek(max(0, info.Size()-64<<10), io.SeekStart)
	}
	b, _ := io.ReadAll(f)
	var lines []string
	for l := range bytes.Lines(b) {
		if l = bytes.TrimSpace(l); complaint.Match(l) {
			lines = append(lines, string(l[:min(len(l), 600)]))
		}
	}
	return lines[max(0, len(lines)-n):]
}

// stop asks the child to end and waits; a child that ignores it is killed. It is safe to call more than once.
func (s *server) stop() error {
	s.lifeline.Close() // ends our own child
	if s.library == "" {
		s.process.Signal(syscall.SIGTERM) // ends a clickhouse server
	}
	timer := time.NewTimer(stopGrace + 2*time.Second)
	defer timer.Stop()
	select {
	case <-s.ended:
		return nil
	case <-timer.C:
		s.process.Kill()
		<-s.ended
		return fmt.Errorf("stop clickhouse: it did not end within %s and was killed; its data is safe", stopGrace)
	}
}

func (s *server) address() string     { return joinHost(s.listen, s.tcpPort) }
func (s *server) httpAddress() string { return joinHost(s.listen, s.httpPort) }

// joinHost names an address to dial: a wildcard listener is reached over loopback.
func joinHost(listen string, port int) string {
	if ip := net.ParseIP(listen); ip != nil && ip.IsUnspecified() {
		listen = "127.0.0.1"
	}
	return net.JoinHostPort(listen, strconv.Itoa(port))
}

func (s *server) owner(database string) chconn.Options {
	return chconn.Options{Addresses: []string{s.address()}, Database: database, User: ownerUser, Password: s.cred.Owner}
}

func (s *server) reader(database string) chconn.Options {
	return chconn.Options{Addresses: []string{s.address()}, Database: database, User: readerUser, Password: s.cred.Reader}
}

// diskError names a full disk for what it is and leaves every other error alone.
func diskError(op string, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		var typed *Error
		if errors.As(err, &typed) {
			return err
		}
		return fmt.Errorf("%s: %w", op, err)
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &Error{Op: op, Kind: ErrDiskFull, Detail: first, Hint: "make room, or set data_dir to a larger disk"}
}

// program is what the child runs: our own binary with the library, or a clickhouse binary.
type program struct {
	name    string // for the log
	library string // libchdb to load; empty: binary
	binary  string // clickhouse
}

func (p program) command(config, removeDir string) (*exec.Cmd, error) {
	if p.binary != "" {
		return exec.Command(p.binary, "server", "--config-file="+config), nil
	}
	self, err := selfPath()
	if err != nil {
		return nil, fmt.Errorf("start clickhouse: find our own binary: %w", err)
	}
	args := []string{childArg, p.library, config}
	if removeDir != "" {
		args = append(args, removeDir)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), childEnv+"=1")
	return cmd, nil
}
