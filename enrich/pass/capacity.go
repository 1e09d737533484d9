package pass

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// claimsAtOnce bounds how many claims (nodes of placements) one sweep holds in memory.
const claimsAtOnce = 1_000_000

// foldCapacity brings domain_capacity up to date where something changed. The state of a minute is that at its end; a
// row is written for a minute in which it changed, and a row that is stored already is written again only when it says
// something else. No row is ever withdrawn: one that turns out to mark no change says what held before.
func (p *Passes) foldCapacity(ctx context.Context, spans []clusterSpan) error {
	for _, s := range mergeSpans(spans) {
		windows, err := p.windows(ctx, s)
		if err != nil {
			return fmt.Errorf("fold capacity of cluster %s: %w", s.Cluster, err)
		}
		for _, w := range windows {
			if err := p.capacityOf(ctx, s.Cluster, w[0], w[1]); err != nil {
				return fmt.Errorf("fold capacity of cluster %s: %w", s.Cluster, err)
			}
		}
	}
	return nil
}

// mergeSpans joins the spans of a cluster that overlap.
func mergeSpans(spans []clusterSpan) []clusterSpan {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b clusterSpan) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), a.From.Compare(b.From)) })
	var out []clusterSpan
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && out[last].Cluster == s.Cluster && !s.From.After(out[last].To) {
			if s.To.After(out[last].To) {
				out[last].To = s.To
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// windows cuts a span into [first, last) pieces of whole minutes (Unix ms), so that none holds much more than
// claimsAtOnce claims. Only a span of more than a day is worth the question.
func (p *Passes) windows(ctx context.Context, s clusterSpan) ([][2]int64, error) {
	first, last := s.From.UnixMilli(), s.To.UnixMilli()
	first -= first % minute
	if last < forever {
		last += minute - last%minute
	}
	if min(last, p.now().UnixMilli())-first <= (24 * time.Hour).Milliseconds() {
		return [][2]int64{{first, last}}, nil
	}
	var out [][2]int64
	var held uint64
	err := p.ask(ctx, capacityQuestion("capacity_days", s.Cluster, first, last), func(rows driver.Rows) error {
		var day int64
		var claims uint64
		if err := rows.Scan(&day, &claims); err != nil {
			return err
		}
		if held += claims; held > claimsAtOnce && day > first {
			out = append(out, [2]int64{first, day})
			first, held = day, claims
		}
		return nil
	})
	return append(out, [2]int64{first, last}), err
}

// capacityOf brings the rows of one cluster in [first, last) up to date; both are begins of minutes.
func (p *Passes) capacityOf(ctx context.Context, name string, first, last int64) error {
	c, err := p.cluster(ctx, name)
	if err != nil {
		return err
	}
	stored, h := c.rows, c.now()
	if first < c.since {
		if err := p.written(); err != nil {
			return err
		}
		h = clusterHistory{homes: c.homes, offers: c.offers, usual: h.usual}
		if err := together(
			func() (err error) { stored, err = p.capacityRows(ctx, name, first, last); return },
			func() (err error) { h.claims, err = p.claims(ctx, name, first-1, last); return },
		); err != nil {
			return err
		}
	}
	sizes := make([]uint16, len(p.cfg.SlotSizes))
	for i, n := range p.cfg.SlotSizes {
		sizes[i] = uint16(n)
	}
	var known []capacityKey
	for k := range stored {
		if k.minute >= first && k.minute < last {
			known = append(known, k)
		}
	}
	w := &writer{table: schema.TableDomainCapacity}
	changed := map[capacityKey]capacityRow{}
	for k, r := range h.sweep(first, sizes, known) {
		if old, known := stored[k]; k.minute >= last || known && old.equal(r) {
			continue
		}
		w.add(name, k.domain, moment(k.minute), r.nodes, r.nodesUsable, r.nodesFree, r.gpus, r.usable, r.held, r.probe,
			r.free, r.sizes, r.slots, dates(r.ends), r.basis, p.version, uint8(0))
		if k.minute >= c.since {
			changed[k] = r
		}
	}
	if err := p.write(ctx, w); err != nil {
		return err
	}
	maps.Copy(c.rows, changed)
	return nil
}

// dates are Unix seconds as a column of times takes them.
func dates(seconds []uint32) []time.Time {
	out := make([]time.Time, len(seconds))
	for i, s := range seconds {
		out[i] = time.Unix(int64(s), 0)
	}
	return out
}

// capacityRows reads the stored rows of a cluster in [first, last).
func (p *Passes) capacityRows(ctx context.Context, cluster string, first, last int64) (map[capacityKey]capacityRow, error) {
	out := map[capacityKey]capacityRow{}
	// DateTime ends in 2106, the open end of the tables does not fit.
	until := min(last-minute, int64(1<<32-1)*1000)
	err := p.ask(ctx, capacityQuestion("capacity_rows", cluster, first/1000, until/1000), func(rows driver.Rows) error {
		var k capacityKey
		var r capacityRow
		if err := rows.Scan(&k.domain, &k.minute, &r.nodes, &r.nodesUsable, &r.nodesFree, &r.gpus, &r.usable, &r.held, &r.probe,
			&r.free, &r.sizes, &r.slots, &r.ends, &r.basis); err != nil {
			return err
		}
		k.minute *= 1000
		out[k] = r
		return nil
	})
	return out, err
}

// together runs independent questions at once: each is short, so waiting for one after the other would be most of the
// time.
func together(questions ...func() error) error {
	errs := make([]error, len(questions))
	var wg sync.WaitGroup
	for i, q := range questions {
		wg.Go(func() { errs[i] = q() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// claims reads what placements held on the nodes of a cluster from first to last (Unix ms).
func (p *Passes) claims(ctx context.Context, cluster string, first, last int64) (map[string][]interval[claim], error) {
	out := map[string][]interval[claim]{}
	err := p.ask(ctx, capacityQuestion("capacity_claims", cluster, first, last), func(rows driver.Rows) error {
		var node string
		var gpus int32
		var iv interval[claim]
		if err := rows.Scan(&node, &gpus, &iv.value.probe, &iv.value.expectedEnd, &iv.from, &iv.to); err != nil {
			return err
		}
		iv.value.gpus = int(gpus)
		out[node] = append(out[node], iv)
		return nil
	})
	return out, err
}

// capacityQuestion asks about a cluster from first to last, in the unit of the statement.
func capacityQuestion(file, cluster string, first, last int64) question {
	return question{file: file, params: clickhouse.Parameters{"cluster": cluster, "first": millis(first), "last": millis(last)}}
}
