package advise

// Bounded weighs waiting against what a worse shape is predicted to cost. A gang that fits one domain gets the tightest;
// otherwise the best split that is free now is found: as few domains as can be, shares balanced and whole segments. It is
// taken at once where the predicted slowdown is within Tolerance, so classes that do not depend on the fabric, and shapes
// that cost nothing, never wait. A split that costs more waits for a better shape, for at most Patience times the time the
// split would lose, and for no longer than the ask's MaxWait or Longest: the wait is bounded. A Required gang never splits.
type Bounded struct {
	Links Links
	// Tolerance is the predicted loss, as a share of run time, that is accepted without waiting.
	Tolerance float64
	// Patience is how many seconds to wait for each second that the split is predicted to lose.
	Patience float64
	// Longest is the longest wait, in seconds, where the ask names none.
	Longest int64
}

// NewBounded is the strategy with the bounds that the simulator's tuning seeds settled on.
func NewBounded(links Links) Bounded {
	return Bounded{Links: links, Tolerance: 0.01, Patience: 200, Longest: 72 * 3600}
}

// Name is "bounded".
func (Bounded) Name() string { return "bounded" }

// Steady implements Steady: it takes the fewest domains, and these only become fewer.
func (Bounded) Steady() {}

// Place implements Strategy.
func (b Bounded) Place(v *View, a *Ask, p *Plan) {
	if a.Shared > 0 {
		p.share(v, a, false)
		return
	}
	sum, most := p.survey(v, a)
	need := a.needs()
	if d := p.tightest(len(v.Free), need, false); d >= 0 {
		p.one(a, d)
		p.Split = exact()
		return
	}
	if sum < need || !a.allowed(2) {
		return
	}
	p.sort(len(v.Free), most)
	fewest := p.fewest(need)
	if !a.allowed(fewest) {
		return
	}
	// More domains than the fewest would not help: the smallest share, which is what the prediction rests on, only shrinks.
	p.balanced(a, fewest)
	p.Split = b.Links.predictAsk(v, a, p.Parts)
	if b.accepts(a, p.Split.worst()) {
		p.Outcome = Placed
	} else {
		p.Outcome = Waits
	}
}

// accepts reports whether a split that slows the job this much is to be taken now.
func (b Bounded) accepts(a *Ask, slowdown float64) bool {
	loss := slowdown - 1
	if loss <= b.Tolerance || a.Mode == Unconstrained {
		return true
	}
	bound := float64(b.Longest)
	if a.MaxWait >= 0 {
		bound = float64(a.MaxWait)
	}
	if a.Duration > 0 {
		bound = min(bound, b.Patience*loss*float64(a.Duration))
	}
	return float64(a.Waited) >= bound
}
