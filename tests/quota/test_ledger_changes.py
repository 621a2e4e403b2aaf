"""Pods that come and go leave a ledger as if it had been opened with those that are there."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore.model.pods import PodKey
from koordcore.model.quotas import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    QuotaPod,
    QuotaPolicy,
    QuotaUsage,
)
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger


def cpu(amount: int) -> Resources:
    return make_resources({"cpu": amount})


def pod(name: str, owner: str, amount: int, **fields: Any) -> QuotaPod:
    return QuotaPod(key=PodKey("d", name), quota=owner, request=cpu(amount), **fields)


DEPT = ElasticQuota(name="dept", max=cpu(100), min=cpu(20), is_parent=True)
QUOTAS = [
    DEPT,
    ElasticQuota(name="one", parent="dept", max=cpu(100), min=cpu(10)),
    ElasticQuota(name="two", parent="dept", max=cpu(100), min=cpu(10)),
    ElasticQuota(name="zone", max=cpu(100), min=cpu(20)),
]
POLICIES = [QuotaPolicy(), QuotaPolicy(guarantee_usage=True)]


def opened(*pods: QuotaPod, policy: QuotaPolicy | None = None) -> QuotaLedger:
    return open_ledger(QUOTAS, total={"cpu": 60}, policy=policy, pods=pods)


def same(one: QuotaLedger, other: QuotaLedger) -> None:
    """Both say the same of every quota, of what is to be shared and of the pods of each quota itself."""
    assert one.statuses() == other.statuses()
    assert one.pool_of() == other.pool_of()
    for name in (*one.quotas, DEFAULT_QUOTA, SYSTEM_QUOTA):
        assert one.own_of(name) == other.own_of(name)
        assert one.status(name) == other.status(name)
        assert one.runtime_of(name) == other.runtime_of(name)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("owner", ["one", "zone", "", SYSTEM_QUOTA])
@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("node", ["", "n"])
def test_a_pod_that_came_and_left_leaves_no_trace(
    owner: str, preemptible: bool, node: str, policy: QuotaPolicy
) -> None:
    base = [
        pod("old", "one", 20, node="n", preemptible=False),
        pod("run", "zone", 30, node="n"),
        pod("wait", "two", 15),
        pod("stray", "", 12, node="n", preemptible=False),
        pod("daemon", SYSTEM_QUOTA, 9, node="n"),
    ]
    extra = pod("new", owner, 7, preemptible=preemptible, node=node)
    without, with_it = opened(*base, policy=policy), opened(*base, extra, policy=policy)
    same(without.track(extra), with_it)
    same(with_it.untrack(extra), without)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("owner", ["one", "zone", "", SYSTEM_QUOTA])
@pytest.mark.parametrize("preemptible", [True, False])
def test_a_pod_is_placed_and_taken_off_again_without_asking_twice(
    owner: str, preemptible: bool, policy: QuotaPolicy
) -> None:
    others = [pod("run", owner, 30, node="n", preemptible=False), pod("wait", "two", 50)]
    waits = pod("new", owner, 7, preemptible=preemptible)
    runs = attrs.evolve(waits, node="n")
    waiting, running = opened(*others, waits, policy=policy), opened(*others, runs, policy=policy)
    same(waiting.assume(waits), running)
    same(running.forget(runs), waiting)


def test_what_pods_of_a_quota_use_is_used_of_all_above_it() -> None:
    """The first quota by name is a parent."""
    ledger = opened().track(pod("p", "two", 9, node="n", preemptible=False))
    for name in ("two", "dept"):
        status = ledger.status(name)
        assert (status.used, status.request, status.non_preemptible_used) == (cpu(9), cpu(9), cpu(9))
    assert ledger.status("one").used == ledger.status("zone").used == NO_RESOURCES


def test_a_changed_ledger_leaves_the_one_before_as_it_was() -> None:
    before = opened(pod("run", "one", 20, node="n"))
    told = before.statuses()
    after = before.track(pod("p", "two", 50, node="n")).track(pod("s", "", 30, node="n"))
    assert before.statuses() == told
    same(before, opened(pod("run", "one", 20, node="n")))
    assert after.statuses() != told


def test_a_pod_that_another_pod_joins_counts_once_per_quota() -> None:
    """Only non-preemptible pods count as such, in the built-in quotas as in others."""
    for owner in ("one", DEFAULT_QUOTA):
        ledger = opened().track(pod("a", owner, 4, node="n")).track(pod("b", owner, 3, preemptible=False))
        assert ledger.own_of(owner) == QuotaUsage(request=cpu(7), used=cpu(4), non_preemptible_request=cpu(3))


def test_what_a_quota_does_not_name_is_not_counted_in_it() -> None:
    policy = QuotaPolicy(default_quota_group_max=cpu(50))
    mixed = QuotaPod(key=PodKey("d", "m"), quota="", request=make_resources({"cpu": 3, "gpu": 2}), node="n")
    for owner in ("", "one"):
        one = attrs.evolve(mixed, quota=owner)
        name = owner or DEFAULT_QUOTA
        assert opened(policy=policy).track(one).used_of(name) == cpu(3)
        assert opened(one, policy=policy).used_of(name) == cpu(3)


def test_the_root_counts_no_pods_of_its_own() -> None:
    root = ElasticQuota(name=ROOT_QUOTA, max=cpu(9), parent="")
    ledger = open_ledger([*QUOTAS, root], total={"cpu": 60})
    stray = pod("p", ROOT_QUOTA, 3, node="n")
    assert ledger.track(stray) is ledger
    assert open_ledger([*QUOTAS, root], total={"cpu": 60}, pods=[stray]).used_of(ROOT_QUOTA) == NO_RESOURCES


def test_a_runtime_names_only_what_the_max_does() -> None:
    """A resource that a sibling counts is handed out to all of them; it binds those that name it."""
    both = make_resources({"cpu": 9, "gpu": 4})
    quotas = [
        ElasticQuota(name="a", max=cpu(9)),
        ElasticQuota(name="b", max=both, min=both),
        ElasticQuota(name="c", max=make_resources({"gpu": 4})),
    ]
    ledger = open_ledger(quotas, total=both, pods=[pod("p", "a", 5)])
    assert ledger.runtime_of("a") == ledger.statuses()["a"].runtime == cpu(5)
    assert ledger.handed_to("a") == make_resources({"cpu": 5, "gpu": 0})
    assert ledger.runtime_of("b") == make_resources({"cpu": 0, "gpu": 0})
    assert ledger.runtime_of("c") == make_resources({"gpu": 0})


def test_the_tree_of_a_quota_is_its_own_only_where_there_are_several() -> None:
    quotas = [*QUOTAS, ElasticQuota(name="abroad", max=cpu(9), tree="t")]
    many = open_ledger(quotas, total={"cpu": 60}, policy=QuotaPolicy(multi_quota_tree=True))
    assert [many.tree_of(name) for name in ("abroad", "one", DEFAULT_QUOTA, "nobody")] == ["t", "", "", ""]
    assert many.trees == ("", "t")
    assert open_ledger(quotas, total={"cpu": 60}).tree_of("abroad") == ""


def test_every_quota_has_a_status_also_below_one_that_hangs_nowhere() -> None:
    quotas = [
        *QUOTAS,
        ElasticQuota(name="lost", parent="ghost", max=cpu(9), min=cpu(2)),
        ElasticQuota(name="below", parent="lost", max=cpu(9)),
    ]
    ledger = open_ledger(quotas, total={"cpu": 60}, pods=[pod("p", "below", 3), pod("q", "two", 5)])
    found = ledger.statuses()
    assert sorted(found) == ["below", "dept", "lost", "one", "two", "zone"]
    assert (found["lost"].runtime, found["lost"].scaled_min) == (None, cpu(2))
    assert (found["below"].runtime, found["lost"].request) == (None, cpu(3))
    assert found["two"].runtime == cpu(5)
    assert found == {name: ledger.status(name) for name in found}


def test_status_of_the_builtin_quotas_says_what_their_pods_ask_for() -> None:
    ledger = opened(pod("s", "", 4, node="n"), pod("t", "", 2, preemptible=False))
    status = ledger.status(DEFAULT_QUOTA)
    assert (status.parent, status.request, status.limit_request) == (ROOT_QUOTA, cpu(6), cpu(6))
    assert (status.used, status.non_preemptible_request, status.runtime) == (cpu(4), cpu(2), None)


def test_many_families_are_told_apart() -> None:
    """More sibling groups than one block of them holds."""
    quotas = []
    for place in range(70):
        dept, team = f"d{place:02}", f"t{place:02}"
        quotas += [
            ElasticQuota(name=dept, max=cpu(1000), is_parent=True),
            ElasticQuota(name=team, parent=dept, max=cpu(1000)),
        ]
    pods = [pod(f"p{place:02}", f"t{place:02}", 1 + place) for place in range(70)]
    ledger = open_ledger(quotas, total={"cpu": 9000}, pods=pods)
    assert [ledger.runtime_of(f"t{place:02}") for place in range(70)] == [cpu(1 + n) for n in range(70)]
    changed = ledger.track(pod("x", "t66", 100)).track(pod("y", "t01", 10))
    expected = [cpu(1 + n + {66: 100, 1: 10}.get(n, 0)) for n in range(70)]
    assert [changed.runtime_of(f"t{place:02}") for place in range(70)] == expected
