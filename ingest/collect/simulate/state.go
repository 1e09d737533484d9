package simulate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/spillway-io/spillway/schemas/event"
)

// stateVersion grows when a state file of an older program can no longer be resumed.
const stateVersion = 1

const stateFile = "simulate.json"

// stateEnvelope is the state file. The sum finds any damage, so that what is inside can be trusted.
type stateEnvelope struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"` // of state
	State   json.RawMessage `json:"state"`
}

// savedState is where each simulated cluster stands, every record up to there being emitted.
type savedState struct {
	// Fleet is the configuration that shaped the clusters; with another one the fleet begins anew.
	Fleet json.RawMessage `json:"fleet"`
	// Horizon (wall milliseconds) is how far records may have been emitted after this file was written. A start after a
	// crash lives through the same time on the same clock, so what it emits again is the same.
	Horizon int64      `json:"horizon"`
	Clock   clock      `json:"clock"`
	Sims    []savedSim `json:"sims"`
}

// savedSim is one cluster; queues, pools and partitions follow from it.
type savedSim struct {
	Cluster  string        `json:"cluster"`
	Origin   int64         `json:"origin"`
	Random   []byte        `json:"random"`
	Now      int64         `json:"now"`
	Timers   []item[timer] `json:"timers"`
	TimerSeq uint64        `json:"timer_seq"`
	NextID   uint64        `json:"next_id"`
	Order    uint64        `json:"order"`
	Skip     int           `json:"skip"`
	Revision uint64        `json:"revision"`
	Jobs     []*job        `json:"jobs"`
	Down     map[int]bool  `json:"down"`
	Joining  map[int]bool  `json:"joining"`
	Since    map[int]int64 `json:"since"`
	Fabric   map[int]int64 `json:"fabric"`
}

func (s *sim) save() (savedSim, error) {
	random, err := s.pcg.MarshalBinary()
	if err != nil {
		return savedSim{}, fmt.Errorf("save random state: %w", err)
	}
	return savedSim{
		Cluster: s.cluster.Name, Origin: s.origin, Random: random, Now: s.now, Timers: s.timers.items, TimerSeq: s.timers.seq,
		NextID: s.nextID, Order: s.order, Skip: s.skip, Revision: s.revision, Jobs: s.open(),
		Down: s.down, Joining: s.joining, Since: s.since, Fabric: s.fabric,
	}, nil
}

// restore is the opposite of save, for the cluster it was saved from.
func restore(seed uint64, c Cluster, clk clock, saved savedSim) (*sim, error) {
	pcg := &rand.PCG{}
	if err := pcg.UnmarshalBinary(saved.Random); err != nil {
		return nil, fmt.Errorf("read random state of cluster %s: %w", c.Name, err)
	}
	s := &sim{
		cluster: c, clock: clk, origin: saved.Origin, pcg: pcg, now: saved.Now,
		timers: minHeap[timer]{items: saved.Timers, seq: saved.TimerSeq},
		nextID: saved.NextID, order: saved.Order, skip: saved.Skip, revision: saved.Revision,
		jobs: map[uint64]*job{}, down: orEmpty(saved.Down), joining: orEmpty(saved.Joining),
		since: orEmpty(saved.Since), fabric: orEmpty(saved.Fabric),
		out: func(event.Record) {},
	}
	s.build(seed)
	for _, j := range saved.Jobs {
		p := s.parts[j.Part]
		s.jobs[j.ID] = j
		if j.Queued {
			p.queue = insert(p.queue, j, (*job).before)
		}
		if !j.holding() {
			continue
		}
		for _, g := range j.Grants {
			if j.Probe {
				p.probes[g.Node] = j.ID
			} else {
				p.pool.set(g.Node, p.pool.free[g.Node-p.pool.first]&^g.GPUs)
			}
		}
		if !j.Probe {
			p.running = insert(p.running, j, endsFirst)
		}
	}
	for node := range s.down {
		for _, p := range s.parts {
			if p.pool.holds(node) {
				p.pool.set(node, 0)
			}
		}
	}
	return s, nil
}

// restore gives the saved clusters of a fleet.
func (st savedState) restore(seed uint64, clusters []Cluster) ([]*sim, error) {
	if len(st.Sims) != len(clusters) {
		return nil, fmt.Errorf("%d clusters are saved of %d", len(st.Sims), len(clusters))
	}
	var sims []*sim
	for i, c := range clusters {
		s, err := restore(seed, c, st.Clock, st.Sims[i])
		if err != nil {
			return nil, err
		}
		sims = append(sims, s)
	}
	return sims, nil
}

func orEmpty[V any](m map[int]V) map[int]V {
	if m == nil {
		return map[int]V{}
	}
	return m
}

// shape is the part of the configuration that a resumed fleet must share with the saved one. How fast its life passes
// may change.
func (c Config) shape() (json.RawMessage, error) {
	b, err := json.Marshal(struct {
		Seed     uint64
		Clusters []Cluster
	}{c.Seed, c.Clusters})
	if err != nil {
		return nil, fmt.Errorf("describe the fleet: %w", err)
	}
	return b, nil
}

// readState gives nil where there is no state yet.
func readState(dir string) (*savedState, error) {
	path := filepath.Join(dir, stateFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state of the simulated fleet: %w", err)
	}
	var file stateEnvelope
	var st savedState
	err = json.Unmarshal(b, &file)
	switch {
	case err == nil && file.Version != stateVersion:
		err = fmt.Errorf("it is of version %d, this program reads %d", file.Version, stateVersion)
	case err == nil && file.SHA256 != checksum(file.State):
		err = errors.New("its checksum does not match")
	case err == nil:
		err = json.Unmarshal(file.State, &st)
	}
	if err != nil {
		return nil, fmt.Errorf("read state of the simulated fleet from %s: %w (delete the file to begin a new fleet)", path, err)
	}
	return &st, nil
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// writeState replaces the state file in one step, so that a crash leaves the old or the new one.
func writeState(dir string, st savedState) error {
	b, err := json.Marshal(st)
	if err == nil {
		b, err = json.Marshal(stateEnvelope{Version: stateVersion, SHA256: checksum(b), State: b})
	}
	if err != nil {
		return fmt.Errorf("encode state of the simulated fleet: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory for the simulated fleet: %w", err)
	}
	f, err := os.CreateTemp(dir, stateFile+".*")
	if err != nil {
		return fmt.Errorf("write state of the simulated fleet: %w", err)
	}
	defer os.Remove(f.Name()) // fails after the rename, as it should
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, stateFile))
	}
	if err != nil {
		return fmt.Errorf("write state of the simulated fleet: %w", err)
	}
	return nil
}
