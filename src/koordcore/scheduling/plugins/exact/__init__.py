"""CPUs, NUMA amounts and devices of one pod on one node: NodeNUMAResource and DeviceShare."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.scheduling.plugins.exact.plugin import (
        ExactPlugin as ExactPlugin,
        describe_allocation as describe_allocation,
    )
    from koordcore.scheduling.plugins.exact.states import (
        ExactStates as ExactStates,
        device_state as device_state,
        numa_state as numa_state,
    )

# Inner names, each read with its module: whoever needs one of them is not to wait for all.
__all__, __getattr__, __dir__ = read_late(
    __name__,
    {
        "koordcore.scheduling.plugins.exact.plugin": ("ExactPlugin", "describe_allocation"),
        "koordcore.scheduling.plugins.exact.states": ("ExactStates", "device_state", "numa_state"),
    },
)
