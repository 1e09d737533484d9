package testenv

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spillway-io/spillway/internal/engine"
)

// fetchOnce gives a folder of the cache, see engine.CacheDir, which fetch makes when it is not there: in a folder of its own,
// work, so that one that is ended leaves nothing half done. fetch tells which folder in work is to become dir. What cannot be
// fetched is Unavailable.
func fetchOnce(t testing.TB, what, name string, fetch func(work, dir string) (made string, err error)) (dir string) {
	t.Helper()
	cache, err := engine.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	made, err := fetch(work, dir)
	if err != nil {
		Unavailable(t, what, err)
	}
	if err := os.Rename(made, dir); err != nil {
		if _, other := os.Stat(dir); other != nil { // else another test was faster
			t.Fatal(err)
		}
	}
	return dir
}

// GoModule builds a program that is a module of its own, and gives the function that runs it with an input and returns its
// output. What such modules hold takes minutes to compile, so it is done only where services are required.
func GoModule(t *testing.T, what, dir string) (run func(t *testing.T, in []byte) []byte) {
	t.Helper()
	if os.Getenv(RequireVariable) != "1" {
		t.Skipf("SKIPPED, NOT PASSED: it compiles %s for minutes; %s=1 runs it", what, RequireVariable)
	}
	program := filepath.Join(t.TempDir(), filepath.Base(dir))
	if out, err := exec.Command("go", "build", "-C", dir, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", what, err, out)
	}
	return func(t *testing.T, in []byte) []byte {
		t.Helper()
		var said bytes.Buffer
		cmd := exec.Command(program)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, said.Bytes())
		}
		return out
	}
}
