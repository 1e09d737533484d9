package policysim

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
)

// The plot's size and margins, in pixels.
const (
	plotWidth, plotHeight           = 760.0, 480.0
	marginLeft, marginRight         = 70.0, 170.0
	marginTop, marginBottom         = 40.0, 60.0
	plotFont                        = `font-family="sans-serif"`
	seedRadius, meanRadius  float64 = 2, 5
)

// palette tells policies apart, also for readers who do not see red and green as different.
var palette = []string{"#777777", "#e69f00", "#56b4e9", "#0072b2", "#cc79a7", "#009e73", "#d55e00", "#000000"}

// WritePlot draws what each policy costs and how long it makes jobs wait, as SVG: lost GPU-hours across and the mean wait
// upwards, both logarithmic, so down and left is better. A dot is the mean over seeds at a load, small ones are the seeds,
// and a line joins the loads of a policy.
func WritePlot(w io.Writer, results []Result) error {
	out := bufio.NewWriter(w)
	var xs, ys []float64
	for _, r := range results {
		xs, ys = append(xs, percent(r.Lost)), append(ys, minutes(r.MeanWait))
	}
	x := newAxis(xs, marginLeft, plotWidth-marginRight)
	y := newAxis(ys, plotHeight-marginBottom, marginTop)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f">`+"\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(out, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(out, `<text x="%.0f" y="22" %s font-size="14">What a placement policy costs: down and left is better</text>`+"\n", marginLeft, plotFont)
	for _, t := range x.ticks() {
		fmt.Fprintf(out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%.1f" y="%.1f" %s font-size="11" text-anchor="middle">%g</text>`+"\n",
			x.at(t), y.to, x.at(t), y.from, x.at(t), y.from+16, plotFont, t)
	}
	for _, t := range y.ticks() {
		fmt.Fprintf(out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%.1f" y="%.1f" %s font-size="11" text-anchor="end">%g</text>`+"\n",
			x.from, y.at(t), x.to, y.at(t), x.from-6, y.at(t)+4, plotFont, t)
	}
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" %s font-size="12" text-anchor="middle">GPU-hours lost to slowdown, %% of useful</text>`+"\n", (x.from+x.to)/2, plotHeight-18, plotFont)
	fmt.Fprintf(out, `<text x="18" y="%.1f" %s font-size="12" text-anchor="middle" transform="rotate(-90 18 %.1f)">mean wait, minutes</text>`+"\n", (y.from+y.to)/2, plotFont, (y.from+y.to)/2)

	sums := Summarise(results)
	var names []string
	for _, s := range sums {
		if !slices.Contains(names, s.Policy) {
			names = append(names, s.Policy)
		}
	}
	for i, name := range names {
		color := palette[i%len(palette)]
		for _, r := range results {
			if r.Policy == name {
				fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="%.0f" fill="%s" fill-opacity="0.35"/>`+"\n", x.at(percent(r.Lost)), y.at(minutes(r.MeanWait)), seedRadius, color)
			}
		}
		line := ""
		for _, s := range sums {
			if s.Policy != name {
				continue
			}
			px, py := x.at(max(floor, s.Lost)), y.at(max(floor, s.MeanWait))
			line += fmt.Sprintf("%.1f,%.1f ", px, py)
			fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="%.0f" fill="%s"><title>%s, load %.2f: %.1f min, %.2f %% lost</title></circle>`+"\n",
				px, py, meanRadius, color, html.EscapeString(name), s.Load, s.MeanWait, s.Lost)
			fmt.Fprintf(out, `<text x="%.1f" y="%.1f" %s font-size="9" fill="%s">%g</text>`+"\n", px+7, py+3, plotFont, color, s.Load)
		}
		fmt.Fprintf(out, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", line, color)
		ly := marginTop + 18*float64(i)
		fmt.Fprintf(out, `<rect x="%.1f" y="%.1f" width="12" height="12" fill="%s"/><text x="%.1f" y="%.1f" %s font-size="12">%s</text>`+"\n",
			plotWidth-marginRight+20, ly, color, plotWidth-marginRight+38, ly+10, plotFont, html.EscapeString(name))
	}
	fmt.Fprintln(out, "</svg>")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

// floor is the least value that is drawn: a logarithmic axis has no place for nothing.
const floor = 0.01

func percent(share float64) float64   { return max(floor, share*100) }
func minutes(seconds float64) float64 { return max(floor, seconds/60) }

// axis maps values to pixels by their logarithm.
type axis struct{ lo, hi, from, to float64 }

func newAxis(values []float64, from, to float64) axis {
	a := axis{lo: 0.1, hi: 1, from: from, to: to}
	if len(values) > 0 {
		a.lo = math.Pow(10, math.Floor(math.Log10(slices.Min(values))))
		a.hi = max(a.lo*10, math.Pow(10, math.Ceil(math.Log10(slices.Max(values)))))
	}
	return a
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.lo)/math.Log(a.hi/a.lo)
}

func (a axis) ticks() []float64 {
	var t []float64
	for v := a.lo; v <= a.hi*1.0001; v *= 10 {
		t = append(t, math.Round(v*1e6)/1e6)
	}
	return t
}
