"""Kubernetes' own groups through ``schedule``: on small clusters nobody is missed who could start."""

from __future__ import annotations

import random

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.model.nodes import NodeState
from koordcore.model.pods import SchedulingGroup
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup
from tests.reference.group_units import Composite, Group, Home, Leaf, best, leaves

KEYS = ("zone", "rack")
NO_HOME: tuple[Home, int] = ((), -1)


@attrs.define
class World:
    """A cluster with one tree of groups, and the same in plain values."""

    rng: random.Random
    labels: list[dict[str, str]]
    room: list[int]
    records: list[CompositePodGroup | SchedulingPodGroup] = attrs.Factory(list)
    pending: list[Pod] = attrs.Factory(list)
    running: list[Pod] = attrs.Factory(list)
    left: int = 6

    def home(self, key: str, nodes: list[int]) -> tuple[Home, int]:
        """Domains of a key, and that of running members."""
        if not key:
            return NO_HOME
        values = sorted({labels[key] for labels in self.labels if key in labels})
        domains = tuple(values.index(labels[key]) if key in labels else -1 for labels in self.labels)
        return domains, domains[nodes[0]] if nodes else -1

    def key(self) -> str:
        return self.rng.choice(("", "", *KEYS))

    def leaf(self, parent: str, where: list[int]) -> tuple[Leaf, list[int]]:
        """Add a PodGroup; ``where`` are the nodes that its running members may be on."""
        name, rng, key = f"p{len(self.records)}", self.rng, self.key()
        least, gang = rng.randint(1, 3), rng.random() < 0.7
        runs = rng.randint(1, 2) if where and rng.random() < 0.3 else 0
        place = rng.choice(where) if where else 0
        if key and key not in self.labels[place]:
            runs = 0
        self.records.append(
            SchedulingPodGroup(
                name=name,
                parent=parent,
                min_count=least if gang else None,
                topology_keys=(key,) if key else (),
            )
        )
        group = SchedulingGroup(name)
        for number in range(runs):
            pod = Pod(name=f"{name}-r{number}", requests={"cpu": 0}, scheduling_group=group)
            self.running.append(pod.at(f"n{place}"))
        count = rng.randint(0, min(3, self.left))
        self.left -= count
        sizes = tuple(rng.randint(1, 2) for _ in range(count))
        for number, size in enumerate(sizes):
            requests = {"cpu": size * 1000}
            self.pending.append(Pod(name=f"{name}-{number}", requests=requests, scheduling_group=group))
        least = least if gang else 1
        domains, fixed = self.home(key, [place] * bool(runs))
        started = runs >= least
        return (
            Leaf(sizes=sizes, least=max(1, least - runs), home=domains, fixed=fixed, started=started),
            [place] * bool(runs),
        )

    def group(self, parent: str, level: int, where: list[int]) -> tuple[Group, list[int]]:
        """Add a group with everything below it."""
        if level == 3 or self.rng.random() < 0.4:
            return self.leaf(parent, where)
        name, rng, key = f"c{len(self.records)}", self.rng, self.key()
        least = rng.randint(1, 2)
        self.records.append(
            CompositePodGroup(name=name, parent=parent, min_groups=least, topology_keys=(key,) if key else ())
        )
        if key:
            # Whoever runs below lies in one domain.
            where = [node for node in where if key in self.labels[node]][:1]
        # A group of groups may have nobody below it.
        number = 0 if level > 1 and rng.random() < 0.2 else rng.randint(1, 3)
        found = [self.group(name, level + 1, where) for _ in range(number)]
        nodes = [node for _, below in found for node in below]
        domains, fixed = self.home(key, nodes)
        parts = tuple(part for part, _ in found)
        return Composite(parts=parts, least=least, home=domains, fixed=fixed), nodes


def world(seed: int) -> tuple[ClusterSnapshot, Group, list[int]]:
    rng = random.Random(seed)
    number = rng.randint(1, 3)
    labels = [{key: f"{key}{rng.randint(0, 1)}" for key in KEYS if rng.random() < 0.9} for _ in range(number)]
    made = World(rng, labels, [rng.randint(0, 4) for _ in range(number)])
    root, _ = made.group("", 1, list(range(number)))
    nodes = [
        NodeState(
            Node(name=f"n{n}", labels=labels[n], allocatable={"cpu": made.room[n] * 1000, "pods": 99}),
            tuple(pod for pod in made.running if pod.node_name == f"n{n}"),
        )
        for n in range(number)
    ]
    return ClusterSnapshot(nodes=nodes, pending=made.pending, records=made.records), root, made.room


def ready(group: Group) -> bool:
    """Whether enough pods are known (the gate)."""
    if isinstance(group, Leaf):
        return group.started or len(group.sizes) >= group.least
    return sum(map(ready, group.parts)) >= group.least


@pytest.mark.solver
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_most_groups_start_and_then_most_members(seed: int) -> None:
    agrees(seed)


def agrees(seed: int) -> None:
    """Compare one cluster with trying everything."""
    snapshot, root, room = world(seed)
    if not snapshot.pending:
        return
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    placed = {one.pod.name.partition("-")[0]: 0 for one in result.decisions}
    for one in result.decisions:
        if isinstance(one, Bound):
            placed[one.pod.name.partition("-")[0]] += 1
    expected = best(root, room) if ready(root) else None
    # Records are numbered as they were made, and leaves are listed in that order.
    names = sorted(
        (record.name for record in snapshot.of(SchedulingPodGroup)), key=lambda name: int(name[1:])
    )
    done = {name for name, leaf in zip(names, leaves(root), strict=True) if leaf.started}
    started = sum(count > 0 and name not in done for name, count in placed.items())
    assert (started, sum(placed.values())) == (expected or (0, 0))
