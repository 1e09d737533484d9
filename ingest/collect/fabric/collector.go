package fabric

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// Name is the collector's name in configuration, metrics and source records.
const Name = "fabric"

// maxOutput bounds one output; that of 16 GPUs has less than 1 MB.
const maxOutput = 16 << 20

// Deps are what a collector works with. All may be left out.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
	// Helper is the command that asks NVML, see RunHelper.
	Helper []string
}

// Collector runs nvidia-smi or asks NVML, or reads what others recorded of nvidia-smi.
type Collector struct {
	cfg     Config
	helper  []string
	log     *slog.Logger
	metrics *collect.Metrics
	now     func() time.Time
	command scrape.Command

	told     map[string]told   // by node
	failing  map[string]string // what is wrong, by what was read
	reporter collect.Reporter
}

// told is the membership that was stored last.
type told struct {
	gpus *event.Membership // without its times
	at   time.Time
}

// New makes a collector and starts nothing. The error says what is wrong with the configuration.
func New(cfg Config, deps Deps) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.NVML && len(deps.Helper) == 0 {
		return nil, errors.New("nvml is set, and there is no command that becomes the helper process")
	}
	if cfg.Node == "" && (cfg.NVML || len(cfg.Command) > 0) {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("find the name of this machine: %w; set node", err)
		}
		cfg.Node, _, _ = strings.Cut(host, ".")
	}
	c := &Collector{cfg: cfg, helper: deps.Helper, log: deps.Log, now: deps.Now, told: map[string]told{}, failing: map[string]string{}}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	if deps.Registerer != nil {
		c.metrics = collect.NewMetrics(deps.Registerer, Name, c.now)
	}
	c.reporter = collect.Reporter{
		Cluster: cfg.Cluster, Source: Name, Interval: cfg.Interval, Now: c.now, Log: c.log, Metrics: c.metrics,
	}
	return c, nil
}

// Name implements collect.Collector.
func (c *Collector) Name() string { return Name }

// Run implements collect.Collector. A node whose output cannot be read keeps its last good state.
func (c *Collector) Run(ctx context.Context, out collect.Emitter) error {
	c.reporter.Run(ctx, out, "outputs", func() { c.poll(ctx, out) }, func() map[string]string { return c.failing })
	return nil
}

// poll reads everything once.
func (c *Collector) poll(ctx context.Context, out collect.Emitter) {
	failing, nodes := map[string]string{}, 0
	read := func(what, node string, output func() ([]byte, time.Time, error), parse func([]byte) ([]GPU, []string, error)) {
		c.metrics.Poll("node")
		reason, err := c.read(ctx, node, output, parse, out)
		if err == nil {
			nodes++
			if c.failing[what] != "" {
				c.log.Info("fabric is read again", "node", node, "from", what)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		failing[what] = fmt.Sprintf("read the fabric of %s from %s: %v", node, what, err)
		c.metrics.Failed(reason)
		if c.failing[what] == "" {
			c.log.Error("fabric is not read, what was read before stays", "node", node, "from", what, "error", err)
		}
	}
	switch {
	case c.cfg.NVML:
		read("NVML", c.cfg.Node, func() ([]byte, time.Time, error) { return c.run(ctx, c.helper) }, ParseNVML)
	case len(c.cfg.Command) > 0:
		read(strings.Join(c.cfg.Command, " "), c.cfg.Node, func() ([]byte, time.Time, error) { return c.run(ctx, c.cfg.Command) }, parseText)
	}
	if c.cfg.Recorded != "" {
		paths, err := filepath.Glob(c.cfg.Recorded)
		if err == nil && len(paths) == 0 {
			failing[c.cfg.Recorded] = fmt.Sprintf("find %s: there is no such file", c.cfg.Recorded)
			c.metrics.Failed("read")
		}
		for _, path := range paths {
			if ctx.Err() != nil {
				return
			}
			node := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
			read(path, node, func() ([]byte, time.Time, error) { return c.file(path) }, parseText)
		}
	}
	c.failing = failing
	if len(failing) == 0 && ctx.Err() == nil {
		good := c.now()
		c.reporter.Good(good)
		c.metrics.Good("nodes", nodes, good)
	}
}

func parseText(text []byte) ([]GPU, []string, error) { return Parse(bytes.NewReader(text)) }

// read reads one node and emits what is new of it, or gives the reason why not.
func (c *Collector) read(
	ctx context.Context, node string, output func() ([]byte, time.Time, error), parse func([]byte) ([]GPU, []string, error), out collect.Emitter,
) (string, error) {
	text, at, err := output()
	if err != nil {
		return "read", err
	}
	gpus, unknown, err := parse(text)
	if err != nil {
		return "parse", err
	}
	m := Membership(c.cfg.Cluster, node, gpus)
	before := c.told[node]
	if before.gpus != nil && proto.Equal(m, before.gpus) && c.now().Sub(before.at) < c.cfg.Refresh {
		return "", nil
	}
	if len(unknown) > 0 {
		c.metrics.Dropped("unknown", len(unknown))
		c.log.Warn("the driver says something that is not known", "node", node, "rows", unknown)
	}
	record := proto.CloneOf(m)
	record.ObservedAtMs, record.Revision = at.UnixMilli(), event.Revision(at)
	if err := record.Validate(); err != nil {
		return "invalid", err
	}
	if err := out.Emit(ctx, record); err != nil {
		return "emit", fmt.Errorf("emit membership: %w", err)
	}
	c.metrics.Emitted("change", 1)
	c.told[node] = told{m, c.now()}
	return "", nil
}

// Membership is the record of a node, without its times.
func Membership(cluster, node string, gpus []GPU) *event.Membership {
	m := &event.Membership{Cluster: cluster, Node: node, Source: event.SourceNVML}
	for i, g := range gpus {
		if !g.Told {
			continue
		}
		f := &event.GpuFabric{
			Index: uint32(i), Uuid: g.UUID, ClusterUuid: g.ClusterUUID, CliqueId: g.CliqueID, State: g.State, Status: g.Status,
		}
		if mask := g.Health.Mask(); mask != 0 {
			f.HealthMask = &mask
		}
		m.Gpus = append(m.Gpus, f)
	}
	return m
}

// run runs a command.
func (c *Collector) run(ctx context.Context, command []string) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	at := c.now()
	stdout, stderr, err := c.command.Run(ctx, command, maxOutput)
	switch {
	case err == nil:
		return stdout, at, nil
	case errors.Is(err, scrape.ErrTooLong):
		return nil, at, errTooLong
	case ctx.Err() != nil:
		err = fmt.Errorf("no end after %v: %w", c.cfg.Timeout, err)
	}
	said := strings.Join(strings.Fields(string(stderr)+" "+string(stdout)), " ")
	return nil, at, fmt.Errorf("%w: %.200s", err, said)
}

var errTooLong = errors.New("the output is longer than that of any nvidia-smi")

// file reads a recorded output.
func (c *Collector) file(path string) ([]byte, time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	if info.Size() > maxOutput {
		return nil, time.Time{}, errTooLong
	}
	text, err := os.ReadFile(path)
	return text, info.ModTime(), err
}
