// Package slurmjson decodes Slurm's JSON for the Slurm collector (sources into Kafka): the documents of its tools and its
// REST API, of data_parser v0.0.39 to v0.0.45 and later, and the messages of its job completion plugin for Kafka. It reads
// bytes and hands over one record at a time; it never asks Slurm anything, looks nothing up, and judges nothing.
package slurmjson
