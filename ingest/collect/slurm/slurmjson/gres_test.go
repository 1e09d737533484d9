package slurmjson

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseGres(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []Gres
	}{
		"nothing":                               {"", nil},
		"a node without":                        {"N/A", nil},
		"what a node has":                       {"gpu:gb200:4", []Gres{{Name: "gpu", Type: "gb200", Count: 4}}},
		"what a node has, with sockets":         {"gpu:gb200:4(S:0-1),nic:2(S:0)", []Gres{{Name: "gpu", Type: "gb200", Count: 4}, {Name: "nic", Count: 2}}},
		"devices in use":                        {"gpu:gb200:3(IDX:0,2-3)", []Gres{{Name: "gpu", Type: "gb200", Count: 3, Index: []uint16{0, 2, 3}}}},
		"no device in use":                      {"gpu:gb200:0(IDX:N/A)", []Gres{{Name: "gpu", Type: "gb200"}}},
		"without a type":                        {"gpu:2(IDX:0-1)", []Gres{{Name: "gpu", Count: 2, Index: []uint16{0, 1}}}},
		"without a type, as old versions print": {"gpu:(null):2(IDX:0-1)", []Gres{{Name: "gpu", Count: 2, Index: []uint16{0, 1}}}},
		"a type of digits":                      {"gpu:3090:1(IDX:7)", []Gres{{Name: "gpu", Type: "3090", Count: 1, Index: []uint16{7}}}},
		"a type of digits, count only":          {"gpu:3090(CNT:2)", []Gres{{Name: "gpu", Type: "3090", Count: 2}}},
		"a type of letters and marks":           {"gpu:nvidia_h100-80g.hbm3:1(IDX:0)", []Gres{{Name: "gpu", Type: "nvidia_h100-80g.hbm3", Count: 1, Index: []uint16{0}}}},
		"count only":                            {"craynetwork(CNT:1)", []Gres{{Name: "craynetwork", Count: 1}}},
		"shared devices":                        {"gpu:a100:1(IDX:0),mps:a100:100(50/200,0/200)", []Gres{{Name: "gpu", Type: "a100", Count: 1, Index: []uint16{0}}, {Name: "mps", Type: "a100", Count: 100, Shared: []Share{{50, 200}, {0, 200}}}}},
		"counts with a suffix":                  {"shard:2K,bandwidth:lustre:no_consume:4G", []Gres{{Name: "shard", Count: 2048}, {Name: "bandwidth", Type: "lustre", Count: 4 << 30}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseGres(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, in := range map[string]string{
		"no name": ":4", "no count": "gpu:gb200", "open parenthesis": "gpu:4(IDX:0", "text after it": "gpu:4(IDX:0)x", "backwards": "gpu:4(IDX:3-0)",
		"an index no node has": "gpu:4(IDX:0-9999)", "many indices": "gpu:4(IDX:" + strings.Repeat("0-4095,", 9) + "1)", "a detail not known": "gpu:4(NUMA:0)", "too many parts": "gpu:a:b:4",
		"a count that overflows": "gpu:99999999999P", "an empty entry": "gpu:4,,gpu:5", "no total": "mps:4(1/x)",
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if got, err := ParseGres(in); err == nil || !strings.Contains(err.Error(), "entry") {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func TestParseTres(t *testing.T) {
	for name, c := range map[string]struct {
		in    string
		gpus  uint64
		known bool
	}{
		"typed and untyped are the same GPUs":      {"cpu=576,mem=1.5T,node=18,billing=576,gres/gpu=72,gres/gpu:gb200=72", 72, true},
		"types alone add up":                       {"cpu=1,gres/gpu:gb200=4,gres/gpu:h100=2", 6, true},
		"a request by type":                        {"gres/gpu:gb200:4", 4, true},
		"a request of older versions":              {"gres:gpu:4", 4, true},
		"a request by type of older versions":      {"gres:gpu:gb200:2", 2, true},
		"a request of one":                         {"gres/gpu", 1, true},
		"a request of one by type":                 {"gres/gpu:gb200", 1, true},
		"other GRES are not GPUs":                  {"gres/gpumem=100,gres/shard=8,license/foo=1", 0, false},
		"no GPUs listed is not zero GPUs":          {"cpu=2,mem=200M,node=1", 0, false},
		"zero GPUs":                                {"gres/gpu=0", 0, true},
		"nothing":                                  {"(null)", 0, false},
		"a type of digits needs the count with it": {"gres/gpu:3090:2", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := ParseTres(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if n, ok := l.GPUs(); n != c.gpus || ok != c.known {
				t.Errorf("%d GPUs, known %v", n, ok)
			}
		})
	}
	l, err := ParseTres("cpu=576,mem=1.5T,node=18,mem=14400M")
	if diff := cmp.Diff(TresList{{"cpu", 576}, {"mem", 1572864}, {"node", 18}, {"mem", 14400}}, l); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, in := range []string{"cpu=x", "=4", "cpu=1,,node=1", "mem=-1M", "mem=1e999T", "mem=NaN"} {
		if got, err := ParseTres(in); err == nil || !strings.Contains(err.Error(), "entry") {
			t.Errorf("ParseTres(%q) = %v, %v", in, got, err)
		}
	}
}

func FuzzParseGres(f *testing.F) {
	for _, s := range []string{"gpu:gb200:4(IDX:0-3)", "gpu:3090(CNT:2)", "mps:a100:100(50/200,0/200)", "gpu:(null):0(IDX:N/A)", "gpu:4(S:0-1),nic:2K", "cpu=576,mem=1.5T,gres/gpu:gb200=72", "gres:gpu:4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParseGres(s)
		for _, g := range list {
			if g.Name == "" || len(g.Index) > 2*maxIndex+1 {
				t.Errorf("%q gives %+v", s, g)
			}
		}
		if err != nil && list != nil {
			t.Errorf("%q gives both %v and %v", s, list, err)
		}
		tres, err := ParseTres(s)
		if err == nil {
			tres.GPUs()
		}
	})
}
