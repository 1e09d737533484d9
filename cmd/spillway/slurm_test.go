package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/internal/testenv"
	"github.com/spillway-io/spillway/schemas/event"
)

// slurmCluster is a real slurmctld with a slurmd for each node, all on the loopback address and as the user of the test.
type slurmCluster struct {
	t       *testing.T
	dir     string
	touched int
}

// The nodes of the cluster: two racks, each a leaf switch of topology/tree, for Debian's Slurm 22.05 has no topology/block.
const slurmRack = 4

func slurmNodes() (names []string) {
	for _, rack := range []string{"a", "b"} {
		for n := 1; n <= slurmRack; n++ {
			names = append(names, fmt.Sprintf("gb200-%s-%02d", rack, n))
		}
	}
	return names
}

// loopbackPorts finds that many free ports in a row.
func loopbackPorts(t *testing.T, n int) int {
	t.Helper()
	for from := 21000 + os.Getpid()%20000; from < 60000; from += n {
		free := true
		for p := from; p < from+n && free; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return from
		}
	}
	t.Fatal("no free ports in a row")
	return 0
}

// startSlurm starts the cluster with deploy/slurm/job_submit.lua as its plugin, and points Slurm's commands at it.
func startSlurm(t *testing.T) *slurmCluster {
	t.Helper()
	for _, program := range []string{"slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel"} {
		testenv.Binary(t, program)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "slurm") // shorter than the test's own: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	c := &slurmCluster{t: t, dir: dir}
	names := slurmNodes()
	port := loopbackPorts(t, len(names)+1)
	script, err := os.ReadFile("../../deploy/slurm/job_submit.lua")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"slurm.conf": fmt.Sprintf(`ClusterName=c1
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
SlurmUser=%[3]s
SlurmdUser=%[3]s
AuthType=auth/none
CredType=cred/none
StateSaveLocation=%[4]s/state
SlurmctldPidFile=%[4]s/slurmctld.pid
SlurmdPidFile=%[4]s/%%n.pid
SlurmdSpoolDir=%[4]s/%%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
KillWait=1
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,max_switch_wait=3600
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
GresTypes=gpu
JobSubmitPlugins=lua
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
NodeName=gb200-a-[01-04],gb200-b-[01-04] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[%[5]d-%[6]d] CPUs=4 Gres=gpu:4
`, host, port, me.Username, dir, port+1, port+len(names)),
		"gres.conf":      "NodeName=gb200-a-[01-04],gb200-b-[01-04] Name=gpu File=/dev/null,/dev/zero,/dev/full,/dev/random\n",
		"topology.conf":  "SwitchName=a Nodes=gb200-a-[01-04]\nSwitchName=b Nodes=gb200-b-[01-04]\nSwitchName=top Switches=a,b\n",
		"job_submit.lua": string(script),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(names, "state") {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
	t.Setenv("SPILLWAY_JOB_SUBMIT_CONF", filepath.Join(dir, "spillway.conf"))
	c.configure("")
	var daemons []*exec.Cmd
	start := func(log string, args ...string) {
		out, err := os.Create(filepath.Join(dir, log))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		daemons = append(daemons, cmd)
	}
	t.Cleanup(func() {
		_ = exec.Command("scancel", "--user="+me.Username).Run()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if out, err := exec.Command("squeue", "--noheader").Output(); err != nil || len(out) == 0 {
				break // or the jobs' own processes would stay
			}
		}
		if t.Failed() {
			out, _ := os.ReadFile(filepath.Join(dir, "slurmctld.log"))
			t.Logf("slurmctld said:\n%s", out[max(0, len(out)-6000):])
		}
		for i := len(daemons) - 1; i >= 0; i-- {
			_ = daemons[i].Process.Signal(os.Interrupt)
		}
		for _, d := range daemons {
			kill := time.AfterFunc(10*time.Second, func() { _ = d.Process.Kill() })
			_ = d.Wait()
			kill.Stop()
		}
		_ = os.RemoveAll(dir)
	})
	start("slurmctld.log", "slurmctld", "-D")
	testenv.Eventually(t, time.Minute, func() error { return exec.Command("scontrol", "ping").Run() })
	for _, n := range names {
		start(n+".log", "slurmd", "-D", "-N", n)
	}
	testenv.Eventually(t, time.Minute, func() error {
		out, err := exec.Command("sinfo", "--noheader", "--states=idle", "--format=%D").Output()
		if strings.TrimSpace(string(out)) != fmt.Sprint(len(names)) {
			return fmt.Errorf("%s nodes are idle: %w", strings.TrimSpace(string(out)), err)
		}
		return nil
	})
	return c
}

// configure writes the plugin's settings and lets slurmctld read its script anew.
func (c *slurmCluster) configure(settings string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "spillway.conf"), []byte(settings), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.touched++
	at := time.Now().Add(time.Duration(c.touched) * time.Second) // Slurm looks at whole seconds
	if err := os.Chtimes(filepath.Join(c.dir, "job_submit.lua"), at, at); err != nil {
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
				r.done.Go(func() { _, _ = io.Copy(out, in) })
				_, _ = io.Copy(in, out)
			})
		}
	})
	return r
}

// TestSlurm submits jobs to a real Slurm whose slurmctld asks for advice, and reads that Slurm with the collector: from
// sbatch to the graded advice nothing is a stand-in but the GPUs.
func TestSlurm(t *testing.T) {
	slurm := startSlurm(t)
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
	used := func(node string) int32 {
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
	until(t, "Spillway has read Slurm's nodes and its first job", func() bool { return used("gb200-a-02") == 4 })
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
	until(t, "Slurm runs the gang where it was sent", func() bool { return strings.Contains(slurm.show(job), " NodeList=gb200-b-[01-04]\n") })
	until(t, "Spillway sees the gang on its nodes", func() bool { return used("gb200-b-01") == 4 && used("gb200-b-04") == 4 })
	until(t, "the advice is graded as followed", func() bool {
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
		if _, said, _ := slurm.sbatch(append(wrapper, script...), append(gang, "--hold")...); !strings.Contains(said, "does not know --segment") {
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
			if took > 3*time.Second {
				t.Errorf("%s: sbatch took %s", name, took)
			}
		}
	})
	if err := exec.Command("scancel", first).Run(); err != nil {
		t.Error(err)
	}
	until(t, "Spillway sees the first job end", func() bool { return used("gb200-a-02") == 0 })
}
