package event

import "math"

// SourceNCCLTests is the source of benchmarks that nccl-tests measured.
const SourceNCCLTests = "nccl_tests"

// RecordTopic implements Record.
func (*Benchmark) RecordTopic() string { return TopicBenchmark }

// RecordKey implements Record: cluster/run_id.
func (b *Benchmark) RecordKey() string { return b.GetCluster() + "/" + b.GetRunId() }

// Validate implements Record: columns are as long as what they describe, and a measurement is a number above zero.
func (b *Benchmark) Validate() error {
	var c checker
	c.part("cluster", b.GetCluster())
	c.name("run_id", b.GetRunId())
	c.name("source", b.GetSource())
	c.name("operation", b.GetOperation())
	c.observed(b.GetObservedAtMs())
	seen := map[string]bool{}
	for i, node := range b.GetNode() {
		c.name("node", node)
		if seen[node] {
			c.failf("node[%d] %q is listed twice", i, node)
		}
		seen[node] = true
	}
	same := func(field string, n, of int) {
		if n != of {
			c.failf("%s has %d entries for %d", field, n, of)
		}
	}
	same("node_gpus", len(b.GetNodeGpus()), len(b.GetNode()))
	same("node_cluster_uuid", len(b.GetNodeClusterUuid()), len(b.GetNode()))
	for i, n := range b.GetNodeGpus() {
		if n == 0 {
			c.failf("node_gpus[%d] is 0: a node without a GPU took no part", i)
		}
	}
	sizes := len(b.GetSizeBytes())
	same("in_place", len(b.GetInPlace()), sizes)
	same("data_type", len(b.GetDataType()), sizes)
	same("reduction", len(b.GetReduction()), sizes)
	for _, col := range []struct {
		field   string
		numbers []float64
		unknown bool // NaN is taken
	}{
		{"seconds", b.GetSeconds(), false},
		{"algorithm_bytes_per_second", b.GetAlgorithmBytesPerSecond(), false},
		{"bus_bytes_per_second", b.GetBusBytesPerSecond(), false},
		{"wrong_values", b.GetWrongValues(), true},
	} {
		same(col.field, len(col.numbers), sizes)
		for i, v := range col.numbers {
			if v < 0 || math.IsInf(v, 0) || math.IsNaN(v) && !col.unknown {
				c.failf("%s[%d] is %v, which is no measurement", col.field, i, v)
			}
		}
	}
	return c.err
}
