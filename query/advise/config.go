package advise

import "time"

// Config is what the advisor is told once.
type Config struct {
	Strategy Strategy
	Links    Links
	// Classes are the kinds of jobs by name.
	Classes map[string]Class
	// Mix weighs gang sizes in the measure of fragmentation.
	Mix []Gang
	// Tenants say which account may be advised what.
	Tenants Tenants
	// StaleAfter is the age from which a snapshot is not answered from unless the request allows it.
	StaleAfter time.Duration
	// Expires is how long advice is good for.
	Expires time.Duration
	// TopologyLabel is the node label that Kueue's annotations name for a domain.
	TopologyLabel string
}

// DefaultConfig is the bounded strategy with the classes that the simulator assumes.
func DefaultConfig() Config {
	links := DefaultLinks()
	return Config{
		Strategy: NewBounded(links), Links: links,
		Classes: map[string]Class{
			"train":     {ServiceClasses: []string{"training", "finetune"}, Pattern: AllReduce, Share: 0.03, Spares: 2},
			"train-moe": {Pattern: AllToAll, Share: 0.10, Spares: 2},
			"serve":     {ServiceClasses: []string{"inference"}, Pattern: PatternNone, Share: 0},
		},
		Mix:        []Gang{{1, .20}, {2, .18}, {4, .13}, {8, .08}, {12, .02}, {16, .05}, {18, .02}},
		StaleAfter: 30 * time.Second, Expires: 20 * time.Second, TopologyLabel: "nvidia.com/gpu.clique",
	}
}
