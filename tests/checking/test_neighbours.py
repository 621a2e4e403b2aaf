"""Plans that put pods too near, too far or too unevenly are found out; legal ones never are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from koordcore import Bound, ClusterSnapshot, Node, Pod, ScheduleResult, ViolationKind, schedule, verify
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from koordcore.model.cluster import Namespace
from koordcore.model.nodes import NodeState
from koordcore.model.selectors import LabelSelector
from tests.property.test_neighbour_laws import NAMESPACES, clusters as running, pods as waiting

HOST, ZONE = "kubernetes.io/hostname", "zone"
WEB = LabelSelector({"app": "web"})


def cluster(*pods: Pod) -> ClusterSnapshot:
    nodes = [
        Node(
            name=f"n{index}",
            labels={HOST: f"n{index}", **({ZONE: f"z{index % 2}"} if index < 4 else {})},
            allocatable={"cpu": 4000, "pods": 10},
        )
        for index in range(5)
    ]
    return ClusterSnapshot(nodes=nodes, pending=pods)


def forced(snapshot: ClusterSnapshot, **places: str) -> ScheduleResult:
    """A plan that somebody else made."""
    pods = {pod.name: pod for pod in snapshot.pending}
    after = snapshot.assume(*(pods[name].at(node) for name, node in places.items()))
    decisions = tuple(Bound(pod=pods[name].key, node=node) for name, node in sorted(places.items()))
    return ScheduleResult(decisions=decisions, snapshot=after)


def told(snapshot: ClusterSnapshot, **places: str) -> list[tuple[ViolationKind, str, str]]:
    found = verify(snapshot, forced(snapshot, **places))
    return [(one.kind, one.subject, one.message) for one in found]


def web(name: str, **fields: Any) -> Pod:
    return attrs.evolve(Pod(name=name, labels={"app": "web"}), **fields)


def test_pods_that_shun_each_other() -> None:
    alone = Affinity(anti=PodAffinity(required=(PodAffinityTerm(HOST, WEB),)))
    snapshot = cluster(web("a", affinity=alone), web("b"))
    assert told(snapshot, a="n0", b="n1") == []
    assert told(snapshot, a="n0", b="n0") == [
        (ViolationKind.POD_AFFINITY, "default/a", f"shuns 1 pods in {HOST}=n0"),
        (ViolationKind.POD_AFFINITY, "default/b", f"default/a shuns it in {HOST}=n0"),
    ]


def test_pods_that_need_each_other() -> None:
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm(ZONE, WEB),)))
    fan = Pod(name="fan", affinity=near)
    snapshot = cluster(fan, web("w"))
    assert told(snapshot, fan="n0", w="n2") == []
    assert told(snapshot, fan="n0", w="n1") == [
        (ViolationKind.POD_AFFINITY, "default/fan", "nobody whom it needs is in zone=z0")
    ]
    assert told(snapshot, fan="n4", w="n1") == [
        (ViolationKind.POD_AFFINITY, "default/fan", "n4 has no zone, which its affinity needs")
    ]
    series = cluster(web("first", affinity=near))
    assert told(series, first="n3") == []


def test_nobody_is_the_first_of_a_series_that_runs() -> None:
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm(ZONE, WEB),)))
    pods = web("second", affinity=near), web("third", affinity=near)
    start = cluster(*pods)
    snapshot = start.assume(web("first", affinity=near).at("n0"))
    lonely = (ViolationKind.POD_AFFINITY, "default/third", "nobody whom it needs is in zone=z1")
    assert told(start, second="n1", third="n3") == []
    assert told(snapshot, second="n2", third="n0") == []
    assert told(snapshot, second="n2", third="n1") == [lonely]
    assert told(snapshot, third="n1") == [lonely]
    # Who leaves may have been gone.
    gone = start.assume(web("first", affinity=near, deleted=datetime(2026, 1, 1, tzinfo=UTC)).at("n0"))
    assert told(gone, third="n1") == []


def test_a_series_reaches_as_far_as_one_came_to_another() -> None:
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm(ZONE, WEB),)))
    others = Affinity(pod=PodAffinity(required=(PodAffinityTerm(HOST, WEB),)))
    snapshot = cluster(web("far"), web("second", affinity=near), web("third", affinity=others)).assume(
        web("first").at("n0")
    )
    assert told(snapshot, far="n1", second="n3", third="n1") == []  # where one came who needs nobody
    assert told(snapshot, second="n2", third="n2") == []
    assert told(snapshot, second="n3", third="n3") == []  # each may have come to the other


def test_uneven_pods() -> None:
    even = (TopologySpreadConstraint(max_skew=1, topology_key=ZONE, selector=WEB),)
    snapshot = cluster(*(web(name, spread_constraints=even) for name in "abc"))
    assert told(snapshot, a="n0", b="n1", c="n2") == []
    skewed = told(snapshot, a="n0", b="n2", c="n2")
    assert {message for _, _, message in skewed} == {"skew 3 over zone, at most 1 allowed"}
    assert told(snapshot, a="n4")[0][2] == "n4 has no zone, over which it is to be spread"


def test_pods_without_the_constraint_may_have_come_later() -> None:
    even = (TopologySpreadConstraint(max_skew=1, topology_key=ZONE, selector=WEB),)
    snapshot = cluster(web("a", spread_constraints=even), web("b"), web("c"))
    assert told(snapshot, a="n0", b="n0", c="n0") == []


@given(running(), st.lists(st.integers(0, 1), max_size=4), st.data())
def test_what_schedule_decides_is_legal(
    states: tuple[NodeState, ...], order: list[int], data: st.DataObject
) -> None:
    nodes = [
        NodeState(attrs.evolve(one.node, allocatable={"cpu": 4000, "pods": 20}), one.pods) for one in states
    ]
    spaces = [Namespace(name, labels) for name, labels in NAMESPACES.items()]
    kinds = [data.draw(waiting(f"kind{index}")) for index in range(2)]
    pods = [
        attrs.evolve(kinds[kind], name=f"w{index}", deleted=None, priority=kind)
        for index, kind in enumerate(order)
    ]
    snapshot = ClusterSnapshot(nodes=nodes, records=spaces, pending=pods)
    assert verify(snapshot, schedule(snapshot)) == ()


@pytest.mark.parametrize("plugin", ["InterPodAffinity", "PodTopologySpread"])
def test_a_policy_that_does_not_ask_is_not_held_to_it(plugin: str) -> None:
    alone = Affinity(anti=PodAffinity(required=(PodAffinityTerm(HOST, WEB),)))
    even = (TopologySpreadConstraint(max_skew=1, topology_key="rack", selector=WEB),)
    snapshot = cluster(web("a", affinity=alone, spread_constraints=even), web("b", affinity=alone))
    result = forced(snapshot, a="n0", b="n0")
    loose = attrs.evolve(result, policy=result.policy.without_plugin(plugin))
    kinds = {one.kind for one in verify(snapshot, loose)}
    assert kinds == ({ViolationKind.SPREAD} if plugin == "InterPodAffinity" else {ViolationKind.POD_AFFINITY})
