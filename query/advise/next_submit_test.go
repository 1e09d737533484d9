package advise

import (
	"strings"
	"testing"
)

func TestNextSubmitKeepsShardsWhole(t *testing.T) {
	for name, test := range map[string]struct {
		scheduler      string
		nodes, domains int
		want           string
	}{
		"one domain holds it":               {"slurm", 16, 1, "sbatch --segment=16 keeps all 16 nodes"},
		"two domains in even shares":        {"slurm", 32, 2, "sbatch --segment=16 keeps every 16 nodes in one domain: 2 segments"},
		"no segment divides a prime number": {"slurm", 19, 2, "20 nodes with --segment=10; 19 has no even split over 2 domains"},
		"Kubernetes says it by annotations": {"kubernetes", 32, 2, "a slice of 16 pods"},
		"Kubernetes has no segments":        {"kubernetes", 19, 2, "20 pods in slices of 10 at the NVLink domain's level; 19 has no even split over 2 domains"},
		"a node in each of two domains":     {"slurm", 2, 2, ""},
		"one pod alone":                     {"kubernetes", 1, 1, ""},
		"nothing is known":                  {"slurm", 0, 1, ""},
	} {
		got := NextSubmit(test.scheduler, test.nodes, test.domains)
		if !strings.Contains(got, test.want) || (test.want == "") != (got == "") || test.scheduler == "kubernetes" && strings.Contains(got, "--segment") {
			t.Errorf("%s: got %q, want %q in it", name, got, test.want)
		}
	}
}
