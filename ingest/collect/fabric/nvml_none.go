//go:build !dcgm

package fabric

import "errors"

var errNotBuilt = errors.New("this program was built without NVIDIA's libraries, which need cgo: build one with them by " +
	"`make build-dcgm` (CGO_ENABLED=1 go build -tags dcgm ./cmd/spillway), or let command run nvidia-smi")

func readNVML() ([]nvmlGPU, error) { return nil, errNotBuilt }

// Built says why this program cannot ask NVML itself; nil = it can.
func Built() error { return errNotBuilt }
