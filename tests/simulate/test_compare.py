"""Several policies on one snapshot: what differs, and the figures by hand."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Node, NodeState, PluginSetting, Pod, Policy, PreemptionRules, schedule
from koordcore.errors import ModelError
from koordcore.model.devices import GPU_COUNT
from koordcore.model.gangs import PodGroup
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.plugin_args import FitArgs, ScoringStrategy
from koordcore.scheduling.plugins.gpu_share import GPU_MILLI
from koordcore.simulate import compare_policies
from koordcore.simulate.compare import Landing, ResourceUse
from koordcore.topology.network import LayerSpec

PACK = Policy().with_plugin(
    PluginSetting(
        name="NodeResourcesFit",
        weight=100,
        args=FitArgs(strategy=ScoringStrategy.MOST_ALLOCATED, resources=(("cpu", 1), ("memory", 1))),
    )
)
ZONE = "topology.kubernetes.io/zone"
GIB = 2**30


def node(name: str, **labels: str) -> Node:
    room = {"cpu": 4000, "memory": 8 * GIB, "pods": 10}
    return Node(name=name, allocatable=room, labels={key.replace("_", "/"): labels[key] for key in labels})


def pods(number: int, cpu: int = 1000, memory: int = 2 * GIB) -> list[Pod]:
    return [Pod(name=f"p{index}", requests={"cpu": cpu, "memory": memory}) for index in range(number)]


def test_who_lands_elsewhere_and_how_evenly_by_hand() -> None:
    """Two equal pods: one node each, or both on the first."""
    nodes = [Node(name=n, allocatable=node("a").allocatable, labels={ZONE: f"z-{n}"}) for n in ("a", "b")]
    found = compare_policies(ClusterSnapshot(nodes=nodes, pending=pods(2)), {"stock": Policy(), "pack": PACK})
    spread, packed = found.outcomes
    assert found.elsewhere == (Landing(pods(2)[1].key, ("b", "a")),)
    assert (found.moved("stock"), found.moved("pack")) == (0, 1)
    assert spread.domains == {"zone": 2, "node": 2}
    assert packed.domains == {"zone": 1, "node": 1}
    assert spread.resources["cpu"] == ResourceUse(mean=2500, deviation=0, highest=2500, stranded=0)
    assert packed.resources["cpu"] == ResourceUse(mean=2500, deviation=2500, highest=5000, stranded=0)
    assert (spread.bound, spread.unschedulable, spread.waiting) == (2, 0, 0)
    assert spread.fragmentation is None


def test_free_room_that_the_work_cannot_use() -> None:
    """Half of the work needs a whole node's CPU; where one small pod sits, three free CPUs are lost to it."""
    nodes = [node("a"), node("b")]
    small, large = pods(1)[0], Pod(name="whole", requests={"cpu": 4000, "memory": GIB})
    state = NodeState(nodes[0], (small.at("a"),))
    (outcome,) = compare_policies(ClusterSnapshot(nodes=[state, nodes[1]]), {"stock": Policy()}, []).outcomes
    assert outcome.resources["cpu"].stranded == 0  # nothing but the small pod is known as work
    snapshot = ClusterSnapshot(nodes=[state, nodes[1]], pending=[large])
    bare = Policy(plugins=Policy().plugins[:1])
    (outcome,) = compare_policies(snapshot, {"bare": bare}).outcomes
    assert outcome.result.bound[0].node == "a"  # nothing filters
    # Free are 0 on a and 4 on b, and everybody could use b.
    assert outcome.resources["cpu"].stranded == 0
    (outcome,) = compare_policies(snapshot, {"stock": Policy()}).outcomes
    # Free are 3 on a, which half of the work cannot use, and 0 on b; so is memory: 6 of 13 GiB, and 7 full.
    assert outcome.resources["cpu"].stranded == 5000
    assert outcome.resources["memory"].stranded == 10_000 * (6 * 1 + 7 * 2) // (13 * 2)


def test_whom_a_policy_does_not_name_and_who_is_nominated_do_not_wait() -> None:
    theirs = Pod(name="theirs", scheduler_name="volcano", requests={"cpu": 1000})
    held = NodeState(node("a"), (Pod(name="low", requests={"cpu": 4000}, node_name="a"),))
    high = Pod(name="high", requests={"cpu": 4000, "memory": GIB}, priority=10)
    snapshot = ClusterSnapshot(nodes=[held], pending=[theirs, high])
    found = compare_policies(snapshot, {"stock": Policy()}, preempt=PreemptionRules())
    (outcome,) = found.outcomes
    counts = (outcome.bound, outcome.unschedulable, outcome.waiting, outcome.nominated, outcome.not_ours)
    assert counts == (0, 0, 0, 1, 1)
    table = found.table()
    assert (table["waiting"], table["nominated"], table["not ours"]) == ([0], [1], [1])


def test_unschedulable_counts_differ() -> None:
    """Spread small pods leave no room for a large one; packed ones do."""
    small = [Pod(name=f"a{index}", requests={"cpu": 1000, "memory": GIB}, priority=1) for index in range(4)]
    large = Pod(name="big", requests={"cpu": 4000, "memory": GIB})
    snapshot = ClusterSnapshot(nodes=[node("a"), node("b")], pending=[*small, large])
    found = compare_policies(snapshot, {"spread": Policy(), "pack": PACK})
    assert [(one.bound, one.unschedulable) for one in found.outcomes] == [(4, 1), (5, 0)]
    assert found.elsewhere[-1] == Landing(large.key, ("", "b"))


