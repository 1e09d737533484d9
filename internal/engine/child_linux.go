package engine

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// serveQuery is what clickhouse-local runs: open both listeners, then wait for the end of standard input. HTTP comes
// first, so that whoever is answered on the native port may use both.
const serveQuery = "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; SELECT count() FROM file('stdin', 'LineAsString', 'line String')"

// MaybeRunChild turns this process into the ClickHouse child when it was started as one, and then never returns.
// Otherwise it does nothing. Call it first thing in main and in TestMain.
func MaybeRunChild() {
	if len(os.Args) < 4 || os.Args[1] != childArg {
		return
	}
	remove := ""
	if len(os.Args) > 4 {
		remove = os.Args[4]
	}
	code := runChild(os.Args[2], os.Args[3])
	if remove != "" {
		os.RemoveAll(remove)
	}
	os.Exit(code)
}

// runChild loads the library and serves until the parent closes our standard input, dies, or we are told to stop.
//
// ClickHouse gets a pseudo-terminal of our own in place of standard input, for two reasons. The end can be announced
// from either side and bounded: whatever ClickHouse is doing, the process is gone stopGrace later. And clickhouse-local
// aborts the whole process on any error of a connection, be it a wrong password or a client that was killed, unless it
// believes that somebody sits at a terminal.
func runChild(library, config string) int {
	parent, err := unix.Dup(0)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clickhouse child: keep standard input:", err)
		return 1
	}
	terminal, err := replaceStdin()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clickhouse child: make a pseudo-terminal (is /dev/ptmx there?):", err)
		return 1
	}

	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clickhouse child: load library:", err)
		return 1
	}
	sym, err := purego.Dlsym(lib, "query_stable_v2")
	if err != nil {
		fmt.Fprintln(os.Stderr, "clickhouse child: load library:", err)
		return 1
	}

	fmt.Fprintln(os.Stderr, libraryLoaded)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	gone := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.NewFile(uintptr(parent), "parent"))
		close(gone)
	}()
	go func() {
		select {
		case <-gone:
		case <-signals:
		}
		terminal.Close()
		time.Sleep(stopGrace)
		fmt.Fprintln(os.Stderr, "clickhouse child: did not close its tables in time, ending anyway")
		os.Exit(1)
	}()

	runtime.LockOSThread()
	return query(sym, "clickhouse", "--config-file="+config, "--interactive", "--query", serveQuery)
}

// replaceStdin makes one end of a new pseudo-terminal our standard input and returns the other. Closing that one is the
// end of input.
func replaceStdin() (*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("get its number: %w", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer slave.Close()
	return master, unix.Dup3(int(slave.Fd()), 0, 0)
}

// localResult mirrors struct local_result_v2 of chdb.h: what a clickhouse-local run left behind.
type localResult struct {
	_            *byte          // buf
	_            uintptr        // len
	_            unsafe.Pointer // vec
	_            float64        // elapsed
	_            uint64         // rows_read
	_            uint64         // bytes_read
	errorMessage *byte
}

// query calls query_stable_v2(argc, argv) and returns the exit status of the run. The result is never freed: the process
// ends with it.
func query(sym uintptr, args ...string) int {
	argv := make([]*byte, len(args)+1)
	for i, a := range args {
		argv[i] = unsafe.SliceData(append([]byte(a), 0))
	}
	var run func(argc int32, argv unsafe.Pointer) *localResult
	purego.RegisterFunc(&run, sym)
	res := run(int32(len(args)), unsafe.Pointer(unsafe.SliceData(argv)))
	runtime.KeepAlive(argv)
	if res == nil {
		fmt.Fprintln(os.Stderr, "clickhouse child: the engine could not start")
		return 1
	}
	if res.errorMessage != nil {
		n := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(res.errorMessage), n)) != 0 {
			n++
		}
		fmt.Fprintln(os.Stderr, unsafe.String(res.errorMessage, n))
		return 1
	}
	return 0
}
