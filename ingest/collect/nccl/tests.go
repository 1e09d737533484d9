package nccl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Result is the output of one run of a test of nccl-tests.
type Result struct {
	Version    string // of nccl-tests; empty = before 2.17, which does not say
	Collective string // as all_reduce_perf, without what follows in the program's name; empty = not told
	Ranks      []Rank
	Rows       []Row
	// OutOfBounds is how many values were wrong in all; nil = the output ends before it says so.
	OutOfBounds *int64
	// Average is the mean of the bus bandwidths of all sizes and both placements, in bytes per second, so not the peak;
	// NaN = the output ends before it says so. Passed is nil where no threshold was given.
	Average float64
	Passed  *bool
	// Failure is the line that says why the run ended early.
	Failure string
	// Truncated says that the output has no end: the run died, or its output was cut.
	Truncated bool
	// Malformed is how many lines in the table could not be read.
	Malformed int
}

// Rank is one process's GPU.
type Rank struct {
	Rank   int
	Group  int // -1 = not told
	PID    int
	Host   string
	Device int
	Bus    string // as printed: 0000:1b:00, or 0x1b of old versions
	Model  string
}

// Row is one message size.
type Row struct {
	Size       int64 // bytes
	Count      int64 // elements
	Type       string
	Op         string // empty = the collective has none
	Root       int    // -1 = none
	OutOfPlace *Measure
	InPlace    *Measure
}

// Measure is one placement of a row.
type Measure struct {
	Seconds           float64
	AlgBytesPerSecond float64
	// BusBytesPerSecond is what the slowest wire carried, if the algorithm is a ring; in-network reduction may exceed it.
	BusBytesPerSecond float64
	// Wrong is how many values were wrong; NaN = not checked, or an old version that tells the greatest deviation instead.
	Wrong float64
}

// Largest is the greatest bus bandwidth of the greatest message, in bytes per second; NaN = there is no row.
func (r *Result) Largest() float64 {
	best, size := math.NaN(), int64(-1)
	for _, row := range r.Rows {
		for _, m := range []*Measure{row.OutOfPlace, row.InPlace} {
			if m == nil || row.Size < size {
				continue
			}
			if row.Size > size || !(m.BusBytesPerSecond <= best) {
				best, size = m.BusBytesPerSecond, row.Size
			}
		}
	}
	return best
}

// program is the name that a test has in nccl-tests: whoever builds it may append to it, as in all_reduce_perf_mpi.
func program(name string) string {
	const end = "_perf"
	if at := strings.Index(name, end); at > 0 {
		return name[:at+len(end)]
	}
	return name
}

// BusFactor is the bus bandwidth over the algorithm's, for a number of ranks (PERFORMANCE.md of nccl-tests); ok is false
// for a collective that is not known.
func BusFactor(collective string, ranks int) (factor float64, ok bool) {
	n := float64(ranks)
	switch strings.TrimSuffix(collective, "_perf") {
	case "all_reduce":
		return 2 * (n - 1) / n, true
	case "all_gather", "reduce_scatter", "alltoall":
		return (n - 1) / n, true
	case "broadcast", "reduce", "sendrecv", "scatter", "gather", "hypercube":
		return 1, true
	}
	return 0, false
}

// label is what mpirun and srun put before each line of a rank.
var label = regexp.MustCompile(`^(?:\[\d+,\d+\](?:<std(?:out|err)>)?:\s?|\s*\d+: )`)

var (
	rankLine = regexp.MustCompile(`^#\s+Rank\s+(\d+)(?:\s+Group\s+(\d+))?\s+Pid\s+(\d+)\s+on\s+(\S+)\s+device\s+(\d+)\s+\[([^\]]*)\]\s*(.*)$`)
	average  = regexp.MustCompile(`^# Avg bus bandwidth\s*:\s*(\S+)\s*(\S*)`)
	bounds   = regexp.MustCompile(`^# Out of bounds values\s*:\s*(\d+)`)
	rowLine  = regexp.MustCompile(`^\s*\d+(?:\s+\d+\s|\s*$)`) // a size and a count, or what is left of them
	failure  = regexp.MustCompile(`Test (?:NCCL|CUDA) failure`)
)

// defaultColumns are those of an output whose header was cut away.
var defaultColumns = strings.Fields("size count type redop root time algbw busbw #wrong time algbw busbw #wrong")

var errNoRun = errors.New("the text is not an output of nccl-tests: it has no line that begins with # nThread")

