package read

import "time"

// Shard is an attempt's part in one NVLink domain.
type Shard struct {
	Domain string  `json:"domain"`
	Label  *string `json:"label" doc:"Rack or block the domain is known by; null when its id is all there is."`
	GPUs   *uint32 `json:"gpus" doc:"null when the split over nodes is not known"`
	Nodes  uint32  `json:"nodes"`
}

// Name is what a person calls the domain.
func (s Shard) Name() string { return nameOf(s.Domain, s.Label) }

func nameOf(id string, label *string) string {
	if label != nil {
		return *label
	}
	return id
}

// Verdict is what was judged of one placement. A null is unknown, never zero.
type Verdict struct {
	Seq                  uint16            `json:"seq" doc:"Placement of the attempt, from 0; a node replaced begins the next."`
	From                 time.Time         `json:"from"`
	To                   *time.Time        `json:"to" doc:"null = still held"`
	Outcome              string            `json:"outcome" enum:"one_partition,one_domain,minimal_spread,spill,unknown"`
	OutcomeReason        *string           `json:"outcome_reason"`
	GPUs                 *uint32           `json:"gpus"`
	Nodes                uint32            `json:"nodes"`
	UnknownNodes         uint32            `json:"unknown_nodes"`
	DomainsUsed          *uint32           `json:"domains_used" doc:"With unknown_nodes > 0 a lower bound."`
	DomainsMin           *uint32           `json:"domains_min"`
	ExcessDomains        *int32            `json:"excess_domains"`
	PartitionsUsed       *uint32           `json:"partitions_used"`
	Shape                []Shard           `json:"shape" doc:"Largest shard first."`
	Balance              *float32          `json:"balance" doc:"Smallest shard over largest, 0..1."`
	SmallestShard        *uint32           `json:"smallest_shard"`
	Intent               string            `json:"intent"`
	IntentMet            *bool             `json:"intent_met"`
	Aligned              bool              `json:"aligned" doc:"A segment contract was asked and met."`
	Cause                *string           `json:"cause" doc:"policy, timing, repack or capacity; null when no spill or not known."`
	CauseDetail          map[string]string `json:"cause_detail"`
	MembershipSource     string            `json:"membership_source"`
	MembershipGeneration uint64            `json:"membership_generation"`
	JudgedAt             time.Time         `json:"judged_at"`
	Traffic              *Traffic          `json:"traffic" doc:"What the counters say of it; null = nobody measured."`
}

// verdictRow is a row of verdicts as the statements select it.
type verdictRow struct {
	Attempt              string            `ch:"attempt"`
	Seq                  uint16            `ch:"seq"`
	ValidFrom            time.Time         `ch:"valid_from"`
	ValidTo              time.Time         `ch:"valid_to"`
	Outcome              string            `ch:"outcome"`
	OutcomeReason        string            `ch:"outcome_reason"`
	GPUs                 *uint32           `ch:"gpus"`
	NodeCount            uint32            `ch:"node_count"`
	UnknownNodes         uint32            `ch:"unknown_nodes"`
	DomainsUsed          *uint32           `ch:"domains_used"`
	DomainsMin           *uint32           `ch:"domains_min"`
	ExcessDomains        *int32            `ch:"excess_domains"`
	PartitionsUsed       *uint32           `ch:"partitions_used"`
	Domains              []string          `ch:"domains"`
	DomainGPUs           []*uint32         `ch:"domain_gpus"`
	DomainNodes          []uint32          `ch:"domain_nodes"`
	Balance              *float32          `ch:"balance"`
	SmallestShard        *uint32           `ch:"smallest_shard"`
	Intent               string            `ch:"intent"`
	IntentMet            *bool             `ch:"intent_met"`
	Aligned              bool              `ch:"aligned"`
	Cause                string            `ch:"cause"`
	CauseDetail          map[string]string `ch:"cause_detail"`
	MembershipSource     string            `ch:"membership_source"`
	MembershipGeneration uint64            `ch:"membership_generation"`
	JudgedAt             time.Time         `ch:"judged_at"`
}

func (v verdictRow) verdict(cluster string, names *labels) Verdict {
	return Verdict{
		Seq: v.Seq, From: v.ValidFrom, To: closed(v.ValidTo), Outcome: v.Outcome, OutcomeReason: text(v.OutcomeReason),
		GPUs: v.GPUs, Nodes: v.NodeCount, UnknownNodes: v.UnknownNodes, DomainsUsed: v.DomainsUsed,
		DomainsMin: v.DomainsMin, ExcessDomains: v.ExcessDomains, PartitionsUsed: v.PartitionsUsed,
		Shape: shape(cluster, names, v.Domains, v.DomainGPUs, v.DomainNodes), Balance: v.Balance, SmallestShard: v.SmallestShard,
		Intent: v.Intent, IntentMet: v.IntentMet, Aligned: v.Aligned, Cause: text(v.Cause), CauseDetail: v.CauseDetail,
		MembershipSource: v.MembershipSource, MembershipGeneration: v.MembershipGeneration, JudgedAt: v.JudgedAt,
	}
}

func shape(cluster string, names *labels, domains []string, gpus []*uint32, nodes []uint32) []Shard {
	out := make([]Shard, len(domains))
	for i, d := range domains {
		out[i].Domain, out[i].Label = d, names.label(cluster, d)
		if i < len(gpus) {
			out[i].GPUs = gpus[i]
		}
		if i < len(nodes) {
			out[i].Nodes = nodes[i]
		}
	}
	return out
}
