package pass

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/internal/testenv"
)

// testPlacement is a row of placements.
type testPlacement struct {
	job      string
	from, to int64 // minutes after base, may be fractions
	nodes    []string
	gpus     []*uint16
	probe    bool
	deleted  bool
	ends     int64 // expected; 0 = not known
}

func homeIn(domain string) home { return home{effective: effective{domain: domain}} }

// mostClaimed is the largest count that anybody claimed of a node.
func mostClaimed(claims map[string][]interval[claim]) (n int) {
	for _, list := range claims {
		for _, c := range list {
			n = max(n, c.value.gpus)
		}
	}
	return n
}

func u16(n uint16) *uint16 { return &n }

// fleet is what a capacity test puts into the tables, and what its oracle counts.
type fleet struct {
	homes      map[string][]interval[home]
	offers     map[string][]interval[offer]
	placements map[string]testPlacement
}

// at counts one domain at one moment by the definitions.
func (f fleet) at(domain string, t int64, sizes []uint16) capacityRow {
	h := clusterHistory{homes: f.homes, offers: f.offers, claims: map[string][]interval[claim]{}}
	names := map[string]bool{}
	for n := range f.homes {
		names[n] = true
	}
	for n := range f.offers {
		names[n] = true
	}
	for _, p := range f.placements {
		for i, n := range p.nodes {
			if p.deleted || p.to <= p.from || p.gpus[i] != nil && *p.gpus[i] == 0 {
				continue
			}
			names[n] = true
			g := -1
			if p.gpus[i] != nil {
				g = int(*p.gpus[i])
			}
			h.claims[n] = append(h.claims[n], interval[claim]{p.from, p.to, claim{gpus: g, probe: p.probe, expectedEnd: p.ends}})
		}
	}
	usual := usualOffer(h.offers)
	if usual == 0 {
		usual = mostClaimed(h.claims)
	}
	r := capacityRow{sizes: sizes, slots: make([]uint32, len(sizes)), basis: basisExact}
	type node struct {
		gpus, usable, free int
		ends               uint32 // 0 = no limit says
	}
	var nodes []node
	for n := range names {
		where, offers := at(f.homes[n], t), at(f.offers[n], t)
		in := ""
		if where != nil {
			in = where.domain
		}
		if in != domain {
			continue
		}
		held, probe, claims, blind := 0, 0, 0, false
		wholly := map[bool]bool{}
		ends, endless := int64(0), false
		for _, c := range h.claims[n] {
			if c.from > t || c.to <= t {
				continue
			}
			claims++
			if !c.value.probe {
				ends, endless = max(ends, c.value.expectedEnd), endless || c.value.expectedEnd == 0
			}
			switch {
			case c.value.gpus < 0:
				blind, wholly[c.value.probe] = true, true
			case c.value.probe:
				probe += c.value.gpus
			default:
				held += c.value.gpus
			}
		}
		known := where != nil && where.reason != reasonRemoved
		if domain == "" && claims == 0 && (offers == nil && !known || offers != nil && offers.present != nil && *offers.present == 0) {
			continue
		}
		gpus, basis := usual, basisAssumed
		if offers != nil && offers.present != nil {
			gpus, basis = int(*offers.present), basisExact
		} else if offers != nil && offers.usable != nil {
			gpus, basis = int(*offers.usable), basisExact
		}
		if basis == basisAssumed && gpus == 0 {
			basis = basisUnknown
		}
		if basis == basisExact && blind {
			basis = basisAssumed
		}
		usable := gpus
		if offers != nil && offers.usable != nil {
			usable = min(gpus, int(*offers.usable))
		}
		held, probe = min(held, gpus), min(probe, gpus)
		if wholly[false] {
			held = gpus
		}
		if wholly[true] {
			probe = gpus
		}
		free := max(0, usable-held)
		r.nodes++
		if usable > 0 {
			r.nodesUsable++
		}
		r.gpus, r.usable, r.held = r.gpus+uint32(gpus), r.usable+uint32(usable), r.held+uint32(held)
		r.probe, r.free = r.probe+uint32(probe), r.free+uint32(free)
		if basis == basisUnknown || basis == basisAssumed && r.basis == basisExact {
			r.basis = basis
		}
		x := node{gpus: gpus, usable: usable, free: free}
		if !endless {
			x.ends = uint32((ends + 999) / 1000)
		}
		nodes = append(nodes, x)
	}
	perNode, most := 0, 0
	for g := 1; g <= 16; g++ {
		n := 0
		for _, x := range nodes {
			if x.gpus == g {
				n++
			}
		}
		if n > 0 && n >= most {
			perNode, most = g, n
		}
	}
	for _, x := range nodes {
		switch {
		case perNode == 0:
		case x.free >= perNode:
			r.nodesFree++
		case domain != "" && x.usable < perNode:
			r.ends = append(r.ends, 0)
		case domain != "":
			r.ends = append(r.ends, x.ends)
		}
	}
	slices.Sort(r.ends)
	endless, _ := slices.BinarySearch(r.ends, 1)
	r.ends = append(r.ends[endless:], r.ends[:endless]...) // what no limit says is last
	for i, size := range sizes {
		if domain == "" || perNode == 0 {
			continue
		}
		if int(size) > perNode {
			need := (int(size) + perNode - 1) / perNode
			r.slots[i] = uint32(int(r.nodesFree) / need)
			continue
		}
		for _, x := range nodes {
			r.slots[i] += uint32(x.free / int(size))
		}
	}
	return r
}

