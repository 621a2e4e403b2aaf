"""What a result touches is all that has to be looked at: the same violations are found as on the whole."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    Policy,
    PreemptionRules,
    ScheduleResult,
    schedule,
    verify,
)
from koordcore.checking.check import check_result
from koordcore.checking.domains import spread_rules
from koordcore.checking.index import ClusterIndex
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
)
from koordcore.model.cluster import Namespace, PodDisruptionBudget, Workload
from koordcore.model.gangs import PodGroup
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.pods import HostPort, PodPhase, SchedulingGroup
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import (
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator
from koordcore.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim
from koordcore.topology.network import NODE_LAYER, LayerSpec

ZONE = "topology.kubernetes.io/zone"
GANG = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"
USED = "scheduling.koordinator.sh/reservation-allocated"
NODES = [f"n{number}" for number in range(6)]
SPACES = ("default", "one", "two")
POLICIES = (Policy(), koordinator_policy(known_plugins()))


def selector(rng: Random) -> LabelSelector:
    app = rng.choice("ab")
    if rng.random() < 0.3:
        return LabelSelector(requirements=(Requirement("app", SelectorOperator.IN, (app,)),))
    if rng.random() < 0.2:
        return LabelSelector(requirements=(Requirement("app", SelectorOperator.NOT_IN, (app,)),))
    return LabelSelector(match_labels={"app": app})


def neighbourly(rng: Random) -> dict[str, object]:
    kind = rng.choice(("none", "none", "none", "anti", "near", "spread"))
    term = PodAffinityTerm(rng.choice((ZONE, "kubernetes.io/hostname")), selector(rng))
    if kind == "spread":
        rule = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, selector=selector(rng))
        return {"spread_constraints": (rule,)}
    if kind == "none":
        return {}
    part = PodAffinity(required=(term,))
    return {"affinity": Affinity(anti=part) if kind == "anti" else Affinity(pod=part)}


def pod(rng: Random, name: str) -> Pod:
    labels = {"app": rng.choice("ab")}
    if rng.random() < 0.3:
        labels[GANG] = rng.choice(("g1", "g2"))
    if rng.random() < 0.4:
        labels[QUOTA] = rng.choice(("top", "low", "other", "nowhere"))
    if rng.random() < 0.2:
        labels["quota.scheduling.koordinator.sh/preemptible"] = "false"
    group = SchedulingGroup(rng.choice(("k1", "k2"))) if GANG not in labels and rng.random() < 0.15 else None
    return Pod(
        name=name,
        labels=labels,
        uid=f"uid-{name}",
        requests={"cpu": rng.choice((500, 1000, 2000)), "memory": 2**20},
        priority=rng.choice((0, 0, 10)),
        host_ports=(HostPort(80),) if rng.random() < 0.15 else (),
        claims=(rng.choice(("v1", "v2")),) if rng.random() < 0.15 else (),
        scheduling_group=group,
        **neighbourly(rng),  # type: ignore[arg-type]
    )


def reservation(rng: Random, name: str) -> Reservation:
    node = rng.choice((*NODES[:4], ""))
    held = {"cpu": 2000, "memory": 2**20}
    template = attrs.evolve(pod(rng, f"template-{name}"), requests=held, scheduling_group=None, claims=())
    placed = ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=node, allocatable=held)
    return Reservation(
        name=name,
        uid=f"uid-{name}",
        template=template,
        owners=(ReservationOwner(selector=LabelSelector(match_labels={"app": rng.choice("ab")})),),
        allocate_once=rng.random() < 0.5,
        status=placed if node else ReservationStatus(),
    )


def world(rng: Random) -> ClusterSnapshot:
    states = []
    for row, name in enumerate(NODES[: rng.randint(3, 6)]):
        labels = {"kubernetes.io/hostname": name, **({ZONE: f"z{row % 2}"} if rng.random() < 0.9 else {})}
        room = {"cpu": rng.choice((3000, 6000)), "memory": 2**33, "pods": 8}
        taints = (Taint("gone"),) if rng.random() < 0.1 else ()
        node = Node(name=name, labels=labels, allocatable=room, taints=taints)
        pods = [pod(rng, f"old-{row}-{number}").at(name) for number in range(rng.randint(0, 3))]
        states.append(NodeState(node, tuple(pods)))
    records: list[object] = []
    if rng.random() < 0.7:
        records += [PodGroup(namespace="default", name="g1", min_member=rng.randint(1, 3))]
        group = '["default/g1", "default/g2"]'
        texts = {"gang.scheduling.koordinator.sh/groups": group} if rng.random() < 0.5 else {}
        records += [PodGroup(namespace="default", name="g2", min_member=1, annotations=texts)]
    if rng.random() < 0.6:
        records += [
            ElasticQuota(name="top", max={"cpu": 9000}, is_parent=True),
            ElasticQuota(name="low", parent="top", max={"cpu": 3000}, min={"cpu": 1000}),
            ElasticQuota(name="other", max={"cpu": 4000}, min={"cpu": 1000}),
        ]
    if rng.random() < 0.5:
        records += [reservation(rng, f"r{number}") for number in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        records += [
            SchedulingPodGroup(name="k1", min_count=rng.randint(1, 2), parent="all", topology_keys=(ZONE,))
        ]
        records += [SchedulingPodGroup(name="k2", parent="all"), CompositePodGroup(name="all", min_groups=1)]
    if rng.random() < 0.6:
        volume = PersistentVolume(name="pv", driver="disk", handle="h")
        records += [PersistentVolumeClaim(name="v1", volume="pv", one_pod=True), volume]
        records += [PersistentVolumeClaim(name="v2"), CSINode(name="n0", limits={"disk": 0})]
    pending = [pod(rng, f"new-{number}") for number in range(rng.randint(1, 6))]
    return ClusterSnapshot(nodes=states, pending=pending, records=records)  # type: ignore[arg-type]


def corrupted(rng: Random, snapshot: ClusterSnapshot, result: ScheduleResult) -> ScheduleResult:
    """Spoil a result a little; what comes out may be anything that can be built."""
    after, decisions = result.snapshot, list(result.decisions)
    bound = [one.key for one in after.bound_pods()]
    nodes = [state.name for state in after.nodes]
    what = rng.choice(("move", "bind", "lose", "forget", "edit", "record", "node", "drop", "name"))
    if what == "move" and bound:
        one = after.pod(rng.choice(bound))
        assert one is not None
        target = rng.choice(nodes)
        after = after.forget(one.key).assume(one.at(target))
        decisions = [
            attrs.evolve(each, node=target) if isinstance(each, Bound) and each.pod == one.key else each
            for each in decisions
        ]
    elif what == "bind" and after.pending:
        one = rng.choice(after.pending)
        target = rng.choice(nodes)
        after = after.assume(one.at(target))
        decisions = [each for each in decisions if each.pod != one.key]
        if rng.random() < 0.8:
            decisions.append(Bound(pod=one.key, node=target))
    elif what == "lose" and after.pending:
        after = after.forget(rng.choice(after.pending).key)
    elif what == "forget" and bound:
        after = after.forget(rng.choice(bound))
    elif what == "edit" and bound:
        one = after.pod(rng.choice(bound))
        assert one is not None
        texts = rng.choice(({"x": "y"}, {USED: '{"uid": "uid-r0", "name": "r0"}'}, {USED: "broken"}))
        labels = rng.choice(({}, {GANG: "g1"}, {"app": "a"}))
        after = after.forget(one.key).assume(one.at(one.node_name, annotations=texts, labels=labels))
    elif what == "record" and after.records:
        gone = rng.choice(after.records)
        after = attrs.evolve(after, records=[one for one in after.records if one is not gone])
    elif what == "node":
        changed = attrs.evolve(after.nodes[0].node, labels={ZONE: "z9"})
        after = attrs.evolve(after, nodes=[NodeState(changed, after.nodes[0].pods), *after.nodes[1:]])
    elif what == "drop" and decisions:
        decisions.remove(rng.choice(decisions))
    elif what == "name":
        key = rng.choice([*bound, *(one.key for one in snapshot.pending)] or [Pod(name="x").key])
        decisions.append(
            Bound(pod=key, node=rng.choice((*nodes, "nowhere")), reservation=rng.choice(("", "r0")))
        )
    return attrs.evolve(result, snapshot=after, decisions=tuple(decisions))


def moved_on(rng: Random, snapshot: ClusterSnapshot, step: int) -> ClusterSnapshot:
    """Something happens in the cluster."""
    bound = [one.key for one in snapshot.bound_pods()]
    if bound and rng.random() < 0.5:
        snapshot = snapshot.forget(rng.choice(bound))
    if rng.random() < 0.3:
        state = rng.choice(snapshot.nodes)
        node = attrs.evolve(state.node, labels={**state.node.labels, ZONE: rng.choice(("z0", "z1"))})
        snapshot = snapshot.with_nodes(NodeState(node, state.pods))
    if rng.random() < 0.2:
        snapshot = snapshot.with_nodes(Node(name=f"m{step}", allocatable={"cpu": 4000, "pods": 8}))
    if rng.random() < 0.2 and len(snapshot.nodes) > 2:
        snapshot = snapshot.without_nodes(rng.choice(snapshot.nodes).name)
    if rng.random() < 0.3:
        snapshot = snapshot.with_records(reservation(rng, "r1"))
    if rng.random() < 0.2 and snapshot.of(ElasticQuota):
        snapshot = snapshot.with_records(ElasticQuota(name="low", parent="other", max={"cpu": 2000}))
    return snapshot.with_pending(*(pod(rng, f"late-{step}-{number}") for number in range(2)))


def contents(index: ClusterIndex) -> object:
    """What an index knows, without the order in which it came to know it."""
    sums = {what: dict(getattr(index.sums, what)) for what in ("whole", "guarded")}
    used = {
        what: {name: +counter for name, counter in table.items() if +counter} for what, table in sums.items()
    }
    rule = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, selector=LabelSelector({"app": "a"}))
    like = Pod(name="like", labels={"app": "a"}, spread_constraints=(rule,))
    other = attrs.evolve(like, labels={"app": "b"}, spread_constraints=(attrs.evolve(rule, max_skew=2),))
    domains = [index.domains(one, pod) for pod in (like, other) for one in spread_rules(pod)]
    counted = [(+one.nodes, +one.pods) for one in domains]
    hidden = ("_sums", "_labelled", "_domains", "_homes")
    houses = {zone: set(index.nodes_of(ZONE, zone)) for zone in ("", "z0", "z1")}
    plain = {name: value for name, value in vars(index).items() if name not in hidden}
    homes = {
        (pair, key): {value: set(some) for value, some in one.items()}
        for pair, terms in index.shunning.items()
        for key, one in terms.items()
    }
    plain |= {"shunning": homes, "_marked": {key: set(some) for key, some in plain["_marked"].items()}}
    plain |= {"_by": {key: set(some) for key, some in plain["_by"].items()}}
    return used, counted, houses, plain, {key: set(some) for key, some in index.labelled.items()}


@settings(max_examples=10)
@given(st.integers(0, 2**32))
@example(10_000_000)  # a gang that lists another one, which goes alone
def test_what_is_touched_tells_what_the_whole_tells(seed: int) -> None:
    rng = Random(seed)
    snapshot = world(rng)
    policy = rng.choice(POLICIES)
    for step in range(3):
        preempt = PreemptionRules() if rng.random() < 0.4 else None
        result = schedule(snapshot, policy=policy, preempt=preempt)
        for number in range(3):
            spoilt = corrupted(rng, snapshot, result) if number else result
            assert verify(snapshot, spoilt) == check_result(snapshot, spoilt), (seed, step, number)
        snapshot = moved_on(rng, result.snapshot, step)


def lived_in(rng: Random, snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Add what a cluster has beside running pods: namespaces, members that ended, applications."""
    states = []
    for state in snapshot.nodes:
        pods = [attrs.evolve(one, namespace=rng.choice(SPACES)) for one in state.pods]
        states.append(NodeState(state.node, tuple(pods)))
    pending = []
    for one in snapshot.pending:
        term = PodAffinityTerm(
            rng.choice((ZONE, "kubernetes.io/hostname")),
            selector(rng),
            namespaces=rng.choice(((), ("one",))),
            namespace_selector=rng.choice((None, LabelSelector(), LabelSelector({"team": "x"}))),
        )
        part = PodAffinity(required=(term,))
        own = rng.choice((one.affinity, Affinity(anti=part), Affinity(pod=part)))
        pending.append(attrs.evolve(one, namespace=rng.choice(SPACES), affinity=own))
    ended = [
        attrs.evolve(pod(rng, f"ended-{number}"), phase=PodPhase.SUCCEEDED, node_name=rng.choice(NODES))
        for number in range(rng.randint(0, 3))
    ]
    spaces = [Namespace(name, {"team": rng.choice("xy")}) for name in SPACES if rng.random() < 0.7]
    apps = LabelSelector({"app": "a"})
    more: list[ClusterRecord] = [
        PodDisruptionBudget(name="b", selector=apps, disruptions_allowed=1),
        Workload(kind="ReplicaSet", name="a", selector=apps, replicas=3),
    ]
    more += [*snapshot.records, *ended, *spaces]
    return ClusterSnapshot(nodes=states, pending=pending, records=more)


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_what_is_touched_of_a_cluster_that_is_lived_in_tells_what_the_whole_tells(seed: int) -> None:
    rng = Random(seed)
    snapshot = lived_in(rng, world(rng))
    policy = rng.choice(POLICIES)
    for step in range(3):
        result = schedule(snapshot, policy=policy, preempt=PreemptionRules() if rng.random() < 0.4 else None)
        for number in range(3):
            spoilt = corrupted(rng, snapshot, result) if number else result
            assert verify(snapshot, spoilt) == check_result(snapshot, spoilt), (seed, step, number)
        snapshot = moved_on(rng, result.snapshot, step)
        snapshot = snapshot.with_records(Namespace(rng.choice(SPACES), {"team": rng.choice("xy")}))


