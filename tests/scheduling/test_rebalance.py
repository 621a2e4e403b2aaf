"""Plans that every plugin agrees with."""

from __future__ import annotations

import json
from collections.abc import Callable

import attrs

from koordcore._record import record
from koordcore.descheduling.checked_moves import check_moves, checked_plan, static_allows
from koordcore.descheduling.defrag import DefragmentationPlan, Wanted, plan_defragmentation
from koordcore.descheduling.evict import CycleEvictor
from koordcore.descheduling.load_problem import problem_of_requests
from koordcore.descheduling.moves import Allows, MoveProblem
from koordcore.descheduling.plans import MoveRules, plan_empty_nodes, plan_room
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.devices import GPU_CORE, GPU_MEMORY_RATIO, Device, DeviceObject, DeviceType
from koordcore.model.moves import Move
from koordcore.model.nodes import Node
from koordcore.model.pods import HostPort, OwnerReference, Pod, PodKey, PodPhase
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


def test_a_node_serves_as_many_slots_as_its_plugins_take() -> None:
    """Of each node half a card and a whole one are free: by amounts two slots of 60 percent, by cards one."""
    full, part = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}
    devices = [
        DeviceObject(
            name=name,
            devices=tuple(Device(type=DeviceType.GPU, minor=minor, resources=full) for minor in range(2)),
        )
        for name in ("a", "b")
    ]
    room = {"cpu": 8000, "memory": 2**34, "pods": 20, GPU_CORE: 200, GPU_MEMORY_RATIO: 200}
    text = json.dumps({"gpu": [{"minor": 0, "resources": {name: str(50) for name in part}}]})
    held = (Pod(name=on, requests=part, node_name=on, annotations={DEVICE_ALLOCATED: text}) for on in "ab")
    snapshot = (
        ClusterSnapshot(nodes=[attrs.evolve(node(name), allocatable=room) for name in ("a", "b")])
        .with_records(*devices)
        .assume(*held)
    )
    for count, missing in ((1, 0), (2, 0), (3, 1)):
        wanted = Wanted(requests={GPU_CORE: 60, GPU_MEMORY_RATIO: 60}, count=count)
        plan = plan_room(snapshot, wanted).plan
        assert plan.missing == missing
        assert plan.places == (("a", 1), ("b", 1))[:count]
        assert plan.certificate.proven == (not missing)


def test_every_slot_is_a_pod() -> None:
    """Two pods may run on a node, whether the shape asks for them or not."""
    room = {"cpu": 8000, "memory": 2**34, "pods": 2}
    snapshot = ClusterSnapshot(nodes=[attrs.evolve(node(name), allocatable=room) for name in ("a", "b")])
    for asked in ({"cpu": 2000}, {"cpu": 2000, "pods": 1}):
        assert plan_room(snapshot, Wanted(requests=asked, count=3)).plan.places == (("a", 2), ("b", 1))
        most = plan_room(snapshot, Wanted(requests=asked, count=5)).plan
        assert (most.missing, most.places) == (1, (("a", 2), ("b", 2)))
        assert most.certificate.proven
    # Where what is left is a pod too many, one makes room.
    crowded = snapshot.assume(*(pod(f"{on}-{one}", 100, on) for on, one in ("a0", "a1", "b0")))
    moving = plan_room(crowded, Wanted(requests={"cpu": 2000}, nodes=("a",)))
    assert moving.legal
    assert [(move.pod.name, move.target) for move in moving.plan.moves] == [("a-0", "b")]


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


PORT = (HostPort(80),)


def by_itself(name: str, cpu: int, on: str, **changes: object) -> Pod:
    """A pod that is the only one of its owner; nobody may evict those of the owner `guard`."""
    owners = (OwnerReference("ReplicaSet", name, name, controller=True),)
    return attrs.evolve(pod(name, cpu, on, **changes), owners=owners)


def guarded(count: int, *others: Pod) -> ClusterSnapshot:
    """Nodes on each of which a pod that stays holds the port."""
    names = [f"n{index:02}" for index in range(count)]
    guards = [attrs.evolve(pod(f"guard-{name}", 100, name, host_ports=PORT), owners=()) for name in names]
    return ClusterSnapshot(nodes=[node("hot"), *map(node, names)]).assume(*guards, *others)


