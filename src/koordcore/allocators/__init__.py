"""Which exact things does a pod get: CPUs, devices, NUMA amounts, reserved capacity, nodes of a gang."""
