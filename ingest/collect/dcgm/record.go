package dcgm

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// reader turns answers into records. Each worker has one.
type reader struct {
	c    *Collector
	text *scrape.Text
	rows *rows
}

// Read implements scrape.Reader.
func (r *reader) Read(t *scrape.Target, body []byte, at time.Time) ([]event.Record, func(), error) {
	r.rows.reset()
	r.rows.stale = at.Add(-r.c.cfg.staleAfter()).UnixMilli()
	bad, err := r.text.Read(body, r.rows.take)
	if err != nil {
		return nil, nil, err
	}
	defer r.count()
	r.rows.dropped[dropSyntax] += bad.Syntax
	r.rows.dropped[dropValue] += bad.Value
	if len(r.rows.gpus) == 0 {
		return nil, nil, &scrape.Failure{Reason: "no_gpu", Err: fmt.Errorf(
			"the answer tells of no GPU, in %d bytes: is %s a dcgm-exporter, and does it see the GPUs?", len(body), t.URL)}
	}
	var records []event.Record
	var stored []func()
	byNode, named := r.byNode(t), false
	for _, name := range slices.Sorted(maps.Keys(byNode)) {
		gpus := byNode[name]
		if name == "" {
			r.rows.dropped[dropUnnamed] += len(gpus)
			continue
		}
		named = true
		n := r.c.history.node(nodeKey{t.Cluster, name}, at, r.c.cfg.Forget)
		counters, membership, done := r.node(n, gpus, at, bad.Lines() == 0)
		if counters == nil {
			continue
		}
		if err := counters.Validate(); err != nil {
			return nil, nil, &scrape.Failure{Reason: "invalid", Err: err} // a name that no key can hold
		}
		records = append(records, counters)
		if membership != nil {
			records = append(records, membership)
			stored = append(stored, done)
		}
	}
	if !named {
		return nil, nil, &scrape.Failure{Reason: "no_node", Err: fmt.Errorf(
			"the answer does not tell the name of the node, and the address neither: give the target the label node")}
	}
	return records, func() {
		for _, f := range stored {
			f()
		}
	}, nil
}

// count gives what was left out to the metrics.
func (r *reader) count() {
	for reason, n := range r.rows.dropped {
		if n > 0 {
			r.c.metrics.Dropped(reason, n)
		}
	}
}

// byNode gives the positions of the GPUs of each node, in the order of their indices. GPUs of no node are those of the
// only node that is named, if there is one.
func (r *reader) byNode(t *scrape.Target) map[string][]int {
	only, several := "", false
	for _, g := range r.rows.gpus {
		if g.node != "" && g.node != only {
			only, several = g.node, only != ""
			if several {
				only = ""
				break
			}
		}
	}
	out := map[string][]int{}
	for at := range r.rows.gpus {
		g := &r.rows.gpus[at]
		if !g.known {
			r.rows.drop(dropUnnamed)
			continue
		}
		name := r.c.cfg.NodeName(t, cmp.Or(g.node, only))
		out[name] = append(out[name], at)
	}
	for _, gpus := range out {
		slices.SortFunc(gpus, func(a, b int) int {
			return cmp.Or(cmp.Compare(r.rows.gpus[a].index, r.rows.gpus[b].index), strings.Compare(r.rows.gpus[a].uuid, r.rows.gpus[b].uuid))
		})
	}
	return out
}

