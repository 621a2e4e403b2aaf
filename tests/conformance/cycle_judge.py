"""Judge a step of a whole cycle that came out differently: it has to be better, or a ruling's doing.

Nothing is excused by its name. A placement of ours is held to the independent checker, a placement of the
reference that the checker refuses is no measure, and a node that only one side refuses is looked at with the
slow references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from koordcore.explaining.cycle import FilterVerdict
from koordcore.model.decisions import Bound
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.quotas import DEFAULT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.reservations import AllocatePolicy, Reservation
from koordcore.model.resources import CPU, MEMORY, make_resources, parse_resources
from koordcore.scheduling.plugins.quota import snapshot_ledger
from tests.conformance.choice_judge import (
    better_cards,
    better_numa_nodes,
    no_devices,
    nominated_refuse,
    not_asked_for,
    placed_on,
    rated_otherwise,
)
from tests.conformance.core import Verdict, difference
from tests.conformance.cycles import DEVICES, STATUS, USED, Scene, decided
from tests.conformance.node_judge import (
    found_late,
    overdrawn,
    really_held,
    served_jointly,
    truly_full,
    why_refused,
)
from tests.reference import devices as checker
from tests.reference.quota_runtime import SlowTree

Found = tuple[Verdict, str]


# --- a whole step --------------------------------------------------------------------------------------


def judge_step(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Found | None:
    """Judge one step that differs; ``None`` where nothing speaks for ours."""
    ours, other = decided(scene.pod, mine), decided(scene.pod, theirs)
    if ours is not None and (wrong := scene.faults(ours)):
        return Verdict.WRONG, f"illegal: {wrong}"
    if other is not None:
        unsound = [] if theirs.get("permit") == "Wait" and not other.annotations else scene.faults(other)
        unsound = unsound or _overfull(scene, other) or _uncharged(scene, other)
        if unsound:
            return Verdict.RULED, f"the reference places illegally: {unsound}"
    notes = _feasible_alike(scene, mine, theirs)
    if notes is None:
        return None
    if ours is None or other is None or ours.node != other.node:
        return Verdict.RULED, "; ".join(notes)
    found = _compare(scene, ours, other)
    if found is None or not found[1]:
        return (Verdict.RULED, "; ".join(notes)) if found is not None and notes else None
    return found[0], "; ".join([*notes, found[1]])


def _feasible_alike(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str] | None:
    """Say why other nodes are feasible, as far as a step shows them; ``None`` where that is not clear.

    Empty where both show the same.
    """
    if _choice(mine) == _choice(theirs):
        return []
    cycle = scene.cycle
    taken = [node for node, verdict in cycle.filters.items() if verdict.passed]
    refused = {node: verdict for node, verdict in cycle.filters.items() if not verdict.passed}
    first, second = mine.get("node"), theirs.get("node")
    alone = bool(theirs.get("onlyOne")) or second is None
    if second in refused:
        return [note] if (note := why_refused(scene, str(second), refused[str(second)])) else None
    if first in taken and second in taken and first != second:
        there, said = placed_on(scene, str(second)), decided(scene.pod, theirs)
        found = None if there is None or said is None else _compare(scene, there, said)
        if found is not None and found[1]:
            return [f"{second} is rated by what the pod would get there: {found[1]}"]
    if first != second:
        # Only where the reference has no other node at all it is clear that it refuses ours.
        return [note] if alone and first and (note := served_jointly(scene, str(first))) else None
    if alone:
        notes = [served_jointly(scene, node) for node in taken if node != second]
        return notes if notes and all(notes) else None
    more = set(mine.get("best", ())) - set(theirs.get("best", ()))
    fewer = [note for node, one in refused.items() if (note := why_refused(scene, node, one))]
    joint = [served_jointly(scene, node) for node in sorted(more)]
    return [*fewer, *joint] if fewer and all(joint) else None


def judge_ruled_cycle(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say what is wrong about a cycle laid open of which a ruling decides some part; empty for nothing.

    Placements are legal; a node that the reference places on legally is not left aside for nothing; and the
    parts of the answer agree with each other.
    """
    ours, other = decided(scene.pod, mine), decided(scene.pod, theirs)
    if ours is not None and (wrong := scene.faults(ours)):
        return f"illegal: {wrong}"
    sound = other is not None and "rejected" not in theirs
    if (
        ours is None
        and other is not None
        and sound
        and not scene.faults(other)
        and not _overfull(scene, other)
    ):
        return f"{other.node} is refused though the reference places there legally"
    return _disagrees(mine, theirs)


