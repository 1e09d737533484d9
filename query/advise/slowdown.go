package advise

import (
	"fmt"
	"math"
)

// Pattern is how the GPUs of a job talk to each other.
type Pattern string

// The patterns. PatternUnknown is not none: it is judged as either of the others.
const (
	AllReduce      Pattern = "allreduce"
	AllToAll       Pattern = "alltoall"
	PatternNone    Pattern = "none"
	PatternUnknown Pattern = ""
)

// Traffic is what is known of a job's communication. With neither Rate nor Share there is no basis for a prediction.
type Traffic struct {
	Pattern Pattern
	// Rate is the measured mean NVLink traffic of one GPU in one direction while the job was in one domain, in GB/s; 0
	// where it was not measured.
	Rate float64
	// Share is the assumed part of a step that is exposed communication while in one domain, 0 to 1; negative where
	// nobody says. Rate is preferred.
	Share float64
}

// Links are the speeds of the fabric for one GPU in one direction, in GB/s. In YAML they are the `api.links` of the
// configuration, whose levels stand in `advise.levels`.
type Links struct {
	// Domain is the speed inside an NVLink domain.
	Domain float64 `json:"domain_GBps" yaml:"domain_gb_s"`
	// Levels are the speeds between domains that share a level, by the level's name.
	Levels map[string]float64 `json:"levels_GBps" yaml:"-"`
	// Cluster is the speed of the scale-out network between domains that share no level that has a speed.
	Cluster float64 `json:"cluster_GBps" yaml:"scale_out_gb_s"`
}

// DefaultLinks are those of a GB200 NVL72 with one 400 Gb/s NIC a GPU, the eighteenfold cliff: NVLink 5 moves 900 GB/s per
// GPU and direction (NVIDIA GB200 NVL72 data sheet: 1.8 TB/s both ways), NDR InfiniBand 400 Gb/s = 50 GB/s.
func DefaultLinks() Links { return Links{Domain: 900, Cluster: 50} }

// across is the speed between the parts, and the name of the level that gives it.
func (l Links) across(t *Topology, parts []Part) (speed float64, level string) {
	if len(l.Levels) > 0 {
		for i := t.Common(parts); i >= 0; i-- {
			if s := l.Levels[t.Levels[i]]; s > 0 {
				return s, t.Levels[i]
			}
		}
	}
	return l.Cluster, "cluster"
}

// Interval is a predicted slowdown: run time against the run time in the best shape the job could have. Low is with
// communication fully overlapped, High with none. It is a bound of averages: bursts, in-switch reduction, latency and
// contention are outside it.
type Interval struct {
	Low, High float64
	// Known is false where there is no basis: then nothing is predicted.
	Known bool
}

// Exact is the interval of a job that loses nothing.
func exact() Interval { return Interval{Low: 1, High: 1, Known: true} }

// Predict gives the slowdown of the parts, each with that many GPUs a node. ideal is the smallest part, in GPUs, of the
// best shape the job could have: all its GPUs where a domain can hold it.
//
//	ring        r = max(1, nv / (k net))             k: GPUs of the smallest part, so NICs of the narrowest cut
//	all-to-all  r = nv/net x (n - k) / (n - 1)       the rank in the smallest part sends most over its NIC
//	larger than a domain: k(ideal) / k, at most nv/net: it crosses anyway, so only the skew counts
//
// High is 1 + u/nv (r - 1), and Low max(1, u x / net) with x the share of traffic a NIC carries, u the mean rate.
func (l Links) Predict(t *Topology, parts []Part, gpusPerNode, ideal int32, traffic Traffic) Interval {
	k, n := shape(parts, gpusPerNode)
	if len(parts) <= 1 {
		return exact()
	}
	u := traffic.Rate
	if u <= 0 && traffic.Share >= 0 {
		u = traffic.Share * l.Domain
		if traffic.Share == 0 {
			return exact()
		}
	}
	if traffic.Pattern == PatternNone {
		return exact()
	}
	if u <= 0 {
		return Interval{}
	}
	net, _ := l.across(t, parts)
	if ideal < n {
		r := min(l.Domain/net, max(1, float64(ideal)/float64(k)))
		low := max(1, max(1, u/(float64(k)*net))/max(1, u/(float64(ideal)*net)))
		high := 1 + u/l.Domain*(r-1)
		return Interval{Low: min(low, high), High: high, Known: true}
	}
	ring := func() (low, high float64) {
		r := max(1, l.Domain/(float64(k)*net))
		return max(1, u/(float64(k)*net)), 1 + u/l.Domain*(r-1)
	}
	all := func() (low, high float64) {
		x := float64(n-k) / float64(n-1)
		return max(1, u*x/net), 1 + u/l.Domain*max(0, l.Domain/net*x-1)
	}
	var low, high float64
	switch traffic.Pattern {
	case AllReduce:
		low, high = ring()
	case AllToAll:
		low, high = all()
	default:
		l1, h1 := ring()
		l2, h2 := all()
		low, high = min(l1, l2), max(h1, h2)
	}
	return Interval{Low: min(low, high), High: high, Known: true}
}

