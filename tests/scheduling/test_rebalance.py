"""Plans that every plugin agrees with."""

from __future__ import annotations

import json

import attrs

from koordcore.descheduling.checked_moves import check_moves, checked_plan, static_allows
from koordcore.descheduling.defrag import DefragmentationPlan, Wanted, plan_defragmentation
from koordcore.descheduling.evict import CycleEvictor
from koordcore.descheduling.load_problem import problem_of_requests
from koordcore.descheduling.moves import Allows, MoveProblem
from koordcore.descheduling.plans import MoveRules, plan_room
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.devices import GPU_CORE, GPU_MEMORY_RATIO, Device, DeviceObject, DeviceType
from koordcore.model.moves import Move
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod, PodKey, PodPhase
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.rebalance import EvictorArgs
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import reservation

OWNER = (OwnerReference("ReplicaSet", "rs", "rs", controller=True),)


def node(name: str, **labels: str) -> Node:
    return Node(name=name, labels=labels, allocatable={"cpu": 8000, "memory": 2**34, "pods": 20})


def pod(name: str, cpu: int, on: str | None = None, **changes: object) -> Pod:
    made = Pod(
        name=name, owners=OWNER, requests={"cpu": cpu, "memory": 2**20}, node_name=on, phase=PodPhase.RUNNING
    )
    return attrs.evolve(made, **changes)  # type: ignore[arg-type]  # fields of a pod


def asked(snapshot: ClusterSnapshot) -> MoveProblem:
    nodes = [state.node for state in snapshot.nodes]
    return problem_of_requests(nodes, list(snapshot.bound_pods()), evictor=CycleEvictor(EvictorArgs()))


def test_labels_and_cordons_are_seen_before_planning() -> None:
    """A selector that the target does not satisfy, a cordon, and a node that is not ready."""
    picky = pod("picky", 1000, "a", node_selector={"zone": "x"})
    nodes = [
        node("a", zone="x"),
        node("b"),
        node("c", zone="x"),
        attrs.evolve(node("d", zone="x"), unschedulable=True),
        attrs.evolve(node("e", zone="x"), ready=False),
    ]
    snapshot = ClusterSnapshot(nodes=nodes).assume(picky)
    allows = static_allows(snapshot)
    assert [one.name for one in nodes if allows(picky.key, one.name)] == ["a", "c"]


def test_a_pair_that_a_plugin_refuses_is_planned_around() -> None:
    """The tightest target holds a pod that must be kept away from; the plan takes another."""
    apart = Affinity(
        anti=PodAffinity(required=(PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),))
    )
    nodes = [node(name, **{"kubernetes.io/hostname": name}) for name in ("a", "b", "c")]
    snapshot = ClusterSnapshot(nodes=nodes).assume(
        pod("shy", 2000, "a", affinity=apart, labels={"app": "x"}),
        pod("rival", 4500, "b", labels={"app": "x"}),
        pod("other", 3000, "c"),
    )
    problem, wanted = asked(snapshot), Wanted(requests={"cpu": 8000})

    def plan(allows: Allows) -> DefragmentationPlan:
        return plan_defragmentation(attrs.evolve(problem, allows=allows), wanted)

    assert plan(static_allows(snapshot)).moves[0].target == "b"
    done, checked = checked_plan(snapshot, plan)
    assert checked.refused is None
    assert [(move.pod.name, move.target) for move in done.moves] == [("shy", "c")]
    assert [one.node for one in checked.bound] == ["c"]


