"""CPUs, NUMA amounts and devices of one pod on one node: NodeNUMAResource and DeviceShare."""

from koordcore.scheduling.plugins.exact.plugin import ExactPlugin, describe_allocation
from koordcore.scheduling.plugins.exact.states import ExactStates, device_state, numa_state

__all__ = ["ExactPlugin", "ExactStates", "describe_allocation", "device_state", "numa_state"]
