package slurmjson

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// job reads one job of any flavour and version. A member that both flavours have with different shapes is told apart by
// its shape, so no version switch is needed. Each part of a job reads the members that are its own.
func (r *reader) job() *Job {
	j := &Job{}
	r.object(func(key string) {
		if !(r.jobIdentity(j, key) || r.jobOwner(j, key) || r.jobState(j, key) || r.jobTimes(j, key) || r.jobNodes(j, key) || r.jobRequest(j, key)) {
			r.skip()
		}
	})
	// Printed as 0 for jobs that have none.
	if j.HetJobID == 0 {
		j.HetOffset = nil
	}
	if j.ArrayJobID == 0 {
		j.ArrayTaskID = nil
	}
	return j
}

// jobIdentity reads which job and which run of it this is. It reports whether the member was one of these, as the other
// parts do.
func (r *reader) jobIdentity(j *Job, key string) bool {
	switch key {
	case "cluster":
		j.Cluster = r.word()
	case "job_id":
		j.JobID = r.jobID()
	case "step_id": // v0.0.44
		r.object(func(key string) {
			if key == "sluid" {
				j.SLUID = r.str()
			} else {
				r.skip()
			}
		})
	case "sluid":
		j.SLUID = r.str()
	case "original_sluid":
		j.OriginalSLUID = r.str()
	case "restart_cnt":
		j.RestartCnt = r.u32()

	case "array_job_id":
		j.ArrayJobID = r.id()
	case "array_task_id":
		j.ArrayTaskID = r.u32()
	case "array_task_string":
		j.ArrayTaskString = r.str()
	case "array":
		r.object(func(key string) {
			switch key {
			case "job_id":
				j.ArrayJobID = r.id()
			case "task_id":
				j.ArrayTaskID = r.u32()
			case "task":
				j.ArrayTaskString = r.str()
			default:
				r.skip()
			}
		})
	case "het_job_id":
		j.HetJobID = r.id()
	case "het_job_offset":
		j.HetOffset = r.u32()
	case "het_job_id_set":
		j.HetSet = r.str()
	case "het":
		r.object(func(key string) {
			switch key {
			case "job_id":
				j.HetJobID = r.id()
			case "job_offset":
				j.HetOffset = r.u32()
			default:
				r.skip()
			}
		})
	default:
		return false
	}
	return true
}

// jobOwner reads whose job it is, under what it runs, and what people say of it.
func (r *reader) jobOwner(j *Job, key string) bool {
	switch key {
	case "name":
		j.Name = r.str()
	case "user_name", "user":
		j.User = r.word()
	case "account":
		j.Account = r.word()
	case "partition":
		j.Partition = r.word()
	case "qos":
		j.QOS = r.word()
	case "priority":
		j.Priority = r.u32()
	case "resv_name":
		j.Reservation = r.word()
	case "reservation":
		r.object(func(key string) {
			if key == "name" {
				j.Reservation = r.word()
			} else {
				r.skip()
			}
		})
	case "comment": // an object in accounting
		if r.kind() != '{' {
			j.Comment = r.str()
			break
		}
		r.object(func(key string) {
			switch key {
			case "job":
				j.Comment = r.str()
			case "administrator":
				j.AdminComment = r.str()
			default:
				r.skip()
			}
		})
	case "admin_comment":
		j.AdminComment = r.str()
	default:
		return false
	}
	return true
}

// jobState reads how the job is, or how it ended.
func (r *reader) jobState(j *Job, key string) bool {
	switch key {
	case "job_state":
		j.States = r.words()
	case "state": // an object in accounting, a list in jobs/state
		if r.kind() != '{' {
			j.States = r.words()
			break
		}
		j.Accounting = true
		r.object(func(key string) {
			switch key {
			case "current":
				j.States = r.words()
			case "reason":
				j.StateReason = r.word()
			default:
				r.skip()
			}
		})
	case "state_reason":
		j.StateReason = r.word()
	case "state_description":
		j.StateDescription = r.str()
	case "exit_code":
		j.ExitCode = r.exitCode()
	default:
		return false
	}
	return true
}

