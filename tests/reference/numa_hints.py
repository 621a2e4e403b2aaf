"""The hints that the choice of NUMA nodes amounts to, laid open as the modelled plugin gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordcore.allocators.numa_align import PLAIN_ROOM, field_of, hints_of
from koordcore.allocators.numa_request import CPUDemand, NUMARefusal
from koordcore.allocators.numa_state import NUMAState
from koordcore.model.numa import DEFAULT_NUMA_ARGS, NUMAArgs
from koordcore.topology.numa import NUMAHint


def numa_hints(
    state: NUMAState, demand: CPUDemand, *, args: NUMAArgs = DEFAULT_NUMA_ARGS
) -> Mapping[str, Sequence[NUMAHint]] | NUMARefusal:
    """List every mask that can serve CPUs and amounts, or say that no list can be made."""
    if not state.node.zones or (demand.bind and not state.node.topology.valid):
        return NUMARefusal.because("node(s) Insufficient NUMA Node resources")
    return hints_of(field_of(state, demand, args, PLAIN_ROOM), demand.policy)
