"""Reservations in a scheduling cycle: PreFilter, restore, Filter, nomination, score, pre-allocation."""

from __future__ import annotations

from typing import Any

from koordcore.errors import ManifestError
from koordcore.manifests.nodes import node_from_manifest
from koordcore.manifests.pods import pod_from_manifest
from koordcore.manifests.reservations import reservation_from_manifest
from koordcore.model.pods import Pod
from koordcore.protocol.reservation import (
    EXACT_MATCH,
    ReservationWish,
    allocated_reservation,
    reservation_wish,
)
from koordcore.protocol.reservation_args import SKIP_FITS_NODE, parse_reservation_args
from koordcore.reservations.filter import (
    ReservationRefusal,
    ReservedNode,
    fits_node,
    fits_reservation,
)
from koordcore.reservations.match import (
    AFFINITY_REFUSED,
    NO_MATCHES,
    TERMS_CONFLICT,
    NodeMatches,
    judge_match,
    screened_nodes,
)
from koordcore.reservations.nominate import score_reservation
from koordcore.reservations.preallocation import (
    NO_CANDIDATE,
    PreAllocation,
    is_candidate,
    order_candidates,
    pre_allocate,
    pre_allocation_refusal,
    requires_pods,
)
from koordcore.reservations.state import (
    ReservationState,
    assigned_pod,
    owners_of,
    reservation_state,
    reserve_pod,
    used_reservations,
)
from tests.conformance.core import Case, Verdict, equality, subject
from tests.reference.reservation_cycle import (
    Freed,
    filter_node,
    filter_reserve_pod,
    fits_plainly,
    match_nodes,
    restored_node,
    score_nodes,
)

Answer = dict[str, Any]


class Settled:
    """The snapshot of a case, decoded."""

    def __init__(self, given: Any) -> None:
        gates = given.get("gates") or {}
        self.args = parse_reservation_args(
            given.get("args") or {}, skip_fits_node=bool(gates.get(SKIP_FITS_NODE))
        )
        self.nodes = {one.name: one for one in map(node_from_manifest, given["nodes"])}
        self.pods = [pod_from_manifest(raw) for raw in given["pods"]]
        reservations = [reservation_from_manifest(raw) for raw in given["reservations"]]
        users = used_reservations(self.pods)
        self.states = {one.name: reservation_state(one, owners_of(one, users)) for one in reservations}
        self.reserved = self.states.get(given.get("reserve", ""))
        self.pod: Pod = (
            reserve_pod(self.reserved.reservation) if self.reserved else pod_from_manifest(given["pod"])
        )
        self.victims = frozenset(given.get("victims") or ())

    def on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods if pod.node_name == node and not pod.finished]

    def holders(self, node: str) -> list[ReservationState]:
        return [
            one
            for one in self.states.values()
            if one.reservation.active and one.reservation.status.node_name == node
        ]

    def freed(self, node: str) -> Freed:
        there = [pod for pod in self.on(node) if pod.name in self.victims]
        uses = ((pod.uid, allocated_reservation(pod.annotations)) for pod in there)
        return Freed.by(there, {uid: used.uid for uid, used in uses if used is not None})


def code_of(refusal: ReservationRefusal) -> Answer:
    code = "Unschedulable" if refusal.resolvable else "UnschedulableAndUnresolvable"
    return {"code": code, "reasons": sorted(refusal.reasons)}


def _unresolvable(reason: str) -> Answer:
    return {"code": "UnschedulableAndUnresolvable", "reasons": [reason]}


def _pre_filter(
    settled: Settled, wish: ReservationWish
) -> tuple[Answer, dict[str, NodeMatches], list[str] | None]:
    """Give the PreFilter's status, what concerns the pod by node, and the nodes left; none when refused."""
    screened = screened_nodes(settled.pod, settled.nodes)
    if screened is None:
        return _unresolvable(TERMS_CONFLICT), {}, None
    found = match_nodes(settled.pod, wish, settled.states.values(), settled.nodes, screened)
    if settled.reserved is not None:
        problem = settled.reserved.reservation.problem
        if problem:
            return {"code": "Error", "reasons": [problem]}, {}, None
        return {"code": "Success"}, found, list(settled.nodes)
    if wish.affinity is not None:
        if not found:
            return _unresolvable(AFFINITY_REFUSED), {}, None
        return {"code": "Success", "nodeNames": sorted(found)}, found, sorted(found)
    return {"code": "Success" if found else "Skip"}, found, list(settled.nodes)


def _wish_or_error(pod: Pod) -> ReservationWish | Answer:
    try:
        return reservation_wish(pod.labels, pod.annotations)
    except ManifestError as error:
        exact = EXACT_MATCH in error.problems[0].path
        what = "exact match annotation" if exact else "reservation affinity"
        return {"preFilter": {"code": "Error"}, "why": f"unparsable {what}"}


