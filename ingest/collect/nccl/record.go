package nccl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// maxFile bounds one file; the output of a run has a few kilobytes, its log a few megabytes.
const maxFile = 256 << 20

// unknownOperation stands for the operation that old versions of nccl-tests do not tell.
const unknownOperation = "unknown"

// ReadFile gives the records of all runs in one file, an output of nccl-tests or its report (option -J), as of when it was
// last written. Lines of NCCL_DEBUG=INFO that stand between tell how NCCL joined the nodes.
func ReadFile(path, cluster string, shortNames bool) ([]*event.Benchmark, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", path, err)
	case len(text) > maxFile:
		return nil, fmt.Errorf("read %s: it has more than %d bytes, which no run of nccl-tests writes", path, maxFile)
	}
	text = bytes.ToValidUTF8(text, []byte("?"))
	results, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	log, err := ParseLog(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	names := func(host string) string { return host }
	if shortNames {
		names = func(host string) string { short, _, _ := strings.Cut(host, "."); return short }
	}
	var records []*event.Benchmark
	for i := range results {
		r := record(&results[i], log, names)
		r.Cluster, r.RunId = cluster, runID(&results[i], i, path)
		r.ObservedAtMs, r.Revision = info.ModTime().UnixMilli(), event.Revision(info.ModTime())
		records = append(records, r)
	}
	return records, nil
}

// parse reads an output of nccl-tests, be it for people or for programs.
func parse(text []byte) ([]Result, error) {
	if !isReport(string(text[:min(len(text), 100)])) {
		return ParseTests(bytes.NewReader(text))
	}
	r, err := ParseReport(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return []Result{*r}, nil
}

// runID names a run by its processes, its place in the file and what it measured first, which stay as they are while the
// output grows and when it is moved. Processes alone are not enough: in containers the host, the PID and the bus of one run
// are often those of the next. An output that does not tell its processes is named by its file.
func runID(r *Result, place int, path string) string {
	h := sha256.New()
	fmt.Fprintln(h, place, r.Collective)
	for _, rank := range r.Ranks {
		fmt.Fprintln(h, rank.Host, rank.PID, rank.Bus)
	}
	if len(r.Ranks) == 0 {
		fmt.Fprintln(h, path)
	}
	if len(r.Rows) > 0 {
		row := &r.Rows[0]
		m := row.OutOfPlace
		if m == nil {
			m = row.InPlace
		}
		fmt.Fprintln(h, row.Size, printed(m.Seconds*1e6))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// printed is a number as the table has it, in seven places; a report has more of it.
func printed(v float64) string {
	decimals := 2
	for most := 1e4; v >= most && decimals > 0; most *= 10 {
		decimals--
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// record is a run in the words of the contract, without its names and times.
func record(r *Result, log *Log, names func(string) string) *event.Benchmark {
	b := &event.Benchmark{
		Source: event.SourceNCCLTests, Operation: operation(r), Version: r.Version, WrongTotal: r.OutOfBounds, Passed: r.Passed,
		Truncated: r.Truncated, Failure: r.Failure, MultiNodeNvlink: joined(r, log),
	}
	domains := log.Domains()
	gpus := map[string]bool{}
	for i, rank := range r.Ranks {
		node := names(rank.Host)
		if i == 0 {
			b.GpuModel = rank.Model
		} else if rank.Model != b.GpuModel {
			b.GpuModel = ""
		}
		at := slices.Index(b.Node, node)
		if at < 0 {
			at = len(b.Node)
			domain := domains[rank.Host]
			if strings.HasPrefix(domain, "node:") {
				domain = ""
			}
			b.Node, b.NodeGpus, b.NodeClusterUuid = append(b.Node, node), append(b.NodeGpus, 0), append(b.NodeClusterUuid, domain)
		}
		if gpu := node + " " + rank.Bus; !gpus[gpu] { // several ranks may share one
			gpus[gpu] = true
			b.NodeGpus[at]++
		}
	}
	for _, row := range r.Rows {
		for i, m := range []*Measure{row.OutOfPlace, row.InPlace} {
			if m == nil {
				continue
			}
			b.SizeBytes = append(b.SizeBytes, uint64(max(0, row.Size)))
			b.InPlace = append(b.InPlace, i == 1)
			b.DataType = append(b.DataType, row.Type)
			b.Reduction = append(b.Reduction, row.Op)
			b.Seconds = append(b.Seconds, m.Seconds)
			b.AlgorithmBytesPerSecond = append(b.AlgorithmBytesPerSecond, m.AlgBytesPerSecond)
			b.BusBytesPerSecond = append(b.BusBytesPerSecond, m.BusBytesPerSecond)
			b.WrongValues = append(b.WrongValues, m.Wrong)
		}
	}
	return b
}

// operation is the collective as the contract calls it. An output that does not name it may still give away an all-reduce:
// no other has its ratio of bus bandwidth to algorithm bandwidth.
func operation(r *Result) string {
	if r.Collective != "" {
		return strings.TrimSuffix(r.Collective, "_perf")
	}
	factor, _ := BusFactor("all_reduce", len(r.Ranks))
	if len(r.Ranks) < 3 || len(r.Rows) == 0 {
		return unknownOperation
	}
	for _, row := range r.Rows {
		for _, m := range []*Measure{row.OutOfPlace, row.InPlace} {
			if m != nil && !(math.Abs(m.BusBytesPerSecond/m.AlgBytesPerSecond/factor-1) <= 0.01) {
				return unknownOperation
			}
		}
	}
	return "all_reduce"
}

// joined says whether NCCL joined the nodes of a run by NVLink: what the communicators of its processes say that hold all
// ranks. nil = no line tells.
func joined(r *Result, log *Log) *bool {
	type process struct {
		host string
		pid  int
	}
	mine := map[process]bool{}
	for _, rank := range r.Ranks {
		mine[process{rank.Host, rank.PID}] = true
	}
	var out *bool
	for _, c := range log.Comms {
		if c.MNNVL != nil && c.Ranks == len(r.Ranks) && mine[process{c.Host, c.PID}] && (out == nil || *out) {
			out = c.MNNVL
		}
	}
	return out
}

// ended says whether all runs of a file are over: an output that goes on is not read yet.
func ended(records []*event.Benchmark) bool {
	return !slices.ContainsFunc(records, func(b *event.Benchmark) bool { return b.Truncated && b.Failure == "" })
}

// settled says whether a file has stood still for so long that its run is over, one way or the other.
func settled(b *event.Benchmark, now time.Time, settle time.Duration) bool {
	return now.Sub(time.UnixMilli(b.ObservedAtMs)) >= settle
}
