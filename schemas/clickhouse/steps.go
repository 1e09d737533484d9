// Package clickhouse is the shape of everything Spillway stores: the tables, as append-only steps, and the runner that
// brings a database to the newest one. It never reads or writes a row of data, and it never changes a step that was
// applied: a released step is history.
package clickhouse

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"time"
)

// Raw tables, one a topic of the contract: written by ingest/load only.
const (
	TablePlacementEvents  = "placement_events"
	TableMembershipEvents = "membership_events"
	TableNodeEvents       = "node_events"
	TableSourceEvents     = "source_events"
	TableBenchmarkEvents  = "benchmark_events"
	TableDomainEvents     = "domain_events"
	TableWorkloadEvents   = "workload_events"
	TableCounters         = "counters"
	TableDeadLetters      = "dead_letters"
)

// Derived tables: written by enrich only.
const (
	TableMembership        = "membership"
	TableMembershipFacts   = "membership_facts"
	TableNodeStates        = "node_states"
	TableNodeFacts         = "node_facts"
	TableAttempts          = "attempts"
	TablePlacements        = "placements"
	TableVerdicts          = "verdicts"
	TableDomainCapacity    = "domain_capacity"
	TableTopologyConflicts = "topology_conflicts"
	TablePassProgress      = "pass_progress"
	TableCountersMinute    = "counters_minute"
	TableCountersHour      = "counters_hour"
	TableJobTraffic        = "job_traffic"
	TableTrafficEvidence   = "traffic_evidence"
)

// Tables of the advisor: written by query/ledger only.
const (
	TableAdviceLedger   = "advice_ledger"
	TableAdviceFeedback = "advice_feedback"
)

// TableSchemaSteps is the ledger of applied steps.
const TableSchemaSteps = "schema_steps"

// OpenEnd is the end of what has not ended: the tables write it where something is still so, as no column of a time in
// force is NULL. SQL writes it as the text '2200-01-01', and compares valid_to >= it.
var OpenEnd = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// RawTables lists the raw tables.
func RawTables() []string {
	return []string{
		TablePlacementEvents, TableMembershipEvents, TableNodeEvents, TableSourceEvents, TableDomainEvents,
		TableWorkloadEvents, TableCounters, TableBenchmarkEvents, TableDeadLetters,
	}
}

// DerivedTables lists the tables that hold no raw records: the derived ones, and the advisor's.
func DerivedTables() []string {
	return []string{
		TableMembership, TableMembershipFacts, TableNodeStates, TableNodeFacts, TableAttempts, TablePlacements,
		TableVerdicts, TableDomainCapacity, TableTopologyConflicts, TablePassProgress, TableCountersMinute,
		TableCountersHour, TableJobTraffic, TableTrafficEvidence,
		TableAdviceLedger, TableAdviceFeedback,
	}
}

//go:embed [0-9][0-9][0-9][0-9]_*.sql
var files embed.FS

// Step is one change of the schema.
type Step struct {
	Name       string   // file name without .sql: 0001_create_placement_events
	SHA256     string   // of the file, lower-case hex
	Statements []string // what is sent to the server, in order, complete for the options it was planned with
}

// source is a step as its file has it.
type source struct {
	name, sha256 string
	shard        string // sharding expression of the table that the step makes; empty when it makes none
	statements   []string
}

