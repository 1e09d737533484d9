package nccl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// errCut is a report of the option -J that has no end: the run goes on, or died.
var errCut = errors.New("the report has no end: the run died, or it goes on")

// report is what nccl-tests writes with -J. Truth values are texts there, and a number that is none is the text nan.
type report struct {
	Args   []string `json:"args"`
	Config struct {
		Threads int `json:"nthreads"`
		GPUs    int `json:"ngpus"`
		Devices []struct {
			Rank   int    `json:"rank"`
			Group  int    `json:"group"`
			PID    int    `json:"pid"`
			Host   string `json:"hostname"`
			Device int    `json:"device"`
			Bus    string `json:"device_hex"`
			Model  string `json:"device_info"`
		} `json:"devices"`
	} `json:"config"`
	Results []struct {
		Size       int64          `json:"size"`
		Count      int64          `json:"count"`
		Type       string         `json:"type"`
		Op         string         `json:"redop"`
		Root       string         `json:"root"`
		OutOfPlace *reportMeasure `json:"out_of_place"`
		InPlace    *reportMeasure `json:"in_place"`
	} `json:"results"`
	OutOfBounds *struct {
		Count int64 `json:"count"`
	} `json:"out_of_bounds"`
	Average *struct {
		Bandwidth reportNumber `json:"bandwidth"`
		Okay      string       `json:"okay"`
	} `json:"average_bus_bandwidth"`
	Errors []*string `json:"errors"`
}

type reportMeasure struct {
	Time    *reportNumber `json:"time"`
	CPUTime *reportNumber `json:"cpu_time"`
	Alg     reportNumber  `json:"alg_bw"`
	Bus     reportNumber  `json:"bus_bw"`
	Wrong   *reportNumber `json:"nwrong"` // null = not checked
}

// reportNumber is a number, or the text nan.
type reportNumber float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *reportNumber) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*n = reportNumber(v)
	return err
}

// isReport says whether a text is a report, and not an output for people.
func isReport(text string) bool { return strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") }

// ParseReport reads the report of one run that nccl-tests writes with its option -J. It says which collective ran by the
// name of the program, and of each process the first GPU alone.
func ParseReport(r io.Reader) (*Result, error) {
	var rep report
	dec := json.NewDecoder(r)
	if err := dec.Decode(&rep); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errCut
		}
		return nil, fmt.Errorf("the text is no report of nccl-tests: %w", err)
	}
	perProcess := rep.Config.Threads * rep.Config.GPUs
	if len(rep.Args) == 0 || perProcess < 1 || perProcess > 1024 || len(rep.Config.Devices) == 0 {
		return nil, errors.New("the text is no report of nccl-tests: it has no args, or no config with devices")
	}
	out := &Result{Collective: program(filepath.Base(rep.Args[0])), Average: math.NaN(), Truncated: rep.Average == nil}
	for _, d := range rep.Config.Devices {
		for i := range perProcess {
			rank := Rank{Rank: d.Rank + i, Group: d.Group, PID: d.PID, Host: d.Host, Device: d.Device + i, Bus: d.Bus, Model: d.Model}
			if i > 0 {
				rank.Bus = fmt.Sprintf("%s+%d", d.Bus, i) // another one, which the report leaves out
			}
			out.Ranks = append(out.Ranks, rank)
		}
	}
	for _, row := range rep.Results {
		if row.Size < 0 {
			out.Malformed++
			continue
		}
		r := Row{Size: row.Size, Count: row.Count, Type: row.Type, Op: row.Op, Root: -1, OutOfPlace: row.OutOfPlace.measure(), InPlace: row.InPlace.measure()}
		if r.Op == "none" {
			r.Op = ""
		}
		if n, err := strconv.Atoi(strings.TrimSpace(row.Root)); err == nil {
			r.Root = n
		}
		if r.OutOfPlace == nil && r.InPlace == nil {
			out.Malformed++
			continue
		}
		out.Rows = append(out.Rows, r)
	}
	if rep.OutOfBounds != nil {
		out.OutOfBounds = &rep.OutOfBounds.Count
	}
	if rep.Average != nil {
		out.Average = float64(rep.Average.Bandwidth) * 1e9
		if passed, err := strconv.ParseBool(rep.Average.Okay); err == nil { // else it is unchecked
			out.Passed = &passed
		}
	}
	for _, e := range rep.Errors {
		if e != nil && *e != "" && out.Failure == "" {
			out.Failure = *e
		}
	}
	return out, nil
}

// measure is nil for what was not measured.
func (m *reportMeasure) measure() *Measure {
	if m == nil {
		return nil
	}
	time := m.Time
	if time == nil {
		time = m.CPUTime
	}
	if time == nil {
		return nil
	}
	out := &Measure{Seconds: float64(*time) / 1e6, AlgBytesPerSecond: float64(m.Alg) * 1e9, BusBytesPerSecond: float64(m.Bus) * 1e9, Wrong: math.NaN()}
	if m.Wrong != nil {
		out.Wrong = float64(*m.Wrong)
	}
	for _, v := range []float64{out.Seconds, out.AlgBytesPerSecond, out.BusBytesPerSecond} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return nil
		}
	}
	if out.Wrong < 0 || math.IsInf(out.Wrong, 0) {
		out.Wrong = math.NaN()
	}
	return out
}
