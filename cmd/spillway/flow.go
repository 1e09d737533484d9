package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/spillway-io/spillway/enrich/pass"
	"github.com/spillway-io/spillway/enrich/traffic"
	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/ingest/load"
	"github.com/spillway-io/spillway/internal/chconn"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/service"
	"github.com/spillway-io/spillway/internal/telemetry"
	"github.com/spillway-io/spillway/query/api"
	"github.com/spillway-io/spillway/query/ledger"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

// stages says which parts of the flow a process runs.
type stages struct{ collect, load, enrich, serve bool }

// flow is one process: the engines and the stages it runs, wired by hand in the order of the flow.
type flow struct {
	settings *settings
	log      *slog.Logger
	tel      *telemetry.Telemetry
	engines  *engine.Engines
	conn     driver.Conn // as the owner
	readConn driver.Conn // as the user that may only read
	producer *kafka.Producer
	passes   *pass.Passes
	reader   *read.Reader
	ledger   *ledger.Ledger // nil where no advice is given
	feed     *live.Feed
	server   *api.Server
	parts    []service.Component
}

// open starts or reaches the engines, brings the database up to date and builds the stages; nothing runs yet. Whoever
// calls it calls close.
func open(ctx context.Context, s *settings, run stages, throwaway bool, log *slog.Logger) (_ *flow, err error) {
	f := &flow{settings: s, log: log}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.tel, err = telemetry.New(s.Telemetry, "spillway", version); err != nil {
		return nil, err
	}
	// A process that neither loads, enriches nor answers has no use for ClickHouse, and one that only answers none for Kafka.
	engines := s.Engine
	if !run.load && !run.enrich && !run.serve {
		engines.ClickHouse.Mode = engine.ModeNone
	}
	// Advice follows the topics; an API on its own gives none where it knows of no Kafka.
	if !run.collect && !run.load && !run.enrich && !(run.serve && len(engines.Kafka.Brokers) > 0) {
		engines.Kafka.Mode = engine.ModeNone
	}
	start := engine.Start
	if throwaway {
		start = engine.StartThrowaway
	}
	if f.engines, err = start(ctx, engines, log); err != nil {
		return nil, err
	}
	if engines.ClickHouse.Mode != engine.ModeNone {
		if err := f.openStore(ctx); err != nil {
			return nil, err
		}
	}
	if engines.Kafka.Mode != engine.ModeNone {
		err := f.await(ctx, "kafka", kafka.Passing, func() error { return kafka.EnsureTopics(ctx, f.engines.Kafka, s.Topics) })
		if err != nil {
			return nil, err
		}
		f.producer = kafka.NewProducer(f.engines.Kafka, kafka.Deps{
			Log: log, Registry: f.tel.Registry, Tracer: f.tel.Tracer("ingest/kafka"), Now: time.Now,
		})
	}
	if err := f.build(run); err != nil {
		return nil, err
	}
	if f.server != nil {
		// Bound before anything runs, so that a port in use ends the start at once.
		err = f.server.Listen()
	}
	return f, err
}

// dry builds every stage as open does, and starts, reaches and binds nothing: it shows what only building shows, such as
// a secret that cannot be read.
func dry(s *settings) (err error) {
	f := &flow{settings: s, log: slog.New(slog.DiscardHandler)}
	defer f.close()
	if f.tel, err = telemetry.New(s.Telemetry, "spillway", version); err != nil {
		return err
	}
	if f.engines, err = engine.Dry(s.Engine); err != nil {
		return err
	}
	store, topics := s.Engine.ClickHouse.Mode != engine.ModeNone, s.Engine.Kafka.Mode != engine.ModeNone
	if store {
		if f.conn, err = chconn.Open(f.engines.ClickHouse.Owner); err != nil {
			return err
		}
	}
	if topics {
		f.producer = kafka.NewProducer(f.engines.Kafka, kafka.Deps{Log: f.log, Registry: f.tel.Registry, Now: time.Now})
	}
	return f.build(stages{collect: topics, load: topics && store, enrich: topics && store, serve: store})
}

// await tries until it succeeds. What passes is waited for as the loader waits for it later, and said once; anything else, and
// an embedded engine that died, ends the start.
func (f *flow) await(ctx context.Context, what string, passing func(error) bool, try func() error) error {
	level := slog.LevelWarn
	for wait := f.settings.Load.RetryMin; ; wait = min(2*wait, f.settings.Load.RetryMax) {
		err := try()
		if err == nil && level != slog.LevelWarn {
			f.log.Info("ready now", "what", what)
		}
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		f.log.Log(ctx, level, "not ready, trying again until it is", "what", what, "in", wait, "error", err)
		level = slog.LevelDebug
		select {
		case <-ctx.Done():
			return err
		case died := <-f.engines.Dead():
			return fmt.Errorf("%w: %w", errEngineDied, died)
		case <-time.After(wait):
		}
	}
}

// openStore brings the database up to date.
func (f *flow) openStore(ctx context.Context) error {
	owner := f.engines.ClickHouse.Owner
	// The database may not exist yet, so the steps are run from outside of it.
	outside, err := chconn.Open(owner.With(""))
	if err != nil {
		return err
	}
	defer outside.Close()
	passing := func(err error) bool {
		lasting := errors.Is(err, clickhouse.ErrNewer) || errors.Is(err, clickhouse.ErrEdited) || errors.Is(err, clickhouse.ErrOldServer)
		return !lasting && chconn.Passing(err)
	}
	err = f.await(ctx, "clickhouse", passing, func() error {
		return clickhouse.Migrate(ctx, outside, clickhouse.Options{
			Database: owner.Database, Cluster: f.engines.ClickHouse.Cluster,
			Progress: func(s clickhouse.Step) { f.log.Debug("applying a schema step", "step", s.Name) },
		})
	})
	if err != nil {
		return err
	}
	f.conn, err = chconn.Open(owner)
	return err
}

