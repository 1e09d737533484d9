// Package fabric is a collector, in the first hop of the flow: it reads what the GPUs of a node say of the NVLink fabric
// they are registered in, from NVML, or from the text of nvidia-smi -q, run on this machine or recorded on others, and
// emits one membership record a node whenever that changes. It never takes a ClusterUUID of zeros for a domain by itself,
// never decides what makes a domain, and never takes half an output for a whole one.
package fabric
