package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// read decodes the file.
func (l *loader) read(text []byte) {
	body, line, err := parse(string(text))
	if err != nil {
		l.faultf(line, "%v", err)
		return
	}
	if body != nil {
		l.decode(body, l.root, "")
	}
}

// parse gives the one document of a text, nil for an empty one, or the line that is wrong.
func parse(text string) (body ast.Node, line int, err error) {
	file, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		if at, ok := errors.AsType[yaml.Error](err); ok && at.GetToken() != nil {
			return nil, at.GetToken().Position.Line, fmt.Errorf("not YAML: %s", at.GetMessage())
		}
		return nil, 1, fmt.Errorf("not YAML: %w", err)
	}
	for _, doc := range file.Docs {
		switch doc.Body.(type) {
		case nil, *ast.CommentGroupNode, *ast.DirectiveNode:
			continue
		}
		if body != nil {
			return nil, lineOf(doc.Body), fmt.Errorf("a second document begins here; a configuration is one")
		}
		body = doc.Body
	}
	return body, 0, nil
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// decode sets v from a node. What is wrong becomes a fault; v then keeps what it had, as far as it was not set.
func (l *loader) decode(n ast.Node, v reflect.Value, path string) {
	switch n.(type) {
	case *ast.NullNode:
		return
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		l.faultf(lineOf(n), "%s: anchors, aliases and tags are not read; write the value out", label(path))
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		l.decode(n, v.Elem(), path)
		return
	}
	if v.CanAddr() {
		if u, ok := v.Addr().Interface().(unmarshaler); ok {
			l.decodeSelf(u, n, path)
			return
		}
		if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
			if s, ok := l.scalar(n, path); ok {
				if err := u.UnmarshalText([]byte(s)); err != nil {
					l.faultf(lineOf(n), "%s: %v", path, err)
				}
			}
			return
		}
	}
	switch {
	case v.Kind() == reflect.Struct:
		l.decodeBlock(n, v, path)
	case v.Kind() == reflect.Map:
		l.decodeMap(n, v, path)
	case v.Kind() == reflect.Slice:
		l.decodeList(n, v, path)
	default:
		if s, ok := l.scalar(n, path); ok {
			if err := setScalar(v, s); err != nil {
				l.faultf(lineOf(n), "%s: %v", path, err)
			}
		}
	}
}

// decodeSelf lets a value read itself, with this decoder for what it hands on.
func (l *loader) decodeSelf(u unmarshaler, n ast.Node, path string) {
	before := len(l.faults)
	err := u.UnmarshalYAML(func(to any) error {
		v := reflect.ValueOf(to)
		if v.Kind() != reflect.Pointer || v.IsNil() {
			return fmt.Errorf("decode %s into %T: not a pointer", path, to)
		}
		l.decode(n, v.Elem(), path)
		if len(l.faults) > before {
			return l.faults[before] // reported already; only ends the reading
		}
		return nil
	})
	if err != nil && len(l.faults) == before {
		l.faultf(lineOf(n), "%s: %v", path, err)
	}
}

func (l *loader) decodeBlock(n ast.Node, v reflect.Value, path string) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		l.faultf(lineOf(n), "%s: found %s where keys are expected", label(path), what(n))
		return
	}
	fields := fieldsOf(v.Type())
	for _, e := range m.Values {
		key, ok := l.scalar(e.Key, path)
		if !ok {
			continue
		}
		inner := join(path, key)
		if i := slices.IndexFunc(fields, func(f field) bool { return f.key == key }); i >= 0 {
			l.decode(e.Value, v.FieldByIndex(fields[i].index), inner)
			continue
		}
		if why, ok := l.gone[inner]; ok {
			l.note(fmt.Sprintf("%s:%d: %s does nothing any more: %s", l.file, lineOf(e.Key), inner, why))
			continue
		}
		var there []string
		for _, f := range fields {
			there = append(there, f.key)
		}
		l.faultf(lineOf(e.Key), "%s: %s", inner, hint(key, there))
	}
}

// find gives the value at a path below v; lists are not followed.
func find(v reflect.Value, path string) (reflect.Value, bool) {
	for key := range strings.SplitSeq(path, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return v, false
		}
		fields := fieldsOf(v.Type())
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
		if i < 0 {
			return v, false
		}
		v = v.FieldByIndex(fields[i].index)
	}
	return v, true
}

// decodeMap adds to the entries that are there by default.
func (l *loader) decodeMap(n ast.Node, v reflect.Value, path string) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		l.faultf(lineOf(n), "%s: found %s where name: value pairs are expected", path, what(n))
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, k := range v.MapKeys() {
		out.SetMapIndex(k, v.MapIndex(k))
	}
	for _, e := range m.Values {
		name, ok := l.scalar(e.Key, path)
		if !ok {
			continue
		}
		key := reflect.New(v.Type().Key()).Elem()
		if err := setScalar(key, name); err != nil {
			l.faultf(lineOf(e.Key), "%s: the name: %v", path, err)
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if old := v.MapIndex(key); v.Len() > 0 && old.IsValid() {
			value.Set(old)
		}
		l.decode(e.Value, value, join(path, name))
		out.SetMapIndex(key, value)
	}
	v.Set(out)
}

func (l *loader) decodeList(n ast.Node, v reflect.Value, path string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		l.faultf(lineOf(n), "%s: found %s where a list is expected; write [a, b] or lines that begin with a dash", path, what(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(s.Values), len(s.Values))
	for i, e := range s.Values {
		l.decode(e, out.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(out)
}

// scalar gives a node's single value as it was written.
func (l *loader) scalar(n ast.Node, path string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	l.faultf(lineOf(n), "%s: found %s where a single value is expected", label(path), what(n))
	return "", false
}

// setScalar sets v from a text.
func setScalar(v reflect.Value, s string) error {
	if v.Type() == durationType {
		d, err := time.ParseDuration(s)
		if err != nil {
			if _, number := strconv.ParseFloat(s, 64); number == nil {
				return fmt.Errorf("%s has no unit; write for example %ss", s, s)
			}
			return fmt.Errorf("%q is not a duration; write for example 15s, 10m or 1h30m", s)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		switch strings.ToLower(s) {
		case "true":
			v.SetBool(true)
		case "false":
			v.SetBool(false)
		default:
			return fmt.Errorf("%q is neither true nor false", s)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, v.Type().Bits())
		if err != nil {
			return wholeNumber(s, err, fmt.Sprintf("-%d and %d", uint64(1)<<(v.Type().Bits()-1), uint64(1)<<(v.Type().Bits()-1)-1))
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(strings.ReplaceAll(s, "_", ""), 10, v.Type().Bits())
		if err != nil {
			return wholeNumber(s, err, fmt.Sprintf("0 and %d", uint64(math.MaxUint64)>>(64-v.Type().Bits())))
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(s, v.Type().Bits())
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%q is not a number", s)
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("a %s cannot be configured: this is a mistake of the program", v.Type())
	}
	return nil
}

func wholeNumber(s string, err error, span string) error {
	if errors.Is(err, strconv.ErrRange) || strings.HasPrefix(s, "-") {
		return fmt.Errorf("%s is not between %s", s, span)
	}
	return fmt.Errorf("%q is not a whole number", s)
}

func what(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingNode:
		return "keys"
	case *ast.SequenceNode:
		return "a list"
	case ast.ScalarNode:
		return fmt.Sprintf("%q", n.GetToken().Value)
	}
	return "something else"
}

func label(path string) string {
	if path == "" {
		return "the configuration"
	}
	return path
}
