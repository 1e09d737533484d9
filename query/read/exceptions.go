package read

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// Exceptions are the running jobs whose life-cycle facts do not fit together, and those that vanished lately.
type Exceptions struct {
	At         time.Time        `json:"at"`
	Exceptions []Exception      `json:"exceptions" doc:"Longest first; at most 1000 of each cluster and kind."`
	Totals     []ExceptionTotal `json:"totals" doc:"How many there are of each cluster and kind that has any, and how many of them are listed."`
	Freshness  Freshness        `json:"freshness"`
}

// ExceptionTotal counts the exceptions of one kind in one cluster. Where Listed is less than Total, the list is cut.
type ExceptionTotal struct {
	Cluster string `json:"cluster"`
	Kind    string `json:"kind"`
	Total   uint64 `json:"total"`
	Listed  uint64 `json:"listed"`
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
	Total        uint64    `json:"-" ch:"total"` // of its cluster and kind
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
	all    atomic.Pointer[Exceptions]
	asking chan struct{} // holds one while the store is asked: the others wait for that answer
}

// exceptionsEvery bounds how old an answer may be: none of the kinds is a matter of seconds.
const exceptionsEvery = 10 * time.Second

// exceptionsMost is how many of one cluster and kind are listed: each kind and cluster is seen, whatever another has.
const exceptionsMost = 1000

// Exceptions lists what does not fit in the life cycle of the jobs of a cluster (empty = all), at most exceptionsEvery old.
func (r *Reader) Exceptions(ctx context.Context, cluster string) (*Exceptions, error) {
	all, err := r.allExceptions(ctx)
	if err != nil {
		return nil, err
	}
	out := &Exceptions{At: all.At, Exceptions: []Exception{}, Totals: []ExceptionTotal{}}
	for _, e := range all.Exceptions {
		if event.Covers(cluster, e.Cluster) {
			out.Exceptions = append(out.Exceptions, e)
		}
	}
	for _, t := range all.Totals {
		if event.Covers(cluster, t.Cluster) {
			out.Totals = append(out.Totals, t)
		}
	}
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

// allExceptions gives what is remembered while it is young, and asks the store after that.
func (r *Reader) allExceptions(ctx context.Context) (*Exceptions, error) {
	m := r.exceptions
	young := func() *Exceptions {
		if all := m.all.Load(); all != nil && r.now().Sub(all.At) < exceptionsEvery {
			return all
		}
		return nil
	}
	if all := young(); all != nil {
		return all, nil
	}
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the exceptions that another asks for: %w; ask again", ctx.Err())
	}
	if all := young(); all != nil {
		return all, nil
	}
	now := r.now()
	got, err := rows[Exception](ctx, r, "exceptions", params{}.time("now", now).time("since", now.Add(-vanishedFor)).
		uint("completing_s", uint64(completingLong.Seconds())).uint("settle_s", uint64(settleTime.Seconds())).
		uint("overrun_s", uint64(overrunGrace.Seconds())).uint("most", exceptionsMost))
	if err != nil {
		return nil, err
	}
	all := &Exceptions{At: now, Exceptions: got}
	at := map[[2]string]int{}
	for i := range got {
		e := &got[i]
		kind := ExceptionKinds[e.Kind]
		e.Severity, e.Meaning = kind.Severity, kind.Meaning
		n, known := at[[2]string{e.Cluster, e.Kind}]
		if !known {
			n = len(all.Totals)
			at[[2]string{e.Cluster, e.Kind}] = n
			all.Totals = append(all.Totals, ExceptionTotal{Cluster: e.Cluster, Kind: e.Kind, Total: e.Total})
		}
		all.Totals[n].Listed++
	}
	m.all.Store(all)
	return all, nil
}
