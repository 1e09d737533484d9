package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/schemas/event"
)

// benchServe measures POST /v1/advice as a deployment runs it: `spillway serve` is a process of its own on one core, with
// its feed alive, and the callers are another on another core. ClickHouse, Kafka and whoever feeds it share the callers'.
// In turn with it the callers ask a server that only ever gives one answer, from the same core: what that one's callers wait
// is the machine's, and what serve's wait beyond it is Spillway's.
func benchServe(ctx context.Context, b *benchRun) error {
	engines, err := engine.StartThrowaway(ctx, b.settings.Engine, b.log)
	if err != nil {
		return err
	}
	defer engines.Stop()
	dir, err := os.MkdirTemp("", "spillway-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config, err := b.reach(engines, dir)
	if err != nil {
		return err
	}
	cluster, nodes, err := b.fill(ctx, hugeFleet)
	if err != nil {
		return err
	}
	pin := b.pin("0", strconv.Itoa(os.Getpid()))
	if pin != nil {
		defer b.pin("0-"+strconv.Itoa(runtime.NumCPU()-1), strconv.Itoa(os.Getpid()))
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	defer b.awake()()
	var said bytes.Buffer
	serve := b.onCore(ctx, pin, runtime.NumCPU()-1, program, "serve", "--config", config)
	serve.Stderr = &said
	if err := serve.Start(); err != nil {
		return fmt.Errorf("start spillway serve: %w", err)
	}
	ended := sync.OnceValue(func() error {
		_ = serve.Process.Signal(syscall.SIGTERM)
		return serve.Wait()
	})
	defer ended()
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan error, 1)
	go func() { fed <- b.feed(feeding, engines.Kafka, cluster, nodes) }()
	defer func() {
		stop()
		<-fed
	}()
	base := "http://" + b.settings.API.Listen
	for limit := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		err := advises(ctx, base)
		if err == nil {
			break
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			_ = ended()
			return fmt.Errorf("spillway serve gives no advice after a minute: %w: it said %s", err, said.Bytes())
		}
	}
	bare, stopBare, err := b.bare(ctx, pin, program)
	if err != nil {
		return err
	}
	defer stopBare()
	time.Sleep(5 * time.Second)
	own, floor, cpu := &asked{Answers: map[int]int{}}, &asked{Answers: map[int]int{}}, time.Duration(0)
	var ownP99, floorP99, more []time.Duration
	for left := b.seconds; left > 0; left -= askSlice {
		seconds := min(left, askSlice)
		f, err := b.callers(ctx, pin, program, bare, seconds)
		if err != nil {
			return err
		}
		before, _ := processUsage(serve.Process.Pid)
		o, err := b.callers(ctx, pin, program, base, seconds)
		if err != nil {
			return err
		}
		after, _ := processUsage(serve.Process.Pid)
		cpu += after - before
		ownP99, floorP99, more = append(ownP99, at(o.Took, .99)), append(floorP99, at(f.Took, .99)), append(more, at(o.Took, .99)-at(f.Took, .99))
		own.add(o)
		floor.add(f)
	}
	_, peak := processUsage(serve.Process.Pid)
	b.sayf("  POST /v1/advice at %d/s, both on the same core, 100 records/s in Kafka, in turns of %d s, %d s each; over all calls:", adviceRate, askSlice, b.seconds)
	b.sayf("  spillway serve                      %s", own)
	b.sayf("  net/http with one fixed answer      %s", floor)
	b.sayf("  p99 of the turns, median: %s and %s; of a turn of serve less the one before it of the fixed answer, median: %s",
		median(ownP99), median(floorP99), median(more))
	b.sayf("  spillway serve: %.2f cores while asked, %d MB resident at most; %s of its answers took it 1 and 2 ms at most; load average %s",
		cpu.Seconds()/float64(b.seconds+len(more)*askWarm), peak>>20, b.within(ctx, base), loadAverage())
	return nil
}

// awake keeps the cores from sleeping, as machines that serve by the millisecond are set up: an idle core turns in the kernel
// and looks for work. On a virtual machine a core that sleeps is given away, and its waking is the host's to decide: with
// nothing else running at all, the fixed answer had a p99 of 5 to 48 ms without this. Something of idle priority that turns
// in its place is worse than this too: the kernel's own threads, those that take packets among them, wait for it.
func (b *benchRun) awake() (stop func()) {
	latency, err := os.OpenFile("/dev/cpu_dma_latency", os.O_WRONLY, 0)
	if err == nil {
		_, err = latency.Write(make([]byte, 4)) // microseconds that waking may take, as long as the file is open
	}
	if err != nil {
		b.sayf("  the cores may sleep: %s", err)
		return func() {}
	}
	return func() { _ = latency.Close() }
}

// askSlice is how many seconds serve and the bare server are asked in turn.
const askSlice = 10

