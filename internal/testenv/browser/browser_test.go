package browser_test

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/internal/testenv/browser"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestTheBrowserRunsScripts(t *testing.T) {
	ctx, cancel := context.WithTimeout(browser.Start(t), time.Minute)
	defer cancel()
	if got, err := chromedp.Run(ctx, chromedp.Evaluate[int](`[18, 9, 7].length`)); err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3", got, err)
	}
}
