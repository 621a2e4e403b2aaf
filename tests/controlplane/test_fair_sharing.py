"""Kueue's fair sharing and borrowWithinCohort: whose turn it is, and who would go."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from koordcore.controlplane import admit_workloads
from koordcore.controlplane.fair_shares import fair_tree
from koordcore.controlplane.quota_targets import opened
from koordcore.manifests import snapshot_from_objects
from tests.manifests.kueue_builders import admitted, flavor, local, made, node, pod_set, queue, workload

Object = dict[str, Any]


def holder(name: str, where: str, cards: int, priority: int = 0, hour: int = 0) -> Object:
    """A Workload that holds cards of a queue."""
    raw = workload(name, pod_set("main", 1, cards), hour=hour, priority=priority)
    return admitted(raw, where, {"nvidia.com/gpu": "a100"}, cards)


def wants(name: str, where: str, cards: int, priority: int = 0, hour: int = 9) -> Object:
    """A Workload that waits in the queue of that name."""
    raw = workload(name, pod_set("main", 1, cards), hour=hour, priority=priority)
    raw["spec"]["queueName"] = where
    return raw


def cohort(name: str, parent: str = "", **spec: Any) -> Object:
    return made("Cohort", name, {**({"parentName": parent} if parent else {}), **spec})


def fair(weight: Any = 1) -> Object:
    return {"fairSharing": {"weight": weight}}


def team(name: str, nominal: int, above: str = "all", **spec: Any) -> list[Object]:
    return [queue(name, {"a100": nominal}, above, **spec), local(name, name)]


def nodes(count: int = 4) -> list[Object]:
    return [*(node(f"n{number}", "r") for number in range(count)), flavor("a100", "")]


def order(objects: list[Object]) -> list[str]:
    """Who is decided when, and who of them starts."""
    snapshot = snapshot_from_objects(objects, as_gangs=True).snapshot
    plan = admit_workloads(snapshot)
    return [one.workload.removeprefix("ml/") + "+" * one.admitted for one in plan.workloads]


def evicted(objects: list[Object], who: str = "new") -> list[str]:
    """Who would go for one by Kueue's rule."""
    snapshot = snapshot_from_objects(objects, as_gangs=True).snapshot
    plan = admit_workloads(snapshot, by_quota_alone=True)
    (found,) = (one for one in plan.workloads if one.workload == f"ml/{who}")
    return [name.removeprefix("ml/") for name in found.evicts]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Nobody states a share: both borrow, and the more important one is first.
        ({}, {}, ["a2+", "b2"]),
        # a would have 4 of 8 beyond its own, b 2 of 8.
        (fair(), fair(), ["b2+", "a2"]),
        # By weight 1/8 against 2/8, and a tie, which priority settles.
        (fair(4), fair(), ["a2+", "b2"]),
        (fair("2"), fair(), ["a2+", "b2"]),
        (fair("1500m"), fair(), ["b2+", "a2"]),
        # Of weight 0 whoever borrows comes last.
        (fair(4), fair(0), ["a2+", "b2"]),
        (fair(0), fair(0), ["b2+", "a2"]),
    ],
)
def test_who_has_the_smallest_share_comes_first(first: Object, second: Object, expected: list[str]) -> None:
    objects = [
        *nodes(),
        *team("a", 2, **first),
        *team("b", 2, **second),
        *team("idle", 4),
        holder("a1", "a", 4),
        holder("b1", "b", 2),
        wants("a2", "a", 2, priority=9),
        wants("b2", "b", 2),
    ]
    assert order(objects) == expected


