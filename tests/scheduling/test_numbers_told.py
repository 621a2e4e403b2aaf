"""Scores and amounts as they are told: what the modelled formulas give, worked out by hand."""

from __future__ import annotations

import json

import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    NodeState,
    Nominated,
    Pod,
    Policy,
    PreemptionRules,
    Unschedulable,
    named_policy,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.model.cluster import Workload
from koordcore.model.containers import Container
from koordcore.model.gangs import PodGroup
from koordcore.model.plugin_args import FitArgs, FitPlusArgs, ScarceArgs, ScoringStrategy
from koordcore.model.pods import OwnerReference
from koordcore.model.policy import PluginSetting
from koordcore.model.reservations import AllocatePolicy
from koordcore.model.selectors import LabelSelector
from koordcore.snapshot.changes import Change, NodeAdded, NodeRemoved, NodeReplaced
from tests.reservations import worlds

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ROOM = {"cpu": 8000, "memory": 16 << 30, "pods": 20}
CARD = "example.com/card"
DEFAULT = Policy()
GROUP = "pod-group.scheduling.sigs.k8s.io"


def scores(snapshot: ClusterSnapshot, pod: Pod, plugin: str, policy: Policy = DEFAULT) -> dict[str, int]:
    """What one plugin says of each node that takes the pod."""
    verdicts = explain(snapshot, pod.key, policy=policy).verdicts
    return {one.node: one.scores[plugin] for one in verdicts if one.fits}


def test_the_built_in_constraints_allow_a_skew_of_three_on_hosts_and_of_five_in_zones() -> None:
    """Pods on the host times ln 6, those in the zone times ln 4, each skew less one: 12, 6, 9 and 6."""
    hosts = [
        Node(name=f"n{i}", labels={HOST: f"n{i}", ZONE: f"z{i % 2}"}, allocatable=ROOM) for i in range(4)
    ]
    owner = OwnerReference("ReplicaSet", "web", controller=True)
    web = [Pod(name=name, labels={"app": "web"}, owners=(owner,), requests={"cpu": 100}) for name in "abc"]
    workload = Workload(kind="ReplicaSet", name="web", selector=LabelSelector({"app": "web"}))
    snapshot = ClusterSnapshot(nodes=hosts, records=[workload], pending=web)
    snapshot = snapshot.assume(web[0].at("n0"), web[1].at("n0"))
    assert scores(snapshot, web[2], "PodTopologySpread") == {"n0": 50, "n1": 100, "n2": 75, "n3": 100}


def test_a_card_counts_in_the_score_of_a_pod_that_asks_for_one_and_of_no_other() -> None:
    args = FitArgs(strategy=ScoringStrategy.MOST_ALLOCATED, resources=((CARD, 1), ("cpu", 1)))
    policy = Policy(plugins=(PluginSetting(name="NodeResourcesFit", args=args),))
    nodes = [Node(name="n", allocatable={**ROOM, CARD: 1})]
    plain, asks = Pod(name="plain", requests={"cpu": 800}), Pod(name="asks", requests={"cpu": 800, CARD: 1})
    assert scores(ClusterSnapshot(nodes=nodes, pending=[plain]), plain, "NodeResourcesFit", policy) == {
        "n": 10
    }
    assert scores(ClusterSnapshot(nodes=nodes, pending=[asks]), asks, "NodeResourcesFit", policy) == {"n": 55}


def test_a_node_with_a_single_scarce_card_is_kept_for_those_who_ask_for_cards() -> None:
    """CPU is asked for; of memory and the card, the card is scarce: half of what would lie idle."""
    policy = Policy(
        plugins=(PluginSetting(name="ScarceResourceAvoidance", args=ScarceArgs(resources=(CARD,))),)
    )
    nodes = [Node(name="plain", allocatable=ROOM), Node(name="rare", allocatable={**ROOM, CARD: 1})]
    pod = Pod(name="p", requests={"cpu": 800})
    found = scores(ClusterSnapshot(nodes=nodes, pending=[pod]), pod, "ScarceResourceAvoidance", policy)
    assert found == {"plain": 100, "rare": 50}


def holder(name: str, *images: str) -> Node:
    return Node(name=name, allocatable=ROOM, images=dict.fromkeys(images, 400 << 20))


def test_images_that_nodes_lose_bring_and_take_along_count_as_if_the_cluster_were_new() -> None:
    pod = Pod(name="p", containers=(Container(image="big:1"),), requests={"cpu": 100})
    first = ClusterSnapshot(
        nodes=[holder("a", "big:1"), holder("b", "big:1"), holder("c"), holder("d")], pending=[pod]
    )
    assert scores(first, pod, "ImageLocality") == {"a": 18, "b": 18, "c": 0, "d": 0}
    for changes, nodes in (
        ([NodeReplaced(holder("a"))], [holder("a"), holder("b", "big:1"), holder("c"), holder("d")]),
        ([NodeRemoved("b")], [holder("a", "big:1"), holder("c"), holder("d")]),
        ([NodeAdded(holder("e", "big:1"))], [*(one.node for one in first.nodes), holder("e", "big:1")]),
    ):
        then = first.apply(*changes)
        new = ClusterSnapshot(nodes=nodes, pending=[pod])
        assert scores(then, pod, "ImageLocality") == scores(new, pod, "ImageLocality")


