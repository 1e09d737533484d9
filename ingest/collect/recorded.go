package collect

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// RecordedSince is since when replay declares nodes and their places: a recording says what the cluster was, and jobs in it are
// older than it.
var RecordedSince = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// OpenRecorded opens a recorded file, unpacked if it is gzip by its first bytes.
func OpenRecorded(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	b := bufio.NewReaderSize(f, 64<<10)
	magic, err := b.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		f.Close()
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return struct {
			io.Reader
			io.Closer
		}{b, f}, nil
	}
	z, err := gzip.NewReader(b)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("replay %s: unpack: %w; record the file again", path, err)
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}
