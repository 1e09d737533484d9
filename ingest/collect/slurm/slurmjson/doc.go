// Package slurmjson decodes the JSON documents of Slurm's tools and REST API, of data_parser v0.0.39 to v0.0.45 and
// later, for the Slurm collector (sources into Kafka). It reads from an io.Reader and hands over one record at a time; it
// never asks Slurm anything, looks nothing up, and judges nothing.
package slurmjson
