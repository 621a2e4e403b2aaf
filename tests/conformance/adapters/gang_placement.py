"""Placement of gangs onto the network topology."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.cycle import before_pre_filter
from koordcore.allocators.gang.demand import GangDemand, GangShortfall, Member, Role, Shape, rank_order
from koordcore.allocators.gang.events import add_pod, add_pod_group
from koordcore.allocators.gang.objective import Terms, terms_of
from koordcore.allocators.gang.planner import place_gang
from koordcore.allocators.gang.slots import shared_slots
from koordcore.allocators.gang.state import Code, GangState
from koordcore.model.gangs import DEFAULT_ARGS, GangPod, NetworkTopologySpec
from koordcore.model.resources import PODS, parse_resources, total
from koordcore.protocol.gang import ANNOTATION_TOPOLOGY_INDEX, gang_from_pod_group, parse_topology_index
from koordcore.protocol.gang_names import topology_selector
from koordcore.protocol.pod_group import parse_pod_group
from koordcore.topology.network import NetworkTopology
from tests.conformance.adapters.gangs import read_pod
from tests.conformance.adapters.network_topology import expand, read_tree
from tests.conformance.core import Case, Verdict, difference, equality, subject
from tests.reference.fit_errors import fit_error, insufficient
from tests.reference.gang_slots import offer_slots


def named(template: Mapping[str, Any], name: str, index: int | None) -> dict[str, Any]:
    metadata = {**template.get("metadata", {}), "name": name}
    if index is not None:
        metadata["annotations"] = {
            **(metadata.get("annotations") or {}),
            ANNOTATION_TOPOLOGY_INDEX: str(index),
        }
    return {**template, "metadata": metadata}


def request_of(pod: Mapping[str, Any]) -> dict[str, int]:
    containers = pod.get("spec", {}).get("containers", [])
    asked = total(parse_resources(c.get("resources", {}).get("requests", {})) for c in containers)
    return {**asked, PODS: 1}


@attrs.frozen(eq=False)
class Problem:
    """One case, read."""

    tree: NetworkTopology
    demand: GangDemand
    slots: Mapping[str, int]
    fit_error: str


def cluster(case: Case) -> tuple[list[str], dict[str, Counter[str]]]:
    """Names of the nodes and what each has left."""
    free: dict[str, Counter[str]] = {}
    for name, template, _ in expand(case.input["nodes"]):
        free[name] = Counter(parse_resources(template.get("status", {}).get("allocatable", {})))
    for _, template, _ in expand(case.input.get("existingPods", [])):
        if template["spec"]["nodeName"] in free:
            free[template["spec"]["nodeName"]].subtract(request_of(template))
    return sorted(free), free


def read_problem(case: Case, state: GangState, gang_ids: Sequence[str]) -> Problem:
    tree = read_tree(case.input["topology"], case.input["nodes"])
    names, free = cluster(case)
    pods = {f"{t['metadata'].get('namespace', 'default')}/{n}": named(t, n, i)
            for n, t, i in expand(case.input["pods"])}  # fmt: skip
    requests = {key: request_of(pod) for key, pod in pods.items()}
    rows = sorted({name for request in requests.values() for name in request})
    kinds = list(dict.fromkeys(tuple(request.get(row, 0) for row in rows) for request in requests.values()))
    amounts = np.array([[free[name].get(row, 0) for name in names] for row in rows], dtype=np.int64)
    allowed = np.array([name in case.input.get("preFilterNodes", names) for name in names])
    size = len(pods)
    slots = [offer_slots(amounts, np.array(kind, dtype=np.int64), most=size) * allowed for kind in kinds]
    where = [names.index(node) for node in tree.nodes]
    gangs: dict[str, list[Member]] = {gang_id: [] for gang_id in gang_ids}
    for key, pod in pods.items():
        kind = kinds.index(tuple(requests[key].get(row, 0) for row in rows))
        annotations = pod["metadata"].get("annotations") or {}
        member = Member(key, kind, parse_topology_index(annotations))
        gangs[read_pod(pod, DEFAULT_ARGS).pod.gang_id].append(member)
    first = rank_order(member for members in gangs.values() for member in members)[0]
    selector = topology_selector(pods[first.key]["metadata"].get("annotations") or {})
    near, bound = np.zeros(len(tree.nodes), dtype=np.int64), np.zeros(len(tree.nodes), dtype=np.int64)
    for name, template, _ in expand(case.input.get("existingPods", [])):
        node = template["spec"]["nodeName"]
        member_of = read_pod(named(template, name, None), DEFAULT_ARGS).pod.gang_id
        if node in tree.node_index:
            same = topology_selector(template["metadata"].get("annotations") or {}) == selector
            near[tree.node_index[node]] += bool(selector) and same
            bound[tree.node_index[node]] += member_of in gangs
    spec = state.gangs[gang_ids[0]].gang.topology_spec
    assert spec is not None
    demand = GangDemand(
        roles=tuple(
            Role(
                name=gang_id,
                members=tuple(members),
                min_available=state.gangs[gang_id].gang.min_available - len(state.gangs[gang_id].bound),
            )
            for gang_id, members in gangs.items()
        ),
        shapes=tuple(
            Shape(slots=slots[kind][where], request=np.array(request, dtype=np.int64))
            for kind, request in enumerate(kinds)
        ),
        free=amounts[:, where],
        spec=spec,
        bound=bound,
        near=near,
    )
    offered = shared_slots(demand.members, [np.array(k, dtype=np.int64) for k in kinds], slots, amounts)
    reasons = {}
    for column, name in enumerate(names):
        placed = rank_order(demand.members)[: offered[column]]
        left = amounts[:, column] - sum(np.array(kinds[m.shape], dtype=np.int64) for m in placed)
        if allowed[column] and offered[column] < size:
            following = np.array(kinds[rank_order(demand.members)[offered[column]].shape], dtype=np.int64)
            reasons[name] = insufficient(left, following, rows)
    shown = {name: int(offered[column]) for column, name in enumerate(names) if allowed[column]}
    return Problem(tree, demand, shown, fit_error(int(allowed.sum()), reasons))


@attrs.frozen(eq=False)
class Entered:
    """A case up to the planner: what is answered before it, or what it is asked."""

    settled: Mapping[str, Any] | None
    problem: Problem | None = None
    spec: NetworkTopologySpec | None = None


def enter(case: Case) -> Entered:
    """Read a case and let the gang's PreFilter decide."""
    state, pods = GangState(), list[GangPod]()
    for raw in case.input.get("podGroups", []):
        state = add_pod_group(state, gang_from_pod_group(parse_pod_group(raw)).gang).state
    for name, template, index in expand([*case.input.get("existingPods", []), *case.input["pods"]]):
        pod = read_pod(named(template, name, index), DEFAULT_ARGS).pod
        state = add_pod(state, pod).state
        if not pod.node_name:
            pods.append(pod)
    wanted = case.input.get("trigger")
    trigger = next((pod for pod in pods if pod.key == wanted), pods[0])
    opened = before_pre_filter(state, trigger, topology_known=case.input["topology"] is not None)
    if opened.code is not Code.SUCCESS:
        return Entered({"stage": "BeforePreFilter", "code": str(opened.code), "message": opened.message})
    gang = state.gangs[trigger.gang_id].gang
    if gang.topology_spec is None:
        return Entered({"stage": "FindOneNode", "code": "Skip"})
    known = {name for name, _, _ in expand(case.input["nodes"])}
    if not known.issuperset(case.input.get("preFilterNodes", [])):
        return Entered({"stage": "FindOneNode", "code": "Error", "mustLayer": ""})
    group = [trigger.gang_id, *(gang_id for gang_id in gang.group if gang_id != trigger.gang_id)]
    return Entered(None, read_problem(case, state, group), gang.topology_spec)


