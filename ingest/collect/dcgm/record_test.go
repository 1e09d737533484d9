package dcgm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// answer is lines of an exposition. A line "tx 0 = 5" is the sample of a metric of the list below of GPU 0.
func answer(lines ...string) []byte {
	metrics := map[string]string{
		"tx": "DCGM_FI_DEV_NVLINK_TX_BYTES_TOTAL", "rx": "DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES",
		"both": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "txrate": "DCGM_FI_PROF_NVLINK_TX_BYTES",
		"crc": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "dlcrc": "DCGM_FI_DEV_NVLINK_ERROR_DL_CRC",
		"state": "DCGM_FI_DEV_NVLINK_GET_STATE", "ber": "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER",
		"status": "DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "clique": "DCGM_FI_DEV_FABRIC_CLIQUE_ID",
		"temp": "DCGM_FI_DEV_GPU_TEMP", "pcie": "DCGM_FI_PROF_PCIE_TX_BYTES",
	}
	var b bytes.Buffer
	for _, line := range lines {
		var metric, value, labels string
		var gpu int
		if n, _ := fmt.Sscanf(line, "%s %d = %s %s", &metric, &gpu, &value, &labels); n < 3 {
			b.WriteString(line + "\n")
			continue
		}
		if labels != "" {
			labels = "," + labels
		}
		fmt.Fprintf(&b, "%s{gpu=\"%d\",UUID=\"GPU-%d\",modelName=\"NVIDIA GB200\",Hostname=\"n1\"%s} %s\n", metrics[metric], gpu, gpu, labels, value)
	}
	return b.Bytes()
}

// step is one answer and what must be in the record of counters that it gives.
type step struct {
	after   time.Duration // after the step before
	answer  []byte
	want    []string // lines of the record as show prints them
	not     []string // fields that must not be in it
	dropped string   // a reason that must be counted
}

