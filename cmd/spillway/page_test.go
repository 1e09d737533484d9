package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/internal/testenv/browser"
	"github.com/spillway-io/spillway/query/api"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// fleetWithSpills runs the whole flow over a simulated fleet until it has spills that run, and gives one of them.
func fleetWithSpills(t testing.TB, fleet simulate.Config) (*flow, read.Spill) {
	t.Helper()
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	s.Telemetry.LogLevel = "warn"
	s.Collect.Sources = []string{"simulate"}
	s.Collect.Simulate = fleet
	f := running(t, &s, stages{collect: true, load: true, enrich: true, serve: true})
	ctx := t.Context()
	var worst read.Spill
	testenv.Eventually(t, 2*time.Minute, func() error {
		now := time.Now()
		page, err := f.reader.Spills(ctx, read.SpillFilter{Running: true, Since: now.Add(-time.Hour), Until: now, BySeverity: true, Limit: 1})
		if err != nil {
			return err
		}
		if page.Total < 3 {
			return fmt.Errorf("%d running spills, want 3", page.Total)
		}
		worst = page.Spills[0]
		return nil
	})
	return f, worst
}

// tab is the one of a headless Chromium, at a service.
type tab struct {
	t    testing.TB
	ctx  context.Context
	base string
	mu   sync.Mutex
	bad  []string // what the page's console complained of
}

func newTab(t testing.TB, base string) *tab {
	t.Helper()
	b := &tab{t: t, ctx: browser.Start(t), base: base}
	err := chromedp.Listen(b.ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.bad = append(b.bad, fmt.Sprint(e.ExceptionDetails.Text, " ", e.ExceptionDetails.Exception))
		case *log.EventEntryAdded:
			// A refusal of the API is logged too; those that tests provoke are no complaint.
			if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
				b.bad = append(b.bad, e.Entry.Text)
			}
		}
	})
	if err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return b
}

// do runs actions within half a minute.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v; the page shows:\n%s", err, b.text("body"))
	}
}

// open shows an address and waits until its view has drawn what it asked for.
func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+path), drawn)
}

var drawn = chromedp.WaitReady(chromedp.CSS(`.view[data-state]`))

func (b *tab) text(selector string) string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.innerText ?? ""`, selector)))
	if err != nil {
		return err.Error()
	}
	return out
}

func (b *tab) attribute(selector, name string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q)?.getAttribute(%q) ?? ""`, selector, name)))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// shows polls until an element holds a text.
func (b *tab) shows(selector, want string) {
	b.t.Helper()
	testenv.Eventually(b.t, 20*time.Second, func() error {
		if got := b.text(selector); !strings.Contains(got, want) {
			return fmt.Errorf("%s at %s shows %q, want %q in it", selector, b.address(), got, want)
		}
		return nil
	})
}

func (b *tab) address() string {
	out, err := chromedp.Run(b.ctx, chromedp.Location())
	if err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(out, b.base)
}

// at polls until the address begins so.
func (b *tab) at(prefix string) {
	b.t.Helper()
	testenv.Eventually(b.t, 10*time.Second, func() error {
		if got := b.address(); !strings.HasPrefix(got, prefix) {
			return fmt.Errorf("the address is %s, want it to begin %s", got, prefix)
		}
		return nil
	})
}

// quiet fails the test when a script failed or the page's policy forbade something.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.bad {
		b.t.Errorf("the console says: %s", text)
	}
	b.bad = nil
}

// serveAlso answers from the same store at another address until the returned function is called.
func serveAlso(t *testing.T, f *flow, cfg api.Config) (base string, stop func()) {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	server, err := api.New(cfg, api.Deps{Reader: f.reader, Ping: f.readConn.Ping, Log: slog.New(slog.DiscardHandler), Now: time.Now, Version: version})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return "http://" + server.Addr(), stop
}

