package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Options say which database is brought up to date. The zero value is the connection's own database on one server.
type Options struct {
	// Database is made when it does not exist; empty is the connection's own. To make one, connect without a database.
	Database string
	// Cluster names a cluster of the server's remote_servers: tables are then NAME_local, replicated, on every server of
	// it, and NAME is a Distributed table over them. It needs ClickHouse Keeper and the macros shard and replica.
	Cluster string
	// Unreplicated is for a cluster without Keeper: tables keep their plain engines and nothing is passed on to the
	// other servers, so Migrate is to be run against each of them.
	Unreplicated bool
	// Progress is called before each step that is applied; nil: nobody listens.
	Progress func(Step)
}

// Errors a caller may branch on.
var (
	// ErrNewer marks a database that a newer Spillway has migrated.
	ErrNewer = errors.New("the database is newer than this spillway")
	// ErrEdited marks a step whose content is not what was applied.
	ErrEdited = errors.New("a schema step was edited after it was applied")
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (o Options) validate() error {
	if o.Database != "" && !identifier.MatchString(o.Database) {
		return fmt.Errorf("clickhouse.database: %q: want letters, digits and _, not starting with a digit", o.Database)
	}
	if o.Cluster != "" && !identifier.MatchString(o.Cluster) {
		return fmt.Errorf("clickhouse.cluster: %q: want letters, digits and _, not starting with a digit", o.Cluster)
	}
	return nil
}

func (o Options) replicated() bool { return o.Cluster != "" && !o.Unreplicated }

// name qualifies a table.
func (o Options) name(table string) string {
	if o.Database == "" {
		return table
	}
	return "`" + o.Database + "`." + table
}

// database is the database as an expression.
func (o Options) database() string {
	if o.Database == "" {
		return "currentDatabase()"
	}
	return "'" + o.Database + "'"
}

func (o Options) onCluster() string {
	if !o.replicated() {
		return ""
	}
	return " ON CLUSTER `" + o.Cluster + "`"
}

// ledger is the statement that makes the table of applied steps. Every server of a cluster holds all of it.
func (o Options) ledger() string {
	engine := "ReplacingMergeTree"
	if o.replicated() {
		engine = "ReplicatedReplacingMergeTree('/clickhouse/tables/all/{database}/{table}', '{shard}-{replica}')"
	}
	return "CREATE TABLE IF NOT EXISTS " + o.name(TableSchemaSteps) + o.onCluster() + `
(
    name       String,
    sha256     String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ` + engine + `
ORDER BY name`
}

// Plan returns the steps that Migrate would apply, in order, and changes nothing. It refuses a database that is newer
// than this binary (ErrNewer) or holds a step with another content (ErrEdited), and a server that is too old (ErrOldServer).
func Plan(ctx context.Context, conn driver.Conn, o Options) ([]Step, error) {
	all, err := sources()
	if err != nil {
		return nil, err
	}
	return plan(ctx, conn, o, all)
}

func plan(ctx context.Context, conn driver.Conn, o Options, all []source) ([]Step, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	var version string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return nil, fmt.Errorf("ask for the server's version: %w", err)
	}
	if err := Supported(version); err != nil {
		return nil, err
	}
	applied, err := readLedger(ctx, conn, o)
	if err != nil {
		return nil, err
	}
	var pending []Step
	known := map[string]bool{}
	for _, s := range all {
		known[s.name] = true
		switch sum, ok := applied[s.name]; {
		case !ok:
			statements, err := s.render(o, shards(all))
			if err != nil {
				return nil, err
			}
			pending = append(pending, Step{Name: s.name, SHA256: s.sha256, Statements: statements})
		case sum != s.sha256:
			return nil, fmt.Errorf("%w: %s was applied with sha256 %.12s and is %.12s here: use the release that made the database, or a new database",
				ErrEdited, s.name, sum, s.sha256)
		}
	}
	for name := range applied {
		if !known[name] {
			return nil, fmt.Errorf("%w: it has step %s, the newest here is %s: use the release that migrated it or a later one, or a new database",
				ErrNewer, name, all[len(all)-1].name)
		}
	}
	return pending, nil
}

// Migrate brings the database up to date and does nothing when it is. Any number may run at once and any may die: each
// statement is safe to run twice, and a step counts only once it is in the ledger.
func Migrate(ctx context.Context, conn driver.Conn, o Options) error {
	all, err := sources()
	if err != nil {
		return err
	}
	return migrate(ctx, conn, o, all)
}

func migrate(ctx context.Context, conn driver.Conn, o Options, all []source) error {
	pending, err := plan(ctx, conn, o, all)
	if err != nil || len(pending) == 0 {
		return err
	}
	if o.Database != "" {
		if err := createDatabase(ctx, conn, o); err != nil {
			return err
		}
	}
	if err := run(ctx, conn, o.ledger()); err != nil {
		return fmt.Errorf("make table %s: %w", TableSchemaSteps, err)
	}
	for _, s := range pending {
		if o.Progress != nil {
			o.Progress(s)
		}
		for _, statement := range s.Statements {
			if err := run(ctx, conn, statement); err != nil {
				return fmt.Errorf("apply schema step %s: %w", s.Name, err)
			}
		}
		if err := conn.Exec(ctx, "INSERT INTO "+o.name(TableSchemaSteps)+" (name, sha256) VALUES (?, ?)", s.Name, s.SHA256); err != nil {
			return fmt.Errorf("note schema step %s: %w", s.Name, err)
		}
	}
	return nil
}

// createDatabase makes the database unless it is there: a user with rights inside it only must not need more.
func createDatabase(ctx context.Context, conn driver.Conn, o Options) error {
	var n uint64
	if err := conn.QueryRow(ctx, "SELECT count() FROM system.databases WHERE name = ?", o.Database).Scan(&n); err != nil {
		return fmt.Errorf("look for database %s: %w", o.Database, err)
	}
	if n > 0 && !o.replicated() {
		return nil
	}
	if err := run(ctx, conn, "CREATE DATABASE IF NOT EXISTS `"+o.Database+"`"+o.onCluster()); err != nil {
		return fmt.Errorf("make database %s: %w", o.Database, err)
	}
	return nil
}

// tries covers two runners that make or replace the same table in the same moment: one of them may be refused.
const tries = 3

func run(ctx context.Context, conn driver.Conn, statement string) error {
	for try := 1; ; try++ {
		err := conn.Exec(ctx, statement)
		if err == nil || try == tries || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		}
	}
}

// readLedger returns the applied steps by name, none when there is no ledger yet.
func readLedger(ctx context.Context, conn driver.Conn, o Options) (map[string]string, error) {
	var n uint64
	err := conn.QueryRow(ctx, "SELECT count() FROM system.tables WHERE database = "+o.database()+" AND name = ?", TableSchemaSteps).Scan(&n)
	if err != nil {
		return nil, fmt.Errorf("look for table %s: %w", TableSchemaSteps, err)
	}
	if n == 0 {
		return nil, nil
	}
	// Steps are few; FINAL keeps the last entry of two runners that applied the same one.
	rows, err := conn.Query(ctx, "SELECT name, sha256 FROM "+o.name(TableSchemaSteps)+" FINAL ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("read table %s: %w", TableSchemaSteps, err)
	}
	defer rows.Close()
	applied := map[string]string{}
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			return nil, fmt.Errorf("read table %s: %w", TableSchemaSteps, err)
		}
		applied[name] = strings.TrimSpace(sum)
	}
	return applied, rows.Err()
}