def _names(states: tuple[ReservationState, ...]) -> list[str]:
    return sorted(one.reservation.name for one in states)


def _kept(matches: NodeMatches) -> Answer:
    shown = {"matched": _names(matches.matched), "unmatched": _names(matches.unmatched)}
    return {key: names for key, names in shown.items() if names}


@subject("reservation.match")
def match(case: Case) -> Any:
    settled = Settled(case.input)
    wish = _wish_or_error(settled.pod)
    if isinstance(wish, dict):
        return wish
    judged: Answer = {}
    for name, state in settled.states.items():
        node = settled.nodes.get(state.reservation.status.node_name)
        if node is None or not state.matchable:
            judged[name] = {"matchable": False}
            continue
        found = judge_match(settled.pod, wish, state, node.labels)
        judged[name] = {"matched": found.matched, "reason": str(found.reason)}
        if found.taint:
            judged[name]["taint"] = found.taint
    status, matches, left = _pre_filter(settled, wish)
    answer = {"reservations": judged, "preFilter": status}
    if left is not None:
        answer["nodes"] = {name: _kept(one) for name, one in matches.items()}
    return answer


def _record(node: ReservedNode) -> Answer:
    amounts = {name: amount for name, amount in node.restored.items() if amount}
    return {"requested": {"cpu": 0, "memory": 0, **amounts}, "podCount": node.pods}


def _filtered(settled: Settled, wish: ReservationWish) -> tuple[Answer, dict[str, ReservedNode], list[str]]:
    """Answer as ``reservation.filter`` does; with the restored nodes and the names of the feasible ones."""
    status, matches, left = _pre_filter(settled, wish)
    answer: Answer = {"preFilter": status}
    if left is None:
        return answer, {}, []
    nodes: dict[str, ReservedNode] = {}
    feasible = []
    answer["nodes"] = {}
    for name in left:
        holders = settled.holders(name)
        node = restored_node(
            settled.nodes[name],
            settled.on(name),
            [one.reservation for one in holders],
            matches.get(name, NO_MATCHES),
        )
        nodes[name] = node
        refusal = None
        if settled.reserved is not None:
            policy = settled.reserved.reservation.allocate_policy
            refusal = filter_reserve_pod(settled.pod, policy, node.node, holders)
        elif status["code"] != "Skip":
            refusal = filter_node(settled.pod, wish, node, freed=settled.freed(name), args=settled.args)
        shown = {**_kept(node.matches), **_record(node)}
        if status["code"] != "Skip":
            shown["filter"] = {"code": "Success"} if refusal is None else code_of(refusal)
        lacking = fits_plainly(settled.pod.requests, node)
        if lacking:
            shown["fit"] = list(lacking)
        if refusal is None and not lacking:
            feasible.append(name)
        answer["nodes"][name] = shown
    return answer, nodes, feasible


@subject("reservation.filter")
def filter_(case: Case) -> Any:
    try:
        settled = Settled(case.input)
    except ManifestError as error:
        return {"argsError": str(error)}
    wish = _wish_or_error(settled.pod)
    return wish if isinstance(wish, dict) else _filtered(settled, wish)[0]


def _without_record(answer: Answer) -> None:
    for shown in answer["nodes"].values():
        del shown["requested"], shown["podCount"]


@subject("reservation.nominate")
def nominate(case: Case) -> Any:
    settled = Settled(case.input)
    wish = _wish_or_error(settled.pod)
    if isinstance(wish, dict):
        return wish
    answer, nodes, feasible = _filtered(settled, wish)
    if not feasible:
        return answer
    _without_record(answer)
    freed = {name: settled.freed(name) for name in nodes}
    scores = score_nodes(settled.pod, wish, nodes, feasible, freed=freed, args=settled.args)
    answer["preScore"] = "Skip" if scores is None else "Success"
    if scores is not None:
        answer["nominated"] = dict(scores.nominated)
        answer["raw"] = dict(scores.raw)
        answer["normalized"] = dict(scores.normalised)
        if scores.preferred:
            answer["preferredNode"] = scores.preferred
    return answer


