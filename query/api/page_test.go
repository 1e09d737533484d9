package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/spillway-io/spillway/internal/testenv/browser"
)

func ask(s *Server, path string, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, req)
	return rec
}

func TestThePageIsPublicStrictAndAsksAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.TokenFile = file
	s := newServer(t, cfg, nil)
	for path, kind := range map[string]string{
		"/": "text/html", "/racks": "text/html", "/jobs/ns%2Fname": "text/html", "/domains/d?cluster=c": "text/html", "/report": "text/html",
		"/assets/app.js": "text/javascript", "/assets/style.css": "text/css", "/assets/icon.svg": "image/svg+xml",
	} {
		rec := ask(s, path)
		h := rec.Header()
		if rec.Code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), kind) {
			t.Errorf("%s: got %d %s, want 200 and %s, without a token", path, rec.Code, h.Get("Content-Type"), kind)
		}
		if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if again := ask(s, path, "If-None-Match", h.Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s asked again: got %d with %d bytes, want 304 and none", path, again.Code, again.Body.Len())
		}
	}
	for _, path := range []string{"/nowhere", "/assets/", "/assets/README.md", "/assets/../server.go", "/racks/x"} {
		if rec := ask(s, path); rec.Code == http.StatusOK {
			t.Errorf("%s: got 200", path)
		}
	}
	if rec := ask(s, "/v1/map"); rec.Code != http.StatusUnauthorized {
		t.Errorf("/v1/map without a token: got %d", rec.Code)
	}
}

// Every address in the files leads to a file that is served, and none to another host.
func TestThePageNeedsNothingFromElsewhere(t *testing.T) {
	s := newServer(t, DefaultConfig(), nil)
	files, err := filepath.Glob("web/*")
	if err != nil || len(files) < 15 {
		t.Fatal(files, err)
	}
	address := regexp.MustCompile(`(?:from|import\(?)\s*"\./([a-z]+\.js)"|(?:href|src)="(/assets/[^"]+)"`)
	seen := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".md") {
			continue
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(body), "http://www.w3.org/2000/svg", "")
		if strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "innerHTML") || strings.Contains(text, "eval(") {
			t.Errorf("%s names another host, or makes markup or code from text", file)
		}
		for _, m := range address.FindAllStringSubmatch(text, -1) {
			seen++
			path := m[2]
			if m[1] != "" {
				path = "/assets/" + m[1]
			}
			if rec := ask(s, path); rec.Code != http.StatusOK {
				t.Errorf("%s needs %s: got %d", file, path, rec.Code)
			}
		}
	}
	if seen < 30 {
		t.Errorf("saw %d addresses: the expression that finds them is wrong", seen)
	}
}

// TestSetAsideRacksCountByTheirOwnSize runs the page's own code in the browser that reads it.
func TestSetAsideRacksCountByTheirOwnSize(t *testing.T) {
	site := httptest.NewServer(newServer(t, DefaultConfig(), nil).Handler())
	t.Cleanup(site.Close)
	ctx, stop := context.WithTimeout(browser.Start(t), time.Minute)
	defer stop()
	if err := chromedp.Do(ctx, chromedp.Navigate(site.URL+"/assets/whatif.js")); err != nil {
		t.Fatal(err)
	}
	// Racks of 18, 9 and 7 nodes: jobs of 8 nodes fit twice, once and not at all.
	got, err := chromedp.Run(ctx, chromedp.Evaluate[int](`import("/assets/whatif.js").then((m) => m.slotsIn([{nodes: 18}, {nodes: 9}, {nodes: 7}], 8))`, chromedp.EvalAwaitPromise))
	if err != nil || got != 3 {
		t.Errorf("got %d, %v, want 3", got, err)
	}
}
