package read

import (
	"context"
	"slices"
	"time"
)

// Status walks the flow: what each hop last did and what waits.
type Status struct {
	Now         time.Time    `json:"now"`
	Sources     []Source     `json:"sources"`
	Raw         []RawTable   `json:"raw_tables"`
	Unjudged    []Unjudged   `json:"unjudged" doc:"Raw rows that no pass has judged yet; empty = none."`
	DeadLetters []DeadLetter `json:"dead_letters" doc:"Of the last day, most first; at most 20 kinds."`
	Freshness   Freshness    `json:"freshness"`
}

// RawTable is one raw table's newest row.
type RawTable struct {
	Table    string     `json:"table"`
	Rows     uint64     `json:"rows"`
	LoadedAt *time.Time `json:"loaded_at" doc:"null = never"`
}

// Unjudged is how far the passes are behind on one raw table.
type Unjudged struct {
	Table  string    `json:"table"`
	Rows   uint64    `json:"rows"`
	Oldest time.Time `json:"oldest_loaded_at"`
}

// DeadLetter counts records that could not be used for one reason.
type DeadLetter struct {
	Topic   string    `json:"topic" ch:"topic"`
	Stage   string    `json:"stage" ch:"stage"`
	Reason  string    `json:"reason" ch:"reason"`
	Records uint64    `json:"records" ch:"records"`
	Newest  time.Time `json:"newest" ch:"newest"`
}

// Status answers from metadata and recent rows only.
func (r *Reader) Status(ctx context.Context) (*Status, error) {
	now := r.now()
	out := &Status{Now: now}
	sources, err := r.Sources(ctx)
	if err != nil {
		return nil, err
	}
	out.Sources = orEmpty(sources)
	type rawRow struct {
		Table    string    `ch:"raw_table"`
		Rows     uint64    `ch:"row_count"`
		LoadedAt time.Time `ch:"loaded_at"`
	}
	raw, err := rows[rawRow](ctx, r, "raw_tables", nil)
	if err != nil {
		return nil, err
	}
	for _, t := range raw {
		row := RawTable{Table: t.Table, Rows: t.Rows}
		if t.Rows > 0 {
			row.LoadedAt = &t.LoadedAt
		}
		out.Raw = append(out.Raw, row)
	}
	waits, err := r.readUnjudged(ctx, now, statusWindow)
	if err != nil {
		return nil, err
	}
	out.Unjudged = byTable(waits)
	if out.DeadLetters, err = rows[DeadLetter](ctx, r, "dead_letters", params{}.time("since", now.Add(-24*time.Hour))); err != nil {
		return nil, err
	}
	out.Freshness = reports{sources, late(waits, now)}.freshness("", now)
	out.DeadLetters = orEmpty(out.DeadLetters)
	return out, nil
}

// byTable sums up what waits in all clusters.
func byTable(waits []wait) []Unjudged {
	out := []Unjudged{}
	for _, w := range waits {
		i := slices.IndexFunc(out, func(u Unjudged) bool { return u.Table == w.Table })
		if i < 0 {
			i, out = len(out), append(out, Unjudged{Table: w.Table, Oldest: w.Oldest})
		}
		out[i].Rows += w.Rows
		if w.Oldest.Before(out[i].Oldest) {
			out[i].Oldest = w.Oldest
		}
	}
	return out
}
