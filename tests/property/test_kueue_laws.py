"""Queues against Kueue's own arithmetic; Workloads against trying every flavor and domain."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings, strategies as st

from koordcore import verify
from koordcore.checking.queue_room import QueueRoom
from koordcore.controlplane import admit_workloads
from koordcore.controlplane.fair_shares import FairTree
from koordcore.manifests import snapshot_from_objects
from koordcore.model.kueue import ClusterQueue, Cohort, FlavorQuota, ResourceGroup
from koordcore.quota.kueue import QueueLedger, open_queues
from tests.manifests.kueue_builders import (
    GPU,
    RACK,
    TOPOLOGY,
    flavor as flavor_object,
    local,
    node,
    pod_set,
    queue,
    workload,
)
from tests.reference.kueue_quota import Node, join

LIMIT = st.none() | st.integers(0, 6)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Node], list[Node]]:
    """Cohorts and queues of a forest."""
    cohorts: list[Node] = []
    queues: list[Node] = []
    for number in range(draw(st.integers(0, 4))):
        cohorts.append(_node(draw, f"c{number}", cohorts, st.sampled_from((0, 0, 3))))
    for number in range(draw(st.integers(1, 4))):
        queues.append(_node(draw, f"q{number}", cohorts, st.integers(0, 8)))
    join((*cohorts, *queues))
    return cohorts, queues


def _node(draw: st.DrawFn, name: str, cohorts: list[Node], nominal: st.SearchStrategy[int]) -> Node:
    parent = draw(st.sampled_from([None, *cohorts]))
    limits = (None, None) if parent is None else (draw(LIMIT), draw(LIMIT))
    return Node(name, draw(nominal), *limits, parent=parent)


def _groups(one: Node) -> tuple[ResourceGroup, ...]:
    limits = [{} if each is None else {"gpu": each} for each in (one.borrowing, one.lending)]
    quota = FlavorQuota(flavor="f", nominal={"gpu": one.nominal}, borrowing=limits[0], lending=limits[1])
    return (ResourceGroup(resources=("gpu",), flavors=(quota,)),)


@settings(max_examples=43, deadline=None)
@given(trees(), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=20))
def test_a_queue_admits_what_kueue_calls_available_and_nothing_else(
    tree: tuple[list[Node], list[Node]], asked: list[tuple[int, int, bool]]
) -> None:
    """Some Workloads were admitted before quota was lowered, and count whether or not they may."""
    cohorts, queues = tree
    named = {
        one.name: ClusterQueue(
            name=one.name, cohort=one.parent.name if one.parent else "", groups=_groups(one)
        )
        for one in queues
    }
    above = {
        one.name: Cohort(name=one.name, parent=one.parent.name if one.parent else "", groups=_groups(one))
        for one in cohorts
    }
    ledger, fair = open_queues(named.values(), above.values()), FairTree(queues=named, cohorts=above)
    room = QueueRoom(named.values(), above.values(), ())
    for number, (place, amount, held) in enumerate(asked):
        queue = queues[place % len(queues)]
        found = ledger.admit(f"lab/w{number}", queue.name, {"f/gpu": amount})
        assert room.left(queue.name, ("f", "gpu")) == queue.available(), "the checker counts anew"
        assert isinstance(found, QueueLedger) == (amount <= queue.available())
        if isinstance(found, QueueLedger):
            assert ledger.borrows(queue.name, {"f/gpu": amount}) == (queue.own_use + amount > queue.nominal)
            ledger, queue.own_use = found, queue.own_use + amount
            room.use(queue.name, {("f", "gpu"): amount})
        elif held:
            ledger = ledger.with_usage(f"lab/w{number}", queue.name, {"f/gpu": amount})
            queue.own_use += amount
            room.use(queue.name, {("f", "gpu"): amount})
        for one in (*cohorts, *queues):
            if one.parent is not None:
                kind = "Cohort" if one in cohorts else "ClusterQueue"
                share = fair.share(ledger, f"{kind} {one.name}", f"Cohort {one.parent.name}")
                assert (share.value, share.borrows) == (one.share(), one.use() > one.subtree())


def agrees(number: int) -> None:
    """Compare one Workload on a small cluster with trying every flavor and every domain."""
    rng = random.Random(number)
    nodes = [
        (f"{flavor}{one}", flavor, f"r{rng.randint(0, 1)}", rng.randint(0, 4))
        for flavor in ("a", "b")
        for one in range(rng.randint(1, 3))
    ]
    nominal = {flavor: rng.randint(0, 8) for flavor in ("a", "b")}
    lent = {flavor: rng.randint(0, 8) for flavor in ("a", "b")}
    limits = {"borrowingLimit": rng.randint(0, 4)} if rng.random() < 0.4 else {}
    kept = {"lendingLimit": rng.randint(0, 4)} if rng.random() < 0.4 else {}
    count, size, slices = rng.randint(1, 4), rng.randint(1, 2), rng.choice((0, 0, 2))
    wish: dict[str, Any] = rng.choice(({}, {"required": RACK}, {"preferred": RACK}))
    if slices:
        wish = {**wish, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": slices}
    objects = [
        *(node(name, rack, flavor, cards) for name, flavor, rack, cards in nodes),
        flavor_object("a"),
        flavor_object("b"),
        TOPOLOGY,
        queue("team", nominal, "all", limits=limits),
        queue("other", lent, "all", limits=kept),
        local("q", "team"),
        workload("w", pod_set("main", count, size, **wish)),
    ]
    snapshot = snapshot_from_objects(objects, as_gangs=True).snapshot
    plan = admit_workloads(snapshot)
    assert verify(plan.before, plan.result) == ()
    expected = ""
    for flavor in ("b", "a"):
        free = nominal[flavor] + min(lent[flavor], kept.get("lendingLimit", lent[flavor]))
        quota = min(free, nominal[flavor] + limits.get("borrowingLimit", free))
        rooms = [(rack, cards // size) for _, own, rack, cards in nodes if own == flavor]
        by_rack = [sum(room for rack, room in rooms if rack == name) for name in ("r0", "r1")]
        able = [room - room % slices if slices else room for room in by_rack]
        most = max(able) if wish.get("required") else sum(able)
        if count * size <= quota and count <= most and not (slices and count % slices):
            expected = flavor
    (found,) = plan.workloads
    assert (found.admitted, found.flavors.get(f"main/{GPU}", "")) == (bool(expected), expected)
    if expected and wish.get("preferred"):
        racks = {snapshot.node(one.node).node.labels[RACK] for one in plan.result.bound}
        one_is_enough = any(
            count <= sum(cards // size for _, own, rack, cards in nodes if (own, rack) == (expected, name))
            for name in ("r0", "r1")
        )
        assert len(racks) == 1 or not one_is_enough


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_a_workload_takes_the_first_flavor_that_has_quota_and_nodes(number: int) -> None:
    agrees(number)
