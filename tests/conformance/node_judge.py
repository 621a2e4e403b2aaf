"""Say why a node serves or refuses although the reference has another answer, by slow references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from koordcore.allocators.numa_request import CPUDemand, CPURequest, cpu_request_of, demand_on
from koordcore.explaining.cycle import FilterVerdict
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.reservations import Reservation
from koordcore.model.resources import PODS
from koordcore.protocol.reservation import allocated_reservation
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.reservations.cache import with_holders
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.plugins.exact import numa_state
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once
from koordcore.topology.numa import NUMATopologyPolicy
from tests.conformance.choice_judge import no_devices, nominated_refuse, policy_on
from tests.conformance.core import difference
from tests.conformance.cycles import Scene
from tests.conformance.numa_words import counts
from tests.reference.numa_placement import StaticResult

HELD: Final = (NUMATopologyPolicy.RESTRICTED, NUMATopologyPolicy.SINGLE_NUMA_NODE)


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
    state = once(scene.snapshot, with_holders).node(node)
    known = numa_state(once(scene.snapshot, with_holders), state)
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
    policy = policy_on(scene, node)
    if policy not in HELD:
        return ""
    decision = place_there(workspace, PluginSet(workspace, scene.policy), scene.pod, row)
    if decision is None or scene.faults(decision):
        return ""
    return f"{node} serves everything together under {policy} (ruling 5)"


def why_refused(scene: Scene, node: str, verdict: FilterVerdict) -> str:
    """Say why our refusal of a node is right although the reference has another answer; empty if unclear."""
    return (
        truly_full(scene, node, verdict)
        or found_late(scene, node)
        or no_devices(scene, node, verdict)
        or nominated_refuse(scene, node, verdict)
    )


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
