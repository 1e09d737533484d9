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

	"github.com/twmb/franz-go/pkg/kfake"

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

	lock   *os.File
	server *server
	broker *kfake.Cluster
	dead   chan error
	log    *slog.Logger
}

// Start brings up what cfg asks for and returns when embedded engines answer; external ones are not dialled. When it
// fails, whatever it had started is stopped again.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Engines, error) {
	return start(ctx, cfg, false, log)
}

// StartThrowaway is Start with both engines embedded in a directory of their own that is removed when they end, even
// when this process is killed. It serves tests, demonstrations and one-off runs.
func StartThrowaway(ctx context.Context, cfg Config, log *slog.Logger) (*Engines, error) {
	dir, err := os.MkdirTemp("", "spillway-")
	if err != nil {
		return nil, diskError("make a temporary directory", err)
	}
	cfg.DataDir = dir
	e, err := start(ctx, cfg, true, log)
	if err != nil {
		os.RemoveAll(dir)
	}
	return e, err
}

func start(ctx context.Context, cfg Config, throwaway bool, log *slog.Logger) (_ *Engines, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure engines: %w", err)
	}
	e := &Engines{dead: make(chan error, 1), log: log}
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
	if k.embedded() {
		e.broker, e.Kafka, err = startKafka(filepath.Join(dir, "kafka"), k, log)
	} else {
		e.Kafka, err = externalKafka(k)
	}
	if err != nil {
		return nil, err
	}
	if !ch.embedded() {
		e.ClickHouse, err = externalClickHouse(ch)
		return e, err
	}
	remove := ""
	if throwaway {
		remove = dir
	}
	if e.server, err = startServer(ctx, filepath.Join(dir, "clickhouse"), ch, remove, log); err != nil {
		return nil, err
	}
	e.ClickHouse = ClickHouse{
		Embedded: true,
		Owner:    e.server.owner(ch.Database),
		Reader:   e.server.reader(ch.Database),
		HTTP:     e.server.httpAddress(),
		Cluster:  ch.Cluster,
	}
	if err := createDatabase(ctx, e.server.owner(""), ch.Database); err != nil {
		return nil, err
	}
	go func() {
		<-e.server.ended
		e.dead <- e.server.diagnose()
	}()
	return e, nil
}

// Dead yields an error when an embedded engine ends without having been asked to. Nothing comes after Stop began, so
// select on it beside what ends the program.
func (e *Engines) Dead() <-chan error { return e.dead }

// Stop ends the embedded engines, last started first, and releases the data directory. External engines are left alone.
// It may be called more than once.
func (e *Engines) Stop() error {
	var errs []error
	if e.server != nil {
		errs = append(errs, e.server.stop())
	}
	if e.broker != nil {
		e.broker.Close()
		e.broker = nil
	}
	if e.lock != nil {
		e.lock.Close()
		e.lock = nil
	}
	return errors.Join(errs...)
}

func createDatabase(ctx context.Context, o chconn.Options, name string) error {
	conn, err := chconn.Open(o)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Exec(ctx, "CREATE DATABASE IF NOT EXISTS `"+name+"`"); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// externalClickHouse reads the secrets of a server that runs elsewhere. It does not dial it.
func externalClickHouse(c ClickHouseConfig) (ClickHouse, error) {
	password, err := readSecret(c.PasswordFile)
	if err != nil {
		return ClickHouse{}, fmt.Errorf("clickhouse.password_file: %w", err)
	}
	tls, err := c.TLS.client()
	if err != nil {
		return ClickHouse{}, fmt.Errorf("clickhouse.tls: %w", err)
	}
	o := chconn.Options{Addresses: c.Addresses, Database: c.Database, User: c.User, Password: password, TLS: tls}
	return ClickHouse{Owner: o, Reader: o, HTTP: c.HTTPAddress, Cluster: c.Cluster}, nil
}
