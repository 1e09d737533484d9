//go:build !dcgm

package dcgm

import (
	"errors"
	"io"
)

var errNotBuilt = errors.New("this program was built without NVIDIA's libraries, which need cgo: build one with them by " +
	"`make build-dcgm` (CGO_ENABLED=1 go build -tags dcgm ./cmd/spillway), or scrape a dcgm-exporter")

func openDCGM(helperOptions, io.Writer) (answerer, error) { return nil, errNotBuilt }

// Built says why this program cannot ask DCGM itself; nil = it can.
func Built() error { return errNotBuilt }
