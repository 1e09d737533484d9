package read

import (
	"context"
	"sync"
	"time"
)

// Exceptions are the running jobs whose life-cycle facts do not fit together, and those that vanished lately.
type Exceptions struct {
	At         time.Time   `json:"at"`
	Exceptions []Exception `json:"exceptions" doc:"Longest first; at most 5000."`
	Freshness  Freshness   `json:"freshness"`
}

// Exception is one job and one thing that does not fit.
type Exception struct {
	Cluster      string    `json:"cluster" ch:"cluster"`
	Kind         string    `json:"kind" ch:"kind" enum:"completing_long,node_down,node_draining,overbooked,domain_changed,node_replaced,past_limit,vanished"`
	Severity     string    `json:"severity" ch:"-" enum:"warning,info" doc:"warning: somebody should look; info: it explains what is seen elsewhere."`
	JobID        string    `json:"job_id" ch:"job_id"`
	Attempt      uint32    `json:"attempt" ch:"number"`
	Name         string    `json:"name" ch:"name"`
	User         string    `json:"user" ch:"user"`
	Account      string    `json:"account" ch:"account"`
	Queue        string    `json:"queue" ch:"queue"`
	ServiceClass string    `json:"service_class" ch:"service_class"`
	GPUs         *uint32   `json:"gpus" ch:"gpus"`
	Since        time.Time `json:"since" ch:"since"`
	Nodes        []string  `json:"nodes" ch:"nodes" doc:"The nodes concerned; at most 10."`
	NodeCount    uint64    `json:"node_count" ch:"node_count"`
	Detail       string    `json:"detail" ch:"detail"`
	Meaning      string    `json:"meaning" ch:"-"`
}

// What is no exception yet: schedulers need a moment to clean up, and sources to agree.
const (
	completingLong = 5 * time.Minute
	settleTime     = 2 * time.Minute
	overrunGrace   = 10 * time.Minute
	vanishedFor    = time.Hour
)

// ExceptionKinds are all kinds with the severity and meaning of each.
var ExceptionKinds = map[string]struct{ Severity, Meaning string }{
	"completing_long": {"warning", "It has ended and its nodes are not given back: it blocks a slot. Look for a hanging epilog or a process that cannot be killed."},
	"node_down":       {"warning", "Its scheduler calls these nodes down, and the job still holds them: it is lost, or the node is not."},
	"node_draining":   {"info", "Its nodes take no new jobs: it runs on until its end, and the slot will not come back then."},
	"overbooked":      {"warning", "More GPUs of a node are held than it has: two jobs were given the same ones, or a source counts wrongly."},
	"domain_changed":  {"warning", "Nodes belong to another NVLink domain than when the job was placed: its verdict is of then, its traffic of now."},
	"node_replaced":   {"info", "Nodes were exchanged while it ran: it has one verdict for each placement."},
	"past_limit":      {"warning", "It holds its GPUs beyond its time limit: what was planned for then waits."},
	"vanished":        {"info", "Its scheduler no longer knows it and never told its end: GPU-hours up to the last word are certain, after that not."},
}

// exceptionMemory keeps the newest answer for all clusters: scrapes and people ask for the same.
type exceptionMemory struct {
	mu  sync.Mutex
	all *Exceptions
}

// exceptionsEvery bounds how old an answer may be: none of the kinds is a matter of seconds.
const exceptionsEvery = 10 * time.Second

// Exceptions lists what does not fit in the life cycle of the jobs of a cluster (empty = all), at most exceptionsEvery old.
func (r *Reader) Exceptions(ctx context.Context, cluster string) (*Exceptions, error) {
	m := r.exceptions
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := r.now(); m.all == nil || now.Sub(m.all.At) >= exceptionsEvery {
		got, err := rows[Exception](ctx, r, "exceptions", params{"cluster": ""}.time("now", now).time("since", now.Add(-vanishedFor)).
			uint("completing_s", uint64(completingLong.Seconds())).uint("settle_s", uint64(settleTime.Seconds())).
			uint("overrun_s", uint64(overrunGrace.Seconds())))
		if err != nil {
			return nil, err
		}
		for i := range got {
			kind := ExceptionKinds[got[i].Kind]
			got[i].Severity, got[i].Meaning = kind.Severity, kind.Meaning
		}
		m.all = &Exceptions{At: now, Exceptions: got}
	}
	out := &Exceptions{At: m.all.At, Exceptions: []Exception{}}
	for _, e := range m.all.Exceptions {
		if cluster == "" || e.Cluster == cluster {
			out.Exceptions = append(out.Exceptions, e)
		}
	}
	var err error
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}
