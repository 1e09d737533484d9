package topology

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/ingest/collect/slurm/hostlist"
	"github.com/spillway-io/spillway/schemas/event"
)

// Kind is the shape of one topology, in Slurm's words.
type Kind string

// The kinds. KindLabels is a plain list of names per node that says of itself which level each is.
const (
	KindBlock   Kind = "block"
	KindTree    Kind = "tree"
	KindFlat    Kind = "flat"
	KindRing    Kind = "ring"
	KindTorus3D Kind = "torus3d"
	KindLabels  Kind = "labels"
)

// Levels beyond those of the contract. A tree deeper than three switches has tier3, tier4 and so on above its core; of
// several aggregated blocks the smallest is event.LevelBlockGroup, a larger one of n blocks block_group_n.
const (
	levelCore  = "core"
	levelRing  = "ring"
	levelTorus = "torus"
	// levelUnit is a name that Slurm gave without saying what it names, see [ParseNodes].
	levelUnit = "unit"
)

// Map is all that one document says.
type Map struct {
	File       string     // the document's name, as given to its parser
	Format     Format     // its form
	Topologies []Topology // in the order of the document
	Issues     []Issue    // what is suspect but did not make the document unusable
}

// Topology is one named topology of a document.
type Topology struct {
	Name    string
	Kind    Kind
	Default bool  // the cluster's default, where the document says so
	Sizes   []int // block sizes as configured, in nodes; only of kind block
	Nodes   []Node
}

// Node is one node and its levels, outermost first.
type Node struct {
	Name   string
	Levels []Level
}

// Level is one step of the topology above a node.
type Level struct {
	Level string // event.LevelLeaf and so on
	Value string
}

// Issue is something suspect in a document.
type Issue struct {
	Where string // file:line, or the file alone
	Text  string // what is suspect, and what to do
}

// String is the issue as one line.
func (i Issue) String() string { return i.Where + ": " + i.Text }

// Limits of one document. They are far above any cluster, and keep a hostile or broken one from filling the memory.
const (
	maxDocument  = 64 << 20 // bytes, of everything but node listings, which are streamed
	maxNodes     = 1 << 20  // node names in all lists of one document together
	maxTreeDepth = 16       // switches above one another
)

// document is the state of one parse: the name for messages, what is left of the limits, and the issues so far.
type document struct {
	name   string
	format Format
	names  int // in all hostlists
	offset int // lines before the part being read
	issues []Issue
}

// placedError is an error at a place of the document.
type placedError struct {
	where string
	err   error
}

func (e *placedError) Error() string { return e.where + ": " + e.err.Error() }
func (e *placedError) Unwrap() error { return e.err }

// errf is an error at a line of the document; line 0 is the document as a whole.
func (d *document) errf(line int, format string, args ...any) error {
	return &placedError{d.where(line), fmt.Errorf(format, args...)}
}

func (d *document) issuef(line int, format string, args ...any) {
	d.issues = append(d.issues, Issue{Where: d.where(line), Text: fmt.Sprintf(format, args...)})
}

func (d *document) where(line int) string {
	if line == 0 {
		return d.name
	}
	return fmt.Sprintf("%s:%d", d.name, line)
}

// expand reads a hostlist of the document. what names its place for messages.
func (d *document) expand(line int, what, expr string) ([]string, error) {
	n, err := hostlist.Count(expr)
	if err != nil {
		return nil, d.errf(line, "%s: %w", what, err)
	}
	if d.names += n; d.names > maxNodes {
		return nil, d.errf(line, "%s: more than %d names in one document; check its ranges", what, maxNodes)
	}
	names, err := hostlist.Expand(expr)
	if err != nil {
		return nil, d.errf(line, "%s: %w", what, err)
	}
	return names, nil
}

// readAll reads a whole document and refuses one that is too large or not text.
func (d *document) readAll(r io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return "", d.errf(0, "read: %w", err)
	}
	if len(b) > maxDocument {
		return "", d.errf(0, "larger than the %d MiB a topology may have; is this the right file?", maxDocument>>20)
	}
	if i := slices.Index(b, 0); i >= 0 {
		return "", d.errf(0, "byte %d is zero: this is not text; is this the right file?", i)
	}
	return strings.TrimPrefix(string(b), "\ufeff"), nil
}

func (d *document) result(topologies []Topology) *Map {
	return &Map{File: d.name, Format: d.format, Topologies: topologies, Issues: d.issues}
}

// clique is the form in which NVIDIA's tools print a partition: ClusterUUID.CliqueID.
var clique = regexp.MustCompile(`^([0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})(?:\.([0-9]+))?$`)

const zeroUUID = "00000000-0000-0000-0000-000000000000"

// fabricLevels splits what a source took for a node's NVLink domain. A "ClusterUUID.CliqueID" is a partition of the
// domain ClusterUUID. The zero UUID is printed by GPUs that share no fabric with other nodes: there the node is its own
// domain, for grouping by it would make one domain of the whole fleet.
func fabricLevels(node, value string) []Level {
	m := clique.FindStringSubmatch(value)
	switch {
	case m == nil:
		return []Level{{event.LevelDomain, value}}
	case m[1] == zeroUUID:
		own := "node:" + node
		return []Level{{event.LevelDomain, own}, {event.LevelPartition, own}}
	case m[2] == "":
		return []Level{{event.LevelDomain, value}}
	}
	return []Level{{event.LevelDomain, m[1]}, {event.LevelPartition, value}}
}

// knownLevels, outermost first.
var knownLevels = []string{
	levelCore, event.LevelSpine, event.LevelLeaf, event.LevelRack, levelTorus, levelRing,
	event.LevelBlockGroup, event.LevelBlock, event.LevelDomain, event.LevelPartition,
}

// rank orders levels outermost first. Levels that nobody but the site knows come first, in the order they were given.
func rank(level string) int {
	if i := slices.Index(knownLevels, level); i >= 0 {
		return 1_000_000 + i*100_000
	}
	// Larger is further out: tier4 before tier3 before core, block_group_8 before block_group_4 before block_group.
	if n, ok := numbered(level, "tier"); ok {
		return 1_000_000 - n
	}
	if n, ok := numbered(level, event.LevelBlockGroup+"_"); ok {
		return 1_000_000 + slices.Index(knownLevels, event.LevelBlockGroup)*100_000 - n
	}
	return 0
}

func numbered(s, prefix string) (int, bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || rest == "" || len(rest) > 5 || strings.Trim(rest, "0123456789") != "" {
		return 0, false
	}
	n := 0
	for _, c := range rest {
		n = n*10 + int(c-'0')
	}
	return min(n, math.MaxUint16), true
}

// sortLevels puts levels in order, outermost first.
func sortLevels(levels []Level) {
	slices.SortStableFunc(levels, func(a, b Level) int { return rank(a.Level) - rank(b.Level) })
}
