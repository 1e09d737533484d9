package main

import (
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/ingest/collect"
	"github.com/spillway-io/spillway/ingest/collect/dcgm"
	"github.com/spillway-io/spillway/ingest/collect/fabric"
	"github.com/spillway-io/spillway/ingest/collect/kube"
	"github.com/spillway-io/spillway/ingest/collect/nccl"
	"github.com/spillway-io/spillway/ingest/collect/nic"
	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/ingest/collect/slurm"
	"github.com/spillway-io/spillway/ingest/collect/topology"
	"github.com/spillway-io/spillway/internal/engine"
)

// collectorDeps is what the process gives its collectors.
type collectorDeps struct {
	log      *slog.Logger
	registry prometheus.Registerer
	kafka    engine.Kafka
}

// collector says how one source is checked and built.
type collector struct {
	validate func(*settings) error
	build    func(*settings, collectorDeps) (collect.Collector, error)
}

// collectors is the one list of what is compiled in.
func collectors() map[string]collector {
	return map[string]collector{
		"slurm": {
			validate: func(s *settings) error { return s.Collect.Slurm.Validate() },
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				deps := slurm.Deps{Log: d.log, Registerer: d.registry}
				if topics := s.Collect.Slurm.JobComp; topics.StartTopic != "" {
					deps.Messages = newJobcompMessages(d.kafka, topics.Group, topics.StartTopic, topics.FinishTopic)
				}
				return slurm.New(s.Collect.Slurm, deps)
			},
		},
		"kubernetes": {
			validate: func(s *settings) error { return s.Collect.Kubernetes.Validate() },
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				return kube.New(s.Collect.Kubernetes, kube.Deps{Log: d.log, Registerer: d.registry})
			},
		},
		"topology": {
			validate: func(s *settings) error { return s.Collect.Topology.Validate() },
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				return topology.New(s.Collect.Topology, topology.Deps{Log: d.log, Registerer: d.registry})
			},
		},
		"dcgm": {
			validate: func(s *settings) error {
				err := s.Collect.DCGM.Validate()
				if direct := s.Collect.DCGM.Direct; direct.Enabled && len(direct.Command) == 0 {
					err = errors.Join(err, dcgm.Built())
				}
				return err
			},
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				helper, err := helperOf("dcgm")
				if err != nil {
					return nil, err
				}
				return dcgm.New(s.Collect.DCGM, dcgm.Deps{Log: d.log, Registerer: d.registry, Helper: helper})
			},
		},
		"fabric": {
			validate: func(s *settings) error {
				err := s.Collect.Fabric.Validate()
				if s.Collect.Fabric.NVML {
					err = errors.Join(err, fabric.Built())
				}
				return err
			},
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				helper, err := helperOf("nvml")
				if err != nil {
					return nil, err
				}
				return fabric.New(s.Collect.Fabric, fabric.Deps{Log: d.log, Registerer: d.registry, Helper: helper})
			},
		},
		"nic": {
			validate: func(s *settings) error { return s.Collect.NIC.Validate() },
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				return nic.New(s.Collect.NIC, nic.Deps{Log: d.log, Registerer: d.registry})
			},
		},
		"nccl": {
			validate: func(s *settings) error { return s.Collect.NCCL.Validate() },
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				return nccl.New(s.Collect.NCCL, nccl.Deps{Log: d.log, Registerer: d.registry})
			},
		},
		"simulate": {
			validate: func(s *settings) error { return s.Collect.Simulate.Validate() },
			build: func(s *settings, d collectorDeps) (collect.Collector, error) {
				deps := simulate.Deps{Log: d.log, Registerer: d.registry}
				if s.Collect.Simulate.AdviceURL != "" {
					deps.Ask = newAsker(s.Collect.Simulate.AdviceURL, s.API.TokenFile, d.log).ask
				}
				return simulate.New(s.Collect.Simulate, deps)
			},
		},
	}
}

func collectorNames() []string { return slices.Sorted(maps.Keys(collectors())) }
