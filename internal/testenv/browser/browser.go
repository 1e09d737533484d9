// Package browser gives tests of the page the browser that people read it with. It belongs beside the flow and never
// inside it: only tests import it, and it stands apart from testenv so that tests of other things do not link it.
package browser

import (
	"context"
	"os"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/spillway-io/spillway/internal/testenv"
)

// Start runs a headless Chromium with one tab, whose actions take the context, until the test ends. Whoever lacks the
// program skips or fails, see testenv.Unavailable.
func Start(t testing.TB) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(testenv.Binary(t, "chromium")), chromedp.Flag("headless", "new"), chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.NoFirstRun, chromedp.Flag("hide-scrollbars", true),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's own sandbox refuses root
	}
	alloc, freeAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the process to end
		cancel()
		freeAlloc()
	})
	return ctx
}
