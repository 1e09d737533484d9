// Package nccl is a collector, in the first hop of the flow: it reads what NCCL says of itself, the output of nccl-tests and
// the lines of NCCL_DEBUG=INFO that name fabrics and communicators, from files that runs leave behind, and emits one
// benchmark record a run. It runs no test itself, decides nothing about domains, and never takes what a log says for proof:
// NCCL_MNNVL_UUID and NCCL_MNNVL_CLIQUE_ID override it.
package nccl
