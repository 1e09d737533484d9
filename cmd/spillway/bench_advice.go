package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/schemas/event"
)

// benchAdvice measures the advisor as its callers meet it: how soon an event shows, and POST /v1/advice at a fixed rate, on
// 10,008 and on 100,008 GPUs.
func benchAdvice(ctx context.Context, b *benchRun) error {
	for _, racks := range []int{bigFleet, hugeFleet} {
		if err := b.advice(ctx, racks); err != nil {
			return err
		}
	}
	return nil
}

// hugeFleet is 100,008 GPUs in 1,389 racks; adviceRate is how many questions a second are asked, askWarm for how many seconds
// before they count.
const (
	hugeFleet  = 1389
	adviceRate = 1000
	askWarm    = 2 // seconds asked before any count
)

func (b *benchRun) advice(ctx context.Context, racks int) error {
	fleet := tenThousandGPUs(100)
	fleet.Clusters[0].Racks, fleet.Clusters[0].NodeMTBF = racks, 0
	fleet.Counters = 0
	collector, err := simulate.New(fleet, simulate.Deps{Log: b.log})
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	var out collect.Emitter // known once the flow is open
	f, stop, err := b.running(ctx, stages{load: true, enrich: true, serve: true}, named{"simulate", func(ctx context.Context) error {
		<-ready
		return collector.Run(ctx, out)
	}})
	if err != nil {
		return err
	}
	out = f.producer
	begin := time.Now()
	close(ready)
	cluster := fleet.Clusters[0].Name
	known := func() bool {
		v := f.feed.Clusters(cluster)[cluster]
		return v != nil && len(v.Snapshot.Topology.Domains) >= racks
	}
	for limit := time.Now().Add(5 * time.Minute); !known(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(limit) || ctx.Err() != nil {
			return fmt.Errorf("the picture of %d racks is not complete after %s", racks, time.Since(begin).Round(time.Second))
		}
	}
	b.sayf("  %d GPUs in %d domains: the picture is complete %s after the first event", racks*72, racks, time.Since(begin).Round(time.Second))
	time.Sleep(10 * time.Second) // what was collected meanwhile is folded
	seen, late, err := b.visible(ctx, f, cluster)
	if err != nil {
		return err
	}
	p50, p99, most := quantiles(seen)
	b.sayf("  event to advice, %d starts: p50 %s, p99 %s, slowest %s, %d not seen in 10 s", len(seen), p50.Round(time.Millisecond),
		p99.Round(time.Millisecond), most.Round(time.Millisecond), late)
	if err := b.ask(ctx, "http://"+f.server.Addr()); err != nil {
		return err
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b.sayf("  heap of the whole process, all stages and Kafka: %d MB", mem.HeapAlloc>>20)
	return stop()
}

// visible starts jobs of its own among those of the fleet and measures how long after each was sent the picture shows that
// it holds its node.
func (b *benchRun) visible(ctx context.Context, f *flow, cluster string) (took []time.Duration, late int, err error) {
	end := time.Now().Add(time.Duration(b.seconds) * time.Second / 2)
	for i := 0; time.Now().Before(end) && ctx.Err() == nil; i++ {
		snap := f.feed.Clusters(cluster)[cluster].Snapshot
		job, now := fmt.Sprint("visible-", i), time.Now()
		gpus := uint32(1)
		p := &event.Placement{
			Cluster: cluster, Scheduler: "slurm", JobId: job, Source: simulate.Source + ".bench", State: event.State_RUNNING,
			StartMs: event.Millis(now), ObservedAtMs: now.UnixMilli(), Revision: event.Revision(now), Gpus: &gpus,
			Placements: []*event.NodePlacement{{Node: snap.Topology.Nodes[i*7919%len(snap.Topology.Nodes)].Name, Gpus: &gpus}},
		}
		if err := f.producer.Emit(ctx, p); err != nil {
			return nil, 0, err
		}
		for !f.feed.Clusters(cluster)[cluster].Snapshot.Holds(job) && time.Since(now) < 10*time.Second {
			time.Sleep(2 * time.Millisecond)
		}
		if t := time.Since(now); t < 10*time.Second {
			took = append(took, t)
		} else {
			late++
		}
		p.State, p.EndMs, p.Revision = event.State_COMPLETED, event.Millis(time.Now()), event.Revision(time.Now())
		if err := f.producer.Emit(ctx, p); err != nil {
			return nil, 0, err
		}
	}
	return took, late, nil
}

// ask measures POST /v1/advice from callers in this process.
func (b *benchRun) ask(ctx context.Context, base string) error {
	before, start, seconds := processCPU(), time.Now(), max(1, b.seconds/2)
	a, err := askAtRate(ctx, base, seconds)
	if err != nil {
		return err
	}
	b.sayf("  POST /v1/advice at %d/s for %d s: %s; %.2f cores for both ends and the flow behind them; load average %s", adviceRate, seconds, a,
		(processCPU()-before).Seconds()/time.Since(start).Seconds(), loadAverage())
	return nil
}

// askAtRate puts adviceRate questions a second from callers that keep their connections. Each is timed from when it was due,
// whether or not its caller was still busy with the one before, so that a service that stalls is not asked less. The first
// seconds do not count. A caller is a thread that blocks in the kernel until its next question is due and until its answer is
// there, as C programs do: with net/http's client and Go's poller between, half of what callers measured was their own.
func askAtRate(ctx context.Context, base string, seconds int) (*asked, error) {
	const callers = 16
	const warm = askWarm * adviceRate
	at, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	total := adviceRate*seconds + warm
	start := time.Now().Add(100 * time.Millisecond)
	var each [callers]asked
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			mine := &each[c]
			mine.Answers = map[int]int{}
			caller := blockingCaller{host: at.Host}
			defer caller.hangUp()
			for i := c; i < total && ctx.Err() == nil; i += callers {
				due := start.Add(time.Duration(i) * time.Second / adviceRate)
				if wait := time.Until(due); wait > 0 { // time.Sleep is exact to a millisecond only
					rest := unix.NsecToTimeval(wait.Nanoseconds())
					_, _ = unix.Select(0, nil, nil, nil, &rest)
				}
				asked := time.Now()
				status := caller.post("/v1/advice", fmt.Sprintf(`{"gpus":%d,"class":"train","duration_s":3600}`, 4*(1+i*7%36)))
				if i < warm {
					continue
				}
				mine.Took = append(mine.Took, time.Since(due))
				mine.Answers[status]++
				if status != 0 && !caller.arrived.IsZero() {
					mine.Arrived = append(mine.Arrived, max(0, caller.arrived.Sub(asked)))
				}
			}
		})
	}
	wg.Wait()
	all := &asked{Answers: map[int]int{}}
	for i := range each {
		all.add(&each[i])
	}
	return all, ctx.Err()
}

