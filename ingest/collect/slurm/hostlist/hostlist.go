// Package hostlist reads and prints Slurm's compressed lists of node names ("rack1-n[01-18],rack2-n03") for the Slurm
// collector (sources into Kafka). It follows the rules of Slurm 26.05's own parser, checked against its recorded answers;
// it never asks a controller, so it refuses what only a controller can answer.
package hostlist

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits of one expression. MaxNames is far above any cluster; it stops a short hostile text from filling the memory.
const (
	MaxNames   = 1 << 20
	maxRange   = 1 << 16 // names in one range and products of all groups but the last, as in Slurm
	maxNameLen = 1024    // bytes, as in Slurm
	maxBytes   = 64 << 20
)

// IsNone reports whether s is one of the texts Slurm prints where there is no node list.
func IsNone(s string) bool {
	switch strings.TrimSpace(s) {
	case "", "(null)", "null", "None assigned":
		return true
	}
	return false
}

// Expand returns the names of a hostlist expression in Slurm's own order, duplicates kept. It returns no names for the texts
// of IsNone. The names share one backing string: keep all of them or clone the ones to keep.
//
// The order is that of Slurm, which lines up with its per-node lists: the last bracket group counts fastest, then the
// first, then the second and so on.
func Expand(expr string) ([]string, error) {
	items, names, size, err := parse(expr)
	if err != nil || names == 0 {
		return nil, err
	}
	w := writer{names: make([]string, 0, names)}
	w.b.Grow(size)
	for i := range items {
		w.item(&items[i])
	}
	return w.names, nil
}

// Count returns how many names Expand would return, duplicates included, without building them.
func Count(expr string) (int, error) {
	_, names, _, err := parse(expr)
	return names, err
}

// An item is one element of the list: head, then for each group one number and its text. A plain name is a head alone.
type item struct {
	head   string
	groups []group
}

type group struct {
	ranges []span
	count  int    // names
	width  int    // of the longest number
	text   string // what follows the bracket
}

// A span prints lo to hi, zero-padded to width digits. The width is the length of lo as written.
type span struct {
	lo, hi uint32
	width  int
}

// parse returns the items, the number of names, and an upper bound of their bytes.
func parse(expr string) (items []item, names, size int, err error) {
	if IsNone(expr) {
		return nil, 0, 0, nil
	}
	if i := strings.IndexByte(expr, '{'); i >= 0 {
		return nil, 0, 0, fmt.Errorf("read hostlist: %q at byte %d is a hostlist function, which only the Slurm controller can answer; "+
			"write the node names out, see scontrol show hostnames", clip(expr[strings.LastIndexAny(expr[:i], ", \t\n")+1:]), i)
	}
	for rest := expr; ; {
		tok, after := nextToken(rest)
		if tok == "" {
			return items, names, size, nil
		}
		rest = after
		it, n, width, err := parseItem(tok)
		if err != nil {
			return nil, 0, 0, fmt.Errorf("read hostlist element %q at byte %d: %w", clip(tok), len(expr)-len(after)-len(tok), err)
		}
		if width > maxNameLen {
			return nil, 0, 0, fmt.Errorf("read hostlist element %q: a name of %d bytes is longer than the %d Slurm allows", clip(tok), width, maxNameLen)
		}
		if n > MaxNames-names || n*width > maxBytes-size {
			return nil, 0, 0, fmt.Errorf("read hostlist: more than %d names or %d MiB of names; split the list", MaxNames, maxBytes>>20)
		}
		names += n
		size += n * width
		items = append(items, it)
	}
}

// nextToken cuts the first element off. Separators inside brackets do not count.
func nextToken(s string) (tok, rest string) {
	s = strings.TrimLeft(s, ", \t\n")
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '[':
			depth++
		case ']':
			depth = max(0, depth-1) // a "]" that closes nothing is part of a name
		case ',', ' ', '\t', '\n':
			if depth == 0 {
				return s[:i], s[i:]
			}
		}
	}
	return s, ""
}

// parseItem returns the item, its number of names and the length of its longest name.
func parseItem(tok string) (it item, names, width int, err error) {
	open := strings.LastIndexByte(tok, '[')
	if open < 0 {
		head := saturate(tok)
		return item{head: head}, 1, len(head), nil
	}
	end := strings.IndexByte(tok[open:], ']')
	if end < 0 {
		return item{}, 0, 0, fmt.Errorf("\"[\" is never closed; close it with \"]\"")
	}
	end += open
	// Groups are found from the right, as Slurm does. What looks like a group but has no "]" is part of the name.
	head, body, text := tok[:open], tok[open+1:end], tok[end+1:]
	prefixes := 1
	for {
		g := group{text: text}
		if g.ranges, g.count, err = parseRanges(body); err != nil {
			return item{}, 0, 0, err
		}
		if len(it.groups) > 0 {
			if prefixes *= g.count; prefixes > maxRange {
				return item{}, 0, 0, fmt.Errorf("the bracket groups before the last make more than %d combinations; split the element", maxRange)
			}
		}
		for _, r := range g.ranges {
			g.width = max(g.width, r.width, digits(r.hi))
		}
		width += g.width + len(text)
		it.groups = append(it.groups, g)
		open, end = strings.LastIndexByte(head, '['), strings.LastIndexByte(head, ']')
		if open < 0 || end < open {
			break
		}
		head, body, text = head[:open], head[open+1:end], head[end+1:]
	}
	slices.Reverse(it.groups)
	it.head = head
	return it, prefixes * it.groups[len(it.groups)-1].count, width + len(head), nil
}

