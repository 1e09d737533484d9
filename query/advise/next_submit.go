package advise

import "fmt"

// NextSubmit is what would have kept a job of that many nodes in the fewest domains that can hold it, in the words of its
// scheduler; "" where there is nothing to say.
func NextSubmit(scheduler string, nodes, domains int) string {
	if domains == 0 || nodes == 0 {
		return ""
	}
	// A segment must divide the node count; the largest that fits the even share keeps the shards whole.
	share := (nodes + domains - 1) / domains
	segment := 1
	for s := share; s > 1; s-- {
		if nodes%s == 0 {
			segment = s
			break
		}
	}
	even := segment > 1
	switch {
	case share == 1: // one node in each domain: nothing can be kept together
		return ""
	case scheduler == "kubernetes" && !even:
		return fmt.Sprintf("ask for a pod count that divides evenly, for example %d pods in slices of %d at the NVLink domain's level; %d has no even split over %d domains",
			share*domains, share, nodes, domains)
	case scheduler == "kubernetes":
		return fmt.Sprintf("annotate the pod set with kueue.x-k8s.io/podset-required-topology, or podset-preferred-topology and a slice of %d pods, at the NVLink domain's level", segment)
	case !even:
		return fmt.Sprintf("ask for a node count that divides evenly, for example %d nodes with --segment=%d; %d has no even split over %d domains",
			share*domains, share, nodes, domains)
	case segment == nodes:
		return fmt.Sprintf("sbatch --segment=%d keeps all %d nodes in one domain (it may wait for one).", segment, nodes)
	}
	return fmt.Sprintf("sbatch --segment=%d keeps every %d nodes in one domain: %d segments, no smaller shard.", segment, segment, nodes/segment)
}
