package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

const twoRacks = `declared membership nodes=a[1-4] uuid=A clique=1
declared membership nodes=b[1-4] uuid=B clique=1
declared node nodes=a[1-4],b[1-4] gpus=4
`

// TestRunFollowsWhatIsLoaded: records loaded while the passes run become verdicts, metrics and spill records; a failure in
// between is survived; the end of the context ends it.
func TestRunFollowsWhatIsLoaded(t *testing.T) {
	s := newStore(t)
	reg := prometheus.NewPedanticRegistry()
	var mu sync.Mutex
	var sent []*event.Spill
	cfg := DefaultConfig()
	cfg.Interval, cfg.Gather, cfg.RetryMin, cfg.RetryMax = 10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	conn := &crashing{Conn: s.Conn, left: 5} // the first pass dies
	p, err := New(cfg, Deps{Conn: conn, Registry: reg, Emit: func(_ context.Context, records ...event.Record) error {
		mu.Lock()
		defer mu.Unlock()
		if len(sent) == 0 && len(records) > 0 {
			conn.left = 1 << 30
		}
		for _, r := range records {
			if err := r.Validate(); err != nil {
				t.Error(err)
			}
			sent = append(sent, r.(*event.Spill))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.feed(parseCase(t, twoRacks+`10:00:00 job id=1 start=10:00:00 nodes=a1,b1 gpus=8`)...)
	if _, err := p.Once(t.Context()); err == nil {
		t.Fatal("the pass was to die")
	}
	conn.left = 1 << 30
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	has := func(outcome, cause string, to bool) func() error {
		return func() error {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range sent {
				if r.GetOutcome() == outcome && r.GetCause() == cause && (r.ToMs != nil) == to {
					return nil
				}
			}
			return fmt.Errorf("no %s %s among %v", outcome, cause, sent)
		}
	}
	testenv.Eventually(t, time.Minute, has("spill", "policy", false))
	gauge := func(name, want string) func() error {
		return func() error {
			if got := gathered(t, reg, name); got != want {
				return fmt.Errorf("%s is %q, want %q", name, got, want)
			}
			return nil
		}
	}
	s.feed(parseCase(t, `10:30:00 job id=1 start=10:00:00 end=10:30:00 state=completed`)...)
	testenv.Eventually(t, time.Minute, has("spill", "policy", true))
	testenv.Eventually(t, time.Minute, gauge("spillway_enrich_lag_seconds", "0\n"))
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestWhoAskedToBeAloneIsJudgedAgain: what another held meanwhile is told late.
func TestWhoAskedToBeAloneIsJudgedAgain(t *testing.T) {
	for name, now := range map[string]func() time.Time{"long after": time.Now, "at the time": func() time.Time { return time.UnixMilli(day) }} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.Passes.now = now
			for _, told := range []struct{ records, met string }{
				{twoRacks + "10:00:00 job id=1 start=10:00:00 end=10:20:00 state=completed nodes=a1 gpus=4 exclusive=yes", "met=yes"},
				{"11:00:00 job id=2 start=09:00:00 end=10:30:00 state=completed nodes=a2 gpus=4", "met=no"},
			} {
				s.feed(parseCase(t, told.records)...)
				s.once()
				if got, _, _ := strings.Cut(s.verdictText(), "\n"); !strings.HasSuffix(got, told.met) {
					t.Errorf("got %s, want %s", got, told.met)
				}
			}
		})
	}
}

// TestOnlyOneWorksOnADatabase: a second stage, or a rejudge beside one, is noticed by whichever comes to look after the other
// has finished a pass.
func TestOnlyOneWorksOnADatabase(t *testing.T) {
	s := newStore(t)
	other := func() *Passes {
		p, err := New(DefaultConfig(), Deps{Conn: s.Conn})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	s.feed(parseCase(t, twoRacks+"10:00:00 job id=1 start=10:00:00 nodes=a1,b1 gpus=8")...)
	s.once()
	if _, err := other().Rejudge(t.Context(), time.UnixMilli(day), time.UnixMilli(day).AddDate(0, 0, 1)); err != nil {
		t.Fatalf("while no stage runs: %v", err)
	}
	s.feed(parseCase(t, "10:30:00 job id=1 start=10:00:00 nodes=a1,b1 gpus=8")...)
	if _, err := s.Once(t.Context()); !errors.Is(err, ErrNotAlone) {
		t.Errorf("a stage that a rejudge ran beside got %v", err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, ErrNotAlone) {
		t.Errorf("it ends with %v", err)
	}
	a, b := other(), other()
	for _, p := range []*Passes{a, b} {
		if _, err := p.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.feed(parseCase(t, "11:00:00 job id=1 start=10:00:00 end=11:00:00 state=completed")...)
	if _, err := b.Once(t.Context()); err != nil {
		t.Errorf("the second: %v", err)
	}
	if _, err := a.Once(t.Context()); !errors.Is(err, ErrNotAlone) {
		t.Errorf("the first: %v", err)
	}
	// A rejudge notices a stage that passed while it judged.
	judging := other()
	judging.conn = &between{Conn: s.Conn, at: "WHERE valid_from >= ", then: func() {
		s.feed(parseCase(t, "12:00:00 job id=2 start=12:00:00 nodes=a1 gpus=4")...)
		if _, err := other().Once(t.Context()); err != nil {
			t.Error(err)
		}
	}}
	if _, err := judging.Rejudge(t.Context(), time.UnixMilli(day), time.UnixMilli(day).AddDate(0, 0, 1)); !errors.Is(err, ErrNotAlone) {
		t.Errorf("a rejudge beside a stage got %v", err)
	}
}

// between does something before the first query with a text.
type between struct {
	driver.Conn
	at   string
	then func()
}

func (c *between) Query(ctx context.Context, q string, args ...any) (driver.Rows, error) {
	if c.then != nil && strings.Contains(q, c.at) {
		c.then()
		c.then = nil
	}
	return c.Conn.Query(ctx, q, args...)
}

// TestOwnProgressIsNoOther: progress that was stored and not confirmed is one's own.
func TestOwnProgressIsNoOther(t *testing.T) {
	s := newStore(t)
	s.feed(parseCase(t, twoRacks)...)
	s.once()
	s.feed(parseCase(t, "10:00:00 job id=1 start=10:00:00 nodes=a1,b1 gpus=8")...)
	s.Passes.conn = unconfirmed{s.Conn}
	if _, err := s.Once(t.Context()); !errors.Is(err, errCrash) {
		t.Fatalf("it was to crash: %v", err)
	}
	s.Passes.conn = s.Conn
	s.once()
}

// unconfirmed stores progress and does not learn of it.
type unconfirmed struct{ driver.Conn }

func (c unconfirmed) PrepareBatch(ctx context.Context, q string, opts ...driver.PrepareBatchOption) (driver.Batch, error) {
	b, err := c.Conn.PrepareBatch(ctx, q, opts...)
	if q != "INSERT INTO pass_progress" {
		return b, err
	}
	return crashingBatch{b, &crashing{left: 1}, q}, err
}

// gathered is a gauge as text, a line for each set of labels.
func gathered(t *testing.T, reg *prometheus.Registry, name string) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				text += l.GetName() + "=" + l.GetValue() + " "
			}
			text += fmt.Sprintln(m.GetGauge().GetValue())
		}
	}
	return text
}

// TestBatchesAndChunksDoNotMatter: a backlog cut into many small batches and judged in tiny chunks comes out as in one.
func TestBatchesAndChunksDoNotMatter(t *testing.T) {
	var text strings.Builder
	text.WriteString(twoRacks)
	for i := range 30 {
		fmt.Fprintf(&text, "%02d:%02d:00 job id=%d start=%02d:%02d:00 nodes=a%d,b%d gpus=8 limit=%dm\n", 8+i/6, i%6*10, i, 8+i/6, i%6*10, 1+i%4, 1+i%3, 10+i)
		if i%2 == 0 {
			fmt.Fprintf(&text, "%02d:%02d:30 job id=%d state=completed start=%02d:%02d:00 end=%02d:%02d:30\n", 9+i/6, i%6*10, i, 8+i/6, i%6*10, 9+i/6, i%6*10)
		}
	}
	records := parseCase(t, text.String())
	one := newStore(t)
	one.feed(records...)
	one.once()
	many := newStore(t)
	many.cfg.BatchRows, many.cfg.ChunkRows = 7, 3
	many.feed(records...)
	many.once()
	if got, want := many.verdictText(), one.verdictText(); got != want {
		t.Errorf("in small pieces there is\n%s\nin one\n%s", got, want)
	}
	if s := one.once(); s.Rows != 0 || s.Judged != 0 {
		t.Errorf("with nothing new a pass did %+v", s)
	}
}

func TestPassesAreLinkedToTheTracesOfNewRecords(t *testing.T) {
	s := newStore(t)
	spans := tracetest.NewSpanRecorder()
	s.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("pass")
	job := func(id, trace string) []any {
		at := time.UnixMilli(day)
		row := placementValues(&event.Placement{Cluster: "c", JobId: id, Scheduler: "slurm", Source: "slurm.squeue", State: event.State_RUNNING,
			ObservedAtMs: day, Revision: uint64(at.UnixMicro())})
		row[len(row)-1] = trace
		return row
	}
	linked := func() (ids []string) {
		for _, span := range spans.Ended() {
			for _, l := range span.Links() {
				ids = append(ids, l.SpanContext.TraceID().String())
			}
		}
		spans.Reset()
		return ids
	}
	const a, b = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
	s.insert(rawPlacements, [][]any{job("1", "00-"+a+"-b7ad6b7169203331-01"), job("2", "")})
	s.once()
	if got := linked(); !slices.Equal(got, []string{a}) {
		t.Errorf("linked to %q, want %s", got, a)
	}
	s.insert(rawPlacements, [][]any{job("1", "00-"+b+"-b7ad6b7169203331-01")})
	s.once()
	if got := linked(); !slices.Equal(got, []string{b}) {
		t.Errorf("then linked to %q, want %s alone", got, b)
	}
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"enrich.interval must be greater than zero":               func(c *Config) { c.Interval = 0 },
		"enrich.settle must not be negative":                      func(c *Config) { c.Settle = -1 },
		"enrich.gone_after must not be negative":                  func(c *Config) { c.GoneAfter = -1 },
		"enrich.retry_max must not be less than enrich.retry_min": func(c *Config) { c.RetryMax = 0 },
		"sizes are GPUs, from 1 to 65535, in rising order":        func(c *Config) { c.SlotSizes = []int{4, 2} },
		`"nvlm" is no membership source: want some of `:           func(c *Config) { c.Precedence = []string{"nvlm"} },
		`"nvml" stands there twice`:                               func(c *Config) { c.Precedence = []string{"nvml", "nvml"} },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %q in it", err, want)
		}
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
}
