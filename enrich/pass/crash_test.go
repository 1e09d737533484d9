package pass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/spillway-io/spillway/schemas/event"
)

var errCrash = errors.New("crashed here")

// crashing is a connection that dies right after its n-th statement: that one is done, and nobody learns of it.
type crashing struct {
	driver.Conn
	mu   sync.Mutex
	left int
	what string
}

func (c *crashing) over(statement string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.what = statement
	}
	if c.left <= 0 {
		return errCrash
	}
	return nil
}

func (c *crashing) dead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left <= 0
}

func (c *crashing) Exec(ctx context.Context, q string, args ...any) error {
	if c.dead() {
		return errCrash
	}
	if err := c.Conn.Exec(ctx, q, args...); err != nil {
		return err
	}
	return c.over(q)
}

func (c *crashing) Query(ctx context.Context, q string, args ...any) (driver.Rows, error) {
	if c.dead() {
		return nil, errCrash
	}
	rows, err := c.Conn.Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	if err := c.over(q); err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	return rows, nil
}

func (c *crashing) QueryRow(ctx context.Context, q string, args ...any) driver.Row {
	if c.dead() {
		return failedRow{}
	}
	row := c.Conn.QueryRow(ctx, q, args...)
	if c.over(q) != nil {
		_ = row.Scan() // gives the connection back; what it says of the number of columns does not matter
		return failedRow{}
	}
	return row
}

func (c *crashing) PrepareBatch(ctx context.Context, q string, opts ...driver.PrepareBatchOption) (driver.Batch, error) {
	if c.dead() {
		return nil, errCrash
	}
	b, err := c.Conn.PrepareBatch(ctx, q, opts...)
	return crashingBatch{b, c, q}, err
}

type crashingBatch struct {
	driver.Batch
	c     *crashing
	query string
}

func (b crashingBatch) Send() error {
	if err := b.Batch.Send(); err != nil {
		return err
	}
	return b.c.over(b.query)
}

type failedRow struct{}

func (failedRow) Err() error           { return errCrash }
func (failedRow) Scan(...any) error    { return errCrash }
func (failedRow) ScanStruct(any) error { return errCrash }

// TestCrashAfterAnyStatement kills a pass after each of its statements in turn. A new process then comes to the same
// rows as one that never died, and every verdict has been sent out.
func TestCrashAfterAnyStatement(t *testing.T) {
	s := newStore(t)
	story := func(cluster string) (before, after []event.Record) {
		text := `09:00:00 membership cluster=@ nodes=a[1-2] uuid=A clique=1
09:00:00 membership cluster=@ nodes=b[1-2] uuid=B clique=1
09:00:00 node cluster=@ nodes=a[1-2],b[1-2] gpus=4
10:00:00 job id=1 cluster=@ start=10:00:00 nodes=a2,b2 gpus=8
10:00:00 job id=2 cluster=@ start=10:00:00 nodes=a1 gpus=4
---
09:30:00 membership cluster=@ nodes=b2 uuid=A clique=1        # known late: job 1 was in one domain
09:30:00 node cluster=@ nodes=b1 gpus=4 schedulable=no
10:30:00 job id=2 cluster=@ restart=0 start=10:00:00 end=10:30:00 state=completed   # under another key
10:40:00 job id=3 cluster=@ start=10:40:00 nodes=a1,b1 gpus=8
10:50:00 job id=4 cluster=@ start=09:40:00 nodes=b1 gpus=4`
		first, second, _ := strings.Cut(strings.ReplaceAll(text, "@", cluster), "---\n")
		return parseCase(t, first), parseCase(t, second)
	}
	sent := map[string]string{}
	fresh := func(conn driver.Conn) *Passes {
		p, err := New(DefaultConfig(), Deps{Conn: conn, Now: func() time.Time { return time.UnixMilli(day) }, Emit: func(_ context.Context, records ...event.Record) error {
			for _, r := range records {
				v := r.(*event.Spill)
				sent[fmt.Sprintf("%s/%s %s %d", v.GetCluster(), v.GetJobId(), v.GetAttempt(), v.GetSeq())] = v.GetOutcome() + " " + v.GetCause()
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	rows := func(cluster string) string {
		var text string
		for line := range strings.Lines(s.verdictText()) {
			if rest, ok := strings.CutPrefix(line, cluster+"/"); ok {
				text += rest
			}
		}
		for _, q := range []string{
			"SELECT concat(job_id, ' ', attempt, ' ', state, ' ', toString(is_deleted)) FROM attempts WHERE cluster = '@' ORDER BY version DESC LIMIT 1 BY job_id, attempt",
			"SELECT concat(job_id, ' ', attempt, ' ', toString(seq), toString(valid_to), toString(nodes), toString(is_deleted)) FROM placements WHERE cluster = '@' ORDER BY version DESC LIMIT 1 BY job_id, attempt, seq",
			"SELECT concat(node, ' ', toString(valid_from), domain) FROM membership FINAL WHERE cluster = '@'",
			"SELECT concat(node, ' ', toString(valid_from), toString(gpus_usable)) FROM node_states FINAL WHERE cluster = '@'",
			"SELECT concat(domain, ' ', toString(minute), toString(gpus_free)) FROM domain_capacity FINAL WHERE cluster = '@'",
		} {
			var list []string
			q = "WITH x AS (" + strings.Replace(strings.ReplaceAll(q, "@", cluster), " FROM", " AS line FROM", 1) + ") SELECT arraySort(groupArray(line)) FROM x"
			if err := s.Conn.QueryRow(t.Context(), q).Scan(&list); err != nil {
				t.Fatal(err)
			}
			if len(list) == 0 {
				t.Fatalf("nothing is stored: %s", q)
			}
			text += strings.Join(list, "\n") + "\n"
		}
		return text
	}
	const most = 100 // statements of a pass
	var all []event.Record
	for n := range most {
		before, _ := story(fmt.Sprintf("k%03d", n))
		all = append(all, before...)
	}
	s.feed(all...)
	if _, err := fresh(s.Conn).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := ""
	for n := range most {
		cluster := fmt.Sprintf("k%03d", n)
		_, after := story(cluster)
		s.feed(after...)
		conn := &crashing{Conn: s.Conn, left: n}
		if n == 0 { // the one that does not die
			conn.left = 1 << 30
		}
		_, err := fresh(conn).Once(t.Context())
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatalf("statement %d: %v", n, err)
		}
		if n > 0 && err == nil { // it has no more statements
			if n < 20 {
				t.Fatalf("the pass has only %d statements: this test is not one", n)
			}
			return
		}
		if _, err := fresh(s.Conn).Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := rows(cluster)
		if n == 0 {
			want = got
		}
		if got != want {
			t.Errorf("after a crash behind statement %d (%.80q) there is\n%s\nwant\n%s", n, conn.what, got, want)
		}
		for line := range strings.Lines(s.verdictText()) {
			f := strings.Fields(line)
			if strings.HasPrefix(line, cluster+"/") && !strings.HasPrefix(sent[strings.Join(f[:3], " ")], f[3]) {
				t.Errorf("after a crash behind statement %d (%.80q) the verdict %q was never sent out; sent: %q", n, conn.what, line, sent[strings.Join(f[:3], " ")])
			}
		}
	}
	t.Fatalf("a pass has more than %d statements: raise that number", most)
}
