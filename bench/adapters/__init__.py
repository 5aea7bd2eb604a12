"""One file per system. Each has a function per workload, with the system's documented fast path for it."""
