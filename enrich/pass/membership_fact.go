package pass

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/schemas/event"
)

// Why a node's domain is unknown; ” = it is known.
const (
	reasonNoSource   = "no_source"   // somebody lists the node, nobody tells its domain
	reasonInProgress = "in_progress" // its fabric has not finished registering
	reasonUnhealthy  = "unhealthy"   // its fabric says that it failed
	reasonConflict   = "conflict"    // the evidence contradicts itself
	reasonRemoved    = "removed"     // every source that listed it no longer does
)

// ownPrefix begins the domain of a node whose GPUs share NVLink with no other node.
const ownPrefix = "node:"

// fabricSources read the fabric's own identity, so that their domain names are ClusterUUIDs and can be compared with
// each other letter by letter. The names of all other sources mean something only inside that source.
var fabricSources = map[string]bool{
	event.SourceNVML: true, event.SourceDCGM: true, event.SourceComputeDomain: true, event.SourceGFDLabel: true,
}

// fact is what one source says of where one node sits, in the words of the membership table: a domain, or the reason
// why there is none. reasonNoSource and reasonRemoved leave the word to the next source, the others do not.
type fact struct {
	domain    string
	partition string
	reason    string
	levels    map[string]string // above the domain: spine, leaf, rack, block, ...
}

// decides reports whether the source has a say in the node's domain: it knows it, or knows that it cannot be known.
func (f *fact) decides() bool {
	return f != nil && f.reason != reasonNoSource && f.reason != reasonRemoved
}

func (f fact) equal(g fact) bool {
	return f.domain == g.domain && f.partition == g.partition && f.reason == g.reason && maps.Equal(f.levels, g.levels)
}

// gpuIdentity is the fabric identity of one GPU as its source printed it.
type gpuIdentity struct {
	clusterUUID string
	cliqueID    *uint32
	state       string
	status      string
}

// membershipRecord is one raw record, as far as the node's place depends on it.
type membershipRecord struct {
	node    string
	levels  []string
	values  []string
	gpus    []gpuIdentity
	removed bool
}

// fact gives what the record says. A fabric identity counts only when its registration is complete and successful. The
// zero ClusterUUID, or a product without multi-node NVLink, makes the node a domain of its own: grouping by zero would
// make one domain of all such nodes. A partition is the pair of domain and clique, since a CliqueID alone repeats.
func (r membershipRecord) fact() fact {
	if r.removed {
		return fact{reason: reasonRemoved, levels: map[string]string{}}
	}
	f := fact{reason: reasonNoSource, levels: map[string]string{}}
	var domains, partitions []string
	for i, level := range r.levels {
		switch {
		case r.values[i] == "":
		case level == event.LevelDomain:
			domains = append(domains, r.values[i])
		case level == event.LevelPartition:
			partitions = append(partitions, r.values[i])
		case level == event.LevelNode: // says nothing that the key does not
		default:
			if _, twice := f.levels[level]; !twice {
				f.levels[level] = r.values[i]
			}
		}
	}
	if r.fabric(&f) {
		return f
	}
	domains, partitions = distinct(domains), distinct(partitions)
	switch {
	case len(domains) > 1 || len(domains) == 1 && len(partitions) > 1:
		f.reason = reasonConflict
	case len(domains) == 1 && zeroUUID(domains[0]):
		f.own(r.node)
	case len(domains) == 1:
		f.domain, f.reason = domains[0], ""
		if len(partitions) == 1 {
			f.partition = pair(f.domain, partitions[0])
		}
	}
	return f
}

// fabric fills f from the GPUs' identities; false = they say nothing.
func (r membershipRecord) fabric(f *fact) bool {
	var own, unhealthy, progress bool
	var domains, cliques []string
	for _, g := range r.gpus {
		switch state := strings.ToLower(g.state); {
		case state == "not_supported":
			own = true
		case state == "not_started" || state == "in_progress":
			progress = true
		case state != "completed" || g.status == "": // the source does not tell how the registration went
		case strings.ToLower(g.status) != "success":
			unhealthy = true
		case g.clusterUUID != "" && strings.Trim(g.clusterUUID, "0-") == "":
			own = true
		case g.clusterUUID != "":
			domain := strings.ToLower(g.clusterUUID)
			domains = append(domains, domain)
			if g.cliqueID != nil {
				cliques = append(cliques, pair(domain, strconv.FormatUint(uint64(*g.cliqueID), 10)))
			}
		}
	}
	domains, cliques = distinct(domains), distinct(cliques)
	switch {
	case unhealthy:
		f.reason = reasonUnhealthy
	case progress:
		f.reason = reasonInProgress
	case len(domains) > 1 || len(cliques) > 1 || own && len(domains) > 0:
		f.reason = reasonConflict
	case own:
		f.own(r.node)
	case len(domains) == 1:
		f.domain, f.reason = domains[0], ""
		if len(cliques) == 1 {
			f.partition = cliques[0]
		}
	default:
		return false
	}
	return true
}

func (f *fact) own(node string) {
	f.domain, f.partition, f.reason = ownPrefix+node, ownPrefix+node, ""
}

func ownDomain(domain string) bool { return strings.HasPrefix(domain, ownPrefix) }

// pair names a partition by its domain and its clique; a source that gives the pair itself is taken at its word.
func pair(domain, clique string) string {
	if strings.HasPrefix(clique, domain+".") {
		return clique
	}
	return domain + "." + clique
}

// zeroUUID recognises the ClusterUUID of hardware without multi-node NVLink among names of any kind: a Slurm block may
// well be called "0".
func zeroUUID(s string) bool {
	return strings.Count(s, "0") == 32 && strings.Trim(s, "0-") == ""
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}
