package pass

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"go.opentelemetry.io/otel/codes"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// Records trickle while a pass has few of them, and so many come in a second.
const (
	trickleRows      = 10
	tricklePerSecond = 5
)

// Run passes until ctx ends, and then returns nil. A pass that fails is tried again after a pause: every step may be
// repeated, and progress is written last. It ends with ErrNotAlone when others work on the database.
func (p *Passes) Run(ctx context.Context) error {
	pause := p.cfg.RetryMin
	var worked time.Time // when a pass last had something to do
	for ctx.Err() == nil {
		gathered := time.Since(worked).Seconds()
		did, err := p.Once(ctx)
		if did.Rows > 0 {
			worked = time.Now()
		}
		if err == nil {
			if err := p.unseen(ctx); err != nil && ctx.Err() == nil {
				p.log.Error("what its source no longer tells goes on, trying again in a minute", "error", err)
			}
		}
		switch {
		case err == nil:
			pause = p.cfg.RetryMin
			switch {
			case did.Rows == 0:
				p.rest(ctx, p.cfg.Interval, true)
			case did.Rows <= trickleRows && float64(did.Rows) < tricklePerSecond*gathered: // a pass costs as much for one record as for a hundred: let some gather
				p.rest(ctx, p.cfg.Gather, false)
			default: // more has come meanwhile
				p.rest(ctx, p.cfg.Interval/15, false)
			}
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrNotAlone):
			return err
		default:
			p.log.Error("pass failed, trying again", "in", pause, "error", err)
			p.rest(ctx, pause, false)
			pause = min(2*pause, p.cfg.RetryMax)
		}
	}
	return nil
}

// toldInterval is how many intervals pass between two looks at the raw tables by a process that is told of what is stored:
// a loader elsewhere tells nobody.
const toldInterval = 10

// rest waits. When there was nothing to do, word of new records ends it.
func (p *Passes) rest(ctx context.Context, wait time.Duration, idle bool) {
	var stored <-chan struct{}
	if idle && p.stored != nil {
		stored, wait = p.stored, toldInterval*wait
	}
	select {
	case <-ctx.Done():
	case <-stored:
	case <-time.After(wait):
	}
}

// Once judges all that was loaded and is not judged yet, in as many batches as that takes.
func (p *Passes) Once(ctx context.Context) (Stats, error) {
	begun := time.Now()
	var total Stats
	for {
		s, more, err := p.once(ctx)
		total.Rows += s.Rows
		total.Touched += s.Touched
		total.Judged += s.Judged
		if err != nil {
			p.state.unclean, p.state.seen = true, nil
			p.forget()
			if ctx.Err() == nil {
				p.m.passes.WithLabelValues("error").Inc()
			}
			return total, fmt.Errorf("pass: %w", err)
		}
		if !more {
			total.Took = time.Since(begun)
			return total, nil
		}
	}
}

func (p *Passes) once(ctx context.Context) (s Stats, more bool, err error) {
	if err := p.load(ctx); err != nil {
		return s, false, err
	}
	seen, err := p.look(ctx)
	if err != nil {
		return s, false, err
	}
	if maps.Equal(seen, p.state.seen) && !p.state.unclean {
		return s, false, nil
	}
	ctx, span := p.tracer.Start(ctx, "enrich.pass")
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}()
	b, whole, err := p.batch(ctx, seen)
	if err != nil {
		return s, false, err
	}
	if len(b) == 0 && !p.state.unclean {
		p.state.seen = seen
		return s, false, nil
	}
	if s, err = p.handle(ctx, b); err != nil {
		return s, false, err
	}
	if whole {
		p.state.seen = seen
		p.m.oldest.Store(0)
	}
	p.m.passes.WithLabelValues("ok").Inc()
	return s, !whole, nil
}