func TestSequences(t *testing.T) {
	since := func(seconds int) string {
		return fmt.Sprintf("gpu_since_ms: %d", moment.Add(time.Duration(seconds)*time.Second).UnixMilli())
	}
	for name, steps := range map[string][]step{
		"a counter that grows runs on unbroken": {
			{answer: answer("tx 0 = 1000"), want: []string{"nvlink_tx_bytes: 1000", since(0)}, not: []string{"gpu_reset"}},
			{after: 10 * time.Second, answer: answer("tx 0 = 9000000000000"), want: []string{since(0)}, not: []string{"gpu_reset"}},
		},
		"a counter that falls has begun anew": {
			{answer: answer("tx 0 = 1000")},
			{after: 10 * time.Second, answer: answer("tx 0 = 999"), want: []string{"nvlink_tx_bytes: 999", since(10), "gpu_reset: true"}},
			{after: 10 * time.Second, answer: answer("tx 0 = 1000"), want: []string{since(10)}, not: []string{"gpu_reset"}},
		},
		"only the GPU whose counter fell has begun anew": {
			{answer: answer("tx 0 = 1000", "tx 1 = 1000")},
			{after: 10 * time.Second, answer: answer("tx 0 = 1000", "tx 1 = 0"), want: []string{"gpu_reset: false true"}},
		},
		"a jump past what the links carry is a change of scope: 4.5.3 counts 18 links in place of one": {
			{answer: answer("tx 0 = 100000000000000")},
			{after: 10 * time.Second, answer: answer("tx 0 = 1800000000000000"), want: []string{since(10), "gpu_reset: true"}},
		},
		"growth of an exporter's whole interval between two scrapes is no jump": {
			{answer: answer("tx 0 = 0")},
			{after: time.Second, answer: answer("tx 0 = 27000000000000"), want: []string{since(0)}, not: []string{"gpu_reset"}},
		},
		"another driver has begun anew though the counter is greater": {
			{answer: answer(`tx 0 = 10 DCGM_FI_DRIVER_VERSION="570"`), want: []string{`driver_version: "570"`}},
			{after: time.Second, answer: answer(`tx 0 = 20 DCGM_FI_DRIVER_VERSION="580"`), want: []string{since(1), "gpu_reset: true"}},
		},
		"errors told by another field have begun anew": {
			{answer: answer("crc 0 = 10")},
			{after: time.Second, answer: answer("dlcrc 0 = 20"), want: []string{"nvlink_errors: 20", "gpu_reset: true"}},
		},
		"of two fields for one column the better one counts, in any order": {
			{answer: answer("crc 0 = 10", "dlcrc 0 = 20"), want: []string{"nvlink_errors: 20"}},
			{answer: answer("dlcrc 0 = 20", "crc 0 = 10"), want: []string{"nvlink_errors: 20"}, not: []string{"gpu_reset"}},
		},
		"a counter that is blank for a while is compared with what it was before": {
			{answer: answer("tx 0 = 1000", "rx 0 = 1")},
			{after: time.Second, answer: answer("tx 0 = NaN", "rx 0 = 1"), want: []string{since(0)}, not: []string{"nvlink_tx_bytes"}, dropped: dropBlank},
			{after: time.Second, answer: answer("tx 0 = 999", "rx 0 = 1"), want: []string{since(2), "gpu_reset: true"}},
		},
		"449 is a rate in units of 1,024,000 bytes": {
			{answer: answer("both 0 = 1000000"), want: []string{"nvlink_bytes_per_second: 1.024e+12"}},
		},
		"a negative 449 is absent and counted": {
			{answer: answer("both 0 = -5", "temp 0 = 30"), want: []string{"gpu_index: 0"}, not: []string{"nvlink_bytes_per_second"}, dropped: dropNegative},
		},
		"a rate past what the links carry is absent and counted": {
			{answer: answer("both 0 = 2000000", "txrate 0 = 970000000000"), not: []string{"nvlink_bytes_per_second", "nvlink_tx_bytes_per_second"}, dropped: dropImplausible},
		},
		"a rate that DCGM does not renew is absent after three of its intervals": {
			{answer: answer("both 0 = 123456"), want: []string{"nvlink_bytes_per_second: 1.26418944e+11"}},
			{after: 90 * time.Second, answer: answer("both 0 = 123456"), want: []string{"nvlink_bytes_per_second: 1.26418944e+11"}},
			{after: time.Second, answer: answer("both 0 = 123456"), not: []string{"nvlink_bytes_per_second"}, dropped: dropStale},
			{after: time.Second, answer: answer("both 0 = 123457"), want: []string{"nvlink_bytes_per_second: 1.264199"}},
		},
		"counters that stand still while a rate says that bytes move are as old as the rate": {
			{answer: answer("both 0 = 123456", "tx 0 = 1000", "crc 0 = 3")},
			{after: 90 * time.Second, answer: answer("both 0 = 123456", "tx 0 = 1000", "crc 0 = 3"), want: []string{"nvlink_tx_bytes: 1000"}},
			{after: time.Second, answer: answer("both 0 = 123456", "tx 0 = 1000", "crc 0 = 3"), not: []string{"nvlink_tx_bytes", "nvlink_errors", "nvlink_bytes_per_second"}, dropped: dropStale},
			{after: time.Second, answer: answer("both 0 = 123457", "tx 0 = 999", "crc 0 = 3"), want: []string{"nvlink_tx_bytes: 999", "gpu_reset: true", "nvlink_errors: 3"}},
		},
		"an exporter that repeats the whole of an answer tells nothing new": {
			{answer: answer("pcie 0 = 123456", "tx 0 = 1000")},
			{after: 91 * time.Second, answer: answer("pcie 0 = 123456", "tx 0 = 1000"), not: []string{"nvlink_tx_bytes"}, dropped: dropStale},
		},
		"counters of links that nothing goes over stand still": {
			{answer: answer("both 0 = 0", "pcie 0 = 123456", "tx 0 = 1000")},
			{after: time.Hour, answer: answer("both 0 = 0", "pcie 0 = 123457", "tx 0 = 1000"), want: []string{"nvlink_tx_bytes: 1000", "nvlink_bytes_per_second: 0", since(0)}},
		},
		"counters of which one stands still are not old while a rate is new": {
			{answer: answer("both 0 = 123456", "txrate 0 = 5000", "tx 0 = 1000", "crc 0 = 3")},
			{after: 91 * time.Second, answer: answer("both 0 = 123456", "txrate 0 = 5001", "tx 0 = 2000", "crc 0 = 3"), want: []string{"nvlink_tx_bytes: 2000", "nvlink_errors: 3"}, not: []string{"nvlink_bytes_per_second"}, dropped: dropStale},
		},
		"a GPU that is at another index follows on no other there": {
			{answer: answer("tx 0 = 1000", "tx 1 = 2000", "tx 2 = 3000")},
			{after: time.Second, answer: []byte("DCGM_FI_DEV_NVLINK_TX_BYTES_TOTAL{gpu=\"0\",UUID=\"GPU-0\",Hostname=\"n1\"} 1001\nDCGM_FI_DEV_NVLINK_TX_BYTES_TOTAL{gpu=\"1\",UUID=\"GPU-2\",Hostname=\"n1\"} 3001\n"),
				want: []string{"gpu_index: 0 1 1", "gpu_missing: false false true", "gpu_reset: false true false"}},
		},
		"zero is measured, however long it stays": {
			{answer: answer("both 0 = 0"), want: []string{"nvlink_bytes_per_second: 0"}},
			{after: time.Hour, answer: answer("both 0 = 0"), want: []string{"nvlink_bytes_per_second: 0"}},
		},
		"a sample with an old time is stale": {
			{answer: []byte(fmt.Sprintf("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu=\"0\",UUID=\"GPU-0\",Hostname=\"n1\"} 5 %d\n", moment.Add(-time.Hour).UnixMilli())),
				not: []string{"nvlink_bytes_per_second"}, dropped: dropStale},
		},
		"all blanks of DCGM are absent": {
			{answer: answer("tx 0 = 9223372036854775792", "rx 0 = 2147483634", "both 0 = 140737488355329.000000", "txrate 0 = 9223372036854775807", "crc 0 = NaN", "ber 0 = +Inf"),
				not: []string{"nvlink_tx_bytes", "nvlink_rx_bytes", "nvlink_bytes_per_second", "nvlink_tx_bytes_per_second", "nvlink_errors", "nvlink_effective_ber"}, dropped: dropBlank},
		},
		"a packed bit error rate is decoded": {
			{answer: answer("ber 0 = 783", "ber 1 = 4095", "ber 2 = 5000"), want: []string{"nvlink_effective_ber: 3e-15 0 NaN"}},
		},
		"a GPU that vanishes is a fact, until it comes back": {
			{answer: answer("tx 0 = 1", "tx 1 = 2"), not: []string{"gpu_missing"}},
			{after: time.Second, answer: answer("tx 1 = 3"), want: []string{"gpu_index: 1 0", "gpu_missing: false true", "nvlink_tx_bytes: 3 NaN"}},
			{after: time.Second, answer: answer("tx 0 = 5", "tx 1 = 3"), want: []string{"gpu_index: 0 1", "nvlink_tx_bytes: 5 3", fmt.Sprintf("%s %d", since(0), moment.UnixMilli())}, not: []string{"gpu_missing"}},
		},
		"a GPU that vanished long ago is forgotten": {
			{answer: answer("tx 0 = 1", "tx 1 = 2")},
			{after: 25 * time.Hour, answer: answer("tx 1 = 3"), want: []string{"gpu_index: 1"}, not: []string{"gpu_missing"}},
		},
		"a GPU whose lines cannot be read is not said to have vanished": {
			{answer: answer("tx 0 = 1", "tx 1 = 2")},
			{after: time.Second, answer: answer(`tx 0 = 1 hpc_job="a"b"`, "tx 1 = 3"), want: []string{"gpu_index: 1"}, not: []string{"gpu_missing"}, dropped: dropSyntax},
		},
		"a link that vanishes is a fact": {
			{answer: answer(`state 0 = 1 nvlink="0"`, `state 0 = 1 nvlink="1"`), want: []string{"link_state: UP UP"}},
			{after: time.Second, answer: answer(`state 0 = 1 nvlink="1"`), want: []string{"link: 0 1", "link_state: MISSING UP"}},
			{after: time.Second, answer: answer(`state 0 = 2 nvlink="0"`, `state 0 = 3 nvlink="1"`), want: []string{"link_state: SLEEP TRAFFIC_DISABLED"}},
		},
		"links that nobody exports any more have not vanished": {
			{answer: answer(`state 0 = 1 nvlink="0"`)},
			{after: time.Second, answer: answer("tx 0 = 1"), not: []string{"link:", "link_state"}},
		},
		"the counters of links begin anew with those of their GPU": {
			{answer: answer(`tx 0 = 10 nvlink="0"`), want: []string{"link_tx_bytes: 10"}, not: []string{"nvlink_tx_bytes"}},
			{after: time.Second, answer: answer(`tx 0 = 9 nvlink="0"`), want: []string{"link_tx_bytes: 9", "gpu_reset: true"}},
		},
		"a GPU of two jobs counts once": {
			{answer: answer(`tx 0 = 10 hpc_job="7"`, `tx 0 = 10 hpc_job="8"`), want: []string{"nvlink_tx_bytes: 10", `job_id: "7" "8"`, "job_gpu: 0 0"}},
		},
		"the same sample twice counts once and is counted": {
			{answer: answer(`tx 0 = 10 hpc_job="7"`, `tx 0 = 10 hpc_job="7"`), want: []string{"nvlink_tx_bytes: 10", `job_id: "7"`}, dropped: dropDuplicate},
		},
		"of samples of one thing that differ the first counts": {
			{answer: answer(`tx 0 = 10 hpc_job="7"`, `tx 0 = 11 hpc_job="8"`), want: []string{"nvlink_tx_bytes: 10"}, dropped: dropConflict},
		},
		"an empty job is none": {
			{answer: answer(`tx 0 = 10 hpc_job="",pod=""`), not: []string{"job_gpu"}},
		},
		"labels moved out of the way by a scrape in between are the exporter's": {
			{answer: answer(`tx 0 = 10 pod="exporter-1",exported_pod="train-0",namespace="gpu",exported_namespace="team",container="exporter",exported_container="main"`),
				want: []string{`job_pod: "train-0"`, `job_namespace: "team"`, `job_container: "main"`}},
		},
		"job and pod of one GPU are one reference": {
			{answer: answer(`tx 0 = 10 hpc_job="7",pod="p",pod_uid="u"`), want: []string{`job_id: "7"`, `job_pod: "p"`, `job_pod_uid: "u"`}},
		},
		"values that instances repeat count once, and their own stay theirs": {
			{answer: answer(`both 0 = 5 GPU_I_ID="1"`, `both 0 = 5 GPU_I_ID="2"`,
				`DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-0",Hostname="n1",GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"} 0.5`,
				`DCGM_FI_PROF_SM_UTIL_RATIO{gpu="0",UUID="GPU-0",Hostname="n1",GPU_I_ID="2",GPU_I_PROFILE="<<<NULL>>>"} 0.25`),
				want: []string{"nvlink_bytes_per_second: 5.12e+06", "mig_id: 1 2", "mig_sm_active: 0.5 0.25", `mig_profile: "3g.40gb" ""`}, not: []string{"  sm_active"}},
		},
		"a GPU told by its index alone and one told by its UUID are the same": {
			{answer: []byte("DCGM_FI_PROF_NVLINK_TX_BYTES{gpu=\"0\",Hostname=\"n1\"} 5\nDCGM_FI_PROF_NVLINK_RX_BYTES{gpu=\"0\",UUID=\"GPU-0\",Hostname=\"n1\"} 6\n"),
				want: []string{"gpu_index: 0", `gpu_uuid: "GPU-0"`, "nvlink_tx_bytes_per_second: 5", "nvlink_rx_bytes_per_second: 6"}},
		},
		"the type that an exposition declares does not matter": {
			{answer: append([]byte("# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter\n"), answer("both 0 = 1")...), want: []string{"nvlink_bytes_per_second: 1.024e+06"}},
		},
		"a name that the operator chose is its field": {
			{answer: []byte("nvlink_tx{gpu=\"0\",UUID=\"GPU-0\",Hostname=\"n1\",slurm_job=\"9\"} 5\n"), want: []string{"nvlink_tx_bytes: 5", `job_id: "9"`}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Names = map[string]uint16{"nvlink_tx": 1201}
			cfg.Labels = map[string]string{"Slurm_Job": "job"}
			r := newTestReader(t, cfg)
			at := moment
			for i, s := range steps {
				at = at.Add(s.after)
				got := show(read(t, r, s.answer, at), r)
				for _, line := range s.want {
					if !strings.Contains(got, line) {
						t.Errorf("step %d: %q is not in:\n%s", i, line, got)
					}
				}
				for _, field := range s.not {
					if strings.Contains(got, field) {
						t.Errorf("step %d: %q is in:\n%s", i, field, got)
					}
				}
				if s.dropped != "" && r.rows.dropped[s.dropped] == 0 {
					t.Errorf("step %d: %s is not counted: %v", i, s.dropped, r.rows.dropped)
				}
			}
		})
	}
}

