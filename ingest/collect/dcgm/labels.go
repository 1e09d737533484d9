package dcgm

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// role is what a label says.
type role uint8

const (
	roleGPU role = iota + 1
	roleUUID
	roleDevice
	roleModel
	roleNode
	roleMIG
	roleMIGProfile
	roleLink
	roleDriver
	roleClusterUUID
	roleJob
	roleNamespace
	rolePod
	roleContainer
	rolePodUID
	roles
)

// roleNames are the roles as configuration calls them.
var roleNames = map[string]role{
	"gpu": roleGPU, "uuid": roleUUID, "device": roleDevice, "model": roleModel, "node": roleNode, "mig_id": roleMIG,
	"mig_profile": roleMIGProfile, "link": roleLink, "driver_version": roleDriver, "cluster_uuid": roleClusterUUID,
	"job": roleJob, "namespace": roleNamespace, "pod": rolePod, "container": roleContainer, "pod_uid": rolePodUID,
}

// labelRole is a role, and how much a label counts that has it: of several the highest.
type labelRole struct {
	role   role
	weight uint8
}

// labelRoles are the labels of all exporters, in lower case: the case of Hostname has changed, and series of links have
// other names than those of GPUs. A label with exported_ before it is the exporter's own, which somebody's scraping in
// between has moved out of the way of its own pod's.
var labelRoles = map[string]labelRole{
	"gpu":           {roleGPU, 1},
	"uuid":          {roleUUID, 1},
	"gpu_uuid":      {roleUUID, 2},
	"device":        {roleDevice, 1},
	"modelname":     {roleModel, 1},
	"model_name":    {roleModel, 1},
	"hostname":      {roleNode, 1},
	"gpu_i_id":      {roleMIG, 1},
	"gpu_i_profile": {roleMIGProfile, 1},
	"nvlink":        {roleLink, 1},

	"dcgm_fi_driver_version":          {roleDriver, 1},
	"dcgm_fi_system_driver_version":   {roleDriver, 1},
	"dcgm_fi_dev_fabric_cluster_uuid": {roleClusterUUID, 1},

	"hpc_job":            {roleJob, 1},
	"namespace":          {roleNamespace, 1},
	"pod_namespace":      {roleNamespace, 2},
	"exported_namespace": {roleNamespace, 3},
	"pod":                {rolePod, 1},
	"pod_name":           {rolePod, 2},
	"exported_pod":       {rolePod, 3},
	"container":          {roleContainer, 1},
	"container_name":     {roleContainer, 2},
	"exported_container": {roleContainer, 3},
	"pod_uid":            {rolePodUID, 1},
}

// chosen is the weight of a label an operator has named.
const chosen = 10

// labelTable is labelRoles with the labels an operator has named. The names are valid.
func labelTable(named map[string]string) map[string]labelRole {
	out := maps.Clone(labelRoles)
	for label, name := range named {
		out[strings.ToLower(label)] = labelRole{roleNames[name], chosen}
	}
	return out
}

func roleList() string { return strings.Join(slices.Sorted(maps.Keys(roleNames)), ", ") }

// block is what one set of labels says, by role.
type block struct {
	text   [roles]string
	weight [roles]uint8
	// Fields of the fabric that an operator has turned into labels.
	fabric fabric
}

func (b *block) reset() { *b = block{} }

// take notes one label. A blank of DCGM, or an empty text, says nothing.
func (b *block) take(table map[string]labelRole, fields map[string]*field, name, value string) {
	if value == "" || isBlankText(value) {
		return
	}
	r, ok := table[strings.ToLower(name)]
	if !ok {
		if f := fields[name]; f != nil && f.kind == identity {
			if v, err := strconv.ParseFloat(value, 64); err == nil && !isBlank(v) {
				b.fabric.take(f.id, v)
			}
		}
		return
	}
	if r.weight > b.weight[r.role] {
		b.text[r.role], b.weight[r.role] = value, r.weight
	}
}

// number reads a label that holds a small number; ok is false where it does not.
func (b *block) number(r role) (n uint32, ok bool) {
	v, err := strconv.ParseUint(b.text[r], 10, 16)
	return uint32(v), err == nil
}

// index is the GPU's index on its node.
func (b *block) index() (uint32, bool) {
	if n, ok := b.number(roleGPU); ok {
		return n, true
	}
	digits, _ := strings.CutPrefix(b.text[roleDevice], "nvidia")
	n, err := strconv.ParseUint(digits, 10, 16)
	return uint32(n), err == nil
}

// isGPU says whether the labels are of a GPU or a part of one: of a switch or a CPU they say neither uuid nor gpu.
func (b *block) isGPU() bool { return b.text[roleGPU] != "" || b.text[roleUUID] != "" }

// job is a reference to who used a GPU; the zero job is none.
type job struct {
	id, namespace, pod, container, podUID string
}

func (b *block) job() job {
	return job{b.text[roleJob], b.text[roleNamespace], b.text[rolePod], b.text[roleContainer], b.text[rolePodUID]}
}

func (a job) compare(b job) int {
	return cmp.Or(
		strings.Compare(a.id, b.id), strings.Compare(a.namespace, b.namespace), strings.Compare(a.pod, b.pod),
		strings.Compare(a.container, b.container), strings.Compare(a.podUID, b.podUID),
	)
}
