"""Whom Kueue would evict for quota: by its own rule, told and not done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from koordcore.controlplane import admit_workloads
from koordcore.manifests import snapshot_from_objects
from tests.manifests.kueue_builders import admitted, flavor, local, made, node, pod_set, queue, workload

Object = dict[str, Any]


def holder(name: str, queue: str, cards: int, priority: int = 0, hour: int = 0) -> Object:
    """A Workload that holds cards of a queue."""
    raw = workload(name, pod_set("main", 1, cards), hour=hour, priority=priority)
    return admitted(raw, queue, {"nvidia.com/gpu": "a100"}, cards)


def world(
    *waiting: Object, holders: list[Object], mine: int = 4, others: int = 4, **rules: Any
) -> list[Object]:
    """Two queues of one cohort; whoever waits is in the first."""
    return [
        *(node(f"n{number}", "r") for number in range(4)),
        flavor("a100", ""),
        queue("mine", {"a100": mine}, "all", preemption=rules),
        queue("others", {"a100": others}, "all"),
        local("q", "mine"),
        *holders,
        *waiting,
    ]


def wants(cards: int, priority: int = 5, name: str = "new", hour: int = 9) -> Object:
    return workload(name, pod_set("main", 1, cards), hour=hour, priority=priority)


def evicted(objects: list[Object]) -> dict[str, list[str]]:
    """Who would go for whom by Kueue's rule."""
    snapshot = snapshot_from_objects(objects, as_gangs=True).snapshot
    plan = admit_workloads(snapshot, by_quota_alone=True)
    assert not any(one.admitted and one.evicts for one in plan.workloads)
    assert not any(one.evicts for one in admit_workloads(snapshot).workloads)
    return {
        one.workload.removeprefix("ml/"): [name.removeprefix("ml/") for name in one.evicts]
        for one in plan.workloads
    }


WITHIN, RECLAIM = "withinClusterQueue", "reclaimWithinCohort"


def rules(field: str, value: str) -> dict[str, Any]:
    """One rule of a queue."""
    return {field: value}


@pytest.mark.parametrize(
    ("given", "priority", "hour", "expected"),
    [
        ({}, 5, 9, []),
        ({WITHIN: "Never"}, 5, 9, []),
        ({WITHIN: "LowerPriority"}, 5, 9, ["low"]),
        ({WITHIN: "LowerPriority"}, 1, 9, []),
        ({WITHIN: "LowerOrNewerEqualPriority"}, 1, 0, ["low"]),
        ({WITHIN: "LowerOrNewerEqualPriority"}, 1, 9, []),
    ],
)
def test_a_queue_evicts_of_its_own_whom_its_rule_names(
    given: dict[str, Any], priority: int, hour: int, expected: list[str]
) -> None:
    holders = [holder("low", "mine", 4, priority=1, hour=3), holder("other", "others", 4)]
    assert evicted(world(wants(2, priority, hour=hour), holders=holders, **given)) == {"new": expected}


@pytest.mark.parametrize(
    ("rule", "cards", "borrowers", "expected"),
    [
        ("Any", 4, [("a", 4, 9), ("b", 4, 0)], ["b"]),
        ("LowerPriority", 4, [("a", 4, 9), ("b", 4, 9)], []),
        ("LowerPriority", 4, [("a", 4, 9), ("b", 4, 0)], ["b"]),
        ("Any", 4, [("a", 4, 0), ("b", 1, 0), ("c", 3, 0)], ["a"]),
        # Not more than its own, and not from who is back within his.
        ("Any", 5, [("a", 4, 0), ("b", 4, 0)], []),
        ("Never", 4, [("a", 4, 0), ("b", 4, 0)], []),
    ],
)
def test_a_queue_takes_back_what_others_have_borrowed_of_it(
    rule: str, cards: int, borrowers: list[tuple[str, int, int]], expected: list[str]
) -> None:
    holders = [holder(name, "others", size, priority) for name, size, priority in borrowers]
    assert evicted(world(wants(cards), holders=holders, **rules(RECLAIM, rule))) == {"new": expected}


def since(raw: Object, hour: int, *, leaving: bool = False) -> Object:
    """The holder with the hour of its reservation."""
    kinds = [("QuotaReserved", f"2026-01-02T{hour:02}:00:00Z")]
    kinds += [("Evicted", "2026-01-03T00:00:00Z")] if leaving else []
    stated = [{"type": kind, "status": "True", "lastTransitionTime": time} for kind, time in kinds]
    return {**raw, "status": {**raw["status"], "conditions": stated}}


