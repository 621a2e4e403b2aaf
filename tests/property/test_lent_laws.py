"""Laws of gangs beside reservations, with evictions or without: each member may use its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product

from hypothesis import assume, example, given, strategies as st

from koordcore import Bound, ClusterSnapshot, PreemptionRules, schedule, verify
from koordcore.model.gangs import PodGroup
from koordcore.protocol.gang_names import LABEL_POD_GROUP
from tests.reservations.worlds import POLICY, node, pod, reservation

NODES = ("n1", "n2")
APPS = ("a", "b")
CPUS = 8
Low = tuple[int, int, int]
"""Node, CPUs, priority."""
Member = tuple[str, int]
"""Application, CPUs."""
Held = dict[tuple[int, str], int]
"""CPUs that a reservation for an application holds on a node."""


def holds(places: Sequence[int], members: Sequence[Member], held: Held, lows: Iterable[Low]) -> bool:
    """Tell whether members have room at some places: whoever owns a reservation there fills that first."""
    used = [0] * len(NODES)
    for at, cpu, _ in lows:
        used[at] += cpu
    own = dict.fromkeys(held, 0)
    for at, (app, cpu) in zip(places, members, strict=True):
        if (at, app) in held:
            own[at, app] += cpu
        else:
            used[at] += cpu
    for (at, app), cpu in held.items():
        used[at] += max(cpu, own[at, app])
    return max(used) <= CPUS


def cheapest(members: Sequence[Member], held: Held, lows: Sequence[Low]) -> tuple[int, ...] | None:
    """Give the least highest priority, number and sum of priorities of who has to leave; None: in vain."""
    best = None
    for some in (one for number in range(len(lows) + 1) for one in combinations(lows, number)):
        stay = [*lows]
        for low in some:
            stay.remove(low)
        priorities = [priority for *_, priority in some]
        cost = (max(priorities, default=-1), len(some), sum(priorities))
        if best is not None and cost >= best:
            continue
        if any(
            holds(places, members, held, stay) for places in product(range(len(NODES)), repeat=len(members))
        ):
            best = cost
    return best


def cluster_of(members: Sequence[Member], held: Held, lows: Sequence[Low]) -> ClusterSnapshot:
    """Write the objects; all members have to start together."""
    running = [
        pod(f"low-{number}", cpu, node_name=NODES[at], priority=priority)
        for number, (at, cpu, priority) in enumerate(lows)
    ]
    waiting = [
        pod(f"g-{number}", cpu, app, labels={"app": app, LABEL_POD_GROUP: "g"}, priority=9)
        for number, (app, cpu) in enumerate(members)
    ]
    records = [
        reservation(f"r-{NODES[at]}-{app}", cpu, NODES[at], app, allocate_once=False)
        for (at, app), cpu in held.items()
    ]
    group = PodGroup(namespace="default", name="g", min_member=len(members))
    return ClusterSnapshot(
        nodes=[node(name, CPUS) for name in NODES], records=[*records, group], pending=waiting
    ).assume(*running)


@given(
    members=st.lists(st.tuples(st.sampled_from(APPS), st.integers(2, 6)), min_size=1, max_size=3),
    held=st.dictionaries(st.tuples(st.integers(0, 1), st.sampled_from(APPS)), st.integers(1, 4), max_size=3),
    lows=st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 3), st.sampled_from((1, 2))), min_size=3, max_size=8
    ),
)
@example(
    members=[("a", 5), ("b", 5)],
    held={(0, "a"): 2, (1, "b"): 2},
    lows=[(0, 2, 1), (0, 2, 1), (0, 2, 1), (1, 2, 1), (1, 2, 1), (1, 2, 1)],
)
def test_what_is_proven_beside_reservations_is_the_least(
    members: list[Member], held: Held, lows: list[Low]
) -> None:
    """Beside trying everybody everywhere; and a plan is found wherever there is one."""
    assume(holds((), (), held, lows))
    snapshot = cluster_of(members, held, lows)
    result = schedule(snapshot, policy=POLICY, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    best = cheapest(members, held, lows)
    if any(isinstance(one, Bound) for one in result.decisions):
        assert best == (-1, 0, 0)
        return
    if best is None:
        assert not result.preemptions
    elif best[1]:
        (plan,) = result.preemptions
        found = (plan.damage.highest, plan.damage.pods, plan.damage.priorities)
        assert found == best if plan.certificate.proven else found >= best


@given(
    members=st.lists(st.tuples(st.sampled_from(APPS), st.integers(1, 6)), min_size=1, max_size=4),
    held=st.dictionaries(st.tuples(st.integers(0, 1), st.sampled_from(APPS)), st.integers(1, 5), max_size=3),
    lows=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3), st.just(1)), max_size=3),
)
@example(members=[("b", 2), ("a", 6), ("b", 5), ("a", 3)], held={(1, "b"): 4, (1, "a"): 3}, lows=[])
def test_a_gang_starts_beside_reservations_wherever_it_can(
    members: list[Member], held: Held, lows: list[Low]
) -> None:
    assume(holds((), (), held, lows))
    snapshot = cluster_of(members, held, lows)
    result = schedule(snapshot, policy=POLICY)
    assert verify(snapshot, result) == ()
    some = any(holds(places, members, held, lows) for places in product((0, 1), repeat=len(members)))
    assert len(result.bound) == (len(members) if some else 0)
