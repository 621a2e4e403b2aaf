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
from koordcore.topology.numa import (
    NUMAExclusive,
    NUMAHint,
    NUMAStatus,
    NUMATopologyPolicy,
    mask_of,
    merge_hints,
    numa_ids,
)
from tests.conformance.core import Case, Verdict, equality, subject


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


def _hint_of(raw: Any) -> NUMAHint:
    mask = None if raw["mask"] is None else mask_of(raw["mask"])
    return NUMAHint(mask, raw["preferred"], raw["score"], raw["unsatisfied"])


def _free_reasons(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Judge by equality; an expected reason ``?`` leaves the text free."""
    expected = case.raw.get("expect")
    if isinstance(expected, dict) and expected.get("reasons") == ["?"] and answer["reasons"]:
        answer = answer | {"reasons": ["?"]}
    return equality(case, answer)


@subject("numa.merge", judge=_free_reasons)
def merge(case: Case) -> Any:
    given = case.input
    policy = NUMATopologyPolicy.NONE if given["policy"] == "none" else NUMATopologyPolicy(given["policy"])
    providers = [
        provider
        and {
            name: None if hints is None else [_hint_of(hint) for hint in hints]
            for name, hints in provider.items()
        }
        for provider in given["providers"]
    ]
    merged = merge_hints(
        policy,
        given["numaNodes"],
        providers,
        exclusive=NUMAExclusive(given["exclusive"]),
        status={numa: NUMAStatus(text) for numa, text in enumerate(given["numaStatus"])},
    )
    answer: dict[str, Any] = {"admit": merged.admitted, "reasons": list(merged.reasons)}
    if merged.admitted:
        mask = merged.hint.mask
        answer["hint"] = {
            "mask": None if mask is None else list(numa_ids(mask)),
            "preferred": merged.hint.preferred,
            "score": merged.hint.score,
        }
    return answer
