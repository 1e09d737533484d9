package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockDir takes the lock of a directory for as long as this process holds the returned file open. The kernel drops the
// lock with the process, so a killed owner leaves nothing to clean up.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of %s: %w", dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		b := make([]byte, 32)
		n, _ := f.ReadAt(b, 0)
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		return nil, &Error{Op: "open " + dir, Kind: ErrDataDirInUse,
			Hint: fmt.Sprintf("process %s runs on it: stop that one, or set data_dir to another directory", strings.TrimSpace(string(b[:n])))}
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("write lock of %s: %w", dir, err)
	}
	return f, nil
}