func TestFabricIsToldWhenItChanges(t *testing.T) {
	r := newTestReader(t, testConfig())
	at := moment
	// tell reads an answer and says how many memberships there were; they are stored or not.
	tell := func(store bool, lines ...string) (out []*event.Membership) {
		t.Helper()
		at = at.Add(10 * time.Second)
		records, stored, err := r.Read(target, answer(lines...), at)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range records {
			if m, ok := record.(*event.Membership); ok {
				out = append(out, m)
			}
		}
		if store {
			stored()
		}
		return out
	}
	expect := func(what string, got []*event.Membership, want int) {
		t.Helper()
		if len(got) != want {
			t.Fatalf("%s: %d memberships, want %d: %v", what, len(got), want, got)
		}
	}
	starting := []string{"status 0 = 2", "status 1 = 2"}
	both := []string{"status 0 = 3", "clique 0 = 7", "status 1 = 3", "clique 1 = 7"}
	expect("no field of the fabric", tell(true, "tx 0 = 1"), 0)
	expect("the first time", tell(true, starting...), 1)
	expect("nothing new", tell(true, starting...), 0)
	expect("registered", tell(false, both...), 1)
	expect("not stored, so told again", tell(true, both...), 1)
	expect("stored", tell(true, both...), 0)
	expect("a line that cannot be read takes nothing away", tell(true, "status 0 = 3", "clique 0 = 7", "status 1 = 3", "clique 1 = x"), 0)
	expect("nor does a GPU of which none can", tell(true, "status 0 = 3", "clique 0 = 7", `status 1 = 3 hpc_job="a"b"`), 0)
	changed := tell(true, "status 0 = 3", "clique 0 = 8", `status 1 = 3 hpc_job="a"b"`)
	expect("but a change between such lines is seen", changed, 1)
	if g := changed[0].Gpus; len(g) != 2 || g[0].GetCliqueId() != 8 || g[1].GetCliqueId() != 7 {
		t.Errorf("fabric of %v", g)
	}
	gone := tell(true, "status 0 = 3", "clique 0 = 8")
	expect("a GPU that vanished", gone, 1)
	if len(gone[0].Gpus) != 1 {
		t.Errorf("%d GPUs after one vanished", len(gone[0].Gpus))
	}
	at = at.Add(2 * time.Hour)
	expect("unchanged for long", tell(true, "status 0 = 3", "clique 0 = 8"), 1)
}

