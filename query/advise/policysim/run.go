package policysim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

// Run simulates every policy on every seed, as many at a time as there are processors, and returns the results ordered by
// policy and then seed. The order of work does not change a figure.
// done is called after each simulation, from any goroutine; it may be nil.
func Run(ctx context.Context, c Config, policies []Policy, seeds []uint64, done func()) ([]Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	type input struct {
		jobs  []Job
		fails []failure
	}
	inputs := make([]input, len(seeds))
	for i, seed := range seeds {
		jobs, err := c.draw(seed)
		if err != nil {
			return nil, err
		}
		end := int64(0)
		for _, j := range jobs {
			end = max(end, j.Submit+j.Run)
		}
		inputs[i] = input{jobs: jobs, fails: c.failures(seed, 2*end)}
	}
	results := make([]Result, len(policies)*len(seeds))
	errs := make([]error, len(results))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range results {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if errs[i] = ctx.Err(); errs[i] != nil {
				return
			}
			p, s := policies[i/len(seeds)], i%len(seeds)
			results[i], errs[i] = simulate(&c, p, inputs[s].jobs, inputs[s].fails)
			results[i].Policy, results[i].Seed, results[i].Load = p.Name, seeds[s], c.Load
			if done != nil {
				done()
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return results, errors.Join(errs...)
}
