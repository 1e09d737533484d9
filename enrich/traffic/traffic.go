// Package traffic is the hop from raw counters to what jobs moved: it rolls counters up by minute and hour, joins them with
// the placements that held the GPUs at the time, and says what the traffic of a placement tells of its verdict. It reads
// and writes ClickHouse only; it judges no placement, and the rule of what is a silent fallback is sql/evidence.sql.
package traffic

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/enrich/pass"
)

// Config tunes the pass over counters and holds the rule's thresholds.
type Config struct {
	// Interval is how often counters and placements are asked for news.
	Interval time.Duration `yaml:"interval"`
	// MaxGap is the longest time between two scrapes over which a difference of counters is taken.
	MaxGap time.Duration `yaml:"max_gap"`
	// Lookback is how far back a placement that becomes known late is joined with counters; no further than these are kept.
	Lookback time.Duration `yaml:"lookback"`
	// QuietNVLink, QuietPorts and BusyPorts are bytes per second and GPU, both directions together: NVLinks that move less
	// than QuietNVLink are not used; scale-out ports are not used below QuietPorts, and used from BusyPorts on.
	QuietNVLink float64 `yaml:"quiet_nvlink"`
	QuietPorts  float64 `yaml:"quiet_ports"`
	BusyPorts   float64 `yaml:"busy_ports"`
	// MinMeasured is how long a placement must have been measured before its traffic says anything.
	MinMeasured time.Duration `yaml:"min_measured"`
	// OutlierFactor is how many times less than the usual node of its placement a node's NVLinks move that is an outlier.
	OutlierFactor float64 `yaml:"outlier_factor"`
	// RetryMin and RetryMax bound the pause after a pass that failed.
	RetryMin time.Duration `yaml:"retry_min"`
	RetryMax time.Duration `yaml:"retry_max"`
}

// DefaultConfig is for GB200 NVL72 with one 400 Gb/s NIC a GPU, whose NVLinks carry 1,800 and whose NIC 100 GB/s both ways:
// quiet is a 1,000th of the NVLinks and a 100th of the NIC, busy a tenth of the NIC.
func DefaultConfig() Config {
	return Config{
		Interval: time.Minute, MaxGap: 2 * time.Minute, Lookback: 7 * 24 * time.Hour, QuietNVLink: 1.8e9, QuietPorts: 1e9,
		BusyPorts: 10e9, MinMeasured: 20 * time.Second, OutlierFactor: 4, RetryMin: time.Second, RetryMax: 30 * time.Second,
	}
}

// longestInterval keeps evidence newer than what answers take for counters that have stopped.
const longestInterval = 5 * time.Minute

// Validate says what is wrong with a configuration and how to mend it.
func (c Config) Validate() error {
	var errs []error
	for key, ok := range map[string]bool{
		"interval": c.Interval > 0 && c.Interval <= longestInterval, "max_gap": c.MaxGap >= time.Second, "lookback": c.Lookback > 0, "quiet_nvlink": c.QuietNVLink > 0,
		"quiet_ports": c.QuietPorts > 0, "busy_ports": c.BusyPorts >= c.QuietPorts, "min_measured": c.MinMeasured >= 0,
		"outlier_factor": c.OutlierFactor > 1, "retry_min": c.RetryMin > 0, "retry_max": c.RetryMax >= c.RetryMin,
	} {
		if !ok {
			errs = append(errs, fmt.Errorf("traffic.%s is out of range: times and rates are above zero, interval at most %s, max_gap at least 1s, "+
				"busy_ports at least quiet_ports, retry_max at least retry_min, outlier_factor above 1", key, longestInterval))
		}
	}
	return errors.Join(errs...)
}

// Deps are what the pass works with.
type Deps struct {
	Conn     driver.Conn           // the database that holds the tables is its default database
	Now      func() time.Time      // nil: time.Now
	Log      *slog.Logger          // nil: nothing is logged
	Registry prometheus.Registerer // nil: metrics are kept but not registered
}