def answer_place(case: Case) -> dict[str, Any]:
    """Answer as the gang's PreFilter and its search for nodes do."""
    entered = enter(case)
    problem, spec = entered.problem, entered.spec
    if problem is None or spec is None:
        return dict(entered.settled or {})
    placed = place_gang(problem.tree, problem.demand, fit_error=problem.fit_error)
    answer: dict[str, Any] = {
        "code": "Success",
        "slots": problem.slots,
        "mustLayer": spec.must_layer(problem.tree.layers),
    }
    if spec.multiples:
        answer["multiples"] = dict(spec.multiples)
    if isinstance(placed, GangShortfall):
        answer |= {"code": "Unschedulable", "message": placed.message}
    else:
        answer |= {"plan": dict(placed.nodes), "placed": len(placed.nodes)}
    if bare(case):
        kept = {"code", "plan", "placed", *case.raw["expect"]}
        answer = {key: one for key, one in answer.items() if key in kept}
    return answer


def bare(case: Case) -> bool:
    """Whether a case expects an outcome alone, without what the reference tells on its way there."""
    derived = bool(case.raw.get("derived")) or case.subject == "topology.missed"
    return not case.ruled and derived


def value(problem: Problem, terms: Terms, plan: Mapping[str, str]) -> tuple[tuple[int, ...], list[int]]:
    """The documented objective of a plan, names included as places along the leaf order."""
    counts = np.zeros(len(problem.tree.nodes), dtype=np.int64)
    for node in plan.values():
        counts[problem.tree.node_index[node]] += 1
    order: list[int] = []
    stack = [0]
    while stack:
        domain = stack.pop()
        if domain >= problem.tree.first_node:
            order.append(-int(counts[domain - problem.tree.first_node]))
        else:
            stack.extend(reversed(terms.child_order(domain).tolist()))
    return terms.evaluate(counts), order


