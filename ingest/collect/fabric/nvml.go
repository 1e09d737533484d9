package fabric

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// RunHelper prints what NVML tells of the fabric of this machine's GPUs, as one JSON document. The collector runs it as a
// process of its own: a driver that crashes or hangs takes nothing else along.
func RunHelper(out io.Writer) error {
	gpus, err := readNVML()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(document{GPUs: gpus})
}

// document is what the helper prints.
type document struct {
	GPUs []nvmlGPU `json:"gpus"`
}

// nvmlGPU is one GPU as NVML numbers things. What the driver does not tell is null.
type nvmlGPU struct {
	Index       uint32  `json:"index"`
	UUID        string  `json:"uuid"`
	State       *uint8  `json:"state"`
	Status      *uint32 `json:"status"` // a return code of NVML; it counts once the state is completed
	StatusText  string  `json:"status_text"`
	ClusterUUID string  `json:"cluster_uuid"` // 32 digits
	CliqueID    *uint32 `json:"clique_id"`
	HealthMask  *uint32 `json:"health_mask"`
}

// ParseNVML reads what the helper printed.
func ParseNVML(text []byte) ([]GPU, []string, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, nil, fmt.Errorf("read what NVML tells: %w", err)
	}
	if len(d.GPUs) == 0 {
		return nil, nil, errors.New("NVML lists no GPU on this machine")
	}
	var gpus []GPU
	var unknown []string
	seen := map[string]bool{}
	for i, g := range d.GPUs {
		if int(g.Index) != i || g.UUID == "" || seen[g.UUID] {
			return nil, nil, fmt.Errorf("GPU %d of what NVML tells is said to be GPU %d, %q", i, g.Index, g.UUID)
		}
		seen[g.UUID] = true
		told := GPU{UUID: g.UUID, Told: g.State != nil}
		if g.State != nil {
			if int(*g.State) < len(states) {
				told.State = states[*g.State]
			} else {
				unknown = append(unknown, fmt.Sprintf("state: %d", *g.State))
			}
		}
		// Identity and status of a registration that is not over mean nothing yet.
		if told.State == event.FabricCompleted {
			if g.Status != nil {
				told.Status = statusWord(*g.Status, g.StatusText)
			}
			told.CliqueID = g.CliqueID
			raw, err := hex.DecodeString(g.ClusterUUID)
			if err != nil || len(raw) != 0 && len(raw) != 16 {
				return nil, nil, fmt.Errorf("GPU %d has the ClusterUUID %q, which is none", i, g.ClusterUUID)
			}
			if h := hex.EncodeToString(raw); h != "" {
				told.ClusterUUID = strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
			}
		}
		if g.HealthMask != nil {
			told.Health = event.DecodeFabricHealth(*g.HealthMask)
		}
		gpus = append(gpus, told)
	}
	return gpus, unknown, nil
}

// states are NVML_GPU_FABRIC_STATE_* of nvml.h.
var states = [...]string{event.FabricNotSupported, event.FabricNotStarted, event.FabricInProgress, event.FabricCompleted}

func statusWord(code uint32, text string) string {
	switch {
	case code == 0:
		return event.FabricSuccess
	case text == "":
		return fmt.Sprintf("%s_%d", event.FabricFailure, code)
	}
	return strings.ReplaceAll(strings.ToLower(text), " ", "_")
}
