-- A fleet of {domains:UInt32} NVL72 racks in cluster alpha and {days:UInt32} days of {attempts:UInt32} attempts that end now, and a small cluster beta. Each kind of
-- thing that a board shows occurs: unknown domains, drained nodes, conflicts, spills of every cause, withdrawn rows.
INSERT INTO membership (cluster, node, valid_from, valid_to, domain, partition, levels, source, reason, generation, version)
SELECT 'alpha', concat('a', toString(intDiv(number, 18)), 'n', toString(number % 18)), {from:DateTime64(3)} - INTERVAL 60 DAY, '2200-01-01', concat('uuid-', toString(intDiv(number, 18))),
       concat('uuid-', toString(intDiv(number, 18)), '.1'), map('rack', concat('rack', toString(intDiv(number, 18)))), 'nvml', '', 1, 1
FROM numbers(18 * {domains:UInt32});

INSERT INTO membership (cluster, node, valid_from, valid_to, domain, partition, levels, source, reason, generation, version)
SELECT 'alpha', concat('a0n', toString(number)), {now:DateTime64(3)} - INTERVAL 2 HOUR, '2200-01-01', if(number = 0, '', 'uuid-1'), '', map('rack', 'rack1'), if(number = 0, '', 'nvml'), if(number = 0, 'in_progress', ''), 2, 2
FROM numbers(2);

INSERT INTO membership (cluster, node, valid_from, valid_to, domain, partition, levels, source, reason, generation, version)
SELECT 'alpha', concat('a0n', toString(number)), {from:DateTime64(3)} - INTERVAL 60 DAY, {now:DateTime64(3)} - INTERVAL 2 HOUR, 'uuid-0', 'uuid-0.1', map('rack', 'rack0'), 'nvml', '', 1, 3
FROM numbers(2);

INSERT INTO membership (cluster, node, valid_from, valid_to, domain, levels, source, reason, generation, version)
SELECT 'beta', concat('b', toString(number)), {from:DateTime64(3)} - INTERVAL 60 DAY, '2200-01-01', if(number = 0, '', 'block1'), map('block', 'block1'), if(number = 0, '', 'slurm_topology'), if(number = 0, 'no_source', ''), 1, 1
FROM numbers(8);

INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, reason, version)
SELECT 'alpha', concat('a', toString(intDiv(number, 18)), 'n', toString(number % 18)), {from:DateTime64(3)} - INTERVAL 60 DAY, '2200-01-01', 4, if(number = 7, NULL, 4), true, 'ALLOCATED', '', 1
FROM numbers(18 * {domains:UInt32});

INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, reason, version)
SELECT 'alpha', concat('a', toString(number % {domains:UInt32}), 'n5'), {from:DateTime64(3)} + INTERVAL number * 3600 SECOND, {from:DateTime64(3)} + INTERVAL number * 3600 + 1800 SECOND, 4, 0, false, 'DRAIN', 'ecc', 1
FROM numbers({days:UInt32} * 24);

INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe, gpus_free, slot_sizes, slots, gpus_basis, version)
SELECT 'alpha', concat('uuid-', toString(d)), toStartOfMinute({from:DateTime64(3)} + INTERVAL intDiv(step * 86400 * {days:UInt32}, steps) SECOND) AS minute, 18, usable, free, 72, usable * 4, usable * 4 - free * 4, 0, free * 4,
       [1, 2, 4, 8, 16, 32, 36, 64, 72] AS sizes, arrayMap(s -> toUInt32(intDiv(free * 4, s)), sizes), 'exact', toUnixTimestamp(minute)
FROM
(
    SELECT number % {domains:UInt32} AS d, intDiv(number, {domains:UInt32}) AS step, intDiv({attempts:UInt32} * 3, {domains:UInt32}) + 1 AS steps,
           toUInt16(18 - (cityHash64(d) % 5 = 0) - 2 * (cityHash64(d) % 11 = 0)) AS usable, toUInt16(cityHash64(d, step) % 1000 < 150 ? cityHash64(step, d, 1) % (usable + 1) : cityHash64(step, d, 2) % 5) AS free
    FROM numbers({attempts:UInt32} * 3 + {domains:UInt32})
);

INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe, gpus_free, slot_sizes, slots, gpus_basis, version, is_deleted) VALUES
('beta', 'block1', {from:DateTime64(3)} - INTERVAL 1 DAY, 8, 8, 8, 32, 32, 0, 0, 32, [1, 4, 8, 16], [32, 8, 4, 2], 'assumed', 1, 0),
('beta', 'block1', {now:DateTime64(3)} - INTERVAL 1 HOUR, 8, 8, 0, 32, 32, 32, 0, 0, [1, 4, 8, 16], [0, 0, 0, 0], 'assumed', toUnixTimestamp({now:DateTime64(3)} - INTERVAL 1 HOUR), 0),
('beta', 'block1', {now:DateTime64(3)} - INTERVAL 1 HOUR, 8, 8, 0, 32, 32, 32, 0, 0, [1, 4, 8, 16], [0, 0, 0, 0], 'assumed', toUnixTimestamp({now:DateTime64(3)} - INTERVAL 1 HOUR) + 1, 1);

INSERT INTO attempts (cluster, job_id, attempt, number, scheduler, name, user, account, queue, service_class, probe, state, submit, start, `end`, expected_end, requested_gpus, gpus, intent_mode, sources, observed_first, observed_last, version)
SELECT 'alpha', toString(1000000 + number), 'r0', 0, 'slurm', concat('train', toString(cityHash64(number) % 50)), concat('user', toString(cityHash64(number) % 100)), concat('team', toString(cityHash64(number) % 12)),
       ['gpu', 'large'][1 + number % 2], ['training', 'inference', 'interactive'][1 + number % 3], number % 100 = 99, if(running, 'running', 'completed'), start - INTERVAL 60 SECOND, start,
       if(running, NULL, start + INTERVAL length_s SECOND), start + INTERVAL 2 * length_s SECOND, gpus, gpus, 'none', ['slurm.squeue'], start, if(running, {now:DateTime64(3)}, start + INTERVAL length_s SECOND), 2
FROM
(
    SELECT number, {from:DateTime64(3)} + INTERVAL intDiv(number * 86400 * {days:UInt32}, {attempts:UInt32}) SECOND AS start, 600 + cityHash64(number, 1) % 7200 AS length_s,
           start + INTERVAL length_s SECOND > {now:DateTime64(3)} AS running, toUInt32([4, 8, 16, 32, 64, 72][1 + cityHash64(number, 2) % 6]) AS gpus
    FROM numbers({attempts:UInt32})
);

INSERT INTO attempts (cluster, job_id, attempt, number, scheduler, name, user, account, queue, service_class, state, submit, start, gpus, sources, observed_first, observed_last, version) VALUES
('beta', '1', 'r0', 0, 'slurm', 'lost', 'eve', 'x', 'gpu', 'training', 'running', {now:DateTime64(3)} - INTERVAL 3 HOUR, {now:DateTime64(3)} - INTERVAL 2 HOUR, NULL, ['slurm.squeue'], {now:DateTime64(3)} - INTERVAL 3 HOUR, {now:DateTime64(3)}, 1);

INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, gpus_basis, version)
SELECT 'alpha', job_id, attempt, 0, assumeNotNull(start), ifNull(`end`, toDateTime64('2200-01-01', 3, 'UTC')), arrayMap(i -> concat('a', toString((cityHash64(job_id) + intDiv(i, 9)) % {domains:UInt32}), 'n', toString(i % 18)), range(intDiv(assumeNotNull(gpus), 4))) AS nodes,
       arrayMap(x -> if(cityHash64(job_id) % 20 = 0, NULL, 4), nodes), arrayMap(x -> if(cityHash64(job_id) % 20 = 0, [], [0, 1, 2, 3]), nodes), gpus, 'exact', 1
