package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// override sets keys from the environment. names are their paths by variable.
func (l *loader) override(names map[string]string) {
	file := l.file
	defer func() { l.file = file }()
	env := slices.Clone(l.env)
	slices.Sort(env) // so that faults come in the same order each time
	for _, e := range env {
		name, text, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, EnvPrefix+"_") {
			continue
		}
		path, ok := names[name]
		if !ok {
			if key, why := l.goneBy(name); key != "" {
				l.note(fmt.Sprintf("%s (%s) does nothing any more: %s", name, key, why))
				continue
			}
			// A name that lacks a whole word, of three letters or more, is a variable of something else.
			if near := nearest(name, sortedKeys(names), 2); near != "" {
				l.note(fmt.Sprintf("%s sets nothing; did you mean %s?", name, near))
			}
			continue
		}
		l.file = name
		if v, ok := find(l.root, path); ok {
			l.fromText(v, text, path)
		}
	}
}

// goneBy gives the key of an earlier version that a variable stood for, and what to say of it.
func (l *loader) goneBy(variable string) (key, why string) {
	for key, why := range l.gone {
		if envName(key) == variable {
			return key, why
		}
	}
	return "", ""
}

// fromText sets a value from one line.
func (l *loader) fromText(v reflect.Value, text, path string) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	_, self := v.Addr().Interface().(unmarshaler)
	switch kind := v.Kind(); {
	case reflect.PointerTo(v.Type()).Implements(textType) || !self && kind != reflect.Slice && kind != reflect.Map:
		if err := l.setText(v, text); err != nil {
			l.faultf(0, "%s: %v", path, err)
		}
	case kind == reflect.Slice && !strings.HasPrefix(strings.TrimSpace(text), "["):
		out := reflect.MakeSlice(v.Type(), 0, 0)
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			e := reflect.New(v.Type().Elem()).Elem()
			if err := l.setText(e, part); err != nil {
				l.faultf(0, "%s: %v", path, err)
			}
			out = reflect.Append(out, e)
		}
		v.Set(out)
	default:
		body, _, err := parse(text)
		if err != nil {
			l.faultf(0, "%s: %v", path, err)
			return
		}
		if body == nil {
			v.SetZero()
			return
		}
		before := len(l.faults)
		l.decode(body, v, path)
		for i := range l.faults[before:] { // lines of a variable say nothing
			l.faults[before+i].where, l.faults[before+i].line = l.file, 0
		}
	}
}

func (l *loader) setText(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
		return u.UnmarshalText([]byte(text))
	}
	return setScalar(v, text)
}
