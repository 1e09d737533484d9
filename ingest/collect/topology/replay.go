package topology

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/schemas/event"
)

// ReplayOptions say how recorded topologies are to be taken.
type ReplayOptions struct {
	// Cluster is whose topologies they are.
	Cluster string
	// ValidFrom is since when they held; zero: since 2000-01-01, before anything that is replayed.
	ValidFrom time.Time
	// Choice says what of them counts; an empty DomainLevel is "block". Kinds that other files tell need not be in it.
	Choice Choice
	// Log gets the issues; nil: nobody.
	Log *slog.Logger
}

// Recognize reports whether a file is one that ReplayFiles reads, by its content. A node listing of Slurm is, though
// more than its topology may be of interest.
func Recognize(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("open recording: %w", err)
	}
	defer f.Close()
	r, err := uncompressed(f, path)
	if err != nil {
		return false, err
	}
	head := make([]byte, DetectBytes)
	n, err := io.ReadFull(r, head)
	if err != nil && n == 0 {
		return false, nil // empty, or no gzip after all
	}
	_, ok := Detect(head[:n])
	return ok, nil
}

// ReplayFiles emits the membership that recorded files declare, each source's files taken together: the topologies of
// one source must not contradict each other, for nothing says which of them held when. The same files give the same
// records.
func ReplayFiles(ctx context.Context, paths []string, opts ReplayOptions, out collect.Emitter) error {
	if opts.Cluster == "" {
		return fmt.Errorf("replay topology: no cluster named; a topology does not tell whose it is")
	}
	if opts.ValidFrom.IsZero() {
		opts.ValidFrom = collect.RecordedSince
	}
	if opts.Choice.DomainLevel == "" {
		opts.Choice.DomainLevel = event.LevelBlock
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	sources := map[string][]*Map{}
	for _, path := range paths {
		m, err := parseFile(path)
		if err != nil {
			return fmt.Errorf("replay topology: %w", err)
		}
		sources[m.Format.source()] = append(sources[m.Format.source()], m)
	}
	for _, source := range event.MembershipSources() {
		if len(sources[source]) == 0 {
			continue
		}
		choice := opts.Choice
		m, err := combine(sources[source], &choice)
		if err != nil {
			return fmt.Errorf("replay topology: %w", err)
		}
		view, err := m.View(choice)
		if err != nil {
			return fmt.Errorf("replay topology: %w", err)
		}
		for _, issue := range append(m.Issues, view.Issues...) {
			opts.Log.Warn("topology has an issue", "source", source, "at", issue.Where, "issue", issue.Text)
		}
		for chunk := range slices.Chunk(view.Nodes, emitAtOnce) {
			var records []event.Record
			for _, n := range chunk {
				r := membership(opts.Cluster, source, view.Topology, n, opts.ValidFrom)
				r.ValidFromMs = event.Millis(opts.ValidFrom)
				if err := r.Validate(); err != nil {
					return fmt.Errorf("replay topology: node %s: %w", n.Name, err)
				}
				records = append(records, r)
			}
			if err := out.Emit(ctx, records...); err != nil {
				return fmt.Errorf("replay topology: %w", err)
			}
		}
	}
	return nil
}

func parseFile(path string) (*Map, error) {
	b, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(bytes.NewReader(b), path, FormatAuto)
}

// combine makes one map of the maps of one source. A node listing adds only topologies that no other file tells of, and
// gets the kinds of its topologies from them.
func combine(maps []*Map, choice *Choice) (*Map, error) {
	all := &Map{File: maps[0].File, Format: maps[0].Format}
	from := map[int]string{} // file by place in all.Topologies
	for _, m := range maps {
		all.Issues = append(all.Issues, m.Issues...)
		if m.Format == FormatNodes {
			continue
		}
		for _, t := range m.Topologies {
			same := slices.IndexFunc(all.Topologies, func(o Topology) bool {
				return o.Kind == t.Kind && (o.Name == t.Name || o.Default && t.Default)
			})
			switch {
			case same < 0:
				from[len(all.Topologies)] = m.File
				all.Topologies = append(all.Topologies, t)
			case !sameNodes(all.Topologies[same].Nodes, t.Nodes):
				return nil, fmt.Errorf("%s and %s disagree on the %s topology %s, and neither says when it held; replay the one that was in force",
					from[same], m.File, t.Kind, t.Name)
			case all.Topologies[same].Name == DefaultName:
				all.Topologies[same].Name = t.Name // the same, with its own name
			}
		}
	}
	for _, m := range maps {
		if m.Format != FormatNodes {
			continue
		}
		for _, t := range m.Topologies {
			if !slices.ContainsFunc(all.Topologies, func(o Topology) bool { return o.Name == t.Name }) {
				all.Topologies = append(all.Topologies, t)
			}
		}
	}
	return all, nil
}

// sameNodes compares two tellings of one topology. Aggregated blocks do not count: the scheduler prints some that the
// file leaves to its defaults.
func sameNodes(a, b []Node) bool {
	index := make(map[string][]Level, len(a))
	for _, n := range a {
		index[n.Name] = withoutGroups(n.Levels)
	}
	return len(a) == len(b) && !slices.ContainsFunc(b, func(n Node) bool {
		levels, ok := index[n.Name]
		return !ok || !slices.Equal(levels, withoutGroups(n.Levels))
	})
}

func withoutGroups(levels []Level) []Level {
	return slices.DeleteFunc(slices.Clone(levels), func(l Level) bool {
		return strings.HasPrefix(l.Level, event.LevelBlockGroup)
	})
}
