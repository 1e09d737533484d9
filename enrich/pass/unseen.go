package pass

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/spillway-io/spillway/schemas/event"
)

// unseenEvery is how often source records are looked at, and unseenAgain how often what one says is compared again with
// what is stored, since an old record may come late.
const (
	unseenEvery = time.Minute
	unseenAgain = time.Hour
)

// unseenJobs is how many jobs' records are read at once.
const unseenJobs = 1000

// told is what a collector says to have told in full; see event.Told.
type told struct {
	cluster, source string
	since, good     int64 // Unix ms; good: of the first full read that it says so of
}

// compared is that what was told in full since then was compared with what is stored, and when.
type compared struct {
	since int64
	at    time.Time
}

// unseen ends what ended while no collector ran: runs, nodes and places that a source told of before its collector
// started, and has not since it said that it has told all that is listed. It does so by records in the words that the
// collector itself would have used, so that whoever follows the topics learns of it, and a record that was only late
// refutes it. It waits for cfg.GoneAfter, because topics are not loaded in step, and must run when all that is loaded is judged.
func (p *Passes) unseen(ctx context.Context) error {
	now := p.now()
	if p.emit == nil || now.Sub(p.state.unseenAt) < unseenEvery {
		return nil
	}
	p.state.unseenAt = now
	said, err := p.toldInFull(ctx, now)
	if err != nil {
		return fmt.Errorf("find what its source no longer tells: %w", err)
	}
	for _, t := range said {
		key := [2]string{t.cluster, t.source}
		if done := p.state.unseen[key]; done.since == t.since && now.Sub(done.at) < unseenAgain {
			continue
		}
		records, err := p.unseenOf(ctx, t)
		if err != nil {
			return fmt.Errorf("find what %s of %s no longer tells: %w", t.source, t.cluster, err)
		}
		if len(records) > 0 {
			late, err := p.late(ctx, t, said, now)
			if err != nil {
				return fmt.Errorf("see whether records of %s of %s are still on their way: %w", t.source, t.cluster, err)
			}
			if late {
				continue
			}
			p.log.Info("ending what its source no longer tells", "cluster", t.cluster, "source", t.source, "records", len(records), "since", moment(t.since))
		}
		for some := range slices.Chunk(records, emitRows) {
			if err := p.emit(ctx, some...); err != nil {
				return fmt.Errorf("end what %s of %s no longer tells: %w", t.source, t.cluster, err)
			}
			p.m.unseen.WithLabelValues(t.source).Add(float64(len(some)))
		}
		p.state.unseen[key] = compared{t.since, now}
	}
	return nil
}

// toldInFull reads what collectors say to have told in full, the newest of each.
func (p *Passes) toldInFull(ctx context.Context, now time.Time) (out []told, err error) {
	until := now.Add(-p.cfg.GoneAfter)
	err = p.ask(ctx, question{file: "unseen_told", params: clickhouse.Parameters{
		"from": millis(until.Add(-unseenAgain).UnixMilli()), "until": millis(until.UnixMilli()),
	}}, func(rows driver.Rows) error {
		var t told
		if err := rows.Scan(&t.cluster, &t.source, &t.since, &t.good); err != nil {
			return err
		}
		if n := len(out); n > 0 && out[n-1].cluster == t.cluster && out[n-1].source == t.source {
			out[n-1] = t
		} else {
			out = append(out, t)
		}
		return nil
	})
	return out, err
}

// unseenOf gives the records that end what a source has not told since.
func (p *Passes) unseenOf(ctx context.Context, t told) ([]event.Record, error) {
	records, err := p.unseenRuns(ctx, t)
	if err != nil {
		return nil, err
	}
	// It was gone when all was told, so it was the moment before.
	observed, revision := t.since-1, uint64(t.since)*1000-1
	if err := p.ask(ctx, t.about("unseen_nodes"), func(rows driver.Rows) error {
		r := &event.Node{Cluster: t.cluster, Source: t.source, Removed: true, ObservedAtMs: observed, Revision: revision}
		records = append(records, r)
		return rows.Scan(&r.Node)
	}); err != nil {
		return nil, err
	}
	err = p.ask(ctx, t.about("unseen_places"), func(rows driver.Rows) error {
		r := &event.Membership{Cluster: t.cluster, Source: t.source, Removed: true, ObservedAtMs: observed, Revision: revision}
		records = append(records, r)
		return rows.Scan(&r.Node, &r.Topology)
	})
	return records, err
}

