package nic

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// word is the unit of port_xmit_data and port_rcv_data in sysfs: four bytes (InfiniBand specification, PortCounters).
const word = 4

// readSysfs reads all ports below root, as /sys. A file that is not there, or that says N/A, leaves its number absent; a
// port none of whose counters can be read makes the reading one that is not whole.
func readSysfs(root string, wants func(device string) bool) (ports []*port, whole bool, err error) {
	class := filepath.Join(root, "class", "infiniband")
	devices, err := os.ReadDir(class)
	if err != nil {
		return nil, false, fmt.Errorf("list InfiniBand and RoCE devices: %w; does the machine have one, and is its driver loaded?", err)
	}
	whole = true
	for _, d := range devices {
		if !wants(d.Name()) {
			continue
		}
		dir := filepath.Join(class, d.Name(), "ports")
		numbers, err := os.ReadDir(dir)
		if err != nil { // a device that is just being removed
			whole = false
			continue
		}
		for _, number := range numbers {
			n, err := strconv.ParseUint(number.Name(), 10, 16)
			if err != nil {
				continue
			}
			p, ok := readPort(filepath.Join(dir, number.Name()), d.Name(), uint32(n))
			if !ok {
				whole = false
				continue
			}
			ports = append(ports, p)
		}
	}
	if len(ports) == 0 {
		return nil, false, fmt.Errorf("no port can be read below %s", class)
	}
	return ports, whole, nil
}

func readPort(dir, device string, number uint32) (*port, bool) {
	p := newPort(device, number)
	known := false
	for c, file := range [counters]string{
		txBytes: "port_xmit_data", rxBytes: "port_rcv_data", txWait: "port_xmit_wait", recoveries: "link_error_recovery", downs: "link_downed",
	} {
		text, err := read(filepath.Join(dir, "counters", file))
		if err != nil {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil { // N/A (no PMA)
			continue
		}
		known = true
		p.values[c] = float64(n)
		if counter(c) == txBytes || counter(c) == rxBytes {
			p.values[c] *= word
		}
	}
	if text, err := read(filepath.Join(dir, "state")); err == nil {
		id, _, _ := strings.Cut(text, ":")
		if n, err := strconv.ParseUint(id, 10, 8); err == nil {
			p.state, known = stateOf(float64(n)), true
		}
	}
	if text, err := read(filepath.Join(dir, "rate")); err == nil {
		p.speed = parseSpeed(text)
	}
	if text, err := read(filepath.Join(dir, "link_layer")); err == nil && (text == "InfiniBand" || text == "Ethernet") {
		p.layer = text
	}
	if text, err := read(filepath.Join(dir, "gids", "0")); err == nil && isGID(text) {
		p.gid = text
	}
	return p, known
}

func read(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// parseSpeed reads a rate as 400 Gb/sec (4X NDR), in bytes per second; NaN for anything else.
func parseSpeed(text string) float64 {
	number, rest, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(rest, "Gb/sec") || !(v >= 0) || math.IsInf(v, 0) {
		return math.NaN()
	}
	return v * 1e9 / 8
}

// isGID says whether a text is eight groups of four digits of which the last four, the GUID, are not all zero: of a port
// without one they are.
func isGID(text string) bool {
	groups := strings.Split(text, ":")
	if len(groups) != 8 || slices.ContainsFunc(groups, func(g string) bool {
		_, err := strconv.ParseUint(g, 16, 16)
		return len(g) != 4 || err != nil
	}) {
		return false
	}
	return strings.Trim(strings.Join(groups[4:], ""), "0") != ""
}
