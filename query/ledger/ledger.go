// Package ledger keeps what the advisor answered and grades it against what happened. It stands beside query/advise, after
// the answer has left: it never holds an answer up, and drops rows, counted, rather than wait for ClickHouse.
package ledger

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/query/advise"
	schema "github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// Config bounds what waits to be stored.
type Config struct {
	Queue int           `yaml:"queue"` // answers that wait; more are dropped and counted
	Batch int           `yaml:"batch"` // rows of one insert
	Every time.Duration `yaml:"every"` // an insert at least so often while there is anything
	Grade time.Duration `yaml:"grade"` // how often answers are graded for /metrics; those of the last day
}

// DefaultConfig inserts once in two seconds.
func DefaultConfig() Config {
	return Config{Queue: 20_000, Batch: 5_000, Every: 2 * time.Second, Grade: time.Minute}
}

// Validate says what cannot be.
func (c Config) Validate() error {
	if c.Queue < 1 || c.Batch < 1 || c.Every <= 0 || c.Grade <= 0 {
		return fmt.Errorf("queue %d, batch %d, every %s and grade %s must be positive", c.Queue, c.Batch, c.Every, c.Grade)
	}
	return nil
}

// Answer is one row of the ledger. Nil is not known.
type Answer struct {
	AskedAt        time.Time `ch:"asked_at"`
	Cluster        string    `ch:"cluster"`
	AdviceID       string    `ch:"advice_id"`
	RequestID      string    `ch:"request_id"`
	Caller         string    `ch:"caller"`
	JobID          string    `ch:"job_id"`
	User           string    `ch:"user"`
	JobName        string    `ch:"job_name"`
	Tenant         string    `ch:"tenant"`
	Class          string    `ch:"class"`
	Mode           string    `ch:"mode"`
	GPUs           uint32    `ch:"gpus"`
	SegmentNodes   uint32    `ch:"segment_nodes"`
	Strategy       string    `ch:"strategy"`
	SnapshotSeq    uint64    `ch:"snapshot_seq"`
	Generation     uint64    `ch:"generation"`
	AgeMS          *uint32   `ch:"age_ms"`
	Code           string    `ch:"code"`
	Recommendation string    `ch:"recommendation"`
	WaitS          *uint32   `ch:"wait_s"`
	Domains        []string  `ch:"domains"`
	DomainNodes    []uint32  `ch:"domain_nodes"`
	SlowdownLow    *float32  `ch:"slowdown_low"`
	SlowdownHigh   *float32  `ch:"slowdown_high"`
	Basis          string    `ch:"basis"`
	TookUS         uint32    `ch:"took_us"`
	// Answer is what was answered, as JSON. It is not to be changed any more.
	Answer json.RawMessage `ch:"answer"`
}

// Feedback is what a caller tells of an advice.
type Feedback struct {
	ToldAt   time.Time `ch:"told_at"`
	Cluster  string    `ch:"cluster"`
	AdviceID string    `ch:"advice_id"`
	JobID    string    `ch:"job_id"`
	Chosen   *uint8    `ch:"chosen"`
	Slowdown *float32  `ch:"slowdown"`
	Comment  string    `ch:"comment"`
}

// Deps is what the ledger works with.
type Deps struct {
	Write    driver.Conn // may insert
	Read     driver.Conn
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: metrics are kept but not registered
	Now      func() time.Time
}

// Ledger takes rows from any goroutine and stores them from Run.
type Ledger struct {
	cfg      Config
	deps     Deps
	answers  chan *Answer // pointers: an empty queue is looked through by every collection of garbage
	feedback chan Feedback

	gradeWithin time.Duration // bounds one grading for /metrics: no row is stored meanwhile

	stored, dropped *prometheus.CounterVec
	grades          *prometheus.GaugeVec
	inside          *prometheus.GaugeVec
}

// New prepares a ledger that stores nothing until Run.
func New(cfg Config, deps Deps) (*Ledger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("advise.ledger: %w", err)
	}
	l := &Ledger{
		cfg: cfg, deps: deps, answers: make(chan *Answer, cfg.Queue), feedback: make(chan Feedback, cfg.Queue), gradeWithin: insertWithin,
		stored:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_advise_ledger_stored_total", Help: "Rows of the advice ledger stored, by table."}, []string{"table"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "spillway_advise_ledger_dropped_total", Help: "Rows of the advice ledger given up, by why."}, []string{"why"}),
		grades:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_advise_graded", Help: "Answers of the last day by what became of them."}, []string{"cluster", "what"}),
		inside:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "spillway_advise_interval_share", Help: "Share of measured slowdowns of the last day inside the predicted interval; absent where none was measured."}, []string{"cluster"}),
	}
	if deps.Registry != nil {
		deps.Registry.MustRegister(l.stored, l.dropped, l.grades, l.inside)
	}
	return l, nil
}