def _pre_allocated(
    settled: Settled, state: ReservationState
) -> tuple[Answer, dict[str, ReservedNode], dict[str, tuple[Pod, ...]], dict[str, PreAllocation]]:
    one = state.reservation
    refusal = pre_allocation_refusal(one, settled.args)
    if refusal is not None:
        return {"preFilter": code_of(refusal)}, {}, {}, {}
    status, matches, left = _pre_filter(settled, ReservationWish())
    if left is None:
        return {"preFilter": status}, {}, {}, {}
    candidates = {}
    for name in left:
        found = [
            pod for pod in settled.on(name) if is_candidate(pod, state, settled.nodes[name], settled.args)
        ]
        if found:
            candidates[name] = order_candidates(found, state, settled.args)
    if requires_pods(one):
        concerned = sorted({*candidates, *matches})
        if not concerned:
            return {"preFilter": _unresolvable(NO_CANDIDATE)}, {}, {}, {}
        status, left = {**status, "nodeNames": concerned}, concerned
    answer: Answer = {"preFilter": status, "nodes": {}}
    nodes: dict[str, ReservedNode] = {}
    made: dict[str, PreAllocation] = {}
    for name in left:
        holders = settled.holders(name)
        chosen = candidates.get(name, ())
        node = nodes[name] = restored_node(
            settled.nodes[name],
            settled.on(name),
            [holder.reservation for holder in holders],
            matches.get(name, NO_MATCHES),
            without=chosen,
        )
        shown = {**_kept(node.matches), **_record(node)}
        if chosen:
            shown["candidates"] = sorted(pod.name for pod in chosen)
        found_there: PreAllocation | ReservationRefusal | None
        found_there = filter_reserve_pod(settled.pod, one.allocate_policy, node.node, holders)
        if found_there is None:
            found_there = pre_allocate(settled.pod, state, node, chosen, args=settled.args)
        if isinstance(found_there, PreAllocation):
            shown["filter"] = {"code": "Success"}
            selected = [pod.name for pod in found_there.selected]
            if selected:
                multiple = one.pre_allocation_policy.enable_multiple
                shown["selected"] = selected if multiple else sorted(selected)
        else:
            shown["filter"] = code_of(found_there)
        lacking = fits_plainly(settled.pod.requests, node)
        if lacking:
            shown["fit"] = list(lacking)
        elif isinstance(found_there, PreAllocation):
            made[name] = found_there
        answer["nodes"][name] = shown
    return answer, nodes, candidates, made


def _judge_selection(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Accept another selection of several pods where it is legal and smaller than the reference's."""
    verdict, detail = equality(case, answer)
    if verdict is not Verdict.WRONG or not isinstance(answer, dict):
        return verdict, detail
    settled = Settled(case.input)
    state = settled.reserved
    for expected in case.expectations:
        if state is None or not state.reservation.pre_allocation_policy.enable_multiple:
            break
        merged = {**answer, "nodes": {name: dict(one) for name, one in answer["nodes"].items()}}
        smaller = False
        for name, shown in merged["nodes"].items():
            theirs = expected.get("nodes", {}).get(name, {}).get("selected")
            ours = shown.get("selected")
            if theirs and ours and len(ours) < len(theirs) and _legal(settled, state, name, ours):
                shown["selected"], smaller = theirs, True
        trial, _ = equality(
            Case(case.subject, case.id, case.why, case.input, {"expect": expected}, case.tables), merged
        )
        if smaller and trial is Verdict.EQUAL:
            return Verdict.BETTER, "fewer pods"
    return verdict, detail


def _legal(settled: Settled, state: ReservationState, name: str, selected: list[str]) -> bool:
    """Tell whether a selection makes room on the node and fits the reservation's account."""
    chosen = [pod for pod in settled.on(name) if pod.name in selected]
    if any(not is_candidate(pod, state, settled.nodes[name], settled.args) for pod in chosen):
        return False
    filled = state
    for pod in chosen:
        if fits_reservation(pod.requests, filled, args=settled.args):
            return False
        filled = filled.with_user(assigned_pod(pod))
    left = [pod for pod in settled.on(name) if pod not in chosen]
    holders = [one.reservation for one in settled.holders(name)]
    node = restored_node(settled.nodes[name], left, holders, NO_MATCHES)
    return not fits_node(settled.pod.requests, node, matched=0, args=settled.args)


@subject("reservation.preallocation", judge=_judge_selection)
def preallocation(case: Case) -> Any:
    settled = Settled(case.input)
    state = settled.reserved
    assert state is not None
    answer, nodes, _, made = _pre_allocated(settled, state)
    if not nodes or not made:
        return answer
    _without_record(answer)
    if state.reservation.pre_allocation_policy.enable_multiple or not any(
        one.get("candidates") or one.get("unmatched") for one in answer["nodes"].values()
    ):
        return {**answer, "preScore": "Skip"}
    nominated = {name: one.nominated for name, one in made.items() if one.nominated is not None}
    raw = {
        name: score_reservation(nominated[name].requests, state) if name in nominated else 0 for name in made
    }
    answer["preScore"] = "Success"
    answer["nominated"] = {name: pod.name for name, pod in nominated.items()}
    answer["raw"] = raw
    answer["normalized"] = raw
    return answer
