package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	validator "github.com/pb33f/libopenapi-validator"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/live"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/clickhouse"
	"github.com/spillway-io/spillway/schemas/event"
)

// placing is a log in which only what is sent to it is said, all of it of placements.
type placing struct{ said }

func (p placing) Follow(ctx context.Context, topic string, id int, from int64, record func(int64, []byte), ended func()) (int64, error) {
	if topic == event.TopicPlacement {
		return p.said.Follow(ctx, event.TopicMembership, id, from, record, ended)
	}
	return said(nil).Follow(ctx, topic, id, from, record, ended)
}

// yard is a server with a picture of three domains of four nodes, whose clock can be put forward. From two hours ago until half
// an hour ago job 7 held n0.
type yard struct {
	*Server
	t     *testing.T
	log   placing
	ahead *atomic.Int64
	check validator.Validator
}

func newYard(t *testing.T, change func(*AdviseConfig)) *yard {
	t.Helper()
	db := testenv.ClickHouse(t)
	if err := clickhouse.Migrate(t.Context(), db.Conn, clickhouse.Options{Database: db.Database}); err != nil {
		t.Fatal(err)
	}
	y := &yard{t: t, log: placing{make(said, 1)}, ahead: &atomic.Int64{}, check: specValidator(t)}
	now := func() time.Time { return time.Now().Add(time.Duration(y.ahead.Load())) }
	for _, q := range []string{
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, generation, version)
			SELECT 'c1', concat('n', toString(number)), now64(3) - 86400, '2200-01-01', concat('d', toString(intDiv(number, 4))), 1, 1 FROM numbers(12)`,
		`INSERT INTO node_facts (cluster, node, source, valid_from, valid_to, gpus_present, revision, version)
			SELECT 'c1', concat('n', toString(number)), 'slurm', now64(3) - 86400, '2200-01-01', 4, 1, 1 FROM numbers(12)`,
		`INSERT INTO placements (cluster, job_id, attempt, valid_from, valid_to, nodes, node_gpus, version)
			VALUES ('c1', '7', 'r0', now64(3) - 7200, now64(3) - 1800, ['n0'], [4], 1)`,
		`INSERT INTO attempts (cluster, job_id, attempt, state, start, end, sources, version)
			VALUES ('c1', '7', 'r0', 'completed', now64(3) - 7200, now64(3) - 1800, ['slurm.squeue'], 1)`,
		`INSERT INTO source_events (kafka_partition, kafka_offset, loaded_at, cluster, source, good_at, interval_ms, observed_at)
			VALUES (0, 0, now64(3), 'c1', 'slurm', now64(3), 3600000, now64(3))`,
	} {
		if err := db.Conn.Exec(t.Context(), q); err != nil {
			t.Fatalf("%v in:\n%s", err, q)
		}
	}
	feed := picture(t, live.Deps{Conn: db.Conn, Log: y.log, Now: now})
	c := DefaultAdviseConfig()
	change(&c)
	var err error
	y.Server, err = New(DefaultConfig(), Deps{Now: now, Log: slog.New(slog.DiscardHandler), Feed: feed, Reader: read.New(db.Conn, now), Advise: &c})
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// ask posts a body and gives the status and the answer, which it holds to the API's description.
func (y *yard) ask(path, body string) (int, string) {
	y.t.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	y.Handler().ServeHTTP(rec, req)
	text := rec.Body.String()
	if ok, faults := y.check.ValidateHttpResponse(req, rec.Result()); !ok {
		for _, f := range faults {
			y.t.Errorf("%s of %s answered %s, which the description does not allow: %s: %s", path, body, text, f.Message, f.Reason)
		}
	}
	if none := rec.Header().Get("X-Advice") == "none"; none != (rec.Code >= 400) {
		y.t.Errorf("%s of %s: %d with X-Advice: none %v", path, body, rec.Code, none)
	}
	return rec.Code, text
}

// takes asks for advice that has to be given.
func (y *yard) takes(body string) *Advice {
	y.t.Helper()
	code, text := y.ask("/v1/advice", body)
	var out Advice
	if err := json.Unmarshal([]byte(text), &out); err != nil || code != http.StatusOK {
		y.t.Fatalf("%s: got %d %s", body, code, text)
	}
	return &out
}

// refused asks what has to be refused.
func (y *yard) refused(path, body string, status int, code, says string) {
	y.t.Helper()
	got, text := y.ask(path, body)
	if got != status || code != "" && !strings.Contains(text, fmt.Sprintf(`"code":%q`, code)) || !strings.Contains(text, says) {
		y.t.Errorf("%s of %s: got %d %s, want %d, %s and %q", path, body, got, text, status, code, says)
	}
}

// place tells that a job runs on nodes, and waits until it is seen.
func (y *yard) place(job string, nodes ...string) {
	y.t.Helper()
	at := time.Now().UnixMilli()
	p := &event.Placement{Cluster: "c1", Scheduler: "slurm", JobId: job, Source: "slurm.squeue", State: event.State_RUNNING, StartMs: &at, ObservedAtMs: at, Revision: 1}
	for _, n := range nodes {
		p.Placements = append(p.Placements, &event.NodePlacement{Node: n, Gpus: new(uint32(4))})
	}
	_, value, err := event.Encode(p)
	if err != nil {
		y.t.Fatal(err)
	}
	y.log.said <- value
	testenv.Until(y.t, "job "+job+" is seen", func() bool { return y.advisor.feed.Clusters("")["c1"].Snapshot.Holds(job) })
}

func (y *yard) holds() (ids []string) {
	for _, h := range asked[HeldNow](y.t, y.Server, "/v1/holds").Holds {
		ids = append(ids, h.ID)
	}
	return ids
}

func TestShortHolds(t *testing.T) {
	y := newYard(t, func(c *AdviseConfig) {
		c.Holds = HoldsConfig{Longest: time.Minute, Most: 3, TenantMost: 2, TenantShare: .5}
	})
	rack := `"gpus":16,"mode":"required"`
	first := y.takes(`{` + rack + `,"tenant":"a","request_id":"r1","hold_s":30}`)
	if first.Hold == nil || first.Hold.ID != first.AdviceID || !slices.Equal(first.Hold.Nodes, first.Candidates[0].Nodes) || first.Candidates[0].Domains[0].ID != "d0" {
		t.Fatalf("got %+v, want the nodes of d0 to be held", first)
	}
	if wait := first.Hold.Until.Sub(time.Now()); wait > 30*time.Second || wait < 15*time.Second {
		t.Errorf("held for %s, want half a minute", wait)
	}
	if again := y.takes(`{` + rack + `,"tenant":"a","request_id":"r1","hold_s":30}`); string(mustJSON(t, again)) != string(mustJSON(t, first)) {
		t.Errorf("asked again: got %+v, want %+v", again, first)
	}
	y.refused("/v1/advice", `{"gpus":8,"tenant":"a","request_id":"r1","hold_s":30}`, 409, "hold_conflict", "holds nodes for another question")

	other := y.takes(`{` + rack + `}`)
	if other.Hold != nil || other.Candidates[0].Domains[0].ID != "d1" {
		t.Errorf("another asker got %+v, want d1 and no hold", other)
	}
	if all := y.takes(`{"gpus":48,"mode":"unconstrained","tenant":"a"}`); all.Candidates[0].Start == "now" || !strings.Contains(strings.Join(all.Why, ";"), "4 nodes are kept by short holds of others") {
		t.Errorf("who needs them too got %+v", all)
	}
	y.refused("/v1/advice", `{`+rack+`,"tenant":"a","request_id":"r2","hold_s":30}`, 409, "hold_conflict", `tenant \"a\" would hold 8 nodes of the 6 that it may`)
	second := y.takes(`{"gpus":8,"tenant":"a","request_id":"r2","hold_s":20}`)
	y.refused("/v1/advice", `{"gpus":4,"tenant":"a","request_id":"r3","hold_s":30}`, 409, "hold_conflict", `tenant \"a\" has 2 holds`)
	third := y.takes(`{"gpus":8,"tenant":"b","request_id":"r1","hold_s":40}`) // names of requests are each tenant's own
	y.refused("/v1/advice", `{"gpus":4,"tenant":"c","request_id":"r1","hold_s":30}`, 409, "hold_conflict", "3 holds are kept in c1")
	if got, want := y.holds(), []string{second.AdviceID, first.AdviceID, third.AdviceID}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}

	// An explicit end, and one by feedback that the advice was not taken.
	release := func(id string) string { return "/v1/holds/" + id + "/release" }
	if code, text := y.ask(release(second.AdviceID), ``); code != 200 {
		t.Errorf("release: got %d %s", code, text)
	}
	y.refused(release(second.AdviceID), ``, 404, "unknown_hold", "GET /v1/holds")
	y.refused("/v1/advice", `{"gpus":8,"tenant":"a","request_id":"r2","hold_s":20}`, 409, "hold_conflict", "it was released")
	fourth := y.takes(`{"gpus":8,"tenant":"a","request_id":"r4","hold_s":20}`)
	y.refused("/v1/feedback", `{"advice_id":"`+fourth.AdviceID+`","chosen":0}`, 503, "overloaded", "ledger") // which this process does not keep
	if got, want := y.holds(), []string{first.AdviceID, third.AdviceID}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}

	// The job itself is not in the way of its own hold, which ends when it is placed.
	y.refused("/v1/feedback", `{"advice_id":"`+first.AdviceID+`","job":"77","chosen":1}`, 503, "overloaded", "ledger")
	if own := y.takes(`{` + rack + `,"job":"77"}`); own.Candidates[0].Domains[0].ID != "d0" {
		t.Errorf("the job that it is for got %+v, want d0", own.Candidates[0])
	}
	y.place("77", "n0", "n1")
	if got, want := y.holds(), []string{third.AdviceID}; !slices.Equal(got, want) {
		t.Errorf("listed %v after job 77 was placed, want %v", got, want)
	}
	y.refused("/v1/advice", `{`+rack+`,"tenant":"a","request_id":"r1","hold_s":30}`, 409, "hold_conflict", "its job runs there")

	// A job that knows of no hold takes a node of one.
	y.place("88", third.Hold.Nodes[0])
	y.refused("/v1/advice", `{"gpus":8,"tenant":"b","request_id":"r1","hold_s":40}`, 409, "hold_conflict", "not all of its nodes are free any more")

	fifth := y.takes(`{"gpus":8,"tenant":"b","request_id":"r5","hold_s":40}`)
	if got := y.holds(); !slices.Equal(got, []string{fifth.AdviceID}) {
		t.Errorf("listed %v, want %s", got, fifth.AdviceID)
	}
	y.ahead.Store(int64(41 * time.Second))
	if got := y.holds(); len(got) > 0 {
		t.Errorf("listed %v when all are over", got)
	}
	if again := y.takes(`{"gpus":8,"tenant":"b","request_id":"r5","hold_s":40}`); again.AdviceID == fifth.AdviceID || again.Hold == nil {
		t.Errorf("a request of a hold that has run out got %+v, want a new one", again)
	}

	// What cannot be held, and what may not.
	for body, why := range map[string]string{
		`{"gpus":2,"request_id":"x","hold_s":30}`:                              "less than a node",
		`{"gpus":48,"mode":"unconstrained","request_id":"y","hold_s":30}`:      "nothing starts now",
		`{"gpus":16,"mode":"required","job":"h","request_id":"z","hold_s":30}`: "",
	} {
		code, text := y.ask("/v1/advice", body)
		if why != "" && strings.Contains(text, `"hold":`) || why == "" && !strings.Contains(text, `"hold":`) {
			t.Errorf("%s (%s): got %d %s", body, why, code, text)
		}
	}
	y.refused("/v1/advice", `{"gpus":8,"request_id":"x","hold_s":61}`, 422, "invalid_request", "give 1 to 60")
	y.refused("/v1/advice", `{"gpus":8,"request_id":"x","hold_s":-1}`, 422, "invalid_request", "give 1 to 60")
	y.refused("/v1/advice", `{"gpus":8,"hold_s":30}`, 422, "invalid_request", "name the request")
	y.refused("/v1/whatif", `{"ask":{"gpus":8,"request_id":"x","hold_s":30}}`, 422, "invalid_request", "leave them out")
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestHoldsAreForgottenBeforeThereAreTooMany: who takes and releases all the time leaves no heap behind.
func TestHoldsAreForgottenBeforeThereAreTooMany(t *testing.T) {
	y := newYard(t, func(c *AdviseConfig) {
		c.Holds = HoldsConfig{Longest: time.Minute, Most: 2, TenantMost: 2, TenantShare: 1}
	})
	for i := range 20 {
		y.advisor.holds.release(y.takes(fmt.Sprintf(`{"gpus":8,"request_id":"r%d","hold_s":60}`, i)).AdviceID)
	}
	if n := len(y.advisor.holds.byCluster["c1"]); n != 8 {
		t.Errorf("%d are remembered, want four times as many as there may be", n)
	}
}

