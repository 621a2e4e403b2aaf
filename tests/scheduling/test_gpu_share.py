"""GpuShare: the replay's policies inside ``schedule``, in both conventions."""

from __future__ import annotations

import attrs
import pytest

from koordcore.explaining import explain
from koordcore.model.decisions import Shortfall, Unschedulable
from koordcore.model.devices import GPU_CORE, GPU_COUNT, GPU_MEMORY_RATIO, Device, DeviceObject, DeviceType
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.scheduling import schedule
from koordcore.scheduling.plugins.gpu_share import (
    CARD_MODEL,
    GPU_INDEX,
    GPU_MILLI,
    NO_CARDS,
    GpuShareArgs,
    demand_of,
    gpu_node,
)
from koordcore.scoring.fragmentation import workload_mix
from koordcore.scoring.gpu_policies import PolicyLike, PolicyName, make_policy
from koordcore.scoring.gpu_share import GpuDemand
from koordcore.simulate import Refused, replay
from koordcore.simulate.cluster import arrivals_of, final_snapshot, fragmentation_of, nodes_of
from koordcore.snapshot import ClusterSnapshot
from tests.simulate.small import SMALL, small_mix, small_trace
from tests.simulate.tightest import Tightest


def node(name: str, cards: int, *, cpu: int = 64000, model: str = "T4") -> Node:
    room = {"cpu": cpu, "memory": 1 << 40, "pods": 1000, GPU_COUNT: cards, GPU_MILLI: 1000 * cards}
    return Node(name=name, labels={CARD_MODEL: model}, allocatable=room)


def pod(name: str, demand: GpuDemand) -> Pod:
    annotations = {}
    if demand.gpus:
        annotations = {GPU_COUNT: str(demand.gpus), GPU_MILLI: str(demand.milli)}
    if demand.models:
        annotations[CARD_MODEL] = "|".join(demand.models)
    return Pod(name=name, requests={"cpu": demand.cpu, "memory": demand.memory}, annotations=annotations)


def small_snapshot() -> ClusterSnapshot:
    """The small cluster, and the tasks of its trace as pods, which arrive in the order of their names."""
    nodes = [
        attrs.evolve(
            node(one.name, len(one.cards), cpu=one.cpu, model=one.model),
            allocatable={
                "cpu": one.cpu,
                "memory": one.memory,
                "pods": 1000,
                GPU_COUNT: len(one.cards),
                GPU_MILLI: one.idle,
            },
        )
        for one in SMALL.nodes()
    ]
    pods = [pod(task.name, task.demand) for task in small_trace().tasks]
    return ClusterSnapshot(nodes=nodes, pending=pods)


def policy(args: GpuShareArgs) -> Policy:
    fit = PluginSetting(name="NodeResourcesFit", scores=False)
    return Policy(plugins=(fit, PluginSetting(name="GpuShare", args=args)))


@pytest.mark.parametrize("name", [*PolicyName, Tightest(), Tightest])
def test_schedule_and_replay_decide_alike(name: PolicyLike) -> None:
    """Node by node and card by card, whichever policy, the library's or one's own."""
    snapshot, mix = small_snapshot(), small_mix()
    result = schedule(snapshot, policy=policy(GpuShareArgs(policy=name, mix=mix, seed=5)))
    nodes = nodes_of(snapshot)
    again = replay(
        nodes,
        arrivals_of(snapshot.pending),
        make_policy(name, mix, nodes=nodes, seed=5),
        mix=mix,
        refused=Refused.DROPPED,
    )
    decided = {str(one.pod): (one.node, one.annotations.get(GPU_INDEX, "")) for one in result.bound}
    replayed = {one.task: (one.node, "-".join(map(str, one.slots))) for one in again.placements if one.node}
    assert decided == replayed
    assert len(decided) > 60
    assert final_snapshot(snapshot, again).nodes == result.snapshot.nodes
    assert {one.name: one for one in again.nodes} == {one.name: one for one in nodes_of(result.snapshot)}


def test_a_card_that_is_too_full_is_a_reason() -> None:
    half = GpuDemand(cpu=1000, gpus=1, milli=600)
    snapshot = ClusterSnapshot(nodes=[node("a", 2)], pending=[pod(f"p{turn}", half) for turn in range(3)])
    *_, last = schedule(snapshot, policy=policy(GpuShareArgs())).decisions
    assert isinstance(last, Unschedulable)
    assert last.message == "0/1 nodes are available: 1 Insufficient alibabacloud.com/gpu-milli."