// predictAsk predicts for an ask. Where the ask names segments and each is whole, the job was built to let only the traffic
// between segments cross, which is taken to be overlapped: nothing is lost. A job smaller than a node loses nothing.
func (l Links) predictAsk(v *View, a *Ask, parts []Part) Interval {
	if a.Shared > 0 || a.Segment > 0 {
		return exact()
	}
	return l.Predict(v.Topology, parts, a.GPUsPerNode, v.ideal(a), a.Traffic)
}

// ideal is the smallest part, in GPUs, of the best shape the ask could have in an empty cluster: all of it where a domain
// is large enough, and an even share of the fewest largest domains where none is.
func (v *View) ideal(a *Ask) int32 {
	size := max(1, v.Topology.largest(a))
	u := a.unit()
	size = max(1, size/u)
	m := (a.needs() + size - 1) / size
	return a.needs() / m * u * a.GPUsPerNode
}

// Basis says in words what Predict rests on, for the answer.
func (l Links) Basis(t *Topology, parts []Part, a *Ask) string {
	traffic := a.Traffic
	switch {
	case len(parts) <= 1:
		return "one domain"
	case a.Segment > 0:
		return "aligned: every segment is inside one domain"
	case traffic.Pattern == PatternNone || traffic.Rate <= 0 && traffic.Share == 0:
		return "the class does not depend on the fabric"
	case traffic.Rate <= 0 && traffic.Share < 0:
		return "no basis: neither measured traffic nor a class with a communication share"
	}
	pattern := string(traffic.Pattern)
	if traffic.Pattern == PatternUnknown {
		pattern = "pattern unknown"
	}
	net, level := l.across(t, parts)
	if traffic.Rate > 0 {
		return fmt.Sprintf("telemetry u=%.4g GB/s, %s, %.4g/%.4g GB/s (%s)", traffic.Rate, pattern, l.Domain, net, level)
	}
	return fmt.Sprintf("assumed share %.3g, %s, %.4g/%.4g GB/s (%s)", traffic.Share, pattern, l.Domain, net, level)
}

// Bandwidth is what the links give one GPU of the parts in one direction, in GB/s, and in words what that rests on. A ring
// crosses between parts over the NICs of the smallest one and is no faster than NVLink; whatever else a job does, and between
// its segments, each GPU has its own NIC.
func (l Links) Bandwidth(t *Topology, parts []Part, a *Ask) (gbps float64, basis string) {
	if len(parts) <= 1 {
		return l.Domain, "one domain"
	}
	net, level := l.across(t, parts)
	if a.Traffic.Pattern != AllReduce || a.Segment > 0 {
		return min(l.Domain, net), fmt.Sprintf("each GPU's own NIC of %.4g GB/s (%s)", net, level)
	}
	k, _ := shape(parts, a.GPUsPerNode)
	return min(l.Domain, float64(k)*net), fmt.Sprintf("a ring over the %d NICs of %.4g GB/s (%s) of the smallest part", k, net, level)
}

// LinkRatio is how many times slower one GPU's link is between the parts than inside a domain. It is a ratio of
// bandwidths, not a slowdown.
func (l Links) LinkRatio(t *Topology, parts []Part) float64 {
	if len(parts) <= 1 {
		return 1
	}
	net, _ := l.across(t, parts)
	return l.Domain / net
}

// worst is what a strategy assumes of an interval: its upper end, and the worst where nothing is known.
func (i Interval) worst() float64 {
	if !i.Known {
		return math.Inf(1)
	}
	return i.High
}
