package testenv

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/internal/engine"
)

// ApacheKafkaVersion is the Apache Kafka that tests run against.
const ApacheKafkaVersion = "4.3.1"

const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>spillway</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + ApacheKafkaVersion + `</version></dependency></dependencies>
</project>`

// apacheKafkaLibraries fetches the broker's libraries with mvn into the user's cache, once.
func apacheKafkaLibraries(t testing.TB) string {
	t.Helper()
	Binary(t, "java")
	mvn := Binary(t, "mvn")
	return fetchOnce(t, "Apache Kafka "+ApacheKafkaVersion, filepath.Join("apache-kafka", ApacheKafkaVersion), func(work, _ string) (string, error) {
		pom, libs := filepath.Join(work, "pom.xml"), filepath.Join(work, "libs")
		if err := os.WriteFile(pom, []byte(kafkaPOM), 0o644); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime",
			"-DoutputDirectory="+libs).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("fetch it with mvn: %w: %s", err, bytes.TrimSpace(out))
		}
		return libs, nil
	})
}

// ApacheKafka is a single Apache Kafka broker (KRaft) of one test.
type ApacheKafka struct {
	engine.Kafka
	t     testing.TB
	jvm   []string // its options
	libs  string
	dir   string
	relay *relay
	cmd   *exec.Cmd
}

// StartApacheKafka starts a broker with an empty log, reached through a relay that the test can cut. It is gone after the
// test.
func StartApacheKafka(t testing.TB) *ApacheKafka {
	t.Helper()
	// A broker of a few seconds is there sooner without the JVM's second compiler.
	k := &ApacheKafka{t: t, jvm: []string{"-Xmx512m", "-XX:TieredStopAtLevel=1"}}
	port := freePort(t)
	k.relay = newRelay(t, "127.0.0.1:"+strconv.Itoa(port))
	return k.start(port, k.relay.listener.Addr().String())
}

// StartApacheKafkaToMeasure starts one that is reached directly and has the JVM options of Kafka's own start script.
func StartApacheKafkaToMeasure(t testing.TB) *ApacheKafka {
	t.Helper()
	k := &ApacheKafka{t: t, jvm: []string{"-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}}
	port := freePort(t)
	return k.start(port, "127.0.0.1:"+strconv.Itoa(port))
}

func (k *ApacheKafka) start(broker int, advertised string) *ApacheKafka {
	t := k.t
	t.Helper()
	k.libs, k.dir = apacheKafkaLibraries(t), t.TempDir()
	controller := freePort(t)
	k.Kafka = engine.Kafka{Brokers: []string{advertised}}
	properties := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d
advertised.listeners=PLAINTEXT://%s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:%d
log.dirs=%s
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
`, broker, controller, k.Brokers[0], controller, filepath.Join(k.dir, "log"))
	if err := os.WriteFile(k.properties(), []byte(properties), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := k.java("kafka.tools.StorageTool", "format", "-t", "c3BpbGx3YXktdGVzdHMtMQ", "-c", k.properties()).CombinedOutput(); err != nil {
		t.Fatalf("format the broker's log: %v: %s", err, out)
	}
	k.Start()
	t.Cleanup(func() {
		if k.cmd != nil {
			k.Kill()
		}
	})
	return k
}

func (k *ApacheKafka) properties() string { return filepath.Join(k.dir, "server.properties") }

func (k *ApacheKafka) java(args ...string) *exec.Cmd {
	return exec.Command("java", slices.Concat(k.jvm, []string{"-cp", k.libs + "/*"}, args)...)
}

// Start starts the broker, again after Kill, and returns when it answers.
func (k *ApacheKafka) Start() {
	k.t.Helper()
	k.cmd = k.java("kafka.Kafka", k.properties())
	out, err := os.OpenFile(filepath.Join(k.dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		k.t.Fatal(err)
	}
	defer out.Close()
	k.cmd.Stdout, k.cmd.Stderr = out, out
	if err := k.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	Eventually(k.t, time.Minute, func() error {
		conn, err := (&kafkago.Dialer{Timeout: time.Second}).Dial("tcp", k.Brokers[0])
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(2 * time.Second))
		_, err = conn.Brokers()
		return err
	})
}

// Kill ends the broker as kill -9 does.
func (k *ApacheKafka) Kill() {
	k.cmd.Process.Kill()
	k.cmd.Wait()
	k.cmd = nil
}

// Cut breaks all connections to the broker, in the middle of whatever they carry, and lets no new one through until
// Mend.
func (k *ApacheKafka) Cut() { k.relay.cut(true) }

// Mend lets connections through again.
func (k *ApacheKafka) Mend() { k.relay.cut(false) }

// freePort is a port of 127.0.0.1 that nobody listens on.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// relay passes TCP connections on.
type relay struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	broken bool
	conns  map[net.Conn]bool
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, to: to, conns: map[net.Conn]bool{}}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { r.pass(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.cut(true)
		open.Wait()
	})
	return r
}

func (r *relay) pass(c net.Conn) {
	defer c.Close()
	out, err := net.DialTimeout("tcp", r.to, time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	r.mu.Lock()
	if r.broken {
		r.mu.Unlock()
		return
	}
	r.conns[c], r.conns[out] = true, true
	r.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, out}, {out, c}} {
		both.Go(func() {
			io.Copy(way[0], way[1])
			c.Close()
			out.Close()
		})
	}
	both.Wait()
	r.mu.Lock()
	delete(r.conns, c)
	delete(r.conns, out)
	r.mu.Unlock()
}

func (r *relay) cut(broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = broken
	if broken {
		for c := range r.conns {
			c.Close()
		}
	}
}

// ChildrenOf lists the process ids of this process's children whose command line holds a text, from Linux's /proc.
func ChildrenOf(text string) (pids []int) {
	self := strconv.Itoa(os.Getpid())
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 || fields[1] != self {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
