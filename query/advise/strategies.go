package advise

// Strategy chooses domains for a gang. It holds no state: what it answers follows from its arguments alone, so one value
// serves all goroutines, each with a Plan of its own.
//
// Place overwrites the plan and allocates nothing once the plan has grown to the cluster. Every strategy keeps these
// rules, which the tests hold all of them to: parts sum to the nodes asked, no part takes more than the view has free,
// no domain is named twice, a Required ask without a segment gets one domain, with a segment every part is a multiple
// of it, no more than MaxDomains parts, and with Spares no part takes a domain's spare nodes.
type Strategy interface {
	// Name is how commands and cases call the strategy.
	Name() string
	Place(v *View, a *Ask, p *Plan)
}

// Steady is a Strategy that, with more nodes free, never refuses what it placed with fewer, whatever MaxDomains is: Earliest
// is quicker with it. Without MaxDomains every strategy is.
type Steady interface{ Steady() }

// Options are what strategies can be told.
type Options struct {
	Links Links
	// BlockSizes are Slurm's block sizes in nodes; empty for one base block a domain.
	BlockSizes []int32
}

// Strategies is every strategy there is. A new one is a line here.
func Strategies(o Options) []Strategy {
	return []Strategy{
		FirstFit{},
		SlurmBlock{Sizes: o.BlockSizes},
		KueueBestFit{},
		KueueLeastFree{},
		NewBounded(o.Links),
	}
}

// Named finds a strategy by its name.
func Named(name string, o Options) (Strategy, bool) {
	for _, s := range Strategies(o) {
		if s.Name() == name {
			return s, true
		}
	}
	return nil, false
}

// allowed reports whether the ask permits this many domains.
func (a *Ask) allowed(domains int) bool {
	if domains <= 1 {
		return domains == 1
	}
	if a.MaxDomains > 0 && int32(domains) > a.MaxDomains {
		return false
	}
	return a.Mode != Required || a.Segment > 0
}
