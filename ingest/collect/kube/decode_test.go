package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// TestTopologyAssignments: both versions of Kueue's API, against vectors that another program made.
func TestTopologyAssignments(t *testing.T) {
	var cases []struct {
		Name string
		In   topologyAssignment
		Want [][2]json.RawMessage
	}
	if err := json.Unmarshal(recorded(t, "topologyassignment-cases.json"), &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			got, err := c.In.decode()
			if err != nil {
				t.Fatal(err)
			}
			var want []assigned
			for _, w := range c.Want {
				var a assigned
				if err := errors.Join(json.Unmarshal(w[0], &a.values), json.Unmarshal(w[1], &a.pods)); err != nil {
					t.Fatal(err)
				}
				want = append(want, a)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(assigned{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	for name, text := range map[string]string{
		"fewer roots than domains":   `{"levels":["a"],"slices":[{"domainCount":2,"valuesPerLevel":[{"individual":{"roots":["x"]}}],"podCounts":{"universal":1}}]}`,
		"no count of pods":           `{"levels":["a"],"slices":[{"domainCount":1,"valuesPerLevel":[{"universal":"x"}],"podCounts":{}}]}`,
		"a level without values":     `{"levels":["a","b"],"slices":[{"domainCount":1,"valuesPerLevel":[{"universal":"x"}],"podCounts":{"universal":1}}]}`,
		"more domains than there is": `{"levels":["a"],"slices":[{"domainCount":2000000000,"valuesPerLevel":[{"universal":"x"}],"podCounts":{"universal":1}}]}`,
		"fewer than none":            `{"levels":["a"],"slices":[{"domainCount":-1,"valuesPerLevel":[{"universal":"x"}],"podCounts":{"universal":1}}]}`,
		"v1beta1 with other levels":  `{"levels":["a","b"],"domains":[{"values":["x"],"count":1}]}`,
	} {
		var a topologyAssignment
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		if got, err := a.decode(); err == nil {
			t.Errorf("%s: taken as %v", name, got)
		}
	}
}

// TestBothVersionsOfAWorkload: v1beta1 lists nodes one by one, v1beta2 packs them.
func TestBothVersionsOfAWorkload(t *testing.T) {
	cfg := testConfig()
	d := newDecoder(&cfg)
	for _, name := range []string{"workload-v1beta1.json", "workload-check-retry.json"} {
		o, err := d.read(kindWorkloads, recorded(t, name))
		if err != nil {
			t.Fatal(err)
		}
		w := o.workload
		if len(w.hosts) != 17 || w.hosts[0] != "gb200-a-17" || w.hosts[16] != "gb200-b-16" || *w.gpus() != 68 || w.queue != "gpu-lq" || w.clusterQueue != "gpu-cq" {
			t.Errorf("%s: %+v", name, w)
		}
	}
	o, err := d.read(kindWorkloads, recorded(t, "workload-check-retry.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := "UnsatisfiedAdmissionChecks: The workload has not all checks ready; spillway-placement: Retry: placement spans 2 NVLink domains (16 + 1 nodes); a single domain with 17 free nodes is expected in about 1800 s"
	if got := o.workload.reason(); got != want {
		t.Errorf("it waits for %q, want %q", got, want)
	}
}

func TestCliques(t *testing.T) {
	var cases []struct{ Label, Domain, Clique, State string }
	if err := json.Unmarshal(recorded(t, "gpu-clique-cases.json"), &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		domain, partition, ok := splitClique(c.Label)
		switch c.State {
		case "member":
			if !ok || domain != c.Domain || partition != c.Domain+"."+c.Clique {
				t.Errorf("%q is %q, %q, %v", c.Label, domain, partition, ok)
			}
		case "no-fabric": // a domain of its own, which the zero UUID says to whoever reads it
			if !ok || partition != "" {
				t.Errorf("%q is %q, %q, %v", c.Label, domain, partition, ok)
			}
		default:
			if ok {
				t.Errorf("%q is %q, %q", c.Label, domain, partition)
			}
		}
	}
	if _, partition, ok := splitClique("rack.7.3"); !ok || partition != "rack.7.3" {
		t.Error("a domain may have dots: the last one separates")
	}
}

func TestRequests(t *testing.T) {
	for name, c := range map[string]struct {
		spec  string
		gpus  uint32
		parts bool
	}{
		"no GPUs":                              {`{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}`, 0, false},
		"containers add up":                    {`{"containers":[{"resources":{"requests":{"nvidia.com/gpu":"2"}}},{"resources":{"requests":{"nvidia.com/gpu":"1"}}}]}`, 3, false},
		"a limit alone is a request":           {`{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"2"}}}]}`, 2, false},
		"request and limit are the same":       {`{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"2"},"requests":{"nvidia.com/gpu":"2"}}}]}`, 2, false},
		"what runs before does not add up":     {`{"initContainers":[{"resources":{"limits":{"nvidia.com/gpu":"4"}}}],"containers":[{"resources":{"limits":{"nvidia.com/gpu":"2"}}}]}`, 4, false},
		"a sidecar runs besides":               {`{"initContainers":[{"restartPolicy":"Always","resources":{"limits":{"nvidia.com/gpu":"1"}}}],"containers":[{"resources":{"limits":{"nvidia.com/gpu":"2"}}}]}`, 3, false},
		"a sidecar runs besides what is after": {`{"initContainers":[{"restartPolicy":"Always","resources":{"limits":{"nvidia.com/gpu":"1"}}},{"resources":{"limits":{"nvidia.com/gpu":"4"}}}],"containers":[]}`, 5, false},
		"a number":                             {`{"containers":[{"resources":{"limits":{"nvidia.com/gpu":2}}}]}`, 2, false},
		"MIG":                                  {`{"containers":[{"resources":{"limits":{"nvidia.com/mig-1g.12gb":"2"}}}]}`, 0, true},
		"none of MIG":                          {`{"containers":[{"resources":{"limits":{"nvidia.com/mig-1g.12gb":"0"}}}]}`, 0, false},
		"a shared GPU":                         {`{"containers":[{"resources":{"limits":{"nvidia.com/gpu.shared":"1"}}}]}`, 0, true},
		"a quantity that counts nothing whole": {`{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"500m"}}}]}`, 0, true},
	} {
		cfg := testConfig()
		d := newDecoder(&cfg)
		o, err := d.read(kindPods, []byte(`{"metadata":{"name":"p"},"spec":`+c.spec+`}`))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if o.pod.gpus != c.gpus || o.pod.parts != c.parts {
			t.Errorf("%s: %+v", name, o.pod.request)
		}
	}
}

// TestAnObjectThatCannotBeReadCostsItselfAlone: all others of its list are read, and it is not missing.
func TestAnObjectThatCannotBeReadCostsItselfAlone(t *testing.T) {
	cfg := testConfig()
	d := newDecoder(&cfg)
	text := `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[
		{"metadata":{"name":"a"},"status":{"capacity":{"nvidia.com/gpu":"4"}}},
		{"metadata":{"name":"b","uid":"u"},"spec":{"unschedulable":"perhaps"}},
		{"metadata":{"uid":"nameless"}},
		{"metadata":{"name":"c"},"status":{"capacity":{"nvidia.com/gpu":"4"}}}]}`
	got := map[string]bool{}
	if _, err := d.readList(kindNodes, bytes.NewReader([]byte(text)), func(o *object, err error) {
		if err != nil && !errors.Is(err, errUnreadable) {
			t.Error(err)
		}
		got[o.Name] = err == nil
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": false, "": false, "c": true}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestEveryPrefixOfAListIsRefused: half an answer is none, wherever it was cut.
func TestEveryPrefixOfAListIsRefused(t *testing.T) {
	cfg := testConfig()
	d := newDecoder(&cfg)
	for _, k := range []kind{kindNodes, kindPods, kindWorkloads, kindClaims, kindSlices, kindDomains, kindCliques} {
		whole := bytes.TrimSpace(recorded(t, "s1-"+string(k)+".json.gz"))
		if _, err := d.readList(k, bytes.NewReader(whole), func(_ *object, bad error) {
			if bad != nil {
				t.Error(bad)
			}
		}); err != nil {
			t.Fatalf("%s: %v", k, err)
		}
		step := 1 + len(whole)/400
		for i := 0; i < len(whole); i += step {
			b := whole[:i:i]
			if _, err := d.readList(k, bytes.NewReader(b), func(*object, error) {}); err == nil {
				t.Fatalf("%s: the first %d of %d bytes were taken", k, i, len(whole))
			}
		}
	}
}

// TestEveryPrefixOfAnEventIsRefused: and the end between two events is no failure.
func TestEveryPrefixOfAnEventIsRefused(t *testing.T) {
	cfg := testConfig()
	d := newDecoder(&cfg)
	event, _, _ := bytes.Cut(recorded(t, "watch-workloads.ndjson.gz"), []byte("\n"))
	read := func(b []byte) (change, error) {
		return d.readChange(kindWorkloads, jsontext.NewDecoder(bytes.NewReader(b), d.opts))
	}
	if c, err := read(event); err != nil || c.kind != "ADDED" || c.object.workload == nil || c.bad != nil {
		t.Fatalf("%+v, %v", c, err)
	}
	for i := 1; i < len(event); i++ {
		if _, err := read(event[:i:i]); err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("the first %d of %d bytes: %v", i, len(event), err)
		}
	}
	for _, b := range []string{"", "\n", "  \n"} {
		if _, err := read([]byte(b)); !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", b, err)
		}
	}
	for name, want := range map[string]int32{"410-watch.ndjson": 410, "error-watchlist-etcd34.ndjson": 500} {
		c, err := read(recorded(t, name))
		if err != nil || c.status == nil || c.status.Code != want {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	cfg := testConfig()
	d := newDecoder(&cfg)
	all := []kind{kindNodes, kindPods, kindWorkloads, kindClaims, kindSlices, kindDomains, kindCliques}
	for i, k := range all {
		var doc struct{ Items []json.RawMessage }
		if err := json.Unmarshal(recorded(f, "s2-"+string(k)+".json.gz"), &doc); err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), []byte(doc.Items[0]))
	}
	f.Add(byte(2), recorded(f, "workload-v1beta1.json"))
	f.Fuzz(func(t *testing.T, which byte, raw []byte) {
		k := all[int(which)%len(all)]
		o, err := d.read(k, raw)
		if o == nil && err == nil || err == nil && o.Name == "" {
			t.Fatalf("%+v, %v", o, err)
		}
		// Whatever was read can be told, or is refused by the contract; it breaks nothing.
		m := newModel(&cfg, nothing(), func(string, int) {})
		if o != nil {
			o.bad = err
			m.put(k, o, at(0))
			b := m.propose(at(0))
			b.commit()
			m.remove(k, o, at(0), at(1))
			b = m.propose(at(1))
			for _, r := range b.records {
				if err := r.Validate(); err != nil {
					t.Fatal(err)
				}
			}
			b.commit()
		}
	})
}

func FuzzStreams(f *testing.F) {
	cfg := testConfig()
	d := newDecoder(&cfg)
	f.Add(recorded(f, "410-watch.ndjson"))
	f.Add(recorded(f, "429-body.json"))
	f.Add([]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"p"}}]}`))
	f.Add([]byte(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2","annotations":{"k8s.io/initial-events-end":"true"}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = d.readList(kindPods, bytes.NewReader(raw), func(*object, error) {})
		in := jsontext.NewDecoder(bytes.NewReader(raw), d.opts)
		for range 100 {
			if _, err := d.readChange(kindPods, in); err != nil {
				break
			}
		}
		_, _, _ = recognize(bytes.NewReader(raw))
	})
}
