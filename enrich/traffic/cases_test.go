package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/spillway-io/spillway/enrich/pass"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/clickhouse"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// caseStart is minute 0 of every case.
var caseStart = time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)

// store is a migrated database with a pass over it.
type store struct {
	*testenv.Server
	pass    *Pass
	now     time.Time
	offset  int
	version uint64
	labels  [][]string
}

func quote(s string) string { return "'" + s + "'" }

// quoted is each word between pluses.
func quoted(s string) (out []string) {
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == '+' }) {
		out = append(out, quote(w))
	}
	return out
}

func newStore(t testing.TB) *store {
	t.Helper()
	s := &store{Server: testenv.ClickHouse(t), now: caseStart.Add(2 * time.Hour), version: 1}
	if err := clickhouse.Migrate(context.Background(), s.Conn, clickhouse.Options{Database: s.Database}); err != nil {
		t.Fatal(err)
	}
	s.renew(t)
	return s
}

// renew is a pass that remembers nothing.
func (s *store) renew(t testing.TB) {
	t.Helper()
	var err error
	if s.pass, err = New(DefaultConfig(), Deps{Conn: s.Conn, Now: func() time.Time { return s.now }}); err != nil {
		t.Fatal(err)
	}
}

func (s *store) exec(t testing.TB, format string, args ...any) {
	t.Helper()
	if err := s.Exec(context.Background(), fmt.Sprintf(format, args...)); err != nil {
		t.Fatalf("%v in\n%s", err, fmt.Sprintf(format, args...))
	}
}

