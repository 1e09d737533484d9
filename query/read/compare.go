package read

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Compare holds one run against earlier ones of the same user and name.
type Compare struct {
	Cluster   string    `json:"cluster"`
	JobID     string    `json:"job_id"`
	Attempt   uint32    `json:"attempt"`
	Basis     string    `json:"basis" doc:"By what runs count as alike."`
	This      Alike     `json:"this"`
	Earlier   []Alike   `json:"earlier" doc:"Newest first, at most 20; of other sizes too, for the record."`
	Placement *string   `json:"placement" doc:"better, same or worse, against the last earlier run of the same size that was judged; null = cannot say, see lines."`
	Lines     []string  `json:"lines" doc:"The answer in words."`
	Freshness Freshness `json:"freshness"`
}

// Alike is one run in a comparison. Nulls are unknown.
type Alike struct {
	JobID   string     `json:"job_id"`
	Attempt uint32     `json:"attempt"`
	State   string     `json:"state"`
	Start   *time.Time `json:"start"`
	RanS    *float64   `json:"ran_seconds" doc:"null = it runs, or its end is not known."`
	WaitedS *float64   `json:"waited_seconds"`
	GPUs    *uint32    `json:"gpus"`
	Outcome *string    `json:"outcome" doc:"null = not judged"`
	Cause   *string    `json:"cause"`
	// With UnknownNodes the domains are the least there can be: such a run is held against none.
	UnknownNodes *uint32  `json:"unknown_nodes" doc:"Nodes whose NVLink domain was not known: domains_used and excess_domains are the least they can be then; null = not judged."`
	DomainsUsed  *uint32  `json:"domains_used"`
	DomainsMin   *uint32  `json:"domains_min"`
	Excess       *int32   `json:"excess_domains"`
	Balance      *float32 `json:"balance"`
	NVLinkGBs    *float64 `json:"nvlink_gb_s"`
	ScaleOutGBs  *float64 `json:"scale_out_gb_s"`
}

// alikeBasis says what is compared.
const alikeBasis = "runs of the same user and name in this cluster in the 90 days before; better or worse is said against those of the same number of GPUs"

const maxAlike = 20

// alikeFor is how far back a comparison looks: what ran before that ran on other software and, often, another fleet.
const alikeFor = 90 * 24 * time.Hour

// Compare holds an attempt (-1 = the newest) of a job against at most maxAlike earlier runs of its user and name.
func (r *Reader) Compare(ctx context.Context, cluster, jobID string, attempt int32) (*Compare, error) {
	job, err := r.Job(ctx, cluster, jobID)
	if err != nil {
		return nil, err
	}
	a, err := job.Pick(attempt)
	if err != nil {
		return nil, err
	}
	out := &Compare{Cluster: job.Cluster, JobID: job.JobID, Attempt: a.Attempt, Basis: alikeBasis, This: alikeOf(job, a), Earlier: []Alike{}, Freshness: job.Freshness}
	if a.Name == "" || a.User == "" {
		out.Lines = []string{"No comparison: the sources do not tell the job's name or user, so no earlier run can be called the same work."}
		return out, nil
	}
	before := r.now()
	if a.Start != nil {
		before = *a.Start
	}
	got, err := rows[struct {
		JobID       string     `ch:"job_id"`
		Number      uint32     `ch:"number"`
		State       string     `ch:"state"`
		Submit      *time.Time `ch:"submit"`
		Start       *time.Time `ch:"start"`
		End         *time.Time `ch:"end"`
		GPUs        *uint32    `ch:"gpus"`
		Outcome     *string    `ch:"outcome"`
		Cause       *string    `ch:"cause"`
		Unknown     *uint32    `ch:"unknown_nodes"`
		DomainsUsed *uint32    `ch:"domains_used"`
		DomainsMin  *uint32    `ch:"domains_min"`
		Excess      *int32     `ch:"excess_domains"`
		Balance     *float32   `ch:"balance"`
		NVLink      *float64   `ch:"nvlink"`
		ScaleOut    *float64   `ch:"scale_out"`
	}](ctx, r, "alike", params{"cluster": job.Cluster, "user": a.User, "name": a.Name, "job_id": job.JobID, "attempt": a.Key}.
		time("since", before.Add(-alikeFor)).time("before", before).uint("limit", maxAlike))
	if err != nil {
		return nil, err
	}
	for _, e := range got {
		run := Alike{
			JobID: e.JobID, Attempt: e.Number, State: e.State, Start: e.Start, RanS: between(e.Start, e.End), WaitedS: between(e.Submit, e.Start), GPUs: e.GPUs,
			Outcome: e.Outcome, UnknownNodes: e.Unknown, DomainsUsed: e.DomainsUsed, DomainsMin: e.DomainsMin, Excess: e.Excess, Balance: e.Balance, NVLinkGBs: giga(e.NVLink), ScaleOutGBs: giga(e.ScaleOut),
		}
		if e.Cause != nil {
			run.Cause = text(*e.Cause)
		}
		out.Earlier = append(out.Earlier, run)
	}
	out.conclude()
	return out, nil
}