func TestPage(t *testing.T) {
	fleet := simulate.DefaultConfig()
	fleet.Speed = 20 // slow enough that a job is still there when it is clicked
	f, spill := fleetWithSpills(t, fleet)
	b := newTab(t, "http://"+f.server.Addr())
	jobPage := "/jobs/" + url.PathEscape(spill.JobID) + "?cluster=" + url.QueryEscape(spill.Cluster)
	rack := spill.Verdict.Shape[0]
	rackPage := "/domains/" + url.PathEscape(rack.Domain) + "?cluster=" + url.QueryEscape(spill.Cluster)

	t.Run("from the racks to why a job spilled, by clicks", func(t *testing.T) {
		b := b.in(t)
		b.open("/")
		b.shows(".summary", "GPUs:")
		b.shows(".summary", "across racks")
		b.shows("#freshness", "Fresh")
		b.do(chromedp.Click(chromedp.CSS(`.side .jobs button`)))
		b.at("/racks?job=")
		b.do(chromedp.Click(chromedp.CSS(`.side a.button`)), drawn)
		b.at("/jobs/")
		b.shows(".verdict-line", "Spilled")
		b.shows("h1", "Job ")
		b.do(chromedp.NavigateBack(), drawn)
		b.at("/racks")
	})
	t.Run("the job page says what the API says", func(t *testing.T) {
		b := b.in(t)
		job, err := f.reader.Job(context.Background(), spill.Cluster, spill.JobID)
		if err != nil {
			t.Fatal(err)
		}
		a, err := job.Pick(int32(spill.Attempt))
		if err != nil {
			t.Fatal(err)
		}
		why := read.Explain(job, a, f.settings.API.Links)
		b.open(jobPage + fmt.Sprintf("&attempt=%d", spill.Attempt))
		b.shows(".verdict-line", why.Lines[0])
		b.shows(".why", why.Lines[1])
		if why.Advice != nil {
			command := strings.Join(strings.Fields(*why.Advice)[:2], " ")
			b.shows(".verdict .next", command)
			b.shows(".verdict .next", strings.TrimSpace(strings.TrimPrefix(*why.Advice, command)))
		}
		b.shows(".rack-row", rack.Name())
		compared, err := f.reader.Compare(context.Background(), spill.Cluster, spill.JobID, int32(spill.Attempt))
		if err != nil {
			t.Fatal(err)
		}
		b.shows("main", "Against earlier runs")
		b.shows("main", compared.Lines[0])
		for _, e := range compared.Earlier {
			b.shows("main", e.JobID)
		}
		if v := a.Verdict; v.Traffic == nil {
			b.shows("main", "No traffic is known")
		} else {
			b.shows("main", "NVLink, a GPU")
		}
	})
	t.Run("keys alone lead from view to view and to a rack", func(t *testing.T) {
		b := b.in(t)
		b.open("/racks")
		b.do(chromedp.KeyEvent("g"), chromedp.KeyEvent("s"))
		b.at("/spills")
		b.shows("h1", "Spills")
		b.do(chromedp.KeyEvent("/"), chromedp.Evaluate[chromedp.Void](`document.activeElement.select()`), chromedp.KeyEvent(spill.JobID), chromedp.KeyEvent(kb.Enter))
		b.at("/jobs/" + spill.JobID)
		b.do(chromedp.KeyEvent("\t"), chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`), chromedp.KeyEvent("g"), chromedp.KeyEvent("r"))
		b.at("/racks")
		b.do(drawn, chromedp.Focus(chromedp.CSS(`.map canvas`)), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
		b.at("/racks?domain=")
		b.shows(".side h2", "rack03")
		b.do(chromedp.KeyEvent(kb.Enter), drawn)
		b.at("/domains/")
		b.shows("h1", "rack03")
	})
	t.Run("the questions of who plans and who looks back are answered in one step", func(t *testing.T) {
		b := b.in(t)
		b.open("/slots")
		b.shows("main", "with all trays in service")
		b.do(chromedp.SetValue(chromedp.CSS(`form.controls input[max="1000"]`), "3"), chromedp.Click(chromedp.CSS(`.panel form.controls button`)))
		b.shows("main", "Set aside: ")
		b.shows("main", "then for everybody")
		b.at("/slots?reserve=3")
		b.open("/report")
		b.shows("main", "What jobs asked for, and got, by queue")
		b.shows("main", "spillway simulate --from-history --since 168h")
		b.open("/advice")
		b.shows("main", "Did advice help?")
		b.shows("main", "No advice was given in the last week")
		b.open("/topology")
		b.shows("main", "Scheduler's view and ours")
		b.open(rackPage + "&since=2026-01-01T00:00:00Z")
		b.shows("main", "Who was here")
		b.shows("main", "By account, 2026-01-01 00:00:00Z")
		b.shows("main", spill.JobID)
		b.open("/exceptions?kind=overbooked")
		b.shows("main", "None of this kind")
	})
	t.Run("clicking the map picks a rack", func(t *testing.T) {
		b := b.in(t)
		b.open("/racks")
		b.do(chromedp.Evaluate[chromedp.Void](`(() => { const c = document.querySelector(".map canvas"), r = c.getBoundingClientRect();
			c.dispatchEvent(new MouseEvent("click", {clientX: r.left + 20, clientY: r.top + 12, bubbles: true})); })()`))
		b.at("/racks?")
		b.shows(".side h2", "rack01")
	})
	t.Run("empty, unknown, refused and stale are told apart in words", func(t *testing.T) {
		b := b.in(t)
		b.open("/spills?user=nobody-of-that-name")
		b.shows("main", "No placement was judged a spill by these filters")
		b.open("/jobs/404404")
		b.shows("main", "never seen")
		b.open("/advice?gpus=64")
		b.shows("main", "Recommendation")
		b.shows("main", "sbatch --nodes=16")
		b.base, _ = serveAlso(t, f, api.DefaultConfig()) // keeps no picture of the fleet
		b.open("/advice?gpus=64")
		b.shows("main", "The advisor is not available here")
	})
	t.Run("what stays on the screen is said to be old when the service is gone", func(t *testing.T) {
		b := b.in(t)
		address, stop := serveAlso(t, f, api.DefaultConfig())
		b.base = address
		b.open("/racks")
		b.shows(".summary", "GPUs:")
		stop()
		b.shows("#freshness", "No connection")
		b.shows("#freshness", "What you see is from")
		b.shows(".summary", "GPUs:")
	})
	t.Run("a service with a token asks for it and keeps it in the tab", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := api.DefaultConfig()
		cfg.TokenFile = file
		b := b.in(t)
		b.base, _ = serveAlso(t, f, cfg)
		answer := func(token string) {
			b.do(chromedp.WaitVisible(chromedp.CSS(`#token-dialog[open]`)), chromedp.SetValue(chromedp.CSS(`#token`), token),
				chromedp.Click(chromedp.CSS(`#token-form button`)))
		}
		b.do(chromedp.Navigate(b.base + "/racks"))
		answer("wrong-wrong-wrong")
		b.shows("#token-wrong", "refused")
		answer("0123456789abcdef0123456789abcdef")
		b.shows(".summary", "GPUs:")
		b.open("/spills")
		b.shows(".summary", "spilled placement")
		if got := b.address(); strings.Contains(got, "0123") {
			t.Errorf("the token stands in the address %s", got)
		}
	})
	t.Run("for people without a screen: explain, and the report as text, JSON and a page that prints", func(t *testing.T) {
		report := func(format string) string {
			var out, errs strings.Builder
			if code := run(context.Background(), []string{"report", "--since", "1d", "-o", format, "--api", "http://" + f.server.Addr()}, &out, &errs); code != exitOK {
				t.Fatalf("report -o %s ended with %d: %s", format, code, errs.String())
			}
			return out.String()
		}
		for flag, want := range map[string]string{"--mail": "/jobs/" + spill.JobID, "--admin-comment": "scontrol update JobId=" + spill.JobID + ` AdminComment="${old:+${old% | } | }"'spillway: Spilled`} {
			var out, errs strings.Builder
			if code := run(context.Background(), []string{"explain", flag, spill.JobID, "--api", "http://" + f.server.Addr()}, &out, &errs); code != exitOK || !strings.Contains(out.String(), want) {
				t.Errorf("explain %s ended with %d, want %q: %s%s", flag, code, want, out.String(), errs.String())
			}
		}
		if text := report("table"); !strings.Contains(text, "What to change") || !strings.Contains(text, "exposed to spill") {
			t.Errorf("got\n%s", text)
		}
		for _, ask := range []struct {
			args []string
			want string
		}{
			{[]string{"job", spill.JobID}, "against earlier runs: "},
			{[]string{"domains", rack.Domain, "--since", "2026-01-01T00:00:00Z"}, "GPU-HOURS HERE"},
			{[]string{"domains", rack.Domain, "--since", "2026-01-01T00:00:00Z", "-o", "json"}, `"gpu_hours"`},
		} {
			var out, errs strings.Builder
			if code := run(context.Background(), append(ask.args, "--api", "http://"+f.server.Addr()), &out, &errs); code != exitOK || !strings.Contains(out.String(), ask.want) {
				t.Errorf("%v ended with %d, want %q: %s%s", ask.args, code, ask.want, out.String(), errs.String())
			}
		}
		var errs strings.Builder
		if code := run(context.Background(), []string{"domains", "--since", "2026-01-01T00:00:00Z"}, io.Discard, &errs); code != exitUsage || !strings.Contains(errs.String(), "are about one domain") {
			t.Errorf("a time without a domain: ended with %d: %s", code, errs.String())
		}
		if text := report("json"); !strings.Contains(text, `"exposed_gpu_hours"`) {
			t.Errorf("got\n%s", text)
		}
		b := b.in(t)
		file := filepath.Join(t.TempDir(), "report.html")
		if err := os.WriteFile(file, []byte(report("html")), 0o644); err != nil {
			t.Fatal(err)
		}
		b.do(chromedp.Navigate("file://" + file))
		b.shows("h1", "Spills and fragmentation")
		b.shows("body", "What to change")
		for _, finding := range b.axe(string(testenv.NPMFile(t, "axe-core", "axe.min.js"))) {
			t.Error(finding)
		}
		b.picture("report")
	})
	t.Run("no serious finding of axe in any view, theme and width", func(t *testing.T) {
		b := b.in(t)
		axe := string(testenv.NPMFile(t, "axe-core", "axe.min.js"))
		again := jobPage // a job that spills and has earlier runs, where the fleet has one by now
		running, err := f.reader.Spills(t.Context(), read.SpillFilter{Running: true, Since: time.Now().Add(-time.Hour), Until: time.Now(), BySeverity: true, Limit: 30})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range running.Spills {
			if c, err := f.reader.Compare(t.Context(), s.Cluster, s.JobID, int32(s.Attempt)); err == nil && c.Placement != nil {
				again = "/jobs/" + url.PathEscape(s.JobID) + "?cluster=" + url.QueryEscape(s.Cluster)
				break
			}
		}
		views := []struct{ name, path string }{
			{"racks", "/racks"}, {"racks-job", "/racks?job=" + spill.JobID}, {"racks-tenant", "/racks?by=tenant&lines=off"}, {"racks-table", "/racks?as=table"},
			{"rack", rackPage}, {"spills", "/spills"}, {"spills-empty", "/spills?user=nobody"}, {"job", jobPage}, {"job-again", again},
			{"job-unknown", "/jobs/404404"}, {"slots", "/slots?reserve=2&buy=1"}, {"exceptions", "/exceptions"}, {"rack-past", rackPage + "&since=2020-01-01T00:00:00Z"}, {"advice", "/advice?gpus=64"}, {"topology", "/topology"}, {"report-view", "/report?since=1d"}, {"status", "/status"},
		}
		for _, theme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				height := int64(900)
				b.do(chromedp.EmulateViewport(width, height))
				media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}}
				if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
					t.Fatal(err)
				}
				for _, v := range views {
					where := fmt.Sprintf("%s-%s-%d", v.name, theme, width)
					b.open(v.path)
					if state := b.attribute(".view", "data-state"); state != "drawn" && v.name != "job-unknown" {
						t.Errorf("%s is %s: %s", where, state, b.text("main"))
					}
					if v.name == "slots" { // these two come when the rest stands
						b.shows("main", "then for everybody")
						b.shows("main", "with all trays in service")
					}
					wide, err := chromedp.Run(b.ctx, chromedp.Evaluate[int](`document.documentElement.scrollWidth - document.documentElement.clientWidth`))
					if err != nil || wide > 0 {
						t.Errorf("%s is %d pixels wider than the screen (%v)", where, wide, err)
					}
					b.picture(where)
					for _, finding := range b.axe(axe) {
						t.Errorf("%s: %s", where, finding)
					}
				}
			}
		}
	})
}