// node makes the records of one node. A whole answer has no line that could not be read: only then is what is not in it
// known to be gone.
func (r *reader) node(n *node, present []int, at time.Time, whole bool) (*event.Counters, *event.Membership, func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if late := n.seen.Sub(at); late > 0 && late < r.c.cfg.Timeout { // more is a clock that was set back
		r.rows.drop(dropOvertaken)
		return nil, nil, nil
	}
	n.seen = at
	b := &builder{reader: r, node: n, at: at, record: &event.Counters{
		Cluster: n.key.cluster, Node: n.key.node, Source: event.SourceDCGM, ObservedAtMs: at.UnixMilli(),
	}}
	driver := ""
	for _, p := range present {
		driver = cmp.Or(driver, r.rows.gpus[p].driver)
	}
	b.reloaded = driver != "" && n.driver != "" && driver != n.driver
	n.driver = cmp.Or(driver, n.driver)
	b.record.DriverVersion = driver

	for _, p := range present {
		b.gpu(p, whole)
	}
	if whole {
		b.missing()
	}
	b.migs()
	b.links(whole)
	b.jobs()
	b.trim()
	membership, done := r.membership(n, at)
	return b.record, membership, done
}

// builder makes one record of counters.
type builder struct {
	reader   *reader
	node     *node
	at       time.Time
	reloaded bool // the driver is another one than before
	record   *event.Counters
	position map[int]uint32 // in the record, by position in the rows
	gpus     []*gpu         // by position in the record
}

// gpuValues are the columns of numbers of a GPU, in the order of the constants.
func gpuValues(c *event.Counters) [gpuColumns]*[]float64 {
	return [gpuColumns]*[]float64{
		gpuTxBytes: &c.NvlinkTxBytes, gpuRxBytes: &c.NvlinkRxBytes, gpuBothRate: &c.NvlinkBytesPerSecond,
		gpuTxRate: &c.NvlinkTxBytesPerSecond, gpuRxRate: &c.NvlinkRxBytesPerSecond, gpuErrors: &c.NvlinkErrors,
		gpuDiscards: &c.NvlinkDiscards, gpuReplays: &c.NvlinkReplays, gpuRecoveries: &c.NvlinkRecoveries,
		gpuRecoveryFailures: &c.NvlinkRecoveryFailures, gpuSymbolErrors: &c.NvlinkSymbolErrors,
		gpuEffectiveErrors: &c.NvlinkEffectiveErrors, gpuEffectiveBER: &c.NvlinkEffectiveBer,
		gpuGraphicsActive: &c.GraphicsActive, gpuSMActive: &c.SmActive, gpuTensorActive: &c.TensorActive,
		gpuPCIeTxRate: &c.PcieTxBytesPerSecond, gpuPCIeRxRate: &c.PcieRxBytesPerSecond,
		gpuC2CTxRate: &c.C2CTxBytesPerSecond, gpuC2CRxRate: &c.C2CRxBytesPerSecond,
	}
}

func migValues(c *event.Counters) [migColumns]*[]float64 {
	return [migColumns]*[]float64{
		migGraphicsActive: &c.MigGraphicsActive, migSMActive: &c.MigSmActive, migTensorActive: &c.MigTensorActive,
	}
}

// linkValues leaves out the state, which is no number in the record.
func linkValues(c *event.Counters) [linkColumns]*[]float64 {
	return [linkColumns]*[]float64{
		linkTxBytes: &c.LinkTxBytes, linkRxBytes: &c.LinkRxBytes, linkBothRate: &c.LinkBytesPerSecond,
		linkTxRate: &c.LinkTxBytesPerSecond, linkRxRate: &c.LinkRxBytesPerSecond, linkErrors: &c.LinkErrors,
		linkReplays: &c.LinkReplays, linkRecoveries: &c.LinkRecoveries, linkDowns: &c.LinkDowns,
	}
}

