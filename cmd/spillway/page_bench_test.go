package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// BenchmarkPage measures the page over 1,389 racks, 100,008 GPUs: how soon something is painted, how soon the map stands
// and answers, and how long frames take while it is scrolled from end to end.
func BenchmarkPage(b *testing.B) {
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	f, err := open(context.Background(), &s, stages{serve: true}, true, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()
	b.Cleanup(func() {
		stop()
		<-ended
		f.close()
	})
	// Jobs of four nodes in a row over 24,000 of 25,002 nodes, every tenth a spill: what is measured is the reader and the page.
	node := func(n string) string {
		return "concat('gb-r', toString(intDiv(" + n + ", 18)), '-n', toString((" + n + ") % 18))"
	}
	for _, statement := range []string{
		"INSERT INTO membership (cluster, node, valid_from, valid_to, domain, levels, source, generation, version) SELECT 'c', " + node("number") +
			", '2026-01-01', '2200-01-01', concat('d', toString(intDiv(number, 18))), map('rack', concat('rack', toString(intDiv(number, 18)))), 'nvml', 1, 1 FROM numbers(25002)",
		"INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, version) SELECT 'c', " + node("number") +
			", '2026-01-01', '2200-01-01', 4, if(number % 97 = 0, 0, 4), number % 97 != 0, if(number % 97 = 0, 'DRAIN', 'ALLOCATED'), 1 FROM numbers(25002)",
		"INSERT INTO attempts (cluster, job_id, attempt, scheduler, name, user, account, state, start, gpus, sources, version) SELECT 'c', toString(number), 'r0', " +
			"'slurm', 'train', concat('u', toString(number % 200)), concat('a', toString(number % 20)), 'running', '2026-11-01', 16, ['slurm'], 1 FROM numbers(6000)",
		"INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, gpus_basis, version) SELECT 'c', toString(number), 'r0', " +
			"'2026-11-01', '2200-01-01', arrayMap(i -> " + node("number * 4 + i") + ", range(4)), [4, 4, 4, 4], [[], [], [], []], 16, 'exact', 1 FROM numbers(6000)",
		"INSERT INTO verdicts (cluster, job_id, attempt, valid_from, valid_to, outcome, gpus, node_count, domains_used, domains_min, domains, domain_gpus, domain_nodes, cause, version) " +
			"SELECT 'c', toString(number), 'r0', '2026-11-01', '2200-01-01', if(number % 10 = 0, 'spill', 'one_domain'), 16, 4, 2, 1, ['a', 'b'], [8, 8], [2, 2], if(number % 10 = 0, 'policy', ''), 1 FROM numbers(6000)",
	} {
		if err := f.conn.Exec(ctx, statement); err != nil {
			b.Fatal(err)
		}
	}
	tab := newTab(b, "http://"+f.server.Addr())
	tab.do(chromedp.EmulateViewport(1280, 900))
	var asked []time.Duration
	for range 10 {
		start := time.Now()
		m, err := f.reader.MapAt(ctx, "", start)
		if err != nil {
			b.Fatal(err)
		}
		asked = append(asked, time.Since(start))
		if len(m.Domains.Domain) < 1389 || len(m.Jobs) == 0 {
			b.Fatalf("the map has %d domains and %d jobs", len(m.Domains.Domain), len(m.Jobs))
		}
	}
	var painted, drawn, answered []time.Duration
	for b.Loop() {
		tab.do(chromedp.Navigate("about:blank"))
		tab.open("/racks")
		ms := evaluate[[]float64](tab, `new Promise((done) => { const look = () => {
			const drawn = performance.getEntriesByName("map-drawn")[0];
			if (!drawn) return setTimeout(look, 5);
			// Interactive: the main thread is free again and a key on the map is answered.
			const canvas = document.querySelector(".map canvas");
			canvas.focus();
			canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}));
			requestAnimationFrame(() => done([performance.getEntriesByName("first-contentful-paint")[0].startTime, drawn.startTime, performance.now()]));
		}; look(); })`)
		painted = append(painted, milliseconds(ms[0]))
		drawn = append(drawn, milliseconds(ms[1]))
		answered = append(answered, milliseconds(ms[2]))
	}
	frames := evaluate[[]float64](tab, `new Promise((done) => { const box = document.querySelector(".map"), frames = [];
		let last = performance.now();
		const step = (now) => {
			frames.push(now - last);
			last = now;
			box.scrollTop += 20;
			if (frames.length < 120 && box.scrollTop + box.clientHeight < box.scrollHeight - 1) requestAnimationFrame(step);
			else done(frames.slice(1));
		};
		requestAnimationFrame(step); })`)
	var took []time.Duration
	for _, ms := range frames {
		took = append(took, milliseconds(ms))
	}
	for _, figure := range []struct {
		name string
		of   []time.Duration
	}{{"map-query", asked}, {"first-paint", painted}, {"map-drawn", drawn}, {"interactive", answered}, {"scroll-frame", took}} {
		p50, _, most := quantiles(figure.of)
		b.ReportMetric(float64(p50.Microseconds())/1000, figure.name+"-p50-ms")
		b.ReportMetric(float64(most.Microseconds())/1000, figure.name+"-max-ms")
	}
	tab.picture("racks-100000")
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// evaluate runs a script that ends in a promise.
func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}
