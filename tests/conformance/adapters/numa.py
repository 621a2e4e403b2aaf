"""CPUs and NUMA nodes: ``cpu.*`` and ``numa.*``."""

from __future__ import annotations

from typing import Any

from koordcore.allocators.cpuset import CPUShortage, CPUWish, allocate_cpus, available_cpus
from koordcore.model.numa import (
    CPUBindPolicy,
    CPUExclusivePolicy,
    CPUHoldings,
    NUMAAllocateStrategy,
)
from koordcore.topology.cpu import CPUTopology, format_cpulist, parse_cpulist
from tests.conformance.core import Case, subject


def _known(kind: Any, text: str, default: Any) -> Any:
    """Read an enum; a text that names nothing means the default, as in the reference."""
    return kind(text) if text in list(kind) else default


@subject("cpu.take")
def take(case: Case) -> Any:
    given = case.input
    topology = CPUTopology.of(
        (cpu, core, numa, socket) for socket, numa, core, *cpus in given["cores"] for cpu in cpus
    )
    holdings = CPUHoldings()
    for holder in given["holders"]:
        exclusive = _known(CPUExclusivePolicy, holder["exclusive"], CPUExclusivePolicy.NONE)
        holdings = holdings.taking(parse_cpulist(holder["cpuset"]), exclusive)
    preferred = parse_cpulist(given["preferred"])
    holdings = holdings.giving_back(preferred).giving_back(parse_cpulist(given["preemptible"]))
    wish = CPUWish(
        bind_policy=_known(CPUBindPolicy, given["bindPolicy"], CPUBindPolicy.DEFAULT),
        required=given["required"],
        exclusive=_known(CPUExclusivePolicy, given["exclusive"], CPUExclusivePolicy.NONE),
        strategy=_known(NUMAAllocateStrategy, given["strategy"], NUMAAllocateStrategy.LEAST_ALLOCATED),
        max_ref_count=given["maxRefCount"],
    )
    reserved = parse_cpulist(given["reserved"])
    free = available_cpus(topology, holdings, reserved=reserved, max_ref_count=wish.max_ref_count)
    answer: dict[str, Any] = {"available": format_cpulist(free)}
    taken = allocate_cpus(topology, holdings, given["n"], wish, reserved=reserved, preferred=preferred)
    if isinstance(taken, CPUShortage):
        return answer | {"error": str(taken)}
    return answer | {"cpuset": format_cpulist(taken), "size": taken.bit_count()}
