package read

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/query/advise"
)

// Explanation is a verdict in words, three to eight lines, cause first.
type Explanation struct {
	Cluster   string    `json:"cluster"`
	JobID     string    `json:"job_id"`
	Attempt   uint32    `json:"attempt"`
	Outcome   *string   `json:"outcome"`
	Cause     *string   `json:"cause"`
	Lines     []string  `json:"lines"`
	Advice    *string   `json:"advice" doc:"What to submit next time; null when there is nothing to change."`
	Freshness Freshness `json:"freshness"`
}

// Explain puts one attempt of a job in words: every figure is the verdict's. The line to submit next time comes from
// the advisor and from nowhere else.
func Explain(job *Job, a Attempt, links advise.Links) Explanation {
	e := Explanation{Cluster: job.Cluster, JobID: job.JobID, Attempt: a.Attempt, Freshness: job.Freshness}
	say := func(format string, args ...any) { e.Lines = append(e.Lines, fmt.Sprintf(format, args...)) }
	who := fmt.Sprintf("job %s", job.JobID)
	if a.Name != "" {
		who += fmt.Sprintf(" (%s)", a.Name)
	}
	if a.Attempt > 0 {
		who += fmt.Sprintf(", attempt %d", a.Attempt)
	}
	v := a.Verdict
	switch {
	case a.Start == nil:
		e.pending(say, who, a)
		return e
	case v == nil:
		say("No verdict: %s holds no GPU that is known, so there is nothing to judge on NVLink.", who)
		say("State: %s; GPUs asked: %s; nodes asked: %s.", a.State, count(a.RequestedGPUs), count(a.RequestedNodes))
		say("If it should hold GPUs, check that the scheduler's GRES details reach the collector.")
		return e
	}
	e.Outcome, e.Cause = &v.Outcome, v.Cause
	size := count(v.GPUs) + " GPUs on " + plural(int(v.Nodes), "node")
	switch v.Outcome {
	case "spill":
		e.spill(say, who, size, a, links)
	case "unknown":
		say("Cannot say: %s, %s: %s", who, size, unknownWhy(*v))
		say("Known part: %s.", shapeText(v.Shape))
		say("This is neither a spill nor a clean placement. `spillway domains` and GET /v1/topology/health show which nodes have no domain.")
	default:
		say("No spill: %s runs %s.", who, placedText(*v, size))
		if v.DomainsUsed != nil && *v.DomainsUsed > 1 {
			say("Its shards: %s; balance %s (smallest shard over largest).", shapeText(v.Shape), ratio(v.Balance))
			if v.Balance != nil && *v.Balance < unevenBalance {
				e.Advice = nextSubmit(a, *v)
				say("The shards are uneven, so the smallest one waits for the scale-out network most.")
			}
		}
	}
	say("%s", trafficText(v.Traffic))
	switch v.Intent {
	case "none":
	case "unknown":
		say("What it asked of the topology is not known: the sources that told of it do not carry it.")
	default:
		say("Asked: %s; %s.", v.Intent, metText(v.IntentMet))
	}
	if e.Advice != nil {
		say("Next time: %s", *e.Advice)
	}
	say("Judged %s by membership generation %d (%s).", clock(v.JudgedAt), v.MembershipGeneration, v.MembershipSource)
	return e
}

func (e *Explanation) pending(say func(string, ...any), who string, a Attempt) {
	say("Not started: %s waits, so there is no placement to judge yet.", who)
	if a.PendingReason != nil {
		say("The scheduler says: %s.", *a.PendingReason)
	}
	if a.PlannedStart != nil {
		say("Its plan: start %s on %s; plans change.", clock(*a.PlannedStart), plural(len(a.PlannedNodes), "node"))
	}
	say("Asked: %s GPUs, %s nodes.", count(a.RequestedGPUs), count(a.RequestedNodes))
	if a.RequestedGPUs != nil {
		say("`spillway slots --gpus %d` shows where they would fit now.", *a.RequestedGPUs)
	} else {
		say("`spillway domains` shows what is free now.")
	}
}