func TestOfThePastAndOfTenants(t *testing.T) {
	y := newYard(t, func(c *AdviseConfig) {
		c.Tenants = advise.Tenants{Unlisted: advise.Forbid, Accounts: map[string]advise.Tenant{
			"":  {},
			"a": {May: advise.Places{Clusters: []string{"c1"}, Domains: []string{"d1"}}},
			"b": {MayNot: advise.Places{Clusters: []string{"c1"}}},
		}}
	})
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	y.refused("/v1/advice", `{"gpus":16,"mode":"required","exclude_nodes":["n4","n8"],"as_of":"`+ago(time.Hour)+`"}`, 409, "no_estimates", "jobs without an end estimate hold 1 nodes")
	if now := y.takes(`{"gpus":16,"mode":"required","exclude_nodes":["n4","n8"]}`); now.Candidates[0].Domains[0].ID != "d0" || now.Snapshot.AsOf != nil || now.Freshness != nil || now.AdviceID == "" {
		t.Errorf("now: got %+v", now)
	}
	later := y.takes(`{"gpus":16,"mode":"required","exclude_nodes":["n4","n8"],"as_of":"` + ago(10*time.Minute) + `"}`)
	if later.AdviceID != "" || later.Freshness == nil || later.Snapshot.AsOf == nil || later.Snapshot.AgeMS == nil || *later.Snapshot.AgeMS != 0 || later.Candidates[0].Domains[0].ID != "d0" {
		t.Errorf("ten minutes ago: got %+v", later)
	}
	y.refused("/v1/advice", `{"gpus":16,"as_of":"`+ago(48*time.Hour)+`"}`, 503, "topology_unknown", "ask about a later instant")
	y.refused("/v1/advice", `{"gpus":16,"as_of":"`+ago(-time.Hour)+`"}`, 422, "invalid_request", "leave as_of out")
	y.refused("/v1/advice", `{"gpus":16,"as_of":"`+ago(time.Hour)+`","hold_s":3}`, 422, "invalid_request", "the past cannot be held")
	y.refused("/v1/advice", `{"gpus":16,"request_id":"r","hold_s":3}`, 422, "invalid_request", "turned off")
	y.refused("/v1/advice", `{"gpus":16,"cluster":"c9","as_of":"`+ago(time.Hour)+`"}`, 404, "unknown_cluster", "")

	if mine := y.takes(`{"gpus":4,"tenant":"a","as_of":null,"deadline":null}`); mine.Candidates[0].Domains[0].ID != "d1" {
		t.Errorf("tenant a got %+v, want its domain", mine.Candidates[0])
	}
	y.refused("/v1/advice", `{"gpus":32,"tenant":"a"}`, 403, "tenant_forbidden", "domains that tenant")
	y.refused("/v1/advice", `{"gpus":4,"tenant":"b"}`, 403, "tenant_forbidden", "may not use cluster")
	y.refused("/v1/advice", `{"gpus":4,"tenant":"c"}`, 403, "tenant_forbidden", "is not listed")
	y.refused("/v1/advice", `{"gpus":4,"tenant":"b","as_of":"`+ago(10*time.Minute)+`"}`, 403, "tenant_forbidden", "may not use cluster")
}

// TestWhatTheSchemaRefusesIsNoAdviceEither: callers look at the header alone.
func TestWhatTheSchemaRefusesIsNoAdviceEither(t *testing.T) {
	s := newServer(t, DefaultConfig(), nil)
	for _, test := range []struct {
		path, body string
		status     int
	}{
		{"/v1/advice", `{"gpus":`, 400}, {"/v1/advice", `{"gpus":"many"}`, 422}, {"/v1/advice", `{"gpus":4,"no_such":1}`, 422}, {"/v1/advice", ``, 400},
		{"/v1/advice", `{"gpus":4,"as_of":"yesterday"}`, 422}, {"/v1/whatif", `[]`, 422}, {"/v1/feedback", `{}`, 422},
	} {
		if rec := send(s, test.path, []byte(test.body)); rec.Code != test.status || rec.Header().Get("X-Advice") != "none" {
			t.Errorf("%s of %s: got %d %v %s, want %d and no advice", test.path, test.body, rec.Code, rec.Header(), rec.Body, test.status)
		}
	}
}
