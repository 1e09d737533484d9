// Package nic is a collector, in the first hop of the flow: it reads what the InfiniBand and RoCE ports of nodes have sent
// and received, from node_exporters or from the sysfs of this machine, and emits one record of counters a node and scrape.
// It never decides which ports are those of the compute network, except by names that configuration gives, and never says
// whose traffic it was.
package nic
