package nccl

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Log is what a log of NCCL_DEBUG=INFO tells of fabrics.
type Log struct {
	Fabrics []Fabric
	Comms   []Comm
	Rails   []Rails
	// Malformed is how many lines begin as one of these and go on otherwise.
	Malformed int
}

// Process is who wrote a line.
type Process struct {
	Host   string
	PID    int
	Device int
}

// Fabric is how one GPU is registered in the NVLink fabric, as NVML told NCCL.
type Fabric struct {
	Process
	Bus         string // as 0x801000
	ClusterUUID string // all zeros = no domain that spans nodes
	CliqueID    uint32
	State       uint32 // 3 = completed
	HealthMask  uint32
}

// Comm is one rank of a communicator.
type Comm struct {
	Process
	Handle                                    string
	Rank, Ranks, Nodes, LocalRanks, LocalRank int
	// MNNVL says whether NVLink joins the nodes; nil = the line does not tell.
	MNNVL *bool
}

// Rails are the NICs that one process uses, as mlx5_0:1/IB.
type Rails struct {
	Process
	NICs []string
}

var (
	logLine    = regexp.MustCompile(`(\S+):(\d+):\d+ \[(\d+)\] NCCL (?:INFO|WARN) (.*)$`)
	fabricLine = regexp.MustCompile(`^MNNVL busId (0x[0-9a-fA-F]+) fabric UUID ([0-9a-fA-F]{1,16})\.([0-9a-fA-F]{1,16}) cliqueId 0x([0-9a-fA-F]{1,8}) state (\d+) healthMask 0x([0-9a-fA-F]{1,8})`)
	commLine   = regexp.MustCompile(`^comm (0x[0-9a-fA-F]+) rank (\d+) nRanks (\d+) nNodes (\d+) localRanks (\d+) localRank (\d+)(?: MNNVL (\d+))?`)
	railNIC    = regexp.MustCompile(`\[\d+\](\S+)`)
)

// ParseLog reads a log, in which lines of other programs may stand. A line that was cut is counted and left out.
func ParseLog(r io.Reader) (*Log, error) {
	l := &Log{}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if m := logLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil {
			l.take(m, err == nil)
		}
		if err != nil {
			return l, nil
		}
	}
}

func (l *Log) take(m []string, whole bool) {
	text := m[4]
	p := Process{Host: m[1]}
	ok := whole && atoi(m[2], &p.PID) && atoi(m[3], &p.Device)
	switch {
	case strings.HasPrefix(text, "MNNVL busId "):
		f, good := parseFabric(text)
		if f.Process = p; ok && good {
			l.Fabrics = append(l.Fabrics, f)
		} else {
			l.Malformed++
		}
	case strings.HasPrefix(text, "comm ") && strings.Contains(text, " nRanks "):
		c, good := parseComm(text)
		if c.Process = p; ok && good {
			l.Comms = append(l.Comms, c)
		} else {
			l.Malformed++
		}
	case strings.HasPrefix(text, "NET/IB : Using "):
		nics, _, _ := strings.Cut(strings.TrimPrefix(text, "NET/IB : Using "), ";")
		r := Rails{Process: p}
		for _, nic := range railNIC.FindAllStringSubmatch(nics, -1) {
			r.NICs = append(r.NICs, nic[1])
		}
		if ok && len(r.NICs) > 0 {
			l.Rails = append(l.Rails, r)
		} else {
			l.Malformed++
		}
	}
}

func atoi(text string, to *int) bool {
	n, err := strconv.ParseInt(text, 10, 32)
	*to = int(n)
	return err == nil
}

func parseFabric(text string) (f Fabric, ok bool) {
	m := fabricLine.FindStringSubmatch(text)
	if m == nil {
		return f, false
	}
	clique, err1 := strconv.ParseUint(m[4], 16, 32)
	state, err2 := strconv.ParseUint(m[5], 10, 32)
	mask, err3 := strconv.ParseUint(m[6], 16, 32)
	uuid, err4 := decodeUUID(m[2], m[3])
	return Fabric{
		Bus: m[1], ClusterUUID: uuid, CliqueID: uint32(clique), State: uint32(state), HealthMask: uint32(mask),
	}, errors.Join(err1, err2, err3, err4) == nil
}

// decodeUUID puts a ClusterUUID together. NCCL prints its 16 bytes as two little-endian integers, without leading zeros.
func decodeUUID(first, second string) (string, error) {
	var b [16]byte
	for i, text := range []string{first, second} {
		n, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return "", err
		}
		binary.LittleEndian.PutUint64(b[8*i:], n)
	}
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], nil
}

func parseComm(text string) (c Comm, ok bool) {
	m := commLine.FindStringSubmatch(text)
	if m == nil {
		return c, false
	}
	c.Handle = m[1]
	for i, to := range []*int{&c.Rank, &c.Ranks, &c.Nodes, &c.LocalRanks, &c.LocalRank} {
		if !atoi(m[i+2], to) {
			return c, false
		}
	}
	if m[7] != "" {
		on := m[7] != "0"
		c.MNNVL = &on
	}
	return c, true
}

// completed is NVML's state of a GPU that is registered.
const completed = 3

// Domains gives the NVLink domain of each host whose GPUs are registered and agree: the ClusterUUID, or node:HOST for
// hardware without a domain that spans nodes.
func (l *Log) Domains() map[string]string {
	out, differ := map[string]string{}, map[string]bool{}
	for _, f := range l.Fabrics {
		domain := f.ClusterUUID
		if strings.Trim(domain, "0-") == "" {
			domain = "node:" + f.Host
		}
		if before, ok := out[f.Host]; f.State != completed || ok && before != domain {
			differ[f.Host] = true
		}
		out[f.Host] = domain
	}
	for host := range differ {
		delete(out, host)
	}
	return out
}
