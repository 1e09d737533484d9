package slurmjson

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxIndex bounds a GRES index: no node has as many devices, and a hostile text must not fill the memory.
const maxIndex = 4095

// ParseGres reads a GRES string of one node: an element of gres_detail, or a node's gres, gres_used or gres_drained. The
// entries, joined by ",", have these forms (Slurm's gres_stepmgr.c, and scontrol show node):
//
//	NAME[:TYPE]:COUNT                    what the node has; a (S:0-1) with sockets may follow
//	NAME[:TYPE]:COUNT(IDX:0-1,3)         devices in use, by index; IDX:N/A for none
//	NAME[:TYPE](CNT:N)                   used, without indices
//	NAME[:TYPE]:COUNT(used/total,…)      shared devices, mps and shard
//
// "", "N/A" and "(null)" are no GRES.
func ParseGres(s string) ([]Gres, error) {
	switch s {
	case "", "N/A", "(null)":
		return nil, nil
	}
	var out []Gres
	for rest := s; rest != ""; {
		var entry string
		entry, rest = cutOutsideParens(rest)
		g, err := parseGresEntry(entry)
		if err != nil {
			return nil, fmt.Errorf("read GRES %q: entry %q: %w; only the forms NAME[:TYPE]:COUNT[(IDX:…|CNT:…|S:…|used/total)] are known", s, entry, err)
		}
		out = append(out, g)
	}
	return out, nil
}

// cutOutsideParens cuts at the first comma that is not inside parentheses.
func cutOutsideParens(s string) (first, rest string) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				return s[:i], s[i+1:]
			}
		}
	}
	return s, ""
}

func parseGresEntry(entry string) (Gres, error) {
	entry = strings.Replace(entry, ":(null):", ":", 1) // the type of a GRES without types, in some versions
	spec, detail := entry, ""
	if i := strings.IndexByte(entry, '('); i >= 0 {
		if entry[len(entry)-1] != ')' {
			return Gres{}, fmt.Errorf("the parenthesis is not closed at the end")
		}
		spec, detail = entry[:i], entry[i+1:len(entry)-1]
	}
	parts := strings.Split(spec, ":")
	g := Gres{Name: parts[0]}
	if g.Name == "" {
		return Gres{}, fmt.Errorf("there is no name")
	}
	parts = slices.DeleteFunc(parts[1:], func(p string) bool { return p == "no_consume" })
	key, value, _ := strings.Cut(detail, ":")
	counted := false
	if n := len(parts); n > 0 {
		// The last part is the count, except before (CNT:…), where it can only be a type.
		if c, ok := parseCount(parts[n-1]); ok && key != "CNT" {
			g.Count, counted, parts = c, true, parts[:n-1]
		}
	}
	switch len(parts) {
	case 0:
	case 1:
		g.Type = parts[0]
	default:
		return Gres{}, fmt.Errorf("there are too many parts")
	}
	var err error
	switch {
	case key == "IDX":
		g.Index, err = ParseIndex(value)
	case key == "CNT":
		if g.Count, counted = parseCount(value); !counted {
			return Gres{}, fmt.Errorf("%q is no count", value)
		}
	case key == "S" || detail == "": // sockets the devices are close to
	case strings.Contains(detail, "/"):
		g.Shared, err = parseShared(detail)
	default:
		return Gres{}, fmt.Errorf("the detail %q is not known", detail)
	}
	if err == nil && !counted {
		return Gres{}, fmt.Errorf("there is no count")
	}
	return g, err
}

