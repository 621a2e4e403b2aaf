"""Pods on nodes: ``numa.hints``, ``numa.allocate``, ``numa.score``, ``numa.sequence``, ``numa.missed``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from koordcore.allocators.numa import (
    NUMAAllocation,
    allocate_numa,
    fit_numa,
    score_numa,
)
from koordcore.allocators.numa_align import NUMAAdmission, numa_hints
from koordcore.allocators.numa_request import (
    CPUDemand,
    NUMARefusal,
    demand_on,
)
from koordcore.allocators.numa_together import fit_together
from koordcore.model.numa import (
    CPUAllocation,
    NUMAArgs,
    NUMANodeResource,
)
from koordcore.model.resources import make_resources
from koordcore.topology.cpu import parse_cpulist
from koordcore.topology.numa import (
    NUMAHint,
    NUMAStatus,
    NUMATopologyPolicy,
    mask_of,
    numa_ids,
)
from tests.conformance.core import Case, Verdict, difference, equality, subject
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
    status_of,
)
from tests.reference.numa_placement import StaticResult


def _lenient(expected: Any, answer: Any, *, partial: bool) -> Any:
    """Drop from an answer what an expectation leaves open."""
    if isinstance(expected, list) and isinstance(answer, list) and len(expected) == len(answer):
        return [_lenient(*pair, partial=partial) for pair in zip(expected, answer, strict=True)]
    if not isinstance(expected, dict) or not isinstance(answer, dict):
        return answer
    kept = {
        key: _lenient(expected.get(key), value, partial=partial)
        for key, value in answer.items()
        if key in expected or not partial
    }
    if "resourceStatusRaw" not in expected:
        kept.pop("resourceStatusRaw", None)
    return kept


def _judge_partially(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Judge by equality with what the expectation gives."""
    return equality(case, _lenient(case.raw.get("expect"), answer, partial=bool(case.raw.get("partial"))))


def _ground(node: CaseNode, pod: Any, args: NUMAArgs) -> StaticResult | None:
    """The node as the slow reference sees it; ``None`` where the pod cannot go there at all."""
    _, request = pre_filter(pod, args)
    demand = None if request is None else demand_on(request, node.node)
    if demand is None or isinstance(demand, NUMARefusal):
        return None
    return StaticResult(node.node, node.state.allocations, demand)


def _legal(ground: StaticResult, shown: Mapping[str, Any]) -> list[str]:
    """What is wrong with a placement that an answer shows."""
    status = shown.get("resourceStatus") or {"cpuset": "", "numaNodeResources": []}
    amounts = [
        NUMANodeResource(entry["node"], make_resources(entry["resources"]))
        for entry in status["numaNodeResources"]
    ]
    affinity = shown.get("affinity")
    wrong = ground.violations(parse_cpulist(status["cpuset"]), amounts, aligned=bool(affinity))
    if affinity and {entry.node for entry in amounts} - set(affinity):
        wrong.append(f"amounts beyond NUMA nodes {affinity}")
    return wrong


def _objective(node: CaseNode, pod: Any, args: NUMAArgs, shown: Mapping[str, Any]) -> tuple[Any, ...]:
    """How good a placement is; smaller is better.

    NUMA nodes chosen, their score (higher is better) and value, NUMA nodes used, largest shares.
    """
    entries = (shown.get("resourceStatus") or {}).get("numaNodeResources") or []
    names = sorted({name for entry in entries for name in entry["resources"]})
    shares = [max(entry["resources"].get(name, 0) for entry in entries) for name in names]
    mask = mask_of(shown.get("affinity") or [])
    _, request = pre_filter(pod, args)
    demand = None if request is None else demand_on(request, node.node)
    found = numa_hints(node.state, demand, args=args) if isinstance(demand, CPUDemand) else {}
    listed = [] if isinstance(found, NUMARefusal) else next(iter(found.values()), [])
    score = next((hint.score for hint in listed or [] if hint.mask == mask), 0)
    return mask.bit_count(), -score, mask, len(entries), shares


