"""Evictions of and by groups of groups: units over trees, whoever preempts, and trees that preempt."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, Nominated, Pod, PodGroup, schedule, verify
from koordcore.model.nodes import NodeState
from koordcore.model.pods import PreemptionPolicy, SchedulingGroup
from koordcore.model.scheduling_groups import CompositePodGroup, DisruptionMode, SchedulingPodGroup
from tests.property import test_group_flow_laws as trees
from tests.property.test_group_preemption_laws import OURS, RULES, Victims, World, cheapest
from tests.reference.group_units import best

PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
LABEL = "pod-group.scheduling.sigs.k8s.io"


@attrs.define
class Running:
    """A cluster of running trees, in objects and as units of victims."""

    rng: random.Random
    nodes: int
    some_stay: bool = False
    running: list[tuple[int, Pod]] = attrs.Factory(list)
    units: list[Victims] = attrs.Factory(list)
    records: list[Any] = attrs.Factory(list)

    def place(self) -> tuple[int, int]:
        """A node, and cpu."""
        return self.rng.randrange(self.nodes), self.rng.randint(1, 2)

    def run(self, name: str, place: tuple[int, int], priority: int, group: str = "") -> bool:
        """Let a pod run, and tell whether it may be evicted."""
        node, size = place
        stays = self.some_stay and self.rng.random() < 0.1
        pod = Pod(
            name=name,
            labels={PREEMPTIBLE: "false"} if stays else {},
            requests={"cpu": size * 1000},
            priority=priority,
            scheduling_group=SchedulingGroup(group) if group else None,
        )
        self.running.append((node, pod.at(f"n{node}")))
        return not stays

    def lone(self, number: int) -> None:
        """Add a pod by itself."""
        place, priority = self.place(), self.rng.randint(0, 12)
        if self.run(f"l{number}", place, priority):
            self.units.append(Victims(pods=(place,), priority=priority))

    def tree(self, number: int) -> None:
        """Add a group, or two of them below one; the priority of the root counts, not the pods' own."""
        rng = self.rng
        own, priority, above = rng.randint(0, 12), rng.randint(0, 12), rng.random() < 0.6
        whole = rng.random() < 0.5
        if above:
            mode = DisruptionMode.ALL if whole else DisruptionMode.SINGLE
            self.records.append(
                CompositePodGroup(name=f"c{number}", min_groups=1, priority=priority, disruption=mode)
            )
        everybody: list[tuple[int, int]] = []
        able = True
        for leaf in range(rng.randint(1, 2) if above else 1):
            name, together = f"v{number}{leaf}", rng.random() < 0.5
            self.records.append(
                SchedulingPodGroup(
                    name=name,
                    parent=f"c{number}" if above else "",
                    min_count=rng.choice((None, 1, 2)),
                    priority=priority,
                    disruption=DisruptionMode.ALL if together else DisruptionMode.SINGLE,
                )
            )
            places = [self.place() for _ in range(rng.randint(1, 2))]
            leave = [self.run(f"{name}-{rank}", place, own, name) for rank, place in enumerate(places)]
            everybody += places
            able = able and all(leave)
            if not (above and whole):
                parts = [tuple(places)] if together else [(one,) for one in places]
                free = [all(leave)] if together else leave
                self.units += [
                    Victims(pods=part, priority=priority) for part in itertools.compress(parts, free)
                ]
        if above and whole and able:
            self.units.append(Victims(pods=tuple(everybody), priority=priority))


def states_of(
    room: Sequence[int], labels: Sequence[dict[str, str]], running: Sequence[tuple[int, Pod]]
) -> list[NodeState]:
    """Nodes with so much room beside their pods."""
    found = []
    for number, free in enumerate(room):
        here = tuple(pod for on, pod in running if on == number)
        cpu = 1000 * free + sum(pod.requests["cpu"] for pod in here)
        offers = {"cpu": cpu, "pods": 99}
        found.append(NodeState(Node(name=f"n{number}", labels=labels[number], allocatable=offers), here))
    return found


def agrees_on_units(seed: int) -> None:
    """Compare a pod, a gang or a group that preempts among trees with trying every set of units."""
    rng = random.Random(seed)
    number = rng.randint(1, 3)
    labels = [{"rack": f"r{rng.randint(0, 1)}"} if rng.random() < 0.85 else {} for _ in range(number)]
    room = tuple(rng.randint(0, 2) for _ in range(number))
    made = Running(rng, number, some_stay=True)
    for one in range(rng.randint(1, 3)):
        rng.choice((made.lone, made.tree, made.tree))(one)
    who, size = rng.choice(("pod", "gang", "group")), rng.randint(1, 2)
    count = 1 if who == "pod" else rng.randint(1, 3)
    least = rng.randint(1, count) if who == "group" else count
    keyed = who == "group" and rng.random() < 0.5
    more: dict[str, Any] = {}
    if who == "group":
        keys = ("rack",) if keyed else ()
        ours = SchedulingPodGroup(name="ours", min_count=least, priority=OURS, topology_keys=keys)
        made.records.append(ours)
        more = {"scheduling_group": SchedulingGroup("ours")}
    elif who == "gang":
        made.records.append(PodGroup(name="ours", min_member=count))
        more = {"labels": {LABEL: "ours"}}
    pending = [
        Pod(name=f"ours-{rank}", requests={"cpu": size * 1000}, priority=OURS, **more)
        for rank in range(count)
    ]
    racks = tuple(int(one.get("rack", "r-1")[1:]) for one in labels)
    world = World(
        size=size,
        count=count,
        least=least,
        home=racks if keyed else (0,) * number,
        room=room,
        units=tuple(made.units),
    )
    states = states_of(room, labels, made.running)
    snapshot = ClusterSnapshot(nodes=states, pending=pending, records=made.records)
    starting, damage = cheapest(world)
    holds(snapshot, starting, damage)