// gpu adds one GPU of the answer and brings what is known of it up to date.
func (b *builder) gpu(at int, whole bool) {
	row := &b.reader.rows.gpus[at]
	g := b.node.gpus[row.id()]
	if g == nil {
		g = &gpu{since: b.at, links: map[uint32]*link{}}
		b.node.gpus[row.id()] = g
	}
	// A GPU at another index, as after one before it fell off the bus: there its counters follow on those of another GPU.
	moved := !g.seen.IsZero() && g.index != row.index
	g.index, g.uuid, g.model = row.index, row.uuid, cmp.Or(row.model, g.model)
	g.seen, g.missing = b.at, false
	// An answer with unreadable lines may tell only a part of the fabric; a part does not replace the whole.
	if whole || row.fabric.has&g.fabric.has == g.fabric.has {
		g.fabric = row.fabric
	}

	most := b.reader.c.cfg.most(g.model)
	slack := b.reader.c.cfg.ExporterInterval
	reset := b.reloaded || moved
	var nvlink, all renewal
	for col := gpuColumn(1); col < gpuColumns; col++ {
		c := &row.cells[col]
		if c.from == nil {
			continue
		}
		switch c.from.kind {
		case counter:
			limit := 0.0
			if col == gpuTxBytes || col == gpuRxBytes {
				limit = most
			}
			reset = g.cells[col].broken(c, b.at, limit, slack) || reset
		case rate:
			limit := 0.0
			switch col {
			case gpuTxRate, gpuRxRate:
				limit = most
			case gpuBothRate:
				limit = 2 * most
			}
			renewed := b.checkRate(c, &g.cells[col], limit)
			all.add(renewed)
			if limit > 0 {
				nvlink.add(renewed)
			}
		}
	}
	// NVLinks that carry something, and counters of it that stand still: DCGM renews neither, or an exporter repeats itself.
	frozen := nvlink.stopped() || all.stopped()
	for col := range g.cells {
		b.keep(&row.cells[col], &g.cells[col], frozen)
	}
	var summed []summand
	for number := range b.reader.rows.links {
		l := &b.reader.rows.links[number]
		if l.gpu != at {
			continue
		}
		for _, col := range []linkColumn{linkTxBytes, linkRxBytes} {
			if l.cells[col].from != nil {
				summed = append(summed, summand{l.number, col})
			}
		}
		reset = b.link(g, l, most, slack, frozen) || reset
	}
	// A sum of other links than before is another counter: a link that comes back brings all that it ever carried.
	if b.reader.c.sums() && row.cells[gpuTxBytes].from != nil {
		reset = g.summed != nil && !slices.Equal(g.summed, summed) || reset
		g.summed = summed
	}
	if reset {
		g.since = b.at
	}
	if b.position == nil {
		b.position = map[int]uint32{}
	}
	b.position[at] = uint32(len(b.gpus))
	b.add(g, false, reset, func(col gpuColumn) float64 { return row.cells[col].number() })
}

// renewal says whether rates are renewed: some are old, some are not. Those next to 0 say neither.
type renewal struct{ live, stale bool }

func (r *renewal) add(other renewal) { r.live, r.stale = r.live || other.live, r.stale || other.stale }

func (r renewal) stopped() bool { return r.stale && !r.live }

// keep remembers a value, and leaves out one that is none; where the GPU is frozen also a cumulative one that has stood
// still for as long as a rate may.
func (b *builder) keep(c *cell, p *past, frozen bool) {
	if c.from == nil {
		return
	}
	p.note(c, b.at)
	switch {
	case frozen && c.from.kind == counter && b.at.Sub(p.since) > b.reader.c.cfg.staleAfter():
		b.reader.rows.drop(dropStale)
		c.from = nil
	case math.IsNaN(c.value):
		c.from = nil
	}
}

// checkRate makes a rate NaN that cannot be, or that DCGM has not renewed.
func (b *builder) checkRate(c *cell, before *past, most float64) (r renewal) {
	switch {
	case most > 0 && c.value > most:
		b.reader.rows.drop(dropImplausible)
		c.value = math.NaN()
	case before.unchanged(c, b.at) > b.reader.c.cfg.staleAfter():
		b.reader.rows.drop(dropStale)
		c.value, r.stale = math.NaN(), true
	default:
		r.live = c.raw != before.raw || c.raw >= coarse
	}
	return r
}