// put adds rows to a derived table; their version is the next one.
func (s *store) put(table string, rows ...[]any) {
	s.t.Helper()
	s.version++
	w := &writer{table: table}
	for _, r := range rows {
		w.add(r...)
	}
	if err := s.write(context.Background(), w); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) putHomes(cluster string, homes map[string][]interval[home]) {
	var rows [][]any
	for node, list := range homes {
		for _, iv := range list {
			rows = append(rows, []any{
				cluster, node, moment(iv.from), moment(iv.to), iv.value.domain, "", map[string]string{}, "nvml", iv.value.reason,
				uint64(1), s.version + 1, uint8(0),
			})
		}
	}
	s.put("membership", rows...)
}

func (s *store) putOffers(cluster string, offers map[string][]interval[offer]) {
	var rows [][]any
	for node, list := range offers {
		for _, iv := range list {
			rows = append(rows, []any{
				cluster, node, moment(iv.from), moment(iv.to), iv.value.present, iv.value.usable, nil, "", "", s.version + 1, uint8(0),
			})
		}
	}
	s.put("node_states", rows...)
}

func (s *store) putPlacement(cluster string, p testPlacement) {
	deleted := uint8(0)
	if p.deleted {
		deleted = 1
	}
	var when *time.Time
	if p.ends > 0 {
		when = new(moment(p.ends))
	}
	s.put("placements", []any{cluster, p.job, "a", uint16(0), moment(p.from), moment(p.to), p.nodes, p.gpus, make([][]uint16, len(p.nodes)),
		make([][]string, len(p.nodes)), nil, "exact", p.probe, when, s.version + 1, deleted})
}

func (s *store) capacity(cluster string, from, to int64) {
	s.t.Helper()
	s.version++
	s.forget() // the tables were written behind its back
	if err := s.foldCapacity(context.Background(), []clusterSpan{{cluster, moment(from), moment(to)}}); err != nil {
		s.t.Fatal(err)
	}
}

// minuteAt is a moment in minutes after base.
func minuteAt(m float64) int64 { return base + int64(m*float64(minute)) }

