package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/query/advise"
	"github.com/spillway-io/spillway/query/api"
)

// asker asks for advice over HTTP as any scheduler would, and goes on without where none comes in time.
type asker struct {
	url    string
	token  string
	client *http.Client
	log    *slog.Logger
}

// askWithin is what a scheduler could afford; the demo's machine may be slower than a scheduler's.
const askWithin = 200 * time.Millisecond

func newAsker(url, tokenFile string, log *slog.Logger) *asker {
	a := &asker{url: strings.TrimSuffix(url, "/") + "/v1/advice", client: &http.Client{Timeout: askWithin}, log: log}
	if tokenFile != "" {
		if token, err := os.ReadFile(tokenFile); err == nil {
			a.token = strings.TrimSpace(string(token))
		}
	}
	return a
}

func (a *asker) ask(q simulate.Question) simulate.Answer {
	body, err := json.Marshal(advise.Request{
		Cluster: q.Cluster, Job: q.Job, User: q.User, Name: q.Name, Class: q.Class, GPUs: q.GPUs, SegmentNodes: q.Segment,
		DurationS: q.RunSeconds, DurationBasis: "limit", WaitedS: q.WaitedSeconds, ExcludeNodes: q.Elsewhere,
	})
	if err != nil {
		return simulate.Answer{}
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return simulate.Answer{}
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		a.log.Debug("no advice", "error", err)
		return simulate.Answer{}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return simulate.Answer{}
	}
	if resp.StatusCode == http.StatusConflict { // nothing is free for it, and nobody can say when
		return simulate.Answer{Opinion: true}
	}
	var advice api.Advice
	if resp.StatusCode != http.StatusOK || json.Unmarshal(raw, &advice) != nil || len(advice.Candidates) == 0 {
		a.log.Debug("no advice", "status", resp.Status)
		return simulate.Answer{}
	}
	// A recommendation to make room is one to wait for, here: nobody moves jobs in this fleet.
	if first := advice.Candidates[0]; first.Start == "now" {
		return simulate.Answer{Opinion: true, Nodes: first.Nodes}
	}
	return simulate.Answer{Opinion: true}
}
