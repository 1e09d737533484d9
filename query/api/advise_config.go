package api

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/ledger"
	"github.com/spillway-io/spillway/query/live"
)

// AdviseConfig is the `advise` block of the configuration.
type AdviseConfig struct {
	MaxAge         time.Duration           `yaml:"max_age"`          // of the picture that is answered from; an older one gives no opinion
	MaxTopologyLag time.Duration           `yaml:"max_topology_lag"` // how long a change of membership may wait for the passes; beyond it there is no opinion
	MaxConcurrent  int                     `yaml:"max_concurrent"`   // questions in work at once; more get no opinion
	Expires        time.Duration           `yaml:"expires"`          // how long advice is good for
	Strategy       string                  `yaml:"strategy"`         // bounded, slurm-block, kueue-best-fit, kueue-least-free, first-fit
	TopologyLabel  string                  `yaml:"topology_label"`   // node label that Kueue's annotations name for a domain
	Extender       bool                    `yaml:"extender"`         // serve /scheduler/filter and /prioritize; kube-scheduler sends no token
	Levels         map[string]float64      `yaml:"levels"`           // GB/s per GPU and direction between domains that share a level
	Classes        map[string]advise.Class `yaml:"classes"`          // kinds of jobs that a request may name
	Tenants        advise.Tenants          `yaml:"tenants"`          // which account may be advised what
	Holds          HoldsConfig             `yaml:"holds"`            // short holds, asked for with hold_s
	Feed           live.Config             `yaml:"feed"`
	Ledger         ledger.Config           `yaml:"ledger"`
}

// DefaultAdviseConfig is the bounded strategy with the three classes that the simulator assumes.
func DefaultAdviseConfig() AdviseConfig {
	d := advise.DefaultConfig()
	return AdviseConfig{
		MaxAge: d.StaleAfter, MaxTopologyLag: 30 * time.Second, MaxConcurrent: 32, Expires: d.Expires, Strategy: d.Strategy.Name(), TopologyLabel: d.TopologyLabel,
		Tenants: advise.Tenants{Unlisted: advise.Allow, Accounts: map[string]advise.Tenant{}}, Holds: HoldsConfig{Most: 64, TenantMost: 4, TenantShare: .25},
		Levels: map[string]float64{}, Classes: d.Classes, Feed: live.DefaultConfig(), Ledger: ledger.DefaultConfig(),
	}
}

// Validate says what cannot be.
func (c AdviseConfig) Validate() error {
	var errs []error
	if c.MaxAge <= 0 || c.MaxTopologyLag <= 0 || c.MaxConcurrent < 1 || c.Expires < time.Second {
		errs = append(errs, fmt.Errorf("advise.max_age %s, advise.max_topology_lag %s and advise.max_concurrent %d must be positive, advise.expires %s at least 1s",
			c.MaxAge, c.MaxTopologyLag, c.MaxConcurrent, c.Expires))
	}
	if _, ok := advise.Named(c.Strategy, advise.Options{}); !ok {
		var names []string
		for _, s := range advise.Strategies(advise.Options{}) {
			names = append(names, s.Name())
		}
		errs = append(errs, fmt.Errorf("advise.strategy %q: it is one of %v", c.Strategy, names))
	}
	stands := map[string]string{} // which class a service class is of
	for _, name := range slices.Sorted(maps.Keys(c.Classes)) {
		class := c.Classes[name]
		for _, service := range class.ServiceClasses {
			if other, ok := stands[service]; ok {
				errs = append(errs, fmt.Errorf("advise.classes.%s: service_classes: %q is named by advise.classes.%s too: name it in one of them", name, service, other))
			}
			stands[service] = name
		}
		if !slices.Contains([]advise.Mode{"", advise.Required, advise.Preferred, advise.Unconstrained}, class.Mode) {
			errs = append(errs, fmt.Errorf("advise.classes.%s: mode %q: it is required, preferred or unconstrained", name, class.Mode))
		}
		if !slices.Contains([]advise.Pattern{advise.PatternUnknown, advise.PatternNone, advise.AllReduce, advise.AllToAll}, class.Pattern) {
			errs = append(errs, fmt.Errorf("advise.classes.%s: pattern %q: it is allreduce, alltoall, none or empty for unknown", name, class.Pattern))
		}
		if class.Spares < 0 || class.Share > 1 {
			errs = append(errs, fmt.Errorf("advise.classes.%s: spares_per_domain %d and share %g: 0 or more nodes, and a share of at most 1",
				name, class.Spares, class.Share))
		}
	}
	for _, level := range slices.Sorted(maps.Keys(c.Levels)) {
		if c.Levels[level] <= 0 {
			errs = append(errs, fmt.Errorf("advise.levels.%s: %g GB/s: give a speed", level, c.Levels[level]))
		}
	}
	if u := c.Tenants.Unlisted; u != advise.Allow && u != advise.Forbid {
		errs = append(errs, fmt.Errorf("advise.tenants.unlisted %q: it is %s or %s", u, advise.Allow, advise.Forbid))
	}
	if err := c.Holds.validate(); err != nil {
		errs = append(errs, err)
	}
	for _, err := range []error{c.Feed.Validate(), c.Ledger.Validate()} {
		if err != nil {
			errs = append(errs, fmt.Errorf("advise: %w", err))
		}
	}
	return errors.Join(errs...)
}

// config is what query/advise is told.
func (c AdviseConfig) config(links advise.Links) *advise.Config {
	out := advise.DefaultConfig()
	links.Levels = c.Levels
	out.Links = links
	out.Strategy, _ = advise.Named(c.Strategy, advise.Options{Links: out.Links})
	out.Tenants = c.Tenants
	out.Classes, out.StaleAfter, out.Expires, out.TopologyLabel = c.Classes, c.MaxAge, c.Expires, c.TopologyLabel
	return &out
}
