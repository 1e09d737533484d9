package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/topology"
	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/query/read"
	"github.com/spillway-io/spillway/schemas/event"
)

// slurmCluster is a real slurmctld with a slurmd for each node and deploy/slurm/job_submit.lua as its plugin.
type slurmCluster struct {
	*testenv.SlurmCluster
	t       *testing.T
	touched int
}

// The nodes of the cluster: two racks.
const slurmRack = 4

func slurmNodes() (names []string) {
	for _, rack := range []string{"a", "b"} {
		for n := 1; n <= slurmRack; n++ {
			names = append(names, fmt.Sprintf("gb200-%s-%02d", rack, n))
		}
	}
	return names
}

// startSlurm starts the cluster with the racks as the plugin of this name has them.
func startSlurm(t *testing.T, from testenv.Slurm, plugin, racks string) *slurmCluster {
	t.Helper()
	script, err := os.ReadFile("../../deploy/slurm/job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	names := slurmNodes()
	port := testenv.FreePorts(t, len(names)+1)
	// slurmctld reads its settings when it loads the script, from here.
	dir := t.TempDir()
	t.Setenv("SPILLWAY_JOB_SUBMIT_CONF", filepath.Join(dir, "spillway.conf"))
	c := &slurmCluster{t: t}
	c.SlurmCluster = testenv.StartSlurm(t, testenv.SlurmSetup{
		From: from, Port: port, Slurmds: names,
		Conf: fmt.Sprintf(`TopologyPlugin=topology/%s
GresTypes=gpu
JobSubmitPlugins=lua
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
NodeName=gb200-a-[01-04],gb200-b-[01-04] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[%d-%d] CPUs=4 Gres=gpu:4
`, plugin, port+1, port+len(names)),
		Files: map[string]string{
			"gres.conf":      "NodeName=gb200-a-[01-04],gb200-b-[01-04] Name=gpu File=/dev/null,/dev/zero,/dev/full,/dev/random\n",
			"topology.conf":  racks,
			"job_submit.lua": string(script),
		},
	})
	return c
}

// startTree starts the machine's own Slurm, Debian's 22.05, which has no topology/block: each rack is a leaf switch.
func startTree(t *testing.T) *slurmCluster {
	t.Helper()
	return startSlurm(t, testenv.Slurm{}, "tree", "SwitchName=a Nodes=gb200-a-[01-04]\nSwitchName=b Nodes=gb200-b-[01-04]\nSwitchName=top Switches=a,b\n")
}

// configure writes the plugin's settings and lets slurmctld read its script anew.
func (c *slurmCluster) configure(settings string) {
	c.t.Helper()
	if err := os.WriteFile(os.Getenv("SPILLWAY_JOB_SUBMIT_CONF"), []byte(settings), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.touched++
	at := time.Now().Add(time.Duration(c.touched) * time.Second) // Slurm looks at whole seconds
	if err := os.Chtimes(filepath.Join(c.Dir, "job_submit.lua"), at, at); err != nil {
		c.t.Fatal(err)
	}
}

var submitted = regexp.MustCompile(`Submitted batch job (\d+)`)

// sbatch submits a job that sleeps, and gives its id, all that was said, and how long the call took.
func (c *slurmCluster) sbatch(command []string, args ...string) (job, said string, took time.Duration) {
	c.t.Helper()
	all := append(append(command[:len(command):len(command)], args...), "--output=/dev/null", "--wrap=sleep 600")
	start := time.Now()
	out, err := exec.Command(all[0], all[1:]...).CombinedOutput()
	took = time.Since(start)
	id := submitted.FindSubmatch(out)
	if err != nil || id == nil {
		c.t.Fatalf("%v: %v: %s", all, err, out)
	}
	return string(id[1]), string(out), took
}

// cancel ends jobs, and waits until they are gone.
func (c *slurmCluster) cancel(jobs ...string) {
	c.t.Helper()
	if out, err := exec.Command("scancel", jobs...).CombinedOutput(); err != nil {
		c.t.Fatalf("scancel %v: %v: %s", jobs, err, out)
	}
	testenv.Until(c.t, "jobs are gone", func() bool {
		out, err := exec.Command("squeue", "--noheader", "--jobs="+strings.Join(jobs, ",")).Output()
		return err == nil && len(out) == 0
	})
}

// show is what Slurm knows of a job.
func (c *slurmCluster) show(job string) string {
	c.t.Helper()
	out, err := exec.Command("scontrol", "show", "job", job).CombinedOutput()
	if err != nil {
		c.t.Fatalf("scontrol show job %s: %v: %s", job, err, out)
	}
	return string(out)
}

// relay stands before a service. It can hold its tongue: then calls are accepted and never answered.
type relay struct {
	net.Listener
	silent atomic.Bool
	done   sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	t.Cleanup(func() {
		l.Close()
		r.done.Wait()
	})
	r.done.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			r.done.Go(func() {
				defer in.Close()
				_ = in.SetDeadline(time.Now().Add(10 * time.Second))
				if r.silent.Load() {
					_, _ = io.Copy(io.Discard, in)
					return
				}
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				r.done.Go(func() {
					_, _ = io.Copy(out, in)
					out.Close() // or the service keeps it, idle, for a minute
				})
				_, _ = io.Copy(in, out)
			})
		}
	})
	return r
}

