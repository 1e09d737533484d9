package read

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/advise"
)

// TestSlotRule: slots, history and report say the same of a size that was not counted, or refuse it alike.
func TestSlotRule(t *testing.T) {
	r := migrated(t)
	ctx := context.Background()
	cases := testenv.SlotCases(t)
	for i, c := range cases {
		free := max(1, c.Slots+1) * c.Size // one slot more than there is, in pieces
		err := r.conn.Exec(ctx, fmt.Sprintf(`INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, gpus_basis, version)
			VALUES ('c%d', 'd', '2026-11-29 10:00:00', %d, %d, %d, %d, %d, [1], [1], 'exact', 1)`, i, c.Nodes, c.NodesFree, c.GPUs, c.GPUs, free))
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range cases {
		t.Run(c.Says, func(t *testing.T) {
			cluster := fmt.Sprint("c", i)
			slots, err := r.Slots(ctx, cluster, uint32(c.Size))
			report, rErr := r.Report(ctx, cluster, noon.Add(-time.Hour), noon, uint32(c.Size), advise.DefaultLinks())
			history, hErr := r.FragmentationSince(ctx, cluster, noon.Add(-time.Hour), noon, uint32(c.Size), nil)
			if c.Slots < 0 {
				for asked, err := range map[string]error{"slots": err, "report": rErr, "history": hErr} {
					if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), fmt.Sprintf("counted for [1] GPUs and any size above one node's %d;", c.GPUs/c.Nodes)) {
						t.Errorf("%s: got %v, want a refusal that says which sizes there are", asked, err)
					}
				}
				return
			}
			if c.Nodes == 0 { // its only domain was taken down: nothing is left that could be counted
				if !errors.Is(err, ErrNotFound) || hErr != nil || len(history) != 0 {
					t.Errorf("got %+v, %v and %+v, %v, want no count", slots, err, history, hErr)
				}
				return
			}
			if err != nil || slots.Total != uint32(c.Slots) {
				t.Errorf("slots: got %+v, %v, want %d", slots, err, c.Slots)
			}
			if hErr != nil || history[len(history)-1].Slots != uint32(c.Slots) {
				t.Errorf("history: got %+v, %v, want %d", history, hErr, c.Slots)
			}
			if rErr != nil || math.Abs(report.Stranded.StrandedGPUHours-float64(c.Size)) > 1e-6*float64(c.Size) {
				t.Errorf("report: got %+v, %v, want %d GPU-hours stranded", report, rErr, c.Size)
			}
		})
	}
}

// TestNothingIsKnownBeforeTheFirstCount: moments before that are no moments without GPUs.
func TestNothingIsKnownBeforeTheFirstCount(t *testing.T) {
	r := migrated(t)
	if err := r.conn.Exec(t.Context(), `INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_free, gpus, gpus_usable, gpus_free, slot_sizes, slots, gpus_basis, version)
		VALUES ('c1', 'd', '2026-11-29 11:30:00', 18, 18, 72, 72, 72, [64], [1], 'exact', 1)`); err != nil {
		t.Fatal(err)
	}
	history, err := r.FragmentationSince(t.Context(), "c1", noon.Add(-time.Hour), noon, 64, nil)
	if err != nil || len(history) != historyPoints/2+1 || history[0].At.Before(noon.Add(-30*time.Minute)) || history[0].Slots != 1 || history[0].Largest != 18 || history[0].ByNodes[15] != 1 {
		t.Errorf("got %d moments, %v, want those from half past eleven on: %+v", len(history), err, history[:min(1, len(history))])
	}
	history, err = r.FragmentationSince(t.Context(), "c1", noon.Add(-3*time.Hour), noon.Add(-2*time.Hour), 64, nil)
	if err != nil || len(history) != 0 {
		t.Errorf("got %+v, %v, want nothing of a time of which nothing is known", history, err)
	}
}