def test_who_got_quota_last_goes_first_whenever_it_was_made() -> None:
    old, new = holder("old", "mine", 2, hour=1), holder("new", "mine", 2, hour=2)
    only = rules(WITHIN, "LowerPriority")

    def gone(*holders: Object) -> list[str]:
        return evicted(world(wants(2, name="w"), holders=list(holders), others=0, **only))["w"]

    assert gone(since(old, 3), since(new, 2)) == ["old"]
    assert gone(since(old, 2), since(new, 3)) == ["new"]
    assert gone(old, since(new, 3)) == ["old"], "no time yet: it has got it just now"
    assert gone(old, new) == ["new"]


def test_who_is_being_evicted_goes_before_all_others() -> None:
    dear = since(holder("dear", "mine", 2, priority=3, hour=1), 1, leaving=True)
    cheap = since(holder("cheap", "mine", 2, hour=2), 5)
    only = rules(WITHIN, "LowerPriority")
    assert evicted(world(wants(2), holders=[dear, cheap], others=0, **only)) == {"new": ["dear"]}


@pytest.mark.parametrize(
    ("fungible", "version", "gone"),
    [
        ({}, "v1beta2", None),
        ({"whenCanPreempt": "TryNextFlavor"}, "v1beta2", None),
        ({"whenCanPreempt": "MayStopSearch"}, "v1beta2", ["old"]),
        ({"whenCanPreempt": "Preempt"}, "v1beta1", ["old"]),
        ({"whenCanPreempt": "MayStopSearch", "whenCanBorrow": "TryNextFlavor"}, "v1beta2", ["old"]),
    ],
)
def test_kueue_looks_at_no_other_flavor_where_it_may_stop_to_evict(
    fungible: Object, version: str, gone: list[str] | None
) -> None:
    """Here nobody is evicted, and the next flavor is taken."""
    quotas = queue(
        "mine", {"a100": 4, "h100": 4}, preemption=rules(WITHIN, "LowerPriority"), flavorFungibility=fungible
    )
    quotas["apiVersion"] = f"kueue.x-k8s.io/{version}"
    nodes = [node("n0", "r"), node("n1", "r", "h100")]
    flavors = [flavor("a100", ""), flavor("h100", "")]
    objects = [*nodes, *flavors, quotas, local("q", "mine"), holder("old", "mine", 4), wants(4)]
    (ours,) = admit_workloads(snapshot_from_objects(objects, as_gangs=True).snapshot).workloads
    assert dict(ours.flavors) == {"main/nvidia.com/gpu": "h100"}
    assert evicted(objects) == {"new": gone or []}
    (theirs,) = admit_workloads(
        snapshot_from_objects(objects, as_gangs=True).snapshot, by_quota_alone=True
    ).workloads
    assert theirs.admitted == (gone is None)


def test_kueue_looks_on_where_who_goes_leaves_it_borrowing_and_that_comes_last() -> None:
    def gone(**fungible: str) -> list[str]:
        words = {"preemption": rules(WITHIN, "LowerPriority"), "flavorFungibility": fungible}
        objects = [
            *(node("n0", "r"), node("n1", "r", "h100"), flavor("a100", ""), flavor("h100", "")),
            queue("mine", {"a100": 4, "h100": 4}, "all", **words),
            queue("others", {"a100": 4}, "all"),
            *(local("q", "mine"), holder("old", "mine", 4), holder("dear", "mine", 4, 9), wants(4)),
        ]
        return evicted(objects)["new"]

    assert gone(whenCanPreempt="MayStopSearch") == ["old"]
    assert gone(whenCanPreempt="MayStopSearch", whenCanBorrow="TryNextFlavor") == []


def test_kueue_evicts_for_all_pods_before_it_starts_fewer() -> None:
    new = workload("new", pod_set("main", 4, 1, least=1), hour=9, priority=5)
    objects = world(new, holders=[holder("old", "mine", 2)], others=0, **rules(WITHIN, "LowerPriority"))
    assert evicted(objects) == {"new": ["old"]}
    objects = world(new, holders=[holder("old", "mine", 2)], others=0)
    (theirs,) = admit_workloads(
        snapshot_from_objects(objects, as_gangs=True).snapshot, by_quota_alone=True
    ).workloads
    assert (theirs.admitted, theirs.pods) == (True, 2)


def below(*cohorts: tuple[str, str]) -> list[Object]:
    """Cohorts without quota of their own, with who is above them."""
    return [made("Cohort", name, {"parentName": above}) for name, above in cohorts]


def taken(*objects: Object, asks: int, priority: int = 5) -> list[str]:
    """Who would go for a Workload of the queue ``mine``."""
    base = [*(node(f"n{number}", "r") for number in range(6)), flavor("a100", ""), local("q", "mine")]
    return evicted([*base, *objects, wants(asks, priority)])["new"]


