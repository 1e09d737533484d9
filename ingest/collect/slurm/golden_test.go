package slurm

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/collect/collecttest"
)

// Each recorded document alone, through the replay: what its jobs and nodes become.
func TestRecordsOfRecordedDocuments(t *testing.T) {
	for _, name := range []string{
		samples + "squeue.json", samples + "squeue_after.json", samples + "squeue_spill_segments.json",
		samples + "scontrol_jobs.json", samples + "rest_jobs.json", samples + "sacct.json", samples + "rest_slurmdb_job14.json",
		samples + "squeue_job4_v0.0.42.json", samples + "squeue_job4_v0.0.43.json", samples + "squeue_job4_v0.0.44.json", samples + "squeue_job4_v0.0.45.json",
		samples + "squeue_24.11.json", samples + "nodes_24.11.json",
		samples + "nodes.json", samples + "jobcomp_kafka.jsonl", "prolog/testdata/prolog_epilog_env.txt",
	} {
		base := name[strings.LastIndex(name, "/")+1:]
		t.Run(base, func(t *testing.T) {
			collecttest.Golden(t, strings.TrimSuffix(strings.TrimSuffix(base, ".jsonl"), ".json")+".golden", collecttest.Lines(t, replayed(t, name)))
		})
	}
}
