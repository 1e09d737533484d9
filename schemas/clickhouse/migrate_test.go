package clickhouse

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestMigrateBringsAnEmptyDatabaseUpToDateAndThenDoesNothing(t *testing.T) {
	ctx, db := t.Context(), testenv.ClickHouse(t)
	var seen []string
	o := Options{Database: db.Database, Progress: func(s Step) { seen = append(seen, s.Name) }}
	if err := Migrate(ctx, db, o); err != nil {
		t.Fatal(err)
	}
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != len(all) || seen[0] != all[0].name {
		t.Errorf("progress saw %v; want every one of %d steps in order", seen, len(all))
	}
	seen = nil
	if err := Migrate(ctx, db, o); err != nil || len(seen) != 0 {
		t.Errorf("the second run gave %v and applied %v; want nothing", err, seen)
	}
	if plan, err := Plan(ctx, db, o); err != nil || len(plan) != 0 {
		t.Errorf("plan of an up-to-date database is %v, %v; want none", plan, err)
	}
}

func TestPlanChangesNothing(t *testing.T) {
	ctx, db := t.Context(), testenv.ClickHouse(t)
	plan, err := Plan(ctx, db, Options{Database: "not_there_yet"})
	if err != nil {
		t.Fatal(err)
	}
	if all, _ := sources(); len(plan) != len(all) {
		t.Errorf("plan has %d steps, want %d", len(plan), len(all))
	}
	if !strings.HasPrefix(plan[0].Statements[0], "CREATE TABLE IF NOT EXISTS `not_there_yet`.placement_events\n(") {
		t.Errorf("first statement is %q", plan[0].Statements[0])
	}
	var n uint64
	if err := db.QueryRow(ctx, "SELECT count() FROM system.databases WHERE name = 'not_there_yet'").Scan(&n); err != nil || n != 0 {
		t.Errorf("the plan made %d databases, %v", n, err)
	}
}

func TestMigrateMakesTheDatabase(t *testing.T) {
	ctx, db := t.Context(), testenv.ClickHouse(t)
	conn, err := chconn.Open(db.Owner.With(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	name := db.Database + "_new"
	defer db.Exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+name+" SYNC")
	if err := Migrate(ctx, conn, Options{Database: name}); err != nil {
		t.Fatal(err)
	}
	if plan, err := Plan(ctx, conn, Options{Database: name}); err != nil || len(plan) != 0 {
		t.Errorf("plan afterwards is %v, %v; want none", plan, err)
	}
}

func TestAStepThatDiedBeforeItsLedgerEntryIsRunAgain(t *testing.T) {
	ctx, db := t.Context(), testenv.ClickHouse(t)
	if err := Migrate(ctx, db, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := db.Exec(ctx, "TRUNCATE TABLE schema_steps"); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(ctx, db, Options{}); err != nil {
		t.Fatal(err)
	}
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	ctx, db := t.Context(), testenv.ClickHouse(t)
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = Migrate(ctx, db, Options{Database: db.Database}) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if plan, err := Plan(ctx, db, Options{Database: db.Database}); err != nil || len(plan) != 0 {
		t.Errorf("plan afterwards is %v, %v; want none", plan, err)
	}
}

func TestRefusals(t *testing.T) {
	ctx, db := t.Context(), testenv.ClickHouse(t)
	if err := Migrate(ctx, db, Options{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ledger, message string
		want            error
	}{
		"a database of a newer binary": {
			"INSERT INTO schema_steps (name, sha256) VALUES ('9999_add_tomorrow', 'x')",
			"it has step 9999_add_tomorrow, the newest here is 00", ErrNewer,
		},
		"a step that was edited after it was applied": {
			"INSERT INTO schema_steps (name, sha256, applied_at) VALUES ('0003_create_node_events', 'deadbeef', '2100-01-01')",
			"0003_create_node_events was applied with sha256 deadbeef", ErrEdited,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := db.Exec(ctx, c.ledger); err != nil {
				t.Fatal(err)
			}
			err := Migrate(ctx, db, Options{})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v; want %v naming %q", err, c.want, c.message)
			}
			if err := db.Exec(ctx, "TRUNCATE TABLE schema_steps"); err != nil {
				t.Fatal(err)
			}
			if err := Migrate(ctx, db, Options{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	for name, o := range map[string]Options{
		"a database name that is no identifier": {Database: "a`b"},
		"a cluster name that is no identifier":  {Cluster: "a-b"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Plan(ctx, db, o); err == nil || !strings.Contains(err.Error(), "want letters, digits and _") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"comments go, statements part at semicolons": {
			"-- head; not the end\nCREATE TABLE a -- why\n(\n    x Int8 -- it's x\n);\n\nALTER TABLE a ADD COLUMN y Int8;\n",
			[]string{"CREATE TABLE a\n(\n    x Int8\n)", "ALTER TABLE a ADD COLUMN y Int8"},
		},
		"quotes hide semicolons, dashes and each other": {
			`SELECT 'a;--b', 'it''s', 'a\';', "c;", ` + "`d;`; SELECT 2",
			[]string{`SELECT 'a;--b', 'it''s', 'a\';', "c;", ` + "`d;`", "SELECT 2"},
		},
		"nothing": {"-- only words", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := split(c.in)
			if err != nil || strings.Join(got, "|") != strings.Join(c.want, "|") {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	if _, err := split("SELECT 'open"); err == nil || !strings.Contains(err.Error(), "not closed") {
		t.Errorf("an open quote gave %v", err)
	}
}

func TestAStepMustBeOfAKindTheRunnerKnows(t *testing.T) {
	if _, err := parse("0099_x", "CREATE TABLE a (x Int8) ENGINE = Memory;"); err == nil || !strings.Contains(err.Error(), "-- shard:") {
		t.Errorf("a step without a shard gave %v", err)
	}
	if _, err := parse("0099_x", "-- shard: 0\n-- nothing else"); err == nil || !strings.Contains(err.Error(), "no statement") {
		t.Errorf("an empty step gave %v", err)
	}
	s, err := parse("0099_x", "RENAME TABLE a TO b;")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.render(Options{}, nil); !errors.Is(err, errStatement) {
		t.Errorf("a statement that cannot be run twice gave %v", err)
	}
}
