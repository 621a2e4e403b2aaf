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

from koordcore.allocators.numa_request import CPUDemand, CPURequest, cpu_request_of, demand_on
from koordcore.explaining.cycle import FilterVerdict
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.decisions import Bound
from koordcore.model.quotas import DEFAULT_QUOTA, ElasticQuota, QuotaPolicy
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU, MEMORY, PODS, make_resources, parse_resources
from koordcore.protocol.reservation import allocated_reservation, is_reserve_pod
from koordcore.reservations.cache import with_holders
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.plugins.exact import numa_state
from koordcore.scheduling.plugins.quota import snapshot_ledger
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.numa import NUMATopologyPolicy
from tests.conformance.core import Verdict, difference
from tests.conformance.cycles import DEVICES, STATUS, USED, Scene, decided
from tests.conformance.numa_words import counts
from tests.reference import devices as checker
from tests.reference.numa_placement import StaticResult
from tests.reference.quota_runtime import SlowTree

HELD: Final = (NUMATopologyPolicy.RESTRICTED, NUMATopologyPolicy.SINGLE_NUMA_NODE)
Found = tuple[Verdict, str]


# --- a node that only one side takes -------------------------------------------------------------------


def really_held(snapshot: ClusterSnapshot, node: str) -> dict[str, int]:
    """Count what is held on a node: of a reservation and its users the larger, resource by resource."""
    users: dict[str, dict[str, int]] = {}
    held: dict[str, int] = {PODS: 0}

    def add(into: dict[str, int], amounts: Mapping[str, int]) -> None:
        for name, amount in amounts.items():
            into[name] = into.get(name, 0) + amount

    for pod in snapshot.node(node).pods:
        used = allocated_reservation(pod.annotations)
        add(held if used is None else users.setdefault(used.name, {}), pod.requests)
        held[PODS] += 1
    for one in snapshot.of(Reservation):
        taken = users.pop(one.name, {})
        if one.active and one.status.node_name == node:
            for name, amount in (one.status.allocatable or {}).items():
                taken[name] = max(amount, taken.get(name, 0))
        add(held, taken)
    for taken in users.values():
        add(held, taken)
    return held


def overdrawn(snapshot: ClusterSnapshot, node: str) -> set[str]:
    """Give the resources of which users of some reservation of the node hold more than it does."""
    found: set[str] = set()
    for one in snapshot.of(Reservation):
        if not one.active or one.status.node_name != node:
            continue
        taken: dict[str, int] = {}
        for pod in snapshot.node(node).pods:
            used = allocated_reservation(pod.annotations)
            if used is not None and used.name == one.name:
                for name, amount in pod.requests.items():
                    taken[name] = taken.get(name, 0) + amount
        allocatable: Mapping[str, int] = one.status.allocatable or {}
        found |= {
            name for name, amount in taken.items() if name in allocatable and amount > allocatable[name]
        }
    return found


def truly_full(scene: Scene, node: str, verdict: FilterVerdict) -> str:
    """Say why a node that refuses for amounts is full although the reference sees room: RSV-1."""
    lacking = {
        reason.removeprefix("Insufficient ").removesuffix(" by node")
        for reason in verdict.reasons
        if reason.startswith("Insufficient ")
    }
    drawn = overdrawn(scene.snapshot, node)
    held = really_held(scene.snapshot, node)
    allocatable = scene.snapshot.node(node).node.allocatable
    for name in sorted(lacking & drawn):
        if held.get(name, 0) + scene.pod.requests.get(name, 0) > allocatable.get(name, 0):
            return f"users of a reservation on {node} hold more {name} than it does, and the node is full"
    return ""


def found_late(scene: Scene, node: str) -> str:
    """Say why a node is refused that the reference lets pass its filter only to refuse it at Reserve."""
    state = scene.snapshot.once(with_holders).node(node)
    known = numa_state(scene.snapshot.once(with_holders), state)
    asked = cpu_request_of(scene.pod)
    demand = demand_on(asked, known.node) if isinstance(asked, CPURequest) else None
    if not isinstance(demand, CPUDemand) or demand.policy in HELD:
        return ""
    matched = [one for one in scene.snapshot.of(Reservation) if one.active and one.status.node_name == node]
    if matched and not is_reserve_pod(scene.pod):
        return ""
    ground = StaticResult(known.node, known.allocations, demand)
    if demand.policy is NUMATopologyPolicy.BEST_EFFORT and not ground.exists(list(known.node.zone_ids)):
        return f"no CPUs and amounts for the pod exist on the NUMA nodes of {node} (rulings 5, 23)"
    if demand.bind and len(ground.free) < demand.request.cpus_needed:
        return f"{len(ground.free)} CPUs are free on {node} (ruling 23)"
    return ""


