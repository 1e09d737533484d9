package pass

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spillway-io/spillway/schemas/event"
)

// verdictRow is a row of verdicts; -1 = NULL.
type verdictRow struct {
	cluster, jobID, attempt          string
	seq                              uint16
	from, to                         int64
	outcome, reason                  string
	gpus                             int64
	nodeCount, unknownNodes          uint32
	used, fewest, excess, partitions int64
	domains                          []string
	domainGPUs                       []int64
	domainNodes                      []uint32
	balance                          float32
	smallest                         int64
	intent                           string
	intentMet                        int8
	aligned                          bool
	cause                            string
	detail                           map[string]string
	source                           string
	generation                       uint64
	judgedAt                         int64
	version                          uint64
	deleted                          uint8
}

var verdictColumns = columns[verdictRow]{
	plain("cluster", func(r *verdictRow) *string { return &r.cluster }),
	plain("job_id", func(r *verdictRow) *string { return &r.jobID }),
	plain("attempt", func(r *verdictRow) *string { return &r.attempt }),
	plain("seq", func(r *verdictRow) *uint16 { return &r.seq }),
	instant("valid_from", func(r *verdictRow) *int64 { return &r.from }),
	instant("valid_to", func(r *verdictRow) *int64 { return &r.to }),
	plain("outcome", func(r *verdictRow) *string { return &r.outcome }),
	plain("outcome_reason", func(r *verdictRow) *string { return &r.reason }),
	maybe[uint32]("gpus", func(r *verdictRow) *int64 { return &r.gpus }),
	plain("node_count", func(r *verdictRow) *uint32 { return &r.nodeCount }),
	plain("unknown_nodes", func(r *verdictRow) *uint32 { return &r.unknownNodes }),
	maybe[uint32]("domains_used", func(r *verdictRow) *int64 { return &r.used }),
	maybe[uint32]("domains_min", func(r *verdictRow) *int64 { return &r.fewest }),
	maybe[int32]("excess_domains", func(r *verdictRow) *int64 { return &r.excess }),
	maybe[uint32]("partitions_used", func(r *verdictRow) *int64 { return &r.partitions }),
	list("domains", "domains", func(r *verdictRow) *[]string { return &r.domains }, equal[string]),
	maybeList[uint32]("domain_gpus", func(r *verdictRow) *[]int64 { return &r.domainGPUs }),
	list("domain_nodes", "domain_nodes", func(r *verdictRow) *[]uint32 { return &r.domainNodes }, equal[uint32]),
	maybeBy("balance", "ifNull(balance, -1)", func(r *verdictRow) *float32 { return &r.balance }, func(v float32) *float32 { return known(v, v >= 0) }),
	maybe[uint32]("smallest_shard", func(r *verdictRow) *int64 { return &r.smallest }),
	plain("intent", func(r *verdictRow) *string { return &r.intent }),
	maybeBy("intent_met", "toInt8(ifNull(toInt8(intent_met), -1))", func(r *verdictRow) *int8 { return &r.intentMet }, func(v int8) *bool { return known(v > 0, v >= 0) }),
	plain("aligned", func(r *verdictRow) *bool { return &r.aligned }),
	plain("cause", func(r *verdictRow) *string { return &r.cause }),
	details("cause_detail", func(r *verdictRow) *map[string]string { return &r.detail }),
	plain("membership_source", func(r *verdictRow) *string { return &r.source }),
	meta(plain("membership_generation", func(r *verdictRow) *uint64 { return &r.generation })),
	meta(instant("judged_at", func(r *verdictRow) *int64 { return &r.judgedAt })),
	meta(plain("version", func(r *verdictRow) *uint64 { return &r.version })),
	plain("is_deleted", func(r *verdictRow) *uint8 { return &r.deleted }),
}

// emitRows is how many spill records go out at once.
const emitRows = 1000

// withdrawn is the outcome in a spill record whose placement turned out not to be one.
const withdrawn = "withdrawn"

// send counts verdicts just written, and sends them out if somebody wants them.
func (p *Passes) send(ctx context.Context, verdicts []verdictRow, of []*attemptRow) error {
	for batch := range slices.Chunk(verdicts, emitRows) {
		records := make([]event.Record, 0, len(batch))
		for i := range batch {
			s := batch[i].spill(of[i])
			p.m.judged.WithLabelValues(s.GetOutcome()).Inc()
			records = append(records, s)
		}
		of = of[len(batch):]
		if p.emit == nil {
			continue
		}
		if err := p.emit(ctx, records...); err != nil {
			return fmt.Errorf("send spill records: %w", err)
		}
		p.m.emitted.Add(float64(len(records)))
	}
	return nil
}

// spill is the verdict as the record that goes out; a is what is known of the attempt, nil: nothing.
func (v *verdictRow) spill(a *attemptRow) *event.Spill {
	unsigned := func(n int64) *uint32 { return known(uint32(n), n >= 0) }
	a = cmp.Or(a, &attemptRow{})
	s := &event.Spill{
		Cluster: v.cluster, JobId: v.jobID, Attempt: v.attempt, Seq: uint32(v.seq), Outcome: v.outcome, Cause: v.cause,
		DomainsUsed: unsigned(v.used), DomainsMin: unsigned(v.fewest), Domains: v.domains, UnknownNodes: v.unknownNodes,
		IntentMet: known(v.intentMet > 0, v.intentMet >= 0), FromMs: v.from, ToMs: known(v.to, v.to != forever), MembershipGeneration: v.generation,
		JudgedAtMs: v.judgedAt, Name: a.name, User: a.user, Account: a.account, ServiceClass: a.class,
	}
	if v.deleted == 1 {
		s.Outcome = withdrawn
	}
	if !slices.Contains(v.domainGPUs, -1) {
		for _, n := range v.domainGPUs {
			s.DomainGpus = append(s.DomainGpus, uint32(n))
		}
	}
	return s
}

// known is a pointer to a value, nil when it is not known.
func known[T any](v T, is bool) *T {
	if !is {
		return nil
	}
	return &v
}
