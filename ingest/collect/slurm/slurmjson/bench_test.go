package slurmjson

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// bigDocument gives a squeue document of the given number of jobs, grown from a recorded one: each job holds 36 whole
// nodes, with the per-core lists as Slurm printed them, about 200 KB a job. It is made while it is read.
type bigDocument struct {
	head, tail  []byte   // of the document
	job         [][]byte // one job, cut where its id goes
	rest        []byte
	jobs, given int
}

func newBigDocument(t testing.TB, jobs int) *bigDocument {
	doc := open(t, "squeue_job4_v0.0.45.json")
	cut := func(doc, before, after string) (string, string) {
		i := bytes.Index([]byte(doc), []byte(before))
		j := bytes.LastIndex([]byte(doc), []byte(after))
		if i < 0 || j < i {
			t.Fatalf("the recorded document has no %q … %q", before, after)
		}
		return doc[:i+len(before)], doc[j:]
	}
	head, tail := cut(string(doc), `{"jobs":[`, `],"last_backfill"`)
	job := string(doc[len(head) : len(doc)-len(tail)])
	start, end := cut(job, `"allocation":[`, `]},"cpus":4,"threads_per_core"`)
	node := job[len(start) : len(job)-len(end)]
	var grown bytes.Buffer
	grown.WriteString(start)
	for i := range 36 {
		if i > 0 {
			grown.WriteByte(',')
		}
		grown.Write(bytes.Replace([]byte(node), []byte("gb-r01-n11"), fmt.Appendf(nil, "gb-r%02d-n%02d", i/18+1, i%18+1), 1))
	}
	grown.WriteString(end)
	parts := bytes.SplitN(grown.Bytes(), []byte(`"job_id":4,`), 2)
	return &bigDocument{head: []byte(head), tail: []byte(tail), job: [][]byte{append(parts[0], `"job_id":`...), append([]byte{','}, parts[1]...)}, jobs: jobs, rest: []byte(head)}
}

func (d *bigDocument) size() int64 {
	n := int64(len(d.head) + len(d.tail))
	for i := range d.jobs {
		n += int64(len(d.job[0]) + len(strconv.Itoa(i+1)) + len(d.job[1]) + 1)
	}
	return n - 1
}

func (d *bigDocument) rewind() { d.rest, d.given = d.head, 0 }

func (d *bigDocument) Read(p []byte) (int, error) {
	if len(d.rest) == 0 {
		switch step := d.given % 3; {
		case d.given == 3*d.jobs:
			d.rest = d.tail
		case d.given > 3*d.jobs:
			return 0, io.EOF
		case step == 0:
			d.rest = d.job[0]
			if d.given > 0 {
				d.rest = append([]byte{','}, d.job[0]...)
			}
		case step == 1:
			d.rest = strconv.AppendInt(nil, int64(d.given/3+1), 10)
		case step == 2:
			d.rest = d.job[1]
		}
		d.given++
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// decodeBig returns the largest heap seen while decoding.
func decodeBig(t testing.TB, d *bigDocument) (peak uint64) {
	d.rewind()
	n := 0
	meta, err := DecodeJobs(d, func(j *Job) error {
		n++
		if int(j.JobID) != n || len(j.AllocNodeNames) != 36 {
			return fmt.Errorf("job %d at %d has %d nodes", j.JobID, n, len(j.AllocNodeNames))
		}
		if n%100 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
		}
		return nil
	})
	if err != nil || meta.Records != d.jobs || meta.DataParser != "v0.0.45" {
		t.Fatalf("after %d jobs: %+v, %v", n, meta, err)
	}
	return peak
}

const maxHeap = 64 << 20

func TestBigDocumentNeedsLittleMemory(t *testing.T) {
	jobs := 500
	if peak := decodeBig(t, newBigDocument(t, jobs)); peak > maxHeap {
		t.Errorf("a document of %d jobs needed %d MB of heap", jobs, peak>>20)
	}
}

// A large job must not need a large buffer either: 5,040 nodes are 29 MB in one record.
func TestLargeJobNeedsLittleMemory(t *testing.T) {
	d := newBigDocument(t, 1)
	one, _ := io.ReadAll(d)
	mark := []byte(`"allocation":[`)
	i := bytes.Index(one, mark) + len(mark)
	j := bytes.LastIndex(one, []byte(`]},"cpus":4,"threads_per_core"`))
	parts := []io.Reader{bytes.NewReader(one[:i])}
	for range 140 {
		parts = append(parts, bytes.NewReader(one[i:j]), bytes.NewReader([]byte{','}))
	}
	parts = append(parts[:len(parts)-1], bytes.NewReader(one[j:]))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := DecodeJobs(io.MultiReader(parts...), func(j *Job) error {
		runtime.ReadMemStats(&after)
		if len(j.AllocNodeNames) != 5040 {
			return fmt.Errorf("%d nodes", len(j.AllocNodeNames))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("one job of 5,040 nodes allocated %d MB", used>>20)
	}
}

// BenchmarkDecode1GB decodes 5,000 jobs, 1 GB. It reports the largest heap seen.
func BenchmarkDecode1GB(b *testing.B) {
	d := newBigDocument(b, 5000)
	b.SetBytes(d.size())
	b.ReportAllocs()
	var peak uint64
	for b.Loop() {
		peak = max(peak, decodeBig(b, d))
	}
	b.ReportMetric(float64(peak)/(1<<20), "MB-heap")
}

// BenchmarkDecodePretty decodes the indented form of the REST API.
func BenchmarkDecodePretty(b *testing.B) {
	doc := open(b, "run1/squeue-20261129T142555Z.json.gz")
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeJobs(bytes.NewReader(doc), func(*Job) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeAccounting(b *testing.B) {
	doc, err := os.ReadFile("testdata/sacct.json")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeJobs(bytes.NewReader(doc), func(*Job) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
