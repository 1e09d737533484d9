package advise

import (
	"fmt"
	"slices"
	"strings"
)

// Places name clusters, queues and domains. A domain goes by its id; "id/partition" is one partition of it.
type Places struct {
	Clusters []string `yaml:"clusters"`
	Queues   []string `yaml:"queues"`
	Domains  []string `yaml:"domains"`
}

// Tenant is what one account may be advised: what May names, where an empty list names all, but for what MayNot names.
type Tenant struct {
	May    Places `yaml:"may"`
	MayNot Places `yaml:"may_not"`
}

// Tenants say which account may be advised what.
type Tenants struct {
	// Unlisted accounts, and askers that name none, may be advised everything unless it is Forbid.
	Unlisted string            `yaml:"unlisted"`
	Accounts map[string]Tenant `yaml:"accounts"`
}

// What accounts that are not listed may be advised.
const (
	Allow  = "allow"
	Forbid = "forbid"
)

// Refuse says why an account may not be told anything of a cluster; nil where it may.
func (t *Tenants) Refuse(account, cluster string) *Refusal {
	rule, listed := t.Accounts[account]
	switch {
	case !listed && t.Unlisted == Forbid:
		return forbidden(account, "is not listed", "name as tenant an account that advise.tenants lists, or have it listed")
	case barred(rule.May.Clusters, rule.MayNot.Clusters, cluster):
		return forbidden(account, fmt.Sprintf("may not use cluster %q", cluster), "ask for another cluster"+others(rule.May.Clusters))
	}
	return nil
}

// Hides says why an account is shown nothing of a cluster; nil where it is shown something. Who names none looks at all.
func (t *Tenants) Hides(account, cluster string) *Refusal {
	if account == "" {
		return nil
	}
	return t.Refuse(account, cluster)
}

// May reports whether an account may use any of a domain of a cluster; "" is anybody.
func (t *Tenants) May(account, cluster, domain string) bool {
	if account == "" {
		return true
	}
	if t.Hides(account, cluster) != nil {
		return false
	}
	rule := t.Accounts[account]
	part := func(name string) bool { return name == domain || strings.HasPrefix(name, domain+"/") }
	return (len(rule.May.Domains) == 0 || slices.ContainsFunc(rule.May.Domains, part)) && !slices.Contains(rule.MayNot.Domains, domain)
}

// refuse says why a request may not be advised, whatever its shape; nil where it may.
func (t *Tenants) refuse(r *Request) *Refusal {
	rule := t.Accounts[r.Tenant]
	for queue := range strings.SplitSeq(r.Queue, ",") {
		if barred(rule.May.Queues, rule.MayNot.Queues, queue) {
			return forbidden(r.Tenant, fmt.Sprintf("may not use queue %q", queue), "name another queue"+others(rule.May.Queues))
		}
	}
	return t.Refuse(r.Tenant, r.Cluster)
}

func forbidden(account, detail, remedy string) *Refusal {
	return &Refusal{Code: TenantForbidden, Detail: fmt.Sprintf("tenant %q %s", account, detail), Remedy: remedy}
}

func barred(may, mayNot []string, name string) bool {
	return len(may) > 0 && !slices.Contains(may, name) || slices.Contains(mayNot, name)
}

func others(may []string) string {
	if len(may) == 0 {
		return ", or have advise.tenants changed"
	}
	return ": it may use " + strings.Join(may, ", ")
}

// closed gives the domains of a cluster that an account may not use; nil for none. "" may use all.
func (t *Tenants) closed(account, cluster string, topology *Topology) []bool {
	rule, nowhere := t.Accounts[account], t.Hides(account, cluster) != nil
	if !nowhere && len(rule.May.Domains) == 0 && len(rule.MayNot.Domains) == 0 {
		return nil
	}
	out := make([]bool, len(topology.Domains))
	if nowhere || len(rule.May.Domains) > 0 {
		for d := range out {
			out[d] = true
		}
		for _, name := range rule.May.Domains {
			for _, d := range topology.named(name) {
				out[d] = false
			}
		}
	}
	for _, name := range rule.MayNot.Domains {
		for _, d := range topology.named(name) {
			out[d] = true
		}
	}
	return out
}

// named gives the domains of an id, or the one of "id/partition".
func (t *Topology) named(name string) []int32 {
	if ids := t.ids[name]; ids != nil {
		return ids
	}
	cut := strings.LastIndexByte(name, '/')
	if cut < 0 {
		return nil
	}
	ids := t.ids[name[:cut]]
	for i, d := range ids {
		if t.Domains[d].Partition == name[cut+1:] {
			return ids[i : i+1]
		}
	}
	return nil
}
