package read

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
)

// TestSlotRule: slots, history and report say the same of a size that was not counted, or refuse it alike.
func TestSlotRule(t *testing.T) {
	r := migrated(t)
	ctx := context.Background()
	cases := testenv.SlotCases(t)
	for i, c := range cases {
		free := max(1, c.Slots+1) * c.Size // one slot more than there is, in pieces
		err := r.conn.Exec(ctx, fmt.Sprintf(`INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, gpus_basis, version)
			VALUES ('c%d', 'd', '2026-11-29 10:00:00', %d, %d, %d, %d, %d, [1], [1], 'exact', 1)`, i, c.Nodes, c.NodesFree, c.GPUs, c.GPUs, free))
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range cases {
		t.Run(c.Says, func(t *testing.T) {
			cluster := fmt.Sprint("c", i)
			slots, err := r.Slots(ctx, cluster, uint32(c.Size))
			report, rErr := r.Report(ctx, cluster, noon.Add(-time.Hour), noon, uint32(c.Size), advise.DefaultLinks())
			history, hErr := r.FragmentationSince(ctx, cluster, noon.Add(-time.Hour), noon, uint32(c.Size), nil, nil)
			if c.Slots < 0 {
				for asked, err := range map[string]error{"slots": err, "report": rErr, "history": hErr} {
					if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), fmt.Sprintf("counted for [1] GPUs and any size above one node's %d;", c.GPUs/c.Nodes)) {
						t.Errorf("%s: got %v, want a refusal that says which sizes there are", asked, err)
					}
				}
				return
			}
			if c.Nodes == 0 { // its only domain was taken down: nothing is left that could be counted
				if !errors.Is(err, ErrNotFound) || hErr != nil || len(history) != 0 {
					t.Errorf("got %+v, %v and %+v, %v, want no count", slots, err, history, hErr)
				}
				return
			}
			if err != nil || slots.Total != uint32(c.Slots) {
				t.Errorf("slots: got %+v, %v, want %d", slots, err, c.Slots)
			}
			if hErr != nil || history[len(history)-1].Slots != uint32(c.Slots) {
				t.Errorf("history: got %+v, %v, want %d", history, hErr, c.Slots)
			}
			if rErr != nil || math.Abs(report.Stranded.StrandedGPUHours-float64(c.Size)) > 1e-6*float64(c.Size) {
				t.Errorf("report: got %+v, %v, want %d GPU-hours stranded", report, rErr, c.Size)
			}
		})
	}
}

// TestNothingIsKnownBeforeTheFirstCount: moments before that are no moments without GPUs.
func TestNothingIsKnownBeforeTheFirstCount(t *testing.T) {
	r := migrated(t)
	if err := r.conn.Exec(t.Context(), `INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, gpus_basis, version)
		VALUES ('c1', 'd', '2026-11-29 11:30:00', 18, 18, 72, 72, 72, [64], [1], 'exact', 1)`); err != nil {
		t.Fatal(err)
	}
	history, err := r.FragmentationSince(t.Context(), "c1", noon.Add(-time.Hour), noon, 64, nil, nil)
	if err != nil || len(history) != historyPoints/2+1 || history[0].At.Before(noon.Add(-30*time.Minute)) || history[0].Slots != 1 || history[0].Largest != 18 || history[0].ByNodes[15] != 1 {
		t.Errorf("got %d moments, %v, want those from half past eleven on: %+v", len(history), err, history[:min(1, len(history))])
	}
	history, err = r.FragmentationSince(t.Context(), "c1", noon.Add(-3*time.Hour), noon.Add(-2*time.Hour), 64, nil, nil)
	if err != nil || len(history) != 0 {
		t.Errorf("got %+v, %v, want nothing of a time of which nothing is known", history, err)
	}
}

// historyAt asks for the last hour's, of slots of two nodes, and gives the moment that many minutes after eleven.
func historyAt(t *testing.T, r *Reader, minutes int, may func(cluster, domain string) bool) FragmentedAt {
	t.Helper()
	history, err := r.FragmentationSince(t.Context(), "c1", noon.Add(-time.Hour), noon, 8, []advise.Gang{{Nodes: 2, Weight: 1}}, may)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range history {
		if !p.At.Before(noon.Add(time.Duration(minutes-60) * time.Minute)) {
			return p
		}
	}
	t.Fatalf("no moment %d minutes after eleven", minutes)
	return FragmentedAt{}
}

