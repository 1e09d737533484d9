package policysim

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spillway-io/spillway/query/advise"
)

// columns are those a trace begins with, in this order; times are seconds from the trace's own zero.
var columns = []string{"job_id", "submit", "start", "end", "gpus", "nodes", "type", "state"}

// ReadTrace reads jobs from CSV, gzipped or not, with the columns job_id, submit, start, end, gpus, nodes, type and state.
// type is allreduce, alltoall or insensitive; any other is taken as unknown. Rows without a start or an end, or without
// GPUs, say nothing about a run time: they are left out and counted. The hosts and queueing of the trace are not used.
func ReadTrace(from io.Reader) (jobs []Job, left int, err error) {
	buffered := bufio.NewReader(from)
	var r io.Reader = buffered
	if magic, _ := buffered.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		if r, err = gzip.NewReader(buffered); err != nil {
			return nil, 0, fmt.Errorf("reading the trace: %w: give CSV or gzipped CSV", err)
		}
	}
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err != nil {
		return nil, 0, fmt.Errorf("reading the trace's header: %w: it must begin %v", err, columns)
	}
	if len(header) < len(columns) || !slices.Equal(header[:len(columns)], columns) {
		return nil, 0, fmt.Errorf("reading the trace's header: columns %v: they must begin %v", header, columns)
	}
	first := int64(0)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reading the trace: %w: correct or remove the row", err)
		}
		line, _ := rows.FieldPos(0)
		var n [4]int64 // submit, start, end, gpus
		known := true
		for i := range n {
			text := row[i+1]
			if text == "" {
				known = false
				continue
			}
			if n[i], err = strconv.ParseInt(text, 10, 64); err != nil || n[i] < 0 || n[i] > 1<<40 {
				return nil, 0, fmt.Errorf("reading the trace, line %d, %s %q: give a whole number of seconds or GPUs, or leave it empty", line, columns[i+1], text)
			}
		}
		if !known || n[2] <= n[1] || n[3] < 1 || n[3] > 1<<20 {
			left++
			continue
		}
		jobs = append(jobs, Job{ID: fmt.Sprintf("%s@%d", row[0], line), Submit: n[0], GPUs: int32(n[3]), Run: n[2] - n[1], Traffic: trafficOf(row[6])})
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return int(a.Submit - b.Submit) })
	if len(jobs) > 0 {
		first = jobs[0].Submit
	}
	for i := range jobs {
		jobs[i].Submit -= first
	}
	return jobs, left, nil
}

func trafficOf(kind string) advise.Traffic {
	switch kind {
	case "allreduce":
		return advise.Traffic{Pattern: advise.AllReduce, Share: ringTraffic}
	case "alltoall":
		return advise.Traffic{Pattern: advise.AllToAll, Share: allTraffic}
	case "insensitive":
		return advise.Traffic{Pattern: advise.PatternNone}
	}
	return advise.Traffic{Share: ringTraffic}
}