// Name is the component's name.
func (l *Ledger) Name() string { return "ledger" }

// Add keeps an answer. It never waits.
func (l *Ledger) Add(a Answer) {
	select {
	case l.answers <- &a:
	default:
		l.dropped.WithLabelValues("queue full").Inc()
	}
}

// Tell keeps feedback, and reports whether there was room for it. It never waits.
func (l *Ledger) Tell(f Feedback) bool {
	select {
	case l.feedback <- f:
		return true
	default:
		l.dropped.WithLabelValues("queue full").Inc()
		return false
	}
}

// insertWithin bounds one insert.
const insertWithin = 10 * time.Second

// Run stores what comes until ctx ends, and then what is left. Rows are made ready one by one as they come: done all at
// once before an insert, a thousand of them would hold up the answers of that moment.
func (l *Ledger) Run(ctx context.Context) error {
	every, grade := time.NewTicker(l.cfg.Every), time.NewTicker(l.cfg.Grade)
	defer every.Stop()
	defer grade.Stop()
	answers, feedback := pending{l: l, table: schema.TableAdviceLedger}, pending{l: l, table: schema.TableAdviceFeedback}
	for {
		select {
		case <-ctx.Done():
			for len(l.answers) > 0 {
				answers.add(<-l.answers)
			}
			for len(l.feedback) > 0 {
				feedback.add(new(<-l.feedback))
			}
			answers.send()
			feedback.send()
			return nil
		case a := <-l.answers:
			answers.add(a)
		case f := <-l.feedback:
			feedback.add(&f)
		case <-every.C:
			answers.send()
			feedback.send()
		case <-grade.C:
			answers.send() // no insert stays open meanwhile
			feedback.send()
			l.measure(ctx)
		}
	}
}

// pending is one insert that is being filled. What fails is tried again by nobody: it is counted.
type pending struct {
	l      *Ledger
	table  string
	batch  driver.Batch // nil: none is open
	cancel context.CancelFunc
	rows   int
	failed bool // since the last send; what comes is given up without asking ClickHouse again
}

// add puts a row, a pointer to a struct, into the insert.
func (p *pending) add(row any) {
	p.rows++
	if p.failed {
		return
	}
	if err := p.append(row); err != nil {
		p.fail(err)
		return
	}
	switch {
	case p.rows >= p.l.cfg.Batch:
		p.send()
	case p.rows%rowsAtOnce == 0: // the insert stays open
		if err := p.batch.Flush(); err != nil {
			p.fail(err)
		}
	}
}

// rowsAtOnce are packed and sent without a pause: as many as take less than a millisecond.
const rowsAtOnce = 50

func (p *pending) append(row any) error {
	if p.batch == nil {
		var ctx context.Context
		ctx, p.cancel = context.WithTimeout(context.Background(), p.l.cfg.Every+insertWithin)
		var err error
		if p.batch, err = p.l.deps.Write.PrepareBatch(ctx, "INSERT INTO "+p.table); err != nil {
			return err
		}
	}
	return p.batch.AppendStruct(row)
}

// send inserts what there is.
func (p *pending) send() {
	if p.batch != nil && !p.failed {
		if err := p.batch.Send(); err != nil {
			p.fail(err)
		} else {
			p.l.stored.WithLabelValues(p.table).Add(float64(p.rows))
			p.rows = 0
		}
	}
	if p.failed {
		p.l.dropped.WithLabelValues("insert failed").Add(float64(p.rows))
		p.rows, p.failed = 0, false
	}
	p.close()
}

func (p *pending) fail(err error) {
	p.failed = true
	p.l.deps.Log.Warn("storing the ledger of advice failed", "table", p.table, "rows", p.rows, "error", err)
}

// close lets go of the insert's connection.
func (p *pending) close() {
	if p.batch != nil {
		_ = p.batch.Close()
		p.batch = nil
	}
	if p.cancel != nil {
		p.cancel()
		p.cancel = nil
	}
}

