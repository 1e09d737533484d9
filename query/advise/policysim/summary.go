package policysim

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Summary is a policy at a load: means over seeds.
type Summary struct {
	Policy string  `json:"policy"`
	Load   float64 `json:"load,omitempty"` // 0: that of the trace, which is not worked out
	Seeds  int     `json:"seeds"`
	// Waits are in minutes, shares in percent.
	MeanWait  float64    `json:"mean_wait_min"`
	P95Wait   float64    `json:"p95_wait_min"`
	Waits     [4]float64 `json:"wait_by_size_min"`
	Lost      float64    `json:"lost_gpu_hours_pct"`
	Spills    float64    `json:"spills_pct"`
	Harmful   float64    `json:"harmful_spills_pct"`
	Utilised  float64    `json:"utilised_pct"`
	Failed    float64    `json:"failed_gpu_hours"`
	Swaps     float64    `json:"swaps"`
	Requeues  float64    `json:"requeues"`
	Unstarted int        `json:"unstarted"`
}

// Summarise means the results over seeds, in the order of policies and loads in which they come.
func Summarise(results []Result) []Summary {
	var out []Summary
	at := map[string]int{}
	for _, r := range results {
		key := fmt.Sprint(r.Load, " ", r.Policy)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, Summary{Policy: r.Policy, Load: r.Load})
		}
		s := &out[i]
		s.Seeds++
		s.MeanWait += r.MeanWait / 60
		s.P95Wait += r.P95Wait / 60
		for k := range r.Waits {
			s.Waits[k] += r.Waits[k] / 60
		}
		s.Lost += r.Lost * 100
		s.Spills += r.Spills * 100
		s.Harmful += r.Harmful * 100
		s.Utilised += r.Utilised * 100
		s.Failed += r.FailedGPUHours
		s.Swaps += float64(r.Swaps)
		s.Requeues += float64(r.Requeues)
		s.Unstarted += r.Unstarted
	}
	for i := range out {
		s := &out[i]
		n := float64(s.Seeds)
		for _, f := range []*float64{&s.MeanWait, &s.P95Wait, &s.Lost, &s.Spills, &s.Harmful, &s.Utilised, &s.Failed, &s.Swaps, &s.Requeues,
			&s.Waits[0], &s.Waits[1], &s.Waits[2], &s.Waits[3]} {
			*f /= n
		}
	}
	return out
}

// Ratio is a paired comparison over seeds: the geometric mean of a policy's figure over the base's, with its 95 %
// interval (Student's t on the logarithms), and in how many seeds the policy had less.
type Ratio struct {
	Mean, Low, High float64
	Wins, Seeds     int
}

// Compare pairs two policies at a load, seed by seed, on a figure of their results. A minute is added to both sides, so
// that a wait of nothing can be compared.
func Compare(results []Result, load float64, policy, base string, figure func(Result) float64) Ratio {
	const minute = 60
	bases := map[uint64]float64{}
	for _, r := range results {
		if r.Policy == base && r.Load == load {
			bases[r.Seed] = figure(r)
		}
	}
	var logs []float64
	out := Ratio{}
	for _, r := range results {
		if b, ok := bases[r.Seed]; ok && r.Policy == policy && r.Load == load {
			logs = append(logs, math.Log((figure(r)+minute)/(b+minute)))
			if figure(r) < b {
				out.Wins++
			}
		}
	}
	n := float64(len(logs))
	out.Seeds = len(logs)
	if n == 0 {
		return out
	}
	mean, square := 0.0, 0.0
	for _, l := range logs {
		mean += l / n
	}
	for _, l := range logs {
		square += (l - mean) * (l - mean)
	}
	out.Mean = math.Exp(mean)
	if n < 2 {
		out.Low, out.High = 0, math.Inf(1)
		return out
	}
	half := student(len(logs)-1) * math.Sqrt(square/(n-1)/n)
	out.Low, out.High = math.Exp(mean-half), math.Exp(mean+half)
	return out
}

// student is the 97.5 % point of Student's t.
func student(freedom int) float64 {
	table := [...]float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	return 1.96 + 2.5/float64(freedom)
}

// WriteTable prints a row for each load and policy, with the mean and p95 wait against a base policy.
func WriteTable(w io.Writer, results []Result, base string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	classes := SizeClasses()
	fmt.Fprintf(t, "load\tpolicy\tmean wait\tp95\t%s\t%s\t%s\t%s\tlost GPU-h %%\tspill %%\tharmful %%\tused %%\tmean / %s\tp95 / %s\t\n",
		classes[0], classes[1], classes[2], classes[3], base, base)
	for _, s := range Summarise(results) {
		mean := Compare(results, s.Load, s.Policy, base, func(r Result) float64 { return r.MeanWait })
		p95 := Compare(results, s.Load, s.Policy, base, func(r Result) float64 { return r.P95Wait })
		load := fmt.Sprintf("%.2f", s.Load)
		if s.Load == 0 {
			load = "-" // that of the trace
		}
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.1f\t%.1f\t%.1f\t%s\t%s\t\n", load, s.Policy, s.MeanWait, s.P95Wait,
			s.Waits[0], s.Waits[1], s.Waits[2], s.Waits[3], s.Lost, s.Spills, s.Harmful, s.Utilised, mean, p95)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	for _, s := range Summarise(results) {
		if s.Unstarted > 0 {
			fmt.Fprintf(w, "%s: %d jobs of %d seeds never ran and are in none of these figures\n", s.Policy, s.Unstarted, s.Seeds)
		}
	}
	return nil
}

// String is the ratio with its interval; "-" where nothing was paired. One pair has no interval.
func (r Ratio) String() string {
	switch r.Seeds {
	case 0:
		return "-"
	case 1:
		return fmt.Sprintf("%.2f (one seed)", r.Mean)
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", r.Mean, r.Low, r.High)
}
