package simulate

import (
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/spillway-io/spillway/schemas/event"
)

// What the parts of a tray can carry, in bytes per second and direction.
const (
	nvlinkSpeed = 900e9
	nicSpeed    = 50e9
)

// traffic is what the GPUs and NICs of a cluster move. It is a guess at what such jobs do, not a measurement, and it lives
// on the wall clock: a byte is moved in a second that everybody sees, whatever the speed of the fleet's life.
type traffic struct {
	since int64 // wall milliseconds, of the counters' beginning
	last  int64 // of the last record
	rng   *rand.Rand
	nodes []trayTraffic
}

// trayTraffic is the cumulative counters of one node.
type trayTraffic struct {
	tx, rx, nicTx, nicRx [gpusPerTray]float64
}

func newTraffic(seed uint64, s *sim, now int64) *traffic {
	return &traffic{
		since: now, last: now, rng: rand.New(rand.NewPCG(seed, hash64("traffic", s.cluster.Name))),
		nodes: make([]trayTraffic, len(s.fleet.name)),
	}
}

// habit is how a job moves its data: bytes per second, GPU and direction.
type habit struct{ nvlink, scaleOut, active float64 }

// habitOf follows from the job's id, so that it is the same in every record. Most jobs use the fabric they were given:
// inside one rack NVLink alone, over several racks the NICs too. One in five of those inside a rack lost its NVLink and
// went on over the NICs without a word; one in five of those that spilled does not mind, its parts hardly talk.
func (s *sim) habitOf(j *job) habit {
	racks := map[int]bool{}
	gpus := 0
	for _, g := range j.Grants {
		racks[rackOf(g.Node)] = true
		gpus += bits.OnesCount8(g.GPUs)
	}
	rng := rand.New(rand.NewPCG(s.fleet.seed, j.ID))
	odd := rng.IntN(5) == 0
	level := .2 + .4*rng.Float64()
	h := habit{nvlink: level * nvlinkSpeed, scaleOut: 2e8, active: .6 + .3*rng.Float64()}
	switch {
	case gpus == 1 || j.Class == classInference && len(j.Grants) == 1:
		h.nvlink = 1e8 // nobody to talk to
	case len(racks) == 1 && odd && len(j.Grants) > 1:
		h.nvlink, h.scaleOut = 0, .8*nicSpeed
	case len(racks) > 1 && !odd:
		h.nvlink, h.scaleOut = h.nvlink/4, (.5+.4*rng.Float64())*nicSpeed
	}
	return h
}

// tell emits the counters of every node that is up, as of now.
func (t *traffic) tell(s *sim, now int64, emit func(event.Record)) {
	seconds := float64(now-t.last) / 1000
	if seconds < 0 || seconds == 0 && now != t.since {
		return
	}
	t.last = now
	users := map[int][gpusPerTray]*job{}
	for _, p := range s.parts {
		for _, j := range p.running {
			if j.State == event.State_RUNNING {
				use(users, j)
			}
		}
		for _, id := range p.probes {
			if j := s.jobs[id]; j != nil && j.State == event.State_RUNNING {
				use(users, j)
			}
		}
	}
	habits := map[*job]habit{}
	for node, name := range s.fleet.name {
		if s.down[node] || s.fleet.broken[node] {
			continue
		}
		r := &event.Counters{Cluster: s.fleet.cluster, Node: name, Source: Source, ObservedAtMs: now, DriverVersion: "580.65.06"}
		tray := &t.nodes[node]
		for g := range gpusPerTray {
			h := habit{}
			if j := users[node][g]; j != nil {
				var ok bool
				if h, ok = habits[j]; !ok {
					h = s.habitOf(j)
					habits[j] = h
				}
			}
			t.gpu(r, tray, s, node, g, h, seconds)
		}
		emit(r)
	}
}

func use(users map[int][gpusPerTray]*job, j *job) {
	for _, g := range j.Grants {
		by := users[g.Node]
		for i := range gpusPerTray {
			if g.GPUs&(1<<i) != 0 {
				by[i] = j
			}
		}
		users[g.Node] = by
	}
}

func (t *traffic) gpu(r *event.Counters, tray *trayTraffic, s *sim, node, g int, h habit, seconds float64) {
	near := func(v, spread float64) float64 { return max(0, v*(1+spread*t.rng.NormFloat64())) }
	moved := func(total *float64, rate float64) float64 {
		*total += float64(int64(near(rate, .05) * seconds))
		return *total
	}
	r.GpuIndex = append(r.GpuIndex, uint32(g))
	r.GpuUuid = append(r.GpuUuid, "GPU-"+uuid(s.fleet.seed, s.fleet.cluster, s.fleet.name[node], fmt.Sprint(g)))
	r.GpuModel = append(r.GpuModel, "NVIDIA GB200")
	r.GpuSinceMs = append(r.GpuSinceMs, t.since)
	r.NvlinkTxBytes = append(r.NvlinkTxBytes, moved(&tray.tx[g], h.nvlink))
	r.NvlinkRxBytes = append(r.NvlinkRxBytes, moved(&tray.rx[g], h.nvlink))
	r.NvlinkErrors = append(r.NvlinkErrors, 0)
	r.SmActive = append(r.SmActive, min(1, near(h.active, .03)))
	r.TensorActive = append(r.TensorActive, min(1, near(h.active/2, .05)))
	r.Nic = append(r.Nic, fmt.Sprintf("mlx5_%d", g))
	r.NicPort = append(r.NicPort, 1)
	r.NicLinkLayer = append(r.NicLinkLayer, "InfiniBand")
	r.NicState = append(r.NicState, event.LinkState_UP)
	r.NicSinceMs = append(r.NicSinceMs, t.since)
	r.NicSpeedBytesPerSecond = append(r.NicSpeedBytesPerSecond, nicSpeed)
	r.NicTxBytes = append(r.NicTxBytes, moved(&tray.nicTx[g], h.scaleOut))
	r.NicRxBytes = append(r.NicRxBytes, moved(&tray.nicRx[g], h.scaleOut))
}
