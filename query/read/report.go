package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/query/advise"
)

// Report is what spills and fragmentation took of a time, in GPU-hours, by account and cause, and what to change.
type Report struct {
	Cluster   string          `json:"cluster" doc:"Empty = all."`
	Since     time.Time       `json:"since"`
	Until     time.Time       `json:"until"`
	Total     ReportUse       `json:"total"`
	Accounts  []ReportAccount `json:"accounts" doc:"Most GPU-hours exposed to spill or stranded first."`
	Causes    []ReportCause   `json:"causes" doc:"Of the spills; most GPU-hours first."`
	Worst     []ReportJob     `json:"worst" doc:"The spilled placements that held most GPU-hours."`
	Stranded  Stranded        `json:"stranded"`
	Changes   []string        `json:"changes" doc:"What to change, most effect first."`
	Basis     []string        `json:"basis" doc:"How the figures came about and what they leave out."`
	Freshness Freshness       `json:"freshness"`
}

// ReportUse are GPU-hours of placements that were judged, probe jobs left out.
type ReportUse struct {
	Placements         uint64   `json:"placements"`
	Spilled            uint64   `json:"spilled"`
	Unknown            uint64   `json:"unknown" doc:"Placements that cannot be judged: neither spilled nor fine."`
	GPUHours           float64  `json:"gpu_hours"`
	ExposedGPUHours    float64  `json:"exposed_gpu_hours" doc:"Held by spilled placements: what a spill may have slowed, and no loss as such."`
	UnknownGPUHours    float64  `json:"unknown_gpu_hours"`
	UnmeasuredGPUHours float64  `json:"unmeasured_gpu_hours" doc:"Part of exposed_gpu_hours for which there is no basis to say what was lost."`
	LostLeast          *float64 `json:"lost_gpu_hours_least" doc:"Of the measured part; null = nothing was measured."`
	LostMost           *float64 `json:"lost_gpu_hours_most" doc:"Of the measured part; null = nothing was measured."`
	Unsized            uint64   `json:"unsized" doc:"Placements whose GPUs are not known: they are in no figure of GPU-hours."`
}

// ReportAccount is one account's part.
type ReportAccount struct {
	Cluster string `json:"cluster"`
	Account string `json:"account" doc:"Empty = not told."`
	ReportUse
	StrandedGPUHours float64 `json:"stranded_gpu_hours" doc:"Of the GPUs stranded in domains where it held some, its part by GPUs held."`
}

// ReportCause sums spills of one cause.
type ReportCause struct {
	Cause           *string `json:"cause" doc:"null = cannot say"`
	Placements      uint64  `json:"placements"`
	ExposedGPUHours float64 `json:"exposed_gpu_hours"`
}

// ReportJob is one spilled placement.
type ReportJob struct {
	Cluster         string   `json:"cluster"`
	JobID           string   `json:"job_id"`
	Attempt         uint32   `json:"attempt"`
	Name            string   `json:"name"`
	User            string   `json:"user"`
	Account         string   `json:"account"`
	Cause           *string  `json:"cause"`
	GPUs            *uint32  `json:"gpus"`
	DomainsUsed     *uint32  `json:"domains_used"`
	DomainsMin      *uint32  `json:"domains_min"`
	ExposedGPUHours *float64 `json:"exposed_gpu_hours"`
}

// Stranded says how much was free and in no slot of a size.
type Stranded struct {
	SlotGPUs         uint32  `json:"slot_gpus"`
	StepSeconds      uint32  `json:"step_seconds" doc:"The domains were looked at this often."`
	UsableGPUHours   float64 `json:"usable_gpu_hours"`
	FreeGPUHours     float64 `json:"free_gpu_hours"`
	StrandedGPUHours float64 `json:"stranded_gpu_hours"`
	EmptyGPUHours    float64 `json:"nobody_gpu_hours" doc:"Part of stranded_gpu_hours in domains where nobody held anything: they are too small, or nodes are out of service."`
}

// The report looks at each domain at most this often over its time, and at least five minutes apart.
const (
	reportSamples = 168 // a week by the hour
	reportStep    = 5 * time.Minute
)