// used is how many GPUs of a node of the cluster are in use; -1 while Spillway does not know the whole cluster.
func (s *caller) used(node string) int32 {
	v := s.feed.Clusters("")["c1"]
	if v == nil {
		return -1
	}
	n, ok := v.Snapshot.Topology.Node(node)
	if _, known := v.Age(time.Now()); !ok || !known || len(v.Snapshot.Topology.Nodes) != len(slurmNodes()) {
		return -1
	}
	return v.Snapshot.Used(n)
}

// verdict is what was judged of a job's latest placement; nil as long as nothing was.
func (s *caller) verdict(job string) *read.Verdict {
	s.t.Helper()
	var answer read.Job
	if err := json.Unmarshal([]byte(s.get("/v1/jobs/"+job+"?cluster=c1")), &answer); err != nil {
		s.t.Fatal(err)
	}
	if len(answer.Attempts) == 0 { // or the job is not known yet
		return nil
	}
	return answer.Attempts[len(answer.Attempts)-1].Verdict
}

// TestSlurm submits jobs to a real Slurm 22.05 whose slurmctld asks for advice, and reads that Slurm with the collector: from
// sbatch to the graded advice nothing is a stand-in but the GPUs.
func TestSlurm(t *testing.T) {
	slurm := startTree(t)
	s := newCallerWith(t, stages{collect: true, load: true, enrich: true, serve: true}, func(s *settings) {
		s.Collect.Sources = []string{"slurm"}
		s.Collect.Slurm.Interval, s.Collect.Slurm.NodesInterval = time.Second, time.Second
		// What 22.05 has: scontrol prints JSON and documents name the cluster from 23.02 on, and accounting needs slurmdbd.
		s.Collect.Slurm.Cluster = "c1"
		s.Collect.Slurm.Commands.Nodes, s.Collect.Slurm.Commands.Accounting = []string{"sinfo", "--json"}, nil
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Spillway said: %s\n%s", s.get("/v1/status"), s.get("/v1/slots?gpus=4"))
		}
	})
	for i, n := range slurmNodes() {
		domain, clique := rackOf(n[6:7], i%slurmRack+1)
		now := time.Now()
		m := &event.Membership{Cluster: "c1", Node: n, Source: event.SourceNVML, ObservedAtMs: now.UnixMilli(), Revision: event.Revision(now)}
		for g := range uint32(4) {
			m.Gpus = append(m.Gpus, &event.GpuFabric{Index: g, ClusterUuid: domain, CliqueId: &clique, State: event.FabricCompleted, Status: event.FabricSuccess})
		}
		s.emit(m)
	}
	// One node of rack a is taken, so 16 GPUs fit rack b alone.
	first, _, _ := slurm.sbatch([]string{"sbatch"}, "--nodes=1", "--gres=gpu:4", "--nodelist=gb200-a-02", "--job-name=first")
	testenv.Until(t, "Spillway has read Slurm's nodes and its first job", func() bool { return s.used("gb200-a-02") == 4 })
	before := newRelay(t, strings.TrimPrefix(s.base, "http://"))
	_, port, _ := net.SplitHostPort(before.Addr().String())

	// A busy machine may need longer than the 20 ms of a site; what happens after them is asked below.
	slurm.configure("port = " + port + `; timeout = 2; use = "switches"`)
	gang := []string{"--nodes=4", "--gres=gpu:4", "--time=60"}
	job, _, took := slurm.sbatch([]string{"sbatch"}, append(gang, "--job-name=gang")...)
	t.Logf("sbatch with advice took %s", took)
	got := slurm.show(job)
	if !strings.Contains(got, "Switches=1@") || !strings.Contains(got, "AdminComment=spillway ") || !strings.Contains(got, "start rank 1") {
		t.Errorf("the job in slurmctld does not show the advice:\n%s", got)
	}
	testenv.Until(t, "Slurm runs the gang where it was sent", func() bool { return strings.Contains(slurm.show(job), " NodeList=gb200-b-[01-04]\n") })
	testenv.Until(t, "Spillway sees the gang on its nodes", func() bool { return s.used("gb200-b-01") == 4 && s.used("gb200-b-04") == 4 })
	testenv.Until(t, "the advice is graded as followed", func() bool {
		grades, err := s.ledger.Grades(context.Background(), "c1", time.Now().Add(-time.Hour))
		return err == nil && len(grades) == 1 && grades[0].Followed == 1 && grades[0].Spilled == 0
	})

	t.Run("by sizes that say it otherwise", func(t *testing.T) {
		for _, args := range [][]string{{"--gpus=8"}, {"--ntasks=2", "--cpus-per-task=4", "--gpus-per-task=4"}, {"--nodes=2", "--gpus-per-node=4"}} {
			job, _, _ := slurm.sbatch([]string{"sbatch"}, append(args, "--hold")...)
			if got := slurm.show(job); !strings.Contains(got, "Switches=1@") {
				t.Errorf("%v: no advice was set:\n%s", args, got)
			}
		}
	})
	t.Run("what is asked by the user stays", func(t *testing.T) {
		job, _, _ := slurm.sbatch([]string{"sbatch"}, append(gang, "--switches=2@10:00", "--hold")...)
		if got := slurm.show(job); !strings.Contains(got, "Switches=2@00:10:00") || strings.Contains(got, "AdminComment") {
			t.Errorf("the user's own shape was changed:\n%s", got)
		}
	})
	t.Run("the submit wrapper", func(t *testing.T) {
		wrapper := []string{"env", "SPILLWAY_URL=http://" + before.Addr().String(), "SPILLWAY_TIMEOUT=5", "SPILLWAY_SBATCH=" + testenv.Binary(t, "sbatch")}
		script := []string{"bash", "../../deploy/slurm/spillway-sbatch.sh"}
		job, said, _ := slurm.sbatch(append(append(wrapper, "SPILLWAY_USE=switches"), script...), append(gang, "--hold")...)
		if got := slurm.show(job); !strings.Contains(got, "Switches=1@") || strings.Contains(got, "AdminComment") {
			t.Errorf("the wrapper's shape is not the job's:\n%s\n%s", said, got)
		}
		if _, said, _ := slurm.sbatch(append(wrapper, script...), append(gang, "--hold")...); !strings.Contains(said, "this Slurm does not take --segment=4: submitting as it came") {
			t.Errorf("an sbatch that is too old: got %q, want it said and the job submitted", said)
		}
	})
	t.Run("without an answer jobs go as they came", func(t *testing.T) {
		slurm.configure("port = " + port + `; use = "switches"`)
		before.silent.Store(true)
		_, _, took := slurm.sbatch([]string{"sbatch"}, "--nodes=1", "--gres=gpu:4", "--hold")
		t.Logf("sbatch of a job that nothing is asked for took %s", took)
		for name, settings := range map[string]string{
			"Spillway hangs":     "port = " + port + `; use = "switches"`,
			"Spillway is not up": `port = 1; use = "switches"`,
		} {
			slurm.configure(settings)
			job, _, took := slurm.sbatch([]string{"sbatch"}, append(gang, "--hold")...)
			t.Logf("%s: sbatch took %s", name, took)
			if got := slurm.show(job); !strings.Contains(got, "JobState=PENDING") || strings.Contains(got, "AdminComment") || strings.Contains(got, "Switches=1") {
				t.Errorf("%s: want the job as it came, got\n%s", name, got)
			}
		}
	})
	if err := exec.Command("scancel", first).Run(); err != nil {
		t.Error(err)
	}
	testenv.Until(t, "Spillway sees the first job end", func() bool { return s.used("gb200-a-02") == 0 })
}