def served_jointly(scene: Scene, node: str) -> str:
    """Say why a node serves that separate hints refuse: there is a legal placement under its policy."""
    workspace = open_workspace(scene.snapshot, scene.policy, scene.now)
    row = workspace.layout.row_of[node]
    policy = _policy_on(scene, node)
    if policy not in HELD:
        return ""
    decision = place_there(workspace, PluginSet(workspace, scene.policy), scene.pod, row)
    if decision is None or scene.faults(decision):
        return ""
    return f"{node} serves everything together under {policy} (ruling 5)"


def _policy_on(scene: Scene, node: str) -> NUMATopologyPolicy:
    known = numa_state(scene.snapshot, scene.snapshot.node(node))
    asked = cpu_request_of(scene.pod)
    demand = demand_on(asked, known.node) if isinstance(asked, CPURequest) else None
    return demand.policy if isinstance(demand, CPUDemand) else NUMATopologyPolicy.NONE


def why_refused(scene: Scene, node: str, verdict: FilterVerdict) -> str:
    """Say why our refusal of a node is right although the reference has another answer; empty if unclear."""
    return truly_full(scene, node, verdict) or found_late(scene, node)


def why_worded(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say why a refusal is worded differently: a node is full of which the reference gives back too much."""
    first, second = str(mine.get("message", "")), str(theirs.get("message", ""))
    if difference({**theirs, "message": ""}, {**mine, "message": ""}):
        return ""
    cycle = scene.cycle
    notes = [
        note
        for node, one in cycle.filters.items()
        if not one.passed and (note := truly_full(scene, node, one))
    ]
    # Each such node may move one count from our reason to one of theirs, and nothing else may differ.
    return "; ".join(notes) if notes and _distance(first, second) <= len(notes) else ""


def _distance(mine: str, theirs: str) -> int:
    """Count the nodes that two FailedScheduling texts tell apart."""
    left, right = counts(mine), counts(theirs)
    return max(sum((left - right).values()), sum((right - left).values()))


# --- a whole step --------------------------------------------------------------------------------------


def judge_step(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Found | None:
    """Judge one step that differs; ``None`` where nothing speaks for ours."""
    ours, other = decided(scene.pod, mine), decided(scene.pod, theirs)
    if ours is not None and (wrong := scene.faults(ours)):
        return Verdict.WRONG, f"illegal: {wrong}"
    if other is not None:
        unsound = [] if theirs.get("permit") == "Wait" and not other.annotations else scene.faults(other)
        unsound = unsound or _overfull(scene, other)
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
    feasible = True
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
            why = served_jointly(scene, node) if own == {"code": "Success"} else ""
        else:
            why = _why_refused_so(scene, node, own, other, verdicts[node])
        if not why:
            return None
        notes.append(why)
    if feasible and any(difference(theirs.get(key), mine.get(key)) for key in ("scores", "total", "best")):
        return None
    if not _adds_up(mine):
        return None
    ours, other_one = decided(scene.pod, mine), decided(scene.pod, theirs)
    if ours is None or other_one is None:
        return (Verdict.RULED, "; ".join(notes)) if notes else None
    found = judge_step(scene, {**mine, "best": None}, {**theirs, "best": None}) if ours != other_one else None
    if found is not None:
        return found[0], "; ".join([*notes, found[1]])
    same = not difference(_parsed(other_one.annotations), _parsed(ours.annotations))
    return (Verdict.RULED, "; ".join(notes)) if notes and same and ours.node == other_one.node else None


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
    return truly_full(scene, node, verdict) or (found_late(scene, node) if late else "")


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


def _compare(scene: Scene, ours: Bound, other: Bound) -> Found | None:
    """Compare two placements on one node; an empty text where they are the same."""
    left, right = dict(ours.annotations), dict(other.annotations)
    if not difference(_parsed(right), _parsed(left)):
        return Verdict.RULED, ""
    mine, theirs = (json.loads(one.pop(DEVICES, "null")) for one in (left, right))
    # CPUs and amounts follow the devices to another NUMA node; that they are legal there is known already.
    followed = [one.pop(STATUS, None) for one in (left, right)]
    if difference(_parsed(right), _parsed(left)) or not mine or not theirs:
        return None
    case = scene.devices_case(ours.node, ours.annotations)
    wrong = checker.violations(case, mine)
    if wrong:
        return Verdict.WRONG, f"illegal: {wrong}"
    unsound = checker.violations(case, theirs)
    if unsound:
        return Verdict.RULED, f"the reference places illegally: {unsound}"
    if mine == theirs or (followed[0] is None) != (followed[1] is None):
        return None
    before, after = checker.objective(case, theirs), checker.objective(case, mine)
    return (Verdict.BETTER, f"{after} before {before}") if after < before else None


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