// link brings what is known of a link up to date, and says whether its counters began anew.
func (b *builder) link(g *gpu, row *linkRow, most float64, slack time.Duration, frozen bool) (reset bool) {
	l := g.links[row.number]
	if l == nil {
		l = &link{}
		g.links[row.number] = l
	}
	l.seen = b.at
	for col := linkColumn(1); col < linkColumns; col++ {
		c := &row.cells[col]
		if c.from == nil {
			continue
		}
		switch c.from.kind {
		case counter:
			limit := 0.0
			if col == linkTxBytes || col == linkRxBytes {
				limit = most
			}
			reset = l.cells[col].broken(c, b.at, limit, slack) || reset
		case rate:
			b.checkRate(c, &l.cells[col], 2*most)
		}
	}
	for col := range l.cells {
		b.keep(&row.cells[col], &l.cells[col], frozen)
	}
	return reset
}

// add appends one GPU to the columns.
func (b *builder) add(g *gpu, missing, reset bool, value func(gpuColumn) float64) {
	r := b.record
	b.gpus = append(b.gpus, g)
	r.GpuIndex = append(r.GpuIndex, g.index)
	r.GpuUuid = append(r.GpuUuid, g.uuid)
	r.GpuModel = append(r.GpuModel, g.model)
	r.GpuMissing = append(r.GpuMissing, missing)
	r.GpuSinceMs = append(r.GpuSinceMs, g.since.UnixMilli())
	r.GpuReset = append(r.GpuReset, reset)
	columns := gpuValues(r)
	for col := gpuColumn(1); col < gpuColumns; col++ {
		*columns[col] = append(*columns[col], value(col))
	}
}

// missing adds the GPUs that were there before, while others still are.
func (b *builder) missing() {
	for _, id := range slices.Sorted(maps.Keys(b.node.gpus)) {
		g := b.node.gpus[id]
		switch {
		case g.seen.Equal(b.at):
		case b.at.Sub(g.seen) > b.reader.c.cfg.Forget || b.replaced(g):
			delete(b.node.gpus, id)
		default:
			g.missing = true
			b.add(g, true, false, func(gpuColumn) float64 { return math.NaN() })
		}
	}
}

// replaced says whether the answer has a GPU without a UUID that has one now, or the other way round: the same GPU, known
// by another name.
func (b *builder) replaced(g *gpu) bool {
	return slices.ContainsFunc(b.gpus, func(other *gpu) bool {
		return other.seen.Equal(b.at) && other.index == g.index && (other.uuid == "" || g.uuid == "")
	})
}

// migs adds the MIG instances.
func (b *builder) migs() {
	var order []*migRow
	for i := range b.reader.rows.migs {
		if _, ok := b.position[b.reader.rows.migs[i].gpu]; ok {
			order = append(order, &b.reader.rows.migs[i])
		}
	}
	slices.SortFunc(order, func(x, y *migRow) int {
		return cmp.Or(cmp.Compare(b.position[x.gpu], b.position[y.gpu]), cmp.Compare(x.id, y.id))
	})
	columns := migValues(b.record)
	for _, m := range order {
		b.record.MigGpu = append(b.record.MigGpu, b.position[m.gpu])
		b.record.MigId = append(b.record.MigId, m.id)
		b.record.MigProfile = append(b.record.MigProfile, m.profile)
		for col := migColumn(1); col < migColumns; col++ {
			*columns[col] = append(*columns[col], m.cells[col].number())
		}
	}
}

// links adds the links, and those that were there before while others of the node still are.
func (b *builder) links(whole bool) {
	rows := map[linkKey]*linkRow{} // by position in the record
	for i := range b.reader.rows.links {
		l := &b.reader.rows.links[i]
		if p, ok := b.position[l.gpu]; ok {
			rows[linkKey{int(p), l.number}] = l
		}
	}
	if len(rows) == 0 {
		return
	}
	r := b.record
	columns := linkValues(r)
	for p, g := range b.gpus {
		if r.GpuMissing[p] {
			continue
		}
		for _, number := range slices.Sorted(maps.Keys(g.links)) {
			row := rows[linkKey{p, number}]
			state := event.LinkState_MISSING
			switch {
			case row != nil:
				state = stateOf(&row.cells[linkState])
			case b.at.Sub(g.links[number].seen) > b.reader.c.cfg.Forget:
				delete(g.links, number)
				continue
			case !whole:
				continue
			default:
				row = &linkRow{}
			}
			r.LinkGpu = append(r.LinkGpu, uint32(p))
			r.Link = append(r.Link, number)
			r.LinkState = append(r.LinkState, state)
			for col := linkColumn(1); col < linkColumns; col++ {
				if columns[col] != nil {
					*columns[col] = append(*columns[col], row.cells[col].number())
				}
			}
		}
	}
}

