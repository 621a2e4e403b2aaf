"""The ledger: whose pod is it, what does a change touch, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore.errors import ModelError
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
from koordcore.quota.admission import (
    Admitted,
    QuotaCheckKind,
    QuotaRefusal,
    Ungoverned,
    admit,
    admit_together,
    limit_of,
)
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger


def quota(name: str, most: int, least: int = 0, **fields: Any) -> ElasticQuota:
    made = ElasticQuota(name=name, max=make_resources({"cpu": most}), min=make_resources({"cpu": least}))
    return attrs.evolve(made, **fields)


def pod(name: str, owner: str, cpu: int, namespace: str = "d", **fields: Any) -> QuotaPod:
    made = QuotaPod(key=PodKey(namespace, name), quota=owner, request=make_resources({"cpu": cpu}))
    return attrs.evolve(made, **fields)


def cpu(amount: int) -> Resources:
    return make_resources({"cpu": amount})


# --- whose pod is it --------------------------------------------------------------------------------------


def resolving() -> QuotaLedger:
    return open_ledger(
        [
            quota("team", 10),
            quota("ns1", 10, namespace="ns1"),
            quota("note", 10, namespaces=("ns1", "ns2")),
            quota("zeta", 10, namespaces=("ns2",)),
        ],
        total={"cpu": 100},
    )


@pytest.mark.parametrize(
    ("label", "namespace", "expected"),
    [
        ("team", "ns1", "team"),
        ("", "ns1", "ns1"),
        ("", "ns2", "note"),
        ("", "ns3", DEFAULT_QUOTA),
        ("nobody", "ns1", DEFAULT_QUOTA),
        (SYSTEM_QUOTA, "ns1", SYSTEM_QUOTA),
        (ROOT_QUOTA, "ns1", DEFAULT_QUOTA),
    ],
)
def test_label_then_namespace_then_binding_then_default(label: str, namespace: str, expected: str) -> None:
    assert resolving().resolve(pod("p", label, 1, namespace)) == expected


@pytest.mark.parametrize(("label", "expected"), [("team", "team"), ("", None), ("nobody", None)])
def test_without_a_default_quota_only_the_label_counts(label: str, expected: str | None) -> None:
    ledger = attrs.evolve(resolving(), policy=QuotaPolicy(disable_default_quota=True))
    assert ledger.resolve(pod("p", label, 1, "ns1")) == expected
    if expected is None:
        assert admit(ledger, pod("p", label, 1, "ns1")) == Ungoverned()
        assert ledger.track(pod("p", label, 1, "ns1")) is ledger


def test_a_quota_that_is_being_deleted_is_not_taken_in() -> None:
    ledger = open_ledger([quota("team", 10, deleting=True)], total={"cpu": 5})
    assert ledger.resolve(pod("p", "team", 1)) == DEFAULT_QUOTA


# --- the shape --------------------------------------------------------------------------------------------


def test_a_cycle_is_an_error_that_names_it() -> None:
    quotas = [quota("c", 1, parent="b"), quota("b", 1, parent="a"), quota("a", 1, parent="c"), quota("z", 1)]
    with pytest.raises(ModelError, match="a -> c -> b -> a"):
        open_ledger(quotas, total={})


def test_a_quota_below_nobody_counts_but_has_no_runtime() -> None:
    ledger = open_ledger(
        [quota("lost", 5, parent="ghost"), quota("below", 5, parent="lost"), quota("q", 5)],
        total={"cpu": 9},
        pods=[pod("p", "below", 3, node="n")],
    )
    assert ledger.used_of("lost") == cpu(3)
    assert ledger.runtime_of("below") is None
    assert ledger.statuses()["lost"].runtime is None
    assert isinstance(admit(ledger, pod("x", "below", 99)), Admitted)


def test_trees_are_apart_and_taken_from_the_default_tree() -> None:
    tree_root = quota("r", 1000, 30, tree="t", is_root=True, total=make_resources({"cpu": 30}))
    quotas = [tree_root, quota("in", 50, parent="r", tree="t"), quota("out", 500)]
    usage = {name: QuotaUsage(request=make_resources({"cpu": 400})) for name in ("in", "out")}
    on = QuotaPolicy(multi_quota_tree=True)
    ledger = open_ledger(quotas, total={"cpu": 100}, usage=usage, policy=on)
    assert (ledger.runtime_of("in"), ledger.runtime_of("out")) == (cpu(30), cpu(70))
    ignoring = [attrs.evolve(tree_root, ignore_default_tree=True), *quotas[1:]]
    assert open_ledger(ignoring, total={"cpu": 100}, usage=usage, policy=on).runtime_of("out") == cpu(100)
    # Only the root of a tree says so.
    below = [tree_root, attrs.evolve(quotas[1], ignore_default_tree=True), quotas[2]]
    assert open_ledger(below, total={"cpu": 100}, usage=usage, policy=on).runtime_of("out") == cpu(70)


def test_usage_of_a_quota_that_does_not_exist_counts_in_the_default_quota() -> None:
    usage = {
        name: QuotaUsage(used=make_resources({"cpu": amount}))
        for name, amount in (("gone", 3), ("koordinator-default-quota", 2), ("koordinator-root-quota", 9))
    }
    assert open_ledger([quota("q", 5)], total={}, usage=usage).used_of("koordinator-default-quota") == cpu(5)
    without = QuotaPolicy(disable_default_quota=True)
    ledger = open_ledger([quota("q", 5)], total={}, usage=usage, policy=without)
    assert ledger.used_of("koordinator-default-quota") == cpu(2)


# --- change -----------------------------------------------------------------------------------------------


def shared() -> QuotaLedger:
    return open_ledger([quota("a", 100, 10), quota("b", 100, 10)], total={"cpu": 50})


def test_a_tracked_pod_moves_runtimes_and_a_placed_one_does_not() -> None:
    one = shared().track(pod("p", "a", 60))
    assert one.runtime_of("a") == cpu(50)
    two = one.track(pod("q", "b", 60))
    assert (two.runtime_of("a"), two.runtime_of("b")) == (cpu(25), cpu(25))
    placed = two.assume(pod("p", "a", 20))
    assert placed.runtime_of("b") == cpu(25)
    assert placed.used_of("a") == cpu(20)
    assert two.used_of("a") == NO_RESOURCES


def test_what_the_default_quota_uses_leaves_the_pool() -> None:
    stray = pod("s", "", 20)
    ledger = shared().track(pod("p", "a", 60)).track(stray)
    assert ledger.runtime_of("a") == cpu(50)
    assert ledger.assume(stray).runtime_of("a") == cpu(30)
    assert ledger.assume(stray).forget(stray).runtime_of("a") == cpu(50)


def test_a_stray_pod_leaves_no_trace_in_the_pool() -> None:
    """A resource that the cluster does not offer is in the pool only while somebody uses it."""
    bare = open_ledger([quota("a", 100, 10)], total={})
    stray = pod("s", "", 5, node="n")
    assert bare.track(stray).pool_of() == cpu(-5)
    assert bare.track(stray).untrack(stray).pool_of() == bare.pool_of() == NO_RESOURCES


def test_nothing_falls_below_zero() -> None:
    ledger = shared().forget(pod("p", "a", 5)).untrack(pod("q", "b", 5))
    assert (ledger.used_of("a"), ledger.status("b").request) == (NO_RESOURCES, NO_RESOURCES)


def test_published_runtimes_replace_computed_ones() -> None:
    ledger = shared().track(pod("p", "a", 60)).with_runtimes({"a": {"cpu": 7}})
    assert ledger.runtime_of("a") == cpu(7)
    assert isinstance(admit(ledger, pod("p", "a", 8)), QuotaRefusal)


# --- admission --------------------------------------------------------------------------------------------


def test_max_binds_for_the_default_quota_as_for_any_other() -> None:
    policy = QuotaPolicy(default_quota_group_max=make_resources({"cpu": 4}))
    ledger = open_ledger([], total={"cpu": 100}, policy=policy, pods=[pod("u", "", 3, node="n")])
    refusal = admit(ledger, pod("p", "", 2))
    assert isinstance(refusal, QuotaRefusal)
    assert refusal.kind is QuotaCheckKind.RUNTIME
    assert refusal.lacking == cpu(1)
    assert refusal.message == (
        f"Insufficient quotas, quotaName: {DEFAULT_QUOTA}, runtime: cpu:4m, used: cpu:3m,"
        " pod's request: cpu:2m, exceedDimensions: [cpu]"
    )
    assert limit_of(ledger, DEFAULT_QUOTA) == cpu(4)
    assert ledger.max_of(DEFAULT_QUOTA) == cpu(4)
    assert ledger.max_of(SYSTEM_QUOTA) == policy.system_quota_group_max != cpu(4)
    assert ledger.max_of("nobody") == {}


def test_a_non_preemptible_pod_is_bounded_by_min() -> None:
    ledger = shared().track(pod("p", "a", 40, preemptible=False))
    refusal = admit(ledger, pod("p", "a", 11, preemptible=False))
    assert isinstance(refusal, QuotaRefusal)
    assert refusal.kind is QuotaCheckKind.NON_PREEMPTIBLE
    assert isinstance(admit(ledger, pod("p", "a", 10, preemptible=False)), Admitted)


def test_ancestors_are_asked_only_if_the_policy_says_so() -> None:
    quotas = [quota("p", 10, is_parent=True), quota("c", 20, parent="p"), quota("d", 20, parent="p")]
    usage = {"d": QuotaUsage(request=make_resources({"cpu": 8}), used=make_resources({"cpu": 8}))}
    caps = QuotaPolicy(enable_runtime_quota=False)
    comer = pod("x", "c", 3)
    assert isinstance(admit(open_ledger(quotas, total={}, usage=usage, policy=caps), comer), Admitted)
    strict = attrs.evolve(caps, enable_check_parent_quota=True)
    refusal = admit(open_ledger(quotas, total={}, usage=usage, policy=strict), comer)
    assert isinstance(refusal, QuotaRefusal)
    assert (refusal.kind, refusal.ancestor) == (QuotaCheckKind.PARENT, "p")
    assert "quotaNameTopo: [p c]" in refusal.message


@attrs.frozen
class NoNights:
    """A rule of an embedder."""

    key: str = "no-nights"

    def check_pod(self, ledger: QuotaLedger, quota: str, pod: QuotaPod) -> str:
        return f"{quota} sleeps" if pod.key.name == "night" else ""


def test_an_own_rule_is_asked_after_the_limits() -> None:
    ledger = shared().track(pod("day", "a", 5)).track(pod("night", "a", 5))
    assert isinstance(admit(ledger, pod("day", "a", 5), checks=[NoNights()]), Admitted)
    refusal = admit(ledger, pod("night", "a", 5), checks=[NoNights()])
    assert isinstance(refusal, QuotaRefusal)
    assert refusal.message == "CheckPod failed for hook plugin no-nights, err: a sleeps"
    too_much = admit(ledger, pod("night", "a", 500), checks=[NoNights()])
    assert isinstance(too_much, QuotaRefusal)
    assert too_much.kind is QuotaCheckKind.RUNTIME


def test_unknown_quotas_and_trees_are_the_callers_fault() -> None:
    with pytest.raises(ModelError, match="no elastic quota nobody"):
        shared().status("nobody")
    with pytest.raises(ModelError, match='no quota tree "t"'):
        shared().state("t")


def test_a_gang_is_admitted_as_a_whole_or_not_at_all() -> None:
    gang = [pod(f"g{index}", "a", 20) for index in range(3)]
    ledger = shared()
    for member in gang:
        ledger = ledger.track(member)
    assert isinstance(admit_together(ledger, gang), QuotaRefusal)
    two = admit_together(ledger, gang[:2])
    assert isinstance(two, QuotaLedger)
    assert two.used_of("a") == cpu(40)
    assert ledger.used_of("a") == NO_RESOURCES


def test_only_what_differs_but_for_zeros_is_published_again() -> None:
    ledger = shared().track(pod("p", "a", 60))
    status = ledger.status("a")
    written = status.annotations
    prefix = "quota.scheduling.koordinator.sh/"
    assert written[prefix + "runtime"] == '{"cpu":"50m"}'
    assert status.stale_annotations(written) == {}
    padded = {**written, prefix + "non-preemptible-used": '{"cpu":"0"}', prefix + "runtime": "{"}
    assert status.stale_annotations(padded) == {prefix + "runtime": '{"cpu":"50m"}'}


def test_a_refusal_prints_what_the_parent_hands_out_beyond_the_max() -> None:
    """A resource that only a sibling names limits nobody here, and stands in the message with its share."""
    limit, promised = make_resources({"cpu": 100_000, "gpu": 8}), make_resources({"gpu": 4})
    sibling = ElasticQuota(name="b", max=limit, min=promised)
    ledger = open_ledger([quota("a", 10, 10), sibling], total=limit)
    asking = pod("p", "a", 20)
    verdict = admit(ledger.track(asking), asking)
    assert isinstance(verdict, QuotaRefusal)
    assert "runtime: cpu:10m,gpu:0," in verdict.message
    assert verdict.limit == cpu(10)
