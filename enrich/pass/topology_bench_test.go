package pass

import (
	"context"
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/schemas/event"
)

// A fleet of NVL72 racks: 18 nodes of 4 GPUs each.
const rackNodes = 18

func rackOf(i int) (node, rack, uuid string) {
	r := i / rackNodes
	return fmt.Sprintf("gb-r%04d-n%02d", r, i%rackNodes), fmt.Sprintf("rack%04d", r), fmt.Sprintf("11111111-aaaa-bbbb-cccc-%012d", r)
}

// fleetRecords is one full report of n nodes by the fabric and by the scheduler's topology.
func fleetRecords(n int, at int64) [][]any {
	var rows [][]any
	for i := range n {
		node, rack, uuid := rackOf(i)
		rows = append(rows, said{viewNVML, at, uint64(at), good(node, uuid, 32766)}.row("c"), said{viewSlurm, at, uint64(at), block(node, rack)}.row("c"))
	}
	return rows
}

// BenchmarkMembership measures the fold of 25,000 nodes (100,000 GPUs), each told by two sources.
func BenchmarkMembership(b *testing.B) {
	const nodes = 25_000
	ctx := context.Background()
	b.Run("first load", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s := newStore(b)
			all := s.insert(rawMembership, fleetRecords(nodes, 10))
			b.StartTimer()
			if _, err := s.foldMembership(ctx, all); err != nil {
				b.Fatal(err)
			}
		}
	})
	s := newStore(b)
	s.fold(s.insert(rawMembership, fleetRecords(nodes, 10)))
	at := int64(10)
	b.Run("refresh", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			at += 1000
			all := s.insert(rawMembership, fleetRecords(nodes, at))
			b.StartTimer()
			if spans, err := s.foldMembership(ctx, all); err != nil || len(spans) > 0 {
				b.Fatal(err, len(spans))
			}
		}
	})
	b.Run("one node changes", func(b *testing.B) {
		node, _, uuid := rackOf(0)
		for b.Loop() {
			b.StopTimer()
			at += 1000
			one := s.insert(rawMembership, [][]any{said{viewNVML, at, uint64(at), good(node, uuid, uint32(at))}.row("c")})
			b.StartTimer()
			if spans, err := s.foldMembership(ctx, one); err != nil || len(spans) != 1 {
				b.Fatal(err, len(spans))
			}
		}
	})
}

// BenchmarkResolve measures the resolution alone, in memory: where both sources know the same racks, and where the
// lower one puts all nodes into one domain.
func BenchmarkResolve(b *testing.B) {
	for name, domain := range map[string]func(i int) string{
		"racks":  func(i int) string { _, rack, _ := rackOf(i); return rack },
		"coarse": func(int) string { return "capacity-block" },
	} {
		views := []view{viewNVML, viewSlurm}
		sortViews(views, event.MembershipSources())
		var nodes []nodeFacts
		for i := range 25_000 {
			node, _, uuid := rackOf(i)
			at := int64(10 + i%5000)
			nodes = append(nodes, nodeFacts{node, [][]interval[fact]{
				{{at, forever, good(node, uuid, 32766).fact()}}, {{10, forever, block(node, domain(i)).fact()}},
			}})
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				resolve(views, nodes, 0)
			}
		})
	}
}

// BenchmarkCapacity measures capacity of a full fleet of jobs of two nodes each, with a history of as many ended ones.
func BenchmarkCapacity(b *testing.B) {
	for _, gpus := range []int{10_000, 100_000} {
		s := newStore(b)
		homes, offers := map[string][]interval[home]{}, map[string][]interval[offer]{}
		for i := range gpus / 4 {
			node, _, uuid := rackOf(i)
			homes[node] = []interval[home]{{base, forever, homeIn(uuid)}}
			offers[node] = []interval[offer]{{base, forever, offer{u16(4), u16(4)}}}
		}
		s.putHomes("c", homes)
		s.putOffers("c", offers)
		job := func(id string, i int, from, to int64) testPlacement {
			a, _, _ := rackOf(i)
			c, _, _ := rackOf(i + 1)
			return testPlacement{job: id, from: from, to: to, nodes: []string{a, c}, gpus: []*uint16{u16(4), u16(4)}}
		}
		var rows [][]any
		add := func(p testPlacement) {
			rows = append(rows, []any{"c", p.job, "a", uint16(0), moment(p.from), moment(p.to), p.nodes, p.gpus, make([][]uint16, 2), nil, "exact", false, moment(p.from + 120*minute), s.version + 1, uint8(0)})
		}
		n := 0
		for round := range 20 { // a day of jobs of 72 minutes, then those that run
			for i := 0; i+1 < gpus/4; i += 2 {
				from := minuteAt(float64(round*72) + float64(i%71))
				to := from + 70*minute
				if round == 19 {
					to = forever
				}
				add(job(fmt.Sprint(1_000_000+n), i, from, to))
				n++
			}
		}
		s.put("placements", rows...)
		now := minuteAt(1440)
		name := fmt.Sprintf("%d GPUs/", gpus)
		b.Run(name+"a day", func(b *testing.B) {
			for b.Loop() {
				s.capacity("c", base, forever)
			}
			b.StopTimer()
			if err := s.Conn.Exec(context.Background(), "OPTIMIZE TABLE domain_capacity FINAL"); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(s.count("SELECT count() FROM domain_capacity")), "rows")
			b.ReportMetric(float64(s.count("SELECT sum(data_compressed_bytes) FROM system.parts WHERE database = currentDatabase() AND table = 'domain_capacity' AND active")), "bytes")
		})
		b.Run(name+"a job ends and another starts", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				now += 10_000
				s.putPlacement("c", job(fmt.Sprint(2_000_000+i), 0, now, forever))
				b.StartTimer()
				s.capacity("c", now, forever)
			}
		})
	}
}