// Pass joins counters with placements. Only one may work on a database at a time, or it ends with pass.ErrNotAlone; its
// methods are not for concurrent use.
type Pass struct {
	cfg   Config
	conn  driver.Conn
	now   func() time.Time
	log   *slog.Logger
	m     *metrics
	state state
}

// New prepares the pass and touches nothing.
func New(cfg Config, deps Deps) (*Pass, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prepare traffic: %w", err)
	}
	if deps.Conn == nil {
		return nil, errors.New("prepare traffic: no clickhouse connection given")
	}
	p := &Pass{cfg: cfg, conn: deps.Conn, now: deps.Now, log: deps.Log, m: newMetrics(deps.Registry)}
	if p.now == nil {
		p.now = time.Now
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	return p, nil
}

// Run passes until ctx ends, and then returns nil. A pass that fails is tried again: every step may be repeated, and
// progress is written last. It ends with pass.ErrNotAlone when others work on the database.
func (p *Pass) Run(ctx context.Context) error {
	pause := p.cfg.RetryMin
	for ctx.Err() == nil {
		wait := p.cfg.Interval
		err := p.Once(ctx)
		switch {
		case err == nil:
			pause = p.cfg.RetryMin
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, pass.ErrNotAlone):
			return err
		default:
			p.m.passes.WithLabelValues("error").Inc()
			p.log.Error("joining counters with placements failed, trying again", "in", pause, "error", err)
			wait, pause = pause, min(2*pause, p.cfg.RetryMax)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

//go:embed sql/*.sql
var files embed.FS

// edgeNodes are those on which a placement begins or ends in the minutes asked for, or up to one gap before, and those of
// which somebody holds a part without telling which GPUs are its own.
const edgeNodes = `(cluster, node) IN (SELECT cluster, node FROM ({placed})
    WHERE valid_from > {from:DateTime64(3)} - toIntervalSecond({max_gap:UInt32}) OR valid_to < {to:DateTime64(3)} OR anonymous AND (partial OR notEmpty(others)))`

// whole is the condition that what an entity m moved in a minute is as a whole that of the holder h. The rest is looked at scrape
// by scrape.
const whole = `m.first_at >= h.valid_from AND m.last_at <= h.valid_to AND (m.entity = 'nic' OR bitTest(h.alone, m.gpu))
    AND NOT arrayExists(o -> o.1 < m.last_at AND o.2 > m.first_at AND (m.entity = 'nic' OR h.anonymous OR bitTest(o.4, m.gpu)), h.others)`

// holding is a hash of what a placement holds. One that is told of without pods has the hash that it had before there were any.
const holding = `(cityHash64(nodes, toString(node_gpus), node_gpu_index) + if(empty(node_pods), 0, cityHash64(node_pods)))`

// statement reads a statement and puts its fragments in. Comments stay: they show in the server's query log.
func statement(name string, fragments map[string]string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // embedded
	}
	s := string(text)
	if strings.Contains(s, "({deltas})") {
		edges := "1"
		if name == "job_traffic" {
			edges = edgeNodes
		}
		s = strings.ReplaceAll(s, "({deltas})", "("+strings.ReplaceAll(statement("deltas", nil), "{edges}", edges)+")")
	}
	s = strings.ReplaceAll(s, "({held})", "(SELECT *, cityHash64(cluster, job_id, attempt, seq, node) AS held_by FROM ({placed}) WHERE {keys})")
	if strings.Contains(s, "({placed})") {
		s = strings.ReplaceAll(s, "({placed})", "("+statement("placed", nil)+")")
	}
	s = strings.NewReplacer("{whole}", whole, "{holding}", holding).Replace(s)
	for key, value := range fragments {
		s = strings.ReplaceAll(s, "{"+key+"}", value)
	}
	return s
}