def test_the_model_of_the_cards_binds() -> None:
    picky = GpuDemand(cpu=1000, gpus=1, models=("A100", "H800"))
    snapshot = ClusterSnapshot(
        nodes=[node("a", 2), node("b", 1, model="H800")], pending=[pod("p", picky), pod("q", picky)]
    )
    first, second = schedule(snapshot, policy=policy(GpuShareArgs())).decisions
    assert getattr(first, "node", "") == "b"
    assert isinstance(second, Unschedulable)
    assert "1 node(s) didn't match the GPU card model" in second.message


def test_a_node_of_another_model_is_refused_for_that_alone() -> None:
    """Whether it has cards left as well, which would be of no use to the pod."""
    picky = pod("p", GpuDemand(cpu=1000, gpus=1, models=("H800",)))
    nodes = [node("a", 0), node("b", 1), node("c", 0, model="H800")]
    (decision,) = schedule(
        ClusterSnapshot(nodes=nodes, pending=[picky]), policy=policy(GpuShareArgs())
    ).decisions
    assert isinstance(decision, Unschedulable)
    assert decision.message == (
        "0/3 nodes are available: 1 Insufficient alibabacloud.com/gpu-milli, "
        "2 node(s) didn't match the GPU card model."
    )


@pytest.mark.parametrize("models", [(), ("T4", "H800")])
def test_what_a_node_of_the_right_model_lacks_is_told_in_numbers(models: tuple[str, ...]) -> None:
    """Of its two cards one has 400 milli left, which is no help for 600."""
    half = pod("p", GpuDemand(cpu=1000, gpus=2, milli=1000, models=models))
    there = attrs.evolve(pod("there", GpuDemand(cpu=1000, gpus=1, milli=600)), node_name="a")
    there = attrs.evolve(there, annotations={**there.annotations, GPU_INDEX: "1"})
    snapshot = ClusterSnapshot(nodes=[node("a", 2)], pending=[half]).assume(there)
    (verdict,) = explain(snapshot, half.key, policy=policy(GpuShareArgs())).verdicts
    assert verdict.plugin == "GpuShare"
    assert verdict.shortfalls == (Shortfall(NO_CARDS, GPU_MILLI, requested=2000, available=1000),)


def test_scores_without_bounds_are_ranks_from_the_best_node_down_to_zero() -> None:
    """Of 104 nodes the last four are beyond the hundredth step, and no worse than the one before them."""
    nodes = [node(f"n{turn:03}", turn + 1) for turn in range(104)]
    asks = pod("p", GpuDemand(cpu=1000, gpus=1, milli=500))
    snapshot = ClusterSnapshot(nodes=nodes, pending=[asks])
    found = explain(snapshot, asks.key, policy=policy(GpuShareArgs(policy=Tightest()))).verdicts
    assert [one.scores["GpuShare"] for one in found] == [*range(100, -1, -1), 0, 0, 0]


def test_impossible_demands_are_refused_by_name() -> None:
    wrong = Pod(name="p", annotations={GPU_COUNT: "2", GPU_MILLI: "500"})
    (decision,) = schedule(
        ClusterSnapshot(nodes=[node("a", 2)], pending=[wrong]), policy=policy(GpuShareArgs())
    ).decisions
    assert isinstance(decision, Unschedulable)
    assert "in part" in decision.refusal