// jobTimes reads when what happened to it, or may.
func (r *reader) jobTimes(j *Job, key string) bool {
	switch key {
	case "submit_time":
		j.Submit = r.time()
	case "eligible_time":
		j.Eligible = r.time()
	case "start_time":
		j.Start = r.time()
	case "end_time":
		j.End = r.time()
	case "suspend_time":
		j.Suspend = r.time()
	case "resize_time":
		j.Resize = r.time()
	case "preempt_time":
		j.Preempt = r.time()
	case "preemptable_time":
		j.Preemptable = r.time()
	case "pre_sus_time": // seconds, although typed as a time
		if n := r.number(); n.set {
			j.PreSusSeconds = &n.n
		}
	case "time_limit":
		j.TimeLimit = r.limit(time.Minute)
	case "time":
		j.Accounting = true
		r.object(func(key string) {
			switch key {
			case "submission":
				j.Submit = r.time()
			case "eligible":
				j.Eligible = r.time()
			case "start":
				j.Start = r.time()
			case "end":
				j.End = r.time()
			case "limit":
				j.TimeLimit = r.limit(time.Minute)
			default:
				r.skip()
			}
		})
	default:
		return false
	}
	return true
}

// jobNodes reads where it runs, and where it may.
func (r *reader) jobNodes(j *Job, key string) bool {
	switch key {
	case "nodes":
		j.Nodes = hostlistOrNone(r.str())
	case "scheduled_nodes":
		j.ScheduledNodes = hostlistOrNone(r.str())
	case "required_nodes":
		j.RequiredNodes = hostlistOrNone(r.str())
	case "excluded_nodes":
		j.ExcludedNodes = hostlistOrNone(r.str())
	case "node_count", "allocation_nodes":
		j.NodeCount = r.u32()
	case "gres_detail":
		j.GresDetail = r.words()
	case "job_resources":
		r.jobResources(j)
	default:
		return false
	}
	return true
}

// jobRequest reads what was asked for and what of it was given: TRES, topology and sharing.
func (r *reader) jobRequest(j *Job, key string) bool {
	switch key {
	case "tres_req_str":
		j.TresReq = r.str()
	case "tres_alloc_str":
		j.TresAlloc = r.str()
	case "tres":
		r.object(func(key string) {
			switch key {
			case "requested":
				j.TresReq = r.tresList()
			case "allocated":
				j.TresAlloc = r.tresList()
			default:
				r.skip()
			}
		})
	case "tres_per_job":
		j.TresPerJob = r.word()
	case "tres_per_node":
		j.TresPerNode = r.word()
	case "tres_per_socket":
		j.TresPerSocket = r.word()
	case "tres_per_task":
		j.TresPerTask = r.word()

	case "segment_size":
		j.SegmentSize = r.u32()
	case "required_switches", "minimum_switches": // the second up to v0.0.41
		j.RequiredSwitches = r.u32()
	case "maximum_switch_wait_time":
		if l := r.limit(time.Second); l.Set && !l.Infinite {
			j.MaxSwitchWait = &l.Duration
		}
	case "flags":
		j.Flags = r.words()
	case "exclusive":
		if w := r.words(); len(w) > 0 {
			j.Exclusive = exclusiveWord(w[0])
		}
	case "shared": // v0.0.40 to v0.0.44: only some of its words say how exclusive the job is
		for _, w := range r.words() {
			if w = strings.ToUpper(w); w == "USER" || w == "MCS" || w == "TOPO" {
				j.Exclusive = w
			}
		}
	case "network":
		j.Network = r.word()
	default:
		return false
	}
	return true
}

// hostlistOrNone returns "" for the texts Slurm prints where there is no node list.
func hostlistOrNone(s string) string {
	if s == "None assigned" || s == "(null)" {
		return ""
	}
	return s
}

// exclusiveWord turns the words of old versions into those of the new ones.
func exclusiveWord(w string) string {
	switch w = strings.ToUpper(w); w {
	case "TRUE", "YES":
		return "NODE"
	case "FALSE":
		return "NO"
	}
	return w
}

