// Package prolog decodes what Slurm's Prolog and Epilog scripts are told, for the Slurm collector (sources into Kafka). It
// is the one source that names the GPUs of a job exactly when they are given and taken back. It reads bytes that a hook
// handed over; it runs nothing and looks nothing up.
package prolog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
)

// NodeEvent is one run of a Prolog or Epilog. What the environment does not say stays nil, "" or the zero time.
type NodeEvent struct {
	// Begin is true for a prolog, false for an epilog.
	Begin bool
	// Controller is true for PrologSlurmctld and EpilogSlurmctld, which speak for the whole job: no Node, no GPUs.
	Controller bool

	Cluster, Node string
	JobID         uint32
	// SLUID names the run; Slurm 25.11 and later.
	SLUID string
	// RestartCnt is the number of requeues before this run.
	RestartCnt *uint32
	// ArrayJobID and ArrayTaskID are told by the controller's scripts only.
	ArrayJobID  uint32
	ArrayTaskID *uint32
	HetJobID    uint32
	HetOffset   *uint32

	// Name is told by the controller's scripts only.
	Name, User, Account, Partition, QOS, Reservation string
	// Nodes is the hostlist of the whole job.
	Nodes     string
	NodeCount *uint32
	// GPUs are the indices of the job's GPUs on this node, from SLURM_JOB_GPUS: positions in gres.conf, not NVML indices.
	// CUDA_VISIBLE_DEVICES is not used, it may hold UUIDs. nil when the job has none on this node.
	GPUs []uint16

	// End is the limit of the run in a prolog, and the real end in an epilog.
	Start, End time.Time
	// Exclusive is NO, NODE, USER, MCS or TOPO.
	Exclusive string
	// ExitCode and Signal are told by epilogs only.
	ExitCode, Signal *uint32
}

// Decode reads one environment: a JSON object of its variables, lines of KEY=VALUE, or the same with NUL bytes between
// (env -0). Only the last two can be misread: a value with a line break looks like two lines, so a hook should send JSON
// or NUL bytes.
func Decode(b []byte) (*NodeEvent, error) {
	env, err := variables(b)
	if err != nil {
		return nil, fmt.Errorf("read job environment: %w", err)
	}
	e, err := fromEnvironment(env)
	if err != nil {
		return nil, fmt.Errorf("read job environment: %w", err)
	}
	return e, nil
}

// DecodeRecording reads many environments: one JSON object a line, or blocks of KEY=VALUE lines that each follow a line
// which begins with "==". An environment that cannot be read goes to yield as an error naming its line, and the next is
// read. An error of yield ends the reading.
func DecodeRecording(src io.Reader, yield func(*NodeEvent, error) error) error {
	sc := bufio.NewScanner(src)
	sc.Buffer(nil, 1<<20)
	var block []byte
	line, first := 0, 0
	flush := func() error {
		if len(bytes.TrimSpace(block)) == 0 {
			return nil
		}
		e, err := Decode(block)
		if err != nil {
			err = fmt.Errorf("recording at line %d: %w", first, err)
		}
		block = block[:0]
		return yield(e, err)
	}
	for sc.Scan() {
		line++
		header := bytes.HasPrefix(sc.Bytes(), []byte("=="))
		if header || bytes.HasPrefix(sc.Bytes(), []byte("{")) {
			if err := flush(); err != nil {
				return err
			}
		}
		if header {
			continue
		}
		if len(block) == 0 {
			first = line
		}
		block = append(append(block, sc.Bytes()...), '\n')
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read recording after line %d: %w", line, err)
	}
	return flush()
}

func variables(b []byte) (map[string]string, error) {
	env := map[string]string{}
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '{' {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		var vars map[string]any
		if err := dec.Decode(&vars); err != nil {
			return nil, fmt.Errorf("as JSON: %w; send one flat object of strings", err)
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("as JSON: more data follows the object; send one object")
		}
		for k, v := range vars {
			switch v := v.(type) {
			case string:
				env[k] = v
			case json.Number:
				env[k] = v.String()
			}
		}
		return env, nil
	}
	sep := "\n"
	if bytes.IndexByte(b, 0) >= 0 {
		sep = "\x00"
	}
	for kv := range strings.SplitSeq(string(b), sep) {
		if k, v, ok := strings.Cut(kv, "="); ok {
			env[k] = strings.TrimSuffix(v, "\r")
		}
	}
	return env, nil
}