// TestSlurmBlock is TestSlurm with Slurm 24.11 and topology/block: the blocks that scontrol prints are the NVLink domains,
// and --segment is what the advice asks for. The base block is smaller than the racks, as where a rack may lack a node.
func TestSlurmBlock(t *testing.T) {
	slurm := startSlurm(t, testenv.SlurmWithBlocks(t), "block", "BlockName=a Nodes=gb200-a-[01-04]\nBlockName=b Nodes=gb200-b-[01-04]\nBlockSizes=3,6\n")
	s := newCallerWith(t, stages{collect: true, load: true, enrich: true, serve: true}, func(s *settings) {
		s.Collect.Sources = []string{"slurm", "topology"}
		s.Collect.Slurm.Interval, s.Collect.Slurm.NodesInterval = time.Second, time.Second
		s.Collect.Slurm.Commands.Accounting = nil // it needs slurmdbd
		s.Collect.Topology.Cluster, s.Collect.Topology.Interval = "c1", time.Second
		s.Collect.Topology.Sources = []topology.Source{{Source: event.SourceSlurmTopology, Command: []string{"scontrol", "show", "topology"}}}
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Spillway said: %s\n%s", s.get("/v1/status"), s.get("/v1/slots?gpus=4"))
		}
	})
	submit := []string{"sbatch"}
	runsOn := func(job, nodes string) {
		t.Helper()
		testenv.Until(t, "job "+job+" runs on "+nodes, func() bool { return strings.Contains(slurm.show(job), " NodeList="+nodes+"\n") })
	}
	judged := func(job, outcome string, domains uint32) *read.Verdict {
		t.Helper()
		var v *read.Verdict
		testenv.Until(t, "job "+job+" is judged", func() bool { v = s.verdict(job); return v != nil })
		if v.Outcome != outcome || v.DomainsUsed == nil || *v.DomainsUsed != domains || v.MembershipSource != event.SourceSlurmTopology {
			t.Errorf("job %s: got %+v, want %s over %d domains", job, v, outcome, domains)
		}
		return v
	}

	first, _, _ := slurm.sbatch(submit, "--nodes=1", "--gres=gpu:4", "--nodelist=gb200-a-02")
	testenv.Until(t, "Spillway has read Slurm's nodes, blocks and first job", func() bool { return s.used("gb200-a-02") == 4 })
	domains := s.feed.Clusters("")["c1"].Snapshot.Topology.Domains
	if len(domains) != 2 || domains[0].Count != slurmRack || domains[1].Count != slurmRack {
		t.Fatalf("Slurm's blocks became %+v, want two domains of %d nodes", domains, slurmRack)
	}

	wrapper := []string{"env", "SPILLWAY_URL=" + s.base, "SPILLWAY_TIMEOUT=5", "SPILLWAY_SBATCH=" + testenv.Binary(t, "sbatch"),
		"bash", "../../deploy/slurm/spillway-sbatch.sh"}
	gang, said, took := slurm.sbatch(wrapper, "--nodes=3", "--gres=gpu:4", "--time=60", "--job-name=gang")
	t.Logf("the wrapper took %s", took)
	if !strings.Contains(said, "--segment=3 keeps it on NVLink") {
		t.Errorf("got %q, want the advice of a segment", said)
	}
	runsOn(gang, "gb200-a-[01,03-04]")
	judged(gang, "one_domain", 1)
	testenv.Until(t, "the advice is graded as followed", func() bool {
		grades, err := s.ledger.Grades(context.Background(), "c1", time.Now().Add(-time.Hour))
		return err == nil && len(grades) == 1 && grades[0].Followed == 1 && grades[0].Spilled == 0
	})

	t.Run("a job larger than the base block spills though a rack could hold it", func(t *testing.T) {
		second, _, _ := slurm.sbatch(submit, "--nodes=1", "--gres=gpu:4", "--nodelist=gb200-b-02")
		runsOn(second, "gb200-b-02")
		slurm.cancel(gang)
		spread, _, _ := slurm.sbatch(submit, "--nodes=4", "--gres=gpu:4", "--time=60", "--job-name=spread")
		runsOn(spread, "gb200-a-01,gb200-b-[01,03-04]")
		if v := judged(spread, "spill", 2); v.DomainsMin == nil || *v.DomainsMin != 1 {
			t.Errorf("one domain would have been enough: got %+v", v)
		}
		slurm.cancel(spread)
		// Slurm tells segments from 25.05 on. Before, what they split is judged as if nothing had been asked.
		segments, _, _ := slurm.sbatch(submit, "--nodes=4", "--segment=2", "--gres=gpu:4", "--time=60", "--job-name=segments")
		runsOn(segments, "gb200-a-[01,03],gb200-b-[01,03]")
		if v := judged(segments, "spill", 2); v.Intent != "unknown" {
			t.Errorf("got the intent %q, want unknown", v.Intent)
		}
		slurm.cancel(segments, second, first)
	})
	t.Run("a segment that Slurm refuses", func(t *testing.T) {
		testenv.Until(t, "Spillway sees the racks empty", func() bool { return s.used("gb200-a-02") == 0 && s.used("gb200-b-03") == 0 })
		job, said, _ := slurm.sbatch(wrapper, "--nodes=4", "--gres=gpu:4", "--time=60")
		if !strings.Contains(said, "this Slurm does not take --segment=4: submitting as it came") {
			t.Errorf("got %q, want a job without the segment", said)
		}
		runsOn(job, "gb200-b-[01-04]")
		judged(job, "one_domain", 1)
		testenv.Until(t, "it is told that the advice was not taken", func() bool {
			var n uint64
			err := s.readConn.QueryRow(context.Background(), "SELECT count() FROM advice_feedback WHERE job_id = '"+job+"' AND chosen = 0").Scan(&n)
			return err == nil && n == 1
		})
		slurm.cancel(job)
	})
	t.Run("job_submit.lua where Slurm's Lua knows no segments", func(t *testing.T) {
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.base, "http://"))
		slurm.configure("port = " + port + "; timeout = 2")
		job, said, took := slurm.sbatch(submit, "--nodes=3", "--gres=gpu:4", "--time=60")
		t.Logf("sbatch with advice took %s", took)
		if !strings.Contains(said, "--segment=3 keeps it on NVLink") || !strings.Contains(said, "this Slurm's plugins cannot: submit with it") ||
			strings.Contains(slurm.show(job), "AdminComment") {
			t.Errorf("got %q, want the user told that nothing was set", said)
		}
		slurm.configure("port = 1")
		_, _, took = slurm.sbatch(submit, "--nodes=3", "--gres=gpu:4", "--time=60")
		t.Logf("sbatch while Spillway is down took %s", took)
	})
}
