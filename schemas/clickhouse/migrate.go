// Package clickhouse holds the tables that stages meet in, as numbered steps, and brings a database up to them. It is
// the contract of the ClickHouse hop: it never reads or writes a row of the tables it makes.
package clickhouse

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

//go:embed *.sql
var stepFiles embed.FS

// ErrNewer says that a database was migrated by a newer version of this program.
var ErrNewer = errors.New("the database is newer than this program")

// Step is one numbered file: exactly one statement.
type Step struct {
	Name string // NNNN_verb_object
	SQL  string
	Hash string // sha256 of the file, hex
}

// Options says which database to migrate and how.
type Options struct {
	Database string     // for messages; the connection's database is the one migrated
	Progress func(Step) // called before each step that is applied; may be nil
}

// ledger records which steps a database has had.
const ledger = `CREATE TABLE IF NOT EXISTS schema_steps
(
    name       String,
    hash       String,
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY name`

// Steps lists all steps in order.
func Steps() ([]Step, error) {
	names, err := fs.Glob(stepFiles, "[0-9]*.sql")
	if err != nil {
		return nil, fmt.Errorf("list steps: %w", err)
	}
	steps := make([]Step, 0, len(names))
	for _, name := range names {
		text, err := stepFiles.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read step %s: %w", name, err)
		}
		sum := sha256.Sum256(text)
		steps = append(steps, Step{Name: strings.TrimSuffix(name, ".sql"), SQL: string(text), Hash: hex.EncodeToString(sum[:])})
	}
	return steps, nil
}

// Plan gives the steps a database still lacks. It refuses one that has steps this program does not know.
func Plan(ctx context.Context, conn driver.Conn, opts Options) ([]Step, error) {
	steps, err := Steps()
	if err != nil {
		return nil, err
	}
	if err := conn.Exec(ctx, ledger); err != nil {
		return nil, fmt.Errorf("make the ledger of steps in %s: %w", opts.Database, err)
	}
	var applied []struct {
		Name string `ch:"name"`
		Hash string `ch:"hash"`
	}
	if err := conn.Select(ctx, &applied, "SELECT DISTINCT name, hash FROM schema_steps"); err != nil {
		return nil, fmt.Errorf("read the ledger of steps in %s: %w", opts.Database, err)
	}
	known := make(map[string]Step, len(steps))
	for _, s := range steps {
		known[s.Name] = s
	}
	done := make(map[string]bool, len(applied))
	for _, a := range applied {
		s, ok := known[a.Name]
		switch {
		case !ok:
			return nil, fmt.Errorf("migrate %s: it has step %s: %w: install that version or newer", opts.Database, a.Name, ErrNewer)
		case s.Hash != a.Hash:
			return nil, fmt.Errorf("migrate %s: step %s was applied with another text: a released step never changes, add a new one",
				opts.Database, a.Name)
		}
		done[a.Name] = true
	}
	var todo []Step
	for _, s := range steps {
		if !done[s.Name] {
			todo = append(todo, s)
		}
	}
	return todo, nil
}

// Migrate applies the steps a database lacks. Two at once are safe: a table that the other made meanwhile is accepted.
func Migrate(ctx context.Context, conn driver.Conn, opts Options) error {
	todo, err := Plan(ctx, conn, opts)
	if err != nil {
		return err
	}
	for _, s := range todo {
		if opts.Progress != nil {
			opts.Progress(s)
		}
		statement := strings.Replace(s.SQL, "CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)
		if err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("migrate %s: step %s: %w", opts.Database, s.Name, err)
		}
		if err := conn.Exec(ctx, "INSERT INTO schema_steps (name, hash) VALUES (?, ?)", s.Name, s.Hash); err != nil {
			return fmt.Errorf("migrate %s: record step %s: %w", opts.Database, s.Name, err)
		}
	}
	return nil
}
