package scrape

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"time"
)

// Command runs programs that ask a driver, one at a time. A process that hangs in the driver does not end even when it is
// killed: it is left to itself, and no other is started until it is gone. One goroutine at a time may use a Command; its
// zero value is ready.
type Command struct {
	left chan struct{}         // closed once the process that was left to itself is gone; nil = there is none
	run  func(*exec.Cmd) error // nil = (*exec.Cmd).Run; a test puts what does not end in its place
}

var (
	// ErrHung says that a process hangs in the driver and cannot be ended.
	ErrHung = errors.New("the process hangs in the driver and cannot be ended; no other is started until it is gone")
	// ErrTooLong says that an output has more bytes than it may.
	ErrTooLong = errors.New("the output is too long")
)

// commandGrace is how long a process that is killed may keep its output open.
const commandGrace = time.Second

// Run runs a program, which no shell reads, until it or ctx ends, and gives what it wrote, each of at most limit bytes. An
// error is that of the process, ErrTooLong or ErrHung; with the last there is no output.
func (c *Command) Run(ctx context.Context, argv []string, limit int) (stdout, stderr []byte, err error) {
	if c.left != nil {
		select {
		case <-c.left:
			c.left = nil
		default:
			return nil, nil, ErrHung
		}
	}
	run := c.run
	if run == nil {
		run = (*exec.Cmd).Run
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = commandGrace
	out, said := &limited{most: limit}, &limited{most: limit}
	cmd.Stdout, cmd.Stderr = out, said
	ended := make(chan struct{})
	var failed error // how it ended, once it has
	go func() {
		defer close(ended)
		failed = run(cmd)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(2 * commandGrace):
			c.left = ended
			return nil, nil, ErrHung
		}
	}
	if out.full || said.full {
		failed = ErrTooLong // the process itself ended of a broken pipe
	}
	return out.text.Bytes(), said.text.Bytes(), failed
}

// limited refuses an output without end. It is no io.ReaderFrom, which would go past the limit.
type limited struct {
	text bytes.Buffer
	most int
	full bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.text.Len()+len(p) > l.most {
		l.full = true
		return 0, ErrTooLong
	}
	return l.text.Write(p)
}