// jobID reads a job id. jobs/state prints strings: "9", the array task "9_0", the component "8+1", all led by the job's
// own id.
func (r *reader) jobID() uint32 {
	if r.kind() != '"' {
		return r.id()
	}
	b, _ := r.text()
	end := 0
	for end < len(b) && '0' <= b[end] && b[end] <= '9' {
		end++
	}
	n, err := strconv.ParseUint(string(b[:end]), 10, 32)
	if err != nil {
		r.note()
	}
	return uint32(n)
}

// jobResources reads the node names and passes over the cores. Up to v0.0.40 "nodes" is a hostlist and the nodes are in
// "allocated_nodes", a list or an object by index; from v0.0.41 on "nodes" is an object with an "allocation" list.
func (r *reader) jobResources(j *Job) {
	name := func() {
		r.object(func(key string) {
			if key == "name" || key == "nodename" {
				j.AllocNodeNames = append(j.AllocNodeNames, r.word())
			} else {
				r.skip()
			}
		})
	}
	r.object(func(key string) {
		switch key {
		case "nodes":
			if r.kind() != '{' {
				r.skip()
				return
			}
			r.object(func(key string) {
				switch key {
				case "whole":
					j.WholeNodes = new(r.boolean())
				case "allocation":
					r.array(name)
				default:
					r.skip()
				}
			})
		case "allocated_nodes":
			if r.kind() == '{' {
				r.object(func(string) { name() })
			} else {
				r.array(name)
			}
		default:
			r.skip()
		}
	})
}

// tresList writes accounting's list of TRES in the string form of the polls.
func (r *reader) tresList() string {
	var b []byte
	r.array(func() {
		var kind, name string
		var count number
		r.object(func(key string) {
			switch key {
			case "type":
				kind = r.word()
			case "name":
				name = r.word()
			case "count":
				count = r.number()
			default:
				r.skip()
			}
		})
		if kind == "" || !count.set {
			return
		}
		if len(b) > 0 {
			b = append(b, ',')
		}
		b = append(b, kind...)
		if name != "" {
			b = append(append(b, '/'), name...)
		}
		b = strconv.AppendUint(append(b, '='), count.n, 10)
		if kind == "mem" {
			b = append(b, 'M')
		}
	})
	return r.share(b)
}

// exitCode reads the object of v0.0.40 and later, or the wait status before.
func (r *reader) exitCode() ExitCode {
	var e ExitCode
	if r.kind() != '{' {
		if n := r.number(); n.set && n.n <= math.MaxUint16 {
			e.ReturnCode, e.Signal = new(uint32(n.n>>8)), new(uint32(n.n&0x7f))
		}
		return e
	}
	r.object(func(key string) {
		switch key {
		case "status":
			if w := r.words(); len(w) > 0 {
				e.Status = w[0]
			}
		case "return_code":
			e.ReturnCode = r.u32()
		case "signal":
			if r.kind() != '{' {
				e.Signal = r.u32()
				return
			}
			r.object(func(key string) {
				if key == "id" || key == "signal_id" {
					e.Signal = r.u32()
				} else {
					r.skip()
				}
			})
		default:
			r.skip()
		}
	})
	return e
}

func (r *reader) node() *Node {
	n := &Node{}
	var flags []string
	r.object(func(key string) {
		switch key {
		case "cluster_name":
			n.Cluster = r.word()
		case "name":
			n.Name = r.word()
		case "state":
			n.States = r.words()
		case "state_flags": // v0.0.39 prints the flags apart
			flags = r.words()
		case "reason":
			n.Reason = r.word()
		case "gres":
			n.Gres = r.word()
		case "gres_used":
			n.GresUsed = r.word()
		case "gres_drained":
			n.GresDrained = r.word()
		case "topology":
			n.Topology = r.word()
		case "partitions":
			n.Partitions = r.words()
		case "active_features":
			n.Features = r.words()
		case "reservation":
			n.Reservation = r.word()
		case "cpus":
			n.CPUs = r.u32()
		case "tres":
			n.Tres = r.word()
		case "tres_used":
			n.TresUsed = r.word()
		case "version":
			n.Version = r.word()
		default:
			r.skip()
		}
	})
	n.States = append(n.States, flags...)
	return n
}
