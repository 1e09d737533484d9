package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// part records when it ends.
type part struct {
	name  string
	fail  error
	mu    *sync.Mutex
	ended *[]string
}

func (p part) Name() string { return p.name }

func (p part) Run(ctx context.Context) error {
	if p.fail != nil {
		return p.fail
	}
	<-ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	*p.ended = append(*p.ended, p.name)
	return nil
}

func TestPartsEndInReverse(t *testing.T) {
	var mu sync.Mutex
	var ended []string
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := Run(ctx, slog.New(slog.DiscardHandler), part{"a", nil, &mu, &ended}, part{"b", nil, &mu, &ended}, part{"c", nil, &mu, &ended})
	if err != nil || !slices.Equal(ended, []string{"c", "b", "a"}) {
		t.Errorf("got %v %v, want c b a", ended, err)
	}
}

func TestTheFirstErrorEndsAll(t *testing.T) {
	var mu sync.Mutex
	var ended []string
	why := errors.New("no luck")
	err := Run(context.Background(), slog.New(slog.DiscardHandler), part{"a", nil, &mu, &ended}, part{"b", why, &mu, &ended})
	if !errors.Is(err, why) || err.Error() != "b: no luck" || !slices.Equal(ended, []string{"a"}) {
		t.Errorf("got %v %v, want b's error and a ended", ended, err)
	}
}