def test_shares_are_compared_at_every_level_of_the_tree() -> None:
    """Left has borrowed more than right, although its queue b has nothing yet."""
    objects = [
        *nodes(),
        cohort("all"),
        cohort("left", "all"),
        cohort("right", "all"),
        *team("a", 2, "left", **fair()),
        *team("b", 0, "left", **fair()),
        *team("c", 1, "right", **fair()),
        *team("idle", 9),
        holder("a1", "a", 6),
        holder("c1", "c", 4),
        wants("b2", "b", 2, priority=9),
        wants("c2", "c", 2),
    ]
    assert order(objects) == ["c2+", "b2"]
    snapshot = snapshot_from_objects(objects, as_gangs=True).snapshot
    tree, ledger = fair_tree(snapshot), opened(snapshot)
    shares = {
        child: tree.share(ledger, child, above).value
        for above, children in tree.below.items()
        for child in children
    }
    # Of 12 cards there are 12 for each side, however they are spread.
    assert shares == {
        "Cohort left": Fraction(4, 12),
        "Cohort right": Fraction(3, 12),
        "ClusterQueue idle": 0,
        "ClusterQueue a": Fraction(4, 12),
        "ClusterQueue b": 0,
        "ClusterQueue c": Fraction(3, 12),
    }


def test_what_is_not_lent_is_nobodys_share() -> None:
    """The cohort has 2 of its own; of 6 the queue shows 1, and the cohort may borrow 3 from above."""
    groups = [
        {
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [
                {
                    "name": "a100",
                    "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 2, "borrowingLimit": 3}],
                }
            ],
        }
    ]
    objects = [
        *nodes(),
        cohort("all"),
        cohort("part", "all", resourceGroups=groups),
        *team("shy", 6, "part", limits={"lendingLimit": 1}),
        *team("a", 0, "part", **fair()),
        *team("rich", 9),
        holder("a1", "a", 3),
    ]
    snapshot = snapshot_from_objects(objects, as_gangs=True).snapshot
    tree, ledger = fair_tree(snapshot), opened(snapshot)
    assert ledger.lendable["Cohort all"]["nvidia.com/gpu"] == 12
    assert ledger.lendable["Cohort part"]["nvidia.com/gpu"] == 6
    assert tree.share(ledger, "ClusterQueue a", "Cohort part").value == Fraction(3, 6)
    assert not tree.share(ledger, "Cohort part", "Cohort all").borrows


RECLAIM: Object = {"preemption": {"reclaimWithinCohort": "Any"}}


@pytest.mark.parametrize(
    ("mine", "cards", "expected"),
    [
        # a keeps 2 of 8 without its last one, and new would have 2: as much, so it goes.
        ({**fair()}, 2, ["a3"]),
        # With 4 it would have more than a keeps; and as much as a had: nobody goes.
        ({**fair()}, 4, []),
        # At three times the weight it may have that.
        ({**fair(3)}, 4, ["a3", "a2"]),
        # Without weights quota is taken back only up to what is its own, which is nothing.
        ({}, 2, []),
    ],
)
def test_who_has_the_largest_share_gives_first(mine: Object, cards: int, expected: list[str]) -> None:
    objects = [
        *nodes(),
        *team("me", 0, **RECLAIM, **mine),
        *team("a", 2),
        *team("b", 2),
        *team("idle", 4),
        *(holder(f"a{hour}", "a", 2, hour=hour) for hour in (1, 2, 3)),
        holder("b1", "b", 2),
        wants("new", "me", cards),
    ]
    assert evicted(objects) == expected


def test_one_of_each_queue_goes_where_that_is_fairer_than_before() -> None:
    """The large one leaves its queue nothing; yet who asks has less than that queue had."""
    shared = [
        *nodes(),
        *team("me", 0, **RECLAIM, **fair()),
        *team("a", 0),
        *team("idle", 8),
        holder("large", "a", 8),
    ]
    assert evicted([*shared, wants("new", "me", 6)]) == ["large"]
    assert evicted([*shared, wants("new", "me", 8)]) == []


