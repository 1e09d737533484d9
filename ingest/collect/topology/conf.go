package topology

import (
	"io"
	"slices"
	"strconv"
	"strings"
)

// DefaultName is the name Slurm gives to a topology that has none: the one of topology.conf.
const DefaultName = "default"

// ParseConf reads Slurm's topology.conf (topology.conf(5)), also as Topograph writes it: blocks, switches, rings. Keys
// are case-insensitive, "#" begins a comment, "\" at the end of a line continues it. BlockLevels of 23.11 is read as
// BlockSizes. A file with blocks and switches gives two topologies of the same name.
//
// Topograph writes the NVLink identity of a block into a comment before it, "# block001=ClusterUUID.CliqueID". Where
// every block of a file has such a comment with its own name, its value is taken for the domain.
func ParseConf(r io.Reader, name string) (*Map, error) {
	d := &document{name: name, format: FormatConf}
	text, err := d.readAll(r)
	if err != nil {
		return nil, err
	}
	c := conf{document: d, identities: map[string]string{}}
	if err := c.read(text); err != nil {
		return nil, err
	}
	return c.finish()
}

// conf collects the definitions of one topology.conf.
type conf struct {
	*document
	blocks, rings []group
	switches      []switchDef
	sizes         []int
	sizesLine     int
	identities    map[string]string // block to what the comment before it says
	comment       string            // of the line before
}

