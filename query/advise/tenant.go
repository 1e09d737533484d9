package advise

// ViewFor shows what a tenant may take of a snapshot, whatever it asks for.
func (c *Config) ViewFor(s *Snapshot, tenant string) View {
	q := question{c: c, s: s, r: &Request{Tenant: tenant}}
	q.narrow()
	return q.v
}
