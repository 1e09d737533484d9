package nic

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/ingest/collect/scrape"
	"github.com/spillway-io/spillway/schemas/event"
)

// What a metric of node_exporter says of a port.
const (
	metricTxBytes = iota
	metricRxBytes
	metricTxWait
	metricRecoveries
	metricDowns
	metricState
	metricSpeed
	metricNode // the node's name, in a label
)

// metrics are those of node_exporter since 0.16 and, without _total, before; its bytes are bytes, not words of four.
var metrics = map[string]int{
	"node_infiniband_port_data_transmitted_bytes_total": metricTxBytes,
	"node_infiniband_port_data_transmitted_bytes":       metricTxBytes,
	"node_infiniband_port_data_received_bytes_total":    metricRxBytes,
	"node_infiniband_port_data_received_bytes":          metricRxBytes,
	"node_infiniband_port_transmit_wait_total":          metricTxWait,
	"node_infiniband_link_error_recovery_total":         metricRecoveries,
	"node_infiniband_link_error_recovery":               metricRecoveries,
	"node_infiniband_link_downed_total":                 metricDowns,
	"node_infiniband_link_downed":                       metricDowns,
	"node_infiniband_state_id":                          metricState,
	"node_infiniband_rate_bytes_per_second":             metricSpeed,
	"node_uname_info":                                   metricNode,
}

// reader turns answers of node_exporters into records. Each worker has one.
type reader struct {
	c     *Collector
	text  *scrape.Text
	ports map[portKey]*port
	node  string
	drops map[string]int
}

type portKey struct {
	device string
	number uint32
}

// Read implements scrape.Reader.
func (r *reader) Read(t *scrape.Target, body []byte, at time.Time) ([]event.Record, func(), error) {
	clear(r.ports)
	clear(r.drops)
	r.node = ""
	bad, err := r.text.Read(body, r.take)
	if err != nil {
		return nil, nil, err
	}
	r.drops["syntax"] += bad.Syntax
	r.drops["value"] += bad.Value
	for reason, n := range r.drops {
		if n > 0 {
			r.c.metrics.Dropped(reason, n)
		}
	}
	if len(r.ports) == 0 {
		return nil, nil, &scrape.Failure{Reason: "no_nic", Err: fmt.Errorf(
			"the answer tells of no InfiniBand or RoCE port: has the node one, and does node_exporter run with --collector.infiniband?")}
	}
	node := r.c.cfg.NodeName(t, r.node)
	if node == "" {
		return nil, nil, &scrape.Failure{Reason: "no_node", Err: fmt.Errorf(
			"the answer does not tell the name of the node, and the address neither: give the target the label node")}
	}
	ports := make([]*port, 0, len(r.ports))
	for _, p := range r.ports {
		ports = append(ports, p)
	}
	record := r.c.history.record(nodeKey{t.Cluster, node}, event.SourceNodeExporter, ports, at, bad.Lines() == 0)
	if record == nil {
		r.c.metrics.Dropped("overtaken", 1)
		return nil, nil, nil
	}
	if err := record.Validate(); err != nil {
		return nil, nil, &scrape.Failure{Reason: "invalid", Err: err}
	}
	return []event.Record{record}, nil, nil
}

func (r *reader) take(l *scrape.Line) {
	metric, ok := metrics[string(l.Name())]
	if !ok {
		return
	}
	var device, number string
	l.Labels(func(name, value string) {
		switch name {
		case "device":
			device = value
		case "port":
			number = value
		case "nodename":
			r.node = value
		}
	})
	if metric == metricNode {
		return
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || device == "" {
		r.drops["unnamed"]++
		return
	}
	if !r.c.filter.wants(device) {
		return
	}
	if math.IsNaN(l.Value) || math.IsInf(l.Value, 0) || l.Value < 0 {
		r.drops["blank"]++
		return
	}
	key := portKey{device, uint32(n)}
	p := r.ports[key]
	if p == nil {
		p = newPort(device, key.number)
		r.ports[key] = p
	}
	switch metric {
	case metricState:
		p.state = stateOf(l.Value)
	case metricSpeed:
		p.speed = l.Value
	default:
		p.values[counterOf[metric]] = l.Value
	}
}

var counterOf = [...]counter{
	metricTxBytes: txBytes, metricRxBytes: rxBytes, metricTxWait: txWait, metricRecoveries: recoveries, metricDowns: downs,
}
