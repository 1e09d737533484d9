package dcgm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// moment is when the first answer of a test comes.
var moment = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.Cluster = "c1"
	return cfg
}

func newTestReader(t testing.TB, cfg Config) *reader {
	t.Helper()
	c, err := New(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	return c.newReader()
}

func sample(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// target is an exporter whose address says nothing of the node.
var target = &scrape.Target{URL: "http://192.0.2.1:9400/metrics", Cluster: "c1"}

// show prints records with one field a line, and what was left out.
func show(records []event.Record, r *reader) string {
	var b strings.Builder
	for _, record := range records {
		fmt.Fprintf(&b, "%s %s\n", record.RecordTopic(), record.RecordKey())
		showMessage(&b, "  ", record.ProtoReflect())
	}
	for _, reason := range sortedKeys(r.rows.dropped) {
		if n := r.rows.dropped[reason]; n > 0 {
			fmt.Fprintf(&b, "left out: %s %d\n", reason, n)
		}
	}
	return b.String()
}

func sortedKeys(m map[string]int) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func showMessage(b *strings.Builder, indent string, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case !m.Has(f):
		case f.IsList() && f.Message() != nil:
			for j := range m.Get(f).List().Len() {
				fmt.Fprintf(b, "%s%s\n", indent, f.Name())
				showMessage(b, indent+"  ", m.Get(f).List().Get(j).Message())
			}
		case f.IsList():
			fmt.Fprintf(b, "%s%s:", indent, f.Name())
			for j := range m.Get(f).List().Len() {
				fmt.Fprintf(b, " %s", showValue(f, m.Get(f).List().Get(j)))
			}
			b.WriteByte('\n')
		default:
			fmt.Fprintf(b, "%s%s: %s\n", indent, f.Name(), showValue(f, m.Get(f)))
		}
	}
}

func showValue(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch f.Kind() {
	case protoreflect.StringKind:
		return fmt.Sprintf("%q", v.String())
	case protoreflect.EnumKind:
		return string(f.Enum().Values().ByNumber(v.Enum()).Name())
	}
	return fmt.Sprint(v.Interface())
}

// read reads an answer and checks the records against the contract.
func read(t testing.TB, r *reader, body []byte, at time.Time) []event.Record {
	t.Helper()
	records, stored, err := r.Read(target, body, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		if err := record.Validate(); err != nil {
			t.Errorf("%s: %v", record.RecordKey(), err)
		}
	}
	stored()
	return records
}

// TestGolden reads each sample as the first answer of its exporter, and those with a second one 30 s later.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.prom")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range append(files, "testdata/malformed_lines.txt") {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if strings.HasSuffix(name, "_t30s") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := newTestReader(t, testConfig())
			tgt := *target
			if name == "malformed_lines" {
				tgt.Host = "node7"
			}
			records, stored, err := r.Read(&tgt, sample(t, filepath.Base(file)), moment)
			if err != nil {
				t.Fatal(err)
			}
			got := show(records, r)
			stored()
			if second, err := os.ReadFile("testdata/" + name + "_t30s.prom"); err == nil {
				got += "--- 30 s later\n" + show(read(t, r, second, moment.Add(30*time.Second)), r)
			}
			for _, record := range records {
				if err := record.Validate(); err != nil {
					t.Error(err)
				}
			}
			golden(t, name, got)
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if os.Getenv("SPILLWAY_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; run `make golden` and read the diff", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("records differ from %s (-want +got); if that is right, run `make golden`:\n%s", path, diff)
	}
}
