package collecttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spillway-io/spillway/schemas/event"
)

// Lines prints records one a line, in a form that does not change from run to run. One that breaks the contract fails the test.
func Lines(t testing.TB, records []event.Record) string {
	t.Helper()
	var b bytes.Buffer
	for _, r := range records {
		if err := r.Validate(); err != nil {
			t.Errorf("%s: %v", r.RecordKey(), err)
		}
		raw, err := protojson.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(strings.TrimPrefix(fmt.Sprintf("%T ", r), "*event."))
		if err := json.Compact(&b, raw); err != nil {
			t.Fatal(err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Golden compares with a file under testdata/golden; SPILLWAY_UPDATE_GOLDEN=1 writes it anew.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if os.Getenv("SPILLWAY_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	line := func(lines []string, i int) string {
		if i < len(lines) {
			return lines[i]
		}
		return "(nothing)"
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		if i >= len(g) || i >= len(w) || g[i] != w[i] {
			t.Fatalf("differs from %s at line %d; run with SPILLWAY_UPDATE_GOLDEN=1 and read the diff\n got %s\nwant %s", path, i+1, line(g, i), line(w, i))
		}
	}
}

// Placements are the placements among records.
func Placements(records []event.Record) (out []*event.Placement) {
	for _, r := range records {
		if p, ok := r.(*event.Placement); ok {
			out = append(out, p)
		}
	}
	return out
}
