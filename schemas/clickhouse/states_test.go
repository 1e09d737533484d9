package clickhouse

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/internal/testenv"
)

// recorded are the steps after which a database was written down, as it was then. A file is recorded once and kept.
var recorded = []string{"0006", "0012"}

// TestUpgradesEqualAFreshInstall starts from databases as they were and compares what the steps make of them with what
// the steps make of nothing.
func TestUpgradesEqualAFreshInstall(t *testing.T) {
	fresh := testenv.ClickHouse(t)
	if err := Migrate(t.Context(), fresh, Options{}); err != nil {
		t.Fatal(err)
	}
	want := shape(t, fresh)
	for _, step := range recorded {
		t.Run("from step "+step, func(t *testing.T) {
			path := filepath.Join("testdata", "states", step+".sql")
			record(t, path, step)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v: run make golden", err)
			}
			statements, err := split(string(text))
			if err != nil {
				t.Fatal(err)
			}
			old := testenv.ClickHouse(t)
			for _, s := range statements {
				if err := old.Exec(t.Context(), s); err != nil {
					t.Fatalf("%v in:\n%s", err, s)
				}
			}
			if err := Migrate(t.Context(), old, Options{}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, shape(t, old)); diff != "" {
				t.Errorf("an upgraded database differs (- fresh, + upgraded):\n%s", diff)
			}
		})
	}
}

// record writes a state down once, when asked to: a database with all steps up to one.
func record(t *testing.T, path, step string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil || !update {
		return
	}
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		if strings.HasPrefix(s.name, step) {
			all = all[:i+1]
			break
		}
	}
	db := testenv.ClickHouse(t)
	if err := migrate(t.Context(), db, Options{}, all); err != nil {
		t.Fatal(err)
	}
	text := "-- A database as it was after step " + step + ". Recorded once, never changed.\n"
	for _, table := range tables(t, db) {
		text += "\n" + showCreate(t, db, db.Database, table) + ";\n"
	}
	text += "\nINSERT INTO schema_steps (name, sha256) VALUES\n"
	for i, s := range all {
		text += fmt.Sprintf("    ('%s', '%s')%s\n", s.name, s.sha256, map[bool]string{true: ";", false: ","}[i == len(all)-1])
	}
	golden(t, path, text)
}

// shape is all that makes two databases behave alike: columns with their types, codecs and defaults, engines with
// their keys, settings and TTL, and skipping indices.
func shape(t *testing.T, conn driver.Conn) []string {
	t.Helper()
	var out []string
	err := conn.QueryRow(t.Context(), `SELECT arraySort(groupArray(line)) FROM (
		SELECT concat('column ', table, '.', lpad(toString(position), 3, '0'), ' ', name, ' ', type, ' ', compression_codec, ' ', default_kind, ' ', default_expression) AS line
		FROM system.columns WHERE database = currentDatabase()
		UNION ALL
		SELECT concat('table ', name, ' ', engine_full) FROM system.tables WHERE database = currentDatabase()
		UNION ALL
		SELECT concat('index ', table, '.', name, ' ', expr, ' ', type_full, ' ', toString(granularity)) FROM system.data_skipping_indices WHERE database = currentDatabase()
	)`).Scan(&out)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("the shape of a database has %d lines: the query is wrong", len(out))
	}
	return out
}
