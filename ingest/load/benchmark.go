package load

import (
	"time"

	"github.com/ClickHouse/ch-go/proto"

	"github.com/spillway-io/spillway/schemas/event"
)

// benchmarkBlock is rows of benchmark_events, one a run of a test.
type benchmarkBlock struct {
	position
	record                            event.Benchmark
	cluster, source, operation        lowText
	version, model                    lowText
	runID, failure                    proto.ColStr
	nodes, domains, types, reductions lowTexts
	nodeGPUs                          uint16s
	joined, passed                    nullBool
	sizes                             *proto.ColArr[uint64]
	inPlace                           *proto.ColArr[bool]
	seconds, algorithm, bus, wrong    *proto.ColArr[float64]
	wrongTotal                        nullInt64
	truncated                         proto.ColBool
	observed                          *proto.ColDateTime64
	revision                          proto.ColUInt64
}

func newBenchmarkBlock() block {
	floats := func() *proto.ColArr[float64] { return proto.NewArray[float64](new(proto.ColFloat64)) }
	return &benchmarkBlock{
		cluster: newLowText(), source: newLowText(), operation: newLowText(), version: newLowText(), model: newLowText(),
		nodes: newLowTexts(), domains: newLowTexts(), types: newLowTexts(), reductions: newLowTexts(), nodeGPUs: newUint16s(),
		joined: newNullBool(), passed: newNullBool(), sizes: proto.NewArray[uint64](new(proto.ColUInt64)),
		inPlace: proto.NewArray[bool](new(proto.ColBool)), seconds: floats(), algorithm: floats(), bus: floats(), wrong: floats(),
		wrongTotal: newNullInt64(), observed: millis(),
	}
}

func (b *benchmarkBlock) append(offset int64, value []byte) error {
	r := &b.record
	r.Reset()
	if err := event.DecodeInto(r, value); err != nil {
		return err
	}
	if err := narrowAll("node_gpus", r.GetNodeGpus()); err != nil {
		return err
	}
	gpus := make([]uint16, len(r.GetNodeGpus()))
	for i, n := range r.GetNodeGpus() {
		gpus[i] = uint16(n)
	}
	b.offset.Append(offset)
	b.cluster.Append(r.GetCluster())
	b.runID.Append(r.GetRunId())
	b.source.Append(r.GetSource())
	b.operation.Append(r.GetOperation())
	b.version.Append(r.GetVersion())
	b.model.Append(r.GetGpuModel())
	b.nodes.Append(r.GetNode())
	b.nodeGPUs.Append(gpus)
	b.domains.Append(r.GetNodeClusterUuid())
	b.joined.Append(null(r.MultiNodeNvlink))
	b.sizes.Append(r.GetSizeBytes())
	b.inPlace.Append(r.GetInPlace())
	b.types.Append(r.GetDataType())
	b.reductions.Append(r.GetReduction())
	b.seconds.Append(r.GetSeconds())
	b.algorithm.Append(r.GetAlgorithmBytesPerSecond())
	b.bus.Append(r.GetBusBytesPerSecond())
	b.wrong.Append(r.GetWrongValues())
	b.wrongTotal.Append(null(r.WrongTotal))
	b.passed.Append(null(r.Passed))
	b.truncated.Append(r.GetTruncated())
	b.failure.Append(r.GetFailure())
	b.observed.Append(time.UnixMilli(r.GetObservedAtMs()))
	b.revision.Append(r.GetRevision())
	return nil
}

func (b *benchmarkBlock) own() proto.Input {
	return proto.Input{
		{Name: "cluster", Data: b.cluster}, {Name: "run_id", Data: &b.runID}, {Name: "source", Data: b.source},
		{Name: "operation", Data: b.operation}, {Name: "version", Data: b.version}, {Name: "gpu_model", Data: b.model},
		{Name: "node", Data: b.nodes}, {Name: "node_gpus", Data: b.nodeGPUs}, {Name: "node_cluster_uuid", Data: b.domains},
		{Name: "multi_node_nvlink", Data: b.joined}, {Name: "size_bytes", Data: b.sizes}, {Name: "in_place", Data: b.inPlace},
		{Name: "data_type", Data: b.types}, {Name: "reduction", Data: b.reductions}, {Name: "seconds", Data: b.seconds},
		{Name: "algorithm_bytes_per_second", Data: b.algorithm}, {Name: "bus_bytes_per_second", Data: b.bus},
		{Name: "wrong_values", Data: b.wrong}, {Name: "wrong_total", Data: b.wrongTotal}, {Name: "passed", Data: b.passed},
		{Name: "truncated", Data: &b.truncated}, {Name: "failure", Data: &b.failure}, {Name: "observed_at", Data: b.observed},
		{Name: "revision", Data: &b.revision},
	}
}

func (b *benchmarkBlock) input() proto.Input {
	return append(b.columns(), b.own()...)
}

func (b *benchmarkBlock) reset() { b.position.reset(b.own()) }