FROM attempts WHERE cluster = 'alpha';

-- Every verdict was first written while its run held its GPUs, and again when it ended; most old versions are merged away.
INSERT INTO verdicts (cluster, job_id, attempt, seq, valid_from, valid_to, outcome, outcome_reason, gpus, node_count, unknown_nodes, domains_used, domains_min, excess_domains, domains, domain_gpus, domain_nodes, balance, smallest_shard, intent, intent_met, cause, cause_detail, membership_source, membership_generation, judged_at, version)
SELECT 'alpha', job_id, attempt, 0, assumeNotNull(start), if(v = 1, toDateTime64('2200-01-01', 3, 'UTC'), ifNull(`end`, toDateTime64('2200-01-01', 3, 'UTC'))), multiIf(h % 10 < 2, 'spill', h % 10 = 2, 'unknown', h % 10 < 5, 'one_domain', 'one_partition') AS outcome,
       if(outcome = 'spill', 'excess', ''), gpus, intDiv(assumeNotNull(gpus), 4), if(outcome = 'unknown', 1, 0), if(outcome = 'unknown', NULL, length(domains)), if(outcome = 'unknown', NULL, 1), if(outcome = 'unknown', NULL, length(domains) - 1),
       if(outcome = 'spill', [concat('uuid-', toString(h % {domains:UInt32})), concat('uuid-', toString((h + 1) % {domains:UInt32}))], [concat('uuid-', toString(h % {domains:UInt32}))]) AS domains,
       if(outcome = 'spill', [toNullable(assumeNotNull(gpus) - 4), 4], [if(outcome = 'unknown', NULL, gpus)]), if(outcome = 'spill', [intDiv(assumeNotNull(gpus), 4) - 1, 1], [intDiv(assumeNotNull(gpus), 4)]), NULL, NULL, if(h % 7 = 0, 'segment=16', 'none'), if(h % 7 = 0, outcome != 'spill', NULL),
       if(outcome = 'spill', ['policy', 'timing', 'repack', 'capacity', ''][1 + intDiv(h, 10) % 5], ''), map('largest_free', toString(h % 72), 'free_total', '300'), 'nvml', 1, assumeNotNull(start), v
FROM (SELECT *, cityHash64(job_id) AS h FROM attempts WHERE cluster = 'alpha') ARRAY JOIN if(h % 5 = 0, [1, 2], [2]) AS v;

INSERT INTO verdicts (cluster, job_id, attempt, seq, valid_from, valid_to, outcome, outcome_reason, node_count, unknown_nodes, domains, domain_gpus, domain_nodes, intent, membership_source, judged_at, version) VALUES
('beta', '1', 'r0', 0, {now:DateTime64(3)} - INTERVAL 2 HOUR, '2200-01-01', 'unknown', 'no_source', 2, 1, ['block1'], [NULL], [1], 'unknown', 'slurm_topology', {now:DateTime64(3)}, 1);

INSERT INTO topology_conflicts (cluster, node, source_a, domain_a, source_b, domain_b, detail, valid_from, valid_to, version)
SELECT 'alpha', concat('a1n', toString(number)), 'nvml', 'uuid-1', 'slurm_topology', 'rack2', 'rack2 is in uuid-1 and uuid-2', {from:DateTime64(3)}, '2200-01-01', 1 FROM numbers(3);

INSERT INTO source_events (kafka_partition, kafka_offset, loaded_at, cluster, source, good_at, problem, interval_ms, observed_at)
SELECT 0, number, t, if(number % 3 = 0, 'beta', 'alpha'), ['slurm', 'topology'][1 + number % 2], if(number % 3 = 0, NULL, t), if(number % 3 = 0, 'authentication failure', ''), 10000, t
FROM (SELECT number, {now:DateTime64(3)} - INTERVAL number * 10 SECOND AS t FROM numbers(least(8640 * {days:UInt32}, 200000)));

