package slurm

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/slurm/prolog"
	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
	"github.com/spillway-io/spillway/schemas/event"
)

// Kind is what a recorded file holds.
type Kind string

// The kinds of files that ReplayFiles reads.
const (
	KindJobs       Kind = "jobs"       // squeue, scontrol show job, REST jobs
	KindAccounting Kind = "accounting" // sacct, REST slurmdb jobs
	KindNodes      Kind = "nodes"      // scontrol show nodes, REST nodes
	KindJobComp    Kind = "jobcomp"    // messages of jobcomp/kafka, one a line
	KindEvents     Kind = "events"     // environments of prolog and epilog
	KindOther      Kind = ""           // nothing of this collector
)

// ReplayOptions say how recorded files are read.
type ReplayOptions struct {
	// Config gives the cluster's name, the rules and the topic of starts; what to read live is not used.
	Config Config
	Log    *slog.Logger // nil = slog.Default
}

// Recognize tells by content what a file holds; KindOther when it is nothing of this collector. The error is about
// reading the file, not about what it holds.
func Recognize(path string) (Kind, error) {
	f, err := collect.OpenRecorded(path)
	if err != nil {
		return KindOther, err
	}
	defer f.Close()
	return recognize(f), nil
}

// ReplayFiles feeds recorded output of Slurm through the same Poller as a live collector, in the order of the recorded
// times. Runs that were not listed any more are closed by the accounting files given, wherever these stand; what they do
// not know has ended between two polls. The first file that cannot be read whole ends the replay, with an error that names
// it.
func ReplayFiles(ctx context.Context, paths []string, opts ReplayOptions, out collect.Emitter) error {
	cfg := opts.Config
	cfg.Refresh = 0
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	r := replay{out: out, startTopic: cfg.JobComp.StartTopic, log: opts.Log, valid: map[string]bool{}, left: map[string]int{}}
	note := func(reason string, facts int) { r.left[reason] += facts }
	r.poller, r.nodes = NewPoller(&cfg, opts.Log, note), NewNodePoller(&cfg, opts.Log, note)
	r.poller.trust, r.nodes.trust = 1, 1 // a recording is what it is
	defer func() {
		for _, reason := range slices.Sorted(maps.Keys(r.left)) {
			r.log.Warn("replay left facts out", "reason", reason, "facts", r.left[reason])
		}
	}()
	var files []recorded
	for _, path := range paths {
		f, err := r.inspect(path)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	// Accounting comes last: it is asked about runs that polls no longer listed.
	slices.SortStableFunc(files, func(a, b recorded) int {
		return cmp.Or(cmp.Compare(rank(a.kind), rank(b.kind)), a.at.Compare(b.at), cmp.Compare(a.path, b.path))
	})
	for _, f := range files {
		if err := r.file(ctx, f); err != nil {
			return fmt.Errorf("replay %s: %w", f.path, err)
		}
	}
	records, err := r.poller.GiveUp(time.Time{}, r.last)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if err := r.emit(ctx, records); err != nil {
		return err
	}
	if cluster := r.poller.Cluster(); cluster != "" && !r.last.IsZero() {
		return r.emit(ctx, []event.Record{&event.Source{
			Cluster: cluster, Source: Name, ObservedAtMs: r.last.UnixMilli(), GoodAtMs: event.Millis(r.last),
		}})
	}
	return nil
}

func rank(k Kind) int {
	if k == KindAccounting {
		return 1
	}
	return 0
}

// recorded is one file of a replay.
type recorded struct {
	path string
	kind Kind
	at   time.Time
}

type replay struct {
	out        collect.Emitter
	log        *slog.Logger
	poller     *Poller
	nodes      *NodePoller
	startTopic string
	last       time.Time       // newest observation
	valid      map[string]bool // nodes declared since the collect.RecordedSince
	left       map[string]int  // facts that could not be used, by reason
}

func (r *replay) emit(ctx context.Context, records []event.Record) error {
	if len(records) == 0 {
		return nil
	}
	if err := r.out.Emit(ctx, records...); err != nil {
		return fmt.Errorf("replay: hand on %d records: %w", len(records), err)
	}
	return nil
}

// stampInName is the time in names such as squeue-20261129T142633Z.json.gz.
var stampInName = regexp.MustCompile(`(?:^|[^0-9])(\d{8}T\d{6})Z`)

// inspect finds out what a file holds and of when it is: by its name, else by what the document says, else by the time the
// file was written.
func (r *replay) inspect(path string) (recorded, error) {
	f := recorded{path: path}
	var err error
	if f.kind, err = Recognize(path); err != nil {
		return f, err
	}
	if f.kind == KindOther {
		return f, fmt.Errorf("replay %s: this is no output of Slurm that is known; give what squeue --json, scontrol show job --json -d, sacct -D --json, "+
			"scontrol show nodes --json or slurmrestd print, messages of jobcomp/kafka one a line, or environments of prolog scripts", path)
	}
	if m := stampInName.FindStringSubmatch(filepath.Base(path)); m != nil {
		if f.at, err = time.Parse("20060102T150405", m[1]); err == nil {
			return f, nil
		}
	}
	if f.at, err = timeInside(f); err != nil {
		return f, fmt.Errorf("replay %s: %w", path, err)
	}
	if f.at.IsZero() {
		info, err := os.Stat(path)
		if err != nil {
			return f, fmt.Errorf("replay: %w", err)
		}
		f.at = info.ModTime().UTC()
	}
	return f, nil
}

// timeInside reads a whole document for what it says of its time, which may stand at its end. Accounting says nothing of
// it; its newest fact is the best there is. Messages and environments have a time each.
func timeInside(f recorded) (newest time.Time, err error) {
	src, err := collect.OpenRecorded(f.path)
	if err != nil {
		return newest, err
	}
	defer src.Close()
	var meta slurmjson.Meta
	switch f.kind {
	case KindJobs:
		meta, err = slurmjson.DecodeJobs(src, func(*slurmjson.Job) error { return nil })
		newest = meta.LastUpdate
	case KindNodes:
		meta, err = slurmjson.DecodeNodes(src, func(*slurmjson.Node) error { return nil })
		newest = meta.LastUpdate
	case KindAccounting:
		_, err = slurmjson.DecodeJobs(src, func(j *slurmjson.Job) error {
			for _, t := range []time.Time{j.Submit, j.Start, j.End} {
				if t.After(newest) {
					newest = t
				}
			}
			return nil
		})
	}
	return newest, err
}

// file replays one file.
func (r *replay) file(ctx context.Context, f recorded) error {
	src, err := collect.OpenRecorded(f.path)
	if err != nil {
		return err
	}
	defer src.Close()
	if f.at.After(r.last) {
		r.last = f.at
	}
	switch f.kind {
	case KindJobComp:
		return r.jobcomp(ctx, src, f)
	case KindEvents:
		return r.prologs(ctx, src, f)
	}
	jobs := func(yield func(*slurmjson.Job) error) (slurmjson.Meta, error) {
		return slurmjson.DecodeJobs(src, yield)
	}
	var records []event.Record
	var meta slurmjson.Meta
	switch f.kind {
	case KindAccounting:
		records, meta, err = r.poller.Account(jobs, SourceSacct, f.at, true)
	case KindNodes:
		records, meta, err = r.nodes.Observe(func(yield func(*slurmjson.Node) error) (slurmjson.Meta, error) {
			return slurmjson.DecodeNodes(src, yield)
		}, f.at)
		for _, rec := range records {
			if n := rec.(*event.Node); !r.valid[n.Node] {
				r.valid[n.Node] = true
				n.ValidFromMs = event.Millis(collect.RecordedSince)
			}
		}
	default:
		records, meta, err = r.poller.Observe(jobs, SourceSqueue, f.at)
	}
	if err != nil {
		return err
	}
	if meta.Records > 0 && len(records) == 0 && r.poller.Known() == 0 && f.kind == KindJobs {
		return errors.New("none of its jobs could be used; a list of states alone (jobs/state) does not tell enough, record jobs/ instead")
	}
	if err := r.emit(ctx, records); err != nil {
		return err
	}
	r.poller.Commit()
	r.nodes.Commit()
	return nil
}

// maxLine is the longest line of a recording: a job's environment and command line are far shorter.
const maxLine = 4 << 20

// jobcomp replays messages, bare or in the wrapping that says their topic. Bare ones say by their members what they are.
func (r *replay) jobcomp(ctx context.Context, src io.Reader, f recorded) error {
	lines := bufio.NewScanner(src)
	lines.Buffer(nil, maxLine)
	var records []event.Record
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		done, err := r.message(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		at := done.Time
		if at.IsZero() {
			at = f.at
		}
		rec, err := r.poller.completion(done, at)
		if err != nil {
			r.poller.dropped(err)
			continue
		}
		records = append(records, rec)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read lines: %w", err)
	}
	return r.emit(ctx, records)
}

func (r *replay) message(line []byte) (*slurmjson.Completion, error) {
	if recognizeObject(jsontext.NewDecoder(bytes.NewReader(line))) == wrapped {
		return slurmjson.DecodeRecordedCompletion(line, r.startTopic)
	}
	done, err := slurmjson.DecodeCompletion(line, false)
	if err != nil {
		if start, startErr := slurmjson.DecodeCompletion(line, true); startErr == nil {
			return start, nil
		}
	}
	return done, err
}

// prologs replays environments. Their time is that of the event: the run's start, or its end.
func (r *replay) prologs(ctx context.Context, src io.Reader, f recorded) error {
	var records []event.Record
	err := prolog.DecodeRecording(src, func(e *prolog.NodeEvent, err error) error {
		if err != nil {
			return err
		}
		at := f.at
		switch {
		case e.Begin && !e.Start.IsZero():
			at = e.Start
		case !e.Begin && !e.End.IsZero():
			at = e.End
		}
		rec, err := r.poller.nodeEvent(e, at)
		if err != nil {
			return err
		}
		records = append(records, rec)
		return nil
	})
	if err != nil {
		return err
	}
	return r.emit(ctx, records)
}

// What recognizeObject says of objects that are one line of a file.
const (
	wrapped Kind = "wrapped message"
	bare    Kind = "bare message"
	envJSON Kind = "environment"
)

// recognize tells by the first bytes, and for JSON by the first members that tell.
func recognize(src io.Reader) Kind {
	b := bufio.NewReaderSize(src, 64<<10)
	start, _ := b.Peek(4 << 10)
	start = bytes.TrimLeft(start, " \t\r\n")
	switch {
	case len(start) == 0:
		return KindOther
	case start[0] == '{':
		switch kind := recognizeObject(jsontext.NewDecoder(b, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))); kind {
		case wrapped, bare:
			return KindJobComp
		case envJSON:
			return KindEvents
		default:
			return kind
		}
	case bytes.HasPrefix(start, []byte("==")) && bytes.Contains(start, []byte("\nSLURM")), envLine.Match(start):
		return KindEvents
	}
	return KindOther
}

