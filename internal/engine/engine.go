// Package engine gives the flow its two engines, Kafka and ClickHouse: real ones that run here, so that one command on a
// laptop is enough, or the ones a configuration names. It starts, watches and stops them. It never reads or writes what
// goes through them, and everything above it speaks to an embedded engine exactly as to any other.
//
// An embedded ClickHouse is a child process: our own binary started again, which loads ClickHouse as a shared library. A
// crash of the engine is therefore never a crash of the pipeline, and the other way round its data is safe when we are
// killed. An embedded Kafka runs in this process.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/spillway-io/spillway/internal/chconn"
)

// ClickHouse says where the server is and as whom to ask it.
type ClickHouse struct {
	Embedded bool           // the server runs as our child
	Owner    chconn.Options // may do everything; Database is the configured one
	Reader   chconn.Options // may only read, for dashboards; external: the same as Owner
	HTTP     string         // host:port of the HTTP interface; external: as configured, may be empty
	Cluster  string         // name for ON CLUSTER and Distributed tables; empty: a single server
}

// Engines are the running engines.
type Engines struct {
	ClickHouse ClickHouse
	Kafka      Kafka

	lock     *os.File
	server   *server
	broker   *broker
	dead     chan error
	stopping atomic.Bool
	remove   string // directory to remove after Stop; empty: keep
}

// Start brings up what cfg asks for and returns when embedded engines answer; external ones are not dialled. When it
// fails, whatever it had started is stopped again.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Engines, error) {
	return start(ctx, cfg, "", log)
}

// StartThrowaway is Start with both engines embedded in a directory of their own that is removed when they end, even
// when this process is killed. It serves tests, demonstrations and one-off runs.
func StartThrowaway(ctx context.Context, cfg Config, log *slog.Logger) (*Engines, error) {
	dir, err := os.MkdirTemp("", "spillway-")
	if err != nil {
		return nil, diskError("make a temporary directory", err)
	}
	cfg.DataDir = dir
	return start(ctx, cfg, dir, log)
}

// Dry is Start without a start: it reads every secret that Start would and gives the engines as they would be, an embedded
// one at an address where nobody listens. Nothing is made or dialled, and nothing needs to be stopped.
func Dry(cfg Config) (*Engines, error) {
	const nowhere = "127.0.0.1:0"
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure engines: %w", err)
	}
	e := &Engines{}
	var err error
	switch ch := cfg.ClickHouse; {
	case ch.embedded():
		if _, err := readSecret(ch.ClusterSecretFile); err != nil {
			return nil, fmt.Errorf("engine.clickhouse.cluster_secret_file: %w", err)
		}
		o := chconn.Options{Addresses: []string{nowhere}, Database: ch.Database}
		e.ClickHouse = ClickHouse{Embedded: true, Owner: o, Reader: o, Cluster: ch.Cluster}
	case ch.Mode != ModeNone:
		if e.ClickHouse, err = externalClickHouse(ch); err != nil {
			return nil, err
		}
	}
	switch k := cfg.Kafka; {
	case k.embedded():
		e.Kafka = Kafka{Brokers: []string{nowhere}}
	case k.Mode != ModeNone:
		if e.Kafka, err = externalKafka(k); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func start(ctx context.Context, cfg Config, remove string, log *slog.Logger) (_ *Engines, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure engines: %w", err)
	}
	e := &Engines{dead: make(chan error, 1), remove: remove}
	defer func() {
		if err != nil {
			e.Stop()
		}
	}()
	ch, k := cfg.ClickHouse, cfg.Kafka
	dir := ""
	if ch.embedded() || k.embedded() {
		if dir, err = filepath.Abs(cfg.DataDir); err != nil {
			return nil, fmt.Errorf("find data_dir: %w", err)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, diskError("make data_dir", err)
		}
		if e.lock, err = lockDir(dir); err != nil {
			return nil, diskError("open data_dir", err)
		}
	}
	switch {
	case ch.embedded():
		err = e.startClickHouse(ctx, filepath.Join(dir, "clickhouse"), ch, log)
	case ch.Mode != ModeNone:
		e.ClickHouse, err = externalClickHouse(ch)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case k.embedded():
		e.broker, e.Kafka, err = startKafka(filepath.Join(dir, "kafka"), k, log)
	case k.Mode != ModeNone:
		e.Kafka, err = externalKafka(k)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// startClickHouse runs the server, makes its database and watches over it.
func (e *Engines) startClickHouse(ctx context.Context, dir string, c ClickHouseConfig, log *slog.Logger) error {
	s, err := startServer(ctx, dir, c, e.remove, log)
	if err != nil {
		return err
	}
	e.server = s
	e.ClickHouse = ClickHouse{
		Embedded: true,
		Owner:    s.owner(c.Database),
		Reader:   s.reader(c.Database),
		HTTP:     s.httpAddress(),
		Cluster:  c.Cluster,
	}
	if err := prepare(ctx, s.owner(""), c.Database, log); err != nil {
		return err
	}
	go func() {
		<-s.ended
		if !e.stopping.Load() {
			e.dead <- s.diagnose()
		}
	}()
	return nil
}

// Dead yields an error when an embedded engine ends without having been asked to. Nothing comes after Stop began, so
// select on it beside what ends the program.
func (e *Engines) Dead() <-chan error { return e.dead }

// Stop ends the embedded engines, last started first, and releases the data directory. External engines are left alone.
// It may be called more than once.
func (e *Engines) Stop() error {
	if e.stopping.Swap(true) {
		return nil
	}
	var errs []error
	if e.broker != nil {
		e.broker.stop()
	}
	if e.server != nil {
		errs = append(errs, e.server.stop())
	}
	if e.lock != nil {
		errs = append(errs, e.lock.Close())
	}
	if e.remove != "" {
		errs = append(errs, os.RemoveAll(e.remove))
	}
	return errors.Join(errs...)
}

// prepare makes the database and says what an earlier crash of the machine cost. ClickHouse starts in spite of a damaged
// part: it sets the part aside and answers without its rows, which nobody would notice.
func prepare(ctx context.Context, o chconn.Options, database string, log *slog.Logger) error {
	conn, err := chconn.Open(o)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Exec(ctx, "CREATE DATABASE IF NOT EXISTS `"+database+"`"); err != nil {
		return fmt.Errorf("create database %s: %w", database, err)
	}
	var parts uint64
	var places []string
	err = conn.QueryRow(ctx, `SELECT count(), groupUniqArray(10)(path) FROM system.detached_parts WHERE startsWith(reason, 'broken')`).Scan(&parts, &places)
	if err != nil {
		return fmt.Errorf("look for damaged parts: %w", err)
	}
	if parts > 0 {
		log.Error("clickhouse set damaged parts aside: their rows are missing from every answer until they are restored from a backup or loaded again; remove the directories when that is done",
			"parts", parts, "paths", places)
	}
	return nil
}

// externalClickHouse reads the secrets of a server that runs elsewhere. It does not dial it.
func externalClickHouse(c ClickHouseConfig) (ClickHouse, error) {
	password, err := readSecret(c.PasswordFile)
	if err != nil {
		return ClickHouse{}, fmt.Errorf("engine.clickhouse.password_file: %w", err)
	}
	tls, err := c.TLS.client()
	if err != nil {
		return ClickHouse{}, fmt.Errorf("engine.clickhouse.tls: %w", err)
	}
	o := chconn.Options{Addresses: c.Addresses, Database: c.Database, User: c.User, Password: password, TLS: tls}
	return ClickHouse{Owner: o, Reader: o, HTTP: c.HTTPAddress, Cluster: c.Cluster}, nil
}