INSERT INTO placement_events (kafka_partition, kafka_offset, loaded_at, cluster, job_id, scheduler, source, state, observed_at, revision)
SELECT 0, number, t, 'alpha', toString(1000000 + number), 'slurm', 'slurm.squeue', 'running', t, number FROM (SELECT number, {from:DateTime64(3)} + INTERVAL intDiv(number * 86400 * {days:UInt32}, 3 * {attempts:UInt32}) SECOND AS t FROM numbers(3 * {attempts:UInt32}));

INSERT INTO dead_letters (kafka_partition, kafka_offset, loaded_at, topic, topic_partition, topic_offset, stage, reason, observed_at)
SELECT 0, number, {now:DateTime64(3)} - INTERVAL number MINUTE, 'spillway.placement.v1', 0, number, 'load', 'start is missing', {now:DateTime64(3)} - INTERVAL number MINUTE FROM numbers(50);

INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, gpus_measured, nodes_measured, shared_nodes, nvlink_bytes, nvlink_gpu_seconds, scale_out_bytes, scale_out_gpu_seconds, nodes, node_gpus, gpu_nvlink_bytes, node_nvlink_seconds, node_scale_out_bytes, version)
SELECT 'alpha', job_id, attempt, 0, toStartOfMinute(assumeNotNull(start)) + INTERVAL m MINUTE, 8, if(m = 3, 0, 2), 0, 8 * 60 * 4e11, 480, if(m = 3, NULL, 8 * 60 * 2e10), if(m = 3, 0, 480), ['a0n1', 'a0n2'], [[0, 1, 2, 3], [0, 1, 2, 3]], [[1e12, 1e12, 1e12, 1e12], [1e11, 1e11, 1e11, 1e11]], [240, 240], [1e11, 1e11], 1
FROM attempts ARRAY JOIN range(10) AS m WHERE cluster = 'alpha' AND start > {now:DateTime64(3)} - INTERVAL 2 DAY;

INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, valid_from, valid_to, evidence, reason, nvlink_bytes_per_second, scale_out_bytes_per_second, gpus, gpus_measured, version)
SELECT 'alpha', job_id, attempt, 0, assumeNotNull(start), '2200-01-01', if(cityHash64(job_id) % 2, 'unknown', 'silent_fallback'), if(cityHash64(job_id) % 2, 'not_measured', ''), if(cityHash64(job_id) % 2, NULL, 1e9), NULL, gpus, 0, 1
FROM attempts WHERE cluster = 'alpha' AND start > {now:DateTime64(3)} - INTERVAL 2 DAY;

INSERT INTO advice_ledger (asked_at, cluster, advice_id, caller, job_id, mode, gpus, strategy, age_ms, code, recommendation, wait_s, domains, domain_nodes, slowdown_low, slowdown_high, took_us)
SELECT assumeNotNull(start) - INTERVAL 30 SECOND, 'alpha', concat('adv', job_id), 'api', if(h % 2 = 0, job_id, ''), 'preferred', assumeNotNull(gpus), 'bounded', if(h % 9 = 0, NULL, 200), if(h % 10 = 0, 'stale', ''), if(h % 4 = 0, 'wait', 'place'), 0,
       if(h % 3 = 0, ['uuid-0'], [concat('uuid-', toString(h % {domains:UInt32}))]), [4], if(h % 5 = 0, NULL, 1.1), if(h % 5 = 0, NULL, 1.3), 900
FROM (SELECT *, cityHash64(job_id) AS h FROM attempts WHERE cluster = 'alpha' AND cityHash64(job_id) % 4 < 3);

INSERT INTO advice_feedback (told_at, cluster, advice_id, job_id, chosen, slowdown)
SELECT assumeNotNull(start), 'alpha', concat('adv', job_id), job_id, if(cityHash64(job_id) % 3 = 0, NULL, 1), if(cityHash64(job_id) % 5 = 0, NULL, 1.2) FROM attempts WHERE cluster = 'alpha' AND cityHash64(job_id) % 8 = 1;
