package topology

import (
	"encoding/csv"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// ParseCSV reads a hand-kept table: a header with the column node and one column for each level (domain, partition,
// rack, leaf, spine, or a name of the site's own), then a row for each node or hostlist of nodes. An empty cell is
// unknown. "#" begins a comment line; comma, semicolon or tab separate, as the header does.
func ParseCSV(r io.Reader, name string) (*Map, error) {
	d := &document{name: name, format: FormatCSV}
	text, err := d.readAll(r)
	if err != nil {
		return nil, err
	}
	table := csv.NewReader(strings.NewReader(text))
	table.Comment = '#'
	table.TrimLeadingSpace = true
	table.FieldsPerRecord = -1 // row has the better message
	table.Comma = separator(text)
	var s static
	s.document = d
	for {
		cells, err := table.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			var bad *csv.ParseError
			if errors.As(err, &bad) {
				return nil, d.errf(bad.Line, "column %d: %w; put a cell that holds the separator in quotes", bad.Column, bad.Err)
			}
			return nil, d.errf(0, "%w", err)
		}
		line, _ := table.FieldPos(0)
		if s.columns == nil {
			err = s.header(line, cells)
		} else {
			err = s.row(line, cells)
		}
		if err != nil {
			return nil, err
		}
	}
	if s.columns == nil {
		return nil, d.errf(0, "empty; expected a header such as node,domain,rack")
	}
	return d.result([]Topology{{Name: event.SourceStatic, Kind: KindLabels, Nodes: s.nodes}}), nil
}

// separator is what the first line that is no comment separates its cells by.
func separator(text string) rune {
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		for _, c := range ",;\t" {
			if strings.ContainsRune(line, c) {
				return c
			}
		}
		break
	}
	return ','
}

// ParseStatic reads the same as [ParseCSV] in YAML:
//
//	topology: rooms            # a name; may be left out
//	nodes:
//	  - node: gb-r01-n[01-18]  # hostlist
//	    domain: rack01
//	    leaf: leaf1
func ParseStatic(r io.Reader, name string) (*Map, error) {
	d := &document{name: name, format: FormatStatic}
	text, err := d.readAll(r)
	if err != nil {
		return nil, err
	}
	root, err := d.yaml(text)
	if err != nil {
		return nil, err
	}
	fields, err := root.fields()
	if err != nil {
		return nil, err
	}
	s := static{document: d}
	t := Topology{Name: event.SourceStatic, Kind: KindLabels}
	for _, f := range fields {
		switch f.key {
		case "topology":
			if t.Name, err = f.text(); err != nil {
				return nil, err
			}
		case "nodes":
			items, err := f.items()
			if err != nil {
				return nil, err
			}
			for _, item := range items {
				if err := s.item(item); err != nil {
					return nil, err
				}
			}
		default:
			return nil, f.errf("not known here; expected topology or nodes")
		}
	}
	t.Nodes = s.nodes
	return d.result([]Topology{t}), nil
}

// static collects hand-written nodes.
type static struct {
	*document
	columns []string // levels by column; "" is the node's own
	nodes   []Node
	lines   map[string]int // node to the line that placed it
}

func (s *static) header(line int, cells []string) error {
	named := false
	for _, c := range cells {
		level := strings.ToLower(strings.TrimSpace(c))
		if level == "node" || level == "nodes" {
			named, level = true, ""
		} else if err := s.level(line, level); err != nil {
			return err
		}
		if slices.Contains(s.columns, level) {
			return s.errf(line, "column %s is there twice", c)
		}
		s.columns = append(s.columns, level)
	}
	if !named {
		return s.errf(line, "no column node in the header %q; expected a header such as node,domain,rack", clip(strings.Join(cells, ",")))
	}
	if len(cells) < 2 {
		return s.errf(line, "no column but node; add one for each level, such as domain")
	}
	return nil
}

func (s *static) row(line int, cells []string) error {
	if len(cells) != len(s.columns) {
		return s.errf(line, "%d cells, the header has %d columns; put a cell that holds the separator in quotes", len(cells), len(s.columns))
	}
	var nodes string
	var levels []Level
	for i, c := range cells {
		c = strings.TrimSpace(c)
		if s.columns[i] == "" {
			nodes = c
		} else if c != "" {
			levels = append(levels, Level{s.columns[i], c})
		}
	}
	return s.add(line, nodes, levels)
}

func (s *static) item(v value) error {
	fields, err := v.fields()
	if err != nil {
		return err
	}
	var nodes string
	var levels []Level
	for _, f := range fields {
		text, err := f.text()
		if err != nil {
			return err
		}
		if f.key == "node" || f.key == "nodes" {
			nodes = text
			continue
		}
		if err := s.level(f.line, f.key); err != nil {
			return err
		}
		if text != "" {
			levels = append(levels, Level{f.key, text})
		}
	}
	return s.add(v.line, nodes, levels)
}

func (s *static) add(line int, expr string, levels []Level) error {
	if expr == "" {
		return s.errf(line, "no node; name one, or a hostlist of them")
	}
	names, err := s.expand(line, "node", expr)
	if err != nil {
		return err
	}
	if s.lines == nil {
		s.lines = map[string]int{}
	}
	at := func(level string) int {
		return slices.IndexFunc(levels, func(l Level) bool { return l.Level == level })
	}
	if p := at(event.LevelPartition); p >= 0 && isNumber(levels[p].Value) {
		dom := at(event.LevelDomain)
		if dom < 0 {
			return s.errf(line, "partition %s without a domain; a clique's number repeats in every domain, so give both", levels[p].Value)
		}
		levels[p].Value = partitionName(levels[dom].Value, levels[p].Value)
	}
	sortLevels(levels)
	for _, n := range names {
		if before, ok := s.lines[n]; ok {
			return s.errf(line, "node %s is placed on line %d already; a node has one place", n, before)
		}
		s.lines[n] = line
		s.nodes = append(s.nodes, Node{Name: n, Levels: slices.Clone(levels)})
	}
	return nil
}

var levelName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// level checks the name of a level. A site may have levels of its own, but a slip in a known one would lose it silently.
func (s *static) level(line int, name string) error {
	if slices.Contains(knownLevels, name) {
		return nil
	}
	if !levelName.MatchString(name) {
		return s.errf(line, "level %q: a level's name has lower-case letters, digits and underscores only", clip(name))
	}
	for _, known := range knownLevels {
		if slips := distance(name, known); slips == 1 || slips == 2 && len(known) > 5 {
			return s.errf(line, "level %s is not known; did you mean %s?", name, known)
		}
	}
	return nil
}

// distance is how many letters must be changed, added or dropped to make a of b.
func distance(a, b string) int {
	if len(a) > 2*len(b)+2 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