def _disagrees(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say which parts of a cycle laid open contradict each other; empty for none."""
    verdicts = mine.get("filter", {})
    if set(verdicts) != set(theirs.get("filter", {})):
        return f"looked at {sorted(verdicts)}"
    if not _adds_up(mine) or (mine.get("node") and mine["node"] not in mine["best"]):
        return "the best nodes are not those of the highest total"
    totals = {node: sum(row.values()) for node, row in mine.get("scores", {}).items()}
    if set(totals) != set(mine.get("total", {})):
        return "totals of other nodes than scores"
    passed = [node for node, one in verdicts.items() if one == {"code": "Success"}]
    refused = [one for one in verdicts.values() if one["code"] != "Success"]
    if any(set(one) != {"code", "plugin", "reasons"} or not one["reasons"] for one in refused):
        return "a refusal without plugin or reasons"
    if bool(passed) != bool(mine.get("node")) or ("message" in mine) == bool(mine.get("node")):
        return "placed or refused, and not so by its nodes"
    return ""


def _choice(step: Mapping[str, Any]) -> tuple[Any, ...]:
    return step.get("node"), step.get("onlyOne"), step.get("best")


def judge_cycle(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Found | None:
    """Judge one cycle laid open; ``None`` where nothing speaks for ours.

    Where both look at the same feasible nodes their scores have to be equal.
    """
    if difference(theirs.get("preFilter"), mine.get("preFilter")):
        return None
    notes: list[str] = []
    feasible, served = True, frozenset[str]()
    verdicts = scene.cycle.filters
    for node, other in theirs.get("filter", {}).items():
        own = mine.get("filter", {}).get(node)
        if own is None or not difference(other, own):
            if own is None:
                return None
            continue
        passes = own["code"] == "Success"
        feasible = feasible and passes == (other["code"] == "Success")
        if passes:
            why = not_asked_for(scene, other) or served_jointly(scene, node)
            why = why if own == {"code": "Success"} else ""
            served = served | {node} if why else served
        else:
            why = _why_refused_so(scene, node, own, other, verdicts[node])
        if not why:
            return None
        notes.append(why)
    if feasible and any(difference(theirs.get(key), mine.get(key)) for key in ("scores", "total", "best")):
        rated = _rated_otherwise(scene, mine, theirs)
        if not rated:
            return None
        notes += rated
    if not _adds_up(mine):
        return None
    ours, other_one = decided(scene.pod, mine), decided(scene.pod, theirs)
    if ours is None or other_one is None:
        return (Verdict.RULED, "; ".join(notes)) if notes else None
    if ours.node in served and ours.node != other_one.node and ours.node in mine.get("best", ()):
        wrong = scene.faults(ours)
        return (Verdict.WRONG, f"illegal: {wrong}") if wrong else (Verdict.RULED, "; ".join(notes))
    found = judge_step(scene, {**mine, "best": None}, {**theirs, "best": None}) if ours != other_one else None
    if found is not None:
        return found[0], "; ".join([*notes, found[1]])
    same = not difference(_parsed(other_one.annotations), _parsed(ours.annotations))
    return (Verdict.RULED, "; ".join(notes)) if notes and same and ours.node == other_one.node else None


def _rated_otherwise(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Say of every node with other scores why; empty where that is not clear for one of them."""
    own, other = mine.get("scores", {}), theirs.get("scores", {})
    notes = []
    for node in own.keys() | other.keys():
        if own.get(node) == other.get(node):
            continue
        if node not in own or node not in other:
            return []
        said = scene.cycle.scores.get(node, {})
        if any(said.get(name, 0) != score for name, score in own[node].items()):
            return []
        if mine["total"][node] != weighed(scene, own[node]):
            return []
        drawn = overdrawn(scene.snapshot, node)
        why = rated_otherwise(scene, node, own[node], other[node])
        why = why or (f"RSV-1: users of reservations on {node} hold more {sorted(drawn)}" if drawn else "")
        if not why:
            return []
        notes.append(why)
    return notes


def weighed(scene: Scene, scores: Mapping[str, int]) -> int:
    """Add up the scores of a node by the weights of the policy."""
    weights = {one.name: one.weight for one in scene.policy.plugins if one.scores}
    return sum(weights.get(name, 1) * score for name, score in scores.items())


def _why_refused_so(
    scene: Scene, node: str, own: Mapping[str, Any], other: Mapping[str, Any], verdict: FilterVerdict
) -> str:
    """Say why a node is refused in other words than the reference's, or at all; empty if unclear."""
    told = (own.get("code"), own.get("plugin"), sorted(own.get("reasons", ())))
    code = "Unschedulable" if verdict.resolvable else "UnschedulableAndUnresolvable"
    if told != (code, verdict.plugin, sorted(verdict.reasons)) or set(own) != {"code", "plugin", "reasons"}:
        return ""
    late = other["code"] == "Success" or (
        verdict.plugin == "NodeNUMAResource" and other["plugin"] not in ("NodeNUMAResource", "DeviceShare")
    )
    return (
        truly_full(scene, node, verdict)
        or (found_late(scene, node) if late else "")
        or (no_devices(scene, node, verdict) if other["code"] == "Success" else "")
        or (nominated_refuse(scene, node, verdict) if other["code"] == "Success" else "")
    )


def _adds_up(step: Mapping[str, Any]) -> bool:
    """Whether the best nodes of a cycle are those of the highest total."""
    totals = step.get("total") or {}
    most = max(totals.values(), default=0)
    return not totals or sorted(step.get("best") or ()) == sorted(
        node for node, total in totals.items() if total == most
    )


def _overfull(scene: Scene, decision: Bound) -> list[str]:
    """Say whether a placement overfills a node whose reservations gave back more than they hold."""
    held, node = really_held(scene.snapshot, decision.node), scene.snapshot.node(decision.node).node
    drawn = overdrawn(scene.snapshot, decision.node)
    if decision.annotations.get(USED):
        return []
    return [
        f"{name} of {node.name}: {held.get(name, 0)} held, {amount} asked of {node.allocatable.get(name, 0)}"
        for name, amount in scene.pod.requests.items()
        if name in drawn and held.get(name, 0) + amount > node.allocatable.get(name, 0)
    ]


def _uncharged(scene: Scene, decision: Bound) -> list[str]:
    """List what an owner of a Restricted reservation takes of no NUMA node (RSV-19)."""
    one = scene.snapshot.find(Reservation, decision.reservation)
    topology = scene.snapshot.find(NodeResourceTopology, decision.node)
    entries = json.loads(decision.annotations.get(STATUS, "{}")).get("numaNodeResources") or ()
    restricted = one is not None and one.allocate_policy is AllocatePolicy.RESTRICTED
    if not restricted or topology is None or not entries:
        return []
    told = {name for entry in entries for name in entry["resources"]}
    offered = {name for zone in topology.zones for name in zone.resources}
    return [
        f"{name} is charged to no NUMA node"
        for name, amount in scene.pod.requests.items()
        if amount and name in offered - told
    ]


def _compare(scene: Scene, ours: Bound, other: Bound) -> Found | None:
    """Compare two placements on one node; an empty text where they are the same."""
    left, right = dict(ours.annotations), dict(other.annotations)
    if not difference(_parsed(right), _parsed(left)):
        return Verdict.RULED, ""
    mine, theirs = (json.loads(one.pop(DEVICES, "null")) for one in (left, right))
    # CPUs and amounts follow the devices to another NUMA node; that they are legal there is known already.
    followed = [one.pop(STATUS, None) for one in (left, right)]
    if difference(_parsed(right), _parsed(left)):
        return None
    if mine == theirs:
        why = better_numa_nodes(scene, ours, other)
        return (Verdict.RULED, why) if why else None
    if not mine or not theirs:
        return None
    case = scene.devices_case(ours.node, ours.annotations)
    wrong = checker.violations(case, mine)
    if wrong:
        return Verdict.WRONG, f"illegal: {wrong}"
    unsound = checker.violations(case, theirs)
    if unsound:
        return Verdict.RULED, f"the reference places illegally: {unsound}"
    if (followed[0] is None) != (followed[1] is None):
        return None
    before, after = checker.objective(case, theirs), checker.objective(case, mine)
    if after < before:
        return Verdict.BETTER, f"{after} before {before}"
    why = better_cards(scene, case, mine, theirs) if after == before else ""
    return (Verdict.RULED, why) if why else None


def _parsed(annotations: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for key, text in annotations.items():
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found


# --- refusals of quotas --------------------------------------------------------------------------------


def runtime_with_default_quota(scene: Scene, quota: str) -> dict[str, int]:
    """Compute the runtime of a quota as the reference does once its default quota competes (ruling 10)."""
    ledger = snapshot_ledger(scene.snapshot, QuotaPolicy())
    named = [one for one in scene.snapshot.of(ElasticQuota) if not one.tree]
    largest = 2**63 // 5
    # Its max is its weight; in milli-CPU that leaves 64 bits and comes back below zero.
    weight = make_resources({CPU: -600, MEMORY: largest})
    default = ElasticQuota(
        name=DEFAULT_QUOTA, max=make_resources({CPU: 1000 * largest, MEMORY: largest}), shared_weight=weight
    )
    usage = {name: ledger.own_of(name) for name in (*(one.name for one in named), DEFAULT_QUOTA)}
    return SlowTree([*named, default], usage).runtimes(ledger.pool_of())[quota]


def quota_refusals_differ(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say why two steps refused by a quota differ in the runtime and what follows from it; else empty."""
    first, second = str(mine.get("message", "")), str(theirs.get("message", ""))
    ours, other = _REFUSED.search(first), _REFUSED.search(second)
    if ours is None or other is None or first == second:
        return ""
    if difference(theirs, json.loads(json.dumps(mine).replace(ours[0], other[0]))):
        return ""
    if any(ours[part] != other[part] for part in ("quota", "used", "request")):
        return ""
    if any(one["exceeded"].split(" ") != _exceeded(one) for one in (ours, other)):
        return ""
    expected = runtime_with_default_quota(scene, ours["quota"])
    same = all(expected.get(name, amount) == amount for name, amount in _amounts(other["runtime"]).items())
    return "10: the default quota does not compete" if same else ""


_REFUSED: Final = re.compile(
    r"Insufficient quotas, quotaName: (?P<quota>[^,]+), runtime: (?P<runtime>.*?), used: (?P<used>.*?), "
    r"pod's request: (?P<request>.*?), exceedDimensions: \[(?P<exceeded>[^\]]*)\]"
)


def _exceeded(refused: re.Match[str]) -> list[str]:
    """Work out in which resources the request goes beyond the runtime that a refusal names."""
    runtime, used, asked = (_amounts(refused[part]) for part in ("runtime", "used", "request"))
    return sorted(
        name for name in asked if name in runtime and used.get(name, 0) + asked[name] > runtime[name]
    )


def _amounts(told: str) -> dict[str, int]:
    parts = dict(part.rsplit(":", 1) for part in told.split(",") if part)
    return {name: int(amount) for name, amount in parse_resources(parts).items()}
