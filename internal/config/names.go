package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is one key of a struct.
type field struct {
	key   string
	index []int
}

// fieldsOf lists the keys of a struct in order. Embedded structs with ",inline" add theirs.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		key, flags, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case !f.IsExported() || key == "-":
		case flags == "inline" && f.Type.Kind() == reflect.Struct:
			for _, inner := range fieldsOf(f.Type) {
				out = append(out, field{inner.key, append([]int{i}, inner.index...)})
			}
		case key == "":
			out = append(out, field{strings.ToLower(f.Name), []int{i}})
		default:
			out = append(out, field{key, []int{i}})
		}
	}
	return out
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// unmarshaler is what reads itself from YAML, given how to read the rest.
type unmarshaler interface {
	UnmarshalYAML(func(any) error) error
}

// isBlock says that a type is a struct of keys, and not a value that happens to be a struct.
func isBlock(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textType)
}

// keysOf gives the path of every key by the environment variable that overrides it. The error is of the program: two
// keys with one variable, or a key that would hold a secret.
func keysOf(t reflect.Type) (map[string]string, error) {
	out := map[string]string{}
	var walk func(t reflect.Type, path string) error
	walk = func(t reflect.Type, path string) error {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if isBlock(t) {
			for _, f := range fieldsOf(t) {
				if err := walk(t.FieldByIndex(f.index).Type, join(path, f.key)); err != nil {
					return err
				}
			}
			return nil
		}
		if key := path[strings.LastIndex(path, ".")+1:]; t.Kind() == reflect.String && isSecret(key) {
			return fmt.Errorf("the key %s would hold a secret in plain sight: make it %s_file", path, key)
		}
		name := envName(path)
		if other, ok := out[name]; ok {
			return fmt.Errorf("the keys %s and %s have the same environment variable %s: rename one", other, path, name)
		}
		out[name] = path
		return nil
	}
	return out, walk(t, "")
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func envName(path string) string {
	return EnvPrefix + "_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// isSecret goes by the last word of a key.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "token", "jwt", "api_key", "apikey", "private_key", "credentials"} {
		if key == word || strings.HasSuffix(key, "_"+word) {
			return true
		}
	}
	return false
}

// hint says what may have been meant by a key that is not there.
func hint(key string, there []string) string {
	if isSecret(key) && slices.Contains(there, key+"_file") {
		return fmt.Sprintf("secrets are not written here; put it into a file and name that in %s_file", key)
	}
	if near := nearest(key, there, 3); near != "" {
		return fmt.Sprintf("no such key; did you mean %s?", near)
	}
	if len(there) > 12 {
		return "no such key here; the configuration that is shipped has them all"
	}
	return "no such key here; there are " + strings.Join(there, ", ")
}

// nearest gives the name that differs least, if it differs in no more than a few letters. Case, "-" and "_" do not count.
func nearest(name string, names []string, letters int) string {
	plain := strings.NewReplacer("_", "", "-", "")
	want := plain.Replace(strings.ToLower(name))
	best, found := min(1+len(want)/4, letters), ""
	for _, n := range names {
		if slips := distance(want, plain.Replace(strings.ToLower(n)), best); slips <= best && (found == "" || slips < best) {
			best, found = slips, n
		}
	}
	return found
}

// distance counts the letters to change, add, drop or swap with their neighbour to make a of b. More than most is not
// counted on.
func distance(a, b string, most int) int {
	if max(len(a)-len(b), len(b)-len(a)) > most {
		return most + 1
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			next[j+1] = row[j]
			if a[i] != b[j] {
				next[j+1] = 1 + min(row[j], row[j+1], next[j])
				if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
					next[j+1] = min(next[j+1], before[j-1]+1)
				}
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