// ParseTests reads the output of nccl-tests, of any version, and of several runs one after the other. Lines of other
// programs between are skipped. An output without any run of a test is an error.
func ParseTests(r io.Reader) ([]Result, error) {
	var results []Result
	columns := defaultColumns
	current := func() *Result { return &results[len(results)-1] }
	begin := func() {
		results = append(results, Result{Average: math.NaN(), Truncated: true})
		columns = defaultColumns
	}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		whole := err == nil
		line = strings.TrimRight(line, " \t\r\n")
		line = line[len(label.FindString(line)):]
		comment := strings.HasPrefix(line, "#")
		switch {
		case strings.HasPrefix(line, "# nccl-tests version "):
			begin()
			current().Version, _, _ = strings.Cut(strings.TrimPrefix(line, "# nccl-tests version "), " ")
		case strings.HasPrefix(line, "# Collective test starting:"):
			if len(results) == 0 || len(current().Rows) > 0 {
				begin()
			}
			current().Collective = program(strings.TrimSpace(strings.TrimPrefix(line, "# Collective test starting:")))
		case strings.HasPrefix(line, "# nThread "):
			if len(results) == 0 || len(current().Ranks) > 0 || len(current().Rows) > 0 {
				begin()
			}
		case len(results) == 0:
		case comment:
			current().comment(line, whole, &columns)
		case failure.MatchString(line):
			current().Failure = line
		case rowLine.MatchString(line):
			if row, ok := parseRow(strings.Fields(line), columns); ok && whole {
				current().Rows = append(current().Rows, row)
			} else {
				current().Malformed++
			}
		}
		if !whole {
			break
		}
	}
	if len(results) == 0 {
		return nil, errNoRun
	}
	return results, nil
}

func (r *Result) comment(line string, whole bool, columns *[]string) {
	if m := rankLine.FindStringSubmatch(line); m != nil && whole {
		rank := Rank{Group: -1, Host: m[4], Bus: m[6], Model: m[7]}
		for to, text := range map[*int]string{&rank.Rank: m[1], &rank.Group: m[2], &rank.PID: m[3], &rank.Device: m[5]} {
			if n, err := strconv.Atoi(text); err == nil {
				*to = n
			}
		}
		r.Ranks = append(r.Ranks, rank)
		return
	}
	if fields := strings.Fields(strings.TrimPrefix(line, "#")); len(fields) > 3 && fields[0] == "size" && fields[1] == "count" {
		*columns = fields
		return
	}
	if m := bounds.FindStringSubmatch(line); m != nil && whole {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			r.OutOfBounds = &n
		}
		return
	}
	if m := average.FindStringSubmatch(line); m != nil && whole {
		if v, err := strconv.ParseFloat(m[1], 64); err == nil {
			r.Average, r.Truncated = v*1e9, false
		}
		if m[2] != "" {
			passed := m[2] == "OK"
			r.Passed = &passed
		}
	}
}

// parseRow reads one row of the table. Its numbers stand under the columns of the header, but a column may be blank (there
// is no op or root, or a run measured only in place), and times of day may follow.
func parseRow(fields, columns []string) (Row, bool) {
	row := Row{Root: -1}
	names, ok := fit(fields, columns)
	if !ok {
		return row, false
	}
	var measures []*Measure
	for i, name := range names {
		text, bad := fields[i], error(nil)
		switch name {
		case "size":
			row.Size, bad = strconv.ParseInt(text, 10, 64)
		case "count":
			row.Count, bad = strconv.ParseInt(text, 10, 64)
		case "type":
			row.Type = text
		case "redop":
			if text != "none" {
				row.Op = text
			}
		case "root":
			row.Root, bad = strconv.Atoi(text)
		case "time", "cputime":
			measures = append(measures, &Measure{Wrong: math.NaN()})
			bad = number(text, 1e-6, &measures[len(measures)-1].Seconds)
		case "algbw", "busbw", "#wrong", "error":
			if len(measures) == 0 {
				return row, false
			}
			m := measures[len(measures)-1]
			switch name {
			case "algbw":
				bad = number(text, 1e9, &m.AlgBytesPerSecond)
			case "busbw":
				bad = number(text, 1e9, &m.BusBytesPerSecond)
			case "#wrong":
				if text != "N/A" {
					bad = number(text, 1, &m.Wrong)
				}
			case "error": // how far off the values are at most, which says nothing of how many are wrong
				if text != "N/A" {
					bad = number(text, 1, new(float64))
				}
			}
		}
		if bad != nil {
			return row, false
		}
	}
	inColumns := 0
	for _, name := range columns {
		if name == "time" || name == "cputime" {
			inColumns++
		}
	}
	switch {
	case len(measures) == 2:
		row.OutOfPlace, row.InPlace = measures[0], measures[1]
	case len(measures) == 1 && inColumns == 2: // the first was blank
		row.InPlace = measures[0]
	case len(measures) == 1:
		row.OutOfPlace = measures[0]
	default:
		return row, false
	}
	return row, true
}

// fit gives each field its column. Fields beyond the header are left out.
func fit(fields, columns []string) ([]string, bool) {
	if len(fields) >= len(columns) {
		return columns, true
	}
	without := func(from, to int) []string { return slices.Concat(columns[:from], columns[to:]) }
	if at := slices.Index(columns, "redop"); at >= 0 && at+1 < len(columns) && columns[at+1] == "root" && len(fields) == len(columns)-2 {
		return without(at, at+2), true
	}
	first := slices.Index(columns, "time")
	if first < 0 {
		return nil, false
	}
	second := slices.Index(columns[first+1:], "time")
	if second >= 0 && len(fields) == len(columns)-second-1 {
		return without(first, first+1+second), true
	}
	return nil, false
}

var errNotNumber = errors.New("not a number")

func number(text string, unit float64, to *float64) error {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return errNotNumber
	}
	*to = v * unit
	return nil
}
