package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/spillway-io/spillway/enrich/pass"
	"github.com/spillway-io/spillway/enrich/traffic"
	"github.com/spillway-io/spillway/ingest/collect/dcgm"
	"github.com/spillway-io/spillway/ingest/collect/fabric"
	"github.com/spillway-io/spillway/ingest/collect/kube"
	"github.com/spillway-io/spillway/ingest/collect/nccl"
	"github.com/spillway-io/spillway/ingest/collect/nic"
	"github.com/spillway-io/spillway/ingest/collect/simulate"
	"github.com/spillway-io/spillway/ingest/collect/slurm"
	"github.com/spillway-io/spillway/ingest/collect/topology"
	"github.com/spillway-io/spillway/ingest/kafka"
	"github.com/spillway-io/spillway/ingest/load"
	"github.com/spillway-io/spillway/internal/config"
	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/internal/telemetry"
	"github.com/spillway-io/spillway/query/api"
)

// settings is the whole configuration, one block a stage in the order of the flow.
type settings struct {
	Engine    engine.Config     `yaml:"engine"`
	Topics    kafka.TopicConfig `yaml:"topics"`
	Collect   collectSettings   `yaml:"collect"`
	Load      load.Config       `yaml:"load"`
	Enrich    pass.Config       `yaml:"enrich"`
	Traffic   traffic.Config    `yaml:"traffic"`
	API       api.Config        `yaml:"api"`
	Advise    api.AdviseConfig  `yaml:"advise"`
	Telemetry telemetry.Config  `yaml:"telemetry"`
}

// collectSettings has one block a collector; sources names those that run.
type collectSettings struct {
	Sources    []string        `yaml:"sources"`
	Slurm      slurm.Config    `yaml:"slurm"`
	Kubernetes kube.Config     `yaml:"kubernetes"`
	Topology   topology.Config `yaml:"topology"`
	DCGM       dcgm.Config     `yaml:"dcgm"`
	Fabric     fabric.Config   `yaml:"fabric"`
	NIC        nic.Config      `yaml:"nic"`
	NCCL       nccl.Config     `yaml:"nccl"`
	Simulate   simulate.Config `yaml:"simulate"`
}

func defaultSettings() settings {
	return settings{
		Engine: engine.DefaultConfig(), Topics: kafka.DefaultTopicConfig(),
		Collect: collectSettings{
			Sources: []string{}, Slurm: slurm.DefaultConfig(), Kubernetes: kube.DefaultConfig(), Topology: topology.DefaultConfig(), DCGM: dcgm.DefaultConfig(),
			Fabric: fabric.DefaultConfig(), NIC: nic.DefaultConfig(), NCCL: nccl.DefaultConfig(), Simulate: simulate.DefaultConfig(),
		},
		Load: load.DefaultConfig(), Enrich: pass.DefaultConfig(), Traffic: traffic.DefaultConfig(),
		API: api.DefaultConfig(), Advise: api.DefaultAdviseConfig(), Telemetry: telemetry.DefaultConfig(),
	}
}

// Validate checks every block that will be used, and names the keys at fault.
func (s *settings) Validate() error {
	errs := []error{s.Engine.Validate(), s.Topics.Validate(), s.Load.Validate(), s.Enrich.Validate(), s.Traffic.Validate(), s.API.Validate(), s.Advise.Validate(), s.Telemetry.Validate()}
	for i, name := range s.Collect.Sources {
		if slices.Contains(s.Collect.Sources[:i], name) {
			errs = append(errs, fmt.Errorf("collect.sources: %s is named twice: name each source once", name))
			continue
		}
		c, ok := collectors()[name]
		if !ok {
			errs = append(errs, fmt.Errorf("collect.sources: %q is none of %v", name, collectorNames()))
			continue
		}
		if err := c.validate(s); err != nil {
			errs = append(errs, fmt.Errorf("collect.%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Warnings are settings that are legal and most likely not meant.
func (s *settings) Warnings() []string {
	var out []string
	if len(s.Collect.Sources) == 0 {
		out = append(out, "collect.sources is empty: nothing is collected by `up` and `collect`")
	}
	if s.Collect.runs("slurm") && !s.Collect.runs("topology") {
		out = append(out, "collect.sources has slurm without topology: every verdict will be unknown unless another process collects it")
	}
	if s.Collect.runs("slurm") && len(s.Collect.Slurm.ServiceClasses) == 0 {
		out = append(out, "collect.slurm.service_classes is empty: no job has a class, and the alert SensitiveSpill goes by it; write for example [{class: training, accounts: [\"ml-*\"]}]")
	}
	if s.Collect.runs("kubernetes") && len(s.Collect.Kubernetes.ServiceClasses) == 0 {
		out = append(out, "collect.kubernetes.service_classes is empty: no job has a class, and the alert SensitiveSpill goes by it; write for example [{class: training, users: [\"team-*\"]}]")
	}
	if s.Collect.runs("topology") {
		out = append(out, s.Collect.Topology.Warnings()...)
	}
	if s.Collect.runs("dcgm") {
		out = append(out, s.Collect.DCGM.Warnings()...)
	}
	if s.Collect.runs("nic") {
		out = append(out, s.Collect.NIC.Warnings()...)
	}
	return out
}

func (c *collectSettings) runs(name string) bool {
	for _, s := range c.Sources {
		if s == name {
			return true
		}
	}
	return false
}

// gone are the keys of earlier versions that a file may still have.
var gone = map[string]string{
	"engine.kafka.partitions": "topics are made with topics.partitions",
}

// configFlag adds -c and gives how to read the configuration: defaults, then the file, then SPILLWAY_ variables.
func configFlag(cmd *cobra.Command) func() (*settings, error) {
	file := cmd.Flags().StringP("config", "c", os.Getenv("SPILLWAY_CONFIG"), "configuration file (or SPILLWAY_CONFIG); none = all defaults")
	return func() (*settings, error) {
		s := defaultSettings()
		note := func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "spillway: note:", text) }
		if err := config.Load(*file, &s, config.WithNotes(note), config.WithGone(gone)); err != nil {
			return nil, &exitError{exitUsage, err}
		}
		return &s, nil
	}
}

// warn logs what Warnings says.
func warn(log *slog.Logger, s *settings) {
	for _, w := range s.Warnings() {
		log.Warn("suspect setting", "what", w)
	}
}