@settings(max_examples=13)
@given(st.integers(0, 2**32))
def test_an_index_that_followed_equals_one_that_is_made_anew(seed: int) -> None:
    rng = Random(seed)
    snapshot = lived_in(rng, world(rng))
    followed = ClusterIndex()
    for step in range(4):
        followed.follow(snapshot)
        contents(followed)
        snapshot = moved_on(rng, snapshot, step)
    followed.follow(snapshot)
    anew = ClusterIndex()
    anew.follow(snapshot)
    assert contents(followed) == contents(anew)


def test_the_network_that_counts_is_that_of_all_nodes() -> None:
    """Nodes that a result does not touch decide which layers there are, and what nests in what."""
    spec = '{"gatherStrategy": [{"layer": "%s", "strategy": "MustGather"}]}'
    declared: list[ClusterRecord] = [
        ClusterNetworkTopology("pool-a", (LayerSpec("Hall", ("hall",)), LayerSpec(NODE_LAYER, (), "Hall"))),
        ClusterNetworkTopology("pool-b", (LayerSpec("Leaf", ("leaf",)), LayerSpec(NODE_LAYER, (), "Leaf"))),
    ]
    nodes = [
        Node(name=f"{key}{number}", labels={key: f"x{number // 2}"}, allocatable={"cpu": 4000, "pods": 9})
        for key in ("hall", "leaf")
        for number in range(4)
    ]
    for layer in ("Hall", "Leaf"):
        notes = {"gang.scheduling.koordinator.sh/network-topology-spec": spec % layer}
        gang = PodGroup(namespace="default", name="g", min_member=2, annotations=notes)
        pods = [
            Pod(
                name=f"p{number}",
                labels={GANG: "g"},
                requests={"cpu": 3000},
                node_selector={"leaf": "x1"},
            )
            for number in range(2)
        ]
        given: tuple[list[ClusterRecord], ...] = ([*declared, gang], [gang])
        for records in given:
            snapshot = ClusterSnapshot(nodes=nodes, pending=pods, records=records)
            result = schedule(snapshot)
            assert verify(snapshot, result) == check_result(snapshot, result) == ()


def test_a_decision_on_a_line_that_is_known_looks_at_few_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [Node(name=f"n{number}", allocatable={"cpu": 9000, "pods": 9}) for number in range(3)]
    known = ClusterSnapshot(nodes=nodes).assume(Pod(name="old", requests={"cpu": 1000}, node_name="n0"))
    all_pods = ClusterSnapshot.bound_pods

    def of_few_nodes(snapshot: ClusterSnapshot) -> Iterable[Pod]:
        assert len(snapshot.nodes) < len(nodes)
        return all_pods(snapshot)

    for name in ("first", "second"):
        before = known.with_pending(Pod(name=name, requests={"cpu": 1000}))
        result = schedule(before)
        if name == "second":
            monkeypatch.setattr(ClusterSnapshot, "bound_pods", of_few_nodes)
        assert verify(before, result) == ()
        known = result.snapshot
