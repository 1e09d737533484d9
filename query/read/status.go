package read

import (
	"context"
	"fmt"
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
	Table  string    `json:"table" ch:"raw_table"`
	Rows   uint64    `json:"rows" ch:"rows_behind"`
	Oldest time.Time `json:"oldest_loaded_at" ch:"oldest_loaded_at"`
}

// DeadLetter counts records that could not be used for one reason.
type DeadLetter struct {
	Topic   string    `json:"topic" ch:"topic"`
	Stage   string    `json:"stage" ch:"stage"`
	Reason  string    `json:"reason" ch:"reason"`
	Records uint64    `json:"records" ch:"records"`
	Newest  time.Time `json:"newest" ch:"newest"`
}

// Rows loaded longer ago than this are not searched for the unjudged.
const unjudgedWindow = 2 * time.Hour

// lagTolerance is how long a row may wait for its pass before the answer counts as incomplete.
const lagTolerance = 5 * time.Second

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
	if out.Unjudged, err = rows[Unjudged](ctx, r, "unjudged", params{}.time("since", now.Add(-unjudgedWindow))); err != nil {
		return nil, err
	}
	if out.DeadLetters, err = rows[DeadLetter](ctx, r, "dead_letters", params{}.time("since", now.Add(-24*time.Hour))); err != nil {
		return nil, err
	}
	out.Freshness = summarize(sources, "", now)
	for _, u := range out.Unjudged {
		if now.Sub(u.Oldest) > lagTolerance {
			out.Freshness.Complete = false
			out.Freshness.Gaps = append(out.Freshness.Gaps, fmt.Sprintf("%d rows of %s wait to be judged since %s", u.Rows, u.Table,
				u.Oldest.UTC().Format(time.RFC3339)))
		}
	}
	out.Unjudged, out.DeadLetters = orEmpty(out.Unjudged), orEmpty(out.DeadLetters)
	return out, nil
}