func randomFleet(rnd *rand.Rand) fleet {
	f := fleet{homes: map[string][]interval[home]{}, offers: map[string][]interval[offer]{}, placements: map[string]testPlacement{}}
	for i := range 9 { // so that four GPUs are the usual count at any time
		f.offers[fmt.Sprintf("m%d", i)] = []interval[offer]{{base, forever, offer{u16(4), u16(4)}}}
	}
	counts := []*uint16{nil, u16(0), u16(3), u16(4), u16(4), u16(4), u16(4), u16(8)}
	for i := range 8 {
		node := fmt.Sprintf("n%d", i)
		for t := minuteAt(rnd.Float64() * 5); t < minuteAt(30); {
			until := t + int64(1+rnd.IntN(int(25*minute)))
			if until > minuteAt(30) {
				until = forever
			}
			if rnd.IntN(8) > 0 {
				h := homeIn([]string{"x", "y", "z"}[rnd.IntN(3)])
				if rnd.IntN(6) == 0 {
					h = home{effective: effective{reason: []string{reasonRemoved, reasonInProgress}[rnd.IntN(2)]}}
				}
				f.homes[node] = append(f.homes[node], interval[home]{t, until, h})
			}
			t = until
		}
		for t := minuteAt(rnd.Float64() * 5); t < minuteAt(30); {
			until := t + int64(1+rnd.IntN(int(25*minute)))
			if until > minuteAt(30) {
				until = forever
			}
			if rnd.IntN(8) > 0 {
				o := offer{counts[rnd.IntN(len(counts))], counts[rnd.IntN(len(counts))]}
				f.offers[node] = append(f.offers[node], interval[offer]{t, until, o})
			}
			t = until
		}
	}
	return f
}

func (f fleet) randomPlacement(rnd *rand.Rand) testPlacement {
	p := testPlacement{job: fmt.Sprint(rnd.IntN(12)), from: minuteAt(rnd.Float64() * 30), probe: rnd.IntN(5) == 0, deleted: rnd.IntN(8) == 0}
	p.to = p.from + int64(rnd.IntN(int(12*minute)))
	if rnd.IntN(4) == 0 {
		p.to = forever
	}
	if rnd.IntN(3) > 0 {
		p.ends = p.from + int64(rnd.IntN(int(20*minute)))
	}
	for _, i := range rnd.Perm(9)[:1+rnd.IntN(4)] { // n8 is a node nobody else speaks of
		p.nodes = append(p.nodes, fmt.Sprintf("n%d", i))
		p.gpus = append(p.gpus, []*uint16{nil, u16(0), u16(1), u16(2), u16(4), u16(4), u16(4)}[rnd.IntN(7)])
	}
	return p
}

// Placements come and change in any order; after each change only the minutes it may have touched are counted again, and
// every minute of every domain must read as the oracle counts it.
func TestFoldCapacityAgreesWithTheOracle(t *testing.T) {
	s := newStore(t)
	s.cfg.SlotSizes = []int{1, 2, 4, 8, 12}
	sizes := []uint16{1, 2, 4, 8, 12}
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		cluster := fmt.Sprintf("c%d", seed)
		f := randomFleet(rnd)
		s.putHomes(cluster, f.homes)
		s.putOffers(cluster, f.offers)
		s.capacity(cluster, base, forever)
		for range 20 {
			p := f.randomPlacement(rnd)
			old, known := f.placements[p.job]
			from, to := p.from, p.to
			if known {
				from, to = min(from, old.from), max(to, old.to)
			}
			f.placements[p.job] = p
			s.putPlacement(cluster, p)
			s.capacity(cluster, from, to)
		}
		s.compareCapacity(seed, cluster, f, sizes)
		s.version++
		s.capacity(cluster, base, forever)
		if n := s.count("SELECT count() FROM domain_capacity WHERE version = ?", s.version); n > 0 {
			t.Fatalf("seed %d: counting again wrote %d rows", seed, n)
		}
	}
}

func (s *store) compareCapacity(seed uint64, cluster string, f fleet, sizes []uint16) {
	s.t.Helper()
	stored, err := s.capacityRows(context.Background(), cluster, base, base+100*minute)
	if err != nil {
		s.t.Fatal(err)
	}
	domains := map[string]bool{"": true, "x": true, "y": true, "z": true}
	for k := range stored {
		domains[k.domain] = true
	}
	for domain := range domains {
		row := capacityRow{sizes: sizes, slots: make([]uint32, len(sizes)), basis: basisExact}
		for m := base; m < base+60*minute; m += minute {
			if r, ok := stored[capacityKey{m, domain}]; ok {
				row = r
			}
			if want := f.at(domain, m+minute-1, sizes); !want.equal(row) {
				s.t.Fatalf("seed %d, domain %q, minute %d: want - got +\n%s", seed, domain, (m-base)/minute,
					cmp.Diff(want, row, cmp.AllowUnexported(capacityRow{})))
			}
		}
	}
}

