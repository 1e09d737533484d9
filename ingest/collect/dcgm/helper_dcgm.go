//go:build dcgm

package dcgm

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	godcgm "github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// Built says why this program cannot ask DCGM itself; nil = it can.
func Built() error { return nil }

// maxLinks is how many links a GPU may have.
const maxLinks = 36

// library is a connection to a running nv-hostengine. Only Init may be called before it has succeeded: every other call
// would end the process.
type library struct {
	log        io.Writer
	gpus       []uint
	gpuFields  []godcgm.Short
	linkFields []godcgm.Short
	links      map[uint][]uint // link entities by GPU
	made       int             // groups, for names of their own
}

func openDCGM(o helperOptions, log io.Writer) (answerer, error) {
	isSocket := "0"
	if strings.HasPrefix(o.Address, "/") {
		isSocket = "1"
	}
	if _, err := godcgm.Init(godcgm.Standalone, o.Address, isSocket); err != nil {
		return nil, fmt.Errorf("connect to nv-hostengine at %s: %w; is it running, and does the loader find libdcgm.so (set direct.library)?", o.Address, err)
	}
	l := &library{log: log, links: map[uint][]uint{}}
	var err error
	if l.gpus, err = godcgm.GetSupportedDevices(); err != nil {
		return nil, fmt.Errorf("list the GPUs: %w", err)
	}
	group, err := godcgm.CreateGroup(l.name())
	if err != nil {
		return nil, err
	}
	for _, gpu := range l.gpus {
		if err := godcgm.AddToGroup(group, gpu); err != nil {
			return nil, err
		}
	}
	gpuFields, linkFields := directFields()
	for _, set := range gpuFields {
		l.gpuFields = append(l.gpuFields, l.watch(group, set, o)...)
	}
	if len(l.gpuFields) == 0 {
		return nil, fmt.Errorf("nv-hostengine at %s lets none of the fields be watched: standard error says why", o.Address)
	}
	if o.Links {
		return l, l.watchLinks(linkFields, o)
	}
	return l, nil
}

// name is that of a group, which another connection does not have.
func (l *library) name() string {
	l.made++
	return fmt.Sprintf("spillway-%d-%d", os.Getpid(), l.made)
}

// watch watches the fields of a set and returns those that the library takes. It refuses a set for one field that it does
// not know, so a set that is refused is tried in halves.
func (l *library) watch(group godcgm.GroupHandle, set []uint16, o helperOptions) []godcgm.Short {
	fields := make([]godcgm.Short, len(set))
	for i, id := range set {
		fields[i] = godcgm.Short(id)
	}
	handle, err := godcgm.FieldGroupCreate(l.name(), fields)
	if err == nil {
		err = godcgm.WatchFieldsWithGroupEx(handle, group, o.Interval.Microseconds(), 0, 1)
		if err == nil {
			return fields
		}
		_ = godcgm.FieldGroupDestroy(handle)
	}
	if len(set) > 1 {
		half := len(set) / 2
		return append(l.watch(group, set[:half], o), l.watch(group, set[half:], o)...)
	}
	fmt.Fprintf(l.log, "field %d is not watched: %v\n", set[0], err)
	return nil
}

// watchLinks watches the links of all GPUs. What the library does not take for a link is none; before DCGM 4.3.1 it takes
// hardly any.
func (l *library) watchLinks(sets [][]uint16, o helperOptions) error {
	watched := map[godcgm.Short]bool{}
	for _, gpu := range l.gpus {
		group, err := godcgm.CreateGroup(l.name())
		if err != nil {
			return err
		}
		for link := range uint(maxLinks) {
			id := linkEntity(gpu, link)
			if godcgm.AddEntityToGroup(group, godcgm.FE_LINK, id) == nil {
				l.links[gpu] = append(l.links[gpu], id)
			}
		}
		if len(l.links[gpu]) == 0 {
			continue
		}
		for _, set := range sets {
			for _, f := range l.watch(group, set, o) {
				if !watched[f] {
					watched[f] = true
					l.linkFields = append(l.linkFields, f)
				}
			}
		}
	}
	return nil
}

// linkEntity is the id of a GPU's link, packed as dcgm_link_t is since DCGM 4.3.1: the kind of its owner in bits 0-7, the
// link in bits 8-23, the GPU in bits 24-31.
func linkEntity(gpu, link uint) uint { return uint(godcgm.FE_GPU) | link<<8 | gpu<<24 }

// answer implements answerer.
func (l *library) answer() ([]gpuAnswer, error) {
	var out []gpuAnswer
	for _, gpu := range l.gpus {
		g := gpuAnswer{id: uint32(gpu), texts: map[uint16]string{}, links: map[uint32][]valueAnswer{}}
		err := l.read(godcgm.FE_GPU, []uint{gpu}, l.gpuFields, func(v *godcgm.FieldValue_v2) {
			if v.FieldType == godcgm.DCGM_FT_STRING {
				if text := *v.StringValue; !isBlankText(text) {
					g.texts[uint16(v.FieldId)] = text
				}
			} else if number, ok := numberOf(v); ok {
				g.values = append(g.values, number)
			}
		})
		if err == nil && len(l.linkFields) > 0 && len(l.links[gpu]) > 0 {
			err = l.read(godcgm.FE_LINK, l.links[gpu], l.linkFields, func(v *godcgm.FieldValue_v2) {
				if number, ok := numberOf(v); ok {
					link := uint32(v.EntityId) >> 8 & 0xffff
					g.links[link] = append(g.links[link], number)
				}
			})
		}
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// read gives take every value that DCGM has. One with a status is not the newest, or none at all.
func (l *library) read(kind godcgm.Field_Entity_Group, ids []uint, fields []godcgm.Short, take func(*godcgm.FieldValue_v2)) error {
	entities := make([]godcgm.GroupEntityPair, len(ids))
	for i, id := range ids {
		entities[i] = godcgm.GroupEntityPair{EntityGroupId: kind, EntityId: id}
	}
	values, err := godcgm.EntitiesGetLatestValues(entities, fields, 0)
	if err != nil {
		return fmt.Errorf("read the newest values: %w", err)
	}
	for i := range values {
		if v := &values[i]; v.Status == 0 {
			take(v)
		}
	}
	return nil
}

func numberOf(v *godcgm.FieldValue_v2) (valueAnswer, bool) {
	out := valueAnswer{field: uint16(v.FieldId), millis: v.Ts / 1000}
	switch v.FieldType {
	case godcgm.DCGM_FT_INT64:
		out.number = strconv.FormatInt(v.Int64(), 10)
	case godcgm.DCGM_FT_DOUBLE:
		out.number = strconv.FormatFloat(v.Float64(), 'g', -1, 64)
	default:
		return out, false
	}
	return out, true
}
