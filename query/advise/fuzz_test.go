package advise

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"
)

// FuzzAdvise: any request gets advice or a refusal with a remedy, the same each time, and advice names as many nodes as it
// speaks of, which are free and not kept for others, in domains that the tenant may use.
func FuzzAdvise(f *testing.F) {
	for _, seed := range []string{
		`{"gpus":64,"class":"train-moe","duration_s":3600,"preempt":"plan"}`, `{"gpus":66}`, `{"gpus":128,"segment_nodes":8,"mode":"required"}`,
		`{"gpus":1}`, `{"gpus":8,"exclude_nodes":["d0000-n00"],"exclusive_domain":true}`, `{"gpus":-1}`, `{"gpus":72,"spares_per_domain":2,"max_domains":1}`,
		`{"gpus":64,"pattern":"alltoall","measured_GBps":1e308,"duration_s":9223372036854775807,"waited_s":9223372036854775807,"max_wait_s":0}`,
		`{"gpus":64,"tenant":"team-a","mode":"required"}`, `{"gpus":2,"tenant":"team-a","exclude_nodes":["d0003-n00","d0003-n00"]}`,
		`{"gpus":16777216,"segment_nodes":3}`, `{"gpus":8,"require_partition":"nvl-0003","gpu_model":"none"}`,
	} {
		f.Add([]byte(seed))
	}
	state := random(f, rand.New(rand.NewPCG(61, 62)), 10)
	snap := state.Publish(5000)
	var kept []Kept
	for n := int32(0); int(n) < len(snap.Topology.Nodes); n += 7 {
		kept = append(kept, Kept{Node: n, Until: 5000 + int64(n)})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if json.Unmarshal(data, &r) != nil {
			return
		}
		c := DefaultConfig()
		c.Tenants.Accounts = map[string]Tenant{"team-a": {May: Places{Domains: []string{"nvl-0003", "nvl-0004"}}}}
		one := adviceJSONAt(t, &c, snap, &r, time.Unix(5000, 0), kept...)
		if string(one) != string(adviceJSONAt(t, &c, snap, &r, time.Unix(5000, 0), kept...)) {
			t.Fatalf("two answers to %s", data)
		}
		var resp Response
		if err := json.Unmarshal(one, &resp); err != nil {
			t.Fatal(err)
		}
		for _, cand := range resp.Candidates {
			nodes := 0
			for _, d := range cand.Domains {
				nodes += int(d.Nodes)
				if r.Tenant == "team-a" && d.ID != "nvl-0003" && d.ID != "nvl-0004" {
					t.Fatalf("%s: domain %s is not for team-a", data, d.ID)
				}
			}
			if cand.Start == "now" && len(cand.Nodes) != nodes {
				t.Fatalf("%s: %d nodes in domains, %d named", data, nodes, len(cand.Nodes))
			}
			if cand.StartP90 != "" && cand.StartP90 < cand.Start {
				t.Fatalf("%s: start %s, by the 90th percentile %s", data, cand.Start, cand.StartP90)
			}
			for _, name := range cand.Nodes {
				n, _ := snap.Topology.Node(name)
				left := int(snap.Usable(n) - snap.Used(n))
				if n%7 == 0 && snap.Used(n) == 0 {
					t.Fatalf("%s: node %s is kept for another", data, name)
				}
				if left < min(4, r.GPUs) || r.GPUs >= 4 && snap.Used(n) > 0 {
					t.Fatalf("%s: node %s is not free", data, name)
				}
			}
		}
	})
}