def test_one_pod_that_no_node_takes_hides_no_plan() -> None:
    """On thirty nodes somebody else holds the port; the pod beside it goes, and a bound is kept."""
    pinned = by_itself("pinned", 3000, "hot", host_ports=PORT)
    snapshot = guarded(30, pinned, *(by_itself(f"free-{one}", 2000, "hot") for one in range(2)))
    moving = plan_room(snapshot, Wanted(requests={"cpu": 3000}, nodes=("hot",)))
    assert moving.legal
    assert [(move.pod.name, move.target) for move in moving.plan.moves] == [("free-0", "n00")]
    assert moving.plan.certificate.proven  # one move had to be, whichever
    larger = plan_room(snapshot, Wanted(requests={"cpu": 4000}, nodes=("hot",)))
    assert [move.pod.name for move in larger.plan.moves] == ["free-0", "free-1"]
    assert (larger.plan.certificate.proven, larger.plan.certificate.bound) == (False, (0, 1, 1))


def test_many_pods_of_many_workloads_that_no_node_takes_hide_no_plan() -> None:
    """Forty nodes could be emptied by one move each but for ports; the one that is cordoned can, by two."""
    names = [f"m{index:02}" for index in range(40)]
    pinned = [by_itself(f"pinned-{name}", 1000, name, host_ports=PORT) for name in names]
    free = [by_itself(f"free-{one}", 1000, "x") for one in range(2)]
    closed = attrs.evolve(node("x"), unschedulable=True)
    snapshot = ClusterSnapshot(nodes=[closed, *map(node, names)]).assume(*pinned, *free)
    moving = plan_empty_nodes(snapshot, most=1)
    assert moving.legal
    assert (moving.plan.emptied, len(moving.plan.moves)) == (("x",), 2)
    assert not moving.plan.certificate.proven


@record
class _First:
    moves: tuple[Move, ...]
    certificate: Certificate


def test_where_everything_is_refused_nothing_moves() -> None:
    """A planner that never tires of trying is given nobody in the end; what it then proves is no proof."""
    pinned = [
        by_itself(f"pinned-{index:02}", 100, "hot", host_ports=(HostPort(80), HostPort(100 + index)))
        for index in range(40)
    ]
    snapshot = guarded(2, *pinned)

    def plan(allows: Allows) -> _First:
        pairs = ((one.key, name) for one in pinned for name in ("n00", "n01"))
        found = [Move(pod=key, source="hot", target=name) for key, name in pairs if allows(key, name)][:1]
        return _First(tuple(found), Certificate.make_proven((1 - len(found),)))

    assert len(plan(static_allows(snapshot)).moves) == 1
    done, checked = checked_plan(snapshot, plan)
    assert (done.moves, checked.refused) == ((), None)
    assert done.certificate == Certificate.make_bounded((1,), (0,))

    def unbounded(allows: Allows) -> _First:
        made = plan(allows)
        status = CertificateStatus.HEURISTIC if made.moves else CertificateStatus.PROVEN_BY_SOLVER
        bound = () if made.moves else made.certificate.objective
        return attrs.evolve(made, certificate=Certificate(status, made.certificate.objective, bound))

    done, _ = checked_plan(snapshot, unbounded)
    assert done.certificate == Certificate(CertificateStatus.HEURISTIC, (1,))


def test_plans_after_the_first_are_made_with_less_work() -> None:
    """The first takes what one plan may take; others only where something is refused."""
    snapshot = guarded(2, by_itself("pinned", 100, "hot", host_ports=PORT))
    key, made = PodKey("default", "pinned"), []

    def planner(name: str) -> Callable[[Allows], _First]:
        def plan(allows: Allows) -> _First:
            made.append(name)
            nodes = [one for one in ("n00", "n01") if allows(key, one)][:1]
            found = [Move(pod=key, source="hot", target=one) for one in nodes]
            return _First(tuple(found), Certificate.make_proven((1 - len(found),)))

        return plan

    checked_plan(snapshot, planner("first"), again=planner("again"))
    assert made == ["first", "again"]  # both nodes were asked at once
    made.clear()
    checked_plan(snapshot.forget("default/guard-n00"), planner("first"), again=planner("again"))
    assert made == ["first"]
