package topology

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxNesting is how deep brackets and list dashes of a YAML document may nest. Topologies nest five deep; the reader's
// time grows with the square of the depth.
const maxNesting = 500

// value is one YAML value with its place, for messages that a person can act on.
type value struct {
	d    *document
	node ast.Node
	path string // [0].block.blocks[3].nodes; "" is the document
	line int
}

// yaml reads one YAML document. A document without content is a value for which empty is true.
func (d *document) yaml(text string) (value, error) {
	root := value{d: d, line: d.offset + 1}
	if line := tooDeep(text); line > 0 {
		return root, d.errf(d.offset+line, "nests more than %d deep; a topology does not", maxNesting)
	}
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil {
			return root, d.errf(d.offset+at.GetToken().Position.Line, "not YAML: %s", at.GetMessage())
		}
		return root, d.errf(0, "not YAML: %w", err)
	}
	for _, doc := range file.Docs {
		switch doc.Body.(type) {
		case nil, *ast.DirectiveNode, *ast.CommentGroupNode:
			continue
		}
		if root.node != nil {
			return root, d.errf(d.offset+doc.Body.GetToken().Position.Line, "a second YAML document begins here; give one file a document")
		}
		root = root.at(doc.Body, root.path)
	}
	return root, nil
}

// tooDeep returns the first line at which a document nests too deep, or 0. It counts generously: brackets in strings
// count too, but close again.
func tooDeep(text string) int {
	depth, n := 0, 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		for rest, dashes := strings.TrimLeft(line, " \t"), 0; strings.HasPrefix(rest, "- "); rest = strings.TrimLeft(rest[2:], " \t") {
			if dashes++; dashes > maxNesting {
				return n
			}
		}
		for i := range len(line) {
			switch line[i] {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(0, depth-1)
			}
			if depth > maxNesting {
				return n
			}
		}
	}
	return 0
}

func (v value) at(n ast.Node, path string) value {
	v.node, v.path = n, path
	if n != nil && n.GetToken() != nil && n.GetToken().Position != nil {
		v.line = v.d.offset + n.GetToken().Position.Line
	}
	return v
}

func (v value) errf(format string, args ...any) error {
	return v.d.errf(v.line, "%s: %w", cmp.Or(v.path, "the document"), fmt.Errorf(format, args...))
}

// empty says that nothing was written, or null, {} or false: what scontrol prints for the kinds a topology is not.
func (v value) empty() bool {
	switch n := v.node.(type) {
	case nil, *ast.NullNode:
		return true
	case *ast.MappingNode:
		return len(n.Values) == 0
	case *ast.BoolNode:
		return !n.Value
	}
	return false
}

// field is one key of a mapping.
type field struct {
	key string
	value
}

// fields gives a mapping's keys in order; none for an empty value.
func (v value) fields() ([]field, error) {
	if v.empty() {
		return nil, nil
	}
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		return nil, v.errf("is %s where key: value pairs are expected", v.what())
	}
	var out []field
	for _, e := range m.Values {
		key, err := v.at(e.Key, v.path).text()
		if err != nil {
			return nil, err
		}
		path := strings.TrimPrefix(v.path+"."+key, ".")
		child := v.at(e.Value, path)
		if child.empty() {
			child.line = v.at(e.Key, "").line
		}
		out = append(out, field{key: key, value: child})
	}
	return out, nil
}

// items gives a list's entries; none for an empty value, and the value itself where one entry was written without a dash.
func (v value) items() ([]value, error) {
	if v.empty() {
		return nil, nil
	}
	switch n := v.node.(type) {
	case *ast.SequenceNode:
		var out []value
		for i, e := range n.Values {
			out = append(out, v.at(e, fmt.Sprintf("%s[%d]", v.path, i)))
		}
		return out, nil
	case *ast.MappingNode:
		return []value{v}, nil
	}
	return nil, v.errf("is %s where a list is expected", v.what())
}

// text gives a scalar as it was written; "" for null.
func (v value) text() (string, error) {
	switch n := v.node.(type) {
	case nil, *ast.NullNode:
		return "", nil
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		// A node may be named 007: the number it would be is of no interest.
		return n.GetToken().Value, nil
	}
	return "", v.errf("is %s where one value is expected", v.what())
}

func (v value) integer() (int, error) {
	s, err := v.text()
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, v.errf("%q is not a whole number", clip(s))
	}
	return n, nil
}

// boolean accepts what Slurm's YAML reader does, in any case.
func (v value) boolean() (bool, error) {
	s, err := v.text()
	if err != nil {
		return false, err
	}
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off", "":
		return false, nil
	}
	return false, v.errf("%q is neither true nor false", clip(s))
}

func (v value) what() string {
	switch v.node.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AliasNode, *ast.AnchorNode:
		return "an anchor or alias (which are not read; write the value out)"
	case *ast.TagNode:
		return "a tagged value (which is not read; leave the tag out)"
	case ast.ScalarNode:
		return fmt.Sprintf("the single value %q", clip(v.node.GetToken().Value))
	}
	return "something else"
}
