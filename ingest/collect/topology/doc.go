// Package topology is a collector, the first hop of the flow: it reads where each node sits (NVLink domain, block,
// leaf, spine) from what Slurm, Topograph or a hand-kept file say of it, and emits one membership record per node and
// source. It never asks the GPUs, never decides between sources that disagree, and never takes a failed or suddenly
// empty answer for an empty fleet.
package topology
