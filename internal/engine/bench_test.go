package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkStart is the time from nothing to an answer, on a new and on a used directory.
func BenchmarkStart(b *testing.B) {
	cfg := DefaultConfig()
	cfg.DataDir = b.TempDir()
	for b.Loop() {
		e, err := Start(context.Background(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := e.Stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkIdle watches an idle pair of engines, one second an operation: run it with -benchtime 30x. It reports the
// resident memory of child and parent and the share of one core the child uses.
func BenchmarkIdle(b *testing.B) {
	cfg := DefaultConfig()
	cfg.DataDir = b.TempDir()
	e, err := Start(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer e.Stop()
	pid := e.server.process.Pid
	start, before := time.Now(), cpuTicks(b, pid)
	for b.Loop() {
		time.Sleep(time.Second)
	}
	ticks := cpuTicks(b, pid) - before
	b.ReportMetric(100*float64(ticks)/100/time.Since(start).Seconds(), "child-cpu-%")
	b.ReportMetric(residentMB(b, pid), "child-MB")
	b.ReportMetric(residentMB(b, os.Getpid()), "parent-MB")
}

// cpuTicks is the user and system time of a process in ticks of 10 ms (proc(5), stat fields 14 and 15).
func cpuTicks(b *testing.B, pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("no /proc here: ", err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

// residentMB is VmRSS of a process (proc(5), status).
func residentMB(b *testing.B, pid int) float64 {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		b.Skip("no /proc here: ", err)
	}
	_, rest, _ := strings.Cut(string(raw), "VmRSS:")
	kb, _ := strconv.Atoi(strings.Fields(rest)[0])
	return float64(kb) / 1024
}
