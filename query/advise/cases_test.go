package advise

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "write what the program answers into the advice cases")

// cases reads a strategy's cases: each file of the archive is one, named by its sentence.
func cases(t *testing.T, name string) []txtar.File {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	return a.Files
}

// TestCases runs testdata/<strategy>.txtar. A case has the lines
//
//	free: 5 18 8        free nodes of each domain
//	sizes: 18 18 18     its nodes; 18 each where not given
//	blocks: 0 0 1       the wider block it is in; one for all where not given
//	partial: 1@2        optional: a node in use in domain 1 with two GPUs free
//	ask: nodes=8 mode=preferred segment=4 ...
//	want: placed 2:8    or: waits 0:5 2:3, or: no fit
func TestCases(t *testing.T) {
	for _, s := range Strategies(Options{Links: DefaultLinks(), BlockSizes: []int32{18}}) {
		for _, f := range cases(t, s.Name()) {
			t.Run(s.Name()+"/"+f.Name, func(t *testing.T) {
				v, a, want, s := parseCase(t, s, string(f.Data))
				var p Plan
				s.Place(v, a, &p)
				got := p.Outcome.String()
				for _, part := range p.Parts {
					got += fmt.Sprintf(" %d:%d", part.Domain, part.Nodes)
				}
				if got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

func parseCase(t *testing.T, s Strategy, text string) (*View, *Ask, string, Strategy) {
	t.Helper()
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			t.Fatalf("line %q has no colon", line)
		}
		lines[key] = strings.TrimSpace(value)
	}
	free, sizes, blocks := ints(t, lines["free"]), ints(t, lines["sizes"]), ints(t, lines["blocks"])
	var specs []NodeSpec
	for d := range free {
		size, block := int32(18), int32(0)
		if len(sizes) > 0 {
			size = sizes[d]
		}
		if len(blocks) > 0 {
			block = blocks[d]
		}
		for n := range size {
			specs = append(specs, NodeSpec{Name: fmt.Sprintf("%02d-%02d", d, n), Domain: fmt.Sprintf("%02d", d), GPUs: 4, Path: []string{fmt.Sprint(block)}})
		}
	}
	topo, err := NewTopology(1, []string{"block"}, specs)
	if err != nil {
		t.Fatal(err)
	}
	state := NewState(topo)
	v := state.View()
	v.Free = free
	if text := lines["partial"]; text != "" {
		d, n, _ := strings.Cut(text, "@")
		v.partial[ints(t, d)[0]*maxGPUs+ints(t, n)[0]]++
	}
	a := &Ask{Mode: Preferred, GPUsPerNode: 4, MaxWait: -1, Traffic: Traffic{Pattern: AllReduce, Share: 0.03}}
	for word := range strings.FieldsSeq(lines["ask"]) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "mode":
			a.Mode = Mode(value)
			continue
		case "pattern":
			a.Traffic.Pattern = Pattern(value)
			continue
		case "share":
			a.Traffic.Share, err = strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		n := ints(t, value)
		switch key {
		case "nodes":
			a.Nodes = n[0]
		case "shared":
			a.Nodes, a.Shared = 1, n[0]
		case "segment":
			a.Segment = n[0]
		case "max":
			a.MaxDomains = n[0]
		case "spares":
			a.Spares = n[0]
		case "waited":
			a.Waited = int64(n[0])
		case "maxwait":
			a.MaxWait = int64(n[0])
		case "duration":
			a.Duration = int64(n[0])
		case "blocks": // Slurm's block sizes
			s = SlurmBlock{Sizes: n}
		default:
			t.Fatalf("an ask has no %q", key)
		}
	}
	return &v, a, lines["want"], s
}

func ints(t *testing.T, text string) []int32 {
	t.Helper()
	var out []int32
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		n, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, int32(n))
	}
	return out
}

// scene is the cluster of an advice case.
type scene struct {
	Now     time.Time
	Sizes   []int32
	Unknown []string
	Down    []string
	Lame    []string // have lost a GPU
	Reserve map[string]string
	Holds   []struct {
		Job, Nodes, Tenant string // nodes: d0000-n00..d0000-n03, each whole
		GPUs               int32
		End, Late          int64 // seconds from Now; 0 for none
		Probe, Preemptible bool
		Priority           *int64
		PreemptibleFrom    int64 // seconds from Now; 0 for none
		Unsaved, Restart   int64
	}
	AgeS int64
	Kept map[string]int64 // by short holds of others: seconds from Now

	Tenants *Tenants
	Levels  map[string]float64 // speeds between domains
}