// bare starts what the machine itself is measured with, on the core of serve: whatever the callers wait for there, and in
// themselves, no service could do without.
func (b *benchRun) bare(ctx context.Context, pin []string, program string) (base string, stop func(), err error) {
	cmd := b.onCore(ctx, pin, runtime.NumCPU()-1, program, "bench", "bare")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start the bare server: %w", err)
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if _, err := fmt.Fscan(out, &base); err != nil {
		stop()
		return "", nil, fmt.Errorf("start the bare server: %w", err)
	}
	return base, stop, nil
}

// benchBareCommand answers every question with the same 1.5 KB, the size of advice, and does nothing else.
func benchBareCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bare", Short: "Answer every question the same", Hidden: true, Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "http://%s\n", l.Addr())
		body := bytes.Repeat([]byte("x"), 1500)
		server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(body)
		})}
		return server.Serve(l)
	}
	return cmd
}

// callers runs bench ask, a process of its own on the first core, ahead of ClickHouse and Kafka there: what it waits for its
// core it would take for the service's time.
func (b *benchRun) callers(ctx context.Context, pin []string, program, url string, seconds int) (*asked, error) {
	out, err := b.onCore(ctx, pin, 0, "nice", "-n", "-20", program, "bench", "ask", "--url", url, "--seconds", strconv.Itoa(seconds)).Output()
	if err != nil {
		return nil, fmt.Errorf("run the callers: %w", err)
	}
	a := &asked{}
	if err := json.Unmarshal(out, a); err != nil {
		return nil, fmt.Errorf("run the callers: %w", err)
	}
	return a, nil
}

func median(d []time.Duration) time.Duration {
	m, _, _ := quantiles(slices.Clone(d))
	return m.Round(10 * time.Microsecond)
}

// within is the share of answers that the service itself measured to take a millisecond at most, and two.
func (b *benchRun) within(ctx context.Context, base string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/metrics", nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	count := func(le string) float64 {
		m := regexp.MustCompile(`spillway_query_request_seconds_bucket\{operation="advise",status="200",le="` + regexp.QuoteMeta(le) + `"\} (\S+)`).FindSubmatch(text)
		if m == nil {
			return math.NaN()
		}
		n, _ := strconv.ParseFloat(string(m[1]), 64)
		return n
	}
	all := count("+Inf")
	return fmt.Sprintf("%.2f %% and %.2f %%", 100*count("0.001")/all, 100*count("0.002")/all)
}

// reach points the settings at engines that run already, and writes them down for another process.
func (b *benchRun) reach(engines *engine.Engines, dir string) (file string, err error) {
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(engines.ClickHouse.Owner.Password), 0o600); err != nil {
		return "", err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	e := engine.DefaultConfig()
	e.ClickHouse.Addresses, e.ClickHouse.User, e.ClickHouse.PasswordFile = engines.ClickHouse.Owner.Addresses, engines.ClickHouse.Owner.User, password
	e.Kafka.Brokers = engines.Kafka.Brokers
	b.settings.Engine, b.settings.API.Listen = e, "127.0.0.1:"+port
	text, err := yaml.Marshal(map[string]any{
		"engine": map[string]any{
			"clickhouse": map[string]any{"addresses": e.ClickHouse.Addresses, "user": e.ClickHouse.User, "password_file": password},
			"kafka":      map[string]any{"brokers": e.Kafka.Brokers},
		},
		"api": map[string]any{"listen": b.settings.API.Listen}, "telemetry": map[string]any{"log_level": "warn"},
	})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "spillway.yaml")
	return file, os.WriteFile(file, text, 0o600)
}

// fill runs all stages until the advisor's picture of a simulated fleet is complete, and stops them.
func (b *benchRun) fill(ctx context.Context, racks int) (cluster string, nodes []string, err error) {
	fleet := tenThousandGPUs(100)
	fleet.Clusters[0].Racks, fleet.Clusters[0].NodeMTBF = racks, 0
	fleet.Counters = 0
	collector, err := simulate.New(fleet, simulate.Deps{Log: b.log})
	if err != nil {
		return "", nil, err
	}
	ready := make(chan struct{})
	var out collect.Emitter // known once the flow is open
	f, err := open(ctx, b.settings, stages{load: true, enrich: true, serve: true}, false, b.log)
	if err != nil {
		return "", nil, err
	}
	f.parts = append(f.parts, named{"simulate", func(ctx context.Context) error {
		<-ready
		return collector.Run(ctx, out)
	}})
	out = f.producer
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.run(running) }()
	close(ready)
	cluster = fleet.Clusters[0].Name
	for limit := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		v := f.feed.Clusters(cluster)[cluster]
		if v != nil && len(v.Snapshot.Topology.Domains) >= racks && v.Snapshot.Held > len(v.Snapshot.Topology.Nodes)/2 {
			for i := range v.Snapshot.Topology.Nodes {
				nodes = append(nodes, v.Snapshot.Topology.Nodes[i].Name)
			}
			break
		}
		if time.Now().After(limit) || ctx.Err() != nil {
			err = fmt.Errorf("the picture of %d racks, half of them in use, is not complete after five minutes", racks)
			break
		}
	}
	if err == nil {
		time.Sleep(10 * time.Second) // what was collected meanwhile is folded
	}
	stop()
	if ran := <-ended; err == nil {
		err = ran
	}
	f.close()
	return cluster, nodes, err
}