def agrees_on_shares(seed: int) -> None:
    """Compare a tree of groups that preempts on full nodes: who starts is a choice more often."""
    agrees_on_trees(seed, full=True)


def agrees_on_trees(seed: int, *, full: bool = False) -> None:
    """Compare a tree of groups that preempts with trying every set of victims."""
    base, root, room = trees.world(seed)
    room = [0] * len(room) if full else room
    if not base.pending or not trees.ready(root):
        return
    rng = random.Random(seed + 7)
    running = [
        (
            node,
            Pod(
                name=f"v{node}{one}", requests={"cpu": 1000 * rng.randint(1, 2)}, priority=rng.randint(0, 11)
            ).at(f"n{node}"),
        )
        for node in range(len(room))
        for one in range(rng.randint(0, 2 + full))
    ]
    ours = [(int(pod.node_name[1:]), pod) for state in base.nodes for pod in state.pods if pod.node_name]
    ranked = [(node, attrs.evolve(pod, priority=OURS)) for node, pod in ours]
    snapshot = ClusterSnapshot(
        nodes=states_of(room, [dict(state.node.labels) for state in base.nodes], [*ranked, *running]),
        pending=[attrs.evolve(pod, priority=OURS) for pod in base.pending],
        records=[
            *(attrs.evolve(one, priority=OURS) for one in base.of(SchedulingPodGroup)),
            *(attrs.evolve(one, priority=OURS) for one in base.of(CompositePodGroup)),
        ],
    )

    def starts(gone: Sequence[tuple[int, Pod]]) -> tuple[int, int]:
        free = list(room)
        for node, pod in gone:
            free[node] += pod.requests["cpu"] // 1000
        return best(root, free) or (0, 0)

    now = starts(())
    lower = [one for one in running if one[1].priority < OURS]
    sets = [each for size in range(len(lower) + 1) for each in itertools.combinations(lower, size)]
    most = now if now[1] else max(map(starts, sets))
    if now[1] or not most[1]:
        holds(snapshot, most[1], None)
        return
    enough = [[pod.priority for _, pod in gone] for gone in sets if gone and starts(gone) >= most]
    holds(snapshot, most[1], min((max(one), len(one), len(one), sum(one)) for one in enough))


def holds(snapshot: ClusterSnapshot, starting: int, damage: tuple[int, int, int, int] | None) -> None:
    """So many start, at once or for that damage; never are some bound and others evicted for."""
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    promised = sum(isinstance(one, Nominated) for one in result.decisions)
    if damage is None:
        assert (len(result.bound), promised, result.preemptions) == (starting, 0, ())
        return
    assert (len(result.bound), promised) == (0, starting)
    (plan,) = result.preemptions
    cost = (plan.damage.highest, plan.damage.jobs, plan.damage.pods, plan.damage.priorities)
    assert cost == damage
    assert plan.certificate.proven


@pytest.mark.solver
@settings(max_examples=10, deadline=None)
@example(522)
@given(st.integers(0, 10**6))
def test_units_of_trees_leave_whole_and_nothing_is_cheaper(seed: int) -> None:
    """Of 522, a unit with a member that stays was hoped to leave, and nobody was evicted."""
    agrees_on_units(seed)


@pytest.mark.solver
@settings(max_examples=10, deadline=None)
@example(240)
@example(1151684108)
@given(st.integers(0, 10**6))
def test_a_tree_makes_room_for_as_many_as_can_start(seed: int) -> None:
    """Of 240, a group that cannot start with its parent once got a free place.

    Of 1151684108, another share of the groups costs less than the one that the planner takes by itself.
    """
    agrees_on_trees(seed)


@pytest.mark.solver
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_of_all_shares_of_a_tree_that_one_starts_which_costs_least(seed: int) -> None:
    agrees_on_shares(seed)


@pytest.mark.parametrize("policy", list(PreemptionPolicy))
def test_a_group_that_may_not_preempt_evicts_nobody(policy: PreemptionPolicy) -> None:
    group = SchedulingPodGroup(name="g", min_count=1, priority=OURS, preemption_policy=policy)
    low = Pod(name="low", requests={"cpu": 1000}).at("n0")
    pod = Pod(
        name="p",
        requests={"cpu": 1000},
        priority=OURS,
        scheduling_group=SchedulingGroup("g"),
        preemption_policy=policy,
    )
    states = states_of([0], [{}], [(0, low)])
    result = schedule(ClusterSnapshot(nodes=states, pending=[pod], records=[group]), preempt=RULES)
    assert bool(result.preemptions) == (policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY)
