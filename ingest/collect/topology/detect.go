package topology

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// Format is the form of a document.
type Format string

// The formats. FormatAuto is none: the content tells.
const (
	FormatAuto     Format = "auto"
	FormatConf     Format = "topology.conf"
	FormatYAML     Format = "topology.yaml"
	FormatScontrol Format = "scontrol"
	FormatNodes    Format = "nodes"
	FormatGraph    Format = "graph"
	FormatCSV      Format = "csv"
	FormatStatic   Format = "static"
)

// Formats lists all of them.
func Formats() []Format {
	return []Format{FormatAuto, FormatConf, FormatYAML, FormatScontrol, FormatNodes, FormatGraph, FormatCSV, FormatStatic}
}

// source is who a document of the format speaks for, as event.MembershipSources names it.
func (f Format) source() string {
	switch f {
	case FormatGraph:
		return event.SourceTopograph
	case FormatCSV, FormatStatic:
		return event.SourceStatic
	}
	return event.SourceSlurmTopology
}

// DetectBytes is how much of a document [Detect] needs at most.
const DetectBytes = 64 << 10

var (
	confLine     = regexp.MustCompile(`(?im)^[ \t]*(BlockName|SwitchName|RingName|BlockSizes|BlockLevels)[ \t]*=`)
	scontrolLine = regexp.MustCompile(`(?m)^(\$ .*\bscontrol\b.* topo|BlockName=\S* BlockIndex=|AggregatedBlock=|SwitchName=\S* Level=|RingName=.* RingSize=|TorusName=|slurm_load_topo error|scontrol: error)`)
	yamlLine     = regexp.MustCompile(`(?m)^[ \t]*- +"?topology"?[ \t]*:`)
	staticLine   = regexp.MustCompile(`(?m)^nodes:`)
	csvLine      = regexp.MustCompile(`(?i)^"?nodes?"?[ \t]*[,;\t]|[,;\t][ \t]*"?nodes?"?[ \t]*([,;\t]|$)`)
)

// Detect tells the format of a document by its beginning; ok is false for what is none of them. Other JSON documents
// with nodes in them, such as a request to Topograph, are none.
func Detect(head []byte) (f Format, ok bool) {
	text := strings.TrimSpace(strings.TrimPrefix(string(head), "\ufeff"))
	switch {
	case text == "":
		return "", false
	case text[0] == '{':
		return detectJSON([]byte(text))
	case scontrolLine.MatchString(text):
		return FormatScontrol, true
	case confLine.MatchString(text):
		return FormatConf, true
	case staticLine.MatchString(text):
		return FormatStatic, true
	case yamlLine.MatchString(text):
		return FormatYAML, true
	case csvLine.MatchString(firstLine(text)):
		return FormatCSV, true
	}
	return "", false
}

// firstLine is the first line that is neither empty nor a comment.
func firstLine(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line
		}
	}
	return ""
}

// detectJSON goes by the first keys of the object and of its first node.
func detectJSON(head []byte) (Format, bool) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if expectDelim(dec, '{') != nil {
		return "", false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return "", false
		}
		switch key {
		case "instances":
			return FormatGraph, true
		case "nodes":
			// A node of Slurm has a name; what Topograph is asked with, a region and instances.
			if slurmNode(dec) {
				return FormatNodes, true
			}
			return "", false
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return "", false
		}
	}
	return "", false
}

// slurmNode reads into a list of nodes until a key tells. An empty list is Slurm's.
func slurmNode(dec *json.Decoder) bool {
	if expectDelim(dec, '[') != nil {
		return false
	}
	if !dec.More() {
		return true
	}
	if expectDelim(dec, '{') != nil {
		return false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return false
		}
		switch key {
		case "name", "hostname", "architecture", "gres", "topology":
			return true
		case "instances", "region":
			return false
		}
		var skip json.RawMessage
		if dec.Decode(&skip) != nil {
			return false
		}
	}
	return false
}

// Parse reads a document of a format. With FormatAuto the content tells which, and an empty document is an empty map. A
// document compressed by gzip is read as what is in it.
func Parse(r io.Reader, name string, f Format) (*Map, error) {
	r, err := uncompressed(r, name)
	if err != nil {
		return nil, err
	}
	if f == FormatAuto || f == "" {
		head := make([]byte, DetectBytes)
		n, err := io.ReadFull(r, head)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%s: read: %w", name, err)
		}
		head = head[:n]
		if len(bytes.TrimSpace(head)) == 0 && n < DetectBytes {
			return &Map{File: name}, nil
		}
		var ok bool
		if f, ok = Detect(head); !ok {
			return nil, fmt.Errorf("%s: not a topology that is known here: expected Slurm's topology.conf or topology.yaml, the output of "+
				"`scontrol show topology`, `scontrol show topoconf` or `scontrol show node --json`, a graph of Topograph, or a table with the column node; "+
				"name its format if it is one of them", name)
		}
		r = io.MultiReader(bytes.NewReader(head), r)
	}
	switch f {
	case FormatConf:
		return ParseConf(r, name)
	case FormatYAML:
		return ParseYAML(r, name)
	case FormatScontrol:
		return ParseScontrol(r, name)
	case FormatNodes:
		return ParseNodes(r, name)
	case FormatGraph:
		return ParseGraph(r, name)
	case FormatCSV:
		return ParseCSV(r, name)
	case FormatStatic:
		return ParseStatic(r, name)
	}
	return nil, fmt.Errorf("%s: format %q is not known; expected one of %v", name, f, Formats())
}

// uncompressed looks for the mark of gzip.
func uncompressed(r io.Reader, name string) (io.Reader, error) {
	mark := make([]byte, 2)
	n, err := io.ReadFull(r, mark)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: read: %w", name, err)
	}
	r = io.MultiReader(bytes.NewReader(mark[:n]), r)
	if n < 2 || mark[0] != 0x1f || mark[1] != 0x8b {
		return r, nil
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: uncompress: %w", name, err)
	}
	return z, nil
}
