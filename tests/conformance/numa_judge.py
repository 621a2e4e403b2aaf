"""Judge answers about NUMA nodes: what is laid open is compared, and placements are checked by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from koordcore.allocators.numa_request import CPUDemand, NUMARefusal, demand_on
from koordcore.errors import ManifestError
from koordcore.model.numa import CPUAllocation, NUMAArgs, NUMANodeResource
from koordcore.model.resources import make_resources, parse_resources
from koordcore.topology.cpu import parse_cpulist
from koordcore.topology.numa import NUMATopologyPolicy, mask_of
from tests.conformance.core import Case, Verdict, difference, equality
from tests.conformance.numa_objects import CaseCluster, CaseNode, args_of, node_of, pre_filter
from tests.reference.numa_hints import numa_hints
from tests.reference.numa_placement import StaticResult

__all__ = ["judge_allocation", "judge_hints", "judge_missed", "judge_partially", "judge_sequence"]


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
    if "resourceStatusRaw" not in expected and _written_truly(kept):
        kept.pop("resourceStatusRaw", None)
    return kept


def _written_truly(shown: Mapping[str, Any]) -> bool:
    """Whether the annotation says what the status does, in the units of the wire."""
    status = shown.get("resourceStatus") or {}
    try:
        raw = json.loads(shown.get("resourceStatusRaw") or "{}")
        entries = [
            {"node": one["node"], "resources": dict(parse_resources(one["resources"]))}
            for one in raw.get("numaNodeResources", ())
        ]
    except (ValueError, ManifestError):
        return False
    written = {"cpuset": raw.get("cpuset", ""), "numaNodeResources": entries}
    return not difference({"cpuset": "", "numaNodeResources": [], **status}, written)


def judge_partially(case: Case, answer: Any) -> tuple[Verdict, str]:
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
    if affinity == []:
        return ["an affinity without NUMA nodes"]
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
        ground = _ground(node, pod, args)
        effort = ground is not None and ground.demand.policy is NUMATopologyPolicy.BEST_EFFORT
        # Under BestEffort nothing but missing CPUs refuses, whatever the reference says (NUMA-20).
        aside = effort and "affinity" in shown and shown["affinity"] is None
        overruled = aside or all(reason.startswith(_OVERRULED) for reason in reasons)
        return "placed legally where the reference refuses" if overruled else ""
    if _objective(node, pod, args, shown) < _objective(node, pod, args, told):
        return "legal, on fewer, better or more evenly used NUMA nodes"
    return ""


def judge_allocation(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or a legal placement where the reference has a worse one or wrongly none."""
    placed = answer.get("reserve", {}).get("code") == "Success"
    if case.ruled:
        # A designation that takes what others hold, or a text that names nothing, must not be let in.
        must_refuse = any(word in case.raw.get("ruling", "") for word in ("crash", "hard feasibility"))
        if must_refuse and answer.get("filter", {}).get("code") == "Success":
            return Verdict.WRONG, f"let in against the ruling: {case.raw['ruling']}"
        return equality(case, answer)
    verdict, detail = judge_partially(case, answer)
    if answer.get("affinity") == []:
        return Verdict.WRONG, "an affinity without NUMA nodes"
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


