-- Two clusters with equal job and node names. In alpha job 7 spilled by policy, was requeued and then sat well; an older
-- version of the second verdict called it a spill too, so a reader that took old rows would list it twice.
INSERT INTO attempts (cluster, job_id, attempt, number, scheduler, name, user, account, queue, service_class, probe, state, submit, start, `end`, expected_end, requested_gpus, requested_nodes, gpus, intent_mode, sources, observed_first, observed_last, version) VALUES
('alpha', '7', 'r0', 0, 'slurm', 'pretrain', 'ada', 'ml-pre', 'gpu', 'training', false, 'requeued', '2026-11-29 09:59:00', '2026-11-29 10:00:00', '2026-11-29 11:00:00', '2026-11-29 12:00:00', 64, 16, 64, 'none', ['slurm.squeue'], '2026-11-29 10:00:00', '2026-11-29 11:00:00', 1),
('alpha', '7', 'r1', 1, 'slurm', 'pretrain', 'ada', 'ml-pre', 'gpu', 'training', false, 'running', '2026-11-29 11:00:00', '2026-11-29 11:05:00', NULL, '2026-11-29 13:05:00', 64, 16, 64, 'required', ['slurm.squeue'], '2026-11-29 11:05:00', '2026-11-29 11:59:00', 1),
('alpha', '8', 'r0', 0, 'slurm', 'probe', 'root', 'ops', 'gpu', 'probe', true, 'running', '2026-11-29 11:00:00', '2026-11-29 11:00:00', NULL, NULL, 8, 2, 8, 'none', ['slurm.squeue'], '2026-11-29 11:00:00', '2026-11-29 11:00:00', 1),
('alpha', '9', 'r0', 0, 'slurm', 'waiting', 'bob', 'ml-post', 'gpu', 'training', false, 'pending', '2026-11-29 11:00:00', NULL, NULL, NULL, 128, 32, NULL, 'none', ['slurm.squeue'], '2026-11-29 11:00:00', '2026-11-29 11:00:00', 1),
('beta', '7', 'r0', 0, 'slurm', 'other', 'eve', 'x', 'gpu', 'training', false, 'running', '2026-11-29 11:00:00', '2026-11-29 11:00:00', NULL, NULL, 8, 2, 8, 'none', ['slurm.squeue'], '2026-11-29 11:00:00', '2026-11-29 11:00:00', 1);

INSERT INTO attempts (cluster, job_id, attempt, number, is_deleted, version) VALUES ('alpha', '7', '@1', 0, 1, 2);

INSERT INTO placements (cluster, job_id, attempt, seq, valid_from, valid_to, nodes, node_gpus, node_gpu_index, gpus, gpus_basis, version) VALUES
('alpha', '7', 'r0', 0, '2026-11-29 10:00:00', '2026-11-29 11:00:00', ['n1', 'n2'], [32, 32], [[], []], 64, 'exact', 1),
('alpha', '7', 'r1', 0, '2026-11-29 11:05:00', '2200-01-01 00:00:00', ['n1'], [NULL], [[0, 1]], 64, 'unknown', 1),
('alpha', '8', 'r0', 0, '2026-11-29 11:00:00', '2200-01-01 00:00:00', ['n1', 'n3'], [4, 4], [[], []], 8, 'exact', 1),
('beta', '7', 'r0', 0, '2026-11-29 11:00:00', '2200-01-01 00:00:00', ['n1', 'n9'], [4, 4], [[], []], 8, 'exact', 1);

