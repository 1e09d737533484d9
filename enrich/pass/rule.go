package pass

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/ext"
	chcolumn "github.com/ClickHouse/clickhouse-go/v2/lib/column"
)

// factColumns are the columns of the table `facts`; sql/verdict.sql says what they mean.
var factColumns = []struct {
	name string
	kind chcolumn.Type
}{
	{"id", "UInt32"}, {"gpus", "UInt32"}, {"node_count", "UInt32"}, {"unknown_nodes", "UInt32"}, {"unknown_reason", "String"},
	{"domain_gpus", "Array(Int64)"}, {"domain_nodes", "Array(UInt32)"},
	{"partitions_used", "UInt32"}, {"partition_unknown", "UInt8"}, {"levels_used", "UInt32"}, {"level_unknown", "UInt8"},
	{"sized", "UInt8"}, {"assumed", "UInt8"}, {"largest_nodes", "UInt32"}, {"needed_for_gpus", "UInt32"}, {"needed_for_nodes", "UInt32"},
	{"free_first", "Array(Int64)"}, {"later_first", "Array(Int64)"}, {"free_total", "Int64"}, {"held_by_others", "Int64"},
	{"mode", "String"}, {"level", "String"}, {"segment", "UInt32"}, {"spread_segments", "UInt8"}, {"consolidate_segments", "UInt8"},
	{"exclusive", "UInt8"}, {"max_switches", "UInt32"},
}

// row is the facts in the order of factColumns, but for the id.
func (f *placementFacts) row() []any {
	free, asked := cmp.Or(f.free, &freeFacts{}), cmp.Or(f.attempt, &attemptRow{})
	return []any{
		uint32(f.gpus), uint32(len(f.placement.nodes)), f.unknownNodes, f.unknownReason,
		f.domainGPUs, f.domainNodes,
		uint32(len(f.partitions)), bit(slices.Contains(f.partitions, "")), uint32(len(f.levels)), bit(slices.Contains(f.levels, "")),
		bit(f.sized), bit(f.assumed), f.largestNodes, f.neededForGPUs, f.neededForNodes,
		free.first, free.later, free.total, free.held,
		asked.mode, f.level(), uint32(max(asked.segment, 0)), bit(asked.spread), bit(asked.consolidate),
		bit(asked.exclusive), uint32(max(asked.switches, 0)),
	}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// ruling is what sql/verdict.sql makes of facts; -1 = NULL.
type ruling struct {
	outcome, reason            string
	fewest, excess, partitions int64
	smallest                   int64
	balance                    float32
	intent                     string
	intentMet                  int8
	aligned                    uint8
	cause                      string
	detail                     map[string]string
}

// rulingsKept bounds how many rulings are remembered.
const rulingsKept = 50_000

// rulings remembers what the rule makes of facts: it is a function of them alone, and most placements are alike (so many
// GPUs in one domain, nothing asked).
type rulings struct {
	mu    sync.Mutex
	known map[string]*ruling
}

func (r *rulings) get(key string) *ruling {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[key]
}

func (r *rulings) put(key string, made *ruling) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= rulingsKept {
		r.known = map[string]*ruling{}
	}
	r.known[key] = made
}

// rule has ClickHouse judge facts; the verdicts come in the order of the facts.
func (p *Passes) rule(ctx context.Context, c *cluster, facts []placementFacts) ([]verdictRow, error) {
	made := make([]*ruling, len(facts))
	asked := map[string]int{} // facts that are not known, by the first of them
	var like []int            // for each of the facts: the first with the same
	var table *ext.Table
	var key []byte
	for i := range facts {
		row := facts[i].row()
		key = fmt.Appendf(key[:0], "%d %v", c.facts.usualGPUs, row)
		like = append(like, i)
		if made[i] = p.state.rulings.get(string(key)); made[i] != nil {
			continue
		}
		if first, again := asked[string(key)]; again {
			like[i] = first
			continue
		}
		asked[string(key)] = i
		if table == nil {
			var err error
			if table, err = factTable(); err != nil {
				return nil, err
			}
		}
		if err := table.Append(append([]any{uint32(i)}, row...)...); err != nil {
			return nil, fmt.Errorf("name the facts: %w", err)
		}
	}
	if table != nil {
		if err := p.apply(ctx, c, table, made); err != nil {
			return nil, fmt.Errorf("apply the rule: %w", err)
		}
		for key, i := range asked {
			if made[i] == nil {
				return nil, fmt.Errorf("apply the rule: no verdict for the facts %s", key)
			}
			p.state.rulings.put(key, made[i])
		}
	}
	out := make([]verdictRow, len(facts))
	for i := range facts {
		f, r, m := &facts[i], facts[i].placement, made[like[i]]
		out[i] = verdictRow{
			cluster: c.name, jobID: r.jobID, attempt: r.attempt, seq: r.seq, from: r.from, to: r.to, gpus: f.gpus, nodeCount: uint32(len(r.nodes)),
			unknownNodes: f.unknownNodes, used: int64(len(f.domains)), domains: f.domains, domainGPUs: f.domainGPUs, domainNodes: f.domainNodes,
			source: f.source, generation: f.generation,
			outcome: m.outcome, reason: m.reason, fewest: m.fewest, excess: m.excess, partitions: m.partitions, smallest: m.smallest, balance: m.balance,
			intent: m.intent, intentMet: m.intentMet, aligned: m.aligned == 1, cause: m.cause, detail: m.detail,
		}
		if out[i].used == 0 {
			out[i].used = -1 // cannot say
		}
	}
	return out, nil
}

func factTable() (*ext.Table, error) {
	var columns []func(*ext.Table) error
	for _, c := range factColumns {
		columns = append(columns, ext.Column(c.name, c.kind))
	}
	table, err := ext.NewTable("facts", columns...)
	if err != nil {
		return nil, fmt.Errorf("name the facts: %w", err)
	}
	return table, nil
}

// apply applies sql/verdict.sql; made[id] is what it makes of the facts with that id.
func (p *Passes) apply(ctx context.Context, c *cluster, facts *ext.Table, made []*ruling) error {
	text, err := statements.ReadFile("sql/verdict.sql")
	if err != nil {
		return err
	}
	rows, err := p.conn.Query(clickhouse.Context(ctx, clickhouse.WithExternalTable(facts), clickhouse.WithParameters(clickhouse.Parameters{
		"node_gpus": strconv.FormatInt(c.facts.usualGPUs, 10), "window_ms": millis(p.cfg.Window.Milliseconds()),
	}), clickhouse.WithSettings(clickhouse.Settings{
		// Nearly all of it is analysis: more threads cost more, and so do rewrites that find nothing in a statement without
		// joins and filters (22 ms with these, 35 without).
		"max_threads": 1, "optimize_and_compare_chain": 0, "query_plan_enable_optimizations": 0,
	})), string(text))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id uint32
		var r ruling
		if err := rows.Scan(&id, &r.outcome, &r.reason, &r.fewest, &r.excess, &r.partitions, &r.smallest, &r.balance, &r.intent, &r.intentMet, &r.aligned,
			&r.cause, &r.detail); err != nil {
			return err
		}
		made[id] = &r
	}
	return rows.Err()
}
