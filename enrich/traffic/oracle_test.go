package traffic

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTrafficEqualsTheOracle compares job_traffic with a sum over all scrapes, for random placements, shared nodes, scrapes
// that are missing or come twice, and counters that begin anew. The oracle knows nothing of minutes.
func TestTrafficEqualsTheOracle(t *testing.T) {
	type scrape struct {
		at time.Time
		tx int64
	}
	type held struct {
		job      string
		from, to time.Time
		node     string
		gpus     []int
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			s := newStore(t)
			const nodes, length = 3, 25 * time.Minute
			var rows []string
			told := map[string][][]scrape{} // by node, of each GPU
			for n := range nodes {
				node := fmt.Sprint("n", n)
				told[node] = make([][]scrape, 4)
				for g := range 4 {
					tx := int64(rng.IntN(1000)) << 20
					for at := caseStart; at.Before(caseStart.Add(length)); at = at.Add(time.Duration(5000+rng.IntN(10_000)) * time.Millisecond) {
						switch rng.IntN(40) {
						case 0:
							at = at.Add(time.Duration(rng.IntN(200)) * time.Second) // nobody scraped for a while
						case 1:
							tx = 0 // a reset
						}
						tx += int64(rng.IntN(5000)) << 20
						told[node][g] = append(told[node][g], scrape{at, tx})
						for range 1 + rng.IntN(10)/9 {
							rows = append(rows, fmt.Sprintf("'2026-11-29 12:00:00', 'east', '%s', 'dcgm', '%s', 'gpu', %d, %d, %d)", node, stamp(at), g, tx, tx))
						}
					}
				}
			}
			rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			for i := range rows {
				rows[i] = fmt.Sprintf("(0, %d, %s", i, rows[i])
			}
			var placed []held
			for n := range nodes {
				for _, gpus := range [][]int{{0, 1}, {2, 3}} {
					for at := caseStart.Add(-time.Minute); at.Before(caseStart.Add(length)); {
						to := at.Add(time.Duration(rng.IntN(400_000)) * time.Millisecond)
						placed = append(placed, held{fmt.Sprint(len(placed) + 1), at, to, fmt.Sprint("n", n), gpus})
						at = to.Add(time.Duration(rng.IntN(2)*rng.IntN(60_000)) * time.Millisecond)
					}
				}
			}
			tell := func(p []held) {
				for _, h := range p {
					s.exec(t, `INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, version)
						VALUES ('east', '%s', 'r0', 0, '%s', '%s', ['%s'], [2], [[%d, %d]], 2, %d)`, h.job, stamp(h.from), stamp(h.to), h.node, h.gpus[0], h.gpus[1], s.version)
				}
				s.apply(t, "judged")
			}
			// In pieces, by passes in between, some of which remember nothing.
			half := len(placed) / 2
			for i, part := range slices.Collect(slices.Chunk(rows, len(rows)/4+1)) {
				s.exec(t, "INSERT INTO counters (kafka_partition, kafka_offset, loaded_at, cluster, node, source, observed_at, entity, gpu, tx_bytes, rx_bytes) VALUES %s", strings.Join(part, ","))
				switch i {
				case 1:
					tell(placed[:half])
				case 2:
					s.renew(t)
					tell(placed[half:])
				}
				s.once(t)
			}

			want := map[string][2]float64{}
			for _, h := range placed {
				sum := want[h.job]
				for _, g := range h.gpus {
					for i, now := range told[h.node][g] {
						if i == 0 {
							continue
						}
						before := told[h.node][g][i-1]
						gap := now.at.Sub(before.at).Seconds()
						if before.at.Before(h.from) || now.at.After(h.to) || gap > 120 || now.tx < before.tx {
							continue
						}
						sum[0] += 2 * float64(now.tx-before.tx)
						sum[1] += gap
					}
				}
				want[h.job] = sum
			}
			got := map[string][2]float64{}
			rowsOf, err := s.Query(context.Background(), "SELECT job_id, ifNull(sum(nvlink_bytes), 0), sum(nvlink_gpu_seconds) FROM job_traffic FINAL GROUP BY job_id")
			if err != nil {
				t.Fatal(err)
			}
			defer rowsOf.Close()
			for rowsOf.Next() {
				var job string
				var v [2]float64
				if err := rowsOf.Scan(&job, &v[0], &v[1]); err != nil {
					t.Fatal(err)
				}
				got[job] = v
			}
			moved := 0
			for job, w := range want {
				g := got[job]
				if math.Abs(g[0]-w[0]) > 1 || math.Abs(g[1]-w[1]) > .05 {
					t.Errorf("job %s moved %v, want %v", job, g, w)
				}
				if w[0] > 0 {
					moved++
				}
			}
			if moved < 10 {
				t.Fatalf("only %d jobs moved anything: the case tells nothing", moved)
			}
		})
	}
}