func fromEnvironment(env map[string]string) (*NodeEvent, error) {
	e := &NodeEvent{
		Cluster: env["SLURM_CLUSTER_NAME"], Node: env["SLURMD_NODENAME"], SLUID: env["SLURM_JOB_SLUID"],
		Name: env["SLURM_JOB_NAME"], User: env["SLURM_JOB_USER"], Account: env["SLURM_JOB_ACCOUNT"], Partition: env["SLURM_JOB_PARTITION"],
		QOS: env["SLURM_JOB_QOS"], Reservation: env["SLURM_JOB_RESERVATION"], Nodes: env["SLURM_JOB_NODELIST"], Exclusive: env["SLURM_JOB_EXCLUSIVE"],
	}
	switch context := env["SLURM_SCRIPT_CONTEXT"]; context {
	case "prolog_slurmd":
		e.Begin = true
	case "epilog_slurmd":
	case "prolog_slurmctld":
		e.Begin, e.Controller = true, true
	case "epilog_slurmctld":
		e.Controller = true
	default:
		return nil, fmt.Errorf("SLURM_SCRIPT_CONTEXT is %q; call the hook from Prolog, Epilog, PrologSlurmctld or EpilogSlurmctld", context)
	}
	p := parser{env: env}
	if id := p.number("SLURM_JOB_ID"); id != nil {
		e.JobID = *id
	}
	e.RestartCnt = p.number("SLURM_JOB_RESTART_COUNT")
	if id := p.number("SLURM_ARRAY_JOB_ID"); id != nil {
		e.ArrayJobID = *id
		e.ArrayTaskID = p.number("SLURM_ARRAY_TASK_ID")
	}
	if id := p.number("SLURM_HET_JOB_ID"); id != nil {
		e.HetJobID = *id
		e.HetOffset = p.number("SLURM_HET_JOB_OFFSET")
	}
	e.NodeCount = p.number("SLURM_JOB_NUM_NODES")
	e.GPUs = p.indices("SLURM_JOB_GPUS")
	e.Start, e.End = p.time("SLURM_JOB_START_TIME"), p.time("SLURM_JOB_END_TIME")
	if !e.Begin {
		e.ExitCode, e.Signal = p.pair("SLURM_JOB_EXIT_CODE2")
	}
	switch {
	case p.err != nil:
		return nil, p.err
	case e.JobID == 0:
		return nil, errors.New("SLURM_JOB_ID is missing; send the whole environment of the script")
	case e.Node == "" && !e.Controller:
		return nil, errors.New("SLURMD_NODENAME is missing; send the whole environment of the script")
	}
	return e, nil
}

// parser reads variables; its first error sticks. A variable that is not set or empty has no value.
type parser struct {
	env map[string]string
	err error
}

func (p *parser) fail(key string) {
	if p.err == nil {
		p.err = fmt.Errorf("%s=%q cannot be read; send the variable as Slurm set it", key, p.env[key])
	}
}

func (p *parser) number(key string) *uint32 {
	s := p.env[key]
	if s == "" {
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		p.fail(key)
		return nil
	}
	if n >= 0xfffffffe { // Slurm's "no value" and "infinite"
		return nil
	}
	return new(uint32(n))
}

// time reads UNIX seconds.
func (p *parser) time(key string) time.Time {
	if n := p.number(key); n != nil && *n > 0 {
		return time.Unix(int64(*n), 0).UTC()
	}
	return time.Time{}
}

// pair reads "code:signal".
func (p *parser) pair(key string) (code, signal *uint32) {
	s := p.env[key]
	if s == "" {
		return nil, nil
	}
	a, b, _ := strings.Cut(s, ":")
	c, err1 := strconv.ParseUint(a, 10, 32)
	g, err2 := strconv.ParseUint(b, 10, 32)
	if err1 != nil || err2 != nil {
		p.fail(key)
		return nil, nil
	}
	return new(uint32(c)), new(uint32(g))
}

// indices reads "0,1" or "0-3".
func (p *parser) indices(key string) []uint16 {
	out, err := slurmjson.ParseIndex(p.env[key])
	if err != nil {
		p.fail(key)
	}
	return out
}
