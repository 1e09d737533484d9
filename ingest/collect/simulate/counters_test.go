package simulate

import (
	"testing"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// TestTrafficFollowsTheJobs looks at the demo's fleet for what its counters are to show.
func TestTrafficFollowsTheJobs(t *testing.T) {
	s := newSim(1, DefaultCluster(), clock{Wall: testStart.UnixMilli(), Speed: 1}, 1)
	s.advance(warmUp, func(event.Record) {})
	tr := newTraffic(1, s, s.wall())
	var records [2][]*event.Counters
	for round := range records {
		tr.tell(s, s.wall()+int64(round)*10_000, func(r event.Record) {
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			records[round] = append(records[round], r.(*event.Counters))
		})
	}
	rate := map[string][2]float64{} // NVLink and NIC of the first GPU, by node
	for i, r := range records[1] {
		before := records[0][i]
		rate[r.Node] = [2]float64{(r.NvlinkTxBytes[0] - before.NvlinkTxBytes[0]) / 10, (r.NicTxBytes[0] - before.NicTxBytes[0]) / 10}
	}
	silent, confirmed, usual := 0, 0, 0
	for _, p := range s.parts {
		for _, j := range p.running {
			if len(j.Grants) < 2 || j.State != event.State_RUNNING {
				continue
			}
			racks := map[int]bool{}
			for _, g := range j.Grants {
				racks[rackOf(g.Node)] = true
			}
			got := rate[s.fleet.name[j.Grants[0].Node]]
			switch {
			case len(racks) == 1 && got[0] < 1e9 && got[1] > 10e9:
				silent++
			case len(racks) == 1 && got[0] > 50e9 && got[1] < 1e9:
				usual++
			case len(racks) > 1 && got[1] > 10e9:
				confirmed++
			}
		}
	}
	if silent == 0 || confirmed == 0 || usual == 0 {
		t.Errorf("%d silent fallbacks, %d spills seen in traffic, %d jobs that use their NVLinks: want some of each", silent, confirmed, usual)
	}
	for node, name := range s.fleet.name {
		if _, told := rate[name]; told == (s.down[node] || s.fleet.broken[node]) {
			t.Errorf("%s: told %v, though down %v or broken %v", name, told, s.down[node], s.fleet.broken[node])
		}
	}
}

func TestCountersGoByTheWallClock(t *testing.T) {
	s := newSim(1, DefaultCluster(), clock{Speed: 60}, 1)
	tr := newTraffic(1, s, s.wall())
	n := 0
	emit := func(event.Record) { n++ }
	tr.tell(s, s.wall(), emit)
	first := n
	tr.tell(s, s.wall()-time.Second.Milliseconds(), emit) // the clock was set back
	if first == 0 || n != first {
		t.Errorf("%d records at first, %d after the clock was set back", first, n)
	}
}
