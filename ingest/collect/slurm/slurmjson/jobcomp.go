package slurmjson

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// CompletionKind is what a message of the jobcomp/kafka plugin tells.
type CompletionKind string

const (
	// JobStarted is the start of a run; Slurm 25.05 and later, where enable_job_start is set.
	JobStarted CompletionKind = "start"
	// JobFinished is the end of the job's last run.
	JobFinished CompletionKind = "finish"
	// JobRequeued is the end of a run that another run of the same job follows. It comes as a finish in state PENDING.
	JobRequeued CompletionKind = "requeue"
	// JobResized is the end of the interval before a size change. It comes as a finish in state RESIZING, and later messages
	// of the run have the time of the change as their Start.
	JobResized CompletionKind = "resize"
)

// Completion is one message of the jobcomp/kafka plugin.
type Completion struct {
	Kind CompletionKind
	// Job has what the message tells: never GRES indices, node names only as a hostlist, no restart count. A job cancelled
	// while pending has no Nodes, and Start equal to End.
	Job *Job
	// Topic, Partition, Offset and Time are Kafka's, known only from the wrapped form.
	Topic             string
	Partition, Offset int64
	Time              time.Time
	// Unread counts the values whose shape the decoder does not know, by path. Their fields are absent.
	Unread map[string]int

	ended bool // the message has one of the members that only a finish has
}

// DecodeCompletion decodes one Kafka message. start says that it came from the topic of starts: the message itself does not
// say what it is.
func DecodeCompletion(value []byte, start bool) (*Completion, error) {
	r := newReader(bytes.NewBuffer(value))
	c := &Completion{}
	r.completion(c)
	return c, r.finishCompletion(c, start)
}

// DecodeRecordedCompletion decodes one line of a recording, {"topic":…,"partition":…,"offset":…,"ts_ms":…,"value":{…}}.
// startTopic is the topic of starts; "" takes every topic that ends in "job-start", Slurm's default.
func DecodeRecordedCompletion(line []byte, startTopic string) (*Completion, error) {
	r := newReader(bytes.NewBuffer(line))
	c := &Completion{}
	r.object(func(key string) {
		switch key {
		case "topic":
			c.Topic = r.str()
		case "partition":
			c.Partition = int64(r.number().n)
		case "offset":
			c.Offset = int64(r.number().n)
		case "ts_ms":
			if n := r.number(); n.n > 0 && n.n < maxTime*1000 {
				c.Time = time.UnixMilli(int64(n.n)).UTC()
			}
		case "value":
			r.completion(c)
		default:
			r.skip()
		}
	})
	start := c.Topic == startTopic || startTopic == "" && strings.HasSuffix(c.Topic, "job-start")
	if r.err == nil && c.Job == nil {
		r.fail(errors.New("there is no value; a recording has one object with topic and value a line"))
	}
	return c, r.finishCompletion(c, start)
}

// finishCompletion checks what was read, and settles the kind.
func (r *reader) finishCompletion(c *Completion, start bool) error {
	r.end()
	if len(r.unread) > 0 {
		c.Unread = r.unread
	}
	state := ""
	if c.Job != nil && len(c.Job.States) > 0 {
		state = c.Job.States[0]
	}
	switch {
	case r.err != nil:
	case c.Job.JobID == 0:
		r.err = errors.New("there is no jobid")
	case start && c.ended:
		r.err = errors.New("the topic is for starts, but the message is a finish; check topic_job_start in Slurm's JobCompParams against the collector's topics")
	case !start && !c.ended:
		r.err = errors.New("the topic is for finishes, but the message is a start; check topic_job_start in Slurm's JobCompParams against the collector's topics")
	case start:
		c.Kind = JobStarted
	case state == "PENDING":
		c.Kind = JobRequeued
	case state == "RESIZING":
		c.Kind = JobResized
	case state == "":
		r.err = errors.New("a finish without a state")
	default:
		c.Kind = JobFinished
	}
	if r.err != nil {
		return fmt.Errorf("read job completion message at byte %d: %w", r.at, r.err)
	}
	return nil
}

func (r *reader) completion(c *Completion) {
	j := &Job{}
	c.Job = j
	r.object(func(key string) {
		switch key {
		case "jobid":
			j.JobID = r.id()
		case "sluid":
			j.SLUID = r.str()
		case "original_sluid":
			j.OriginalSLUID = r.str()
		case "cluster":
			j.Cluster = r.str()
		case "array_job_id":
			j.ArrayJobID = r.id()
		case "array_task_id":
			j.ArrayTaskID = r.u32()
		case "het_job_id":
			j.HetJobID = r.id()
		case "het_job_offset":
			j.HetOffset = r.u32()
		case "job_name":
			j.Name = r.str()
		case "username":
			j.User = r.str()
		case "account":
			j.Account = r.str()
		case "partition":
			j.Partition = r.str()
		case "qos":
			j.QOS = r.str()
		case "reservation_name":
			j.Reservation = r.str()
		case "state":
			j.States = r.words()
		case "@submit":
			j.Submit = r.clock()
		case "@eligible":
			j.Eligible = r.clock()
		case "@start":
			j.Start = r.clock()
		case "@end":
			c.ended = true
			j.End = r.clock()
		case "elapsed", "derived_ec":
			c.ended = true
			r.skip()
		case "exit_code":
			c.ended = true
			j.ExitCode = r.exitPair()
		case "time_limit":
			j.TimeLimit = r.limitSeconds()
		case "nodes":
			j.Nodes = hostlistOrNone(r.str())
		case "excluded_nodes":
			j.ExcludedNodes = hostlistOrNone(r.str())
		case "total_nodes":
			j.NodeCount = r.u32()
		case "tres_req":
			j.TresReq = r.str()
		case "tres_alloc":
			j.TresAlloc = r.str()
		case "comment":
			j.Comment = r.str()
		case "admin_comment":
			j.AdminComment = r.str()
		default:
			r.skip()
		}
	})
	if j.HetJobID == 0 {
		j.HetOffset = nil // printed as 0 for jobs that are not heterogeneous
	}
	if j.ArrayJobID == 0 {
		j.ArrayTaskID = nil
	}
}

// clock reads a time of the messages: UTC, without a zone.
func (r *reader) clock() time.Time {
	s := r.str()
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse("2006-01-02T15:04:05", strings.TrimSuffix(s, "Z"))
	if err != nil {
		r.fail(fmt.Errorf("time %q is not of the form 2006-01-02T15:04:05", s))
	}
	return t
}

// exitPair reads "code:signal".
func (r *reader) exitPair() ExitCode {
	s := r.str()
	if s == "" {
		return ExitCode{}
	}
	code, signal, _ := strings.Cut(s, ":")
	c, err1 := strconv.ParseUint(code, 10, 32)
	g, err2 := strconv.ParseUint(signal, 10, 32)
	if err1 != nil || err2 != nil {
		r.note()
		return ExitCode{}
	}
	return ExitCode{ReturnCode: new(uint32(c)), Signal: new(uint32(g))}
}

// century is longer than any time limit.
const century = 100 * 365 * 24 * 3600

// limitSeconds reads a time limit in seconds. Slurm multiplies its minutes without looking whether they are "no value" or
// "infinite", so more than a century is no limit that anyone set.
func (r *reader) limitSeconds() Limit {
	n := r.number()
	if n.n > century || !n.set {
		return Limit{Set: n.infinite, Infinite: n.infinite}
	}
	return Limit{Set: true, Duration: time.Duration(n.n) * time.Second}
}
