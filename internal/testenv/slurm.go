package testenv

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// slurmSuite is the release of Debian whose Slurm tests run, 24.11: the first there with topology/block.
const slurmSuite = "trixie"

// slurmPrograms are made ready to run, and where Debian has them.
var slurmPrograms = map[string]string{
	"slurmctld": "usr/sbin/slurmctld-wlm", "slurmd": "usr/sbin/slurmd-wlm", "slurmstepd": "usr/sbin/slurmstepd-wlm",
	"sbatch": "usr/bin/sbatch", "squeue": "usr/bin/squeue", "scontrol": "usr/bin/scontrol", "scancel": "usr/bin/scancel",
	"sinfo": "usr/bin/sinfo",
}

// Slurm is a Slurm that is unpacked in a folder of its own, beside whatever Slurm the machine has.
type Slurm struct {
	Bin     string // folder with its programs; slurmd must be told of its slurmstepd by -d
	Plugins string // PluginDir of slurm.conf
}

// SlurmWithBlocks fetches Slurm 24.11 from the machine's own Debian mirror into the user's cache, once. It is of another
// release of Debian, so it comes with the libraries of that release and runs on them.
func SlurmWithBlocks(t testing.TB) Slurm {
	t.Helper()
	dir := fetchOnce(t, "Slurm of Debian "+slurmSuite, "slurm-"+slurmSuite, func(work, dir string) (string, error) {
		for _, program := range []string{"apt-get", "dpkg-deb", "patchelf"} {
			Binary(t, program)
		}
		return filepath.Join(work, "slurm"), fetchSlurm(work, dir)
	})
	return Slurm{Bin: filepath.Join(dir, "bin"), Plugins: filepath.Join(dir, "root", libraries, "slurm-wlm")}
}

const libraries = "usr/lib/x86_64-linux-gnu"

// fetchSlurm leaves in work/slurm what is to become dir.
func fetchSlurm(work, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(work, "apt.conf"), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
		}
		return nil
	}
	// apt with a state of its own, in which nothing is installed, and the machine's sources of another release.
	for _, d := range []string{"sources", "lists/partial", "cache/archives/partial", "slurm/root", "slurm/bin"} {
		if err := os.MkdirAll(filepath.Join(work, d), 0o755); err != nil {
			return err
		}
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return err
	}
	_, codename, _ := strings.Cut(string(release), "VERSION_CODENAME=")
	codename, _, _ = strings.Cut(codename, "\n")
	if codename == "" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("%s of %q: it is known only where Debian runs on amd64", runtime.GOARCH, codename)
	}
	sources, err := os.ReadFile("/etc/apt/sources.list.d/debian.sources")
	if err != nil {
		return fmt.Errorf("find the Debian mirror: %w", err)
	}
	for name, text := range map[string]string{
		"sources/debian.sources": strings.ReplaceAll(string(sources), codename, slurmSuite),
		"status":                 "",
		"apt.conf": fmt.Sprintf("Dir::State %q;\nDir::State::lists %q;\nDir::State::status %q;\nDir::Cache %q;\nDir::Etc::sourcelist \"/dev/null\";\n"+
			"Dir::Etc::sourceparts %q;\nDebug::NoLocking \"true\";\nAPT::Sandbox::User \"root\";\n",
			work, filepath.Join(work, "lists"), filepath.Join(work, "status"), filepath.Join(work, "cache"), filepath.Join(work, "sources")),
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := run("apt-get", "update", "-qq"); err != nil {
		return err
	}
	if err := run("apt-get", "install", "-qq", "--yes", "--no-install-recommends", "--download-only",
		"slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
	if err != nil {
		return err
	}
	root := filepath.Join(work, "slurm/root")
	for _, p := range packages {
		if err := run("dpkg-deb", "-x", p, root); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "usr/share")); err != nil {
		return err
	}
	// The programs load that release's libraries, plugins too; what they start loads the machine's.
	lib := filepath.Join(dir, "root", libraries)
	for name, path := range slurmPrograms {
		if err := run("patchelf", "--force-rpath", "--set-rpath", lib+":"+lib+"/slurm-wlm", "--set-interpreter", lib+"/ld-linux-x86-64.so.2",
			filepath.Join(root, path)); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join("../root", path), filepath.Join(work, "slurm/bin", name)); err != nil {
			return err
		}
	}
	return nil
}

// SlurmSetup is a cluster to start.
type SlurmSetup struct {
	From Slurm // the programs; those in PATH where it is zero
	// Port is slurmctld's. Conf are the lines of slurm.conf that say what nodes, partitions and topology there are, and
	// Files what lies beside slurm.conf.
	Port  int
	Conf  string
	Files map[string]string
	// Slurmds are the nodes that get a slurmd.
	Slurmds []string
}

// SlurmCluster is a running slurmctld. Slurm's commands, which the test finds in PATH, ask it.
type SlurmCluster struct {
	Dir string // of slurm.conf
}

// StartSlurm starts a cluster on the loopback address, as the user of the test, and stops it after the test.
func StartSlurm(t *testing.T, setup SlurmSetup) *SlurmCluster {
	t.Helper()
	stepd := []string{}
	plugins := ""
	if from := setup.From; from.Bin != "" {
		t.Setenv("PATH", from.Bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
		stepd = []string{"-d", filepath.Join(from.Bin, "slurmstepd")}
		plugins = "PluginDir=" + from.Plugins + "\n"
	}
	for _, program := range []string{"slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo"} {
		Binary(t, program)
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
	conf := fmt.Sprintf(`ClusterName=c1
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
`, host, setup.Port, me.Username, dir)
	files := map[string]string{"slurm.conf": conf + plugins + setup.Conf}
	if plugins != "" {
		files["cgroup.conf"] = "CgroupPlugin=disabled\n" // from 23.11 on slurmd would start them
	}
	maps.Copy(files, setup.Files)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append([]string{"state"}, setup.Slurmds...) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
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
	Eventually(t, time.Minute, func() error { return exec.Command("scontrol", "ping").Run() })
	for _, n := range setup.Slurmds {
		start(n+".log", append([]string{"slurmd", "-D", "-N", n}, stepd...)...)
	}
	Eventually(t, time.Minute, func() error {
		out, err := exec.Command("sinfo", "--noheader", "--states=idle", "--format=%D").Output()
		if len(setup.Slurmds) > 0 && strings.TrimSpace(string(out)) != fmt.Sprint(len(setup.Slurmds)) {
			return fmt.Errorf("%s nodes are idle: %w", strings.TrimSpace(string(out)), err)
		}
		return nil
	})
	return &SlurmCluster{Dir: dir}
}

// FreePorts finds that many ports of 127.0.0.1 in a row that nobody listens on, and gives the first.
func FreePorts(t testing.TB, n int) int {
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
