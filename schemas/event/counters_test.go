package event

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

func goodCounters() *Counters {
	return &Counters{
		Cluster: "c1", Node: "n1", Source: SourceDCGM, ObservedAtMs: 1793707200000,
		GpuIndex: []uint32{0, 1}, GpuUuid: []string{"a", "b"}, NvlinkTxBytes: []float64{1, math.NaN()},
		MigGpu: []uint32{1}, MigId: []uint32{3}, LinkGpu: []uint32{0}, Link: []uint32{17}, LinkState: []LinkState{LinkState_UP},
		Nic: []string{"mlx5_0"}, NicPort: []uint32{1}, NicTxBytes: []float64{0},
		JobGpu: []uint32{0}, JobMig: []int32{JobMigNone}, JobId: []string{"41257"},
	}
}

func TestCountersRules(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Counters)
		want   string // in the error; "" = none
	}{
		"a good record": {func(*Counters) {}, ""},
		"no GPU at all": {func(x *Counters) {
			*x = Counters{Cluster: "c1", Node: "n1", Source: "sysfs", ObservedAtMs: 1793707200000}
		}, ""},
		"no node":                            {func(x *Counters) { x.Node = "" }, "node is empty"},
		"no time":                            {func(x *Counters) { x.ObservedAtMs = 0 }, "observed_at_ms"},
		"a column that is too short":         {func(x *Counters) { x.NvlinkTxBytes = x.NvlinkTxBytes[:1] }, "nvlink_tx_bytes has 1 entries for 2"},
		"a column of no entity":              {func(x *Counters) { x.NicRxBytes = []float64{1, 2} }, "nic_rx_bytes has 2 entries for 1"},
		"a negative number":                  {func(x *Counters) { x.NvlinkTxBytes[0] = -1 }, "nvlink_tx_bytes[0] is -1"},
		"an infinite number":                 {func(x *Counters) { x.NicTxBytes[0] = math.Inf(1) }, "nic_tx_bytes[0] is +Inf"},
		"a job of a GPU that is not there":   {func(x *Counters) { x.JobGpu[0] = 2 }, "job_gpu[0] is 2"},
		"a link of a GPU that is not there":  {func(x *Counters) { x.LinkGpu[0] = 9 }, "link_gpu[0] is 9"},
		"an instance of one that is not":     {func(x *Counters) { x.MigGpu[0] = 2 }, "mig_gpu[0] is 2"},
		"a cluster that would split the key": {func(x *Counters) { x.Cluster = "a/b" }, "slash"},
	} {
		t.Run(name, func(t *testing.T) {
			x := goodCounters()
			c.change(x)
			err := x.Validate()
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// TestCountersRulesCoverEveryColumn catches a column that Validate was not told of.
func TestCountersRulesCoverEveryColumn(t *testing.T) {
	fields := (&Counters{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch f.Name() {
		case "gpu_index", "mig_gpu", "link_gpu", "nic", "job_gpu": // the entities themselves
			continue
		}
		if !f.IsList() {
			continue
		}
		x := goodCounters()
		column := x.ProtoReflect().Mutable(f).List()
		for range 7 - column.Len() {
			column.Append(column.NewElement())
		}
		if err := x.Validate(); err == nil || !strings.Contains(err.Error(), string(f.Name())+" has 7 entries") {
			t.Errorf("%s of 7 entries: error %v", f.Name(), err)
		}
		if f.Kind() == protoreflect.DoubleKind {
			x = goodCounters()
			list := x.ProtoReflect().Mutable(f).List()
			for list.Len() < entities(x, string(f.Name())) {
				list.Append(list.NewElement())
			}
			list.Set(0, protoreflect.ValueOfFloat64(-1))
			if err := x.Validate(); err == nil || !strings.Contains(err.Error(), string(f.Name())+"[0] is -1") {
				t.Errorf("%s of -1: error %v", f.Name(), err)
			}
		}
	}
}

// entities is how many entities the group of a column has in the good record.
func entities(x *Counters, column string) int {
	switch group, _, _ := strings.Cut(column, "_"); group {
	case "mig", "link", "nic", "job":
		return 1
	}
	return len(x.GpuIndex)
}

func TestCountersSurviveTheWay(t *testing.T) {
	x := goodCounters()
	_, value, err := Encode(x)
	if err != nil {
		t.Fatal(err)
	}
	for i := range value {
		_, _ = Decode(TopicCounters, value[:i:i]) // any outcome but a panic
	}
	back, err := Decode(TopicCounters, value)
	if err != nil {
		t.Fatal(err)
	}
	got := back.(*Counters)
	if !math.IsNaN(got.NvlinkTxBytes[1]) || got.JobMig[0] != JobMigNone || !reflect.DeepEqual(got.LinkState, x.LinkState) {
		t.Errorf("%v", got)
	}
}
