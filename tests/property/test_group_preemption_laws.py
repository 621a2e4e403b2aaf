"""Evictions for Kubernetes' own groups: on small clusters no set of victims is cheaper."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, Node, Nominated, Pod, PreemptionRules, schedule, verify
from koordcore.model.nodes import NodeState
from koordcore.model.pods import SchedulingGroup
from koordcore.model.scheduling_groups import DisruptionMode, SchedulingPodGroup

OURS = 10
RULES = PreemptionRules()


@attrs.frozen(kw_only=True)
class Victims:
    """Pods that leave together or not at all: nodes and sizes, and the priority that counts for each."""

    pods: tuple[tuple[int, int], ...]
    priority: int


@attrs.frozen(kw_only=True)
class World:
    """Some members of one size that want to start, and who runs."""

    size: int
    count: int
    least: int
    home: tuple[int, ...]
    room: tuple[int, ...]
    units: tuple[Victims, ...]

    def starts(self, gone: tuple[Victims, ...]) -> int:
        """Give how many members can start after evictions; fewer than the least is nobody."""
        free = list(self.room)
        for node, size in itertools.chain.from_iterable(unit.pods for unit in gone):
            free[node] += size
        found: dict[int, int] = {}
        for node, amount in enumerate(free):
            if self.home[node] >= 0:
                found[self.home[node]] = found.get(self.home[node], 0) + amount // self.size
        most = min(self.count, max(found.values(), default=0))
        return most if most >= self.least else 0

    def choices(self) -> Iterator[tuple[Victims, ...]]:
        """List every set of victims that are less important."""
        lower = [unit for unit in self.units if unit.priority < OURS]
        for chosen in itertools.product((False, True), repeat=len(lower)):
            yield tuple(itertools.compress(lower, chosen))


def cost(gone: tuple[Victims, ...]) -> tuple[int, int, int, int]:
    """Give the highest priority, jobs, pods and sum of priorities of victims."""
    each = [unit.priority for unit in gone for _ in unit.pods]
    return max(each), len(gone), len(each), sum(each)


def cheapest(world: World) -> tuple[int, tuple[int, int, int, int] | None]:
    """Give how many start, and what the cheapest victims for so many cost: None without any."""
    now = world.starts(())
    if now:
        return now, None
    most = max(map(world.starts, world.choices()))
    if not most:
        return 0, None
    return most, min(cost(gone) for gone in world.choices() if gone and world.starts(gone) >= most)


def world_of(seed: int) -> tuple[ClusterSnapshot, World]:
    rng = random.Random(seed)
    number = rng.randint(1, 3)
    labels = [{"rack": f"r{rng.randint(0, 1)}"} if rng.random() < 0.85 else {} for _ in range(number)]
    room = tuple(rng.randint(0, 2) for _ in range(number))
    keyed, nodes = rng.random() < 0.5, range(number)
    racks = tuple(int(one.get("rack", "r-1")[1:]) for one in labels)
    running: list[tuple[int, Pod]] = []
    units: list[Victims] = []
    records: list[SchedulingPodGroup] = []
    while len(running) < 6 and rng.random() < 0.9:
        name, lone = f"v{len(units)}", rng.random() < 0.4
        places = [(rng.choice(nodes), rng.randint(1, 2)) for _ in range(1 if lone else rng.randint(1, 3))]
        own, group = rng.randint(0, 12), rng.randint(0, 12)
        member = None if lone else SchedulingGroup(name)
        for place, (node, size) in enumerate(places):
            requests = {"cpu": size * 1000}
            pod = Pod(name=f"{name}-{place}", requests=requests, priority=own, scheduling_group=member)
            running.append((node, pod.at(f"n{node}")))
        whole = not lone and rng.random() < 0.5
        if not lone:
            mode = DisruptionMode.ALL if whole else DisruptionMode.SINGLE
            least = rng.choice((None, 1, 2))
            records.append(SchedulingPodGroup(name=name, min_count=least, priority=group, disruption=mode))
        parts = [tuple(places)] if whole else [(one,) for one in places]
        units += [Victims(pods=part, priority=own if lone else group) for part in parts]
    count, size = rng.randint(1, 3), rng.randint(1, 2)
    least = rng.randint(1, count)
    records.append(
        SchedulingPodGroup(
            name="ours", min_count=least, priority=OURS, topology_keys=("rack",) if keyed else ()
        )
    )
    states = [
        NodeState(
            Node(
                name=f"n{node}",
                labels=labels[node],
                allocatable={
                    "cpu": 1000 * room[node] + sum(pod.requests["cpu"] for on, pod in running if on == node),
                    "pods": 99,
                },
            ),
            tuple(pod for on, pod in running if on == node),
        )
        for node in nodes
    ]
    ours = SchedulingGroup("ours")
    pending = [
        Pod(name=f"ours-{one}", requests={"cpu": size * 1000}, priority=OURS, scheduling_group=ours)
        for one in range(count)
    ]
    world = World(
        size=size,
        count=count,
        least=least,
        home=racks if keyed else (0,) * number,
        room=room,
        units=tuple(units),
    )
    return ClusterSnapshot(nodes=states, pending=pending, records=records), world


@pytest.mark.solver
@settings(max_examples=13, deadline=None)
@given(st.integers(0, 10**6))
def test_no_evictions_for_a_group_are_cheaper(seed: int) -> None:
    agrees(seed)


def agrees(seed: int) -> None:
    """Compare one cluster with trying every set of victims."""
    snapshot, world = world_of(seed)
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    bound = sum(isinstance(one, Bound) for one in result.decisions)
    promised = sum(isinstance(one, Nominated) for one in result.decisions)
    starting, least = cheapest(world)
    if least is None:
        assert (bound, promised) == (starting, 0)
        assert not result.preemptions
        return
    (plan,) = result.preemptions
    assert (bound, promised) == (0, starting)
    assert plan.certificate.proven
    damage = plan.damage
    assert (damage.highest, damage.jobs, damage.pods, damage.priorities) == least