// Rows are kept only where something changed, so that a year of an idle domain is one row.
func TestFoldCapacityWritesChangesOnly(t *testing.T) {
	s := newStore(t)
	s.putHomes("c", map[string][]interval[home]{"n1": {{base, forever, homeIn("x")}}})
	s.putOffers("c", map[string][]interval[offer]{"n1": {{base, forever, offer{u16(4), u16(4)}}}})
	s.capacity("c", base, forever)
	p := testPlacement{job: "1", from: minuteAt(5.5), to: forever, nodes: []string{"n1"}, gpus: []*uint16{u16(4)}}
	s.putPlacement("c", p)
	s.capacity("c", p.from, forever)
	p.to = minuteAt(90_000)
	s.putPlacement("c", p)
	s.capacity("c", p.to, forever)
	rows, err := s.capacityRows(context.Background(), "c", base, base+100_000*minute)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int64]uint32{}
	for k, r := range rows {
		got[(k.minute-base)/minute] = r.free
	}
	if d := cmp.Diff(map[int64]uint32{0: 4, 5: 0, 90_000: 4}, got); d != "" {
		t.Fatalf("free GPUs by minute: want - got +\n%s", d)
	}
}

// What ends with a minute's first millisecond held until then: the row of that minute says that it no longer does.
func TestFoldCapacitySeesWhatEndsWithTheMinute(t *testing.T) {
	s := newStore(t)
	s.putHomes("c", map[string][]interval[home]{"n1": {{base, minuteAt(5), homeIn("x")}, {minuteAt(5), forever, homeIn("y")}}})
	s.putOffers("c", map[string][]interval[offer]{"n1": {{base, forever, offer{u16(4), u16(4)}}}})
	s.capacity("c", minuteAt(5), forever)
	rows, err := s.capacityRows(context.Background(), "c", base, base+10*minute)
	if err != nil {
		t.Fatal(err)
	}
	x, known := rows[capacityKey{minuteAt(5), "x"}]
	if !known || x.nodes != 0 || rows[capacityKey{minuteAt(5), "y"}].nodes != 1 || len(rows) != 2 {
		t.Fatalf("want x empty and y with a node at minute 5, got %+v", rows)
	}
}

