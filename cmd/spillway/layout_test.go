package main

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/schemas/clickhouse"
)

const module = "github.com/spillway-io/spillway/"

// goPackage is what this test needs of `go list -json`.
type goPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// allowed says which of our own packages each part of the tree may import, by prefix. It is the picture of DESIGN.md as
// a rule: imports run cmd -> stages -> schemas, internal, and stages meet only in Kafka, ClickHouse and schemas.
var allowed = []struct{ from, to string }{
	{"cmd/", ""},
	{"ingest/collect/", "ingest/collect/slurm/hostlist"}, // the one parser of Slurm node lists
	{"ingest/collect/", "ingest/collect"},                // what collectors share; each other's folders are refused below
	{"ingest/load", "ingest/kafka"},
	{"ingest/", "schemas"},
	{"enrich/", "enrich"},
	{"enrich/", "schemas"},
	{"query/", "query"},
	{"query/", "schemas"},
	{"schemas/", "schemas"},
	{"ingest/", "internal"},
	{"enrich/", "internal"},
	{"query/", "internal"},
	{"schemas/clickhouse", "internal"}, // its tests run the steps on a real server
	{"internal/", "internal"},
}

// forbidden narrows what allowed would let through.
var forbidden = []struct{ from, to, why string }{
	{"ingest/collect", "ingest/kafka", "a collector knows no Kafka: it emits to an interface"},
	{"ingest/collect", "ingest/load", "a collector knows no ClickHouse"},
	{"ingest/collect", "internal/chconn", "a collector knows no ClickHouse"},
	{"ingest/collect", "internal/engine", "a collector knows neither engine"},
	{"schemas/event", "internal", "the contract depends on nothing of ours"},
}

// concrete lists the collectors: every folder of ingest/collect but what they share. They are imported by cmd alone and
// never by one another, hostlist apart.
func concrete(t *testing.T) (out []string) {
	t.Helper()
	folders, err := os.ReadDir("../../ingest/collect")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if f.IsDir() && f.Name() != "collecttest" && f.Name() != "scrape" {
			out = append(out, "ingest/collect/"+f.Name())
		}
	}
	return out
}

func TestImportsFollowTheFlow(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	edges, collectors := 0, concrete(t)
	for dec := json.NewDecoder(out); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module); ours {
				edges++
				check(t, collectors, from, to, false)
			}
		}
		for _, imported := range append(p.TestImports, p.XTestImports...) {
			if to, ours := strings.CutPrefix(imported, module); ours {
				check(t, collectors, from, to, true)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	// A rename of the module would leave nothing to check, and everything would pass.
	if edges < 20 {
		t.Errorf("saw %d imports between our packages: the module path %s or the listing is wrong", edges, module)
	}
}

func check(t *testing.T, collectors []string, from, to string, inTest bool) {
	t.Helper()
	for _, rule := range forbidden {
		if under(from, rule.from) && under(to, rule.to) && !(inTest && to == "internal/testenv") {
			t.Errorf("%s imports %s: %s", from, to, rule.why)
		}
	}
	for _, c := range collectors {
		if under(to, c) && to != "ingest/collect/slurm/hostlist" && !under(from, c) && !strings.HasPrefix(from, "cmd/") {
			t.Errorf("%s imports the collector %s: only cmd may", from, to)
		}
	}
	for _, rule := range allowed {
		if under(from, rule.from) && under(to, rule.to) {
			return
		}
	}
	// Tests run the real things: the schema and a server to hold it.
	if inTest && (under(to, "schemas") || under(to, "internal")) {
		return
	}
	t.Errorf("%s imports %s: stages meet in Kafka, ClickHouse and schemas, never in each other's packages", from, to)
}

// under reports whether a package path is a prefix's or below it.
func under(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

// TestStillSoIsWrittenOneWay: statements and boards write what has not ended as clickhouse.OpenEnd, and compare with it alike.
func TestStillSoIsWrittenOneWay(t *testing.T) {
	want := "valid_to >= '" + clickhouse.OpenEnd.Format(time.DateOnly) + "'"
	farOff := regexp.MustCompile(`([\w.]+ *[=<>]+ *)?[^\s=<>]*'2[1-9]\d\d-[^']*'`)
	seen := 0
	for _, folder := range []string{"enrich", "query", "dashboards"} {
		err := filepath.WalkDir(filepath.Join(top, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if ext := filepath.Ext(path); d.IsDir() || strings.HasSuffix(path, "_test.go") || ext != ".sql" && ext != ".go" && ext != ".json" {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			// Boards are JSON, which may write the sign as an escape.
			for _, use := range farOff.FindAllString(strings.ReplaceAll(string(text), `\u003e`, ">"), -1) {
				if seen++; !strings.HasSuffix(use, want) {
					t.Errorf("%s writes %q: write %q", path, use, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 10 {
		t.Errorf("saw %d uses: the pattern or the folders are wrong", seen)
	}
}
