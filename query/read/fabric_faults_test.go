package read

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFabricFaults: healthy masks are not zero, and only the newest word of a source counts.
func TestFabricFaults(t *testing.T) {
	r := seeded(t)
	ctx := context.Background()
	if err := r.conn.Exec(ctx, `INSERT INTO membership_events (kafka_partition, kafka_offset, loaded_at, observed_at, cluster, node, source, gpu_index, gpu_uuid, gpu_health_mask, revision) VALUES
		(0, 1, '2026-11-29 11:00:00', '2026-11-29 11:00:00', 'alpha', 'n1', 'nvml', [0, 1, 2, 3], ['a', 'b', 'c', 'd'], [170, 0x51AA, NULL, 0], 1),
		(0, 2, '2026-11-29 11:00:00', '2026-11-29 11:00:00', 'alpha', 'n2', 'nvml', [0, 1, 2, 3], ['e', 'f', 'g', 'h'], [0xA9, 0x5AA, 0x61AA, 0x91AA], 1),
		(0, 3, '2026-11-29 11:00:00', '2026-11-29 11:00:00', 'alpha', 'n4', 'dcgm', [0], ['i'], [0xA9], 1),
		(0, 4, '2026-11-29 11:10:00', '2026-11-29 11:10:00', 'alpha', 'n4', 'dcgm', [0], ['i'], [0xAA], 2),
		(0, 5, '2026-11-29 08:00:00', '2026-11-29 08:00:00', 'alpha', 'n5', 'dcgm', [0], ['j'], [0xA9], 1)`); err != nil {
		t.Fatal(err)
	}
	got, err := r.TopologyHealth(ctx, "alpha")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 29, 11, 0, 0, 0, time.UTC)
	want := []FabricFault{
		{"alpha", "n2", 0, "e", "nvml", []string{"degraded_bandwidth"}, at},
		{"alpha", "n2", 1, "f", "nvml", []string{"incorrect_configuration:insufficient_nvlinks"}, at},
		{"alpha", "n2", 2, "g", "nvml", []string{"no_partition_assigned"}, at},
		{"alpha", "n2", 3, "h", "nvml", []string{"fabric_manager_disconnected"}, at},
	}
	if diff := cmp.Diff(want, got.Faults); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if other, err := r.TopologyHealth(ctx, "beta"); err != nil || len(other.Faults) != 0 {
		t.Errorf("of another cluster: %v %v", other.Faults, err)
	}
}
