package fabric

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// GPU is the fabric section of one GPU.
type GPU struct {
	Bus         string // as 00000008:01:00.0
	UUID        string
	ClusterUUID string // empty = not told
	CliqueID    *uint32
	State       string // a word of event.Fabric..., or empty for not told
	Status      string
	Health      event.FabricHealth
	// Told says that the driver has a fabric section at all; those before 525 have none.
	Told bool

	rows int // of the fabric section
}

// Parse reads the text of nvidia-smi -q, whole or with the fabric sections alone (-q -d FABRIC does not exist in every
// driver). GPUs come in the order of the text, which is that of their PCI addresses and so of their indices. Rows that are
// not known are skipped, and values that are not known are listed. An output that is cut, lists a GPU twice, or lists
// fewer GPUs than it says there are, is an error.
func Parse(r io.Reader) (gpus []GPU, unknown []string, err error) {
	p := parser{attached: -1}
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF) && line == "":
			return p.end()
		case errors.Is(err, io.EOF):
			return nil, nil, fmt.Errorf("line %d: the output ends in the middle of a line: %.80q", n, line)
		case err != nil:
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
		if err := p.line(line); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

type parser struct {
	gpus     []GPU
	unknown  []string
	attached int       // as the output says; -1 = it does not
	path     []section // of the line before, outermost first
}

// section is a heading and how far it is indented.
type section struct {
	indent int
	name   string
}

func (p *parser) line(line string) error {
	text := strings.TrimSpace(line)
	if text == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "=") {
		return nil
	}
	indent := len(line) - len(strings.TrimLeft(line, " \t"))
	for len(p.path) > 0 && p.path[len(p.path)-1].indent >= indent {
		p.path = p.path[:len(p.path)-1]
	}
	if bus, ok := strings.CutPrefix(text, "GPU "); ok && indent == 0 && !strings.Contains(bus, " ") {
		p.gpus = append(p.gpus, GPU{Bus: bus})
		p.path = append(p.path, section{indent, text})
		return nil
	}
	key, value, isRow := strings.Cut(text, " : ")
	if !isRow {
		p.path = append(p.path, section{indent, strings.TrimSuffix(text, " :")})
		return nil
	}
	return p.row(strings.TrimSpace(key), strings.TrimSpace(value))
}

func (p *parser) row(key, value string) error {
	if key == "Attached GPUs" && len(p.gpus) == 0 {
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is no number of attached GPUs", value)
		}
		p.attached = n
		return nil
	}
	if len(p.gpus) == 0 {
		return nil
	}
	g := &p.gpus[len(p.gpus)-1]
	switch {
	case len(p.path) == 1 && key == "GPU UUID":
		for _, other := range p.gpus[:len(p.gpus)-1] {
			if other.UUID == value {
				return fmt.Errorf("the GPU %s is listed twice: give one output at a time", value)
			}
		}
		g.UUID = value
	case p.in("Fabric"):
		g.Told = true
		g.rows++
		return p.fabric(g, key, value)
	case p.in("Fabric", "Health"):
		g.rows++
		p.health(&g.Health, key, value)
	}
	return nil
}

// in says whether the line is directly in these sections of a GPU.
func (p *parser) in(names ...string) bool {
	if len(p.path) != len(names)+1 {
		return false
	}
	for i, name := range names {
		if p.path[i+1].name != name {
			return false
		}
	}
	return true
}

const notAvailable = "N/A"

func (p *parser) fabric(g *GPU, key, value string) error {
	switch key {
	case "State":
		switch value {
		case "Completed":
			g.State = event.FabricCompleted
		case "In Progress":
			g.State = event.FabricInProgress
		case "Not Started":
			g.State = event.FabricNotStarted
		case "Not Supported", notAvailable: // hardware without a fabric that spans nodes
			g.State = event.FabricNotSupported
		default:
			p.unknown = append(p.unknown, key+": "+value)
		}
	case "Status":
		if value != notAvailable {
			g.Status = strings.ReplaceAll(strings.ToLower(value), " ", "_")
		}
	case "CliqueId":
		if value == notAvailable {
			return nil
		}
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is no CliqueId", value)
		}
		id := uint32(n)
		g.CliqueID = &id
	case "ClusterUUID":
		if value != notAvailable {
			g.ClusterUUID = value
		}
	}
	return nil
}

func (p *parser) health(h *event.FabricHealth, key, value string) {
	// bit is the answer to whether something is wrong.
	bit := func(bad, good string) event.HealthBit {
		switch value {
		case bad:
			return event.HealthBad
		case good:
			return event.HealthGood
		case notAvailable:
		default:
			p.unknown = append(p.unknown, key+": "+value)
		}
		return event.HealthNotTold
	}
	switch key {
	case "Bandwidth":
		h.DegradedBandwidth = bit("Degraded", "Full")
	case "Route Recovery in progress":
		h.RouteRecovery = bit("True", "False")
	case "Route Unhealthy":
		h.RouteUnhealthy = bit("True", "False")
	case "Access Timeout Recovery":
		h.AccessTimeoutRecovery = bit("True", "False")
	case "Incorrect Configuration":
		p.configuration(h, value)
	}
}

// configurations tells what is wrong by a word that the row must hold: how drivers print it is documented nowhere, the
// list of what can be wrong is (nvml.h).
var configurations = []struct{ word, name string }{
	{"guid", "system_guid"}, {"chassis", "chassis_serial_number"}, {"partition", "no_partition"}, {"nvlink", "insufficient_nvlinks"},
	{"firmware", "gpu_firmware"}, {"fw", "gpu_firmware"}, {"location", "invalid_location"}, {"state", "gpu_state"},
}

func (p *parser) configuration(h *event.FabricHealth, value string) {
	switch value {
	case "None":
		h.Configuration = event.HealthGood
		return
	case notAvailable:
		return
	}
	h.Configuration = event.HealthBad
	for _, c := range configurations {
		if strings.Contains(strings.ToLower(value), c.word) {
			h.Misconfigured = c.name
			return
		}
	}
	h.Configuration = event.HealthNotTold
	p.unknown = append(p.unknown, "Incorrect Configuration: "+value)
}

func (p *parser) end() ([]GPU, []string, error) {
	switch {
	case len(p.gpus) == 0:
		return nil, nil, errors.New("the output lists no GPU: is it that of nvidia-smi -q?")
	case p.attached >= 0 && p.attached != len(p.gpus):
		return nil, nil, fmt.Errorf("the output lists %d GPUs and says that there are %d: it was cut, or made with -i", len(p.gpus), p.attached)
	}
	told := false
	for _, g := range p.gpus {
		if g.UUID == "" {
			return nil, nil, fmt.Errorf("the output has no GPU UUID of GPU %s: it was cut, or made with other options than -q", g.Bus)
		}
		// One driver prints the same rows for all of its GPUs.
		if g.rows != p.gpus[0].rows {
			return nil, nil, fmt.Errorf("the output has %d rows of the fabric of GPU %s, and %d of that of GPU %s: it was cut",
				g.rows, g.Bus, p.gpus[0].rows, p.gpus[0].Bus)
		}
		told = told || g.Told
	}
	if !told {
		return nil, nil, errors.New("the output has no Fabric section: the driver is older than 525, or the output was made with other options than -q")
	}
	return p.gpus, p.unknown, nil
}