// jobs adds the references to jobs.
func (b *builder) jobs() {
	var order []jobRow
	for _, j := range b.reader.rows.jobs {
		if _, ok := b.position[j.gpu]; ok {
			order = append(order, j)
		}
	}
	slices.SortFunc(order, func(x, y jobRow) int {
		return cmp.Or(cmp.Compare(b.position[x.gpu], b.position[y.gpu]), cmp.Compare(x.mig, y.mig), x.job.compare(y.job))
	})
	r := b.record
	for _, j := range order {
		r.JobGpu = append(r.JobGpu, b.position[j.gpu])
		r.JobMig = append(r.JobMig, j.mig)
		r.JobId = append(r.JobId, j.job.id)
		r.JobNamespace = append(r.JobNamespace, j.job.namespace)
		r.JobPod = append(r.JobPod, j.job.pod)
		r.JobContainer = append(r.JobContainer, j.job.container)
		r.JobPodUid = append(r.JobPodUid, j.job.podUID)
	}
}

// trim empties the columns that hold nothing.
func (b *builder) trim() {
	r := b.record
	values := gpuValues(r)
	migs, links := migValues(r), linkValues(r)
	for _, columns := range [][]*[]float64{values[:], migs[:], links[:]} {
		for _, c := range columns {
			if c != nil && !slices.ContainsFunc(*c, func(v float64) bool { return !math.IsNaN(v) }) {
				*c = nil
			}
		}
	}
	for _, c := range []*[]string{&r.GpuUuid, &r.GpuModel, &r.MigProfile, &r.JobId, &r.JobNamespace, &r.JobPod, &r.JobContainer, &r.JobPodUid} {
		if !slices.ContainsFunc(*c, func(s string) bool { return s != "" }) {
			*c = nil
		}
	}
	for _, c := range []*[]bool{&r.GpuMissing, &r.GpuReset} {
		if !slices.Contains(*c, true) {
			*c = nil
		}
	}
	if !slices.ContainsFunc(r.LinkState, func(s event.LinkState) bool { return s != event.LinkState_LINK_STATE_UNSPECIFIED }) {
		r.LinkState = nil
	}
}

// membership makes the record of the node's fabric, if it differs from what was stored last or that is old. The function
// is to be called once it is stored.
func (r *reader) membership(n *node, at time.Time) (*event.Membership, func()) {
	m := &event.Membership{
		Cluster: n.key.cluster, Node: n.key.node, Source: event.SourceDCGM,
		ObservedAtMs: at.UnixMilli(), Revision: max(event.Revision(at), n.version+1),
	}
	var told strings.Builder
	ids := slices.SortedFunc(maps.Keys(n.gpus), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.gpus[a].index, n.gpus[b].index), strings.Compare(a, b))
	})
	for _, id := range ids {
		// A GPU that is missing is not told of; one that was only unreadable is, as it was.
		if g := n.gpus[id]; g.fabric.has != 0 && !g.missing {
			m.Gpus = append(m.Gpus, g.fabric.record(g.index, g.uuid))
			fmt.Fprintln(&told, g.index, g.uuid, g.fabric)
		}
	}
	if len(m.Gpus) == 0 || told.String() == n.told && at.Sub(n.toldAt) < r.c.cfg.Refresh {
		return nil, nil
	}
	n.version = m.Revision
	return m, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.told, n.toldAt = told.String(), at
	}
}