func TestCapacityOfOneDomain(t *testing.T) {
	nvl72 := func(usable int, claims map[int]claim) clusterHistory {
		h := clusterHistory{homes: map[string][]interval[home]{}, offers: map[string][]interval[offer]{}, claims: map[string][]interval[claim]{}}
		for i := range 18 {
			n := fmt.Sprint(i)
			h.homes[n] = []interval[home]{{0, forever, homeIn("x")}}
			o := offer{u16(4), u16(4)}
			if i >= usable {
				o.usable = u16(0)
			}
			h.offers[n] = []interval[offer]{{0, forever, o}}
			if c, ok := claims[i]; ok {
				h.claims[n] = []interval[claim]{{0, forever, c}}
			}
		}
		return h
	}
	sizes := []uint16{1, 4, 6, 16, 64, 72}
	cases := map[string]struct {
		history clusterHistory
		want    capacityRow
	}{
		"an idle rack is one slot of 72": {
			nvl72(18, nil), capacityRow{18, 18, 18, 72, 72, 0, 0, 72, sizes, []uint32{72, 18, 9, 4, 1, 1}, nil, basisExact},
		},
		"a rack with 16 of 18 trays in service holds 64 and not 72": {
			nvl72(16, nil), capacityRow{18, 16, 16, 72, 64, 0, 0, 64, sizes, []uint32{64, 16, 8, 4, 1, 0}, []uint32{0, 0}, basisExact},
		},
		"one GPU held on each tray leaves no slot above a tray": {
			nvl72(18, func() map[int]claim {
				m := map[int]claim{}
				for i := range 18 {
					m[i] = claim{gpus: 1}
				}
				return m
			}()),
			capacityRow{18, 18, 0, 72, 72, 18, 0, 54, sizes, []uint32{54, 0, 0, 0, 0, 0}, make([]uint32, 18), basisExact},
		},
		"a probe job occupies and is free to any real job": {
			nvl72(18, map[int]claim{0: {gpus: 4, probe: true}}), capacityRow{18, 18, 18, 72, 72, 0, 4, 72, sizes, []uint32{72, 18, 9, 4, 1, 1}, nil, basisExact},
		},
		"a job of unknown GPUs holds the whole node, and the figure is marked": {
			nvl72(18, map[int]claim{0: {gpus: -1}}), capacityRow{18, 18, 17, 72, 72, 4, 0, 68, sizes, []uint32{68, 17, 8, 4, 1, 0}, []uint32{0}, basisAssumed},
		},
		"nodes that are held, by when the last of their holders ends by its limit, the others last": {
			func() clusterHistory {
				h := nvl72(16, map[int]claim{
					0: {gpus: 4, expectedEnd: 9000}, 1: {gpus: 2, expectedEnd: 3000}, 2: {gpus: 4}, 3: {gpus: -1, expectedEnd: 5001},
					4: {gpus: 4, probe: true}, 17: {gpus: 4, expectedEnd: 1000}, // on a tray that is out of service
				})
				h.claims["1"] = append(h.claims["1"], interval[claim]{0, forever, claim{gpus: 1, expectedEnd: 4000}})
				h.claims["0"] = append(h.claims["0"], interval[claim]{0, forever, claim{gpus: 4, expectedEnd: 2000, probe: true}})
				return h
			}(), capacityRow{18, 16, 12, 72, 64, 19, 8, 49, sizes, []uint32{49, 12, 6, 3, 0, 0}, []uint32{4, 6, 9, 0, 0, 0}, basisAssumed},
		},
		"two jobs that claim the same GPUs hold them once": {
			func() clusterHistory {
				h := nvl72(18, map[int]claim{0: {gpus: 4}})
				h.claims["0"] = append(h.claims["0"], h.claims["0"][0])
				return h
			}(), capacityRow{18, 18, 17, 72, 72, 4, 0, 68, sizes, []uint32{68, 17, 8, 4, 1, 0}, []uint32{0}, basisExact},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := c.history.sweep(0, sizes, nil)
			if d := cmp.Diff(map[capacityKey]capacityRow{{0, "x"}: c.want}, got, cmp.AllowUnexported(capacityRow{}, capacityKey{})); d != "" {
				t.Fatalf("want - got +\n%s", d)
			}
		})
	}
}

func TestMergeSpans(t *testing.T) {
	at := func(m int) time.Time { return moment(base + int64(m)*minute) }
	got := mergeSpans([]clusterSpan{{"b", at(5), at(6)}, {"a", at(1), at(3)}, {"a", at(9), at(10)}, {"a", at(2), at(4)}, {"a", at(0), at(1)}})
	want := []clusterSpan{{"a", at(0), at(4)}, {"a", at(9), at(10)}, {"b", at(5), at(6)}}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

// TestSlotRule: what is counted from nodes is what others make of a domain's totals.
func TestSlotRule(t *testing.T) {
	for _, c := range testenv.SlotCases(t) {
		s := &sweeper{sizes: []uint16{uint16(c.Size)}, domains: map[string]map[*sweptNode]struct{}{"d": {}}}
		for i, gpus := range c.Each() {
			present, in := uint16(gpus), homeIn("d")
			n := &sweptNode{home: &in, offer: &offer{present: &present}}
			if i >= c.NodesFree {
				n.held = gpus
			}
			s.domains["d"][n] = struct{}{}
		}
		row := s.compute("d")
		if int(row.nodes) != c.Nodes || int(row.nodesFree) != c.NodesFree || int(row.gpus) != c.GPUs {
			t.Errorf("%s: got %+v, want the totals of %+v", c.Says, row, c)
		}
		if c.Slots >= 0 && int(row.slots[0]) != c.Slots {
			t.Errorf("%s: got %d, want %d", c.Says, row.slots[0], c.Slots)
		}
	}
}