// TestPageTellsStatesApart shows the page over a store without anything, and over two clusters that know each other's names
// and lack facts.
func TestPageTellsStatesApart(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) // when the seed's questions are asked
	serve := func(seed string) string {
		store := testenv.ClickHouse(t)
		ctx, stop := context.WithCancel(context.Background())
		if err := clickhouse.Migrate(ctx, store.Conn, clickhouse.Options{Database: store.Database}); err != nil {
			t.Fatal(err)
		}
		for _, statement := range strings.Split(seed, ";\n") {
			if strings.TrimSpace(statement) != "" {
				if err := store.Conn.Exec(ctx, statement); err != nil {
					t.Fatal(err)
				}
			}
		}
		cfg := api.DefaultConfig()
		cfg.Listen = "127.0.0.1:0"
		now := func() time.Time { return noon }
		server, err := api.New(cfg, api.Deps{Reader: read.New(store.Conn, now), Ping: store.Conn.Ping, Log: slog.New(slog.DiscardHandler), Now: now, Version: version})
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Listen(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- server.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			<-done
		})
		return "http://" + server.Addr()
	}
	seed, err := os.ReadFile("../../query/read/testdata/seed.sql")
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, serve(""))
	b.clock(noon)
	axe := string(testenv.NPMFile(t, "axe-core", "axe.min.js"))
	check := func(b *tab, name, path string, texts ...string) {
		b.t.Helper()
		b.open(path)
		for _, want := range texts {
			b.shows("body", want)
		}
		b.picture(name)
		for _, finding := range b.axe(axe) {
			b.t.Errorf("%s: %s", path, finding)
		}
	}
	t.Run("nothing is known yet", func(t *testing.T) {
		b := b.in(t)
		check(b, "none-racks", "/racks", "No rack is known yet", "Age unknown")
		check(b, "none-spills", "/spills", "No placement was judged a spill", "not an all-clear")
		check(b, "none-slots", "/slots", "No domain is known yet")
		check(b, "none-topology", "/topology", "No node is known yet", "No collector has reported")
		check(b, "none-report", "/report", "Nothing stands out", "No account held anything")
		check(b, "none-status", "/status", "Nothing heard", "Nothing loaded yet")
		check(b, "none-exceptions", "/exceptions", "Everything fits together", "not an all-clear")
		check(b, "none-advice", "/advice", "No ledger is kept here")
	})
	t.Run("two clusters, a failing source, nodes without a domain", func(t *testing.T) {
		b := b.in(t)
		b.base = serve(string(seed))
		check(b, "gaps-racks", "/racks", "Stale", "authentication failure", "2 nodes without a known domain", "not known", "No job that can be judged spills", "1 job cannot be judged")
		check(b, "gaps-topology", "/topology", "Conflicts", "rack02 is in u-1 and u-2", "no source names its domain")
		check(b, "gaps-status", "/status", "failing", "refused today")
		check(b, "gaps-job", "/jobs/7?cluster=beta", "Cannot say", "The domain of 1 node is not known", "Nothing to say", "neither a spill nor")
		check(b, "gaps-waiting", "/jobs/9", "Not started")
		check(b, "gaps-exceptions", "/exceptions", "1 wants somebody to look", "On a node that is down", "Not responding")
		check(b, "gaps-views", "/topology?cluster=alpha", "Another domain", "slurm_topology: rack02", "Unknown to the topology")
		check(b, "gaps-compare", "/jobs/7?cluster=alpha", "Placed better than last time", "job 7 of 2026-11-29 10:00:00Z")
		check(b, "gaps-rack", "/domains/rack01?cluster=alpha&since=2026-11-29T09:00:00Z&until=2026-11-29T12:00:00Z", "By account", "118.7", "probe job")
		check(b, "gaps-report", "/report", "Placements by queue and wish", "segment")
		b.open("/domains/rack01?cluster=alpha&since=2026-11-29T09:00:00Z&until=2026-11-29T08:00:00Z")
		b.shows("main", "since is not before until")
		b.open("/domains/rack01?cluster=alpha&at=yesterday")
		b.shows("main", "validation failed: query.at: invalid date/time")
		b.open("/jobs/7")
		b.shows("main", "alpha and beta")
		b.do(chromedp.SendKeys(chromedp.CSS(`main form input`), "alpha"), chromedp.Click(chromedp.CSS(`main form button`)))
		b.at("/jobs/7?cluster=alpha")
		b.shows(".verdict-line", "No spill")
		b.do(chromedp.Click(chromedp.CSS(`.attempts a:last-of-type`)))
		b.shows(".verdict-line", "Spilled by policy")
	})
}

