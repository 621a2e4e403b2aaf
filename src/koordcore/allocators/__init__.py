"""Which exact things does a pod get: CPUs, devices, NUMA amounts, reserved capacity, nodes of a gang."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.allocators.claims.allocate import allocate_claims as allocate_claims
    from koordcore.allocators.claims.cel.errors import SelectorError as SelectorError
    from koordcore.allocators.claims.cel.selector import (
        compile_selector as compile_selector,
        device_variable as device_variable,
    )
    from koordcore.allocators.claims.outcome import (
        ClaimsAllocated as ClaimsAllocated,
        ClaimsRefused as ClaimsRefused,
    )
    from koordcore.allocators.device.allocate import allocate_devices as allocate_devices
    from koordcore.allocators.device.explain import explain_devices as explain_devices
    from koordcore.allocators.device.request import device_request_of as device_request_of
    from koordcore.allocators.device.state import node_devices as node_devices
    from koordcore.allocators.gang.demand import (
        GangDemand as GangDemand,
        GangPlacement as GangPlacement,
        GangShortfall as GangShortfall,
        Member as Member,
        Role as Role,
        Shape as Shape,
    )
    from koordcore.allocators.gang.planner import place_gang as place_gang
    from koordcore.allocators.node import (
        NodeAllocation as NodeAllocation,
        NodeOffer as NodeOffer,
        fit_node as fit_node,
    )
    from koordcore.allocators.node_request import NodeRequest as NodeRequest
    from koordcore.allocators.numa_request import (
        CPURequest as CPURequest,
        parse_cpu_request as parse_cpu_request,
    )
    from koordcore.allocators.numa_state import (
        NUMANode as NUMANode,
        NUMAState as NUMAState,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.allocators.claims.allocate": ("allocate_claims",),
            "koordcore.allocators.claims.cel.errors": ("SelectorError",),
            "koordcore.allocators.claims.cel.selector": ("compile_selector", "device_variable"),
            "koordcore.allocators.claims.outcome": ("ClaimsAllocated", "ClaimsRefused"),
            "koordcore.allocators.device.allocate": ("allocate_devices",),
            "koordcore.allocators.device.explain": ("explain_devices",),
            "koordcore.allocators.device.request": ("device_request_of",),
            "koordcore.allocators.device.state": ("node_devices",),
            "koordcore.allocators.gang.demand": (
                "GangDemand",
                "GangPlacement",
                "GangShortfall",
                "Member",
                "Role",
                "Shape",
            ),
            "koordcore.allocators.gang.planner": ("place_gang",),
            "koordcore.allocators.node": ("NodeAllocation", "NodeOffer", "fit_node"),
            "koordcore.allocators.node_request": ("NodeRequest",),
            "koordcore.allocators.numa_request": ("CPURequest", "parse_cpu_request"),
            "koordcore.allocators.numa_state": ("NUMANode", "NUMAState"),
        },
    )
