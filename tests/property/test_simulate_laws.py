"""Laws of the replay.

The measure equals its definition; nothing is over-allocated; what a policy decides depends neither on what
was asked before nor on what is remembered; the same input gives the same digest; the columns add up.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordcore.scoring.fragmentation import FragmentationMeasure, workload_mix
from koordcore.scoring.gpu_share import GpuDemand, GpuNode
from koordcore.simulate import Arrival, PolicyName, Refused, ScoredPolicy, Task, make_policy, replay
from tests.reference.fragmentation import expected_fragment

MODELS = ("A", "B")


@st.composite
def demands(draw: st.DrawFn) -> GpuDemand:
    gpus = draw(st.sampled_from([0, 1, 1, 1, 2, 4]))
    milli = draw(st.sampled_from([160, 320, 500, 810, 1000])) if gpus == 1 else 1000
    return GpuDemand(
        cpu=draw(st.integers(0, 8)) * 1000,
        memory=draw(st.integers(0, 4)),
        gpus=gpus,
        milli=milli,
        models=draw(st.sampled_from([(), (), ("A",), ("A", "B")])) if gpus else (),
    )


@st.composite
def nodes(draw: st.DrawFn) -> tuple[GpuNode, ...]:
    count = draw(st.integers(1, 4))
    return tuple(
        GpuNode(
            name=f"n{row}",
            cpu=draw(st.integers(1, 24)) * 1000,
            memory=draw(st.integers(0, 12)),
            cards=(1000,) * draw(st.sampled_from([0, 1, 2, 4])),
            model=draw(st.sampled_from(MODELS)),
        )
        for row in range(count)
    )


@st.composite
def streams(draw: st.DrawFn) -> tuple[Arrival, ...]:
    time, events = 0, []
    for turn, demand in enumerate(draw(st.lists(demands(), min_size=1, max_size=14))):
        time += draw(st.integers(0, 3))
        duration = draw(st.none() | st.integers(0, 9))
        events.append(Arrival(time, Task(name=f"t{turn}", demand=demand, duration=duration)))
    return tuple(events)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(demands(), min_size=1, max_size=8), st.lists(st.integers(0, 1000), max_size=4), st.integers(0, 9)
)
def test_the_measure_is_its_definition(tasks: list[GpuDemand], cards: list[int], cpu: int) -> None:
    mix = workload_mix(tasks)
    node = GpuNode(name="n", cpu=cpu * 1000, memory=1 << 40, cards=tuple(cards), model="A")
    measure = FragmentationMeasure(mix)
    assert Fraction(measure.weighted(node), mix.kept) == expected_fragment(node, mix)
    assert measure.of(node) == pytest.approx(float(expected_fragment(node, mix)))


@settings(max_examples=60, deadline=None)
@given(nodes(), streams(), st.sampled_from(PolicyName), st.sampled_from(Refused))
def test_a_replay_keeps_its_books(
    cluster: tuple[GpuNode, ...], events: tuple[Arrival, ...], name: PolicyName, refused: Refused
) -> None:
    mix = workload_mix([event.task.demand for event in events])

    def once() -> tuple[str, tuple[GpuNode, ...]]:
        result = replay(cluster, events, make_policy(name, mix, seed=3), mix=mix, refused=refused)
        return result.digest, result.nodes

    result = replay(cluster, events, make_policy(name, mix, seed=3), mix=mix, refused=refused)
    assert (result.digest, result.nodes) == once()
    started = {one.name: one for one in cluster}
    for node in result.nodes:
        assert min(node.cpu, node.memory, *node.cards, 0) == 0, "nothing is over-allocated"
        assert node.cpu <= started[node.name].cpu
    idle = sum(node.idle for node in result.nodes)
    assert result.columns.allocated[-1] == result.capacity - idle
    rest = sum(float(expected_fragment(node, mix)) for node in result.nodes)
    assert result.columns.fragmented[-1] == pytest.approx(rest)
    decided = {one.task for one in result.placements} | {task.name for task in result.waiting}
    assert decided == {event.task.name for event in events}


@settings(max_examples=40, deadline=None)
@given(nodes(), streams(), st.sampled_from([name for name in PolicyName if name is not PolicyName.RANDOM]))
def test_each_decision_is_the_best_by_a_fresh_policy(
    cluster: tuple[GpuNode, ...], events: tuple[Arrival, ...], name: PolicyName
) -> None:
    """Kept scores and remembered states change nothing: a policy that knows nothing decides alike."""
    mix = workload_mix([event.task.demand for event in events])
    stay = [Arrival(one.time, Task(name=one.task.name, demand=one.task.demand)) for one in events]
    result = replay(cluster, stay, make_policy(name, mix), mix=mix)
    state = {node.name: node for node in cluster}
    for event, placement in zip(stay, result.placements, strict=True):
        demand = event.task.demand
        fresh = make_policy(name, mix)
        assert isinstance(fresh, ScoredPolicy)
        fitting = sorted(one for one in state if state[one].fits(demand))
        best = max(fitting, key=lambda one: fresh.score(state[one], demand), default="")
        assert placement.node == best
        if best:
            slots = fresh.slots(state[best], demand)
            assert placement.slots == slots
            state[best] = state[best].take(demand, slots)
