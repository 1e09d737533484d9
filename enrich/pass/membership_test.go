package pass

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// base is the moment 0 of the tests, 2026-01-01.
const base int64 = 1767225600000

// row is a record as a row of membership_events.
func (r said) row(cluster string) []any {
	var index []uint16
	var uuid, clusterUUID, state, status []string
	var clique, mask []*uint32
	for i, g := range r.record.gpus {
		index, uuid, clusterUUID = append(index, uint16(i)), append(uuid, fmt.Sprintf("GPU-%d-%d", i, r.revision)), append(clusterUUID, g.clusterUUID)
		clique, state, status, mask = append(clique, g.cliqueID), append(state, g.state), append(status, g.status), append(mask, nil)
	}
	var declared any
	observed := moment(base + r.at)
	if uint64(r.at) != r.revision {
		declared, observed = observed, moment(base+int64(r.revision))
	}
	return []any{
		cluster, r.record.node, r.view.source, r.view.topology, r.record.levels, r.record.values, index, uuid, clusterUUID, clique,
		state, status, mask, r.record.removed, declared, observed, r.revision,
	}
}

// load inserts records of one cluster and folds them.
func (s *store) load(cluster string, records ...said) []nodeSpan {
	s.t.Helper()
	var rows [][]any
	for _, r := range records {
		rows = append(rows, r.row(cluster))
	}
	return s.fold(s.insert(rawMembership, rows))
}

func (s *store) fold(b batch) []nodeSpan {
	s.t.Helper()
	spans, err := s.foldMembership(context.Background(), b)
	if err != nil {
		s.t.Fatal(err)
	}
	return spans
}

// membership reads back what is stored of a cluster, in the form that resolve gives.
func (s *store) membership(cluster string) map[string]nodeView {
	s.t.Helper()
	out := map[string]nodeView{}
	rows, err := s.Conn.Query(context.Background(), `SELECT node, toUnixTimestamp64Milli(valid_from), toUnixTimestamp64Milli(valid_to),
		domain, partition, levels, source, reason FROM membership FINAL WHERE cluster = ? ORDER BY node, valid_from`, cluster)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var node string
		var iv interval[effective]
		e := &iv.value
		if err := rows.Scan(&node, &iv.from, &iv.to, &e.domain, &e.partition, &e.levels, &e.source, &e.reason); err != nil {
			s.t.Fatal(err)
		}
		nv := out[node]
		nv.effective = append(nv.effective, relative(iv))
		nv.conflicts = map[pairOf][]interval[conflict]{}
		out[node] = nv
	}
	conflicts, err := s.Conn.Query(context.Background(), `SELECT node, source_a, source_b, toUnixTimestamp64Milli(valid_from),
		toUnixTimestamp64Milli(valid_to), domain_a, domain_b, detail FROM topology_conflicts FINAL WHERE cluster = ? ORDER BY node, valid_from`, cluster)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conflicts.Close()
	for conflicts.Next() {
		var node string
		var pair pairOf
		var iv interval[conflict]
		if err := conflicts.Scan(&node, &pair.a, &pair.b, &iv.from, &iv.to, &iv.value.domainA, &iv.value.domainB, &iv.value.detail); err != nil {
			s.t.Fatal(err)
		}
		out[node].conflicts[pair] = append(out[node].conflicts[pair], relative(iv))
	}
	return out
}

// relative counts an interval's times from base.
func relative[V any](iv interval[V]) interval[V] {
	iv.from -= base
	if iv.to != forever {
		iv.to -= base
	}
	return iv
}

// Records come in any order and any batches; after each batch the tables must say what the oracle says of all records
// so far, and a batch that is folded twice must change nothing the second time.
func TestFoldMembershipAgreesWithTheOracle(t *testing.T) {
	s := newStore(t)
	for seed := range uint64(10) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		records := randomRecords(rnd, 20+rnd.IntN(60))
		cluster := fmt.Sprintf("c%d", seed)
		var sofar []said
		for len(records) > 0 {
			n := min(len(records), 1+rnd.IntN(15))
			sofar = append(sofar, records[:n]...)
			before := s.membership(cluster)
			spans := s.load(cluster, records[:n]...)
			records = records[n:]

			o, _ := run(0, slices.Clone(sofar)...)
			got := s.membership(cluster)
			for _, node := range o.nodes {
				compareNode(t, seed, o, node, got[node], -100)
				from, to, changed := difference(before[node].effective, got[node].effective, effective.equal)
				want := nodeSpan{cluster, node, moment(base + from), moment(base + to)}
				if to == forever {
					want.To = schema.OpenEnd
				}
				i := slices.IndexFunc(spans, func(s nodeSpan) bool { return s.Node == node })
				if changed != (i >= 0) || changed && spans[i] != want {
					t.Fatalf("seed %d, %s: changed %v, want span %v, got %v", seed, node, changed, want, spans)
				}
			}

			s.version++
			last := s.offsets[rawMembership]
			if again := s.fold(batch{{Table: rawMembership, From: last - int64(n), To: last}}); len(again) > 0 {
				t.Fatalf("seed %d: folding the batch again changed %v", seed, again)
			}
			for _, table := range []string{"membership", "topology_conflicts", "membership_facts"} {
				if n := s.count("SELECT count() FROM "+table+" WHERE version = ?", s.version); n > 0 {
					t.Fatalf("seed %d: folding the batch again wrote %d rows to %s", seed, n, table)
				}
			}
		}
	}
}

