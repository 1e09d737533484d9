package clickhouse

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/testenv"
)

// TestTheReaderOnlyReads is about the account that dashboards use.
func TestTheReaderOnlyReads(t *testing.T) {
	ctx, db := t.Context(), testenv.ClickHouse(t)
	if err := Migrate(ctx, db, Options{}); err != nil {
		t.Fatal(err)
	}
	reader, err := chconn.Open(db.Reader)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, table := range tables(t, db) {
		var n uint64
		if err := reader.QueryRow(ctx, "SELECT count() FROM "+table).Scan(&n); err != nil {
			t.Errorf("the reader cannot read %s: %v", table, err)
		}
	}
	for what, statement := range map[string]string{
		"insert":   "INSERT INTO pass_progress SELECT 'a', 'b', 0, 0, 0",
		"create":   "CREATE TABLE mine (x UInt8) ENGINE = Memory",
		"alter":    "ALTER TABLE pass_progress ADD COLUMN mine UInt8",
		"delete":   "ALTER TABLE pass_progress DELETE WHERE 1",
		"truncate": "TRUNCATE TABLE pass_progress",
		"drop":     "DROP TABLE pass_progress",
		"grant":    "CREATE USER mine",
		"files":    "SELECT * FROM file('/etc/passwd', 'LineAsString')",
		"network":  "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
		"migrate":  Options{}.ledger(),
	} {
		t.Run("the reader may not "+what, func(t *testing.T) {
			err := reader.Exec(ctx, statement)
			if err == nil || !strings.Contains(err.Error(), "497") && !strings.Contains(err.Error(), "164") && !strings.Contains(err.Error(), "privileges") {
				t.Errorf("got %v; want a refusal for lack of rights", err)
			}
		})
	}
	if err := Migrate(ctx, reader, Options{}); err != nil {
		t.Errorf("looking at an up-to-date database gave %v: a reader may find out that nothing is to do", err)
	}
}
