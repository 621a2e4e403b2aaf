"""Queues of groups of every dialect: each gets in its turn what trying everything says; none is missed.

What a group may have depends on where those before it went, so their places are taken as they are.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import Bound, Nominated, Pod, ScheduleResult, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.certificates import CertificateStatus
from tests.property.dialects import Object, Said, dialect_of, node
from tests.property.test_group_flow_laws import KEYS, World, ready
from tests.property.test_group_preemption_laws import OURS, RULES, Victims
from tests.property.test_victim_unit_laws import Running
from tests.reference.group_units import Group, Leaf, best, best_of, leaves, options

GATE = {"schedulingGates": [{"name": "example.com/wait"}]}


@attrs.frozen
class Turn:
    """A unit of the queue, its pods by name, and whether it waits for a gate."""

    root: Group
    said: Said
    pods: dict[str, tuple[int, int]]
    """Number of the leaf, and cpu, by pod."""
    gated: bool


def _new_world(rng: random.Random, most: int) -> World:
    number = rng.randint(1, most)
    labels = [{key: f"{key}{rng.randint(0, 1)}" for key in KEYS if rng.random() < 0.9} for _ in range(number)]
    return World(rng, labels, [rng.randint(0, 4) for _ in range(number)])


def _turn(made: World, priority: int) -> tuple[Turn, list[Object]]:
    """Add a tree of groups to the queue, or a pod by itself."""
    rng, nodes = made.rng, list(range(len(made.room)))
    records, pending, running = len(made.records), len(made.pending), len(made.running)
    made.left = 5
    if rng.random() < 0.15:
        size = rng.randint(1, 2)
        lone = Pod(name=f"l{priority}", requests={"cpu": size * 1000})
        said = Said("", None)
        objects = said.objects([], [(lone, {"priority": priority})])
        return Turn(Leaf(sizes=(size,), least=1), said, {lone.name: (0, size)}, False), objects
    root, _ = made.group("", 1 + rng.randint(0, 1), nodes)
    own = made.records[records:]
    said = Said(dialect_of(rng, own[0], plain=len(made.running) == running), priority)
    names = [one.name for one in own if hasattr(one, "min_count")]
    gated = rng.random() < 0.1 and len(made.pending) > pending
    more: list[Object] = [{"priority": priority} for _ in made.pending[pending:]]
    if gated:
        more[0] = {"priority": priority, **GATE}
    pods = {
        pod.name: (names.index(pod.name.partition("-")[0]), pod.requests["cpu"] // 1000)
        for pod in made.pending[pending:]
    }
    there = [(pod, {"priority": priority}) for pod in made.running[running:]]
    waiting = list(zip(made.pending[pending:], more, strict=True))
    return Turn(root, said, pods, gated), said.objects(own, [*waiting, *there])


def agrees_in_turns(seed: int) -> None:
    """Hold every unit of a queue to trying everything on what those before it have left."""
    rng = random.Random(seed)
    made = _new_world(rng, 4)
    turns: list[Turn] = []
    objects: list[Object] = []
    for priority in (30, 20, 10)[: rng.randint(1, 3)]:
        turn, own = _turn(made, priority)
        turns.append(turn)
        objects += own
    rng.shuffle(objects)
    nodes = [node(f"n{n}", made.labels[n], room) for n, room in enumerate(made.room)]
    loaded = snapshot_from_objects([*nodes, *objects], strict=True)
    result = schedule(loaded.snapshot)
    assert verify(loaded.snapshot, result) == ()
    went = {one.pod.name: int(one.node[1:]) for one in result.decisions if isinstance(one, Bound)}
    free = list(made.room)
    for turn in turns:
        _holds_turn(turn, went, free, result)


def _holds_turn(turn: Turn, went: dict[str, int], free: list[int], result: ScheduleResult) -> None:
    expected = best(turn.root, free) if ready(turn.root) and not turn.gated else None
    done = {number for number, leaf in enumerate(leaves(turn.root)) if leaf.started}
    placed = [name for name in turn.pods if name in went]
    started = {turn.pods[name][0] for name in placed} - done
    if turn.said.dialect == "sigs":
        # Koordinator's gangs start whole minimums; members beyond them go one by one.
        assert bool(placed) == (expected is not None)
    else:
        assert (len(started), len(placed)) == (expected or (0, 0))
    for plan in result.jobs:
        if plan.certificate is not None and plan.certificate.status is CertificateStatus.INFEASIBLE:
            assert not plan.placed
    for name in placed:
        free[went[name]] -= turn.pods[name][1]


def agrees_on_room(seed: int) -> None:
    """Hold the victims of a tree of groups, among trees of every dialect and budgets, to trying every set."""
    rng = random.Random(seed)
    made = _new_world(rng, 3)
    full = rng.random() < 0.5
    room = [0] * len(made.room) if full else list(made.room)
    root, _ = made.group("", 1, list(range(len(room))))
    if not made.pending or not ready(root):
        return
    said = Said(dialect_of(rng, made.records[0], plain=False), OURS)
    ours = said.objects(made.records, [(pod, {"priority": OURS}) for pod in (*made.pending, *made.running)])
    there = Running(rng, len(room))
    for number in range(rng.randint(1, 3)):
        rng.choice((there.lone, there.tree, there.tree))(70 + number)
    budget = rng.randint(0, 2) if rng.random() < 0.4 else None
    objects, units, guarded = _victims(there, rng, budget is not None)
    if budget is not None:
        objects.append(_budget(budget))
    cpu = [
        free + sum(size for unit in units for on, size in unit.pods if on == n) for n, free in enumerate(room)
    ]
    nodes = [node(f"n{n}", made.labels[n], amount) for n, amount in enumerate(cpu)]
    loaded = snapshot_from_objects([*nodes, *ours, *objects], strict=True)
    expected = _cheapest(root, room, units, guarded, budget or 0)
    result = schedule(loaded.snapshot, preempt=RULES)
    assert verify(loaded.snapshot, result) == ()
    promised = sum(isinstance(one, Nominated) for one in result.decisions)
    if expected[1] is None:
        assert (len(result.bound), promised, result.preemptions) == (expected[0], 0, ())
        return
    assert (len(result.bound), promised) == (0, expected[0])
    (plan,) = result.preemptions
    cost = plan.damage
    assert (cost.violations, cost.highest, cost.jobs, cost.pods, cost.priorities) == expected[1]
    assert plan.certificate.proven


def _victims(
    there: Running, rng: random.Random, guards: bool
) -> tuple[list[Object], list[Victims], list[set[int]]]:
    """Write the running trees in the dialects that can say them; pods that a budget guards, per unit."""
    objects: list[Object] = []
    units = list(there.units)
    by_root: dict[str, list[Any]] = {}
    for one in there.records:
        by_root.setdefault(one.parent or one.name, []).append(one)
    labels = {pod.name: {"app": "kept"} if guards and rng.random() < 0.5 else {} for _, pod in there.running}
    pods = [attrs.evolve(pod, labels=labels[pod.name]) for _, pod in there.running]
    for own in by_root.values():
        own.sort(key=lambda one: bool(one.parent))
        names = {one.name for one in own}
        # Without a priority of its own a v1alpha1 group's members have theirs, which the units do not know.
        said = Said(
            rng.choice(("v1alpha2", "v1beta1", "v1alpha3")) if len(own) == 1 else "v1alpha3", own[0].priority
        )
        members = [pod for pod in pods if pod.scheduling_group and pod.scheduling_group.pod_group in names]
        objects += said.objects(own, [(pod, {"priority": pod.priority}) for pod in members])
    lone = [pod for pod in pods if pod.scheduling_group is None]
    objects += Said("", None).objects([], [(pod, {"priority": pod.priority}) for pod in lone])
    # Units list their pods in the order in which these were made.
    order = iter(range(len(pods)))
    guarded = []
    for unit in units:
        own_pods = list(itertools.islice(order, len(unit.pods)))
        guarded.append({number for number in own_pods if labels[pods[number].name]})
    return objects, units, guarded


def _budget(allowed: int) -> Object:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    status = {"disruptionsAllowed": allowed, "expectedPods": 9, "currentHealthy": 9, "desiredHealthy": 8}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept"},
        "spec": spec,
        "status": status,
    }


def _cheapest(
    root: Group, room: list[int], units: list[Victims], guarded: list[set[int]], allowed: int
) -> tuple[int, tuple[int, ...] | None]:
    """Give how many members start, and what the cheapest victims for so many cost: None without any."""
    known = options(root, len(room))
    now = best_of(known, room)
    if now is not None:
        return now[1], None
    lower = [number for number, unit in enumerate(units) if unit.priority < OURS]
    values: list[tuple[tuple[int, int], tuple[int, ...]]] = []
    for size in range(1, len(lower) + 1):
        for gone in itertools.combinations(lower, size):
            free = list(room)
            for number in gone:
                for on, amount in units[number].pods:
                    free[on] += amount
            found = best_of(known, free)
            if found is not None:
                each = [units[number].priority for number in gone for _ in units[number].pods]
                broken = max(0, sum(len(guarded[number]) for number in gone) - allowed)
                values.append((found, (broken, max(each), len(gone), len(each), sum(each))))
    if not values:
        return 0, None
    most = max(found for found, _ in values)
    return most[1], min(cost for found, cost in values if found == most)


@pytest.mark.solver
@settings(max_examples=13, deadline=None)
@given(st.integers(0, 10**6))
def test_every_group_of_a_queue_gets_what_is_left_for_it(seed: int) -> None:
    agrees_in_turns(seed)


@pytest.mark.solver
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_no_tree_of_groups_evicts_more_than_it_needs(seed: int) -> None:
    agrees_on_room(seed)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_the_sooner_reference_is_the_slow_one(seed: int) -> None:
    rng = random.Random(seed)
    made = _new_world(rng, 3)
    root, _ = made.group("", 1, list(range(len(made.room))))
    assert best_of(options(root, len(made.room)), made.room) == best(root, made.room)