func TestFoldMembershipKeepsClustersApart(t *testing.T) {
	s := newStore(t)
	s.load("west", said{viewSlurm, 10, 10, block("n1", "rack01")}, said{viewSlurm, 10, 10, block("n2", "rack01")})
	s.load("east", said{viewSlurm, 10, 10, block("n1", "rack01")}, said{viewNVML, 20, 20, good("n1", uuidX, 1)})
	want := "10 slurm_topology rack01 ()\n"
	if got := s.membership("west")["n2"].print(); got != want {
		t.Fatalf("a node of the other cluster renamed this one's domain: want %q, got %q", want, got)
	}
	if d := cmp.Diff(uint64(2), s.count("SELECT count() FROM (SELECT cluster, domain FROM membership FINAL WHERE domain = 'rack01' GROUP BY cluster, domain)")); d != "" {
		t.Fatal(d)
	}
}

func TestFoldMembershipWritesNothingForARefresh(t *testing.T) {
	s := newStore(t)
	refresh := func(at int64) []nodeSpan {
		var records []said
		for i := range 36 {
			node := fmt.Sprintf("n%02d", i)
			records = append(records, said{viewNVML, at, uint64(at), good(node, []string{uuidX, uuidY}[i/18], 1)},
				said{viewSlurm, at, uint64(at), block(node, fmt.Sprint("rack", i/18))})
		}
		return s.load("c", records...)
	}
	if n := len(refresh(10)); n != 36 {
		t.Fatalf("the first load changed %d nodes, want 36", n)
	}
	generation := s.count("SELECT max(generation) FROM membership")
	for at := int64(1000); at < 5000; at += 1000 {
		if spans := refresh(at); len(spans) > 0 {
			t.Fatalf("a refresh changed %v", spans)
		}
	}
	if n := s.count("SELECT count() FROM membership"); n != 36 {
		t.Fatalf("refreshes left %d rows of membership, want 36", n)
	}
	// A late record between two refreshes that said otherwise is an interval between them.
	spans := s.load("c", said{viewNVML, 1500, 1500, good("n00", uuidY, 1)})
	if want := (nodeSpan{"c", "n00", moment(base + 1500), moment(base + 2000)}); len(spans) != 1 || spans[0] != want {
		t.Fatalf("want %v, got %v", want, spans)
	}
	want := "10 nvml X (X.1)\n1500 nvml Y (Y.1)\n2000 nvml X (X.1)\n! 1500-2000 nvml:Y / slurm_topology:rack0\n"
	if d := cmp.Diff(want, s.membership("c")["n00"].print()); d != "" {
		t.Fatal(d)
	}
	if got := s.count("SELECT max(generation) FROM membership"); got != generation+1 {
		t.Fatalf("generation went from %d to %d, want one step", generation, got)
	}
}

// A late record reaches nodes that shared a domain with its node then and no longer do.
func TestFoldMembershipReachesFormerPeers(t *testing.T) {
	s := newStore(t)
	s.load("c", said{viewSlurm, 10, 10, block("n1", "rack01")}, said{viewSlurm, 10, 10, block("n2", "rack01")})
	s.load("c", said{viewSlurm, 50, 50, block("n1", "rack02")})
	s.load("c", said{viewNVML, 20, 20, good("n1", uuidX, 1)})
	want := "10 slurm_topology rack01 ()\n20 slurm_topology X ()\n50 slurm_topology rack01 ()\n"
	if d := cmp.Diff(want, s.membership("c")["n2"].print()); d != "" {
		t.Fatal(d)
	}
}

// A configured precedence decides, not the built-in one.
func TestFoldMembershipFollowsThePrecedence(t *testing.T) {
	s := newStore(t)
	s.cfg.Precedence = []string{event.SourceStatic, event.SourceNVML}
	s.load("c", said{viewNVML, 10, 10, good("n1", uuidX, 1)}, said{view{event.SourceStatic, ""}, 10, 10, block("n1", "mine")})
	if d := cmp.Diff("10 static mine ()\n", s.membership("c")["n1"].print()); d != "" {
		t.Fatal(d)
	}
}