// parseRanges reads what stands between brackets.
func parseRanges(body string) (ranges []span, count int, err error) {
	for r := range strings.SplitSeq(body, ",") {
		s, err := parseSpan(r)
		if err != nil {
			return nil, 0, err
		}
		if count += int(s.hi-s.lo) + 1; count > MaxNames {
			return nil, 0, fmt.Errorf("more than %d names; split the list", MaxNames)
		}
		ranges = append(ranges, s)
	}
	return ranges, count, nil
}

func parseSpan(r string) (span, error) {
	low, high, isRange := strings.Cut(r, "-")
	lo, err := parseNumber(low, r)
	if err != nil {
		return span{}, err
	}
	hi := lo
	if isRange && high != "" { // "n[1-]" is n1
		if hi, err = parseNumber(high, r); err != nil {
			return span{}, err
		}
	}
	switch {
	case hi < lo:
		return span{}, fmt.Errorf("range %q runs backwards; write the lower number first", clip(r))
	case hi-lo >= maxRange:
		return span{}, fmt.Errorf("range %q has more than the %d names Slurm allows; split it", clip(r), maxRange)
	}
	return span{lo: lo, hi: hi, width: len(low)}, nil
}

// parseNumber reads one bound of range r. One leading "+" is allowed, and counts for the width.
func parseNumber(s, r string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 32)
	switch {
	case err == nil:
		return uint32(n), nil
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("range %q has a number above %d; node numbers that large are not supported", clip(r), uint32(math.MaxUint32))
	case strings.Contains(r, "x"):
		return 0, fmt.Errorf("range %q is a box of a multi-dimensional cluster, which is not supported; write the node names out", clip(r))
	}
	return 0, fmt.Errorf("range %q is not a number or two numbers with \"-\" between; steps, signs, letters and spaces are not allowed in brackets", clip(r))
}

// saturate copies Slurm's treatment of a number at the end of a name that exceeds 64 bits: it becomes the largest number.
func saturate(name string) string {
	i := len(strings.TrimRight(name, "0123456789"))
	if _, err := strconv.ParseUint(name[i:], 10, 64); errors.Is(err, strconv.ErrRange) {
		return fmt.Sprintf("%s%0*d", name[:i], len(name)-i, uint64(math.MaxUint64))
	}
	return name
}

// writer renders items into one growing string.
type writer struct {
	b     strings.Builder
	names []string
	// at holds the number each group currently stands at.
	at []number
}

type number struct {
	n     uint32
	width int
}

func (w *writer) item(it *item) {
	if len(it.groups) == 0 {
		start := w.b.Len()
		w.b.WriteString(it.head)
		w.names = append(w.names, w.b.String()[start:])
		return
	}
	w.at = append(w.at[:0], make([]number, len(it.groups))...)
	w.group(it, len(it.groups)-2)
}

// group counts group g through its numbers, the groups before it inside, and the last group innermost.
func (w *writer) group(it *item, g int) {
	last := len(it.groups) - 1
	if g < 0 {
		g = last
	}
	for _, r := range it.groups[g].ranges {
		for n := uint64(r.lo); n <= uint64(r.hi); n++ {
			w.at[g] = number{uint32(n), r.width}
			if g == last {
				w.name(it)
			} else {
				w.group(it, g-1)
			}
		}
	}
}

func (w *writer) name(it *item) {
	start := w.b.Len()
	w.b.WriteString(it.head)
	for i, g := range it.groups {
		for range w.at[i].width - digits(w.at[i].n) {
			w.b.WriteByte('0')
		}
		var num [10]byte
		w.b.Write(strconv.AppendUint(num[:0], uint64(w.at[i].n), 10))
		w.b.WriteString(g.text)
	}
	w.names = append(w.names, w.b.String()[start:])
}

// Compress returns the names as one hostlist expression, in their order and with duplicates, ranging the last number of
// each name as Slurm prints it. Expand gives the same names back, unless a name holds a bracket, a brace or a separator,
// which no node name can.
func Compress(names []string) string {
	var b strings.Builder
	for i := 0; i < len(names); {
		prefix, first, ok := splitName(names[i])
		if i > 0 {
			b.WriteByte(',')
		}
		if !ok {
			b.WriteString(names[i])
			i++
			continue
		}
		// Collect the runs of the names that have this prefix and a number.
		runs := []span{first}
		for i++; i < len(names); i++ {
			p, next, ok := splitName(names[i])
			if !ok || p != prefix {
				break
			}
			// A number joins the run when the run's width prints it as it stands.
			r := &runs[len(runs)-1]
			if uint64(next.lo) == uint64(r.hi)+1 && next.width == max(r.width, digits(next.lo)) && r.hi-r.lo+1 < maxRange {
				r.hi = next.lo
			} else {
				runs = append(runs, next)
			}
		}
		b.WriteString(prefix)
		if len(runs) == 1 && runs[0].lo == runs[0].hi {
			fmt.Fprintf(&b, "%0*d", runs[0].width, runs[0].lo)
			continue
		}
		for j, r := range runs {
			b.WriteByte("[,"[min(j, 1)])
			fmt.Fprintf(&b, "%0*d", r.width, r.lo)
			if r.hi > r.lo {
				fmt.Fprintf(&b, "-%0*d", r.width, r.hi)
			}
		}
		b.WriteByte(']')
	}
	return b.String()
}

// splitName cuts a name before its last number; ok is false when it does not end in a number that ranges can hold.
func splitName(name string) (prefix string, num span, ok bool) {
	i := len(strings.TrimRight(name, "0123456789"))
	n, err := strconv.ParseUint(name[i:], 10, 32)
	if err != nil {
		return "", span{}, false
	}
	return name[:i], span{lo: uint32(n), hi: uint32(n), width: len(name) - i}, true
}

func digits(n uint32) int {
	d := 1
	for ; n > 9; n /= 10 {
		d++
	}
	return d
}

// clip shortens a text for an error message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}
