package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func reportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "report", Short: "GPU-hours exposed to spill and stranded by fragmentation, and what to change", Args: noArgs,
		Example: "  spillway report --since 7d\n  spillway report --since 7d -o html > week.html",
	}
	c := asking(cmd)
	c.formats = append(c.formats, "html")
	cmd.Flags().Lookup("output").Usage = "table, json or html (one file, fit to print)"
	since := cmd.Flags().String("since", "7d", "how far back: a duration such as 24h or 7d")
	slot := cmd.Flags().Uint32("gpus", 64, "size of the slots by which fragmentation is measured")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		back, err := parseBack(*since)
		if err != nil {
			return err
		}
		q := url.Values{
			"since":     {time.Now().Add(-back).UTC().Format(time.RFC3339)},
			"slot_gpus": {strconv.FormatUint(uint64(*slot), 10)},
		}
		var answer read.Report
		if err := c.get(cmd.Context(), "/v1/report", q, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		switch c.output {
		case "json":
			return printJSON(w, answer)
		case "html":
			return printReportHTML(w, &answer)
		}
		printReport(w, &answer)
		return nil
	}
	return cmd
}

// printReport is the report for a terminal or a mail.
func printReport(w io.Writer, r *read.Report) {
	where := "all clusters"
	if r.Cluster != "" {
		where = "cluster " + r.Cluster
	}
	fmt.Fprintf(w, "Spills and fragmentation of %s, %s to %s\n\n", printable(where), day(r.Since), day(r.Until))
	t := r.Total
	fmt.Fprintf(w, "%d placements, %s GPU-hours; %d spilled, %d cannot be judged\n", t.Placements, hours(t.GPUHours), t.Spilled, t.Unknown)
	fmt.Fprintf(w, "exposed to spill   %s GPU-hours (%s)\n", hours(t.ExposedGPUHours), share(t.ExposedGPUHours, t.GPUHours))
	fmt.Fprintf(w, "lost to spill      %s\n", lost(t))
	s := r.Stranded
	fmt.Fprintf(w, "stranded           %s GPU-hours (%s of what was free) in no slot of %d GPUs\n", hours(s.StrandedGPUHours), share(s.StrandedGPUHours, s.FreeGPUHours), s.SlotGPUs)
	if len(r.Changes) > 0 {
		fmt.Fprintln(w, "\nWhat to change")
		for _, change := range r.Changes {
			fmt.Fprintln(w, wrap("- "+change, maxWidth))
		}
	}
	if len(r.Causes) > 0 {
		fmt.Fprintln(w)
		causes := table{head: []string{"CAUSE", "SPILLS", "EXPOSED GPU-HOURS", "SHARE"}}
		for _, c := range r.Causes {
			causes.add(causeOr(c.Cause), fmt.Sprint(c.Placements), hours(c.ExposedGPUHours), share(c.ExposedGPUHours, t.ExposedGPUHours))
		}
		causes.print(w)
	}
	if len(r.Accounts) > 0 {
		fmt.Fprintln(w)
		accounts := table{head: []string{"CLUSTER", "ACCOUNT", "GPU-HOURS", "EXPOSED", "SHARE", "LOST", "STRANDED BESIDE IT", "UNKNOWN"}}
		for _, a := range r.Accounts {
			accounts.add(a.Cluster, orNotTold(a.Account), hours(a.GPUHours), hours(a.ExposedGPUHours), share(a.ExposedGPUHours, a.GPUHours), lostCell(a.ReportUse),
				hours(a.StrandedGPUHours), hours(a.UnknownGPUHours))
		}
		accounts.print(w)
	}
	if len(r.Worst) > 0 {
		fmt.Fprintln(w)
		worst := table{head: []string{"JOB", "NAME", "USER", "ACCOUNT", "CAUSE", "GPUS", "DOMAINS", "MIN", "EXPOSED GPU-HOURS"}}
		for _, j := range r.Worst {
			worst.add(j.JobID, j.Name, j.User, orNotTold(j.Account), causeOr(j.Cause), cellUint(j.GPUs), cellUint(j.DomainsUsed), cellUint(j.DomainsMin), hoursOr(j.ExposedGPUHours))
		}
		worst.print(w)
	}
	fmt.Fprintln(w, "\nBasis")
	for _, line := range r.Basis {
		fmt.Fprintln(w, wrap("- "+line, maxWidth))
	}
	footer(w, r.Freshness)
}

//go:embed report.html.tmpl
var reportPage string

// printReportHTML is the report as one file that needs nothing else, for a browser, a mail or paper.
func printReportHTML(w io.Writer, r *read.Report) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"day": day, "hours": hours, "share": share, "lost": lost, "lostCell": lostCell, "cause": causeOr, "count": cellUint, "hoursOr": hoursOr,
		"told": orNotTold,
		"width": func(part, whole float64) string {
			return strconv.FormatFloat(min(100, 100*part/max(whole, 1e-9)), 'f', 1, 64)
		},
	}).Parse(reportPage)
	if err != nil {
		return fmt.Errorf("read the report's page: %w", err)
	}
	most := 0.0
	for _, a := range r.Accounts {
		most = max(most, a.ExposedGPUHours, a.StrandedGPUHours)
	}
	if err := page.Execute(w, map[string]any{"R": r, "Most": most}); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

// hours shows GPU-hours with one figure after the point only where it matters.
func hours(h float64) string {
	if h > 0 && h < 10 {
		return strconv.FormatFloat(h, 'f', 1, 64)
	}
	return strconv.FormatFloat(h, 'f', 0, 64)
}

func hoursOr(h *float64) string {
	if h == nil {
		return unknown
	}
	return hours(*h)
}

func share(part, whole float64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*part/whole)
}

// lost says what is known of a loss, and of how much nothing is.
func lost(u read.ReportUse) string {
	switch {
	case u.Spilled == 0:
		return "nothing spilled"
	case u.LostMost == nil:
		return "unknown: no traffic of the spilled placements was measured"
	case u.UnmeasuredGPUHours > 0:
		return fmt.Sprintf("%s to %s GPU-hours where traffic was measured; unknown for %s exposed GPU-hours", hours(*u.LostLeast), hours(*u.LostMost), hours(u.UnmeasuredGPUHours))
	}
	return fmt.Sprintf("%s to %s GPU-hours", hours(*u.LostLeast), hours(*u.LostMost))
}

func lostCell(u read.ReportUse) string {
	switch {
	case u.Spilled == 0:
		return "0"
	case u.LostMost == nil:
		return unknown
	case u.UnmeasuredGPUHours > 0:
		return hours(*u.LostLeast) + " to " + hours(*u.LostMost) + " + " + unknown
	}
	return hours(*u.LostLeast) + " to " + hours(*u.LostMost)
}

func causeOr(cause *string) string {
	if cause == nil {
		return "unknown"
	}
	return *cause
}

func orNotTold(s string) string {
	if s == "" {
		return "(not told)"
	}
	return s
}