func (l *Ledger) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.gradeWithin)
	defer cancel()
	var rows uint64 // none, as where nobody asks for advice: the question is a large one
	if err := l.deps.Read.QueryRow(ctx, "SELECT count() FROM "+schema.TableAdviceLedger).Scan(&rows); err == nil && rows == 0 {
		return
	}
	grades, err := l.Grades(ctx, "", l.deps.Now().Add(-24*time.Hour))
	if err != nil {
		l.deps.Log.Warn("grading advice failed", "error", err)
		return
	}
	for _, g := range grades {
		for what, n := range map[string]uint64{
			"answered": g.Answered, "refused": g.Refused, "started": g.Started, "followed": g.Followed, "spilled": g.Spilled,
			"followed_spilled": g.FollowedSpilled,
		} {
			l.grades.WithLabelValues(g.Cluster, what).Set(float64(n))
		}
		if g.Measured > 0 {
			l.inside.WithLabelValues(g.Cluster).Set(float64(g.Inside) / float64(g.Measured))
		} else {
			l.inside.DeleteLabelValues(g.Cluster)
		}
	}
}

// Grade is what became of the advice of one cluster.
type Grade struct {
	Cluster         string `json:"cluster" ch:"cluster"`
	Answered        uint64 `json:"answered" ch:"answered" doc:"Answers with advice."`
	Refused         uint64 `json:"refused" ch:"refused" doc:"Answers without, for a reason."`
	Started         uint64 `json:"started" ch:"started" doc:"Answers whose job is known and has been placed since."`
	Followed        uint64 `json:"followed" ch:"followed" doc:"Placed in exactly the domains advised."`
	Spilled         uint64 `json:"spilled" ch:"spilled" doc:"Placed with a spill."`
	FollowedSpilled uint64 `json:"followed_spilled" ch:"followed_spilled" doc:"Placed as advised, with a spill."`
	OnTime          uint64 `json:"on_time" ch:"on_time" doc:"Started within a minute of the start that was advised."`
	Measured        uint64 `json:"measured" ch:"measured" doc:"Split placements with a predicted interval whose slowdown was measured: told by feedback, or by run times of the same user, name and size in one domain."`
	Inside          uint64 `json:"inside" ch:"inside" doc:"Of measured: inside the interval, give or take 0.02."`
}

//go:embed sql/grade.sql
var gradeSQL string

// Grades joins the answers given since a time with what became of their jobs, by cluster ("" = all).
func (l *Ledger) Grades(ctx context.Context, cluster string, since time.Time) ([]Grade, error) {
	out := []Grade{}
	ctx = clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{
		"cluster": cluster, "probe_cluster": event.ProbeCluster, "since": since.UTC().Format("2006-01-02 15:04:05.000"),
	}))
	if err := l.deps.Read.Select(ctx, &out, gradeSQL); err != nil {
		return nil, fmt.Errorf("grade advice: %w", err)
	}
	return out, nil
}

//go:embed sql/splits.sql
var splitsSQL string

// Fit is what the splits of one cluster say of the speed between its domains.
type Fit struct {
	Cluster     string             `json:"cluster"`
	Calibration advise.Calibration `json:"calibration"`
}

// Calibrate looks for the speed between domains that explains best what splits did to jobs since a time, by cluster (""
// = all): completed runs in several domains against those of the same user, name and size in one. Nothing is changed by it.
func (l *Ledger) Calibrate(ctx context.Context, cluster string, since time.Time, links advise.Links) ([]Fit, error) {
	var rows []struct {
		Cluster  string  `ch:"cluster"`
		Parts    []int32 `ch:"parts"`
		Least    int32   `ch:"least"`
		GBps     float64 `ch:"gbps"`
		Slowdown float64 `ch:"slowdown"`
	}
	ctx = clickhouse.Context(ctx, clickhouse.WithParameters(clickhouse.Parameters{
		"cluster": cluster, "probe_cluster": event.ProbeCluster, "since": since.UTC().Format("2006-01-02 15:04:05.000"),
	}))
	if err := l.deps.Read.Select(ctx, &rows, splitsSQL); err != nil {
		return nil, fmt.Errorf("read what splits did to jobs: %w", err)
	}
	out := []Fit{}
	for len(rows) > 0 {
		name, n := rows[0].Cluster, 0
		var seen []advise.Seen
		for n < len(rows) && rows[n].Cluster == name {
			r := rows[n]
			gpus := int32(0)
			for _, part := range r.Parts {
				gpus += part
			}
			seen = append(seen, advise.Seen{
				Parts: r.Parts, Ideal: gpus / r.Least, Traffic: advise.Traffic{Rate: r.GBps, Share: -1}, Slowdown: r.Slowdown,
			})
			n++
		}
		out, rows = append(out, Fit{Cluster: name, Calibration: advise.Calibrate(links, seen)}), rows[n:]
	}
	return out, nil
}
