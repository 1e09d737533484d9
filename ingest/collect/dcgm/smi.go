package dcgm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
)

// smi is the counters of a machine without DCGM, from two outputs of nvidia-smi: nvlink -gt d, of what each link has
// carried, and nvlink -s, of which links are up. They become what DCGM would have answered.

var (
	smiGPU  = regexp.MustCompile(`^GPU (\d+): (.+) \(UUID: (GPU-\S+)\)$`)
	smiLink = regexp.MustCompile(`^Link (\d+): (.+)$`)
	smiData = regexp.MustCompile(`^Data (Tx|Rx): (\d+) KiB$`)
	smiRate = regexp.MustCompile(`^[0-9.]+ GB/s$`)
)

// smiFields are the fields of DCGM that mean the same.
var smiFields = map[string]uint16{"Tx": 1201, "Rx": 1203}

const (
	fieldLinkState = 1508
	linkIsDown     = "0"
	linkIsUp       = "1"
)

// parseSMI reads the text of nvidia-smi nvlink -gt d or -s. Values that are not known, as N/A, are left out.
func parseSMI(text []byte, millis int64) ([]gpuAnswer, error) {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return nil, fmt.Errorf("the output of nvidia-smi nvlink ends in the middle of a line, after %d bytes", len(text))
	}
	var gpus []gpuAnswer
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if m := smiGPU.FindStringSubmatch(line); m != nil {
			id, err := strconv.ParseUint(m[1], 10, 16)
			if err != nil || int(id) < len(gpus) {
				return nil, fmt.Errorf("%q comes after %d GPUs: give one output at a time", line, len(gpus))
			}
			gpus = append(gpus, gpuAnswer{
				id: uint32(id), texts: map[uint16]string{fieldModel: m[2], fieldUUID: m[3]}, links: map[uint32][]valueAnswer{},
			})
			continue
		}
		m := smiLink.FindStringSubmatch(line)
		if m == nil || len(gpus) == 0 {
			continue
		}
		number, err := strconv.ParseUint(m[1], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is of no link", line)
		}
		g := &gpus[len(gpus)-1]
		link := uint32(number)
		values := g.links[link]
		switch data := smiData.FindStringSubmatch(m[2]); {
		case data != nil:
			kib, err := strconv.ParseUint(data[2], 10, 53)
			if err != nil {
				return nil, fmt.Errorf("%q is more than a link carries in its life", line)
			}
			values = append(values, valueAnswer{smiFields[data[1]], strconv.FormatUint(kib*1024, 10), millis})
		case m[2] == "<inactive>":
			values = append(values, valueAnswer{fieldLinkState, linkIsDown, millis})
		case smiRate.MatchString(m[2]):
			values = append(values, valueAnswer{fieldLinkState, linkIsUp, millis})
		}
		g.links[link] = values
	}
	if len(gpus) == 0 {
		return nil, fmt.Errorf("the output of nvidia-smi nvlink lists no GPU: %.200q", text)
	}
	return gpus, nil
}

// joinSMI puts both outputs together. They are of the same GPUs, or one of them was cut.
func joinSMI(data, states []gpuAnswer) ([]gpuAnswer, error) {
	if len(data) != len(states) {
		return nil, fmt.Errorf("nvidia-smi nvlink lists %d GPUs with -gt d, and %d with -s", len(data), len(states))
	}
	for i := range data {
		g, s := &data[i], &states[i]
		if g.texts[fieldUUID] != s.texts[fieldUUID] {
			return nil, fmt.Errorf("nvidia-smi nvlink lists %s with -gt d where it lists %s with -s", g.texts[fieldUUID], s.texts[fieldUUID])
		}
		// A GPU carries what its links do, if all that are up tell.
		sums, whole := map[uint16]uint64{}, true
		for link, state := range s.links {
			var carried []valueAnswer
			for _, v := range g.links[link] {
				if n, err := strconv.ParseUint(v.number, 10, 64); err == nil && v.field != fieldLinkState {
					sums[v.field] += n
					carried = append(carried, v)
				}
			}
			up := len(state) > 0 && state[0].number == linkIsUp
			whole = whole && (len(carried) == len(smiFields) || !up)
			g.links[link] = append(carried, state...)
		}
		for link, values := range g.links {
			if _, ok := s.links[link]; !ok && len(values) > 0 {
				return nil, fmt.Errorf("nvidia-smi nvlink lists link %d of GPU %d with -gt d alone", link, g.id)
			}
		}
		for _, field := range []uint16{smiFields["Tx"], smiFields["Rx"]} {
			if n, ok := sums[field]; ok && whole && len(s.links) > 0 {
				g.values = append(g.values, valueAnswer{field, strconv.FormatUint(n, 10), g.millis()})
			}
		}
	}
	return data, nil
}

func (g *gpuAnswer) millis() int64 {
	for _, values := range g.links {
		for _, v := range values {
			return v.millis
		}
	}
	return 0
}

// askSMI runs nvidia-smi twice and gives what it says as an exposition.
func askSMI(ctx context.Context, run *scrape.Command, command []string, at time.Time, limit int) ([]byte, error) {
	var parts [2][]gpuAnswer
	for i, options := range [][]string{{"nvlink", "-gt", "d"}, {"nvlink", "-s"}} {
		text, said, err := run.Run(ctx, append(command[:len(command):len(command)], options...), limit)
		if errors.Is(err, scrape.ErrTooLong) {
			err = fmt.Errorf("the output has more than %d bytes; raise max_bytes if that is right", limit)
		}
		if err != nil {
			return nil, fmt.Errorf("run %s %s: %w: %.200s%.200s", command[0], strings.Join(options, " "), err, said, text)
		}
		if parts[i], err = parseSMI(text, at.UnixMilli()); err != nil {
			return nil, err
		}
	}
	gpus, err := joinSMI(parts[0], parts[1])
	if err != nil {
		return nil, err
	}
	return exposition(gpus), nil
}