INSERT INTO verdicts (cluster, job_id, attempt, seq, valid_from, valid_to, outcome, outcome_reason, gpus, node_count, unknown_nodes, domains_used, domains_min, excess_domains, domains, domain_gpus, domain_nodes, balance, smallest_shard, intent, intent_met, cause, cause_detail, membership_source, membership_generation, judged_at, version) VALUES
('alpha', '7', 'r0', 0, '2026-11-29 10:00:00', '2026-11-29 11:00:00', 'spill', 'excess', 64, 16, 0, 2, 1, 1, ['rack01', 'rack02'], [60, 4], [15, 1], 0.067, 4, 'none', NULL, 'policy', map('largest_free', '72', 'free_total', '300', 'window_s', '900'), 'slurm_topology', 3, '2026-11-29 10:00:01', 1),
('alpha', '7', 'r1', 0, '2026-11-29 11:05:00', '2200-01-01 00:00:00', 'spill', 'excess', 64, 16, 0, 2, 1, 1, ['rack01', 'rack02'], [32, 32], [8, 8], 1, 32, 'segment=16', false, 'timing', map('largest_free', '40'), 'slurm_topology', 3, '2026-11-29 11:05:01', 1),
('alpha', '8', 'r0', 0, '2026-11-29 11:00:00', '2200-01-01 00:00:00', 'spill', 'excess', 8, 2, 0, 2, 1, 1, ['rack01', 'rack02'], [4, 4], [1, 1], 1, 4, 'none', NULL, 'policy', map('largest_free', '72'), 'slurm_topology', 3, '2026-11-29 11:00:01', 1),
('beta', '7', 'r0', 0, '2026-11-29 11:00:00', '2200-01-01 00:00:00', 'unknown', 'membership', 8, 2, 1, NULL, 1, NULL, ['rack01'], [4], [1], NULL, NULL, 'none', NULL, '', map(), 'slurm_topology', 1, '2026-11-29 11:00:01', 1);

INSERT INTO verdicts (cluster, job_id, attempt, seq, valid_from, valid_to, outcome, gpus, node_count, unknown_nodes, domains_used, domains_min, excess_domains, domains, domain_gpus, domain_nodes, balance, smallest_shard, intent, intent_met, membership_source, membership_generation, judged_at, version) VALUES
('alpha', '7', 'r1', 0, '2026-11-29 11:05:00', '2200-01-01 00:00:00', 'one_domain', 64, 16, 0, 1, 1, 0, ['rack01'], [64], [16], 1, 64, 'segment=16', true, 'slurm_topology', 4, '2026-11-29 11:05:02', 2);

INSERT INTO domain_capacity (cluster, domain, minute, nodes, nodes_usable, nodes_free, gpus, gpus_usable, gpus_held, gpus_probe, gpus_free, slot_sizes, slots, gpus_basis, version) VALUES
('alpha', 'rack01', '2026-11-29 10:00:00', 18, 18, 3, 72, 72, 60, 0, 12, [1, 4, 64], [12, 3, 0], 'exact', 1),
('alpha', 'rack01', '2026-11-29 11:05:00', 18, 18, 1, 72, 72, 64, 4, 8, [1, 4, 64], [8, 1, 0], 'exact', 2),
('alpha', 'rack02', '2026-11-29 10:00:00', 18, 16, 16, 72, 64, 0, 0, 64, [1, 4, 64], [64, 16, 1], 'exact', 1),
('beta', 'rack01', '2026-11-29 10:00:00', 18, 18, 18, 72, 72, 0, 0, 72, [1, 4, 64], [72, 18, 1], 'assumed', 1);

INSERT INTO membership (cluster, node, valid_from, valid_to, domain, partition, levels, source, reason, generation, version) VALUES
('alpha', 'n1', '2026-11-29 00:00:00', '2200-01-01 00:00:00', 'rack01', '', map('block', 'rack01'), 'slurm_topology', '', 3, 1),
('alpha', 'n2', '2026-11-29 00:00:00', '2200-01-01 00:00:00', 'rack02', '', map('block', 'rack02'), 'slurm_topology', '', 3, 1),
('beta', 'n1', '2026-11-29 00:00:00', '2200-01-01 00:00:00', 'rack01', '', map(), 'slurm_topology', '', 1, 1),
('beta', 'n9', '2026-11-29 00:00:00', '2200-01-01 00:00:00', '', '', map(), '', 'no_source', 1, 1);

INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, reason, version) VALUES
('alpha', 'n1', '2026-11-29 00:00:00', '2200-01-01 00:00:00', 4, 4, true, 'ALLOCATED', '', 1),
('alpha', 'n3', '2026-11-29 00:00:00', '2200-01-01 00:00:00', 4, 0, false, 'DRAIN', 'ecc', 1);

INSERT INTO topology_conflicts (cluster, node, source_a, domain_a, source_b, domain_b, detail, valid_from, valid_to, version) VALUES
('alpha', 'n2', 'nvml', 'u-1', 'slurm_topology', 'rack02', 'rack02 is in u-1 and u-2', '2026-11-29 00:00:00', '2200-01-01 00:00:00', 1);