// blockingCaller is one connection, which is made when it is needed.
type blockingCaller struct {
	host    string
	file    *os.File // in blocking mode; nil = no connection
	answers *bufio.Reader
	arrived time.Time // when the kernel had what was read last; zero = it does not tell
}

// post gives the status of an answer; 0: none came.
func (c *blockingCaller) post(path, body string) int {
	status, err := c.call(path, body)
	if err != nil {
		c.hangUp()
		return 0
	}
	return status
}

func (c *blockingCaller) call(path, body string) (status int, err error) {
	if c.file == nil {
		if err := c.dial(); err != nil {
			return 0, err
		}
	}
	_, err = fmt.Fprintf(c.file, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, c.host, len(body), body)
	if err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func (c *blockingCaller) dial() error {
	conn, err := net.Dial("tcp", c.host)
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.file, err = conn.(*net.TCPConn).File(); err != nil {
		return err
	}
	c.answers = bufio.NewReader(c)
	fd, timeout := int(c.file.Fd()), unix.NsecToTimeval((10 * time.Second).Nanoseconds())
	return errors.Join(unix.SetNonblock(fd, false), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMP, 1))
}

// Read implements io.Reader, and keeps the time at which the kernel took in what it gives.
func (c *blockingCaller) Read(p []byte) (int, error) {
	var control [64]byte
	n, size, _, _, err := unix.Recvmsg(int(c.file.Fd()), p, control[:], 0)
	if err == nil && n == 0 {
		return 0, io.EOF
	}
	c.arrived = time.Time{}
	told, _ := unix.ParseSocketControlMessage(control[:size])
	for _, m := range told {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMP && len(m.Data) == int(unsafe.Sizeof(unix.Timeval{})) {
			c.arrived = time.Unix((*unix.Timeval)(unsafe.Pointer(&m.Data[0])).Unix())
		}
	}
	return max(0, n), err
}

func (c *blockingCaller) hangUp() {
	if c.file != nil {
		_ = c.file.Close()
		c.file = nil
	}
}

// processCPU is the CPU time of this process alone.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