func TestFabricWords(t *testing.T) {
	for name, c := range map[string]struct {
		status         float64
		errorCode      float64
		state, status2 string
	}{
		"not supported":           {0, 0, "not_supported", ""},
		"not started":             {1, 0, "not_started", ""},
		"in progress":             {2, 0, "in_progress", ""},
		"success":                 {3, 0, "completed", "success"},
		"failure":                 {4, 0, "completed", "failure"},
		"failure with its code":   {4, -24, "completed", "failure_-24"},
		"unrecognized":            {5, 0, "", "unrecognized"},
		"the driver is too old":   {6, 0, "", "nvml_too_old"},
		"an error in its place":   {-9, 0, "", "dcgm_error_-9"},
		"a number nobody defined": {17, 0, "", "dcgm_error_17"},
	} {
		t.Run(name, func(t *testing.T) {
			var f fabric
			f.take(fabricManagerStatus, c.status)
			f.take(fabricManagerError, c.errorCode)
			if state, status := f.words(); state != c.state || status != c.status2 {
				t.Errorf("state %q status %q, want %q %q", state, status, c.state, c.status2)
			}
		})
	}
}

func TestNodeNames(t *testing.T) {
	line := func(host string) []byte {
		return []byte("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-0\"" + host + "} 40\n")
	}
	for name, c := range map[string]struct {
		target scrape.Target
		short  bool
		body   []byte
		want   string // "" = refused
	}{
		"the exporter's own name":                  {scrape.Target{}, false, line(`,Hostname="n1"`), "n1"},
		"in whatever case the label is":            {scrape.Target{}, false, line(`,hostname="n1"`), "n1"},
		"the declared name wins":                   {scrape.Target{Node: "n2", Host: "n3"}, false, line(`,Hostname="n1"`), "n2"},
		"localhost is no name":                     {scrape.Target{Host: "n3"}, false, line(`,Hostname="localhost"`), "n3"},
		"no label, so the address":                 {scrape.Target{Host: "n3"}, false, line(""), "n3"},
		"neither label nor address":                {scrape.Target{}, false, line(""), ""},
		"a full name stays full":                   {scrape.Target{}, false, line(`,Hostname="n1.example.com"`), "n1.example.com"},
		"unless short names are asked for":         {scrape.Target{}, true, line(`,Hostname="n1.example.com"`), "n1"},
		"a GPU without a name is of the only node": {scrape.Target{}, false, append(line(`,Hostname="n1"`), []byte("x{gpu=\"1\",UUID=\"GPU-1\"} 1\n")...), "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.ShortNames = c.short
			c.target.Cluster = "c1"
			records, _, err := newTestReader(t, cfg).Read(&c.target, c.body, moment)
			if c.want == "" {
				if f, ok := errors.AsType[*scrape.Failure](err); !ok || f.Reason != "no_node" {
					t.Fatalf("error %v, records %v", err, records)
				}
				return
			}
			if err != nil || len(records) != 1 || records[0].RecordKey() != "c1/"+c.want {
				t.Errorf("records %v, error %v", records, err)
			}
		})
	}
}