// Report sums [since, until) up, for one cluster or all (empty), with slots of so many GPUs as the measure of
// fragmentation. A size that capacity was not counted for over all of that time is an error wrapping ErrNotFound that lists the
// sizes there are.
func (r *Reader) Report(ctx context.Context, cluster string, since, until time.Time, slot uint32, links advise.Links) (*Report, error) {
	if now := r.now(); until.After(now) {
		until = now
	}
	if !since.Before(until) {
		return nil, fmt.Errorf("a report since %s until %s: %w: since must lie before until, and both before now",
			since.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339), ErrNotFound)
	}
	out := &Report{Cluster: cluster, Since: since, Until: until, Accounts: []ReportAccount{}, Causes: []ReportCause{}, Worst: []ReportJob{}}
	accounts := map[[2]string]*ReportAccount{}
	if err := r.reportOutcomes(ctx, out, accounts, links); err != nil {
		return nil, err
	}
	if err := r.reportStranded(ctx, out, accounts, slot); err != nil {
		return nil, err
	}
	for _, a := range accounts {
		out.Accounts = append(out.Accounts, *a)
	}
	slices.SortFunc(out.Accounts, func(a, b ReportAccount) int {
		return cmp.Or(cmp.Compare(b.ExposedGPUHours+b.StrandedGPUHours, a.ExposedGPUHours+a.StrandedGPUHours),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Account, b.Account))
	})
	type worstRow struct {
		Cluster     string   `ch:"cluster"`
		JobID       string   `ch:"job_id"`
		Number      uint32   `ch:"number"`
		Name        string   `ch:"name"`
		User        string   `ch:"user"`
		Account     string   `ch:"account"`
		Cause       string   `ch:"cause"`
		GPUs        *uint32  `ch:"gpus"`
		DomainsUsed *uint32  `ch:"domains_used"`
		DomainsMin  *uint32  `ch:"domains_min"`
		GPUHours    *float64 `ch:"gpu_hours"`
	}
	worst, err := rows[worstRow](ctx, r, "report_worst", params{"cluster": cluster}.time("since", since).time("until", until).uint("limit", 10))
	if err != nil {
		return nil, err
	}
	for _, w := range worst {
		out.Worst = append(out.Worst, ReportJob{
			Cluster: w.Cluster, JobID: w.JobID, Attempt: w.Number, Name: w.Name, User: w.User, Account: w.Account, Cause: text(w.Cause),
			GPUs: w.GPUs, DomainsUsed: w.DomainsUsed, DomainsMin: w.DomainsMin, ExposedGPUHours: w.GPUHours,
		})
	}
	out.Basis = out.basis(links)
	out.Changes = out.changes()
	out.Freshness, err = r.freshness(ctx, cluster)
	return out, err
}