// TestAPastSlotIsOfOneModel: as models were told by then.
func TestAPastSlotIsOfOneModel(t *testing.T) {
	r := migrated(t)
	for _, q := range []string{
		// Domains g and h of four nodes each; h was told half past ten only, but for the last of its nodes that moved in from g.
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version)
			SELECT 'c1', concat('n', toString(number)), 0, '2200-01-01', if(number < 4, 'g', 'h'), 1, 1 FROM numbers(8)`,
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version) VALUES
			('c1', 'n8', 0, '2026-11-29 11:45:00', 'g', 1, 1), ('c1', 'n8', '2026-11-29 11:45:00', '2200-01-01', 'h', 2, 1)`,
		`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, gpu_model, observed_at, revision)
			SELECT 0, number, '2026-11-29 09:00:00', 'c1', concat('n', toString(number)), 'slurm', 'gb200', '2026-11-29 09:00:00', 1 FROM numbers(9) WHERE number < 4 OR number = 8`,
		`INSERT INTO node_events (kafka_partition, kafka_offset, loaded_at, cluster, node, source, gpu_model, observed_at, revision)
			SELECT 0, number, '2026-11-29 11:30:00', 'c1', concat('n', toString(number)), 'slurm', 'h100', '2026-11-29 11:30:00', 2 FROM numbers(8) WHERE number >= 4`,
		`INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, gpus_basis, version) VALUES
			('c1', 'g', '2026-11-29 10:00:00', 4, 4, 1, 16, 16, 6, [4], [1], 'exact', 1), ('c1', 'h', '2026-11-29 10:00:00', 4, 3, 3, 16, 12, 12, [4], [3], 'exact', 1)`,
	} {
		if err := r.conn.Exec(t.Context(), q); err != nil {
			t.Fatalf("%v in:\n%s", err, q)
		}
	}
	gb, h := "gb200", "h100"
	for at, want := range map[int][]*string{10: {&gb, nil}, 40: {&gb, &h}, 50: {&gb, nil}} { // from a quarter to twelve on h's nodes disagree
		p := historyAt(t, r, at, nil)
		var got []*string
		for _, m := range p.Models {
			got = append(got, m.Model)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d minutes after eleven: %s", at, diff)
		}
		if len(p.Models) != 2 {
			continue
		}
		g, h := p.Models[0], p.Models[1]
		if g.GPUsFree != 6 || g.Slots != 0 || g.Ideal != 0 || g.Stranded != 6 || g.FreeNodes != 1 || g.RacksWhole != 1 {
			t.Errorf("of gb200 got %+v", g)
		}
		if h.GPUsFree != 12 || h.Slots != 1 || h.Ideal != 1 || h.Stranded != 4 || h.FreeNodes != 3 || h.RacksFewer != 1 || h.ByNodes[1] != 1 {
			t.Errorf("of the others got %+v", h)
		}
		if p := historyAt(t, r, at, func(_, domain string) bool { return domain == "h" }); len(p.Models) != 1 || p.GPUsFree != 12 || p.FreeNodes != 3 {
			t.Errorf("%d minutes after eleven, for who may use h alone: got %+v", at, p)
		}
		// 18 GPUs would be two slots had they been of one model.
		if p.GPUsFree != 18 || p.Slots != 1 || p.Ideal != 1 || p.Stranded != 10 || p.FreeNodes != 4 || p.RacksWhole != 1 || p.RacksFewer != 1 || p.Cliff[3] != 1 {
			t.Errorf("of all got %+v", p.Fragmented)
		}
	}
}

// TestWhenADomainWouldHaveDrained: by the limits of who held its nodes then; not known where those were not kept.
func TestWhenADomainWouldHaveDrained(t *testing.T) {
	r := migrated(t)
	if err := r.conn.Exec(t.Context(), `INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots,
			node_ends, gpus_basis, version) VALUES
		('c1', 'a', '2026-11-29 10:00:00', 4, 4, 1, 16, 16, 4, [4], [1], [], 'exact', 1),
		('c1', 'b', '2026-11-29 10:00:00', 4, 4, 4, 16, 16, 16, [4], [4], [], 'exact', 1),
		('c1', 'a', '2026-11-29 11:20:00', 4, 4, 1, 16, 16, 4, [4], [1], ['2026-11-29 11:30:00', '2026-11-29 14:00:00', 0], 'exact', 1),
		('c1', 'b', '2026-11-29 11:20:00', 4, 4, 0, 16, 16, 0, [4], [0], ['2026-11-29 13:00:00', '2026-11-29 13:00:00', '2026-11-29 13:30:00', 0], 'exact', 1)`); err != nil {
		t.Fatal(err)
	}
	clock := func(hours, minutes int) int64 {
		return time.Date(2026, 11, 29, hours, minutes, 0, 0, time.UTC).Unix()
	}
	for at, want := range map[int][]int64{
		10: nil, // of a nothing was kept
		25: {0, clock(11, 30), clock(13, 30), -1},
		40: {0, historyAt(t, r, 40, nil).At.Unix() + advise.OverdueGrace, clock(13, 30), -1}, // who was to end by half past goes on
	} {
		p := historyAt(t, r, at, nil)
		if diff := cmp.Diff(want, p.Drain); diff != "" {
			t.Errorf("%d minutes after eleven: %s", at, diff)
		}
		if diff := cmp.Diff(want, p.Models[0].Drain); diff != "" || len(p.Models) != 1 || p.Models[0].Model != nil {
			t.Errorf("%d minutes after eleven, of the model that nobody told: %s", at, diff)
		}
	}
}

