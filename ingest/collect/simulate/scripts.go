package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

const (
	causePolicy   = "policy"
	causeTiming   = "timing"
	causeRepack   = "repack"
	causeCapacity = "capacity"

	second = time.Second
	minute = time.Minute
	hour   = time.Hour
)

// scripts is every scenario. Jobs that must not see each other run one after the other, a minute each.
var scripts = []script{
	{
		"same-clique", "two racks whose fabric managers gave the same CliqueID are two partitions",
		func(w *writer) {
			w.racks(2, 7)
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 2))})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, holds: whole(trays("r1", 1, 1), trays("r2", 1, 1))})
			w.expect("1", one(8))
			w.expect("2", spill(causePolicy, 1, 4, 4))
		},
	},
	{
		"clique-32766", "the CliqueID of undivided racks repeats on all of them and joins none",
		func(w *writer) {
			w.racks(3, sentinelClique)
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 1), trays("r2", 1, 1), trays("r3", 1, 1))})
			w.expect("1", spill(causePolicy, 1, 4, 4, 4))
		},
	},
	{
		"hgx", "nodes with the zero ClusterUUID are domains of their own, never one domain",
		func(w *writer) {
			for n := 1; n <= 4; n++ {
				node := fmt.Sprintf("hgx%d", n)
				w.fabric(node, inventory, 8, zeroUUID(), 0)
				w.capacity(node, inventory, 8, true)
			}
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: []hold{{"hgx1", 8}}})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, holds: []hold{{"hgx1", 8}, {"hgx2", 8}}})
			w.tell(run{job: "3", from: 120 * second, to: 170 * second, holds: []hold{{"hgx1", 4}, {"hgx2", 4}}})
			w.tell(run{job: "4", from: 180 * second, to: 230 * second, holds: []hold{{"hgx1", 6}, {"hgx2", 6}, {"hgx3", 6}, {"hgx4", 6}}})
			w.expect("1", one(8))
			w.expect("2", spread(8, 8))
			w.expect("3", spill(causePolicy, 1, 4, 4))
			w.expect("4", spill(causePolicy, 3, 6, 6, 6, 6))
		},
	},
	{
		"unknown-nodes", "a node without membership makes the answer unknown, unless the known ones alone already spill",
		func(w *writer) {
			w.racks(2, 1)
			w.capacity("stray", inventory, gpusPerTray, true)
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 2), []string{"stray"})})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, holds: whole(trays("r1", 1, 1), trays("r2", 1, 1), []string{"stray"})})
			w.tell(run{job: "3", from: 120 * second, to: 170 * second, holds: whole([]string{"stray"})})
			w.expect("1", unknown())
			w.expect("2", Verdict{Outcome: "spill", DomainsUsed: ptr(2), DomainsMin: ptr(1)})
			w.expect("3", unknown())
		},
	},
	{
		"unknown-then-known", "a fabric that registers 30 s into a run was the same hardware from its start",
		func(w *writer) {
			for tray, node := range trays("r1", 1, traysPerRack) {
				w.capacity(node, inventory, gpusPerTray, true)
				if tray < 4 { // booted just now
					w.unregistered(node, -minute)
					w.fabric(node, 30*second, gpusPerTray, w.domain("r1"), 1)
				} else {
					w.fabric(node, inventory, gpusPerTray, w.domain("r1"), 1)
				}
			}
			w.tell(run{job: "1", from: 0, to: 5 * minute, holds: whole(trays("r1", 1, 2))})
			w.tell(run{job: "2", from: 0, to: 10 * second, holds: whole(trays("r1", 3, 4))})
			w.expect("1", one(8))
			w.expect("2", unknown()) // over before anybody knew
		},
	},
	{
		"uuid-changed", "maintenance gives a rack a new ClusterUUID: what runs keeps the old one, what starts gets the new",
		func(w *writer) {
			w.racks(2, 1)
			renewed := w.domain("r1 renewed")
			for _, node := range trays("r1", 1, traysPerRack) {
				w.fabric(node, minute, gpusPerTray, renewed, 1)
			}
			w.tell(run{job: "1", from: 0, to: 2 * minute, holds: whole(trays("r1", 1, 4))})
			w.tell(run{job: "2", from: 90 * second, to: 2 * minute, holds: whole(trays("r1", 5, 8))})
			before, after := one(16), one(16)
			before.Domains, after.Domains = []string{w.domain("r1")}, []string{renewed}
			w.expect("1", before)
			w.expect("2", after)
		},
	},
	{
		"short-racks", "racks with 16 of 18 trays hold 64 GPUs, so 72 need two",
		func(w *writer) {
			w.racks(2, 1)
			for _, rack := range []string{"r1", "r2"} {
				for _, node := range trays(rack, 17, 18) {
					w.capacity(node, -2*hour, gpusPerTray, false)
				}
			}
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 16), trays("r2", 1, 2))})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, holds: whole(trays("r1", 1, 16))})
			w.tell(run{job: "3", from: 120 * second, to: 170 * second, holds: whole(trays("r1", 1, 15), trays("r2", 1, 1))})
			w.expect("1", spread(64, 8))
			w.expect("2", one(64))
			w.expect("3", spill(causePolicy, 1, 60, 4))
		},
	},
	{
		"gpus-128", "128 GPUs need two racks: 64+64 and 72+56 are minimal, three racks are not",
		func(w *writer) {
			w.racks(4, 1)
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 16), trays("r2", 1, 16))})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, holds: whole(trays("r1", 1, 14), trays("r2", 1, 18))})
			w.tell(run{job: "3", from: 120 * second, to: 170 * second, holds: whole(trays("r1", 1, 16), trays("r2", 1, 8), trays("r3", 1, 8))})
			w.expect("1", spread(64, 64))
			w.expect("2", spread(72, 56))
			w.expect("3", spill(causePolicy, 2, 64, 32, 32))
		},
	},
	{
		"gpus-16", "16 GPUs as 15+1, 12+4 and 8+8",
		func(w *writer) {
			w.racks(2, 1)
			fifteen := append(whole(trays("r1", 1, 3)), hold{"r1-n04", 3}, hold{"r2-n01", 1})
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: fifteen})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, holds: whole(trays("r1", 1, 3), trays("r2", 1, 1))})
			w.tell(run{job: "3", from: 120 * second, to: 170 * second, holds: whole(trays("r1", 1, 2), trays("r2", 1, 2))})
			w.expect("1", spill(causePolicy, 1, 15, 1))
			w.expect("2", spill(causePolicy, 1, 12, 4))
			w.expect("3", spill(causePolicy, 1, 8, 8))
		},
	},
	{
		"requeue", "a job requeued onto other nodes has two attempts and two verdicts",
		func(w *writer) {
			w.racks(2, 1)
			w.tell(run{job: "1", from: 0, to: 50 * second, end: event.State_REQUEUED, holds: whole(trays("r1", 1, 4))})
			w.tell(run{job: "1", restart: 1, from: 180 * second, to: 230 * second, holds: whole(trays("r1", 1, 2), trays("r2", 1, 2))})
			w.expect("1", one(16))
			second := spill(causePolicy, 1, 8, 8)
			second.Attempt = 1
			w.expect("1", second)
		},
	},
	{
		"node-replaced", "a node replaced in mid-run makes a second placement, which spills",
		func(w *writer) {
			w.racks(2, 1)
			before := run{job: "1", from: 0, to: 2 * minute, holds: whole(trays("r1", 1, 4))}
			after := before
			after.holds = whole(trays("r1", 1, 3), trays("r2", 1, 1))
			after.set = func(p *event.Placement) { p.Placements[3].FromMs = ptr(w.ms(61 * second)) }
			w.capacity("r1-n04", 60*second, gpusPerTray, false)
			w.add(w.record(before, event.State_RUNNING, 0))
			w.add(w.record(after, event.State_RUNNING, 62*second))
			w.add(w.record(after, event.State_COMPLETED, 2*minute))
			w.expect("1", one(16))
			second := spill(causePolicy, 1, 12, 4)
			second.Seq = 1
			w.expect("1", second)
		},
	},
	{
		"half-second", "a job of half a second is judged like any other",
		func(w *writer) {
			w.racks(2, 1)
			w.tell(run{job: "1", from: 0, to: 500 * time.Millisecond, holds: whole(trays("r1", 1, 1), trays("r2", 1, 1))})
			w.expect("1", spill(causePolicy, 1, 4, 4))
		},
	},
	{
		"end-before-start", "the end of a job arrives before its start",
		func(w *writer) {
			oneSpill(w)
			w.arrange = func(records []event.Record) []event.Record {
				last := len(records) - 1
				records[last-1], records[last] = records[last], records[last-1]
				return records
			}
		},
	},
	{
		"five-times", "every record arrives five times",
		func(w *writer) {
			oneSpill(w)
			w.arrange = func(records []event.Record) []event.Record {
				var out []event.Record
				for _, r := range records {
					out = append(out, r, r, r, r, r)
				}
				return out
			}
		},
	},
	{
		"reversed", "every record arrives in reverse order, the hardware last",
		func(w *writer) {
			oneSpill(w)
			w.arrange = func(records []event.Record) []event.Record {
				slices.Reverse(records)
				return records
			}
		},
	},
	{
		"late", "a job heard of an hour late had taken the rack in which another could have run: its cause changes",
		func(w *writer) {
			w.racks(2, 1)
			w.fill("r2", 1, 16, -2*hour, -5*minute, 0)
			w.tell(run{job: "1", from: -30 * minute, to: -20 * minute, holds: whole(trays("r1", 17, 18), trays("r2", 17, 18))})
			w.expect("1", spill(causeRepack, 1, 8, 8))
			told := len(w.records)
			w.fill("r1", 1, 16, -hour, -5*minute, 0)
			w.later = slices.Clone(w.records[told:])
			w.records = w.records[:told]
		},
	},
	{
		"two-clusters", "nodes and jobs of two clusters have equal names",
		func(w *writer) {
			name := w.cluster
			w.cluster = name + "-east"
			w.racks(2, 1)
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 4))})
			w.expect("1", one(16))
			w.cluster = name + "-west"
			for tray := 1; tray <= traysPerRack; tray++ { // here the names do not follow the racks
				for i, rack := range []string{"r1", "r2"} {
					node := trays(rack, tray, tray)[0]
					w.fabric(node, inventory, gpusPerTray, w.domain(fmt.Sprint((i+tray)%2)), 1)
					w.capacity(node, inventory, gpusPerTray, true)
				}
			}
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 4))})
			w.expect("1", spill(causePolicy, 1, 8, 8))
		},
	},
	{
		"array-1000", "an array of 1,000 tasks of one GPU each",
		func(w *writer) {
			w.racks(4, 1)
			const gpus = 4 * gpusPerRack
			for task := range 1000 {
				wave, slot := time.Duration(task/gpus), task%gpus
				node := trays(fmt.Sprintf("r%d", slot/gpusPerRack+1), slot%gpusPerRack/gpusPerTray+1, slot%gpusPerRack/gpusPerTray+1)[0]
				job := fmt.Sprint(1000 + task)
				w.tell(run{
					job: job, from: wave * 10 * second, to: wave*10*second + 8*second, holds: []hold{{node, 1}},
					set: func(p *event.Placement) {
						p.ArrayJobId, p.ArrayTask = "1000", ptr(uint32(task))
						p.Placements[0].GpuIndex = []uint32{uint32(slot % gpusPerTray)}
					},
				})
				w.expect(job, one(1))
			}
		},
	},
	{
		"het", "the components of a heterogeneous job are one attempt",
		func(w *writer) {
			w.racks(2, 1)
			for i, holds := range [][]hold{whole(trays("r1", 1, 1)), whole(trays("r2", 1, 2))} {
				own := fmt.Sprint(100 + i)
				w.tell(run{
					job: "100", from: 0, to: 50 * second, holds: holds,
					set: func(p *event.Placement) { p.Component, p.RunId = own, p.RunId+own },
				})
			}
			w.expect("100", spill(causePolicy, 1, 8, 4))
		},
	},
	{
		"probe", "a rack taken only by a probe job was free for a real one",
		func(w *writer) {
			w.racks(3, 1)
			w.tell(run{
				job: "7", from: -5 * minute, to: 5 * minute, holds: whole(trays("r1", 1, 18)),
				set: func(p *event.Placement) { p.Probe, p.ServiceClass = true, classProbe },
			})
			w.expect("7", one(72))
			w.fill("r2", 1, 16, -hour, 5*minute, 0)
			w.fill("r3", 1, 16, -hour, 5*minute, 0)
			w.tell(run{job: "1", from: 0, to: minute, holds: whole(trays("r2", 17, 18), trays("r3", 17, 18))})
			w.expect("1", spill(causePolicy, 1, 8, 8))
		},
	},
	{
		"completing", "a job that has ended but is still completing blocks its slot",
		func(w *writer) {
			w.racks(2, 1)
			w.fill("r2", 1, 16, -2*hour, 5*minute, 0)
			cleaning := run{job: "7", from: -2 * hour, to: 30 * second, limit: 2*hour + 5*minute, holds: whole(trays("r1", 1, 16))}
			w.tell(cleaning)
			w.add(w.record(cleaning, event.State_COMPLETING, -minute))
			w.expect("7", one(64))
			w.tell(run{job: "1", from: 0, to: minute, holds: whole(trays("r1", 17, 18), trays("r2", 17, 18))})
			w.expect("1", spill(causeTiming, 1, 8, 8))
		},
	},
	{
		"clock-skew", "a node whose clock is five minutes fast reports a run after it has ended",
		func(w *writer) {
			w.racks(2, 1)
			r := run{job: "7", from: -3 * minute, to: -minute, holds: whole(trays("r1", 1, 18))}
			w.tell(r)
			all := r.holds
			for _, node := range all {
				r.holds = []hold{node}
				p := w.record(r, event.State_RUNNING, r.from+5*minute)
				p.Partial, p.Source = true, "slurm.prolog"
				p.Gpus, p.RequestedGpus, p.RequestedNodes = nil, nil, nil
				w.add(p)
			}
			w.expect("7", one(72))
			w.fill("r2", 3, 18, -2*hour, 5*minute, 0)
			w.tell(run{job: "1", from: second, to: minute, holds: whole(trays("r1", 1, 2), trays("r2", 1, 2))})
			w.expect("1", spill(causePolicy, 1, 8, 8))
		},
	},
	{
		"segments-kept", "each segment got one rack: aligned, however many racks",
		func(w *writer) {
			w.racks(3, 1)
			w.tell(run{job: "1", from: 0, to: 50 * second, set: segment(16), holds: whole(trays("r1", 1, 16), trays("r2", 1, 16))})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, set: segment(4), holds: whole(trays("r1", 1, 4), trays("r2", 1, 4))})
			large, small := spread(64, 64), spread(16, 16)
			small.DomainsMin = ptr(1)
			large.IntentMet, small.IntentMet = ptr(true), ptr(true)
			w.expect("1", large)
			w.expect("2", small)
		},
	},
	{
		"segments-broken", "36 nodes in segments of 12 over 18+18: as few racks as can be, but not what was asked",
		func(w *writer) {
			w.racks(3, 1)
			w.tell(run{job: "1", from: 0, to: 50 * second, set: segment(12), holds: whole(trays("r1", 1, 18), trays("r2", 1, 18))})
			v := spill(causePolicy, 2, 72, 72)
			v.IntentMet = ptr(false)
			w.expect("1", v)
		},
	},
	{
		"required-domain", "one domain was required: met inside a rack, not across two",
		func(w *writer) {
			w.racks(2, 1)
			required := func(p *event.Placement) {
				p.Intent = &event.Intent{Mode: event.Intent_REQUIRED, Level: event.LevelDomain}
			}
			w.tell(run{job: "1", from: 0, to: 50 * second, set: required, holds: whole(trays("r1", 1, 4))})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, set: required, holds: whole(trays("r1", 1, 2), trays("r2", 1, 2))})
			met, broken := one(16), spill(causePolicy, 1, 8, 8)
			met.IntentMet, broken.IntentMet = ptr(true), ptr(false)
			w.expect("1", met)
			w.expect("2", broken)
		},
	},
	{
		"two-partitions", "one rack divided into two cliques: one domain, not one partition",
		func(w *writer) {
			for tray := 1; tray <= traysPerRack; tray++ {
				node := trays("r1", tray, tray)[0]
				w.fabric(node, inventory, gpusPerTray, w.domain("r1"), uint32(1+tray/10))
				w.capacity(node, inventory, gpusPerTray, true)
			}
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 8, 11))})
			w.expect("1", Verdict{Outcome: "one_domain", DomainsUsed: ptr(1), DomainsMin: ptr(1), Shape: []int{16}})
		},
	},
	{
		"fabric-trouble", "a fabric in error, or GPUs of one node that disagree, are unknown and not a domain",
		func(w *writer) {
			w.racks(2, 1)
			for _, g := range w.fabric("r1-n01", -hour, gpusPerTray, zeroUUID(), 0).Gpus {
				g.Status = "insufficient_resources"
			}
			w.fabric("r1-n02", -hour, gpusPerTray, w.domain("r1"), 1).Gpus[3].ClusterUuid = w.domain("r2")
			w.tell(run{job: "1", from: 0, to: 50 * second, holds: whole(trays("r1", 1, 1))})
			w.tell(run{job: "2", from: 60 * second, to: 110 * second, holds: whole(trays("r1", 2, 2))})
			w.expect("1", unknown())
			w.expect("2", unknown())
		},
	},
	{
		"nothing-to-judge", "jobs that never started or hold no GPU have no verdict",
		func(w *writer) {
			w.racks(1, 1)
			for _, p := range []*event.Placement{
				w.record(run{job: "1"}, event.State_PENDING, 0),
				w.record(run{job: "1"}, event.State_CANCELLED, minute),
			} {
				p.StartMs, p.Gpus = nil, nil
				p.RequestedGpus, p.RequestedNodes = ptr(uint32(16)), ptr(uint32(4))
				w.add(p)
			}
			w.tell(run{job: "2", from: 0, to: minute, holds: []hold{{"r1-n01", 0}}})
		},
	},
	{
		"cause-timing", "no rack had room, but one would have within minutes",
		func(w *writer) {
			w.racks(2, 1)
			w.fill("r1", 1, 16, -hour, 5*minute, hour+5*minute)
			w.fill("r2", 1, 16, -hour, 5*minute, 0)
			w.tell(run{job: "1", from: 0, to: minute, holds: whole(trays("r1", 17, 18), trays("r2", 17, 18))})
			w.expect("1", spill(causeTiming, 1, 8, 8))
		},
	},
	{
		"cause-repack", "no rack had room nor would have soon, but the GPUs were there in total",
		func(w *writer) {
			w.racks(2, 1)
			w.fill("r1", 1, 16, -hour, 5*minute, 0)
			w.fill("r2", 1, 16, -hour, 5*minute, 0)
			w.tell(run{job: "1", from: 0, to: minute, holds: whole(trays("r1", 17, 18), trays("r2", 17, 18))})
			w.expect("1", spill(causeRepack, 1, 8, 8))
		},
	},
	{
		"cause-capacity", "not even the whole cluster had enough usable GPUs: the job also got draining nodes",
		func(w *writer) {
			w.racks(2, 1)
			w.fill("r1", 1, 16, -hour, 5*minute, 0)
			w.fill("r2", 1, 16, -hour, 5*minute, 0)
			w.capacity("r1-n18", -minute, gpusPerTray, false)
			w.capacity("r2-n18", -minute, gpusPerTray, false)
			w.tell(run{job: "1", from: 0, to: minute, holds: whole(trays("r1", 17, 18), trays("r2", 17, 18))})
			w.expect("1", spill(causeCapacity, 1, 8, 8))
		},
	},
}

// oneSpill is a job of eight GPUs over two racks: the simplest spill, for cases about the order of records.
func oneSpill(w *writer) {
	w.racks(2, 1)
	w.tell(run{job: "1", from: 0, to: minute, holds: whole(trays("r1", 1, 1), trays("r2", 1, 1))})
	w.expect("1", spill(causePolicy, 1, 4, 4))
}

// segment asks that every n nodes share a rack.
func segment(n uint32) func(*event.Placement) {
	return func(p *event.Placement) { p.Intent = &event.Intent{SegmentNodes: ptr(n)} }
}
