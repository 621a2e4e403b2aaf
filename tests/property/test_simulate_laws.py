"""Laws of the replay.

The measure equals its definition; nothing is over-allocated; what a policy decides depends neither on what
was asked before nor on what is remembered; the same input gives the same digest; the columns add up.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from koordcore.scoring.fragmentation import FragmentationMeasure, workload_mix
from koordcore.scoring.gpu_share import GpuDemand, GpuNode
from koordcore.simulate import (
    Arrival,
    Departure,
    Event,
    NodeArrival,
    NodeDrained,
    NodeFailed,
    PolicyName,
    Refused,
    ScoredPolicy,
    Task,
    make_policy,
    replay,
)
from koordcore.simulate.events import GangArrival
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


@settings(max_examples=10, deadline=None)
@given(
    st.lists(demands(), min_size=1, max_size=8), st.lists(st.integers(0, 1000), max_size=4), st.integers(0, 9)
)
def test_the_measure_is_its_definition(tasks: list[GpuDemand], cards: list[int], cpu: int) -> None:
    mix = workload_mix(tasks)
    node = GpuNode(name="n", cpu=cpu * 1000, memory=1 << 40, cards=tuple(cards), model="A")
    measure = FragmentationMeasure(mix)
    assert Fraction(measure.weighted(node), mix.kept) == expected_fragment(node, mix)
    assert measure.of(node) == pytest.approx(float(expected_fragment(node, mix)))


@settings(max_examples=10, deadline=None)
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


@settings(max_examples=10, deadline=None)
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


@st.composite
def busy_streams(draw: st.DrawFn, cluster: tuple[GpuNode, ...]) -> tuple[Event, ...]:
    """Arrivals of tasks and gangs, departures, and nodes that drain, fail and come back."""
    time = 0
    events: list[Event] = []
    closed: set[str] = set()
    failed: set[str] = set()
    names: list[str] = []
    for turn in range(draw(st.integers(1, 18))):
        time += draw(st.integers(0, 3))
        kind = draw(st.sampled_from(["task", "task", "task", "gang", "leave", "drain", "fail", "back"]))
        if kind in ("task", "gang"):
            size = 1 if kind == "task" else draw(st.integers(2, 3))
            tasks = tuple(
                Task(
                    name=f"t{turn}-{part}",
                    demand=draw(demands()),
                    duration=draw(st.none() | st.integers(0, 9)),
                )
                for part in range(size)
            )
            names += [task.name for task in tasks]
            events.append(Arrival(time, tasks[0]) if size == 1 else GangArrival(time, f"g{turn}", tasks))
        elif kind == "leave" and names:
            events.append(Departure(time, draw(st.sampled_from(names))))
        elif kind in ("drain", "fail"):
            there = [node.name for node in cluster if node.name not in failed]
            if there:
                name = draw(st.sampled_from(there))
                closed.add(name)
                events.append(NodeDrained(time, name) if kind == "drain" else NodeFailed(time, name))
                failed |= {name} if kind == "fail" else set()
        elif kind == "back" and closed:
            name = draw(st.sampled_from(sorted(closed)))
            closed.remove(name)
            failed.discard(name)
            events.append(NodeArrival(time, next(node for node in cluster if node.name == name)))
    return tuple(events)


@settings(max_examples=10, deadline=None)
@given(st.data(), nodes(), st.sampled_from(PolicyName), st.sampled_from(Refused))
def test_whatever_happens_the_books_balance(
    data: st.DataObject, cluster: tuple[GpuNode, ...], name: PolicyName, refused: Refused
) -> None:
    """What runs at the end, taken from the nodes at the start, gives the nodes at the end.

    Gangs stay whole where no node fails under them and no member leaves.
    """
    events = data.draw(busy_streams(cluster))
    arriving = [event for event in events if isinstance(event, Arrival | GangArrival)]
    demand_of = {
        task.name: task.demand
        for event in arriving
        for task in ((event.task,) if isinstance(event, Arrival) else event.tasks)
    }
    mix = workload_mix([*demand_of.values(), GpuDemand(gpus=1)])
    result = replay(cluster, events, make_policy(name, mix, nodes=cluster, seed=1), mix=mix, refused=refused)
    state = {node.name: node for node in cluster}
    for one in result.running:
        assert state[one.node].fits(demand_of[one.task])
        state[one.node] = state[one.node].take(demand_of[one.task], one.slots)
    assert {node.name: node for node in result.nodes} == state
    used = sum(demand_of[one.task].total for one in result.running)
    assert not events or result.columns.allocated[-1] == used
    assert (result.columns.waited >= 0).all()
    waiting = {task.name for task in result.waiting}
    broken = any(isinstance(event, NodeFailed | Departure) for event in events)
    for event in arriving:
        if isinstance(event, GangArrival) and not broken:
            assert len({task.name in waiting for task in event.tasks}) == 1
