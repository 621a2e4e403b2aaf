"""Pods on nodes: ``numa.hints``, ``numa.allocate``, ``numa.score``, ``numa.sequence``, ``numa.missed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from koordcore.allocators.numa import (
    NUMAAllocation,
    allocate_numa,
)
from koordcore.allocators.numa_align import NUMAAdmission
from koordcore.allocators.numa_request import (
    CPURequest,
    NUMARefusal,
    demand_on,
)
from koordcore.allocators.numa_together import fit_together
from koordcore.topology.numa import (
    NUMAHint,
    NUMAStatus,
    NUMATopologyPolicy,
    numa_ids,
)
from tests.conformance.core import Case, subject
from tests.conformance.numa_judge import (
    judge_allocation,
    judge_hints,
    judge_missed,
    judge_partially,
    judge_sequence,
)
from tests.conformance.numa_objects import (
    CaseCluster,
    CaseNode,
    args_of,
    filter_answer,
    filter_case,
    node_of,
    pre_filter,
    reserve_answer,
    rooms_of,
    score_case,
    status_of,
)
from tests.reference.numa_hints import numa_hints
from tests.reference.numa_score import fit_numa


def _hint_answer(hints: Mapping[str, Sequence[NUMAHint]]) -> Any:
    return {
        name: [
            {"mask": list(numa_ids(hint.mask or 0)), "preferred": hint.preferred, "score": hint.score}
            for hint in listed
        ]
        for name, listed in hints.items()
    }


@subject("numa.hints", judge=judge_hints)
def hints(case: Case) -> Any:
    args = args_of(case.input)
    node = node_of(case.input)
    status, request = pre_filter(case.input["pod"], args)
    if request is None:
        return {"preFilter": status}
    # The provider is asked alone: no other policy than the pod's own stands against it.
    alone = attrs.evolve(node.node, policy=request.numa_policy or node.node.policy)
    demand = demand_on(request, alone)
    if isinstance(demand, NUMARefusal):
        return {"status": status_of(demand)}
    found = numa_hints(node.state, demand, args=args)
    if isinstance(found, NUMARefusal):
        return {"status": status_of(found)}
    numa_status = [
        str(node.state.usage.status.get(numa, NUMAStatus.IDLE))
        for numa in range(node.node.topology.num_nodes)
    ]
    return {"status": {"code": "Success"}, "hints": _hint_answer(found), "numaStatus": numa_status}


@subject("numa.allocate", judge=judge_allocation)
def allocate(case: Case) -> Any:
    args = args_of(case.input)
    node, pod = node_of(case.input), case.input["pod"]
    status, request = pre_filter(pod, args)
    answer: dict[str, Any] = {"preFilter": status}
    if request is None:
        passed = {"filter": {"code": "Success"}, "reserve": {"code": "Success"}}
        return answer | passed if status["code"] == "Skip" else answer
    before, after = rooms_of(case.input)
    admission = filter_case(node, request, args, before)
    answer |= filter_answer(admission)
    if isinstance(admission, NUMARefusal):
        return answer
    allocation = allocate_numa(node.state, request, admission, args=args, room=after)
    answer |= reserve_answer(pod, node, request, allocation)
    best_effort = admission.policy is NUMATopologyPolicy.BEST_EFFORT and not request.designated
    if isinstance(allocation, NUMAAllocation) and best_effort:
        mask = allocation.mask
        answer["affinity"] = None if mask is None else list(numa_ids(mask))
    return answer


@subject("numa.score", judge=judge_partially)
def score(case: Case) -> Any:
    args = args_of(case.input)
    nrts = {nrt["metadata"]["name"]: nrt for nrt in case.input["nrts"]}
    status, request = pre_filter(case.input["pod"], args)
    answer: dict[str, Any] = {"preFilter": status}
    if request is None:
        return answer
    answer["nodes"] = {}
    for raw in case.input["nodes"]:
        name = raw["metadata"]["name"]
        pods = [pod for pod in case.input["pods"] if pod["spec"].get("nodeName") == name]
        node = CaseNode(raw, nrts.get(name), pods)
        admission = filter_case(node, request, args)
        here = filter_answer(admission)
        if isinstance(admission, NUMAAdmission):
            here["score"] = score_case(node, request, args, admission)
        answer["nodes"][name] = here
    return answer


@subject("numa.sequence", judge=judge_sequence)
def sequence(case: Case) -> Any:
    cluster = CaseCluster(case.input)
    return {
        "steps": [
            cluster.schedule(step["schedule"]) if "schedule" in step else cluster.release(step["release"])
            for step in case.input["steps"]
        ]
    }


@subject("numa.missed", judge=judge_missed)
def missed(case: Case) -> Any:
    if "steps" in case.input:
        return _joint(case.input)
    node, pod, args = node_of(case.input), case.input["pod"], args_of(case.input)
    status, request = pre_filter(pod, args)
    if request is None:
        return {"feasible": False, "preFilter": status}
    allocation = fit_numa(node.state, request, node.amounts, args=args)
    return {"feasible": isinstance(allocation, NUMAAllocation), **_held(pod, node, request, allocation)}


def _held(
    pod: Any, node: CaseNode, request: CPURequest, allocation: NUMAAllocation | NUMARefusal
) -> dict[str, Any]:
    """Show the placement alone."""
    shown = reserve_answer(pod, node, request, allocation)
    return {key: one for key, one in shown.items() if key == "resourceStatus"}


def _joint(given: Any) -> Any:
    cluster = CaseCluster(given)
    node = next(iter(cluster.nodes.values()))
    requests = [pre_filter(step["schedule"], cluster.args)[1] for step in given["steps"]]
    placed = fit_together(
        node.state,
        [request for request in requests if request is not None],
        node.amounts,
        args=cluster.args,
    )
    if isinstance(placed, NUMARefusal):
        return {"feasible": False, "reasons": list(placed.reasons)}
    pods = [step["schedule"] for step in given["steps"]]
    return {
        "feasible": True,
        "steps": [
            _held(pod, node, request, allocation)
            for pod, request, allocation in zip(pods, requests, placed, strict=True)
            if request is not None
        ],
    }