// sources reads the embedded steps in their order.
func sources() ([]source, error) {
	entries, err := fs.ReadDir(files, ".") // sorted by name
	if err != nil {
		return nil, fmt.Errorf("list schema steps: %w", err)
	}
	steps := make([]source, 0, len(entries))
	for _, e := range entries {
		text, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, fmt.Errorf("read schema step: %w", err)
		}
		s, err := parse(strings.TrimSuffix(e.Name(), ".sql"), string(text))
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// shards gives the sharding expression of every table; a step that alters a table does not repeat it.
func shards(steps []source) map[string]string {
	out := map[string]string{}
	for _, s := range steps {
		for _, stmt := range s.statements {
			if m := createTable.FindStringSubmatch(stmt); m != nil {
				out[m[1]] = s.shard
			}
		}
	}
	return out
}

var shardComment = regexp.MustCompile(`(?m)^-- shard: (.+)$`)

func parse(name, text string) (source, error) {
	sum := sha256.Sum256([]byte(text))
	s := source{name: name, sha256: hex.EncodeToString(sum[:])}
	if m := shardComment.FindStringSubmatch(text); m != nil {
		s.shard = strings.TrimSpace(m[1])
	}
	var err error
	if s.statements, err = split(text); err != nil {
		return s, fmt.Errorf("schema step %s: %w", name, err)
	}
	if len(s.statements) == 0 {
		return s, fmt.Errorf("schema step %s: holds no statement", name)
	}
	for _, stmt := range s.statements {
		if createTable.MatchString(stmt) && s.shard == "" {
			return s, fmt.Errorf("schema step %s: no line `-- shard: EXPRESSION`: it says which server of a cluster holds a row", name)
		}
	}
	return s, nil
}

// split cuts a file into statements at semicolons outside quotes and comments. Comments are left out, so that what a
// server stores and what a plan prints is the statement alone.
func split(text string) ([]string, error) {
	var out []string
	var b strings.Builder
	flush := func() {
		if s := tidy(b.String()); s != "" {
			out = append(out, s)
		}
		b.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case strings.HasPrefix(text[i:], "--"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				end = len(text) - i
			}
			i += end - 1 // the line end stays
		case c == '\'' || c == '`' || c == '"':
			end := quoted(text[i:])
			if end < 0 {
				return nil, fmt.Errorf("quote %q is not closed", c)
			}
			b.WriteString(text[i : i+end])
			i += end - 1
		case c == ';':
			flush()
		default:
			b.WriteByte(c)
		}
	}
	flush()
	return out, nil
}

// quoted is the length of the quoted text at the start of s, -1 if it does not end.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1 // a doubled quote is two quoted texts side by side, which comes to the same
		}
	}
	return -1
}

// tidy drops what removed comments leave behind: trailing blanks and empty lines.
func tidy(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimRight(line, " \t\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

var (
	createTable  = regexp.MustCompile(`^CREATE TABLE (\w+)\s*\(`)
	alterTable   = regexp.MustCompile(`^ALTER TABLE (\w+)\s`)
	engineClause = regexp.MustCompile(`(?m)^ENGINE = (\w*MergeTree)(?:\(([^)]*)\))?`)
)

// errStatement names what a step may hold. Each kind must be safe to run twice, because a runner may die between a
// statement and its entry in the ledger.
var errStatement = errors.New("statement is neither CREATE TABLE name (...) nor ALTER TABLE name ...: teach the runner how it is run twice and on a cluster")

// render gives the statements of a step for one kind of database; shards are those of all tables.
func (s source) render(o Options, shards map[string]string) ([]string, error) {
	var out []string
	for _, stmt := range s.statements {
		verb, pattern := "CREATE TABLE", createTable
		m := pattern.FindStringSubmatchIndex(stmt)
		if m == nil {
			verb, pattern = "ALTER TABLE", alterTable
			m = pattern.FindStringSubmatchIndex(stmt)
		}
		if m == nil {
			return nil, fmt.Errorf("schema step %s: %w", s.name, errStatement)
		}
		table, rest := stmt[m[2]:m[3]], stmt[m[3]:]
		if verb == "CREATE TABLE" {
			verb += " IF NOT EXISTS"
			if o.replicated() {
				rest = engineClause.ReplaceAllStringFunc(rest, replicate)
				rest = strings.Replace(rest, "non_replicated_deduplication_window", "replicated_deduplication_window", 1)
			}
		}
		if o.Cluster == "" {
			out = append(out, verb+" "+o.name(table)+rest)
			continue
		}
		local := table + localSuffix
		out = append(out,
			verb+" "+o.name(local)+o.onCluster()+rest,
			// Columns of a Distributed table are a copy, so it is made anew after each change of the table below it.
			fmt.Sprintf("CREATE OR REPLACE TABLE %s%s AS %s\nENGINE = Distributed('%s', %s, '%s', %s)",
				o.name(table), o.onCluster(), o.name(local), o.Cluster, o.database(), local, shards[table]))
	}
	return out, nil
}

// localSuffix is added to the name of the table that holds a server's share of the rows; the plain name is the
// Distributed table over all of them, so every query and insert reads the same on one server and on many.
const localSuffix = "_local"

// replicate turns a MergeTree engine into its Replicated form; {shard} and {replica} are the server's macros.
func replicate(s string) string {
	m := engineClause.FindStringSubmatch(s)
	args := "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'"
	if m[2] != "" {
		args += ", " + m[2]
	}
	return "ENGINE = Replicated" + m[1] + "(" + args + ")"
}