def judge_place(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Legal, and equal or better by the documented objective; nothing is better than a proven optimum."""
    entered = enter(case)
    problem, spec = entered.problem, entered.spec
    if problem is None or spec is None:
        return equality(case, answer)
    plan = answer.get("plan")
    if plan is not None and (broken := placement_violations(problem.tree, problem.demand, plan)):
        return Verdict.WRONG, "illegal: " + "; ".join(broken)
    if plan is None and "placed" in answer:
        return Verdict.WRONG, f"$.placed: {answer['placed']} without a plan"
    if plan is not None and answer["placed"] != len(plan):
        return Verdict.WRONG, f"$.placed: {answer['placed']} of a plan for {len(plan)}"
    if case.ruled:
        verdict, detail = _no_worse(problem, case.raw["upstream"], answer)
        return (verdict, detail) if verdict is Verdict.WRONG else equality(case, answer)
    expected = case.raw["expect"]
    if report := _read_otherwise(expected, answer):
        return Verdict.WRONG, report
    if plan is None or "code" not in expected or expected["code"] != "Success":
        return Verdict.EQUAL, ""
    if "plan" in expected:
        return _no_worse(problem, expected, answer)
    return _optimal(problem, case.raw, plan)


def _read_otherwise(expected: Mapping[str, Any], answer: Any) -> str:
    """Say what differs beside the plan."""
    if "slotsTotal" in expected:
        answer = {**answer, "slotsTotal": sum(answer["slots"].values())}
    told = {"candidates", "candidateCount", "chosen", "plan", "objective"}
    told |= {"placed"} - {*expected} | {"slotsTotal" if "slots" in expected else "slots"}
    return difference(
        {key: one for key, one in expected.items() if key not in told},
        {key: one for key, one in answer.items() if key not in told},
    )


def _no_worse(problem: Problem, other: Mapping[str, Any], answer: Any) -> tuple[Verdict, str]:
    """Compare two outcomes by the documented objective."""
    if (answer.get("plan") is None) != (other.get("plan") is None):
        return Verdict.WRONG, f"$.code: expected {other['code']}, got {answer['code']}"
    if answer.get("plan") == other.get("plan"):
        return Verdict.EQUAL, ""
    terms = terms_of(problem.tree, problem.demand, weighted(problem))
    ours, theirs = (value(problem, terms, one["plan"]) for one in (answer, other))
    if ours < theirs:
        return Verdict.BETTER, f"{ours[0]} beats {theirs[0]}"
    return Verdict.WRONG, f"expected plan {theirs}\n{other['plan']}\ngot {ours}\n{answer['plan']}"


def _optimal(problem: Problem, raw: Mapping[str, Any], plan: Mapping[str, str]) -> tuple[Verdict, str]:
    """Compare a plan's number of domains, layer by layer, with the least that are needed."""
    expected = raw["expect"]["objective"]
    layers = raw.get("objective", {}).get("layers", problem.tree.layers)
    depths = [problem.tree.layers.index(layer) for layer in layers]
    used = [len({problem.tree.ancestors[d + 1, problem.tree.node_index[n]] for n in plan.values()})
            for d in depths]  # fmt: skip
    if used == expected:
        return Verdict.EQUAL, ""
    if used < expected:
        return Verdict.WRONG, f"$.objective: {used} is better than the optimum {expected}"
    terms = terms_of(problem.tree, problem.demand, weighted(problem))
    ordered = [depths.index(depth - 1) for depth in terms.order]
    if [used[position] for position in ordered] < [expected[position] for position in ordered]:
        return Verdict.BETTER, f"{used} beats {expected} in the order of the preferences"
    return Verdict.WRONG, f"$.objective: expected {expected}, got {used}"


def weighted(problem: Problem) -> Any:
    return np.minimum(sum(shape.slots for shape in problem.demand.shapes), 10**9)


@subject("topology.place", judge=judge_place)
def topology_place(case: Case) -> Any:
    return answer_place(case)


@subject("topology.missed", judge=judge_place)
def topology_missed(case: Case) -> Any:
    return answer_place(case)
