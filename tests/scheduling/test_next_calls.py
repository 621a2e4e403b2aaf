"""What a later call on the same line of snapshots knows of what has changed meanwhile."""

from __future__ import annotations

import attrs

from koordcore import (
    ClusterSnapshot,
    Nominated,
    PodKey,
    PreemptionRules,
    Unschedulable,
    named_policy,
    schedule,
    verify,
)
from koordcore.manifests import snapshot_from_objects
from koordcore.model.metrics import NodeMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.numa import NodeResourceTopology
from koordcore.snapshot import Change
from koordcore.snapshot.changes import NodeReplaced, PodEnded, RecordAdded, RecordRemoved, RecordReplaced
from tests.scheduling.test_neighbours_and_load import LOAD, NOW, STAMP, loaded, nodes, web
from tests.scheduling.test_numa import node, pod

SHIPPED = named_policy("koordinator")


def test_the_card_of_a_pod_that_ended_is_there_for_the_next_one_and_no_other_card() -> None:
    objects = [*node("n1", cards=(0, 1))]
    for name in ("p1", "p2", "p3"):
        objects.append(pod(name, 2, gpus=1, bound=False))
    snapshot = snapshot_from_objects(objects).snapshot
    first = schedule(snapshot, policy=SHIPPED)
    assert verify(snapshot, first) == ()
    given = {one.pod.name: one.annotations for one in first.bound}
    assert sorted(given) == ["p1", "p2"]
    then = first.snapshot.apply(PodEnded(PodKey("default", "p1")))
    second = schedule(then, policy=SHIPPED)
    assert verify(then, second) == ()
    (bound,) = second.bound
    key = "scheduling.koordinator.sh/device-allocated"
    assert (bound.pod.name, bound.annotations[key]) == ("p3", given["p1"][key])


def test_cpus_of_a_pod_that_ended_are_given_to_the_next_one() -> None:
    objects = [*node("n1"), pod("p1", 4), pod("p2", 4), pod("p3", 4)]
    snapshot = snapshot_from_objects(objects).snapshot
    first = schedule(snapshot, policy=SHIPPED)
    key = "scheduling.koordinator.sh/resource-status"
    given = {one.pod.name: one.annotations[key] for one in first.bound}
    assert sorted(given) == ["p1", "p2"]
    then = first.snapshot.apply(PodEnded(PodKey("default", "p2")))
    second = schedule(then, policy=SHIPPED)
    assert verify(then, second) == ()
    assert {one.pod.name: one.annotations[key] for one in second.bound} == {"p3": given["p2"]}


def test_a_topology_counts_from_the_call_on_in_which_the_first_node_tells_one() -> None:
    """And no longer once no node does: who asks for amounts alone then gets nothing of his own."""
    telling = snapshot_from_objects(node("n1", policy="SingleNUMANode")).snapshot
    (topology,), (labelled,) = telling.of(NodeResourceTopology), telling.layout.nodes
    silent = Node(name="n1", allocatable=labelled.allocatable)
    asking = snapshot_from_objects([pod(f"p{turn}", 1, bound=False) for turn in range(4)]).snapshot.pending
    steps: tuple[tuple[Change, ...], ...] = (
        (),
        (NodeReplaced(labelled), RecordAdded(topology)),
        (NodeReplaced(silent), RecordRemoved(topology)),
        (RecordAdded(topology), NodeReplaced(labelled)),
    )
    then, held = ClusterSnapshot(nodes=[silent]), []
    for one, changes in zip(asking, steps, strict=True):
        then = then.apply(*changes)
        anew = ClusterSnapshot(nodes=then.nodes, records=then.records)
        result = schedule(then, [one], policy=SHIPPED)
        assert result == schedule(anew, [one], policy=SHIPPED)
        (bound,) = result.bound
        held.append("scheduling.koordinator.sh/resource-status" in bound.annotations)
        then = result.snapshot
    assert held == [False, True, False, True]


def refused(snapshot: ClusterSnapshot) -> list[str]:
    result = schedule(snapshot, policy=LOAD, now=NOW)
    return [one.message for one in result.decisions if isinstance(one, Unschedulable)]


def metric(name: str, percent: int) -> NodeMetric:
    usage = measured_of({"cpu": 80 * percent, "memory": 0})
    return NodeMetric(node=name, update_time=STAMP, node_usage=usage)


def test_load_is_known_as_it_is_measured_now_and_against_what_the_node_offers_now() -> None:
    """No pod came or left; then a node has half of its cores left, which its load fills."""
    start = loaded(40, 40)
    first = schedule(start, web(1), policy=LOAD, now=NOW)
    assert len(first.bound) == 1
    calm = first.snapshot.with_pending(web(2)[1])
    assert refused(calm) == []
    hot = calm.apply(RecordReplaced(metric("n0", 90)), RecordReplaced(metric("n1", 90)))
    assert refused(hot) == ["0/2 nodes are available: 2 node(s) cpu usage exceed threshold."]
    assert refused(hot.apply(RecordReplaced(metric("n0", 10)))) == []
    fewer = [attrs.evolve(one, allocatable={**one.allocatable, "cpu": 4000}) for one in nodes(2)]
    small = [NodeReplaced(one) for one in fewer]
    assert refused(calm.apply(*small)) == ["0/2 nodes are available: 2 node(s) cpu usage exceed threshold."]


def test_cards_are_won_from_a_less_important_pod_that_holds_them() -> None:
    low, high = pod("low", 1, gpus=2, bound=False), pod("high", 1, gpus=2, bound=False)
    high["spec"]["priority"] = 9900
    first = schedule(snapshot_from_objects([*node("n1", cards=(0, 1)), low]).snapshot, policy=SHIPPED)
    assert len(first.bound) == 1
    (waits,) = snapshot_from_objects([high]).snapshot.pending
    then = first.snapshot.with_pending(waits)
    result = schedule(then, policy=SHIPPED, preempt=PreemptionRules())
    assert verify(then, result) == ()
    (found,) = result.decisions
    assert isinstance(found, Nominated)
    assert [one.pod.name for one in found.victims] == ["low"]
