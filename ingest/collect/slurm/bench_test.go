package slurm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/slurm/slurmjson"
)

// largeDocument is a poll of a cluster with many jobs: recorded job 1, its numbers and nodes replaced, nodes nodes each. Its
// per-core lists are as Slurm prints them.
func largeDocument(tb testing.TB, jobs, nodes int) []byte {
	tb.Helper()
	cores := strings.TrimSuffix(strings.Repeat(`{"index":1,"status":["UNALLOCATED"]},`, 72), ",")
	sockets := `[{"index":0,"cores":[` + cores + `]},{"index":1,"cores":[` + cores + `]}]`
	recorded := string(document(tb, samples+"squeue_job4_v0.0.45.json"))
	start := strings.Index(recorded, `{"account"`)
	end := strings.Index(recorded, `],"last_backfill"`)
	if start < 0 || end < 0 {
		tb.Fatal("the recorded document has changed its shape")
	}
	job := recorded[start:end]
	allocation := job[strings.Index(job, `"allocation":[`)+len(`"allocation":[`) : strings.Index(job, `]},"cpus"`)]
	var b bytes.Buffer
	b.WriteString(recorded[:start])
	for i := range jobs {
		var list, details []string
		for n := range nodes {
			one := strings.Replace(allocation, "gb-r01-n11", fmt.Sprintf("n%d", i*nodes+n+1), 1)
			if at := strings.Index(one, `"sockets":`); at >= 0 {
				one = one[:at] + `"sockets":` + sockets + "}"
			}
			list = append(list, one)
			details = append(details, `"gpu:gb200:4(IDX:0-3)"`)
		}
		own := strings.NewReplacer(
			`"job_id":4,`, fmt.Sprintf(`"job_id":%d,`, i+1),
			`"nodes":"gb-r01-n11"`, fmt.Sprintf(`"nodes":"n[%d-%d]"`, i*nodes+1, (i+1)*nodes),
			`["gpu:gb200:2(IDX:0-1)"]`, "["+strings.Join(details, ",")+"]",
			allocation, strings.Join(list, ","),
			`s2MSM8KRTDSZ00`, fmt.Sprintf("s2MSM8K%07d", i),
		).Replace(job)
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(own)
	}
	b.WriteString(recorded[end:])
	return b.Bytes()
}

func readerJobs(doc []byte) Jobs {
	return func(yield func(*slurmjson.Job) error) (slurmjson.Meta, error) {
		return slurmjson.DecodeJobs(io.NopCloser(bytes.NewReader(doc)), yield)
	}
}

// BenchmarkPoll measures one poll of 5,000 running jobs: the first, of which every job is a record, and later ones without a
// change.
func BenchmarkPoll(b *testing.B) {
	for _, nodes := range []int{1, 18} {
		doc := largeDocument(b, 5000, nodes)
		cfg := testConfig()
		observe := func(p *Poller) int {
			records, _, err := p.Observe(readerJobs(doc), SourceSqueue, time.Unix(1795960000, 0))
			if err != nil {
				b.Fatal(err)
			}
			return len(records)
		}
		for name, known := range map[string]bool{"first": false, "unchanged": true} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				p := NewPoller(&cfg, quiet(), func(string, int) {})
				if known {
					observe(p)
					p.Commit()
				}
				records := 0
				b.SetBytes(int64(len(doc)))
				b.ReportAllocs()
				for b.Loop() {
					records = observe(p)
				}
				b.ReportMetric(float64(records), "records")
			})
		}
	}
}

// A poll of 5,000 jobs must stay small: what is kept, and what is alive at most while it is read.
func TestMemoryOfALargePoll(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a document of 80 MB")
	}
	const jobs, nodes = 5000, 2
	doc := largeDocument(t, jobs, nodes)
	cfg := testConfig()
	p := NewPoller(&cfg, quiet(), func(string, int) {})
	alive := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	base := alive()
	var peak uint64
	read := func() int {
		n := 0
		records, _, err := p.Observe(func(yield func(*slurmjson.Job) error) (slurmjson.Meta, error) {
			return readerJobs(doc)(func(j *slurmjson.Job) error {
				if n++; n%1000 == 0 {
					peak = max(peak, alive()-base)
				}
				return yield(j)
			})
		}, SourceSqueue, time.Unix(1795960000, 0))
		if err != nil {
			t.Fatal(err)
		}
		p.Commit()
		return len(records)
	}
	first := read()
	firstPeak := peak
	peak = 0
	kept := alive() - base
	second := read()
	t.Logf("document %d MB; first poll %d records, %d MB alive at most; then kept %d B a job; next poll %d records, %d MB alive at most",
		len(doc)>>20, first, firstPeak>>20, kept/jobs, second, peak>>20)
	if first != jobs || second != 0 || firstPeak > 64<<20 || kept > 16<<20 || peak > 32<<20 {
		t.Errorf("more than the bounds: %d and %d records, %d and %d MB, kept %d MB", first, second, firstPeak>>20, peak>>20, kept>>20)
	}
	runtime.KeepAlive(doc)
}