_OVERRULED = (
    "Unsatisfied NUMA ",
    "Unaligned NUMA Hint ",
    "Insufficient NUMA ",
    "not enough cpus ",
    "insufficient CPUs ",
    "failed to allocate cpus",
)
"""Refusals that rulings 5 and 6 overrule where a legal placement exists."""


def _better(
    node: CaseNode, pod: Any, args: NUMAArgs, pair: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> str:
    """Why an answer's placement beats the expected outcome; empty where it does not."""
    shown, told = pair
    if told.get("preFilter", {}).get("code", "Success") != "Success":
        return ""
    if told.get("reserve", {}).get("code") != "Success":
        stages = [told.get("reserve") or told.get("filter", {})]
        if "nodes" in told and "reserve" not in told:
            stages = [one.get("filter", {}) for one in told["nodes"].values()]
        reasons = [reason for stage in stages for reason in stage.get("reasons", ["?"])]
        overruled = all(reason.startswith(_OVERRULED) for reason in reasons)
        return "placed legally where the reference refuses" if overruled else ""
    if _objective(node, pod, args, shown) < _objective(node, pod, args, told):
        return "legal, on fewer, better or more evenly used NUMA nodes"
    return ""


def _judge_allocation(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or a legal placement where the reference has a worse one or wrongly none."""
    placed = answer.get("reserve", {}).get("code") == "Success"
    if case.ruled:
        # A designation that takes what others hold, or a text that names nothing, must not be let in.
        must_refuse = any(word in case.raw.get("ruling", "") for word in ("crash", "hard feasibility"))
        if must_refuse and answer.get("filter", {}).get("code") == "Success":
            return Verdict.WRONG, f"let in against the ruling: {case.raw['ruling']}"
        return equality(case, answer)
    verdict, detail = _judge_partially(case, answer)
    if verdict is not Verdict.WRONG or not placed or case.input.get("reservations"):
        return verdict, detail
    args, node, pod = args_of(case.input), node_of(case.input), case.input["pod"]
    ground = _ground(node, pod, args)
    if ground is None:
        return verdict, detail
    wrong = _legal(ground, answer)
    if wrong:
        return Verdict.WRONG, f"{detail}\nnot legal: {wrong}"
    why = _better(node, pod, args, (answer, case.raw["expect"]))
    return (Verdict.BETTER, why) if why else (verdict, detail)


def _judge_hints(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or every mask of the reference and others on which a placement exists (ruling 5)."""
    verdict, detail = equality(case, answer)
    expected, shown = (case.raw.get("expect") or {}).get("hints"), answer.get("hints")
    if verdict is not Verdict.WRONG or expected is None or shown is None:
        return verdict, detail
    args = args_of(case.input)
    node = node_of(case.input)
    _, request = pre_filter(case.input["pod"], args)
    if request is None or set(expected) != set(shown):
        return verdict, detail
    demand = demand_on(request, attrs.evolve(node.node, policy=request.numa_policy or node.node.policy))
    if isinstance(demand, NUMARefusal):
        return verdict, detail
    ground = StaticResult(node.node, node.state.allocations, demand)
    for name, listed in shown.items():
        masks = [tuple(hint["mask"]) for hint in listed]
        if {tuple(hint["mask"]) for hint in expected[name]} - set(masks):
            return verdict, detail
        if not all(map(ground.exists, masks)):
            return verdict, f"{detail}\na mask without placement"
    return Verdict.BETTER, "masks with a placement that the reference misses"


def _judge_sequence(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or from the first better placement on: legal throughout, and as many pods placed."""
    verdict, detail = _judge_partially(case, answer)
    if verdict is not Verdict.WRONG:
        return verdict, detail
    expected = case.raw["expect"]["steps"]
    cluster = CaseCluster(case.input)
    better = False
    for step, shown, told in zip(case.input["steps"], answer["steps"], expected, strict=True):
        if "release" in step:
            cluster.release(step["release"])
            continue
        before = CaseCluster.copy(cluster)
        cluster.schedule(step["schedule"])
        placed = shown.get("reserve", {}).get("code") == "Success"
        if not better and difference(told, _lenient(told, shown, partial=False)):
            where = shown.get("selected", "")
            if not placed or told.get("selected", where) != where:
                return verdict, detail
            pair = ({**shown["nodes"][where], **shown}, {**told["nodes"][where], **told})
            better = bool(_better(before.nodes[where], step["schedule"], cluster.args, pair))
            if not better:
                return verdict, detail
        if placed:
            ground = _ground(before.nodes[shown["selected"]], step["schedule"], cluster.args)
            here = shown["nodes"][shown["selected"]]
            wrong = ["no ground"] if ground is None else _legal(ground, {**here, **shown})
            if wrong:
                return Verdict.WRONG, f"{detail}\nnot legal: {wrong}"
    if _placed(answer["steps"]) >= _placed(expected):
        return Verdict.BETTER, "legal throughout, as many pods placed"
    return verdict, detail


def _placed(steps: Sequence[Any]) -> int:
    return sum(step.get("reserve", {}).get("code") == "Success" for step in steps)


def _hint_answer(hints: Mapping[str, Sequence[NUMAHint]]) -> Any:
    return {
        name: [
            {"mask": list(numa_ids(hint.mask or 0)), "preferred": hint.preferred, "score": hint.score}
            for hint in listed
        ]
        for name, listed in hints.items()
    }


@subject("numa.hints", judge=_judge_hints)
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


@subject("numa.allocate", judge=_judge_allocation)
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


@subject("numa.score", judge=_judge_partially)
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
            here["score"] = score_numa(node.state, request, node.amounts, admission, args=args)
        answer["nodes"][name] = here
    return answer


@subject("numa.sequence", judge=_judge_sequence)
def sequence(case: Case) -> Any:
    cluster = CaseCluster(case.input)
    return {
        "steps": [
            cluster.schedule(step["schedule"]) if "schedule" in step else cluster.release(step["release"])
            for step in case.input["steps"]
        ]
    }


def _judge_missed(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Any legal placement is as good as the witness."""
    if not answer["feasible"]:
        return Verdict.WRONG, f"no placement found: {answer}"
    if "steps" not in case.input:
        ground = _ground(node_of(case.input), case.input["pod"], args_of(case.input))
        wrong = ["no ground"] if ground is None else _legal(ground, {**answer, "affinity": None})
        policy = ground and ground.demand.policy
        if ground is not None and policy:
            everything = list(ground.node.zone_ids)
            wrong += _legal(ground, {**answer, "affinity": everything})
        return (Verdict.WRONG, str(wrong)) if wrong else (Verdict.EQUAL, "")
    cluster = CaseCluster(case.input)
    name, node = next(iter(cluster.nodes.items()))
    for step, shown in zip(case.input["steps"], answer["steps"], strict=True):
        pod = step["schedule"]
        ground = _ground(cluster.nodes[name], pod, cluster.args)
        everything = list(node.node.zone_ids)
        wrong = ["no ground"] if ground is None else _legal(ground, {**shown, "affinity": everything})
        if wrong:
            return Verdict.WRONG, f"{pod['metadata']['name']}: {wrong}"
        status = shown["resourceStatus"]
        node.pods[pod["metadata"]["name"]] = pod
        node.state = node.state.adding(
            CPUAllocation(
                uid=pod["metadata"]["uid"],
                cpuset=parse_cpulist(status["cpuset"]),
                numa_resources=tuple(
                    NUMANodeResource(entry["node"], make_resources(entry["resources"]))
                    for entry in status["numaNodeResources"]
                ),
            )
        )
    return Verdict.EQUAL, ""


@subject("numa.missed", judge=_judge_missed)
def missed(case: Case) -> Any:
    if "steps" in case.input:
        return _joint(case.input)
    node, pod, args = node_of(case.input), case.input["pod"], args_of(case.input)
    status, request = pre_filter(pod, args)
    if request is None:
        return {"feasible": False, "preFilter": status}
    allocation = fit_numa(node.state, request, node.amounts, args=args)
    return {
        "feasible": isinstance(allocation, NUMAAllocation),
        **reserve_answer(pod, node, request, allocation),
    }


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
            reserve_answer(pod, node, request, allocation)
            for pod, request, allocation in zip(pods, requests, placed, strict=True)
            if request is not None
        ],
    }
