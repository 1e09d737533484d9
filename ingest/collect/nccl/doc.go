// Package nccl reads what NCCL says of itself: the output of nccl-tests and the lines of NCCL_DEBUG=INFO that name fabrics
// and communicators. It stands at the first hop of the flow, emits no record yet, and never takes what a log says for
// proof: NCCL_MNNVL_UUID and NCCL_MNNVL_CLIQUE_ID override it.
package nccl
