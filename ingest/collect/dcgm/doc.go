// Package dcgm is a collector, in the first hop of the flow: it scrapes NVIDIA's dcgm-exporter, or asks DCGM on this machine
// through a helper process, and emits, for every node and scrape, one record of counters, and a record of the node's NVLink
// fabric whenever that changes. What a number means follows from the id of its DCGM field alone; the type that an
// exposition declares is whatever an operator once wrote and is not looked at. The collector never takes a blank for a
// zero, never sums what an exporter merely repeats, and never loads NVIDIA's library into the process that collects.
package dcgm