// TestVariants mutates the samples in ways that must not change what they say.
func TestVariants(t *testing.T) {
	rename := func(from, to int) func([]byte) []byte { // every metric to another of its names
		var pairs []string
		for _, f := range table() {
			if len(f.names) > 1 {
				pairs = append(pairs, "DCGM_FI_"+f.names[from]+"{", "DCGM_FI_"+f.names[to]+"{")
			}
		}
		return func(b []byte) []byte { return []byte(strings.NewReplacer(pairs...).Replace(string(b))) }
	}
	replace := func(pairs ...string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(strings.NewReplacer(pairs...).Replace(string(b))) }
	}
	shuffle := func(seed uint64) func([]byte) []byte {
		return func(b []byte) []byte {
			lines := bytes.SplitAfter(b, []byte("\n"))
			rand.New(rand.NewPCG(seed, 1)).Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
			return bytes.Join(lines, nil)
		}
	}
	variants := map[string]func([]byte) []byte{
		"names of DCGM 4.6":         rename(1, 0),
		"names before DCGM 4.6":     rename(0, 1),
		"lower-case hostname":       replace("Hostname=", "hostname="),
		"upper-case hostname":       replace("hostname=", "HOSTNAME="),
		"names of old exporters":    replace(",UUID=", ",uuid=", ",pod=", ",pod_name=", ",namespace=", ",pod_namespace=", ",container=", ",container_name="),
		"every type a counter":      replace(" gauge\n", " counter\n"),
		"every type a gauge":        replace(" counter\n", " gauge\n"),
		"without comments":          func(b []byte) []byte { return dropLines(b, "#") },
		"driver version's new name": replace("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"),
		"more blanks":               replace("} ", "}  "),
	}
	for seed := range uint64(20) {
		variants[fmt.Sprintf("lines in another order %d", seed)] = shuffle(seed)
	}
	for _, file := range []string{
		"gb200_4gpu_hpc_job.prom", "gb200_4gpu_dcgm46_names_dra.prom", "h100_8gpu_pod_labels.prom", "mig_node.prom",
		"per_link_fe_link_entities.prom", "per_link_prof_fields_h100.prom", "blanks_nan_missing.prom",
	} {
		body := sample(t, file)
		r := newTestReader(t, testConfig())
		want := show(read(t, r, body, moment), r)
		for name, change := range variants {
			t.Run(file+"/"+name, func(t *testing.T) {
				r := newTestReader(t, testConfig())
				if diff := cmp.Diff(want, show(read(t, r, change(slices.Clone(body)), moment), r)); diff != "" {
					t.Errorf("the records differ (-original +variant):\n%s", diff)
				}
			})
		}
	}
}

