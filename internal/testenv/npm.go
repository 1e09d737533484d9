package testenv

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spillway-io/spillway/internal/engine"
)

// versions.json pins the npm packages that tests use, by the integrity npm itself records of them.
//
//go:embed versions.json
var versionsJSON []byte

type pinnedPackage struct {
	Version   string `json:"version"`
	Integrity string `json:"integrity"` // sha512-<base64> of the archive
}

// NPMFile gives one file of a pinned npm package, fetching its archive once into the cache that SPILLWAY_CACHE names,
// else the user's own. Whoever cannot fetch it skips or fails, see Unavailable.
func NPMFile(t testing.TB, name, file string) []byte {
	t.Helper()
	var pins map[string]pinnedPackage
	if err := json.Unmarshal(versionsJSON, &pins); err != nil {
		t.Fatalf("read versions.json: %v", err)
	}
	pin, ok := pins[name]
	if !ok {
		t.Fatalf("npm package %s is not pinned in internal/testenv/versions.json", name)
	}
	archive, err := npmArchive(name, pin)
	if err != nil {
		Unavailable(t, "npm package "+name, err)
	}
	body, err := fromArchive(archive, "package/"+file)
	if err != nil {
		t.Fatalf("unpack %s: %v", name, err)
	}
	return body
}

func npmArchive(name string, pin pinnedPackage) ([]byte, error) {
	cache, err := engine.CacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cache, "npm")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name+"-"+pin.Version+".tgz")
	if body, err := os.ReadFile(path); err == nil && intact(body, pin) {
		return body, nil
	}
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.Command("npm", "pack", name+"@"+pin.Version, "--pack-destination", tmp, "--cache", filepath.Join(tmp, "npm"), "--loglevel", "error")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm pack %s@%s: %w\n%s", name, pin.Version, err, out)
	}
	fetched := filepath.Join(tmp, name+"-"+pin.Version+".tgz")
	body, err := os.ReadFile(fetched)
	if err != nil {
		return nil, err
	}
	if !intact(body, pin) {
		return nil, errors.New("what npm delivered is not the pinned package: check the registry and the proxy in use")
	}
	return body, os.Rename(fetched, path)
}

func intact(archive []byte, pin pinnedPackage) bool {
	sum := sha512.Sum512(archive)
	return "sha512-"+base64.StdEncoding.EncodeToString(sum[:]) == pin.Integrity
}

func fromArchive(archive []byte, file string) ([]byte, error) {
	gz, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for tr := tar.NewReader(gz); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("it holds no %s", file)
		}
		if err != nil {
			return nil, err
		}
		if h.Name == file {
			return io.ReadAll(tr)
		}
	}
}