// in is the same tab in a subtest; what the console complains of fails that subtest.
func (b *tab) in(t *testing.T) *tab {
	one := &tab{t: t, ctx: b.ctx, base: b.base}
	t.Cleanup(func() {
		b.t = t
		b.quiet()
	})
	return one
}

// clock has the pages that are opened from now on suppose that it is that time, as the service does which they ask.
func (b *tab) clock(at time.Time) {
	b.t.Helper()
	script := fmt.Sprintf(`{
		const Real = Date, off = %d - Real.now();
		Date = class extends Real {
			constructor(...at) { at.length ? super(...at) : super(Real.now() + off); }
			static now() { return Real.now() + off; }
		};
	}`, at.UnixMilli())
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		b.t.Fatal(err)
	}
}

// picture keeps a screenshot in the folder that SPILLWAY_SHOTS names, for people to look at.
func (b *tab) picture(name string) {
	b.t.Helper()
	folder := os.Getenv("SPILLWAY_SHOTS")
	if folder == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// axe gives the serious and critical findings.
func (b *tab) axe(source string) (out []string) {
	b.t.Helper()
	run := `axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => ({id: v.id, impact: v.impact, help: v.help,
		nodes: v.nodes.slice(0, 3).map((n) => n.target.join(" ") + ": " + (n.any[0]?.message ?? n.all[0]?.message ?? n.none[0]?.message ?? ""))}))))`
	b.do(chromedp.Evaluate[chromedp.Void](source))
	raw, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](run, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	var findings []struct {
		ID, Impact, Help string
		Nodes            []string
	}
	if err := json.Unmarshal([]byte(raw), &findings); err != nil {
		b.t.Fatalf("read axe's answer %q: %v", raw, err)
	}
	for _, f := range findings {
		if f.Impact == "serious" || f.Impact == "critical" {
			out = append(out, fmt.Sprintf("%s (%s): %s: %s", f.ID, f.Impact, f.Help, strings.Join(f.Nodes, "; ")))
		}
	}
	return out
}
