"""What a pod asks of a node beyond plain amounts, and by which arguments that is judged."""

from __future__ import annotations

from koordcore._record import record
from koordcore.allocators.numa_request import CPURequest
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import DeviceRequest
from koordcore.model.numa import DEFAULT_NUMA_ARGS, NUMAArgs


@record(kw_only=True)
class NodeArgs:
    """Arguments of everybody in the policy who has a say in what a pod gets of a node.

    Parameters
    ----------
    numa
        Of NodeNUMAResource: how NUMA nodes and CPUs are ranked.
    devices
        Of DeviceShare: how devices are ranked, and whether NUMA nodes bind them.
    """

    numa: NUMAArgs = DEFAULT_NUMA_ARGS
    devices: DevicePolicy = DEFAULT_DEVICE_POLICY


@record(kw_only=True, cache_hash=True)
class NodeRequest:
    """What a pod asks of a node beyond plain amounts.

    Parameters
    ----------
    cpu
        CPUs and NUMA nodes; ``None`` for a pod that requests nothing.
    devices
        Devices; ``None`` for none.
    """

    cpu: CPURequest | None = None
    devices: DeviceRequest | None = None