// handle does one batch: fold, judge, capacity, progress.
func (p *Passes) handle(ctx context.Context, b batch) (s Stats, err error) {
	if err := p.beginPass(ctx); err != nil {
		return s, err
	}
	step := func(name string, do func(context.Context) error) error {
		ctx, span := p.tracer.Start(ctx, "enrich."+name)
		defer span.End()
		begun := time.Now()
		err := do(ctx)
		p.m.seconds.WithLabelValues(name).Observe(time.Since(begun).Seconds())
		return err
	}
	var members, nodes []nodeSpan
	var touched []attemptSpan
	if err := step("membership", func(ctx context.Context) (err error) { members, err = p.foldMembership(ctx, b); return }); err != nil {
		return s, err
	}
	if err := step("nodes", func(ctx context.Context) (err error) { nodes, err = p.foldNodes(ctx, b); return }); err != nil {
		return s, err
	}
	if err := step("attempts", func(ctx context.Context) (err error) { touched, err = p.foldAttempts(ctx, b); return }); err != nil {
		return s, err
	}
	defer func() { // also when something else failed, nothing of the pass goes on after it
		_ = p.written()
		p.state.writing = nil
	}()
	membership, offers, held := clustersOf(members), clustersOf(nodes), heldSpans(touched)
	var keys []placementKey
	for _, t := range touched {
		keys = append(keys, t.placementKey)
	}
	if p.state.unclean {
		err := step("recover", func(ctx context.Context) error {
			if err := p.written(); err != nil {
				return err
			}
			left, err := p.leftovers(ctx)
			if err != nil {
				return err
			}
			membership, offers, held = append(membership, left.membership...), append(offers, left.offers...), append(held, left.held...)
			keys = append(keys, left.keys...)
			return nil
		})
		if err != nil {
			return s, err
		}
	}
	if err := step("affected", func(ctx context.Context) (err error) {
		keys, err = p.withAffected(ctx, keys, membership, offers, held)
		return err
	}); err != nil {
		return s, err
	}
	s.Touched = len(keys)
	spans := slices.Concat(membership, offers, held)
	for _, span := range spans { // so that the two below, which go on at once, only read it
		c, err := p.cluster(ctx, span.Cluster)
		if err != nil {
			return s, err
		}
		c.now()
	}
	if err := together(
		func() error {
			return step("judge", func(ctx context.Context) (err error) { s.Judged, err = p.judge(ctx, keys); return })
		},
		func() error {
			return step("capacity", func(ctx context.Context) error { return p.foldCapacity(ctx, spans) })
		},
	); err != nil {
		return s, err
	}
	if err := p.written(); err != nil {
		return s, err
	}
	if err := step("progress", func(ctx context.Context) error { return p.finish(ctx, b) }); err != nil {
		return s, err
	}
	for _, r := range b {
		p.m.rows.WithLabelValues(r.Table).Add(float64(r.To - r.From))
		s.Rows += int(r.To - r.From)
	}
	for _, c := range p.state.clusters {
		c.prune(p.now())
	}
	return s, nil
}

// withAffected adds to the placements that a pass has touched those of their clusters whose verdict may depend on what changed.
func (p *Passes) withAffected(ctx context.Context, keys []placementKey, membership, offers, held []clusterSpan) ([]placementKey, error) {
	clusters := map[string]bool{}
	for _, k := range keys {
		clusters[k.cluster] = true
	}
	for _, c := range slices.Concat(membership, offers, held) {
		clusters[c.Cluster] = true
	}
	for name := range clusters {
		c, err := p.cluster(ctx, name)
		if err != nil {
			return nil, err
		}
		more, err := p.otherUsual(ctx, c)
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
		if more, err = p.affected(ctx, c, spansOf(membership, name), spansOf(offers, name), spansOf(held, name)); err != nil {
			return nil, err
		}
		keys = append(keys, more...)
	}
	return keys, nil
}

func clustersOf(spans []nodeSpan) []clusterSpan {
	var out []clusterSpan
	for _, s := range spans {
		out = append(out, clusterSpan{s.Cluster, s.From, s.To})
	}
	return mergeSpans(out)
}

