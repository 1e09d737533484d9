package read

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestANameOfSeveralDomains: racks are named alike in every cluster, and some hold two domains.
func TestANameOfSeveralDomains(t *testing.T) {
	r := migrated(t,
		`INSERT INTO membership (cluster, node, valid_from, valid_to, domain, levels, source, generation, version) VALUES
			('alpha', 'n1', '2026-11-01', '2200-01-01', 'd-1', map('rack', 'r7'), 'nvml', 1, 1), ('beta', 'n1', '2026-11-01', '2200-01-01', 'd-2', map('rack', 'r7'), 'nvml', 1, 1),
			('alpha', 'n3', '2026-11-01', '2200-01-01', 'd-3', map('rack', 'r8'), 'nvml', 1, 1), ('alpha', 'n4', '2026-11-01', '2200-01-01', 'd-4', map('rack', 'r8'), 'nvml', 1, 1),
			('alpha', 'n5', '2026-11-01', '2200-01-01', 'd-5', map('rack', 'r9'), 'nvml', 1, 1),
			('alpha', 'n6', '2026-11-01', '2200-01-01', 'd-6', map('rack', 'r10'), 'nvml', 1, 1), ('beta', 'n6', '2026-11-01', '2200-01-01', 'r10', map(), 'slurm_topology', 1, 1)`,
		`INSERT INTO domain_capacity (cluster, domain, minute, nodes, gpus, gpus_basis, version)
			SELECT cluster, domain, '2026-11-01', 1, 4, 'exact', 1 FROM membership WHERE domain != 'd-5'`) // nothing of d-5
	for ask, want := range map[[2]string]string{
		{"", "r7"}:       "ambiguous: d-1 of alpha, d-2 of beta",
		{"alpha", "r7"}:  "n1",
		{"beta", "r7"}:   "n1",
		{"", "r8"}:       "ambiguous: d-3 of alpha, d-4 of alpha",
		{"alpha", "r8"}:  "ambiguous: d-3 of alpha, d-4 of alpha",
		{"beta", "r8"}:   "not found",
		{"", "d-4"}:      "n4",
		{"", "r9"}:       "n5",
		{"", "r10"}:      "ambiguous: d-6 of alpha, r10 of beta",
		{"alpha", "r10"}: "n6",
		{"beta", "r10"}:  "n6",
		{"", "r11"}:      "not found",
	} {
		got, err := r.DomainAt(t.Context(), ask[0], ask[1], noon)
		held, hErr := r.Occupancy(t.Context(), ask[0], ask[1], noon.Add(-time.Hour), noon, 1)
		if (err == nil) != (hErr == nil) || err != nil && err.Error() != hErr.Error() {
			t.Errorf("%v: the domain says %v, its occupancy %v", ask, err, hErr)
		}
		list, several := strings.CutPrefix(want, "ambiguous: ")
		switch {
		case several:
			if !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), list) {
				t.Errorf("%v: got %v, want ErrAmbiguous naming %s", ask, err, list)
			}
		case want == "not found":
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%v: got %v, want ErrNotFound", ask, err)
			}
		case err != nil || len(got.Nodes) != 1 || got.Nodes[0].Node != want:
			t.Errorf("%v: got %+v %v, want node %s", ask, got, err, want)
		case ask[1] == "r9" && (held.Cluster != "alpha" || held.Domain != "d-5" || held.Label == nil || *held.Label != "r9"):
			t.Errorf("%v: got the occupancy of %+v, want that of d-5", ask, held)
		}
	}
}