func (r *Reader) reportOutcomes(ctx context.Context, out *Report, accounts map[[2]string]*ReportAccount, links advise.Links) error {
	type row struct {
		Cluster    string   `ch:"cluster"`
		Account    string   `ch:"account"`
		Outcome    string   `ch:"outcome"`
		Cause      string   `ch:"cause"`
		Placements uint64   `ch:"placements"`
		Unsized    uint64   `ch:"unsized"`
		GPUHours   float64  `ch:"gpu_hours"`
		Unmeasured float64  `ch:"unmeasured_gpu_hours"`
		Measured   uint64   `ch:"measured"`
		LostMost   *float64 `ch:"lost_most"`
	}
	p := params{"cluster": out.Cluster, "domain_gb_s": number(links.Domain), "scale_out_gb_s": number(links.Cluster)}
	got, err := rows[row](ctx, r, "report_outcomes", p.time("since", out.Since).time("until", out.Until))
	if err != nil {
		return err
	}
	causes := map[string]*ReportCause{}
	for _, g := range got {
		key := [2]string{g.Cluster, g.Account}
		a, ok := accounts[key]
		if !ok {
			a = &ReportAccount{Cluster: g.Cluster, Account: g.Account}
			accounts[key] = a
		}
		for _, use := range []*ReportUse{&a.ReportUse, &out.Total} {
			use.Placements += g.Placements
			use.Unsized += g.Unsized
			use.GPUHours += g.GPUHours
			switch g.Outcome {
			case "unknown":
				use.Unknown += g.Placements
				use.UnknownGPUHours += g.GPUHours
			case "spill":
				use.Spilled += g.Placements
				use.ExposedGPUHours += g.GPUHours
				use.UnmeasuredGPUHours += g.Unmeasured
				if g.Measured > 0 && g.LostMost != nil {
					use.LostLeast, use.LostMost = plus(use.LostLeast, 0), plus(use.LostMost, *g.LostMost)
				}
			}
		}
		if g.Outcome == "spill" {
			c, ok := causes[g.Cause]
			if !ok {
				c = &ReportCause{Cause: text(g.Cause)}
				causes[g.Cause] = c
			}
			c.Placements += g.Placements
			c.ExposedGPUHours += g.GPUHours
		}
	}
	for _, c := range causes {
		out.Causes = append(out.Causes, *c)
	}
	slices.SortFunc(out.Causes, func(a, b ReportCause) int {
		return cmp.Or(cmp.Compare(b.ExposedGPUHours, a.ExposedGPUHours), cmp.Compare(b.Placements, a.Placements))
	})
	return nil
}

// plus adds to a figure that may not be known yet.
func plus(sum *float64, more float64) *float64 {
	if sum != nil {
		more += *sum
	}
	return &more
}

func (r *Reader) reportStranded(ctx context.Context, out *Report, accounts map[[2]string]*ReportAccount, slot uint32) error {
	type row struct {
		Cluster  string  `ch:"cluster"`
		Account  string  `ch:"account"`
		Held     uint8   `ch:"held_something"`
		Stranded float64 `ch:"stranded_gpu_hours"`
		Free     float64 `ch:"free_gpu_hours"`
		Usable   float64 `ch:"usable_gpu_hours"`

		Refused uint8    `ch:"refused"` // capacity was not counted for the size
		Sizes   []uint16 `ch:"counted_sizes"`
		PerNode uint32   `ch:"node_gpus"`
	}
	span := out.Until.Sub(out.Since)
	step := max(reportStep, (span / reportSamples).Round(time.Minute)).Round(time.Second)
	samples := max(1, span/step)
	out.Stranded = Stranded{SlotGPUs: slot, StepSeconds: uint32(step / time.Second)}
	p := params{"cluster": out.Cluster}.time("since", out.Since).time("until", out.Until).
		uint("step", uint64(step/time.Second)).uint("samples", uint64(samples)).uint("size", uint64(slot))
	got, err := rows[row](ctx, r, "report_stranded", p)
	if err != nil {
		return err
	}
	for _, g := range got {
		if g.Refused != 0 {
			return notCounted(slot, g.Sizes, g.PerNode)
		}
		out.Stranded.StrandedGPUHours += g.Stranded
		out.Stranded.FreeGPUHours += g.Free
		out.Stranded.UsableGPUHours += g.Usable
		if g.Held == 0 {
			out.Stranded.EmptyGPUHours += g.Stranded
			continue
		}
		key := [2]string{g.Cluster, g.Account}
		a, ok := accounts[key]
		if !ok {
			a = &ReportAccount{Cluster: g.Cluster, Account: g.Account}
			accounts[key] = a
		}
		a.StrandedGPUHours += g.Stranded
	}
	return nil
}

