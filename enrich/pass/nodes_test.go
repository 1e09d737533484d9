package pass

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

func TestCombine(t *testing.T) {
	f := func(f capacityFact) *capacityFact { return &f }
	cases := map[string]struct {
		facts []*capacityFact
		want  *nodeCapacity
	}{
		"nobody has spoken": {[]*capacityFact{nil, nil}, nil},
		"allocatable is what a job could be given": {
			[]*capacityFact{f(capacityFact{present: u16(4), healthy: u16(3), allocatable: u16(2), schedulable: yes()})},
			&nodeCapacity{present: u16(4), usable: u16(2), schedulable: yes()},
		},
		"healthy where allocatable is not told": {
			[]*capacityFact{f(capacityFact{present: u16(4), healthy: u16(3)})}, &nodeCapacity{present: u16(4), usable: u16(3)},
		},
		"present where nothing else is told": {
			[]*capacityFact{f(capacityFact{present: u16(4)})}, &nodeCapacity{present: u16(4), usable: u16(4)},
		},
		"no count at all is unknown, not zero": {
			[]*capacityFact{f(capacityFact{schedulable: yes()})}, &nodeCapacity{schedulable: yes()},
		},
		"a drained node offers nothing, and says why": {
			[]*capacityFact{f(capacityFact{present: u16(4), schedulable: no(), state: "DRAIN", why: "bad NVLink"})},
			&nodeCapacity{present: u16(4), usable: u16(0), schedulable: no(), state: "DRAIN", why: "bad NVLink"},
		},
		"one source that keeps jobs away is enough": {
			[]*capacityFact{
				f(capacityFact{present: u16(4), schedulable: yes()}),
				f(capacityFact{schedulable: no(), state: "cordoned", why: "upgrade"}), f(capacityFact{schedulable: no(), state: "other"}),
			},
			&nodeCapacity{present: u16(4), usable: u16(0), schedulable: no(), state: "cordoned", why: "upgrade"},
		},
		"of two counts the lower one can be relied on": {
			[]*capacityFact{f(capacityFact{present: u16(4), healthy: u16(3)}), f(capacityFact{present: u16(4), allocatable: u16(4), schedulable: yes()})},
			&nodeCapacity{present: u16(4), usable: u16(3), schedulable: yes()},
		},
		"a source that no longer lists the node has no say": {
			[]*capacityFact{f(capacityFact{removed: true}), f(capacityFact{present: u16(4)})},
			&nodeCapacity{present: u16(4), usable: u16(4)},
		},
		"a node that no source lists any more offers nothing": {
			[]*capacityFact{f(capacityFact{removed: true}), nil},
			&nodeCapacity{present: u16(0), usable: u16(0), schedulable: no(), why: reasonRemoved},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, combine(c.facts), cmp.AllowUnexported(nodeCapacity{})); d != "" {
				t.Fatalf("want - got +\n%s", d)
			}
		})
	}
}

// nodeSaid is one raw node record of a test.
type nodeSaid struct {
	node, source string
	at           int64
	revision     uint64
	fact         capacityFact
}

func (r nodeSaid) row(cluster string) []any {
	var declared any
	observed := moment(base + r.at)
	if uint64(r.at) != r.revision {
		declared, observed = observed, moment(base+int64(r.revision))
	}
	return []any{
		cluster, r.node, r.source, r.fact.present, r.fact.healthy, r.fact.allocatable, r.fact.schedulable, r.fact.state, r.fact.why, "", "",
		r.fact.removed, declared, observed, r.revision,
	}
}

func (s *store) foldNodeRecords(cluster string, records ...nodeSaid) []nodeSpan {
	s.t.Helper()
	var rows [][]any
	for _, r := range records {
		rows = append(rows, r.row(cluster))
	}
	spans, err := s.foldNodes(context.Background(), s.insert(rawNodes, rows))
	if err != nil {
		s.t.Fatal(err)
	}
	return spans
}

func (s *store) nodeStates(cluster string) map[string][]interval[nodeCapacity] {
	s.t.Helper()
	out := map[string][]interval[nodeCapacity]{}
	rows, err := s.Conn.Query(context.Background(), `SELECT node, toUnixTimestamp64Milli(valid_from), toUnixTimestamp64Milli(valid_to),
		gpus_present, gpus_usable, schedulable, state_raw, reason FROM node_states FINAL WHERE cluster = ? ORDER BY node, valid_from`, cluster)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var node string
		var iv interval[nodeCapacity]
		v := &iv.value
		if err := rows.Scan(&node, &iv.from, &iv.to, &v.present, &v.usable, &v.schedulable, &v.state, &v.why); err != nil {
			s.t.Fatal(err)
		}
		out[node] = append(out[node], relative(iv))
	}
	return out
}