def test_nobody_goes_from_a_cohort_that_is_within_its_own() -> None:
    """Who borrows from a sister within the cohort takes nothing of those beyond it."""
    tree = below(("team", "all"))
    queues = [
        queue("mine", {"a100": 4}, "all", preemption=rules(RECLAIM, "Any")),
        queue("sister", {"a100": 4}, "team"),
        queue("idle", {"a100": 4}, "team"),
        queue("far", {"a100": 0}, "all"),
    ]
    holders = [holder("cheap", "sister", 6, 0), holder("dear", "far", 6, 3)]
    assert taken(*tree, *queues, *holders, asks=4) == ["dear"]
    sisters = [holder("cheap", "sister", 6, 0), holder("more", "idle", 4, 2), holder("dear", "far", 2, 3)]
    assert taken(*tree, *queues, *sisters, asks=4) == ["cheap"], "the cohort is beyond its own"


def test_nobody_goes_for_more_than_is_its_own_where_it_may_not_borrow_for_that() -> None:
    """Also of its own queue: it asks for more than its nominal quota, which all others use."""
    holders = [holder("own", "mine", 6, 0), holder("other", "others", 2, 9)]
    assert evicted(world(wants(5), holders=holders, **rules(WITHIN, "LowerPriority"))) == {"new": []}
    assert evicted(world(wants(4), holders=holders, **rules(WITHIN, "LowerPriority"))) == {"new": ["own"]}
    may = {
        **rules(WITHIN, "LowerPriority"),
        **rules(RECLAIM, "Any"),
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    assert evicted(world(wants(5), holders=holders, **may)) == {"new": ["own"]}


def test_what_is_nearer_to_the_quota_comes_before_all_others_and_lets_it_borrow() -> None:
    """The queue's cohort has the quota: who borrows it from outside goes, whatever its priority."""
    tree = below(("team", "all"))
    queues = [
        queue("mine", {"a100": 2}, "team", preemption=rules(RECLAIM, "Any")),
        queue("sister", {"a100": 4}, "team"),
        queue("far", {"a100": 0}, "all"),
    ]
    held = holder("old", "mine", 2, 9)
    assert taken(*tree, *queues, held, holder("dear", "far", 4, 9), asks=4) == ["dear"]


def test_of_two_flavors_that_comes_first_for_which_nobody_of_its_own_goes() -> None:
    given = {**rules(WITHIN, "LowerPriority"), **rules(RECLAIM, "Any")}
    more = holder("lent", "others", 4)
    more["status"]["admission"]["podSetAssignments"][0]["flavors"] = {"nvidia.com/gpu": "h100"}
    queues = [
        queue("mine", {"a100": 4, "h100": 4}, "all", preemption=given),
        queue("others", {"a100": 0, "h100": 0}, "all"),
        flavor("h100", ""),
    ]
    assert taken(*queues, holder("own", "mine", 4), more, asks=4) == ["lent"]


def test_who_need_not_go_is_put_back_and_nobody_goes_twice() -> None:
    """The small one goes first in order, and the large one alone is enough."""
    holders = [holder("small", "mine", 1, 0), holder("large", "mine", 4, 1)]
    only = rules(WITHIN, "LowerPriority")
    assert evicted(world(wants(4), holders=holders, mine=5, others=0, **only)) == {"new": ["large"]}
    two = [wants(4, name="first", hour=8), wants(4, 2, name="second")]
    found = evicted(world(*two, holders=holders, mine=5, others=0, **only))
    assert found == {"first": ["large"], "second": []}


def test_compare_says_whom_kueue_would_evict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    objects = world(wants(2), holders=[holder("low", "mine", 8)], **rules(WITHIN, "LowerPriority"))
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    main(["compare", str(dump), "--as-gangs", "-q"])
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("  ml/new "))
    assert row[:4] == ["ml/new", "evicts", "ml/low", "waits"]
    main(["compare", str(dump), "--as-gangs", "-q", "-o", "json"])
    record = json.loads(capsys.readouterr().out)
    (one,) = record["kueue"]["workloads"]
    assert (one["byKueuesRule"]["evicts"], one["here"]["evicts"]) == (["ml/low"], [])


def test_evictions_are_looked_for_beyond_the_first_combinations_of_flavors() -> None:
    """Both pod sets have quota on the last of 17 flavors alone, once who holds it has gone."""
    quotas = {f"f{number:02}": 0 for number in range(16)} | {"last": 8}
    low = workload("low", pod_set("main", 1, 8), priority=1)
    objects = [
        *(flavor(name, "") for name in quotas),
        queue("mine", quotas, preemption={WITHIN: "LowerPriority"}),
        local("q", "mine"),
        admitted(low, "mine", {"nvidia.com/gpu": "last"}, 8),
        node("n", "r", "last"),
    ]
    both = workload("new", pod_set("main", 1, 1), pod_set("work", 7, 1), hour=9, priority=5)
    assert evicted([*objects, both]) == {"new": ["low"]}
    more = workload("new", pod_set("main", 1, 1), pod_set("work", 8, 1), hour=9, priority=5)
    assert evicted([*objects, more]) == {"new": []}
