package topology

import "io"

// ParseYAML reads Slurm's topology.yaml (topology.yaml(5), 25.05 and later) and what `scontrol show topoconf` prints of
// it: a list of topologies, each block, tree, flat, ring or torus3d.
func ParseYAML(r io.Reader, name string) (*Map, error) {
	d := &document{name: name, format: FormatYAML}
	text, err := d.readAll(r)
	if err != nil {
		return nil, err
	}
	topologies, err := d.slurmYAML(text)
	if err != nil {
		return nil, err
	}
	return d.result(topologies), nil
}

func (d *document) slurmYAML(text string) ([]Topology, error) {
	root, err := d.yaml(text)
	if err != nil {
		return nil, err
	}
	list, err := root.items()
	if err != nil {
		return nil, err
	}
	var out []Topology
	lines := map[string]int{}
	defaultName := ""
	for _, item := range list {
		t, err := d.slurmTopology(item)
		if err != nil {
			return nil, err
		}
		if before, ok := lines[t.Name]; ok {
			return nil, item.errf("topology %s is already defined on line %d; give each topology one name", t.Name, before)
		}
		lines[t.Name] = item.line
		if t.Kind == "" {
			d.issuef(item.line, "topology %s says nothing; where Slurm uses topology.conf, read that file or `scontrol show topology`", t.Name)
			continue
		}
		if t.Default && defaultName != "" {
			d.issuef(item.line, "topology %s is a second cluster_default; Slurm takes the first, %s", t.Name, defaultName)
			t.Default = false
		} else if t.Default {
			defaultName = t.Name
		}
		out = append(out, t)
	}
	return out, nil
}

func (d *document) slurmTopology(v value) (Topology, error) {
	var t Topology
	fields, err := v.fields()
	if err != nil {
		return t, err
	}
	for _, f := range fields {
		kind := Kind(f.key)
		switch f.key {
		case "topology":
			t.Name, err = f.text()
		case "cluster_default":
			t.Default, err = f.boolean()
		case "block", "tree", "flat", "ring", "torus3d":
			if f.empty() {
				continue
			}
			if t.Kind != "" {
				return t, f.errf("the topology is of kind %s already; a topology has one kind", t.Kind)
			}
			t.Kind = kind
			switch kind {
			case KindBlock:
				t.Nodes, t.Sizes, err = d.yamlBlocks(f.value)
			case KindTree:
				t.Nodes, err = d.yamlTree(f.value)
			case KindRing:
				t.Nodes, err = d.yamlRings(f.value)
			case KindTorus3D:
				t.Nodes, err = d.yamlToruses(f.value)
			}
		default:
			d.issuef(f.line, "%s is not known here and was skipped", f.path)
		}
		if err != nil {
			return t, err
		}
	}
	if t.Name == "" {
		return t, v.errf("the topology has no name; begin it with \"topology: NAME\"")
	}
	return t, nil
}

// record reads a mapping of single values. Keys of skip are known and of no interest here; others are issues.
func (d *document) record(v value, into map[string]*string, skip ...string) error {
	fields, err := v.fields()
	if err != nil {
		return err
	}
next:
	for _, f := range fields {
		if to, ok := into[f.key]; ok {
			if *to, err = f.text(); err != nil {
				return err
			}
			continue
		}
		for _, s := range skip {
			if f.key == s {
				continue next
			}
		}
		d.issuef(f.line, "%s is not known here and was skipped", f.path)
	}
	return nil
}

// list calls each for the entries of the one list that a mapping holds under key.
func (d *document) list(v value, key string, each func(value) error) error {
	fields, err := v.fields()
	if err != nil {
		return err
	}
	for _, f := range fields {
		if f.key != key {
			if f.key != "block_sizes" {
				d.issuef(f.line, "%s is not known here and was skipped", f.path)
			}
			continue
		}
		items, err := f.items()
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := each(item); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *document) yamlBlocks(v value) ([]Node, []int, error) {
	var blocks []group
	err := d.list(v, "blocks", func(item value) error {
		b := group{line: item.line}
		err := d.record(item, map[string]*string{"block": &b.name, "nodes": &b.nodes})
		blocks = append(blocks, b)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	var sizes []int
	line := v.line
	fields, err := v.fields()
	if err != nil {
		return nil, nil, err
	}
	for _, f := range fields {
		if f.key != "block_sizes" {
			continue
		}
		items, err := f.items()
		if err != nil {
			return nil, nil, err
		}
		for _, item := range items {
			n, err := item.integer()
			if err != nil {
				return nil, nil, err
			}
			sizes, line = append(sizes, n), f.line
		}
	}
	nodes, err := d.blocks(blocks, sizes, line)
	return nodes, sizes, err
}

func (d *document) yamlTree(v value) ([]Node, error) {
	var switches []switchDef
	err := d.list(v, "switches", func(item value) error {
		s := switchDef{line: item.line}
		if err := d.record(item, map[string]*string{"switch": &s.name, "nodes": &s.nodes, "children": &s.children}, "link_speed"); err != nil {
			return err
		}
		if s.nodes != "" && s.children != "" {
			d.issuef(s.line, "switch %s has both children and nodes; its children are ignored, as Slurm does", s.name)
			s.children = ""
		}
		switches = append(switches, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d.tree(switches)
}

func (d *document) yamlRings(v value) ([]Node, error) {
	var rings []group
	err := d.list(v, "rings", func(item value) error {
		g := group{line: item.line}
		err := d.record(item, map[string]*string{"ring": &g.name, "nodes": &g.nodes})
		rings = append(rings, g)
		return err
	})
	if err != nil {
		return nil, err
	}
	nodes, _, err := d.groups("ring", levelRing, rings)
	return nodes, err
}

// yamlToruses reads the tori of torus3d. Where their nodes are given by regions, all regions of one torus count.
func (d *document) yamlToruses(v value) ([]Node, error) {
	var tori []group
	err := d.list(v, "toruses", func(item value) error {
		g := group{line: item.line}
		if err := d.record(item, map[string]*string{"name": &g.name, "nodes": &g.nodes}, "dims", "placements", "regions"); err != nil {
			return err
		}
		fields, err := item.fields()
		if err != nil {
			return err
		}
		for _, f := range fields {
			if f.key != "regions" {
				continue
			}
			regions, err := f.items()
			if err != nil {
				return err
			}
			for _, region := range regions {
				var nodes string
				if err := d.record(region, map[string]*string{"nodes": &nodes}, "dims", "anchor"); err != nil {
					return err
				}
				g.nodes += "," + nodes
			}
		}
		tori = append(tori, g)
		return nil
	})
	if err != nil {
		return nil, err
	}
	nodes, _, err := d.groups("torus", levelTorus, tori)
	return nodes, err
}
