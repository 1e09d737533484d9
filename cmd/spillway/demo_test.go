package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

// TestTheTourPrintsNamesAsText: names of a flow may hold what turns a line around; of control characters the contract knows to keep out.
func TestTheTourPrintsNamesAsText(t *testing.T) {
	s := defaultSettings()
	s.API.Listen = "127.0.0.1:0"
	f := running(t, &s, allButCollect)
	now := time.Now().UnixMilli()
	records := smallFleet(now - time.Hour.Milliseconds())
	for n := range tourSpills {
		node := func(rack string) string { return fmt.Sprintf("gb200-%s-%02d", rack, n+1) }
		records = append(records, holds(fmt.Sprintf("\u202ejob%d", n), event.State_RUNNING, now, node("a"), node("b")))
	}
	if err := f.producer.Emit(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	said := make(spoken, 100)
	tour := newTour(f, said)
	go tour.run(t.Context())
	var text strings.Builder
	for !strings.Contains(text.String(), "now ask it yourself") {
		select {
		case line := <-said:
			text.WriteString(line)
		case <-time.After(patience):
			t.Fatalf("it only said %q", text.String())
		}
	}
	for n := range tourSpills {
		if want := fmt.Sprintf("job%d", n); !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in it", want)
		}
	}
	if strings.Contains(text.String(), "\u202e") || !strings.Contains(text.String(), "as `spillway explain job") {
		t.Errorf("it said %q", text.String())
	}
}

func TestGangsThatCannotBeJudgedAreNeitherSpilledNorWhole(t *testing.T) {
	for want, q := range map[string]read.Queue{
		"25 % of 20":                     {Gangs: 20, Spilled: 5},
		"25 % of 20 (and 10 not judged)": {Gangs: 30, Spilled: 5, Unknown: 10},
		"0 % of 0 (and 3 not judged)":    {Gangs: 3, Unknown: 3},
		"100 % of 1":                     {Gangs: 1, Spilled: 1},
	} {
		if got := spilledShare(q); got != want {
			t.Errorf("%+v: got %q, want %q", q, got, want)
		}
	}
}