func (s *store) once(t testing.TB) {
	t.Helper()
	if err := s.pass.Once(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// lines is a query's rows as text.
func (s *store) lines(t testing.TB, query string) []string {
	t.Helper()
	rows, err := s.Query(context.Background(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := []string{}
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		out = append(out, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// at reads "12:30" as minutes and seconds after the start; "-" is never.
func at(t testing.TB, s string) string {
	t.Helper()
	when := clickhouse.OpenEnd
	if s != "-" {
		minutes, seconds, _ := strings.Cut(s, ":")
		m, err := strconv.Atoi(minutes)
		n, err2 := strconv.Atoi(seconds)
		if err != nil || err2 != nil {
			t.Fatalf("%q is no time like 12:30", s)
		}
		when = caseStart.Add(time.Duration(m)*time.Minute + time.Duration(n)*time.Second)
	}
	return when.Format("2006-01-02 15:04:05.000")
}

// apply writes one line of a case.
func (s *store) apply(t testing.TB, line string) {
	t.Helper()
	f := strings.Fields(line)
	switch f[0] {
	case "placement": // JOB FROM TO NODE=GPU,GPU... ; NODE=? holds four GPUs of which the indices are not known, NODE=2?ml/a+ml/b two, by pods
		var nodes, held, index, pods []string
		gpus := 0
		for _, n := range f[4:] {
			name, list, _ := strings.Cut(n, "=")
			nodes = append(nodes, quote(name))
			count, through, unknown := strings.Cut(list, "?")
			pods = append(pods, "["+strings.Join(quoted(through), ",")+"]")
			if unknown {
				n := 4
				if count != "" {
					n = int(count[0] - '0')
				}
				held, index = append(held, fmt.Sprint(n)), append(index, "[]")
				gpus += n
				continue
			}
			n := strings.Count(list, ",") + 1
			held, index = append(held, fmt.Sprint(n)), append(index, "["+list+"]")
			gpus += n
		}
		s.exec(t, `INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, node_pods, gpus, version)
			VALUES ('east', '%s', 'r0', 0, '%s', '%s', [%s], [%s], [%s], [%s], %d, %d)`, f[1], at(t, f[2]), at(t, f[3]),
			strings.Join(nodes, ","), strings.Join(held, ","), strings.Join(index, ","), strings.Join(pods, ","), gpus, s.version)
		s.exec(t, "INSERT INTO attempts (cluster, job_id, attempt, service_class, version) VALUES ('east', '%s', 'r0', 'training', %d)", f[1], s.version)
	case "withdrawn": // JOB
		s.exec(t, "INSERT INTO placements (cluster, job_id, attempt, seq, version, is_deleted) VALUES ('east', '%s', 'r0', 0, %d, 1)", f[1], s.version)
	case "verdict": // JOB OUTCOME
		s.exec(t, "INSERT INTO verdicts (cluster, job_id, attempt, seq, outcome, version) VALUES ('east', '%s', 'r0', 0, '%s', %d)", f[1], f[2], s.version)
	case "judged": // a pass over placements ends here
		s.exec(t, "INSERT INTO pass_progress VALUES ('judge', '', 0, 0, %d)", s.version)
		s.version++
	case "labels": // NODE FROM TO GPU JOBS: whom the source of counters says to use a GPU, in the counters that follow
		s.labels = append(s.labels, f[1:])
	case "has": // NODE GPUS: how many it has
		s.exec(t, "INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, version) VALUES ('east', '%s', '2000-01-01', '2200-01-01', %s, 1)", f[1], f[2])
	case "mig": // NODE FROM TO: its first GPU is cut into instances
		s.exec(t, `INSERT INTO counters (kafka_partition, kafka_offset, loaded_at, cluster, node, source, observed_at, entity, gpu, part)
			SELECT 0, %d + number, '%s', 'east', '%s', 'dcgm', toDateTime64('%s', 3, 'UTC') + toIntervalSecond(number * 10) AS when, 'mig', 0, 1
			FROM numbers(1000) WHERE when <= '%s'`, s.offset, s.now.Format("2006-01-02 15:04:05.000"), f[1], at(t, f[2]), at(t, f[3]))
		s.offset += 10_000
	case "gpus", "rates", "ports": // NODE FROM TO BYTES-PER-SECOND [first value]: of each of four GPUs or ports, both directions
		rate, err := strconv.ParseFloat(f[4], 64)
		if err != nil {
			t.Fatal(err)
		}
		first := "1e12"
		if len(f) > 5 {
			first = f[5]
		}
		entity, gpu, name, values := "gpu", "g", "''", fmt.Sprintf("toUInt64(%s + n * 10 * %g), toUInt64(%s + n * 10 * %g), NULL", first, rate/2, first, rate/2)
		jobs := "''"
		for _, l := range s.labels {
			if l[0] == f[1] && f[0] != "ports" {
				jobs = fmt.Sprintf("if(g = %s AND when >= '%s' AND when <= '%s', '%s', %s)", l[3], at(t, l[1]), at(t, l[2]), l[4], jobs)
			}
		}
		if f[0] == "ports" {
			entity, gpu, name = "nic", "0", "concat('mlx5_', toString(g))"
		}
		if f[0] == "rates" {
			values = fmt.Sprintf("NULL, NULL, %g", rate)
		}
		s.exec(t, `INSERT INTO counters (kafka_partition, kafka_offset, loaded_at, cluster, node, source, observed_at, entity, gpu, name, jobs, tx_bytes, rx_bytes, bytes_per_second)
			SELECT 0, %d + rowNumberInAllBlocks(), '%s', 'east', '%s', 'dcgm', when, '%s', %s, %s, %s, %s
			FROM (SELECT arrayJoin(range(4)) AS g, arrayJoin(range(toUInt64(dateDiff('second', toDateTime64('%s', 3, 'UTC'), toDateTime64('%s', 3, 'UTC')) / 10) + 1)) AS n,
				toDateTime64('%s', 3, 'UTC') + toIntervalSecond(n * 10) AS when)`,
			s.offset, s.now.Format("2006-01-02 15:04:05.000"), f[1], entity, gpu, name, jobs, values, at(t, f[2]), at(t, f[3]), at(t, f[2]))
		s.offset += 10_000
	case "pass":
		s.once(t)
	case "restart":
		s.renew(t)
	default:
		t.Fatalf("%q is no line of a case", line)
	}
}

const evidenceLines = `SELECT concat(job_id, ' ', toString(evidence), if(reason = '', '', concat(' ', reason)), if(empty(outlier_nodes), '', concat(' outliers ', arrayStringConcat(arraySort(outlier_nodes), ','))))
	FROM traffic_evidence FINAL ORDER BY job_id`

const trafficLines = `SELECT concat(job_id, ' ', formatDateTime(min(minute), '%i', 'UTC'), '-', formatDateTime(max(minute), '%i', 'UTC'),
		' nvlink ', ifNull(toString(round(sum(nvlink_bytes) / sum(nvlink_gpu_seconds) / 1e9, 1)), 'NULL'), ' GB/s over ', toString(round(sum(nvlink_gpu_seconds))),
		' scale-out ', ifNull(toString(round(sum(scale_out_bytes) / nullIf(sum(scale_out_gpu_seconds), 0) / 1e9, 1)), 'NULL'), ' GB/s over ', toString(round(sum(scale_out_gpu_seconds))))
	FROM job_traffic FINAL GROUP BY job_id ORDER BY job_id`

// TestCases runs each file of testdata/cases: what is told, in order, and what is known of it in the end.
func TestCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			archive := txtar.Parse(text)
			part := func(name string) []string {
				for _, f := range archive.Files {
					if f.Name == name {
						return strings.FieldsFunc(string(f.Data), func(r rune) bool { return r == '\n' })
					}
				}
				return nil
			}
			s := newStore(t)
			for _, line := range part("told") {
				if !strings.HasPrefix(line, "#") {
					s.apply(t, line)
				}
			}
			check := func() {
				t.Helper()
				if diff := cmp.Diff(part("evidence"), s.lines(t, evidenceLines)); diff != "" {
					t.Errorf("evidence (- wanted, + got):\n%s", diff)
				}
				if want := part("traffic"); want != nil {
					if diff := cmp.Diff(want, s.lines(t, trafficLines)); diff != "" {
						t.Errorf("traffic (- wanted, + got):\n%s", diff)
					}
				}
			}
			s.once(t)
			check()
			// All counters once more, as after a retry, to a pass that remembers nothing: nothing may change.
			s.exec(t, "INSERT INTO counters SELECT * REPLACE (kafka_offset + 1000000 AS kafka_offset, loaded_at + toIntervalSecond(1) AS loaded_at) FROM counters")
			s.renew(t)
			s.once(t)
			check()
		})
	}
}

// TestRollups compares minutes and hours with the counters behind them, and both with themselves after a repetition.
func TestRollups(t *testing.T) {
	s := newStore(t)
	s.apply(t, "gpus n1 0:00 30:00 200e9")
	s.apply(t, "gpus n1 30:10 59:50 400e9 0") // the counters began anew
	s.once(t)
	minutes := `SELECT toString((minute, samples, seconds, bytes / 1e9, resets)) FROM counters_minute FINAL WHERE gpu = 1 AND minute IN
		('2026-11-29 10:00:00', '2026-11-29 10:01:00', '2026-11-29 10:30:00') ORDER BY minute`
	want := []string{
		"('2026-11-29 10:00:00',5,50,10000,0)", // the first scrape has none before it
		"('2026-11-29 10:01:00',6,60,12000,0)",
		"('2026-11-29 10:30:00',6,50,18000,1)", // over the break nothing is known
	}
	hours := "SELECT toString((hour, samples, round(seconds), round(bytes / 1e12), resets)) FROM counters_hour FINAL WHERE gpu = 1"
	wantHours := []string{"('2026-11-29 10:00:00',359,3580,1072,1)"}
	for _, again := range []string{"at first", "after all counters came twice"} {
		if diff := cmp.Diff(want, s.lines(t, minutes)); diff != "" {
			t.Errorf("minutes %s:\n%s", again, diff)
		}
		if diff := cmp.Diff(wantHours, s.lines(t, hours)); diff != "" {
			t.Errorf("hours %s:\n%s", again, diff)
		}
		s.exec(t, "INSERT INTO counters SELECT * REPLACE (kafka_offset + 1000000 AS kafka_offset, loaded_at + toIntervalSecond(1) AS loaded_at) FROM counters")
		s.once(t)
	}
}

// TestOnlyOneWorksOnADatabase: of two, the one that comes to look after the other has finished ends.
func TestOnlyOneWorksOnADatabase(t *testing.T) {
	s := newStore(t)
	first := s.pass
	s.apply(t, "gpus n1 0:00 5:00 200e9")
	s.once(t)
	s.renew(t)
	s.once(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for what, do := range map[string]func(context.Context) error{"it ends with": first.Run, "a single pass": first.Once} {
		if err := do(ctx); !errors.Is(err, pass.ErrNotAlone) {
			t.Errorf("%s %v", what, err)
		}
	}
	s.apply(t, "gpus n1 5:10 9:00 200e9")
	s.once(t)
	s.once(t)
}

func TestNothingNewCostsNothing(t *testing.T) {
	s := newStore(t)
	s.once(t)
	s.apply(t, "gpus n1 0:00 5:00 200e9")
	s.once(t)
	before := s.lines(t, "SELECT toString(max(version)) FROM pass_progress")
	s.once(t)
	if after := s.lines(t, "SELECT toString(max(version)) FROM pass_progress"); !slices.Equal(before, after) {
		t.Errorf("a pass with nothing to do wrote progress: %v, then %v", before, after)
	}
}

func TestConfigurationsThatAreWrong(t *testing.T) {
	for key, edit := range map[string]func(*Config){
		"interval": func(c *Config) { c.Interval = time.Hour }, "max_gap": func(c *Config) { c.MaxGap = 0 },
		"busy_ports": func(c *Config) { c.BusyPorts = 1 }, "outlier_factor": func(c *Config) { c.OutlierFactor = 1 },
	} {
		c := DefaultConfig()
		edit(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "traffic."+key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