// snapshot builds the scene.
func (sc *scene) snapshot(t *testing.T) *Snapshot {
	t.Helper()
	topo := cluster(t, sc.Sizes, 4)
	topo.Unknown = sc.Unknown
	s := NewState(topo)
	node := func(name string) int32 {
		n, ok := topo.Node(name)
		if !ok {
			t.Fatalf("no node %q", name)
		}
		return n
	}
	for _, h := range sc.Holds {
		hold := &Hold{Key: h.Job, Job: h.Job, Tenant: h.Tenant, Start: sc.Now.Unix() - 600, Probe: h.Probe, Preemptible: h.Preemptible,
			Priority: h.Priority, Unsaved: h.Unsaved, Restart: h.Restart}
		if h.End != 0 {
			hold.End = sc.Now.Unix() + h.End
		}
		if h.PreemptibleFrom != 0 {
			hold.PreemptibleFrom = sc.Now.Unix() + h.PreemptibleFrom
		}
		if h.Late != 0 {
			hold.Late = sc.Now.Unix() + h.Late
		}
		from, to, _ := strings.Cut(h.Nodes, "..")
		if to == "" {
			to = from
		}
		for n := node(from); n <= node(to); n++ {
			gpus := h.GPUs
			if gpus == 0 {
				gpus = 4
			}
			hold.Nodes = append(hold.Nodes, Share{Node: n, GPUs: gpus})
		}
		if err := s.Hold(hold); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range sc.Down {
		s.SetUsable(node(n), 0)
	}
	for _, n := range sc.Lame {
		s.SetUsable(node(n), 3)
	}
	for n, tenant := range sc.Reserve {
		s.Reserve(node(n), tenant)
	}
	return s.Publish(sc.Now.Unix() - sc.AgeS)
}

// kept are the nodes that short holds of others keep.
func (sc *scene) kept(t *testing.T, topo *Topology) (out []Kept) {
	t.Helper()
	for name, s := range sc.Kept {
		n, ok := topo.Node(name)
		if !ok {
			t.Fatalf("no node %q", name)
		}
		out = append(out, Kept{Node: n, Until: sc.Now.Unix() + s})
	}
	slices.SortFunc(out, func(a, b Kept) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// TestAdvice runs testdata/advice/*.txtar: cluster.json and request.json in, response.json out; -update writes it.
func TestAdvice(t *testing.T) {
	files, err := filepath.Glob("testdata/advice/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string][]byte{}
			for _, f := range a.Files {
				parts[f.Name] = f.Data
			}
			var sc scene
			strict(t, parts["cluster.json"], &sc)
			var r Request
			strict(t, parts["request.json"], &r)
			c := DefaultConfig()
			if sc.Tenants != nil {
				c.Tenants = *sc.Tenants
			}
			c.Links.Levels = sc.Levels
			snap := sc.snapshot(t)
			got := string(adviceJSONAt(t, &c, snap, &r, sc.Now, sc.kept(t, snap.Topology)...))
			if *update {
				for i := range a.Files {
					if a.Files[i].Name == "response.json" {
						a.Files[i].Data = []byte(got)
					}
				}
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := gocmp.Diff(string(parts["response.json"]), got); diff != "" {
				t.Errorf("the answer differs (-want +got); -update writes it:\n%s", diff)
			}
		})
	}
}

func strict(t *testing.T, data []byte, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatal(err)
	}
}

func adviceJSON(t testing.TB, c *Config, s *Snapshot, r *Request) []byte {
	return adviceJSONAt(t, c, s, r, time.Unix(s.At, 0))
}

// adviceJSONAt is the answer, or the refusal, as JSON.
func adviceJSONAt(t testing.TB, c *Config, s *Snapshot, r *Request, now time.Time, kept ...Kept) []byte {
	t.Helper()
	age := now.Sub(time.Unix(s.At, 0))
	resp, err := c.AdviseAged(s, r, now, &age, kept)
	var answer any = resp
	if err != nil {
		var refusal *Refusal
		if !errors.As(err, &refusal) {
			t.Fatalf("the error %v is not a refusal", err)
		}
		if refusal.Remedy == "" || refusal.Detail == "" {
			t.Fatalf("the refusal %+v does not say what to do", refusal)
		}
		answer = refusal
	}
	out, err := json.MarshalIndent(answer, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(out, '\n')
}