// TestThePastDrainsAsNowDoes: from what is kept of domains follows what their nodes and holders say.
func TestThePastDrainsAsNowDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(81, 82))
	for range 200 {
		var specs []advise.NodeSpec
		for d := range 1 + rng.IntN(4) {
			for n := range 1 + rng.IntN(6) {
				specs = append(specs, advise.NodeSpec{Name: fmt.Sprintf("%d-%d", d, n), Domain: fmt.Sprint(d), GPUs: 4})
			}
		}
		topo, err := advise.NewTopology(1, nil, specs)
		if err != nil {
			t.Fatal(err)
		}
		s := advise.NewState(topo)
		for n := range int32(len(topo.Nodes)) {
			if rng.IntN(8) == 0 {
				s.SetUsable(n, 3)
			}
			if rng.IntN(4) == 0 {
				continue
			}
			end := noon.Unix() + rng.Int64N(3600) - 1200 // one in three is overdue
			if rng.IntN(5) == 0 {
				end = 0
			}
			if err := s.Hold(&advise.Hold{Key: fmt.Sprint(n), Job: fmt.Sprint(n), Nodes: []advise.Share{{Node: n, GPUs: 4}}, End: end}); err != nil {
				t.Fatal(err)
			}
		}
		v := s.View()
		f := fleet{}
		for d := range topo.Domains {
			dom := &topo.Domains[d]
			row := capacityRow{Nodes: uint16(dom.Count), NodesFree: uint16(v.Free[d])}
			endless := 0
			for n := dom.First; n < dom.First+dom.Count; n++ {
				switch at := s.FreeAt(n); at {
				case 0:
				case advise.Never:
					endless++
				default:
					row.NodeEnds = append(row.NodeEnds, uint32(at))
				}
			}
			slices.Sort(row.NodeEnds)
			row.NodeEnds = append(row.NodeEnds, make([]uint32, endless)...)
			if err := f.add(row, Domain{Slots: map[uint16]uint32{8: 0}}, 8); err != nil {
				t.Fatal(err)
			}
		}
		now, _ := advise.Fragment(&v, nil, noon.Unix())
		if diff := cmp.Diff(now.Drain, f.drain(noon)); diff != "" {
			t.Fatalf("now and then differ: %s", diff)
		}
	}
}

// TestEachMomentSeesTheLastChangeBeforeIt: of many between two moments the last, which may be that of the moment itself.
func TestEachMomentSeesTheLastChangeBeforeIt(t *testing.T) {
	r := migrated(t)
	// A change each minute from two on: as many free nodes as minutes.
	if err := r.conn.Exec(t.Context(), `INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, gpus_basis, version)
		SELECT 'c1', 'd', toDateTime('2026-11-29 02:00:00') + 60 * number, 1000, number, 4000, 4000, 4 * number, [64], [1], 'exact', 1 FROM numbers(601)`); err != nil {
		t.Fatal(err)
	}
	for _, span := range []time.Duration{10 * time.Hour, 8 * time.Hour, 31*time.Minute + 17*time.Second, 5 * time.Second} {
		since := noon.Add(-span)
		history, err := r.FragmentationSince(t.Context(), "c1", since, noon, 64, nil, nil)
		if err != nil || len(history) != historyPoints {
			t.Fatalf("%s: got %d moments, %v", span, len(history), err)
		}
		for _, p := range history {
			if want := int32(p.At.Sub(noon.Add(-10*time.Hour)) / time.Minute); p.FreeNodes != want {
				t.Errorf("%s, %s: got %d free nodes, want those of the minute, %d", span, p.At, p.FreeNodes, want)
			}
		}
	}
}