func (f *flow) build(run stages) (err error) {
	s := f.settings
	if run.serve {
		// Questions are asked as the user that may only read.
		if f.readConn, err = chconn.Open(f.engines.ClickHouse.Reader); err != nil {
			return err
		}
		f.reader = read.New(f.readConn, time.Now)
		if err := f.buildAdvisor(); err != nil {
			return err
		}
		server, err := api.New(s.API, api.Deps{
			Reader: f.reader, Ping: f.readConn.Ping, Log: f.log, Registry: f.tel.Registry, Now: time.Now, Version: version,
			Advise: &s.Advise, Feed: f.feed, Ledger: f.ledger,
		})
		if err != nil {
			return err
		}
		f.server = server
		if f.feed != nil {
			f.parts = append(f.parts, f.ledger)
		}
		f.parts = append(f.parts, server)
		if f.feed != nil {
			f.parts = append(f.parts, f.feed)
		}
	} else if listen := s.Telemetry.Listen; listen != "" {
		f.parts = append(f.parts, named{"metrics", func(ctx context.Context) error { return f.tel.Serve(ctx, listen) }})
	}
	var stored chan struct{} // the loader tells the passes
	if run.load && run.enrich {
		stored = make(chan struct{}, 1)
	}
	if run.enrich {
		passes, err := pass.New(s.Enrich, pass.Deps{
			Conn: f.conn, Now: time.Now, Log: f.log, Registry: f.tel.Registry, Tracer: f.tel.Tracer("enrich/pass"), Stored: stored, Emit: f.producer.Emit,
		})
		if err != nil {
			return err
		}
		f.passes = passes
		f.parts = append(f.parts, named{"enrich", passes.Run})
		counted, err := traffic.New(s.Traffic, traffic.Deps{Conn: f.conn, Now: time.Now, Log: f.log, Registry: f.tel.Registry})
		if err != nil {
			return err
		}
		f.parts = append(f.parts, named{"traffic", counted.Run})
	}
	if run.load {
		loader, err := load.New(s.Load, load.Deps{
			Kafka: f.engines.Kafka, ClickHouse: f.engines.ClickHouse.Owner, DeadLetter: f.producer.Emit, Log: f.log,
			Stored: func(table string) {
				if !pass.Follows(table) {
					return
				}
				select {
				case stored <- struct{}{}:
				default: // it was told already, or there are no passes here
				}
			},
			Registry: f.tel.Registry, Tracer: f.tel.Tracer("ingest/load"), Now: time.Now,
		})
		if err != nil {
			return err
		}
		f.parts = append(f.parts, loader)
	}
	if run.collect {
		for _, name := range s.Collect.Sources {
			c, err := collectors()[name].build(s, collectorDeps{log: f.log, registry: f.tel.Registry, kafka: f.engines.Kafka})
			if err != nil {
				return err
			}
			f.parts = append(f.parts, collecting{c, f.producer})
		}
	}
	return nil
}

// buildAdvisor prepares what advice rests on, where there is a Kafka to follow.
func (f *flow) buildAdvisor() (err error) {
	if f.producer == nil {
		return nil
	}
	f.ledger, err = ledger.New(f.settings.Advise.Ledger, ledger.Deps{
		Write: f.conn, Read: f.readConn, Log: f.log, Registry: f.tel.Registry, Now: time.Now,
	})
	if err != nil {
		return err
	}
	f.feed, err = live.New(f.settings.Advise.Feed, live.Deps{
		Conn: f.readConn, Log: topicLog{f.engines.Kafka}, Logger: f.log, Registry: f.tel.Registry, Now: time.Now,
	})
	return err
}

// run runs the stages until ctx ends or an engine dies.
func (f *flow) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case err := <-f.engines.Dead():
			stop(fmt.Errorf("%w: %w", errEngineDied, err))
		case <-ctx.Done():
		}
	}()
	err := service.Run(ctx, f.log, f.parts...)
	if cause := context.Cause(ctx); errors.Is(cause, errEngineDied) {
		return cause
	}
	return err
}

var errEngineDied = errors.New("an engine ended unasked; start again, the data is kept")

// close stops what open started, last first.
func (f *flow) close() {
	stop := func(what string, fn func() error) {
		if err := fn(); err != nil {
			f.log.Error("stopping failed", "what", what, "error", err)
		}
	}
	if f.producer != nil {
		stop("producer", f.producer.Close)
	}
	for _, conn := range []driver.Conn{f.readConn, f.conn} {
		if conn != nil {
			stop("connection", conn.Close)
		}
	}
	if f.engines != nil {
		stop("engines", f.engines.Stop)
	}
	if f.tel != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		stop("telemetry", func() error { return f.tel.Shutdown(ctx) })
	}
}

// named is a component of one function.
type named struct {
	name string
	fn   func(context.Context) error
}

func (n named) Name() string                  { return n.name }
func (n named) Run(ctx context.Context) error { return n.fn(ctx) }

// collecting runs one collector into Kafka.
type collecting struct {
	collect.Collector
	out collect.Emitter
}

func (c collecting) Name() string                  { return "collect " + c.Collector.Name() }
func (c collecting) Run(ctx context.Context) error { return c.Collector.Run(ctx, c.out) }