func (t told) about(file string) question {
	return question{file: file, params: clickhouse.Parameters{"cluster": t.cluster, "source": t.source, "since": millis(t.since)}}
}

// unseenRuns gives a record that ends each run which the source has not told since.
func (p *Passes) unseenRuns(ctx context.Context, t told) (out []event.Record, err error) {
	var ids []string
	if err := p.ask(ctx, t.about("unseen_jobs"), func(rows driver.Rows) error {
		ids = append(ids, "")
		return rows.Scan(&ids[len(ids)-1])
	}); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(ids, unseenJobs) {
		table, err := wantedTable([]string{"job_id"}, namesOf(some))
		if err != nil {
			return nil, err
		}
		jobs := map[string][]record{}
		if err := read(clickhouse.Context(p.about(ctx, t.cluster), clickhouse.WithExternalTable(table)), p.conn, recordColumns,
			"SELECT "+recordColumns.reads()+" FROM placement_events WHERE cluster = {cluster:String} AND job_id IN (SELECT job_id FROM wanted)", func(r record) {
				jobs[r.jobID] = append(jobs[r.jobID], r)
			}); err != nil {
			return nil, err
		}
		for _, id := range some {
			slices.SortFunc(jobs[id], compareRecords)
			for _, run := range runsOf(jobs[id]) {
				out = append(out, run.unseen(t)...)
			}
		}
	}
	return out, nil
}

// unseen gives the records that end a run, one for each component, or none when it has ended or was told of since.
func (r *jobRun) unseen(t told) (out []event.Record) {
	seen := int64(0)
	for i := range r.records {
		seen = max(seen, r.records[i].observed)
	}
	if seen >= t.since || r.final() != nil {
		return nil
	}
	for _, component := range r.components() {
		o := last(r.of(component), func(o *record) bool { return o.source == t.source })
		if o == nil {
			continue
		}
		end := &event.Placement{
			Cluster: o.cluster, Scheduler: o.scheduler, JobId: o.jobID, Component: o.component, RunId: o.runID, Name: o.name, User: o.user,
			Account: o.account, Queue: o.queue, ServiceClass: o.class, Probe: o.probe, Source: o.source, State: event.State_VANISHED, StateRaw: o.stateRaw,
			ObservedAtMs: t.good, Revision: uint64(t.since)*1000 - 1, // before all that was told since, which refutes it
		}
		if o.restart >= 0 {
			end.Restart = new(uint32(o.restart))
		}
		if o.start > 0 {
			end.StartMs = new(o.start)
		}
		end.EndEarliestMs = new(max(seen, o.start))
		end.EndMs = new(max(t.good, *end.EndEarliestMs))
		out = append(out, end)
	}
	return out
}

// late reports whether records that the collector told before its full read was good are still being loaded: the newest of
// a Kafka partition came a moment ago and is older than that. A partition in which nothing comes has them all.
func (p *Passes) late(ctx context.Context, t told, said []told, now time.Time) (late bool, err error) {
	var sources []string // one collector has several, and may have spoken as any of them
	for _, other := range said {
		if other.cluster == t.cluster {
			sources = append(sources, other.source)
		}
	}
	err = p.ask(ctx, question{
		file: "unseen_late", names: []string{"source"}, wanted: namesOf(sources),
		params: clickhouse.Parameters{"cluster": t.cluster, "from": millis(now.Add(-p.cfg.GoneAfter).UnixMilli()), "good": millis(t.good)},
	}, func(driver.Rows) error {
		late = true
		return nil
	})
	return late, err
}