func alikeOf(job *Job, a Attempt) Alike {
	run := Alike{JobID: job.JobID, Attempt: a.Attempt, State: a.State, Start: a.Start, RanS: between(a.Start, a.End), WaitedS: between(a.Submit, a.Start), GPUs: a.GPUs}
	if v := a.Verdict; v != nil {
		run.Outcome, run.Cause, run.DomainsUsed, run.DomainsMin, run.Excess, run.Balance = &v.Outcome, v.Cause, v.DomainsUsed, v.DomainsMin, v.ExcessDomains, v.Balance
		run.UnknownNodes = &v.UnknownNodes
		if v.GPUs != nil {
			run.GPUs = v.GPUs
		}
		if v.Traffic != nil {
			run.NVLinkGBs, run.ScaleOutGBs = v.Traffic.NVLinkGBs, v.Traffic.ScaleOutGBs
		}
	}
	return run
}

func between(from, to *time.Time) *float64 {
	if from == nil || to == nil || to.Before(*from) {
		return nil
	}
	s := to.Sub(*from).Seconds()
	return &s
}

// judged reports whether a run's placement can be held against another's: all its domains are known.
func (a Alike) judged() bool {
	return (a.UnknownNodes == nil || *a.UnknownNodes == 0) && a.Outcome != nil && *a.Outcome != "unknown" && a.Excess != nil && a.DomainsUsed != nil && a.GPUs != nil
}

// conclude says how this run sits against the last one of its size, and how long such runs took.
func (c *Compare) conclude() {
	say := func(format string, args ...any) { c.Lines = append(c.Lines, fmt.Sprintf(format, args...)) }
	if len(c.Earlier) == 0 {
		say("First of its kind: no run of this user and name in the 90 days before is known.")
		return
	}
	if n := c.This.UnknownNodes; n != nil && *n > 0 {
		say("Cannot say: the NVLink domain of %s %s not known, so its domains could not all be counted.", plural(int(*n), "node"), map[bool]string{true: "is", false: "are"}[*n == 1])
		return
	}
	if !c.This.judged() {
		say("Cannot say: this run has no verdict that could be compared; %s of the same user and name %s known.", plural(len(c.Earlier), "earlier run"), map[bool]string{true: "is", false: "are"}[len(c.Earlier) == 1])
		return
	}
	at := slices.IndexFunc(c.Earlier, func(e Alike) bool { return e.judged() && *e.GPUs == *c.This.GPUs })
	if at < 0 {
		say("Cannot say: no earlier run of %d GPUs was judged, only other sizes.", *c.This.GPUs)
		return
	}
	last := c.Earlier[at]
	word := placedAgainst(c.This, last)
	c.Placement = &word
	now, then := domainsText(c.This), domainsText(last)
	switch word {
	case "same":
		say("Same placement as last time: %s; job %s of %s had %s.", now, last.JobID, clock(*last.Start), then)
	default:
		say("Placed %s than last time: %s; job %s of %s had %s.", word, now, last.JobID, clock(*last.Start), then)
	}
	// How long whole runs of this size took.
	var took []float64
	for _, e := range c.Earlier {
		if e.judged() && *e.GPUs == *c.This.GPUs && *e.Excess <= 0 && e.State == "completed" && e.RanS != nil {
			took = append(took, *e.RanS)
		}
	}
	if len(took) >= 2 && c.This.RanS != nil && c.This.State == "completed" {
		slices.Sort(took)
		usual := took[len(took)/2]
		if usual > 0 {
			say("It ran %.2f times as long as the usual of %d earlier completed runs that did not spill.", *c.This.RanS/usual, len(took))
		}
	}
	if c.This.ScaleOutGBs != nil && last.ScaleOutGBs != nil {
		say("Over the scale-out network a GPU moved %s GB/s, last time %s.", gigaText(c.This.ScaleOutGBs), gigaText(last.ScaleOutGBs))
	}
}

// placedAgainst orders two judged placements of one size: excess domains first, then domains, then balance.
func placedAgainst(a, b Alike) string {
	worse := int64(*a.Excess) - int64(*b.Excess)
	if worse == 0 {
		worse = int64(*a.DomainsUsed) - int64(*b.DomainsUsed)
	}
	if worse == 0 && a.Balance != nil && b.Balance != nil {
		switch d := *b.Balance - *a.Balance; {
		case d > unevenStep:
			worse = 1
		case d < -unevenStep:
			worse = -1
		}
	}
	switch {
	case worse > 0:
		return "worse"
	case worse < 0:
		return "better"
	}
	return "same"
}

// unevenStep is the difference of balance that counts.
const unevenStep = 0.1

func domainsText(a Alike) string {
	out := plural(int(*a.DomainsUsed), "domain")
	if a.DomainsMin != nil && *a.DomainsUsed > 1 {
		out += fmt.Sprintf(" where %d would do", *a.DomainsMin)
		if a.Balance != nil {
			out += fmt.Sprintf(", balance %s", ratio(a.Balance))
		}
	}
	return out
}
