package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/schemas/event"
)

// say stores a source record by which a collector has told all of some sources since a time, and read them well later.
func (s *store) say(loaded time.Time, since, good string, sources ...string) {
	s.t.Helper()
	at := func(text string) []time.Time {
		return slices.Repeat([]time.Time{event.Time((&caseLine{t: s.t.(*testing.T)}).time(text))}, len(sources))
	}
	if err := s.Conn.Exec(context.Background(), "INSERT INTO source_events (kafka_partition, kafka_offset, loaded_at, cluster, source, told_source, told_since, told_good, observed_at) VALUES (0, 0, ?, 'c', 'slurm', ?, ?, ?, ?)",
		loaded, sources, at(since), at(good), at(good)[0]); err != nil {
		s.t.Fatal(err)
	}
}

// ended looks once for what its source no longer tells, and gives the records that end it, as lines.
func (s *store) ended() string {
	s.t.Helper()
	var records []event.Record
	s.emit = func(_ context.Context, r ...event.Record) error { records = append(records, r...); return nil }
	s.state.unseenAt = time.Time{}
	if err := s.unseen(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.emit = nil
	s.feed(records...)
	clock := func(ms int64) string { return time.UnixMilli(ms).UTC().Format("15:04:05.000") }
	text := ""
	for _, r := range records {
		switch r := r.(type) {
		case *event.Placement:
			text += fmt.Sprintln(r.GetSource(), r.GetJobId()+r.GetComponent(), r.GetRunId(), r.GetState(), clock(r.GetEndEarliestMs()), clock(r.GetEndMs()))
		case *event.Node:
			text += fmt.Sprintln(r.GetSource(), r.GetNode(), "removed", r.GetRemoved(), clock(r.GetObservedAtMs()))
		case *event.Membership:
			text += fmt.Sprintln(r.GetSource(), r.GetTopology(), r.GetNode(), "has no place", r.GetRemoved(), clock(r.GetObservedAtMs()))
		}
	}
	return text
}

const settled6 = 6 * time.Minute // longer than what is said has to settle

// TestWhatEndedWhileNoCollectorRan: the collector was away from 10:30 to 12:00.
func TestWhatEndedWhileNoCollectorRan(t *testing.T) {
	s := newStore(t)
	s.cfg.Settle = time.Hour // another matter
	s.feed(parseCase(t, twoRacks+`
10:00:00 job id=1 run=a start=10:00:00 nodes=a1 gpus=4                      # gone at 12:00
10:00:00 job id=2 run=b start=10:00:00 nodes=a2 gpus=4                      # runs on
10:00:00 job id=3 run=c start=10:00:00 nodes=a3 gpus=4 source=slurm.jobcomp # of a queue that the poll does not list
10:20:00 job id=4 run=d start=10:00:00 nodes=a4 gpus=4 state=completed end=10:20:00
10:00:00 job id=5 run=e start=10:00:00 nodes=b1 gpus=4                      # was requeued meanwhile
10:00:00 job id=6 run=f state=pending                                       # cancelled
10:00:00 job id=7 component=7 start=10:00:00 nodes=b2 gpus=4                # both parts of it are gone
10:00:00 job id=7 component=8 start=10:00:00 nodes=b3 gpus=4
10:00:00 job id=8 run=g start=10:00:00 nodes=b4 gpus=4                      # gone as well; its prolog came after the last poll
10:30:00 job id=8 run=g start=10:00:00 nodes=b4 gpus=4 source=slurm.prolog partial=yes
10:00:00 job id=9 run=h start=10:00:00 nodes=a3 gpus=4 source=simulate      # nobody says that all of these are told
12:00:00 job id=2 run=b start=10:00:00 nodes=a2 gpus=4
12:00:00 job id=5 run=e2 start=11:00:00 nodes=b1 gpus=4
10:00:00 membership nodes=x1,x2 source=slurm_topology domain=X
12:00:00 membership nodes=x1 source=slurm_topology domain=X
`)...)
	node := func(name string, at string) event.Record {
		ms := *(&caseLine{t: t}).time(at)
		return &event.Node{Cluster: "c", Node: name, Source: "slurm.nodes", GpusPresent: new(uint32(4)), Schedulable: yes(), ObservedAtMs: ms, Revision: uint64(ms) * 1000}
	}
	s.feed(node("x1", "10:00:00"), node("x2", "10:00:00"), node("x1", "12:00:00"))
	s.once()
	if got := s.ended(); got != "" {
		t.Errorf("nobody has told anything in full, and there ends\n%s", got)
	}
	s.say(time.Now(), "12:00:00", "12:00:10", "slurm.squeue", "slurm.nodes", "slurm_topology")
	if got := s.ended(); got != "" {
		t.Errorf("before all can be loaded there ends\n%s", got)
	}
	s.Passes.now = func() time.Time { return time.Now().Add(settled6) }
	want := `slurm.nodes x2 removed true 11:59:59.999
slurm.squeue 1 a VANISHED 10:00:00.000 12:00:10.000
slurm.squeue 5 e VANISHED 10:00:00.000 12:00:10.000
slurm.squeue 6 f VANISHED 10:00:00.000 12:00:10.000
slurm.squeue 77  VANISHED 10:00:00.000 12:00:10.000
slurm.squeue 78  VANISHED 10:00:00.000 12:00:10.000
slurm.squeue 8 g VANISHED 10:30:00.000 12:00:10.000
slurm_topology  x2 has no place true 11:59:59.999
`
	if d := cmp.Diff(want, s.ended()); d != "" {
		t.Errorf("with all told in full (-want +got)\n%s", d)
	}
	s.once()
	for query, want := range map[string]uint64{
		"SELECT count() FROM (SELECT * FROM attempts ORDER BY version DESC LIMIT 1 BY job_id, attempt) WHERE state = 'vanished'":                                                             5,
		"SELECT count() FROM (SELECT * FROM attempts ORDER BY version DESC LIMIT 1 BY job_id, attempt) WHERE state = 'running'":                                                              4,
		"SELECT count() FROM (SELECT * FROM placements ORDER BY version DESC LIMIT 1 BY job_id, attempt, seq) WHERE NOT is_deleted AND valid_to > '2199-01-01 00:00:00'":                     4,
		"SELECT count() FROM (SELECT * FROM node_states ORDER BY version DESC LIMIT 1 BY node, valid_from) WHERE NOT is_deleted AND valid_to > '2199-01-01 00:00:00' AND reason = 'removed'": 1,
		"SELECT count() FROM (SELECT * FROM membership ORDER BY version DESC LIMIT 1 BY node, valid_from) WHERE NOT is_deleted AND valid_to > '2199-01-01 00:00:00' AND reason = 'removed'":  1,
	} {
		if got := s.count(query); got != want {
			t.Errorf("%s gives %d, want %d", query, got, want)
		}
	}
	s.Passes.now = func() time.Time { return time.Now().Add(settled6 + unseenAgain/2) }
	s.say(time.Now().Add(unseenAgain/2-time.Minute), "12:00:00", "12:30:00", "slurm.squeue", "slurm.nodes", "slurm_topology")
	s.state.unseen = map[[2]string]compared{} // as after a restart
	if got := s.ended(); got != "" {
		t.Errorf("once more there ends\n%s", got)
	}
}

// TestWhatIsToldLateIsRefuted: the topics are not loaded in step.
func TestWhatIsToldLateIsRefuted(t *testing.T) {
	s := newStore(t)
	s.feed(parseCase(t, twoRacks+"10:00:00 job id=1 run=a start=10:00:00 nodes=a1 gpus=4\n10:00:00 job id=2 run=b start=10:00:00 nodes=a2 gpus=4\n")...)
	s.once()
	// What was loaded a moment ago is from before the collector's full read: more of it is on its way.
	s.say(time.Now().Add(-settled6), "12:00:00", "12:00:10", "slurm.squeue")
	if got := s.ended(); got != "" {
		t.Errorf("while records are on their way there ends\n%s", got)
	}
	// Nothing comes any more, as from a partition that nobody reads.
	s.Passes.now = func() time.Time { return time.Now().Add(settled6) }
	if got := s.ended(); strings.Count(got, "\n") != 2 {
		t.Errorf("there ends\n%s", got)
	}
	s.once()
	s.feed(parseCase(t, "12:00:00 job id=2 run=b start=10:00:00 nodes=a2 gpus=4")...)
	s.once()
	if got := s.count("SELECT toUInt64(job_id) FROM (SELECT * FROM attempts ORDER BY version DESC LIMIT 1 BY job_id) WHERE state = 'running'"); got != 2 {
		t.Errorf("job %d runs, want 2", got)
	}
}

// TestWhatIsNotSentIsSentAgain: a broker that is away costs a minute.
func TestWhatIsNotSentIsSentAgain(t *testing.T) {
	s := newStore(t)
	s.feed(parseCase(t, "10:00:00 job id=1 run=a start=10:00:00 nodes=a1 gpus=4")...)
	s.once()
	s.say(time.Now(), "12:00:00", "12:00:10", "slurm.squeue")
	later := time.Now().Add(settled6)
	s.Passes.now = func() time.Time { return later }
	var sent int
	s.emit = func(context.Context, ...event.Record) error {
		if sent++; sent == 1 {
			return errors.New("the broker is away")
		}
		return nil
	}
	if err := s.unseen(t.Context()); err == nil || !strings.Contains(err.Error(), "end what slurm.squeue of c no longer tells: the broker is away") {
		t.Errorf("got %v", err)
	}
	for range 2 {
		if err := s.unseen(t.Context()); err != nil || sent != 1 {
			t.Errorf("within the minute: sent %d times, %v", sent, err)
		}
	}
	later = later.Add(unseenEvery)
	if err := s.unseen(t.Context()); err != nil || sent != 2 {
		t.Errorf("a minute later: sent %d times, %v", sent, err)
	}
	later = later.Add(unseenEvery)
	if err := s.unseen(t.Context()); err != nil || sent != 2 {
		t.Errorf("two minutes later: sent %d times, %v", sent, err)
	}
}