@pytest.mark.parametrize(
    ("requests", "demand"),
    [
        ({"nvidia.com/gpu": 2}, GpuDemand(gpus=2)),
        ({"koordinator.sh/gpu": 50}, GpuDemand(gpus=1, milli=500)),
        (
            {"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 60},
            GpuDemand(gpus=1, milli=600),
        ),
        ({"cpu": 500}, GpuDemand(cpu=500)),
        # How much of a card that is hangs on the node; of a demand the least part stands for it.
        ({"koordinator.sh/gpu-memory": 1 << 30}, GpuDemand(gpus=1, milli=1)),
    ],
)
def test_koordinators_requests_are_understood(requests: dict[str, int], demand: GpuDemand) -> None:
    assert demand_of(Pod(name="p", requests=requests)) == demand


def test_what_pods_hold_is_read_from_their_annotations() -> None:
    held = attrs.evolve(
        pod("p", GpuDemand(cpu=4000, gpus=1, milli=300)),
        node_name="a",
    )
    held = attrs.evolve(held, annotations={**held.annotations, GPU_INDEX: "1"})
    snapshot = ClusterSnapshot(nodes=[node("a", 3)]).assume(held)
    seen = gpu_node(snapshot, snapshot.nodes[0])
    assert (seen.cards, seen.held, seen.cpu) == ((1000, 700, 1000), ((0, 1),), 60000)


def test_what_pods_hold_of_devices_is_told_by_kind() -> None:
    """Two shares, a whole card, and two whole ones together."""
    cards = tuple(
        Device(type=DeviceType.GPU, minor=minor, resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100})
        for minor in range(5)
    )
    room = {"cpu": 64000, "memory": 1 << 40, "pods": 100, GPU_CORE: 500, GPU_MEMORY_RATIO: 500}
    pods = [
        Pod(name=f"p{turn}", requests={"cpu": 1000, GPU_CORE: part, GPU_MEMORY_RATIO: part})
        for turn, part in enumerate((100, 50, 40, 200))
    ]
    snapshot = ClusterSnapshot(
        nodes=[Node(name="a", allocatable=room)],
        pending=pods,
        records=[DeviceObject(name="a", devices=cards)],
    )
    names = ("NodeResourcesFit", "DeviceShare")
    plugins = tuple(PluginSetting(name=name, scores=False) for name in names)
    after = schedule(snapshot, policy=Policy(plugins=plugins)).snapshot
    seen = gpu_node(after, after.nodes[0])
    assert seen.held == ((0, 2), (1, 1), (2, 1))
    assert sorted(seen.cards) == [0, 0, 0, 500, 600]


def test_koordinators_cards_are_scored_as_device_share_leaves_them() -> None:
    """Two shares of 500 belong on one card; FGD's score brings the second to the node of the first."""
    cards = tuple(
        Device(type=DeviceType.GPU, minor=minor, resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100})
        for minor in range(2)
    )
    room = {"cpu": 64000, "memory": 1 << 40, "pods": 100, GPU_CORE: 200, GPU_MEMORY_RATIO: 200}
    names = ("a", "b", "c")
    nodes = [Node(name=name, allocatable=room) for name in names]
    devices = [DeviceObject(name=name, devices=cards) for name in names]
    whole, *halves = (
        Pod(name=f"p{turn}", requests={"cpu": 1000, GPU_CORE: part, GPU_MEMORY_RATIO: part})
        for turn, part in enumerate((100, 50, 50))
    )
    snapshot = ClusterSnapshot(nodes=nodes, pending=[whole, *halves], records=devices)
    plugins = (
        PluginSetting(name="NodeResourcesFit", scores=False),
        PluginSetting(name="DeviceShare", scores=False),
        PluginSetting(name="GpuShare", args=GpuShareArgs(policy=PolicyName.FGD)),
    )
    result = schedule(snapshot, policy=Policy(plugins=plugins))
    first, second = (result.decision(one.key) for one in halves)
    assert getattr(first, "node", "") == getattr(second, "node", None)
    after = {one.name: sorted(one.cards) for one in nodes_of(result.snapshot)}
    assert after[result.bound[1].node][0] == 0
    assert sum(map(sum, after.values())) == 4000


def test_fragmentation_of_a_snapshot() -> None:
    """Minor 0 of four is taken: three are free, of which 2 and 3 form the largest aligned block."""
    taken = attrs.evolve(pod("p", GpuDemand(cpu=60000, gpus=1)), node_name="a")
    taken = attrs.evolve(taken, annotations={**taken.annotations, GPU_INDEX: "0"})
    snapshot = ClusterSnapshot(nodes=[node("a", 4)]).assume(taken)
    found = fragmentation_of(snapshot, workload_mix([GpuDemand(cpu=8000, gpus=1)] * 3))
    assert (found.idle, found.free, found.blocks) == (3000, 3, 2)
    assert found.fragmented == 3000  # no CPU for any of them
    assert found.starved == 2500  # 4 of 24 cores are there
