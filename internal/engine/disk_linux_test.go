package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk mounts a disk of its own with room bytes left.
func smallDisk(t *testing.T, room int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, NOT PASSED: mounting a small disk needs root")
	}
	const size = 16 << 20
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skip("SKIPPED, NOT PASSED: cannot mount a small disk: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write(make([]byte, size)) // ends with a full disk
	if err := f.Truncate((size - room) &^ 4095); err != nil {
		t.Fatal(err)
	}
	return dir
}