INSERT INTO source_events (kafka_partition, kafka_offset, loaded_at, cluster, source, good_at, problem, interval_ms, observed_at) VALUES
(0, 0, '2026-11-29 11:59:50', 'alpha', 'slurm', '2026-11-29 11:59:50', '', 10000, '2026-11-29 11:59:50'),
(0, 1, '2026-11-29 11:59:50', 'beta', 'slurm', '2026-11-29 11:50:00', 'authentication failure', 10000, '2026-11-29 11:59:50');

INSERT INTO placement_events (kafka_partition, kafka_offset, loaded_at, cluster, job_id, scheduler, source, state, observed_at) VALUES
(0, 0, '2026-11-29 11:59:00', 'alpha', '7', 'slurm', 'slurm.squeue', 'running', '2026-11-29 11:59:00'),
(0, 1, '2026-11-29 11:59:50', 'alpha', '8', 'slurm', 'slurm.squeue', 'running', '2026-11-29 11:59:50');

INSERT INTO pass_progress (pass, raw_table, kafka_partition, next_offset, version) VALUES ('enrich', 'placement_events', 0, 1, 1);

INSERT INTO dead_letters (kafka_partition, kafka_offset, loaded_at, topic, topic_partition, topic_offset, stage, reason, observed_at) VALUES
(0, 0, '2026-11-29 11:59:00', 'spillway.placement.v1', 0, 5, 'load', 'start is missing', '2026-11-29 11:59:00');

INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, gpus_measured, nodes_measured, nvlink_bytes, nvlink_gpu_seconds, scale_out_bytes, scale_out_gpu_seconds, nodes, node_gpus, gpu_nvlink_bytes, node_nvlink_seconds, node_scale_out_bytes, version) VALUES
('alpha', '7', 'r0', 0, '2026-11-29 10:30:00', 64, 2, 384e12, 3840, 192e12, 3840, ['n1', 'n2'], [[0, 1], [0, 1]], [[6e12, 6e12], [1e12, 2e12]], [120, 120], [6e12, NULL], 1),
('alpha', '7', 'r0', 0, '2026-11-29 10:31:00', 64, 2, 768e12, 3840, NULL, 0, ['n1', 'n2'], [[0, 1], [0, 1]], [[6e12, 6e12], [1e12, 2e12]], [120, 120], [NULL, NULL], 1);

INSERT INTO job_traffic (cluster, job_id, attempt, seq, minute, version, is_deleted) VALUES ('alpha', '7', 'r0', 0, '2026-11-29 10:32:00', 2, 1);

INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, valid_from, valid_to, holding, evidence, reason, nvlink_bytes_per_second, scale_out_bytes_per_second, gpus, gpus_measured, seconds, outlier_nodes, first_minute, last_minute, version) VALUES
('alpha', '7', 'r0', 0, '2026-11-29 10:00:00', '2026-11-29 11:00:00', 1, 'contradicted', '', 100e9, 5e8, 64, 64, 60, [], '2026-11-29 10:30:00', '2026-11-29 10:30:00', 1),
('alpha', '7', 'r1', 0, '2026-11-29 11:05:00', '2200-01-01 00:00:00', 1, 'silent_fallback', '', 1e8, 60e9, 64, 64, 600, ['n9'], '2026-11-29 11:05:00', '2026-11-29 11:59:00', 1),
('beta', '7', 'r0', 0, '2026-11-29 11:00:00', '2200-01-01 00:00:00', 1, 'unknown', 'no_counters', NULL, NULL, 8, 0, 0, [], '1970-01-01 00:00:00', '1970-01-01 00:00:00', 1);

INSERT INTO traffic_evidence (cluster, job_id, attempt, seq, valid_from, valid_to, holding, evidence, reason, nvlink_bytes_per_second, scale_out_bytes_per_second, gpus, gpus_measured, seconds, outlier_nodes, first_minute, last_minute, version) VALUES
('alpha', '7', 'r0', 0, '2026-11-29 10:00:00', '2026-11-29 11:00:00', 1, 'confirmed', '', 150e9, 50e9, 64, 64, 120, [], '2026-11-29 10:30:00', '2026-11-29 10:31:00', 2);

-- A node that a job holds and its scheduler calls down.
INSERT INTO node_states (cluster, node, valid_from, valid_to, gpus_present, gpus_usable, schedulable, state_raw, reason, version) VALUES
('beta', 'n9', '2026-11-29 09:00:00', '2200-01-01 00:00:00', 8, 8, false, 'DOWN', 'Not responding', 1);