// envLine is the first line of an environment.
var envLine = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=[^\n]*\n(?:[A-Z_][A-Z0-9_]*=[^\n]*\n)*SLURM[A-Z0-9_]*=`)

// recognizeObject reads members until one tells what the object is.
func recognizeObject(d *jsontext.Decoder) Kind {
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return KindOther
	}
	topic := false
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return KindOther
		}
		switch n := name.String(); {
		case n == "jobs" && d.PeekKind() == '[':
			return recognizeList(d, map[string]Kind{"time": KindAccounting, "association": KindAccounting, "job_resources": KindJobs, "job_state": KindJobs, "submit_time": KindJobs}, KindJobs)
		case n == "nodes" && d.PeekKind() == '[':
			return recognizeList(d, map[string]Kind{"name": KindNodes, "gres": KindNodes, "node": KindOther, "channel": KindOther}, KindNodes)
		case n == "topic" && d.PeekKind() == '"':
			topic = true
		case n == "value" && d.PeekKind() == '{':
			return wrapped
		case n == "jobid" && !topic:
			return bare
		case len(n) > 6 && n[:6] == "SLURM_", n == "SLURMD_NODENAME":
			return envJSON
		}
		if err := d.SkipValue(); err != nil {
			return KindOther
		}
	}
	return KindOther
}

// recognizeList looks at the first record of a list. otherwise is what an empty list is.
func recognizeList(d *jsontext.Decoder, members map[string]Kind, otherwise Kind) Kind {
	if _, err := d.ReadToken(); err != nil {
		return KindOther
	}
	if d.PeekKind() != '{' {
		return otherwise
	}
	if _, err := d.ReadToken(); err != nil {
		return otherwise
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return otherwise
		}
		if kind, tells := members[name.String()]; tells {
			return kind
		}
		if err := d.SkipValue(); err != nil {
			return otherwise
		}
	}
	return otherwise
}