func dropLines(b []byte, prefix string) []byte {
	var out []byte
	for line := range bytes.Lines(b) {
		if !bytes.HasPrefix(line, []byte(prefix)) {
			out = append(out, line...)
		}
	}
	return out
}

// TestEveryPrefix cuts an answer at every byte. What does not end with a line is refused; the rest keeps the contract, and
// says of a GPU only what the whole says.
func TestEveryPrefix(t *testing.T) {
	for _, file := range []string{"gb200_4gpu_hpc_job.prom", "mig_node.prom", "blanks_nan_missing.prom", "malformed_lines.txt"} {
		body := sample(t, file)
		r := newTestReader(t, testConfig())
		for i := range body {
			records, _, err := r.Read(target, body[:i:i], moment)
			if i > 0 && body[i-1] != '\n' {
				if f, ok := errors.AsType[*scrape.Failure](err); !ok || f.Reason != "truncated" {
					t.Fatalf("%s cut at %d: error %v", file, i, err)
				}
			}
			for _, r := range records {
				if err := r.Validate(); err != nil {
					t.Fatalf("%s cut at %d: %v", file, i, err)
				}
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, file := range []string{"gb200_4gpu_hpc_job.prom", "mig_node.prom", "blanks_nan_missing.prom", "malformed_lines.txt", "per_link_fe_link_entities.prom"} {
		body := sample(f, file)
		f.Add(body[:min(len(body), 1500)], body[:min(len(body), 700)])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c, err := New(testConfig(), Deps{})
		if err != nil {
			t.Fatal(err)
		}
		r := c.newReader()
		tgt := &scrape.Target{URL: "http://n9:9400/metrics", Host: "n9", Cluster: "c1"}
		for i, body := range [][]byte{first, second, first} {
			body = append(slices.Clone(body), '\n')
			records, _, err := r.Read(tgt, body, moment.Add(time.Duration(i)*10*time.Second))
			if err != nil && len(records) > 0 {
				t.Fatal("records besides an error")
			}
			if f, ok := errors.AsType[*scrape.Failure](err); err != nil && (!ok || f.Reason == "invalid" && !strings.Contains(err.Error(), "node ")) {
				t.Fatal(err)
			}
			for _, record := range records {
				if err := record.Validate(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestTableIsConsistent(t *testing.T) {
	ids, names := map[uint16]bool{}, map[string]bool{}
	for _, f := range table() {
		if ids[f.id] {
			t.Errorf("the id %d stands twice", f.id)
		}
		ids[f.id] = true
		for _, name := range f.names {
			if names[name] {
				t.Errorf("the name %s stands twice", name)
			}
			names[name] = true
		}
		if f.kind != identity && f.gpu == 0 && f.link == 0 {
			t.Errorf("%s feeds nothing", f.names[0])
		}
	}
	// The ids of the fields with a link in their name as dcgm_fields.h of 4.6 has them, at the ends of their runs.
	for name, id := range map[string]uint16{
		"DCGM_FI_PROF_NVLINK_L17_RX_BYTES": 1075, "DCGM_FI_DEV_NVLINK_THROUGHPUT_L12": 446, "DCGM_FI_DEV_NVLINK_BANDWIDTH_L17": 496,
		"DCGM_FI_DEV_NVLINK_TX_THROUGHPUT_L17": 842, "DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_L17": 896,
		"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_L15_TOTAL": 491, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L6": 463,
	} {
		all, err := byName(nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := all[name]; f == nil || f.id != id {
			t.Errorf("%s is %v, want %d", name, f, id)
		}
	}
}

func TestBlanks(t *testing.T) {
	for v, want := range map[float64]bool{
		9223372036854775792: true, 2147483632: true, 2147483635: true, 140737488355331: true,
		2147483631: false, 2147483636: false, 140737488355327: false, 140737488355332: false, 9.2e18: false, 0: false, -1: false,
		2147483632.5: false,
	} {
		if got := isBlank(v); got != want {
			t.Errorf("isBlank(%v) = %v", v, got)
		}
	}
	if isBlank(math.NaN()) {
		t.Error("NaN is not one of the numbers")
	}
}
