package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// maxListing bounds a node listing, in bytes. It is streamed: 10,000 nodes are about 40 MB.
const maxListing = 1 << 30

// ParseNodes reads the topology of each node from a node listing: `scontrol show node --json` or GET /slurm/…/nodes/ of
// slurmrestd, data_parser v0.0.43 (25.05) and later. Slurm fills nodes[].topology only for nodes with a Topology= of
// their own, so an empty map says nothing of the fleet.
//
// The field is a list of TOPOLOGY:UNIT[:UNIT…], outermost unit first. Several units are a path of switches, a unit with
// three numbers a place in a torus. A single unit may be a block or a leaf switch: which, Slurm does not say here. Such
// a topology is of kind labels with the level unit, of which nothing is emitted until [Choice] says its kind.
func ParseNodes(r io.Reader, name string) (*Map, error) {
	d := &document{name: name, format: FormatNodes}
	listing := nodeListing{document: d, paths: map[string][]nodePath{}, seen: map[string]bool{}}
	if err := listing.read(io.LimitReader(r, maxListing)); err != nil {
		return nil, err
	}
	var out []Topology
	for _, t := range listing.order {
		out = append(out, pathTopology(t, listing.paths[t]))
	}
	return d.result(out), nil
}

type nodeListing struct {
	*document
	order []string // of topologies
	paths map[string][]nodePath
	seen  map[string]bool
}

// nodePath is one node's units in one topology, outermost first.
type nodePath struct {
	node  string
	units []string
}

func (l *nodeListing) read(r io.Reader) error {
	dec := json.NewDecoder(r)
	if err := expectDelim(dec, '{'); err != nil {
		return l.errf(0, "read node listing: %w", err)
	}
	listed := false
	var problems []struct {
		Description string `json:"description"`
		Error       string `json:"error"`
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return l.errf(0, "read node listing at byte %d: %w", dec.InputOffset(), err)
		}
		switch key {
		case "nodes":
			listed = true
			err = l.nodes(dec)
		case "errors":
			err = dec.Decode(&problems)
		default:
			var skip json.RawMessage
			err = dec.Decode(&skip)
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return l.errf(0, "read %v of the node listing at byte %d: %w", key, dec.InputOffset(), err)
		}
	}
	if err := expectDelim(dec, '}'); err != nil {
		return l.errf(0, "read node listing at byte %d: %w", dec.InputOffset(), err)
	}
	if len(problems) > 0 && len(l.seen) == 0 {
		return l.errf(0, "%w: %s", errSlurm, strings.TrimSpace(problems[0].Description+" "+problems[0].Error))
	}
	if !listed {
		return l.errf(0, "no nodes in it; expected the output of `scontrol show node --json` or of slurmrestd's nodes")
	}
	return nil
}

func expectDelim(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	switch {
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("found %v where %v is expected", got, want)
	}
	return nil
}

func (l *nodeListing) nodes(dec *json.Decoder) error {
	if err := expectDelim(dec, '['); err != nil {
		return err
	}
	odd := 0
	for dec.More() {
		var n struct {
			Name     string          `json:"name"`
			Topology json.RawMessage `json:"topology"`
		}
		if err := dec.Decode(&n); err != nil {
			return err
		}
		if n.Name == "" || l.seen[n.Name] {
			odd++
			continue
		}
		if l.seen[n.Name] = true; len(l.seen) > maxNodes {
			return fmt.Errorf("more than %d nodes", maxNodes)
		}
		var topology string
		if len(n.Topology) > 0 && json.Unmarshal(n.Topology, &topology) != nil {
			odd++
			continue
		}
		if !l.add(n.Name, topology) {
			l.issuef(0, "node %s: its topology %q is not NAME:UNIT and was skipped", n.Name, clip(topology))
		}
	}
	if odd > 0 {
		l.issuef(0, "%d nodes without a name, listed twice, or with a topology that is no text were skipped", odd)
	}
	return expectDelim(dec, ']')
}

// add takes one node's topology field; false if a part of it could not be used.
func (l *nodeListing) add(node, topologies string) bool {
	ok := true
	for part := range strings.SplitSeq(topologies, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		units := strings.Split(part, ":")
		if len(units) < 2 || slices.Contains(units, "") || len(units) > maxTreeDepth {
			ok = false
			continue
		}
		name := units[0]
		if _, known := l.paths[name]; !known {
			l.order = append(l.order, name)
		}
		l.paths[name] = append(l.paths[name], nodePath{node, units[1:]})
	}
	return ok
}

// pathTopology makes one topology of its nodes' paths.
func pathTopology(name string, paths []nodePath) Topology {
	t := Topology{Name: name, Kind: KindLabels}
	torus := true
	for _, p := range paths {
		torus = torus && len(p.units) == 4 && isNumber(p.units[1]) && isNumber(p.units[2]) && isNumber(p.units[3])
		if len(p.units) > 1 {
			t.Kind = KindTree
		}
	}
	if torus {
		t.Kind = KindTorus3D
	}
	for _, p := range paths {
		n := Node{Name: p.node}
		switch t.Kind {
		case KindTorus3D:
			n.Levels = []Level{{levelTorus, p.units[0]}}
		case KindTree:
			for i, unit := range p.units {
				n.Levels = append(n.Levels, Level{switchLevel(len(p.units) - 1 - i), unit})
			}
		default:
			n.Levels = []Level{{levelUnit, p.units[0]}}
		}
		t.Nodes = append(t.Nodes, n)
	}
	return t
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// unitLevel is what a lone unit is in a topology of a kind; "" where a kind has none.
func unitLevel(k Kind) string {
	switch k {
	case KindBlock:
		return event.LevelBlock
	case KindTree:
		return event.LevelLeaf
	case KindRing:
		return levelRing
	case KindTorus3D:
		return levelTorus
	}
	return ""
}