def judge_hints(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or every mask of the reference and others on which a placement exists (ruling 5).

    Masks that both give have to carry the same score; preferred are those of the fewest NUMA nodes.
    """
    verdict, detail = equality(case, answer)
    expected, shown = (case.raw.get("expect") or {}).get("hints"), answer.get("hints")
    if verdict is not Verdict.WRONG or expected is None or shown is None:
        return verdict, detail
    same = {key: one for key, one in case.raw["expect"].items() if key != "hints"}
    if difference(same, {key: one for key, one in answer.items() if key != "hints"}):
        return verdict, detail
    if set(expected) != set(shown):
        return verdict, detail
    _, request = pre_filter(case.input["pod"], args_of(case.input))
    node = node_of(case.input)
    if request is None:
        return verdict, detail
    demand = demand_on(request, attrs.evolve(node.node, policy=request.numa_policy or node.node.policy))
    if isinstance(demand, NUMARefusal):
        return verdict, detail
    ground = StaticResult(node.node, node.state.allocations, demand)
    more = [_hints_fault(ground, expected[name], listed) for name, listed in shown.items()]
    found = [fault for fault in more if fault]
    if found or shown == expected:
        return verdict, "\n".join([detail, *found])
    return Verdict.BETTER, "masks with a placement that the reference misses"


def _hints_fault(ground: StaticResult, theirs: Sequence[Any], ours: Sequence[Any]) -> str:
    """Say what is wrong about one resource's list, the reference's beside it; empty for nothing."""
    masks = [tuple(hint["mask"]) for hint in ours]
    known = {tuple(hint["mask"]): hint for hint in theirs}
    if masks != sorted(set(masks), key=lambda mask: (len(mask), mask)):
        return "masks out of order"
    if known.keys() - set(masks):
        return "a mask of the reference lacks"
    if len(masks) == len(known) and ours != theirs:
        return "the masks are the same, and something else differs"
    if not all(map(ground.exists, masks)):
        return "a mask without placement"
    fewest = min(map(len, masks), default=0)
    for mask, hint in zip(masks, ours, strict=True):
        # Under Restricted every mask on which a placement exists is as good as any other.
        preferred = len(mask) == fewest or ground.demand.policy is NUMATopologyPolicy.RESTRICTED
        if set(hint) != {"mask", "preferred", "score"} or hint["preferred"] != preferred:
            return f"{mask}: preferred"
        if hint["score"] != known.get(mask, hint)["score"] or not 0 <= hint["score"] <= 100:
            return f"{mask}: score"
    return ""


def judge_sequence(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal, or from the first better placement on: legal throughout, and as many pods placed.

    Where a ruling decides, legal throughout and as many placed as the reference places.
    """
    verdict, detail = judge_partially(case, answer)
    if verdict is Verdict.EQUAL:
        return verdict, detail
    expected = case.raw["upstream" if case.ruled else "expect"]["steps"]
    cluster = CaseCluster(case.input)
    parted = case.ruled
    for step, shown, told in zip(case.input["steps"], answer["steps"], expected, strict=True):
        before = CaseCluster.copy(cluster)
        if "release" in step:
            if difference(cluster.release(step["release"]) if parted else told, shown):
                return Verdict.WRONG, f"{detail}\n{shown}"
            if not parted:
                cluster.release(step["release"])
            continue
        cluster.schedule(step["schedule"])
        placed = shown.get("reserve", {}).get("code") == "Success"
        same = not difference(told, _lenient(told, shown, partial=False))
        if not parted and not same:
            parted = placed and _parts_well(before, step["schedule"], shown, told)
            if not parted:
                return verdict, detail
        if parted and not same and (fault := _unsound_step(told, shown, _hopeless(before, step, shown))):
            return Verdict.WRONG, f"{detail}\n{fault}"
        if placed:
            ground = _ground(before.nodes[shown["selected"]], step["schedule"], cluster.args)
            here = shown["nodes"][shown["selected"]]
            wrong = ["no ground"] if ground is None else _legal(ground, {**here, **shown})
            if wrong:
                return Verdict.WRONG, f"{detail}\nnot legal: {wrong}"
    if _placed(answer["steps"]) < _placed(expected):
        return Verdict.WRONG, f"{detail}\nfewer placed"
    return (verdict, detail) if case.ruled else (Verdict.BETTER, "legal throughout, as many pods placed")


def _parts_well(before: CaseCluster, pod: Any, shown: Mapping[str, Any], told: Mapping[str, Any]) -> bool:
    """Whether a step places the pod on the node of the reference, or where it has none, and better."""
    where = shown.get("selected", "")
    if told.get("selected", where) != where:
        return False
    pair = ({**shown["nodes"][where], **shown}, {**told["nodes"][where], **told})
    return bool(_better(before.nodes[where], pod, before.args, pair))


def _hopeless(before: CaseCluster, step: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Whether the node that is selected cannot serve the pod, which upstream's filter does not look at."""
    ground = None
    if "selected" in shown:
        ground = _ground(before.nodes[shown["selected"]], step["schedule"], before.args)
    if ground is None:
        return False
    if not ground.exists(list(ground.node.zone_ids)):
        return True
    return ground.demand.bind and len(ground.free) < ground.demand.request.cpus_needed


def _unsound_step(told: Mapping[str, Any], shown: Mapping[str, Any], hopeless: bool) -> str:
    """Say what does not fit together in a step of a state that the reference never saw; empty for nothing.

    ``hopeless``: the node that is selected cannot serve the pod.
    """
    if difference(told.get("preFilter"), shown.get("preFilter")) or set(told.get("nodes", ())) != set(
        shown.get("nodes", ())
    ):
        return "another PreFilter, or other nodes"
    if not _written_truly(shown):
        return "the annotation does not say what the status does"
    scores = {name: one.get("score") for name, one in shown.get("nodes", {}).items()}
    taken = [name for name, one in shown.get("nodes", {}).items() if one["filter"]["code"] == "Success"]
    if any((scores[name] is None) == (name in taken) for name in scores):
        return "scores of other nodes than those that pass"
    best = min(taken, key=lambda name: (-scores[name], name), default=None)
    placed = shown.get("reserve", {}).get("code") == "Success"
    if (
        best != shown.get("selected")
        or (placed and best is None)
        or (best is not None and not placed and not hopeless)
    ):
        return f"{shown.get('selected')} is selected, not {best}"
    return ""


def _placed(steps: Sequence[Any]) -> int:
    return sum(step.get("reserve", {}).get("code") == "Success" for step in steps)


def judge_missed(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Any legal placement is as good as the witness."""
    expected = case.raw["expect"]["feasible"]
    if answer["feasible"] is not expected:
        return Verdict.WRONG, f"feasible: expected {expected}, got {answer}"
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