func (e *Explanation) spill(say func(string, ...any), who, size string, a Attempt, links advise.Links) {
	v := a.Verdict
	cause := "cause not known"
	if v.Cause != nil {
		cause = "by " + *v.Cause
	}
	used := count(v.DomainsUsed)
	if v.UnknownNodes > 0 {
		used = "at least " + used
	}
	say("Spilled %s: %s, %s, uses %s NVLink domains where %s would hold it.", cause, who, size, used, count(v.DomainsMin))
	say("Its shards: %s; the smallest has %s GPUs.", shapeText(v.Shape), count(v.SmallestShard))
	if v.Cause != nil {
		say("%s", causeText(*v))
	}
	if links.Cluster > 0 {
		say("Across domains a GPU gets %s GB/s, inside one %s GB/s per direction: %sx, by the configured link speeds.",
			number(links.Cluster), number(links.Domain), number(links.Domain/links.Cluster))
	}
	e.Advice = nextSubmit(a, *v)
}

// unevenBalance is the balance below which a spread of the fewest domains is worth a word: one shard is a quarter
// smaller than another.
const unevenBalance = 0.75

// causeText says what the cluster looked like when the placement began.
func causeText(v Verdict) string {
	d := func(key string) string {
		if s := v.CauseDetail[key]; s != "" {
			return s
		}
		return "?"
	}
	at := clock(v.From)
	switch *v.Cause {
	case "policy":
		return fmt.Sprintf("At %s enough was free in fewer domains (largest: %s GPUs free): the scheduler's policy split it, not the load.",
			at, d("largest_free"))
	case "timing":
		return fmt.Sprintf("At %s no fewer domains had room (largest: %s GPUs free), but within %s s one would have had %s by the jobs' time limits.",
			at, d("largest_free"), d("window_s"), d("largest_free_within_window"))
	case "repack":
		return fmt.Sprintf("At %s %s GPUs were free in all but at most %s in one domain: another job would have had to move.",
			at, d("free_total"), d("largest_free"))
	default:
		return fmt.Sprintf("At %s only %s GPUs were free in the whole cluster.", at, d("free_total"))
	}
}

// nextSubmit is the advisor's line for a verdict; nil where there is none.
func nextSubmit(a Attempt, v Verdict) *string {
	if v.DomainsMin == nil {
		return nil
	}
	if s := advise.NextSubmit(a.Scheduler, int(v.Nodes), int(*v.DomainsMin)); s != "" {
		return &s
	}
	return nil
}

func placedText(v Verdict, size string) string {
	switch v.Outcome {
	case "one_partition":
		return fmt.Sprintf("%s inside one NVLink partition of %s", size, shapeText(v.Shape))
	case "one_domain":
		return fmt.Sprintf("%s inside one NVLink domain, %s", size, shapeText(v.Shape))
	}
	if v.Aligned {
		return fmt.Sprintf("%s over %s domains, each holding whole segments as asked", size, count(v.DomainsUsed))
	}
	return fmt.Sprintf("%s over %s domains, the fewest that hold it", size, count(v.DomainsUsed))
}

func unknownWhy(v Verdict) string {
	if v.UnknownNodes > 0 {
		return fmt.Sprintf("the NVLink domain of %s is not known.", plural(int(v.UnknownNodes), "node"))
	}
	if v.OutcomeReason != nil {
		return *v.OutcomeReason + "."
	}
	return "how few domains could hold it is not known."
}

// The longest list of shards a line takes.
const maxShards = 6

func shapeText(shape []Shard) string {
	if len(shape) == 0 {
		return "none"
	}
	parts := make([]string, 0, maxShards)
	for _, s := range shape[:min(maxShards, len(shape))] {
		parts = append(parts, fmt.Sprintf("%s %s", s.Name(), count(s.GPUs)))
	}
	out := strings.Join(parts, " + ")
	if more := len(shape) - maxShards; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

func metText(met *bool) string {
	switch {
	case met == nil:
		return "whether it was met cannot be said"
	case *met:
		return "met"
	}
	return "not met"
}

func count(n *uint32) string {
	if n == nil {
		return "an unknown number of"
	}
	return strconv.FormatUint(uint64(*n), 10)
}

func ratio(f *float32) string {
	if f == nil {
		return "unknown"
	}
	return strconv.FormatFloat(float64(*f), 'f', 2, 32)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