def test_images_of_a_node_that_left_do_not_count_for_one_that_joins_under_its_name() -> None:
    steps: tuple[tuple[Change, ...], ...] = (
        (),
        (NodeRemoved("a"), NodeAdded(holder("0", "big:1"))),
        (NodeRemoved("0"), NodeAdded(holder("a"))),
        (NodeReplaced(holder("b", "big:1")), NodeAdded(holder("0"))),
    )
    line = ClusterSnapshot(nodes=[holder("a", "big:1"), holder("b"), holder("c")])
    for step, changes in enumerate(steps):
        pod = Pod(name=f"p{step}", containers=(Container(image="big:1"),), requests={"cpu": 100})
        line = line.apply(*changes)
        line = line.forget(*(one.key for one in line.bound_pods()))
        anew = ClusterSnapshot(nodes=[state.node for state in line.nodes])
        result = schedule(line, [pod])
        assert result.decisions == schedule(anew, [pod]).decisions
        line = result.snapshot


def test_a_pod_that_names_its_reservation_is_told_what_is_used_of_it() -> None:
    restricted = worlds.reservation("r", 4, on="n1", policy=AllocatePolicy.RESTRICTED)
    asks = worlds.pod("asks", 3, app="a", annotations=worlds.must(json.dumps({"name": "r"})))
    user = worlds.pod("user", 2, app="a", annotations=worlds.uses("r"))
    snapshot = ClusterSnapshot(nodes=[worlds.node("n1")], pending=[asks], records=[restricted]).assume(
        user.at("n1")
    )
    (one,) = schedule(snapshot, policy=named_policy("koordinator")).decisions
    assert isinstance(one, Unschedulable)
    assert one.message == (
        "0/1 nodes are available: 1 Reservation(s) Insufficient cpu, "
        "requested: 3000, used: 2000, capacity: 4000."
    )


def test_each_victim_is_named_by_the_member_that_takes_its_node() -> None:
    def state(name: str, runs: str) -> NodeState:
        pod = Pod(name=runs, requests={"cpu": 3000}).at(name)
        return NodeState(Node(name=name, allocatable={"cpu": 4000, "pods": 10}), (pod,))

    gang = [Pod(name=name, requests={"cpu": 3000}, priority=9, labels={GROUP: "g"}) for name in ("m1", "m2")]
    group = PodGroup(namespace="default", name="g", min_member=2)
    snapshot = ClusterSnapshot(nodes=[state("n1", "a"), state("n2", "b")], pending=gang, records=[group])
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    named = [one for one in result.decisions if isinstance(one, Nominated)]
    assert [(one.node, [victim.node for victim in one.victims]) for one in named] == [
        ("n1", ["n1"]),
        ("n2", ["n2"]),
    ]


def test_a_pod_that_asks_for_no_cards_goes_where_fewer_are_left_than_are_in_use() -> None:
    """A device plugin that lost cards leaves less than nothing; zero of that is enough."""
    user = Pod(name="user", requests={CARD: 4}).at("n")
    pod = Pod(name="p", requests={"cpu": 100, CARD: 0})
    for offered in ({CARD: 1}, {}):
        snapshot = ClusterSnapshot(nodes=[Node(name="n", allocatable={**ROOM, **offered})], pending=[pod])
        snapshot = snapshot.assume(user) if offered else snapshot
        assert [one.node for one in schedule(snapshot).bound] == ["n"]


def test_the_filter_leaves_out_the_extended_resources_that_its_arguments_name_and_no_others() -> None:
    args = FitArgs(ignored=("a.example/x",), ignored_groups=("b.example",))
    policy = Policy(plugins=(PluginSetting(name="NodeResourcesFit", args=args),))
    asked = ("a.example/x", "a.example/y", "b.example/x", "b.example/y", "c.example/x", "memory")
    pods = [Pod(name=str(number), requests={name: 1 << 40}) for number, name in enumerate(asked)]
    nodes = [Node(name="n", allocatable=ROOM)]
    found = [bool(schedule(ClusterSnapshot(nodes=nodes, pending=[pod]), policy=policy).bound) for pod in pods]
    assert dict(zip(asked, found, strict=True)) == {
        "a.example/x": True,
        "a.example/y": False,
        "b.example/x": True,
        "b.example/y": True,
        "c.example/x": False,
        "memory": False,
    }


@pytest.mark.parametrize(
    ("name", "score"), [("vendor.com/card", 56), ("koordinator.sh/card", 75), ("kubernetes.io/batch-cpu", 75)]
)
def test_the_setting_for_further_resources_is_for_those_of_vendors(name: str, score: int) -> None:
    """CPU is free to 75 of 100, and the vendor's resource, with three times the weight, used to 50."""
    args = FitPlusArgs(resources={"cpu": ("LeastAllocated", 1)}, extended=("MostAllocated", 3))
    policy = Policy(
        plugins=(
            PluginSetting(name="NodeResourcesFit"),
            PluginSetting(name="NodeResourcesFitPlus", args=args),
        )
    )
    pod = Pod(name="p", requests={"cpu": 2000, name: 50})
    snapshot = ClusterSnapshot(nodes=[Node(name="n", allocatable={**ROOM, name: 100})], pending=[pod])
    assert scores(snapshot, pod, "NodeResourcesFitPlus", policy) == {"n": score}