// feed tells of a start or an end a hundred times a second, and of the collector that would, until ctx ends.
func (b *benchRun) feed(ctx context.Context, k engine.Kafka, cluster string, nodes []string) error {
	producer := kafka.NewProducer(k, kafka.Deps{Log: b.log, Now: time.Now})
	defer producer.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	interval, four := uint32(5000), uint32(4)
	var running *event.Placement
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		if i%500 == 0 {
			s := &event.Source{Cluster: cluster, Source: simulate.Source, ObservedAtMs: now.UnixMilli(), GoodAtMs: event.Millis(now), IntervalMs: &interval}
			if err := producer.Emit(ctx, s); err != nil {
				return err
			}
		}
		if running != nil {
			running.State, running.EndMs = event.State_COMPLETED, event.Millis(now)
		} else {
			gpus := uint32(16)
			running = &event.Placement{
				Cluster: cluster, Scheduler: "slurm", JobId: fmt.Sprint("bench-", i), Source: simulate.Source + ".bench", State: event.State_RUNNING,
				StartMs: event.Millis(now), Gpus: &gpus,
			}
			for n := range 4 {
				running.Placements = append(running.Placements, &event.NodePlacement{Node: nodes[(i*7919+n)%len(nodes)], Gpus: &four})
			}
		}
		running.ObservedAtMs, running.Revision = now.UnixMilli(), event.Revision(now)
		if err := producer.Emit(ctx, running); err != nil && ctx.Err() == nil {
			return err
		}
		if running.EndMs != nil {
			running = nil
		}
	}
}

// pin keeps a process and its children on some cores; nil where that cannot be done.
func (b *benchRun) pin(cores, pid string) (taskset []string) {
	program, err := exec.LookPath("taskset")
	if err != nil || runtime.NumCPU() < 2 {
		return nil
	}
	var pids []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 1 && fields[1] == pid {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	for _, one := range append(pids, pid) {
		if exec.Command(program, "-acp", cores, one).Run() != nil {
			return nil
		}
	}
	return []string{program}
}

// onCore prepares a program that may use one core, where programs can be pinned.
func (b *benchRun) onCore(ctx context.Context, pin []string, core int, args ...string) *exec.Cmd {
	if pin != nil {
		args = append([]string{pin[0], "-c", strconv.Itoa(core)}, args...)
	}
	return exec.CommandContext(ctx, args[0], args[1:]...)
}

// advises says why the service gives no advice.
func advises(ctx context.Context, base string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/advice", bytes.NewReader([]byte(`{"gpus":64}`)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusConflict {
		body, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// processUsage gives the CPU time of a process and the most memory it had resident, from Linux's /proc.
func processUsage(pid int) (cpu time.Duration, peak int64) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 12 {
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		cpu = time.Duration(user+system) * 10 * time.Millisecond
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			peak = kb << 10
		}
	}
	return cpu, peak
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:1], "")
}

// asked is what callers measured, quickest first, and how many answers there were of each status. Took goes from when a
// question was due until its caller had read the answer. Arrived goes from when the caller began to send it until the kernel
// had the last of the answer, by its time stamp: what a caller waits for its own processor, here beside ClickHouse and Kafka,
// is in the first and not in the second.
type asked struct {
	Took, Arrived []time.Duration
	Answers       map[int]int
}

// at gives a quantile of times that are sorted.
func at(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[min(len(d)-1, int(q*float64(len(d))))].Round(10 * time.Microsecond)
}

// add takes in what others measured.
func (a *asked) add(more *asked) {
	a.Took, a.Arrived = append(a.Took, more.Took...), append(a.Arrived, more.Arrived...)
	slices.Sort(a.Took)
	slices.Sort(a.Arrived)
	for status, n := range more.Answers {
		a.Answers[status] += n
	}
}

// String is the quantiles and the answers.
func (a *asked) String() string {
	of := func(d []time.Duration) string {
		return fmt.Sprintf("p50 %s, p90 %s, p99 %s, p99.9 %s, slowest %s", at(d, .5), at(d, .9), at(d, .99), at(d, .999), at(d, 1))
	}
	return fmt.Sprintf("%s; answers %v\n    from sent to arrived at the caller: %s", of(a.Took), a.Answers, of(a.Arrived))
}

// benchAskCommand is the callers of the serve benchmark, a process of its own; it prints what they measured as JSON.
func benchAskCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ask", Short: "Put 1,000 questions a second to a service", Hidden: true, Args: noArgs}
	url := cmd.Flags().String("url", "http://127.0.0.1:8470", "the service")
	seconds := cmd.Flags().Int("seconds", 60, "for how long")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		runtime.GOMAXPROCS(32) // none of the callers' threads waits for another
		a, err := askAtRate(cmd.Context(), *url, *seconds)
		if err != nil {
			return err
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(a)
	}
	return cmd
}