// basis says how each figure came about: a reader must not take exposed for lost, nor unknown for none.
func (r *Report) basis(links advise.Links) []string {
	out := []string{
		"Exposed: GPU-hours that spilled placements held. A spill may have slowed all of them; how much of it is lost depends on their traffic.",
	}
	if r.Total.LostMost != nil {
		out = append(out, fmt.Sprintf("Lost: from measured scale-out traffic. At least nothing, if it was all hidden behind computing; at most the time the bytes "+
			"took at %s GB/s a GPU less what NVLink would have needed at %s GB/s. Only the time that was measured counts, at its mean rate: bursts may have cost more.",
			number(links.Cluster), number(links.Domain)))
	}
	if r.Total.Spilled > 0 && (r.Total.LostMost == nil || r.Total.UnmeasuredGPUHours > 0) {
		out = append(out, fmt.Sprintf("No basis: for %.0f exposed GPU-hours no scale-out traffic was measured, so what they lost is unknown, not zero.", r.Total.UnmeasuredGPUHours))
	}
	if r.Total.Unknown > 0 {
		out = append(out, fmt.Sprintf("Unknown: %s could not be judged, since the domain of some node is not known. They are neither spilled nor fine.", plural(int(r.Total.Unknown), "placement")))
	}
	if r.Total.Unsized > 0 {
		out = append(out, fmt.Sprintf("The GPUs of %s are not known: they are counted as placements and in no GPU-hours.", plural(int(r.Total.Unsized), "placement")))
	}
	return append(out, fmt.Sprintf("Stranded: free GPUs in no slot of %d inside one domain, looked at every %d minutes. Accounts share it by the GPUs they held in the same domain. "+
		"It says what could not be used by such a job, not that one waited.", r.Stranded.SlotGPUs, r.Stranded.StepSeconds/60))
}

// What each cause asks for.
var remedies = map[string]string{
	"policy":   "Fewer domains had room. Place by topology (Slurm: topology/block, and --segment in submissions; Kueue: podset-required-topology) so that the room is used.",
	"timing":   "Room would have come within minutes. Let such jobs wait for it: a hard segment or a required topology, with a wait limit.",
	"repack":   "Enough was free, but in pieces. Keep small jobs together in few racks, and keep some racks for large jobs.",
	"capacity": "There was not enough free at all. Spilling was the price of starting at once: queue them, or add capacity.",
	"":         "Their cause cannot be said, since some node or its capacity was not known. Complete the topology first.",
}

// changes lists what to change, the largest part first. Parts below a twentieth are noise and left out.
func (r *Report) changes() []string {
	out := []string{}
	for _, c := range r.Causes {
		if r.Total.ExposedGPUHours <= 0 || c.ExposedGPUHours < r.Total.ExposedGPUHours/20 {
			continue
		}
		name := "unknown cause"
		key := ""
		if c.Cause != nil {
			name, key = *c.Cause, *c.Cause
		}
		out = append(out, fmt.Sprintf("%s, %.0f %% of the exposed GPU-hours: %s", name, 100*c.ExposedGPUHours/r.Total.ExposedGPUHours, remedies[key]))
	}
	if s := r.Stranded; s.FreeGPUHours > 0 && s.StrandedGPUHours >= s.FreeGPUHours/2 && s.StrandedGPUHours >= s.UsableGPUHours/50 {
		text := fmt.Sprintf("fragmentation: %.0f %% of what was free lay in no slot of %d GPUs.", 100*s.StrandedGPUHours/s.FreeGPUHours, s.SlotGPUs)
		if top := r.mostStranded(); top != nil && s.StrandedGPUHours > s.EmptyGPUHours {
			text += fmt.Sprintf(" %s held most of the GPUs beside it: send its small jobs to racks that are already broken up.", accountName(top.Account))
		}
		out = append(out, text)
	}
	if r.Total.GPUHours > 0 && r.Total.UnknownGPUHours >= r.Total.GPUHours/20 {
		out = append(out, fmt.Sprintf("topology: %.0f %% of the GPU-hours cannot be judged. GET /v1/topology/health names the nodes without a domain.", 100*r.Total.UnknownGPUHours/r.Total.GPUHours))
	}
	return out
}

func (r *Report) mostStranded() *ReportAccount {
	var most *ReportAccount
	for i := range r.Accounts {
		if a := &r.Accounts[i]; most == nil || a.StrandedGPUHours > most.StrandedGPUHours {
			most = a
		}
	}
	return most
}

func accountName(account string) string {
	if account == "" {
		return "jobs whose account was not told"
	}
	return account
}