@pytest.mark.parametrize(
    ("rule", "cards", "priority", "expected"),
    [
        (None, 6, 5, []),
        ({"policy": "Never"}, 6, 5, []),
        # It may borrow 2 beyond its 4, of who is less important.
        ({"policy": "LowerPriority"}, 6, 5, ["low", "mid"]),
        ({"policy": "LowerPriority", "maxPriorityThreshold": 2}, 6, 5, []),
        ({"policy": "LowerPriority", "maxPriorityThreshold": 3}, 6, 5, ["low", "mid"]),
        # Within its own it takes back whatever the threshold says.
        ({"policy": "LowerPriority", "maxPriorityThreshold": 0}, 4, 5, ["low"]),
    ],
)
def test_a_queue_may_take_back_what_it_borrows(
    rule: Object | None, cards: int, priority: int, expected: list[str]
) -> None:
    rules = {"reclaimWithinCohort": "LowerPriority", **({} if rule is None else {"borrowWithinCohort": rule})}
    objects = [
        *nodes(),
        *team("me", 4, preemption=rules),
        *team("others", 4),
        *team("idle", 4),
        holder("keep", "others", 4, priority=9),
        holder("low", "others", 4, priority=1),
        holder("mid", "others", 4, priority=3),
        wants("new", "me", cards, priority=priority),
    ]
    assert evicted(objects) == expected


def test_a_weight_that_is_none_is_named() -> None:
    raw = queue("team", {"a100": 8}, **fair(-1))
    assert any("fairSharing.weight" in str(one) for one in snapshot_from_objects([raw]).problems)


def test_who_stays_within_its_own_takes_it_back_whatever_its_cohort_has_borrowed() -> None:
    objects = [
        *nodes(),
        cohort("left", "all"),
        cohort("right", "all"),
        *team("me", 2, "left", **fair(), preemption={"reclaimWithinCohort": "LowerPriority"}),
        *team("b", 0, "left"),
        *team("c", 0, "right"),
        *team("idle", 6),
        holder("b1", "b", 6, priority=9),
        holder("c1", "c", 2),
        wants("new", "me", 2, priority=5),
    ]
    assert evicted(objects) == ["c1"]


def test_who_borrows_from_nearer_comes_before_who_is_more_important() -> None:
    objects = [
        *nodes(),
        cohort("low", "all"),
        *team("a", 0, "low"),
        *team("sister", 2, "low"),
        *team("b", 0),
        *team("idle", 2),
        wants("a1", "a", 2),
        wants("b1", "b", 2, priority=9),
    ]
    assert order(objects) == ["a1+", "b1+"]


@pytest.mark.parametrize("shares", [{}, fair()])
def test_who_tries_the_next_flavor_rather_than_borrow_is_ranked_by_that(shares: Object) -> None:
    """Its first flavor would be borrowed; the one that it gets is its own."""
    spec = {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}, **shares}
    objects = [
        *nodes(),
        node("h0", "r", "h100"),
        flavor("h100", ""),
        queue("a", {"a100": 0, "h100": 2}, "all", **spec),
        local("a", "a"),
        *team("b", 1, **shares),
        *team("idle", 9),
        wants("a1", "a", 2),
        wants("b1", "b", 2, priority=9),
    ]
    assert order(objects) == ["a1+", "b1+"]


def test_what_a_side_borrows_of_other_flavors_does_not_hold_back_what_is_its_own() -> None:
    lent = holder("a1", "a", 4)
    lent["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"nvidia.com/gpu": "h100"}
    quotas = {"a": {"a100": 2, "h100": 0}, "b": {"a100": 0, "h100": 0}, "idle": {"a100": 2, "h100": 6}}
    objects = [
        *nodes(),
        flavor("h100", ""),
        *(queue(name, quota, "all", **fair()) for name, quota in quotas.items()),
        *(local(name, name) for name in quotas),
        lent,
        wants("a2", "a", 2),
        wants("b1", "b", 1, priority=9),
    ]
    assert order(objects) == ["a2+", "b1+"]
