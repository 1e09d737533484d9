package dcgm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The helper is this program in a process of its own, which loads NVIDIA's library and asks it. A library that crashes or
// hangs takes nothing else along. It speaks on standard input and output: a line is a question, and an answer is a header
// of one line, "ok BYTES" or "error BYTES", and then so many bytes: an exposition as an exporter would give it, with the
// times of the samples, or the reason why there is none. What else it has to say goes to standard error. It ends with its
// input, and after an error.

// helperOptions is what the collector tells its helper, as its one argument.
type helperOptions struct {
	Address  string        `json:"address"`
	Interval time.Duration `json:"interval"`
	Links    bool          `json:"links"`
}

// answerer is the library as the helper asks it.
type answerer interface {
	// answer tells all GPUs.
	answer() ([]gpuAnswer, error)
}

// gpuAnswer is what DCGM has of one GPU.
type gpuAnswer struct {
	id     uint32
	texts  map[uint16]string // by field
	values []valueAnswer
	links  map[uint32][]valueAnswer // by link
}

// valueAnswer is one number.
type valueAnswer struct {
	field  uint16
	number string // as an exposition has it
	millis int64
}

// Fields that a GPU is described by, which become labels.
const (
	fieldDriverVersion = 1
	fieldModel         = 50
	fieldUUID          = 54
)

// RunHelper is the helper process: it answers questions until in ends. The argument is the one that the collector gives.
func RunHelper(argument string, in io.Reader, out, log io.Writer) error {
	var o helperOptions
	if err := json.Unmarshal([]byte(argument), &o); err != nil {
		return fmt.Errorf("read the helper's argument: %w; it is for the dcgm collector alone", err)
	}
	return serveHelper(in, out, func() (answerer, error) { return openDCGM(o, log) })
}

// serveHelper answers each line of in. The end of in ends it even while the library hangs.
func serveHelper(in io.Reader, out io.Writer, open func() (answerer, error)) error {
	questions, done := make(chan struct{}), make(chan struct{})
	defer close(done)
	go func() {
		defer close(questions)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case questions <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	var library answerer
	for range questions {
		answered := make(chan error, 1)
		go func() {
			var err error
			if library == nil {
				library, err = open()
			}
			var gpus []gpuAnswer
			if err == nil {
				gpus, err = library.answer()
			}
			if err != nil {
				answered <- errors.Join(err, writeFrame(out, "error", []byte(err.Error())))
				return
			}
			answered <- writeFrame(out, "ok", exposition(gpus))
		}()
		select {
		case err := <-answered:
			if err != nil {
				return err
			}
		case <-questions: // closed, or a question before the last was answered, which nobody asks
			return nil
		}
	}
	return nil
}

func writeFrame(out io.Writer, kind string, body []byte) error {
	_, err := fmt.Fprintf(out, "%s %d\n%s", kind, len(body), body)
	return err
}

// helperError is an answer that says why there is none.
type helperError string

func (e helperError) Error() string { return string(e) }

// readFrame reads one answer, of at most limit bytes. An answer that is an error is a helperError.
func readFrame(in *bufio.Reader, limit int) ([]byte, error) {
	header, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, length, _ := strings.Cut(strings.TrimSuffix(header, "\n"), " ")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || kind != "ok" && kind != "error" {
		return nil, fmt.Errorf("the helper answers %.80q, which is no answer", header)
	}
	if n > limit {
		return nil, fmt.Errorf("the helper answers with %d bytes; raise max_bytes if that is right", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(in, body); err != nil {
		return nil, fmt.Errorf("the helper's answer broke off: %w", err)
	}
	if kind == "error" {
		return nil, helperError(body)
	}
	return body, nil
}

// directFields are the fields to ask for of GPUs as a whole and of links, in sets that are watched one by one: those of
// one set that the library refuses take no other along. 1200 and on stand alone: watched together with other fields
// (310, of ECC) they have no values on GB200.
func directFields() (gpu, link [][]uint16) {
	texts := []uint16{fieldDriverVersion, fieldModel, fieldUUID, fabricClusterUUID}
	var identities, counters5, profiling, others, links, links5, linksProfiling []uint16
	for _, f := range table() {
		switch {
		case f.number >= 0: // of one link, by its name: links are asked as such
		case f.kind == identity:
			identities = append(identities, f.id)
		case f.gpu != 0 && f.id >= 1200 && f.id < 1300:
			counters5 = append(counters5, f.id)
		case f.gpu != 0 && f.id >= 1000 && f.id < 1100:
			profiling = append(profiling, f.id)
		case f.gpu != 0:
			others = append(others, f.id)
		}
		switch {
		case f.number >= 0 || f.link == 0:
		case f.id >= 1200 && f.id < 1300:
			links5 = append(links5, f.id)
		case strings.HasPrefix(f.names[0], "PROF_"):
			linksProfiling = append(linksProfiling, f.id)
		default:
			links = append(links, f.id)
		}
	}
	return [][]uint16{texts, identities, counters5, profiling, others}, [][]uint16{links, links5, linksProfiling}
}

// exposition writes what DCGM has in the form of an exporter, under the newest name of each field.
func exposition(gpus []gpuAnswer) []byte {
	names := map[uint16]string{}
	for _, f := range table() {
		names[f.id] = "DCGM_FI_" + f.names[0]
	}
	var b bytes.Buffer
	for _, g := range gpus {
		labels := func(pairs ...string) string {
			var out strings.Builder
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i+1] != "" {
					fmt.Fprintf(&out, `%s="%s",`, pairs[i], labelText.Replace(pairs[i+1]))
				}
			}
			return strings.TrimSuffix(out.String(), ",")
		}
		index := strconv.FormatUint(uint64(g.id), 10)
		own := labels("gpu", index, "UUID", g.texts[fieldUUID], "modelName", g.texts[fieldModel],
			"DCGM_FI_DRIVER_VERSION", g.texts[fieldDriverVersion], "DCGM_FI_DEV_FABRIC_CLUSTER_UUID", g.texts[fabricClusterUUID])
		// That the GPU is there is told even where DCGM has no value of it.
		fmt.Fprintf(&b, "spillway_gpu{%s} 1\n", own)
		for _, v := range g.values {
			fmt.Fprintf(&b, "%s{%s} %s %d\n", names[v.field], own, v.number, v.millis)
		}
		for _, link := range slices.Sorted(maps.Keys(g.links)) {
			own := labels("nvlink", strconv.FormatUint(uint64(link), 10), "gpu", index, "gpu_uuid", g.texts[fieldUUID])
			for _, v := range g.links[link] {
				fmt.Fprintf(&b, "%s{%s} %s %d\n", names[v.field], own, v.number, v.millis)
			}
		}
	}
	return b.Bytes()
}

// labelText escapes the text of a label.
var labelText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
