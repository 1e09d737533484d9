package advise

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
)

// FuzzAdvise: any request gets advice or a refusal with a remedy, the same each time, and advice names only nodes that
// are free.
func FuzzAdvise(f *testing.F) {
	for _, seed := range []string{
		`{"gpus":64,"class":"train-moe","duration_s":3600,"preempt":"plan"}`, `{"gpus":66}`, `{"gpus":128,"segment_nodes":8,"mode":"required"}`,
		`{"gpus":1}`, `{"gpus":8,"exclude_nodes":["d0000-n00"],"exclusive_domain":true}`, `{"gpus":-1}`, `{"gpus":72,"spares_per_domain":2,"max_domains":1}`,
		`{"gpus":64,"pattern":"alltoall","measured_GBps":1e308,"duration_s":9223372036854775807,"waited_s":9223372036854775807,"max_wait_s":0}`,
		`{"gpus":16777216,"segment_nodes":3}`, `{"gpus":8,"require_partition":"nvl-0003","gpu_model":"none"}`,
	} {
		f.Add([]byte(seed))
	}
	state := random(f, rand.New(rand.NewPCG(61, 62)), 10)
	snap := state.Publish(5000)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if json.Unmarshal(data, &r) != nil {
			return
		}
		c := DefaultConfig()
		one := adviceJSON(t, &c, snap, &r)
		if string(one) != string(adviceJSON(t, &c, snap, &r)) {
			t.Fatalf("two answers to %s", data)
		}
		var resp Response
		if err := json.Unmarshal(one, &resp); err != nil {
			t.Fatal(err)
		}
		for _, cand := range resp.Candidates {
			for _, name := range cand.Nodes {
				n, _ := snap.Topology.Node(name)
				left := int(snap.Usable(n) - snap.Used(n))
				if left < min(4, r.GPUs) || r.GPUs >= 4 && snap.Used(n) > 0 {
					t.Fatalf("%s: node %s is not free", data, name)
				}
			}
		}
	})
}
