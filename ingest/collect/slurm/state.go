package slurm

import (
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// endings are the base states of a job that has ended.
var endings = map[string]event.State{
	"COMPLETED":     event.State_COMPLETED,
	"CANCELLED":     event.State_CANCELLED,
	"FAILED":        event.State_FAILED,
	"OUT_OF_MEMORY": event.State_FAILED,
	"TIMEOUT":       event.State_TIMEOUT,
	"DEADLINE":      event.State_TIMEOUT,
	"NODE_FAIL":     event.State_NODE_FAIL,
	"BOOT_FAIL":     event.State_NODE_FAIL,
	"PREEMPTED":     event.State_PREEMPTED,
}

// jobState is what the state words of a job say.
type jobState struct {
	state event.State // UNSPECIFIED: the words are not known
	// ending is how a run that is COMPLETING ended; UNSPECIFIED if the words do not say.
	ending event.State
	// requeued: the words COMPLETING and PENDING together. The record is still about the run that goes, but Slurm has
	// already counted the restart and put the time of the requeue, later the plan, into the start.
	requeued bool
	// interval: accounting closed one interval of a run that goes on with another size.
	interval bool
}

// readState maps the base state and the flags. GPUs are free only when the base state is an ending and COMPLETING is
// absent. accounting says that the record is about one run that may be over, where a poll is about the job as it is now.
func readState(words []string, accounting bool) jobState {
	base, flags := event.State_STATE_UNSPECIFIED, map[string]bool{}
	baseWord := ""
	for _, w := range words {
		w, _, _ = strings.Cut(w, " ") // "CANCELLED by 1000"
		switch end, ok := endings[w]; {
		case baseWord != "":
			flags[w] = true
		case ok:
			base, baseWord = end, w
		case w == "PENDING", w == "RUNNING", w == "SUSPENDED":
			base, baseWord = event.State(event.State_value[w]), w
		default:
			flags[w] = true
		}
	}
	switch {
	case flags["COMPLETING"]:
		s := jobState{state: event.State_COMPLETING, requeued: base == event.State_PENDING}
		if base.Ended() {
			s.ending = base
		} else if s.requeued {
			s.ending = event.State_REQUEUED
		}
		return s
	case base.Ended():
		return jobState{state: base}
	case flags["REQUEUED"] && accounting:
		return jobState{state: event.State_REQUEUED}
	case flags["RESIZING"] && accounting:
		return jobState{state: event.State_RUNNING, interval: true}
	case flags["REVOKED"]: // a sibling of the federation runs it
		return jobState{state: event.State_CANCELLED}
	case base == event.State_PENDING:
		return jobState{state: base}
	case flags["STOPPED"], base == event.State_SUSPENDED:
		return jobState{state: event.State_SUSPENDED}
	case base == event.State_RUNNING, flags["CONFIGURING"], flags["RESIZING"]:
		return jobState{state: event.State_RUNNING}
	}
	return jobState{}
}
