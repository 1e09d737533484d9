package pass

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/schemas/event"
)

// feed stores records as the loader would, all of one raw table as one block, and gives the number stored.
func (s *store) feed(records ...event.Record) {
	s.t.Helper()
	rows := map[string][][]any{}
	for _, r := range records {
		if err := r.Validate(); err != nil {
			s.t.Fatalf("the record %v would not reach the tables: %v", r, err)
		}
		switch r := r.(type) {
		case *event.Placement:
			rows[rawPlacements] = append(rows[rawPlacements], placementValues(r))
		case *event.Membership:
			rows[rawMembership] = append(rows[rawMembership], membershipValues(r))
		case *event.Node:
			rows[rawNodes] = append(rows[rawNodes], nodeValues(r))
		}
	}
	for table, list := range rows {
		s.insert(table, list)
	}
}

func timeOf(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := event.Time(ms)
	return &t
}

func small(v *uint32) *uint16 {
	if v == nil {
		return nil
	}
	return new(uint16(*v))
}

func placementValues(r *event.Placement) []any {
	n := len(r.GetPlacements())
	nodes, gpus, index := make([]string, n), make([]*uint16, n), make([][]uint16, n)
	from, to, pods := make([]*time.Time, n), make([]*time.Time, n), make([][]string, n)
	for i, p := range r.GetPlacements() {
		nodes[i], gpus[i], from[i], to[i] = p.GetNode(), small(p.Gpus), timeOf(p.FromMs), timeOf(p.ToMs)
		index[i], pods[i] = []uint16{}, []string{}
		for _, x := range p.GetGpuIndex() {
			index[i] = append(index[i], uint16(x))
		}
	}
	in := r.GetIntent()
	planned := r.GetPlannedNodes()
	if planned == nil {
		planned = []string{}
	}
	var segment, switches *uint32
	var wait *int64
	if in != nil {
		segment, switches, wait = in.SegmentNodes, in.MaxSwitches, in.MaxSwitchWaitMs
	}
	return []any{
		r.GetCluster(), r.GetJobId(), r.GetComponent(), r.GetScheduler(), r.GetSource(), r.GetRunId(), r.Restart, r.GetArrayJobId(), r.ArrayTask,
		r.GetName(), r.GetUser(), r.GetAccount(), r.GetQueue(), r.GetQos(), r.GetReservation(), r.GetServiceClass(), r.GetProbe(),
		int8(r.GetState()), r.GetStateRaw(), timeOf(r.SubmitMs), timeOf(r.EligibleMs), timeOf(r.StartMs), timeOf(r.EndMs), timeOf(r.EndEarliestMs),
		r.TimeLimitMs, r.RequestedGpus, r.RequestedNodes, r.Gpus, int8(in.GetMode()), in.GetLevel(), segment, in.GetSpreadSegments(),
		in.GetConsolidateSegments(), in.GetExclusiveDomain(), switches, wait, nodes, gpus, index, from, to, pods, r.GetPartial(),
		r.GetPendingReason(), timeOf(r.PlannedStartMs), planned, r.Priority, r.Preemptible, timeOf(r.PreemptibleMs), timeOf(r.CheckpointMs),
		r.CheckpointEveryMs, r.RestartMs, time.UnixMilli(r.GetObservedAtMs()), r.GetRevision(), "",
	}
}

func membershipValues(r *event.Membership) []any {
	var levels, values, uuid, cluster, state, status []string
	var index []uint16
	var clique, mask []*uint32
	for _, l := range r.GetLevels() {
		levels, values = append(levels, l.GetLevel()), append(values, l.GetValue())
	}
	for _, g := range r.GetGpus() {
		index, uuid, cluster = append(index, uint16(g.GetIndex())), append(uuid, g.GetUuid()), append(cluster, g.GetClusterUuid())
		clique, state, status, mask = append(clique, g.CliqueId), append(state, g.GetState()), append(status, g.GetStatus()), append(mask, g.HealthMask)
	}
	some := func(l []string) []string { return append([]string{}, l...) }
	return []any{
		r.GetCluster(), r.GetNode(), r.GetSource(), r.GetTopology(), some(levels), some(values), append([]uint16{}, index...), some(uuid), some(cluster),
		append([]*uint32{}, clique...), some(state), some(status), append([]*uint32{}, mask...), r.GetRemoved(), timeOf(r.ValidFromMs),
		time.UnixMilli(r.GetObservedAtMs()), r.GetRevision(),
	}
}

func nodeValues(r *event.Node) []any {
	return []any{
		r.GetCluster(), r.GetNode(), r.GetSource(), small(r.GpusPresent), small(r.GpusHealthy), small(r.GpusAllocatable), r.Schedulable,
		r.GetStateRaw(), r.GetReason(), r.GetReservation(), r.GetGpuModel(), r.GetRemoved(), timeOf(r.ValidFromMs), time.UnixMilli(r.GetObservedAtMs()), r.GetRevision(),
	}
}

// verdictText is all verdicts as the cases write them, one a line, in order of their keys.
func (s *store) verdictText() string {
	s.t.Helper()
	rows, err := s.Conn.Query(context.Background(), `SELECT arrayStringConcat(arrayFilter(x -> x != '', [
			concat(cluster, '/', job_id), attempt, toString(seq), toString(outcome), outcome_reason,
			formatDateTime(valid_from, '%H:%i:%S'), if(valid_to = toDateTime64('2200-01-01', 3, 'UTC'), 'running', formatDateTime(valid_to, '%H:%i:%S')),
			concat('used=', ifNull(toString(domains_used), '?')), concat('min=', ifNull(toString(domains_min), '?')), concat('excess=', ifNull(toString(excess_domains), '?')),
			concat('partitions=', ifNull(toString(partitions_used), '?')),
			if(unknown_nodes > 0, concat('unknown=', toString(unknown_nodes)), ''),
			concat('shape=', if(empty(domains), '-', arrayStringConcat(arrayMap((d, g) -> concat(d, ':', ifNull(toString(g), '?')), domains, domain_gpus), ','))),
			concat('balance=', ifNull(toString(round(balance, 2)), '?')),
			if(intent = 'none', '', concat('intent="', intent, '" met=', multiIf(intent_met IS NULL, '?', intent_met, 'yes', 'no'))),
			if(aligned, 'aligned', ''), cause]), ' ')
		FROM (SELECT * FROM verdicts ORDER BY version DESC LIMIT 1 BY cluster, job_id, attempt, seq)
		WHERE NOT is_deleted ORDER BY cluster, toUInt64OrZero(job_id), job_id, attempt, seq`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	text, first, rest, more := "", "", "", 0
	end := func() {
		if more > 0 {
			first += " and " + strconv.Itoa(more) + " more"
		}
		if first != "" {
			text += first + " " + rest + "\n"
		}
	}
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			s.t.Fatal(err)
		}
		job, says, _ := strings.Cut(line, " ")
		if says == rest && clusterIn(job) == clusterIn(first) { // the tasks of an array
			more++
			continue
		}
		end()
		first, rest, more = job, says, 0
	}
	end()
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return text
}

// once does all there is to do.
func (s *store) once() Stats {
	s.t.Helper()
	stats, err := s.Once(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return stats
}

func clusterIn(job string) string {
	cluster, _, _ := strings.Cut(job, "/")
	return cluster
}