// leftovers is what a pass that did not finish has written: its rows are newer than the last one that did. Nobody knows
// what they replaced, so all of their time counts as changed.
type leftovers struct {
	membership, offers, held []clusterSpan
	keys                     []placementKey
}

func (p *Passes) leftovers(ctx context.Context) (leftovers, error) {
	var l leftovers
	since := p.with(ctx, clickhouse.Parameters{"since": fmt.Sprint(p.state.watermark), "version": fmt.Sprint(p.version)})
	for _, of := range []struct {
		table string
		to    *[]clusterSpan
	}{{schema.TableMembership, &l.membership}, {schema.TableNodeStates, &l.offers}, {schema.TablePlacements, &l.held}} {
		rows, err := p.conn.Query(since, "SELECT cluster, valid_from, valid_to FROM "+of.table+
			" WHERE version > {since:UInt64} AND version < {version:UInt64}")
		if err != nil {
			return l, fmt.Errorf("find what an unfinished pass left in %s: %w", of.table, err)
		}
		for rows.Next() {
			var s clusterSpan
			if err := rows.Scan(&s.Cluster, &s.From, &s.To); err != nil {
				return l, errors.Join(fmt.Errorf("find what an unfinished pass left in %s: %w", of.table, err), rows.Close())
			}
			*of.to = append(*of.to, s)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return l, fmt.Errorf("find what an unfinished pass left in %s: %w", of.table, err)
		}
		*of.to = mergeSpans(*of.to)
	}
	var err error
	if l.keys, err = p.keys(since, `WITH named AS
		(
			SELECT cluster, job_id, attempt FROM placements WHERE version > {since:UInt64} AND version < {version:UInt64}
			UNION DISTINCT
			SELECT cluster, job_id, attempt FROM attempts WHERE version > {since:UInt64} AND version < {version:UInt64}
			UNION DISTINCT
			SELECT cluster, job_id, attempt FROM verdicts WHERE version > {since:UInt64} AND version < {version:UInt64}
		)
		SELECT cluster, job_id, attempt, seq, toUnixTimestamp64Milli(valid_from) FROM placements
		WHERE (cluster, job_id) IN (SELECT cluster, job_id FROM named) AND (cluster, job_id, attempt) IN (SELECT * FROM named)
		ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq`); err != nil {
		return l, err
	}
	return l, nil
}

// Rejudge judges again all placements that began in [from, to), by what is known now. Verdicts that come out as before
// are not written again.
func (p *Passes) Rejudge(ctx context.Context, from, to time.Time) (Stats, error) {
	begun := time.Now()
	s, err := p.rejudge(ctx, from, to)
	s.Took = time.Since(begun)
	if err != nil {
		p.state.unclean = true
		p.forget()
		return s, fmt.Errorf("judge again: %w", err)
	}
	return s, nil
}

func (p *Passes) rejudge(ctx context.Context, from, to time.Time) (s Stats, err error) {
	if _, err := p.Once(ctx); err != nil { // what is not judged yet, or left by a pass that did not finish, comes first
		return s, err
	}
	if err := p.beginPass(ctx); err != nil {
		return s, err
	}
	keys, err := p.keys(ctx, fmt.Sprintf(`SELECT cluster, job_id, attempt, seq, toUnixTimestamp64Milli(argMax(valid_from, version)) FROM placements
		WHERE valid_from >= %s AND valid_from < %s GROUP BY cluster, job_id, attempt, seq`, at64(from.UnixMilli()), at64(to.UnixMilli())))
	if err != nil {
		return s, err
	}
	s.Touched = len(keys)
	if s.Judged, err = p.judge(ctx, keys); err != nil {
		return s, err
	}
	var newest uint64
	if err := p.conn.QueryRow(ctx, "SELECT max(version) FROM pass_progress WHERE pass = '"+Name+"'").Scan(&newest); err != nil {
		return s, fmt.Errorf("read progress: %w", err)
	}
	if err := p.alone(newest); err != nil { // a stage that was not stopped may have judged by the old rule meanwhile
		return s, err
	}
	return s, p.finish(ctx, nil)
}
