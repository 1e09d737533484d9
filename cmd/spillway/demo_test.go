package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
