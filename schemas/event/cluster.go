package event

// ProbeCluster is the cluster that `spillway probe` tells of. It stands for no machine, so it is none of "all clusters".
const ProbeCluster = "spillway-probe"

// Covers reports whether a question for a cluster (empty = all) is also about this one. The probe's answers to its own name
// only.
func Covers(asked, cluster string) bool {
	if asked == "" {
		return cluster != ProbeCluster
	}
	return cluster == asked
}
