"""Preemption inside a quota and overuse: nobody leaves in vain."""

from __future__ import annotations

import attrs

from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.resources import Resources, make_resources
from koordcore.model.selectors import EVERYTHING, LabelSelector
from koordcore.quota.admission import QuotaRefusal, admit
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.overuse import OveruseMonitor, plan_revoke, select_revoked
from koordcore.quota.preempt import NoVictims, QuotaVictims, select_victims, split_by_budgets
from tests.reference.quota_objects import quota_pod_from_object

BUDGET = PodDisruptionBudget(
    name="b", namespace="d", selector=LabelSelector({"app": "x"}), disruptions_allowed=1
)


def pod(name: str, cpu: int, priority: int, *, memory: int = 0, kept: bool = False) -> QuotaPod:
    request = {"cpu": cpu, "memory": memory} if memory else {"cpu": cpu}
    return QuotaPod(
        key=PodKey("d", name),
        quota="q",
        request=make_resources(request),
        priority=priority,
        node="n",
        preemptible=not kept,
        labels=LabelSelector({"app": "x"}).match_labels,
    )


def ledger_with(runtime: Resources, *pods: QuotaPod, least: int = 0) -> QuotaLedger:
    quota = ElasticQuota(
        name="q",
        max=make_resources({"cpu": 99, "memory": 99}),
        min=make_resources({"cpu": least}) if least else make_resources({}),
    )
    return open_ledger([quota], total={}, pods=pods).with_runtimes({"q": runtime})


def choose(ledger: QuotaLedger, comer: QuotaPod, *pods: QuotaPod) -> QuotaVictims | NoVictims:
    return select_victims(ledger, comer, node="n", on_node=pods, budgets=[BUDGET], refuse=lambda _: "")


def comer(cpu: int, *, kept: bool = False) -> QuotaPod:
    return attrs.evolve(pod("new", cpu, 50, kept=kept), node="")


def test_no_victims_where_they_would_not_help() -> None:
    low, high = pod("low", 2, 1), pod("high", 2, 2)
    small = choose(ledger_with(make_resources({"cpu": 3}), low, high), comer(4), low, high)
    assert isinstance(small, NoVictims)
    assert small.message.startswith("Insufficient quotas")
    bound = choose(
        ledger_with(make_resources({"cpu": 9}), low, high, least=3), comer(4, kept=True), low, high
    )
    assert isinstance(bound, NoVictims)
    assert bound.message.startswith("Insufficient non-preemptible quotas")


def test_every_dimension_of_the_quota_counts() -> None:
    """The quota is over on memory, for which the pod does not ask: one victim must bring memory back."""
    low, high = pod("low", 1, 1), pod("high", 1, 2, memory=8)
    found = choose(ledger_with(make_resources({"cpu": 9, "memory": 4}), low, high), comer(1), low, high)
    assert isinstance(found, QuotaVictims)
    assert [victim.key.name for victim in found.victims] == ["high"]


def test_budgets_are_counted_for_the_evicted_only() -> None:
    """One of three equal pods goes: its budget of one is not broken, though it was last in the split."""
    pods = [pod(name, 2, priority) for priority, name in enumerate(("a", "b", "c"))]
    assert [each.key.name for each in split_by_budgets(reversed(pods), [BUDGET])[0]] == ["b", "a"]
    found = choose(ledger_with(make_resources({"cpu": 6}), *pods), comer(1), *pods)
    assert isinstance(found, QuotaVictims)
    assert (len(found.victims), found.violating) == (1, 0)


def test_a_budget_without_conditions_covers_nobody() -> None:
    everything = attrs.evolve(BUDGET, selector=EVERYTHING, disruptions_allowed=0)
    assert split_by_budgets([pod("a", 1, 1)], [everything])[0] == ()


def test_a_pod_that_fits_evicts_nobody() -> None:
    low = pod("low", 2, 1)
    assert choose(ledger_with(make_resources({"cpu": 9}), low), comer(4), low) == QuotaVictims(victims=())


def test_revoke_brings_the_quota_back_within_its_runtime_or_takes_all() -> None:
    pods = [pod("a", 3, 1, memory=1), pod("b", 2, 2), pod("c", 4, 3, memory=6), pod("k", 1, 0, kept=True)]
    asked = [(each, each.request) for each in pods]
    used = make_resources({"cpu": 10, "memory": 7})
    chosen = select_revoked(used, make_resources({"cpu": 8, "memory": 6}), asked)
    assert [each.key.name for each in chosen] == ["a"]
    hopeless = select_revoked(used, make_resources({"cpu": 0}), asked)
    assert [each.key.name for each in hopeless] == ["a", "b", "c"]


def test_who_terminates_gives_back_what_a_quota_uses_too_much_and_is_not_evicted_again() -> None:
    pods = [attrs.evolve(pod("goes", 3, 9), terminating=True), pod("a", 3, 1), pod("b", 2, 2)]
    asked = [(each, each.request) for each in pods]
    used = make_resources({"cpu": 8})
    for cpu, gone in ((5, []), (4, ["a"]), (0, ["b", "a"])):
        chosen = select_revoked(used, make_resources({"cpu": cpu}), asked)
        assert [each.key.name for each in chosen] == gone


def test_of_pods_as_important_as_each_other_the_last_that_started_goes() -> None:
    """Who has not started is the last of all."""
    started = [
        attrs.evolve(pod(name, 2, 1), start=start) for name, start in (("a", 5), ("b", None), ("c", 3))
    ]
    asked = [(each, each.request) for each in started]
    used = make_resources({"cpu": 6})
    for left, gone in ((4, ["b"]), (2, ["b", "a"]), (0, ["b", "a", "c"])):
        chosen = select_revoked(used, make_resources({"cpu": left}), asked)
        assert sorted(each.key.name for each in chosen) == sorted(gone)


def test_nothing_is_watched_unless_the_policy_says_so() -> None:
    over = pod("a", 9, 1)
    ledger = ledger_with(make_resources({"cpu": 1}), over)
    since = {"q": OveruseMonitor(0)}
    assert plan_revoke(ledger, [over], since, now=10**12).victims == {}
    watching = attrs.evolve(ledger, policy=QuotaPolicy(monitor_all_quotas=True))
    plan = plan_revoke(watching, [over], since, now=10**12)
    assert plan.victims == {"q": (over,)}
    again = plan_revoke(watching, [over], plan.monitors, now=10**12 + 1)
    assert again.victims == {}


def test_a_request_finer_than_a_milli_is_rounded_up_and_printed_as_written() -> None:
    raw = {
        "metadata": {"name": "p", "namespace": "d", "labels": {"quota.scheduling.koordinator.sh/name": "q"}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "6000000001n"}}}]},
    }
    fine = quota_pod_from_object(raw)
    assert fine.request == make_resources({"cpu": 6001})
    refusal = admit(ledger_with(make_resources({"cpu": 6000})), fine)
    assert isinstance(refusal, QuotaRefusal)
    assert "pod's request: cpu:6000000001n" in refusal.message