// parseCount reads a count with the suffixes Slurm allows, each a power of 1024.
func parseCount(s string) (uint64, bool) {
	shift := 0
	if s != "" {
		if i := strings.IndexByte("KMGTP", s[len(s)-1]&^0x20); i >= 0 {
			shift, s = 10*(i+1), s[:len(s)-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > math.MaxUint64>>shift {
		return 0, false
	}
	return n << shift, true
}

// ParseIndex reads a list of GRES indices such as "0,2-3"; nil for "" and "N/A".
func ParseIndex(s string) ([]uint16, error) {
	if s == "" || s == "N/A" {
		return nil, nil
	}
	var out []uint16
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		lo, err1 := strconv.ParseUint(low, 10, 16)
		hi, err2 := strconv.ParseUint(high, 10, 16)
		if err1 != nil || err2 != nil || hi < lo || hi > maxIndex || len(out) > maxIndex {
			return nil, fmt.Errorf("%q are not indices of 0 to %d", s, maxIndex)
		}
		for i := lo; i <= hi; i++ {
			out = append(out, uint16(i))
		}
	}
	return out, nil
}

func parseShared(s string) ([]Share, error) {
	var out []Share
	for part := range strings.SplitSeq(s, ",") {
		used, total, _ := strings.Cut(part, "/")
		u, ok1 := parseCount(used)
		t, ok2 := parseCount(total)
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("%q is not used/total", part)
		}
		out = append(out, Share{Used: u, Total: t})
	}
	return out, nil
}

// Tres is one trackable resource: Name is "cpu", "node", "gres/gpu" or, with a type, "gres/gpu:gb200".
type Tres struct {
	Name  string
	Count uint64
}

// TresList are the resources of one job, node or request.
type TresList []Tres

// ParseTres reads Slurm's TRES strings: totals ("cpu=576,mem=1.5T,gres/gpu=72,gres/gpu:gb200=72") and requests
// ("gres/gpu:gb200:4", "gres:gpu:4" of older versions, "gres/gpu" for one). mem is in MiB, rounded down.
func ParseTres(s string) (TresList, error) {
	if s == "" || s == "(null)" || s == "N/A" {
		return nil, nil
	}
	var out TresList
	for entry := range strings.SplitSeq(s, ",") {
		t, ok := parseTresEntry(entry)
		if !ok {
			return nil, fmt.Errorf("read TRES %q: entry %q is not NAME=COUNT or NAME[:TYPE][:COUNT]", s, entry)
		}
		out = append(out, t)
	}
	return out, nil
}

func parseTresEntry(entry string) (Tres, bool) {
	if rest, ok := strings.CutPrefix(entry, "gres:"); ok {
		entry = "gres/" + rest
	}
	if name, count, ok := strings.Cut(entry, "="); ok {
		if name == "mem" {
			n, ok := parseMiB(count)
			return Tres{name, n}, ok
		}
		n, ok := parseCount(count)
		return Tres{name, n}, ok && name != ""
	}
	if i := strings.LastIndexByte(entry, ':'); i >= 0 {
		if n, ok := parseCount(entry[i+1:]); ok {
			return Tres{entry[:i], n}, i > 0
		}
	}
	return Tres{entry, 1}, entry != ""
}

// parseMiB reads a size such as "14400M" or "1.5T"; without a unit it is in MiB.
func parseMiB(s string) (uint64, bool) {
	unit := 1.0
	if s != "" {
		if i := strings.IndexByte("KMGTPE", s[len(s)-1]&^0x20); i >= 0 {
			unit, s = math.Pow(1024, float64(i-1)), s[:len(s)-1]
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f*unit < math.MaxInt64) {
		return 0, false
	}
	return uint64(f * unit), true
}

// Count returns the count of the resource of exactly that name; ok is false when it is not listed.
func (l TresList) Count(name string) (n uint64, ok bool) {
	for _, t := range l {
		if t.Name == name {
			return t.Count, true
		}
	}
	return 0, false
}

// GPUs returns the number of GPUs. "gres/gpu" already holds the typed ones, so the typed are added up only without it,
// which is how requests by type and accounting by type alone look. ok is false when no GPU entry is listed.
func (l TresList) GPUs() (n uint64, ok bool) {
	if n, ok = l.Count("gres/gpu"); ok {
		return n, true
	}
	for _, t := range l {
		if strings.HasPrefix(t.Name, "gres/gpu:") {
			n, ok = n+t.Count, true
		}
	}
	return n, ok
}
