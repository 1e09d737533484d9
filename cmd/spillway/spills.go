package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/query/read"
)

func spillsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "spills", Short: "Which placements spilled, worst first", Args: noArgs,
		Example: "  spillway spills --running\n  spillway spills --since 7d --cause policy -o json",
	}
	c := asking(cmd)
	f := cmd.Flags()
	running := f.Bool("running", false, "only those that hold their GPUs now")
	since := f.String("since", "24h", "how far back: a duration such as 90m, 24h or 7d")
	cause := f.String("cause", "", "policy, timing, repack or capacity")
	traffic := f.String("traffic", "", "only those of which their counters say confirmed, contradicted, idle or unknown; silent_fallback lists jobs inside one domain that talk over the scale-out network")
	user := f.String("user", "", "only this user")
	account := f.String("account", "", "only this account")
	class := f.String("class", "", "only this service class")
	newest := f.Bool("newest", false, "newest first instead of worst first")
	limit := f.Uint("limit", 50, "at most this many, up to 1000")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		back, err := parseBack(*since)
		if err != nil {
			return err
		}
		q := url.Values{
			"state": {"any"}, "sort": {"severity"}, "limit": {strconv.Itoa(int(*limit))},
			"since": {time.Now().Add(-back).UTC().Format(time.RFC3339)},
		}
		if *running {
			q.Set("state", "running")
		}
		if *newest {
			q.Set("sort", "newest")
		}
		for key, value := range map[string]string{"cause": *cause, "traffic": *traffic, "user": *user, "account": *account, "service_class": *class} {
			if value != "" {
				q.Set(key, value)
			}
		}
		var answer struct {
			read.Spills
			Next *string `json:"next"`
		}
		if err := c.get(cmd.Context(), "/v1/spills", q, &answer); err != nil {
			return err
		}
		w := cmd.OutOrStdout()
		if c.output == "json" {
			return printJSON(w, answer)
		}
		t := table{head: []string{"CLUSTER", "JOB", "ATTEMPT", "NAME", "USER", "CAUSE", "GPUS", "DOMAINS", "MIN", "SHAPE", "TRAFFIC", "FROM", "TO"}}
		for _, s := range answer.Spills.Spills {
			why := unknown
			if s.Verdict.Cause != nil {
				why = *s.Verdict.Cause
			}
			says := "not measured"
			if s.Verdict.Traffic != nil {
				says = s.Verdict.Traffic.Evidence
			}
			t.add(s.Cluster, s.JobID, fmt.Sprint(s.Attempt), s.Name, s.User, why, cellUint(s.Verdict.GPUs), cellUint(s.Verdict.DomainsUsed),
				cellUint(s.Verdict.DomainsMin), cellShape(s.Verdict.Shape), says, cellTime(&s.Verdict.From, ""), cellTime(s.Verdict.To, "running"))
		}
		t.print(w)
		fmt.Fprintf(w, "\n%d of %d spilled placements; `spillway explain JOB` says why\n", len(answer.Spills.Spills), answer.Total)
		footer(w, answer.Freshness)
		return nil
	}
	return cmd
}

// mostDays is the longest way back, a century: a time.Duration holds not three.
const mostDays = 36_500

// parseBack is time.ParseDuration with days. What does not lie in the past is refused.
func parseBack(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if number, ok := strings.CutSuffix(s, "d"); ok {
		var days float64
		days, err = strconv.ParseFloat(number, 64)
		if !(days <= mostDays) { // NaN too
			days = 0
		}
		d = time.Duration(days * float64(24*time.Hour))
	}
	if err != nil || d <= 0 {
		return 0, usageError("since %q: write a duration such as 90m, 24h or 7d", s)
	}
	return d, nil
}