// oracleState is what a node offers at a moment, from all records.
func oracleState(records []nodeSaid, node string, t int64) *nodeCapacity {
	newest := map[string]*nodeSaid{}
	for i := range records {
		if r := &records[i]; r.node == node && r.at <= t && (newest[r.source] == nil || r.revision >= newest[r.source].revision) {
			newest[r.source] = r
		}
	}
	var facts []*capacityFact
	for _, source := range []string{"dcgm", "kube", "slurm"} {
		if r := newest[source]; r != nil {
			f := r.fact
			if f.schedulable == nil || *f.schedulable {
				f.state, f.why = "", ""
			}
			facts = append(facts, &f)
		}
	}
	return combine(facts)
}

func TestFoldNodesAgreesWithTheOracle(t *testing.T) {
	s := newStore(t)
	for seed := range uint64(5) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		cluster := fmt.Sprintf("c%d", seed)
		counts := []*uint16{nil, u16(0), u16(3), u16(4)}
		bools := []*bool{nil, yes(), no()}
		var all []nodeSaid
		for range 8 {
			var records []nodeSaid
			for range 1 + rnd.IntN(10) {
				r := nodeSaid{node: fmt.Sprint("n", rnd.IntN(3)), source: []string{"slurm", "kube", "dcgm"}[rnd.IntN(3)], at: 1 + int64(rnd.IntN(40))}
				r.revision = uint64(r.at)
				if rnd.IntN(5) == 0 {
					r.revision += uint64(rnd.IntN(20))
				}
				r.fact = capacityFact{
					present: counts[rnd.IntN(4)], healthy: counts[rnd.IntN(3)], allocatable: counts[rnd.IntN(2)],
					schedulable: bools[rnd.IntN(3)], state: []string{"IDLE", "DRAIN"}[rnd.IntN(2)], removed: rnd.IntN(8) == 0,
				}
				records = append(records, r)
			}
			all = append(all, records...)
			before := s.nodeStates(cluster)
			spans := s.foldNodeRecords(cluster, records...)
			after := s.nodeStates(cluster)
			for _, node := range []string{"n0", "n1", "n2"} {
				for m := int64(-1); m < 80; m++ {
					want, got := oracleState(all, node, m), at(after[node], m)
					if (want == nil) != (got == nil) || want != nil && !want.equal(*got) {
						t.Fatalf("seed %d, %s at %d: want - got +\n%s", seed, node, m, cmp.Diff(want, got, cmp.AllowUnexported(nodeCapacity{})))
					}
				}
				from, to, changed := difference(before[node], after[node], nodeCapacity.offersSame)
				want := nodeSpan{cluster, node, moment(base + from), moment(base + to)}
				if to == forever {
					want.To = schema.OpenEnd
				}
				if i := slices.IndexFunc(spans, func(s nodeSpan) bool { return s.Node == node }); changed != (i >= 0) || changed && spans[i] != want {
					t.Fatalf("seed %d, %s: changed %v, want %v, got %v", seed, node, changed, want, spans)
				}
			}
			s.version++
			last := s.offsets[rawNodes]
			again, err := s.foldNodes(context.Background(), batch{{Table: rawNodes, From: last - int64(len(records)), To: last}})
			if err != nil {
				t.Fatal(err)
			}
			if n := s.count("SELECT count() FROM node_states WHERE version = ?", s.version) +
				s.count("SELECT count() FROM node_facts WHERE version = ?", s.version); n > 0 || len(again) > 0 {
				t.Fatalf("seed %d: folding the batch again wrote %d rows and changed %v", seed, n, again)
			}
		}
	}
}

// The state of a node that takes jobs goes to and fro with every job: that is no change of what it offers.
func TestFoldNodesIgnoresThatANodeIsBusy(t *testing.T) {
	s := newStore(t)
	state := func(at int64, state string) []nodeSpan {
		return s.foldNodeRecords("c", nodeSaid{"n1", "slurm", at, uint64(at), capacityFact{present: u16(4), schedulable: yes(), state: state}})
	}
	state(10, "IDLE")
	for at := int64(20); at < 60; at += 20 {
		if spans := append(state(at, "ALLOCATED"), state(at+10, "IDLE")...); len(spans) > 0 {
			t.Fatalf("a job on the node changed %v", spans)
		}
	}
	if n := s.count("SELECT count() FROM node_states"); n != 1 {
		t.Fatalf("the node has %d rows, want 1", n)
	}
}