func (c *conf) read(text string) error {
	var line string
	first := 0 // line number where the current logical line began
	n := 0
	for raw := range strings.SplitSeq(text, "\n") {
		n++
		raw = strings.TrimRight(raw, "\r")
		if first == 0 {
			first = n
		}
		if more, ok := strings.CutSuffix(raw, `\`); ok {
			line += more + " "
			continue
		}
		if err := c.line(first, line+raw); err != nil {
			return err
		}
		line, first = "", 0
	}
	return c.line(first, line)
}

func (c *conf) line(n int, line string) error {
	line, comment, commented := strings.Cut(line, "#")
	if strings.TrimSpace(line) == "" {
		if commented {
			c.comment = strings.TrimSpace(comment)
		}
		return nil
	}
	before := c.comment
	c.comment = ""
	pairs, err := c.pairs(n, line)
	if err != nil {
		return err
	}
	value := func(key string) string { return pairs.take(key) }
	switch head := pairs[0]; strings.ToLower(head.key) {
	case "blockname":
		b := group{name: value("blockname"), nodes: value("nodes"), line: n}
		if id, ok := strings.CutPrefix(before, b.name+"="); ok && id != "" && !strings.ContainsAny(id, " \t") {
			c.identities[b.name] = id
		}
		c.blocks = append(c.blocks, b)
	case "switchname":
		s := switchDef{name: value("switchname"), nodes: value("nodes"), children: value("switches"), line: n}
		value("linkspeed")
		if s.nodes != "" && s.children != "" {
			return c.errf(n, "switch %s has both Nodes and Switches, which Slurm refuses; nodes belong to leaf switches", s.name)
		}
		c.switches = append(c.switches, s)
	case "ringname":
		c.rings = append(c.rings, group{name: value("ringname"), nodes: value("nodes"), line: n})
	case "blocksizes", "blocklevels":
		if c.sizesLine > 0 {
			return c.errf(n, "%s is already given on line %d; give it once", head.key, c.sizesLine)
		}
		if c.sizes, err = c.readSizes(n, head.key, value(strings.ToLower(head.key))); err != nil {
			return err
		}
		c.sizesLine = n
	case "include":
		return c.errf(n, "Include is not followed; give the included file itself")
	default:
		return c.errf(n, "%s is no key of topology.conf; expected BlockName, SwitchName, RingName or BlockSizes", head.key)
	}
	for _, p := range pairs {
		if !p.taken {
			c.issuef(n, "%s is not known here and was skipped", p.key)
		}
	}
	return nil
}

func (c *conf) readSizes(n int, key, value string) ([]int, error) {
	var sizes []int
	for s := range strings.SplitSeq(value, ",") {
		size, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil {
			return nil, c.errf(n, "%s=%s is not a list of numbers of nodes such as 18,36", key, value)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func (c *conf) finish() (*Map, error) {
	var out []Topology
	if len(c.blocks) > 0 {
		nodes, err := c.document.blocks(c.blocks, c.sizes, c.sizesLine)
		if err != nil {
			return nil, err
		}
		c.identify(nodes)
		out = append(out, Topology{Name: DefaultName, Kind: KindBlock, Default: true, Sizes: c.sizes, Nodes: nodes})
	} else if c.sizesLine > 0 {
		c.issuef(c.sizesLine, "block sizes without any block: whatever wrote this file found no NVLink domains")
	}
	if len(c.rings) > 0 {
		nodes, _, err := c.groups("ring", levelRing, c.rings)
		if err != nil {
			return nil, err
		}
		out = append(out, Topology{Name: DefaultName, Kind: KindRing, Default: true, Nodes: nodes})
	}
	if len(c.switches) > 0 {
		nodes, err := c.tree(c.switches)
		if err != nil {
			return nil, err
		}
		out = append(out, Topology{Name: DefaultName, Kind: KindTree, Default: true, Nodes: nodes})
	}
	return c.result(out), nil
}

// identify adds the domains that Topograph wrote into comments. It trusts them only where every block has one of its
// own, for a person's comments may look alike.
func (c *conf) identify(nodes []Node) {
	if len(c.identities) == 0 {
		return
	}
	seen := map[string]string{}
	for _, b := range c.blocks {
		id, ok := c.identities[b.name]
		if !ok {
			c.issuef(b.line, "block %s has no comment with its identity, others do; the comments are not used", b.name)
			return
		}
		if other, ok := seen[id]; ok {
			c.issuef(b.line, "blocks %s and %s have the same identity %s in their comments; the comments are not used", other, b.name, id)
			return
		}
		seen[id] = b.name
	}
	for i := range nodes {
		n := &nodes[i]
		block := n.Levels[len(n.Levels)-1].Value
		n.Levels = append(n.Levels, fabricLevels(n.Name, c.identities[block])...)
	}
}

// pair is one key=value of a line.
type pair struct {
	key, value string
	taken      bool
}

type pairs []pair

// take gives the value of a key, written in lower case, and marks it as known.
func (p pairs) take(key string) string {
	i := slices.IndexFunc(p, func(q pair) bool { return strings.EqualFold(q.key, key) })
	if i < 0 {
		return ""
	}
	p[i].taken = true
	return p[i].value
}

// pairs splits a line into key=value. Spaces around "=" and quotes around a value are allowed, as in Slurm.
func (d *document) pairs(n int, line string) (pairs, error) {
	var out pairs
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		end := strings.IndexAny(rest, "= \t")
		key := rest
		if end >= 0 {
			key, rest = rest[:end], strings.TrimSpace(rest[end:])
		}
		after, ok := strings.CutPrefix(rest, "=")
		if strings.EqualFold(key, "include") && !ok {
			return append(out, pair{key: key}), nil
		}
		if !ok || key == "" {
			return nil, d.errf(n, "%q is not key=value", clip(strings.TrimSpace(line)))
		}
		rest = strings.TrimLeft(after, " \t")
		var value string
		if quoted, ok := strings.CutPrefix(rest, `"`); ok {
			if value, rest, ok = strings.Cut(quoted, `"`); !ok {
				return nil, d.errf(n, "the quote of %s is never closed", key)
			}
		} else if end := strings.IndexAny(rest, " \t"); end >= 0 {
			value, rest = rest[:end], rest[end:]
		} else {
			value, rest = rest, ""
		}
		if i := slices.IndexFunc(out, func(q pair) bool { return strings.EqualFold(q.key, key) }); i >= 0 {
			return nil, d.errf(n, "%s is given twice on one line", key)
		}
		out = append(out, pair{key: key, value: value})
	}
	return out, nil
}

// clip shortens a text for an error message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