def test_cards_are_measured() -> None:
    """Two halves on one card leave a whole one to the tasks that need it."""
    room = {"cpu": 64_000, "memory": 64 * GIB, "pods": 10, GPU_COUNT: 1}
    half = {GPU_COUNT: "1", GPU_MILLI: "500"}
    nodes = [Node(name=name, allocatable=room) for name in ("a", "b")]
    asked = [Pod(name=f"h{index}", requests={"cpu": 1000}, annotations=half) for index in range(2)]
    whole = Pod(name="w", requests={"cpu": 65_000}, annotations={GPU_COUNT: "1", GPU_MILLI: "1000"})
    policy = Policy().with_plugin(PluginSetting(name="GpuShare", weight=1000))
    (outcome,) = compare_policies(
        ClusterSnapshot(nodes=nodes, pending=[*asked, whole]), {"cards": policy}
    ).outcomes
    cards = outcome.fragmentation
    assert cards is not None
    assert outcome.unschedulable == 1  # no node has the CPU for the whole card
    assert (cards.idle, cards.free, cards.blocks) == (1000, 1, 1)
    # A third of the work asks for a CPU that no node has: the idle card is fragmented to a third.
    assert cards.fragmented == pytest.approx(1000 / 3)


def test_domains_of_gangs_are_added_up() -> None:
    """A gang of two in one block or in two."""
    layers = (
        LayerSpec("BlockLayer", ("block",)),
        LayerSpec("NodeTopologyLayer", parent="BlockLayer"),
    )
    nodes = [node(name, block=f"block-{name[0]}") for name in ("a1", "a2", "b1")]
    member = {"pod-group.scheduling.sigs.k8s.io": "g"}
    gang = [Pod(name=f"w{index}", labels=member, requests={"cpu": 3000}) for index in range(2)]
    snapshot = ClusterSnapshot(
        nodes=nodes,
        pending=gang,
        records=[
            PodGroup(name="g", namespace="default", min_member=2),
            ClusterNetworkTopology("default", layers),
        ],
    )
    (outcome,) = compare_policies(snapshot, {"stock": Policy()}).outcomes
    assert outcome.bound == 2
    assert outcome.gang_domains["node"] == 2
    assert outcome.domains == {"block": len({one.node[0] for one in outcome.result.bound}), "node": 2}


def test_each_policy_starts_from_the_same_snapshot() -> None:
    """An outcome is what ``schedule`` alone gives, and the snapshot is as before."""
    snapshot = ClusterSnapshot(nodes=[node("a"), node("b")], pending=pods(5))
    found = compare_policies(snapshot, {"stock": Policy(), "pack": PACK, "again": Policy()})
    for outcome, policy in zip(found.outcomes, (Policy(), PACK, Policy()), strict=True):
        assert outcome.result.decisions == schedule(snapshot, policy=policy).decisions
    assert len(snapshot.pending) == 5
    assert found.moved("again") == 0


def test_a_caller_that_compares_nothing_is_told() -> None:
    with pytest.raises(ModelError, match="at least one"):
        compare_policies(ClusterSnapshot(), {})
    found = compare_policies(ClusterSnapshot(), {"one": Policy()})
    with pytest.raises(ModelError, match="no policy two"):
        found.moved("two")


def test_sums_of_large_amounts_are_exact() -> None:
    """More bytes than 64 bits can count."""
    vast = 2**53
    nodes = [Node(name=f"n{i:04}", allocatable={"cpu": 1000, "memory": vast, "pods": 5}) for i in range(2000)]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[Pod(name="p", requests={"cpu": 1, "memory": 1})])
    (outcome,) = compare_policies(snapshot, {"stock": Policy()}).outcomes
    assert outcome.resources["memory"].stranded == 0


def test_what_preemption_costs_is_counted_for_each_started_card() -> None:
    """Two pods of one card leave for one of two."""
    room = {"cpu": 8000, "memory": 1 << 40, "pods": 9, "nvidia.com/gpu": 2}
    low = [Pod(name=name, requests={"nvidia.com/gpu": 1}, node_name="n") for name in ("a", "b")]
    high = Pod(name="high", requests={"nvidia.com/gpu": 2}, priority=10)
    snapshot = ClusterSnapshot(nodes=[Node(name="n", allocatable=room)]).assume(*low)
    found = compare_policies(snapshot, {"stock": Policy()}, [high], preempt=PreemptionRules())
    assert (found.outcomes[0].evicted, found.outcomes[0].started) == (2, 2000)
    assert found.outcomes[0].disruption == 1.0
    assert compare_policies(snapshot, {"stock": Policy()}, [high]).outcomes[0].disruption is None


def test_who_waits_is_told_how_many_policies_have_been_asked() -> None:
    told: list[int] = []
    policies = {"stock": Policy(), "pack": PACK, "again": PACK}
    snapshot = ClusterSnapshot(nodes=[node("a")], pending=pods(1))
    found = compare_policies(snapshot, policies, progress=told.append)
    assert told == [1, 2, 3]
    assert found == compare_policies(snapshot, policies)