def test_cards_are_chosen_at_the_target() -> None:
    """A pod that held a card gets one at its new place; what it held before is not taken along."""
    card = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}
    devices = [
        DeviceObject(
            name=name,
            devices=tuple(Device(type=DeviceType.GPU, minor=minor, resources=card) for minor in range(2)),
        )
        for name in ("a", "b")
    ]
    nodes = [
        attrs.evolve(
            node(name),
            allocatable={"cpu": 8000, "memory": 2**34, "pods": 20, GPU_CORE: 200, GPU_MEMORY_RATIO: 200},
        )
        for name in ("a", "b")
    ]
    request = {"cpu": 1000, "memory": 2**20, GPU_CORE: 100, GPU_MEMORY_RATIO: 100}
    snapshot = ClusterSnapshot(nodes=nodes).with_records(*devices)
    policy = Policy().with_plugin(PluginSetting(name="DeviceShare"))
    first = schedule(snapshot, [Pod(name="p", owners=OWNER, requests=request)], policy=policy)
    (bound,) = first.bound
    other = "b" if bound.node == "a" else "a"
    moves = (Move(pod=PodKey("default", "p"), source=bound.node, target=other),)
    checked = check_moves(first.snapshot, moves, policy)
    assert checked.refused is None
    (moved,) = checked.bound
    assert moved.node == other
    assert DEVICE_ALLOCATED in moved.annotations


def test_a_shape_must_fit_by_its_devices_too() -> None:
    """Two half cards are free on node a, a whole one on b once a pod has left: the whole one it is."""
    full = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}
    devices = [
        DeviceObject(
            name=name,
            devices=tuple(Device(type=DeviceType.GPU, minor=minor, resources=full) for minor in range(2)),
        )
        for name in ("a", "b")
    ]
    nodes = [
        attrs.evolve(
            node(name),
            allocatable={"cpu": 8000, "memory": 2**34, "pods": 20, GPU_CORE: 200, GPU_MEMORY_RATIO: 200},
        )
        for name in ("a", "b")
    ]

    def holding(name: str, on: str, minor: int, percent: int) -> Pod:
        part = {GPU_CORE: str(percent), GPU_MEMORY_RATIO: str(percent)}
        text = json.dumps({"gpu": [{"minor": minor, "resources": part}]})
        asks = {"cpu": 100, GPU_CORE: percent, GPU_MEMORY_RATIO: percent}
        return attrs.evolve(pod(name, 0, on, requests=asks), annotations={DEVICE_ALLOCATED: text})

    snapshot = (
        ClusterSnapshot(nodes=nodes)
        .with_records(*devices)
        .assume(
            attrs.evolve(holding("p", "a", 0, 50), owners=()),
            attrs.evolve(holding("q", "a", 1, 50), owners=()),
            attrs.evolve(holding("r", "b", 0, 100), owners=()),
            holding("s", "b", 1, 20),
        )
    )
    wanted = Wanted(requests=full)
    amounts_only = MoveRules(policy=Policy().without_plugin("DeviceShare"))
    by_amounts = plan_room(snapshot, wanted, rules=amounts_only)
    assert (by_amounts.plan.places, by_amounts.plan.moves) == ((("a", 1),), ())
    by_cards = plan_room(snapshot, wanted)
    assert by_cards.legal
    assert by_cards.plan.places == (("b", 1),)
    assert [(move.pod.name, move.target) for move in by_cards.plan.moves] == [("s", "a")]
    # By amounts nothing had to move, so more than one is not shown to be needed.
    assert not by_cards.plan.certificate.proven


def test_reserved_room_is_kept_for_its_owners() -> None:
    """Node b is empty and promised to others; the pod of node a goes to c, or to its own reservation."""
    running = attrs.evolve(pod("q", 4000, "a"), labels={"app": "mine"})
    other = attrs.evolve(pod("s", 3000, "c"), owners=())
    wanted = Wanted(requests={"cpu": 8000})
    for owner, target in (("theirs", "c"), ("mine", "b")):
        promised = reservation("r", 6, "b", owner)
        crowded = attrs.evolve(other, requests={"cpu": 3000 if owner == "theirs" else 6000, "memory": 2**20})
        snapshot = ClusterSnapshot(nodes=[node(name) for name in "abc"], records=[promised])
        moving = plan_room(snapshot.assume(running, crowded), wanted)
        assert moving.legal
        assert [(move.pod.name, move.target) for move in moving.plan.moves] == [("q", target)]
        assert [one.reservation for one in moving.checked.bound] == ["r" if owner == "mine" else ""]
