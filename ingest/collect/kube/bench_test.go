package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// manyOf is a list of so many objects, made of a recorded one whose name is changed.
func manyOf(b *testing.B, k kind, name string, n int) io.Reader {
	b.Helper()
	var doc struct{ Items []json.RawMessage }
	if err := json.Unmarshal(recorded(b, "s1-"+string(k)+".json.gz"), &doc); err != nil {
		b.Fatal(err)
	}
	var item string
	for _, raw := range doc.Items {
		if strings.Contains(string(raw), `"name":"`+name) {
			item = string(raw)
		}
	}
	var o struct {
		Metadata struct{ Name, UID string }
		Spec     struct{ NodeName string }
	}
	if err := json.Unmarshal([]byte(item), &o); err != nil {
		b.Fatal(err)
	}
	out, in := io.Pipe()
	go func() {
		fmt.Fprint(in, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`)
		for i := range n {
			if i > 0 {
				fmt.Fprint(in, ",")
			}
			fmt.Fprint(in, strings.NewReplacer(`"`+o.Metadata.Name+`"`, fmt.Sprintf(`"x%d"`, i), o.Metadata.UID, fmt.Sprintf("uid%d", i),
				`"nodeName":"`+o.Spec.NodeName+`"`, fmt.Sprintf(`"nodeName":"x%d"`, i)).Replace(item))
		}
		fmt.Fprint(in, `]}`)
		in.Close()
	}()
	return out
}

// BenchmarkLists reads 10,000 nodes, or pods, of a server that leaves nothing out.
func BenchmarkLists(b *testing.B) {
	for k, name := range map[kind]string{kindNodes: "gb200-a-01", kindPods: "rlhf-3"} {
		b.Run(string(k), func(b *testing.B) {
			cfg := testConfig()
			d := newDecoder(&cfg)
			whole, err := io.ReadAll(manyOf(b, k, name, 10_000))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(whole)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.readList(k, bytes.NewReader(whole), func(*object, error) {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(10_000*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}

// BenchmarkCluster is a cluster of 10,000 nodes with a job that has a pod on each: what it takes to keep, and to tell all of it.
func BenchmarkCluster(b *testing.B) {
	for b.Loop() {
		cfg := testConfig()
		d := newDecoder(&cfg)
		m := newModel(&cfg, nothing(), func(string, int) {})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		peak := uint64(0)
		for k, name := range map[kind]string{kindNodes: "gb200-a-01", kindPods: "rlhf-3"} {
			n := 0
			if _, err := d.readList(k, manyOf(b, k, name, 10_000), func(o *object, err error) {
				if err != nil {
					b.Fatal(err)
				}
				m.put(k, o, at(0))
				if n++; n%1000 == 0 {
					runtime.ReadMemStats(&after)
					peak = max(peak, after.HeapAlloc)
				}
			}); err != nil {
				b.Fatal(err)
			}
		}
		began := time.Now()
		batch := m.propose(at(0))
		batch.commit()
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/propose-all")
		b.ReportMetric(float64(len(batch.records)), "records")
		batch = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB-kept")
		b.ReportMetric(float64(peak-before.HeapAlloc)/1e6, "MB-peak")
		runtime.KeepAlive(m)
	}
}
