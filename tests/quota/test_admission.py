"""Which check refuses a pod, with what amounts, and how upstream would write it."""

from __future__ import annotations

from typing import Any

import pytest
from immutabledict import immutabledict

from koordcore.model.pods import PodKey
from koordcore.model.quotas import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    ElasticQuota,
    QuotaPod,
    QuotaPolicy,
    QuotaUsage,
    Spelling,
)
from koordcore.model.resources import NO_RESOURCES, make_resources
from koordcore.quota.admission import (
    Admitted,
    QuotaCheckKind,
    QuotaRefusal,
    admit,
    exceeding,
    limit_of,
    masked_request,
)
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger

GB, GIB = 10**9, 1 << 30
NO_RUNTIME = QuotaPolicy(enable_runtime_quota=False)
PARENTS = QuotaPolicy(enable_runtime_quota=False, enable_check_parent_quota=True)


def quota(
    name: str, most: dict[str, int], least: dict[str, int] | None = None, **fields: Any
) -> ElasticQuota:
    return ElasticQuota(name=name, max=make_resources(most), min=make_resources(least or {}), **fields)


def pod(name: str, owner: str, request: dict[str, int], **fields: Any) -> QuotaPod:
    return QuotaPod(key=PodKey("d", name), quota=owner, request=make_resources(request), **fields)


def refused(ledger: QuotaLedger, asking: QuotaPod) -> QuotaRefusal:
    verdict = admit(ledger.track(asking), asking)
    assert isinstance(verdict, QuotaRefusal)
    return verdict


def admitted(ledger: QuotaLedger, asking: QuotaPod) -> bool:
    return isinstance(admit(ledger.track(asking), asking), Admitted)


# --- which amounts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [QuotaPolicy(), NO_RUNTIME, PARENTS])
@pytest.mark.parametrize("preemptible", [True, False])
def test_a_quota_may_be_filled_to_the_brim_and_not_a_unit_further(
    policy: QuotaPolicy, preemptible: bool
) -> None:
    ledger = open_ledger([quota("q", {"cpu": 10}, {"cpu": 10})], total={"cpu": 10}, policy=policy)
    assert admitted(ledger, pod("p", "q", {"cpu": 10}, preemptible=preemptible))
    refusal = refused(ledger, pod("p", "q", {"cpu": 11}, preemptible=preemptible))
    assert (refusal.exceeded, refusal.lacking) == (("cpu",), make_resources({"cpu": 1}))
    half = ledger.track(pod("run", "q", {"cpu": 4}, node="n", preemptible=preemptible))
    assert admitted(half, pod("p", "q", {"cpu": 6}, preemptible=preemptible))
    assert refused(half, pod("p", "q", {"cpu": 8}, preemptible=preemptible)).lacking == {"cpu": 2}


@pytest.mark.parametrize("policy", [QuotaPolicy(), NO_RUNTIME])
def test_a_non_preemptible_pod_stays_within_min_even_where_there_is_room(policy: QuotaPolicy) -> None:
    ledger = open_ledger([quota("q", {"cpu": 10}, {"cpu": 3})], total={"cpu": 10}, policy=policy)
    ledger = ledger.track(pod("run", "q", {"cpu": 2}, node="n", preemptible=False))
    assert admitted(ledger, pod("p", "q", {"cpu": 5}))
    assert admitted(ledger, pod("p", "q", {"cpu": 1}, preemptible=False))
    refusal = refused(ledger, pod("p", "q", {"cpu": 5}, preemptible=False))
    assert (refusal.kind, refusal.lacking) == (
        QuotaCheckKind.NON_PREEMPTIBLE,
        make_resources({"cpu": 4}),
    )
    assert refusal.limit == {"cpu": 3}
    assert refusal.message == (
        "Insufficient non-preemptible quotas, quotaName: q, min: cpu:3m, nonPreemptibleUsed: cpu:2m,"
        " pod's request: cpu:5m, exceedDimensions: [cpu]"
    )


def test_a_resource_outside_the_max_neither_counts_nor_stands_in_the_reason() -> None:
    ledger = open_ledger([quota("q", {"cpu": 10})], total={"cpu": 100, "gpu": 1})
    asking = pod("p", "q", {"cpu": 11, "gpu": 8})
    assert masked_request(ledger, "q", asking) == {"cpu": 11}
    assert admitted(ledger, pod("p", "q", {"cpu": 1, "gpu": 8}))
    refusal = refused(ledger, asking)
    assert (refusal.request, refusal.lacking) == (make_resources({"cpu": 11}), make_resources({"cpu": 1}))
    assert "pod's request: cpu:11m, exceedDimensions: [cpu]" in refusal.message


def test_quotas_are_asked_from_the_own_one_up_and_then_for_what_no_parent_hands_out() -> None:
    """`far` hands out no gpus, so that upstream knows no limit of them below it."""
    quotas = [
        quota("far", {"cpu": 10}, is_parent=True),
        quota("near", {"cpu": 100, "gpu": 1}, parent="far", is_parent=True),
        quota("q", {"cpu": 100, "gpu": 2}, {"gpu": 1}, parent="near"),
        quota("p", {"cpu": 100, "gpu": 2}, {"gpu": 1}, parent="near"),
        quota("other", {"cpu": 100}, parent="far"),
    ]
    policy = QuotaPolicy(enable_check_parent_quota=True, enable_min_quota_scale=False)
    ledger = open_ledger(quotas, total={"cpu": 100, "gpu": 8}, policy=policy)
    ledger = ledger.track(pod("mate", "p", {"gpu": 1}, node="n"))
    asking = pod("x", "q", {"cpu": 5, "gpu": 1})
    refusal = refused(ledger, asking)
    assert (refusal.ancestor, refusal.exceeded) == ("near", ("gpu",))
    beyond = refused(ledger.track(pod("many", "other", {"cpu": 10}, node="n")), asking)
    assert (beyond.ancestor, beyond.exceeded) == ("far", ("cpu",))
    assert "quotaNameTopo: [far near q]" in beyond.message
    assert refused(ledger, pod("x", "q", {"cpu": 11})).ancestor == "q"


def test_a_quota_beyond_its_limit_in_anything_admits_nothing() -> None:
    """All that the quota uses is looked at, also what the pod does not ask for; above it only the rest."""
    both = {"cpu": 10, "gpu": 2}
    usage = {"q": QuotaUsage(used=make_resources({"cpu": 1, "gpu": 3}))}
    asking = pod("p", "q", {"cpu": 1})
    own = open_ledger([quota("q", both)], total=both, usage=usage, policy=NO_RUNTIME)
    assert refused(own, asking).exceeded == ("gpu",)
    above = [quota("dept", both, is_parent=True), quota("q", {"cpu": 10, "gpu": 9}, parent="dept")]
    assert admitted(open_ledger(above, total=both, usage=usage, policy=PARENTS), asking)
    wanted = refused(open_ledger(above, total=both, usage=usage, policy=PARENTS), pod("p", "q", {"gpu": 1}))
    assert (wanted.kind, wanted.ancestor, wanted.exceeded) == (QuotaCheckKind.PARENT, "dept", ("gpu",))


def test_what_a_limit_does_not_name_is_unlimited() -> None:
    amounts = make_resources({"cpu": 5, "gpu": 5})
    assert exceeding(amounts, NO_RESOURCES, make_resources({"cpu": 5})) == ()
    assert exceeding(amounts, amounts, make_resources({"cpu": 9, "gpu": 9})) == ("cpu", "gpu")
    assert exceeding(NO_RESOURCES, make_resources({"cpu": 0}), make_resources({"cpu": 0})) == ()
    assert exceeding(NO_RESOURCES, NO_RESOURCES, make_resources({"cpu": -1})) == ()
    assert exceeding(NO_RESOURCES, make_resources({"cpu": 1}), make_resources({"cpu": 0})) == ("cpu",)


def test_the_limit_is_the_runtime_and_max_where_the_parent_hands_nothing_out() -> None:
    """A resource that neither names is not in it."""
    quotas = [
        quota("dept", {"memory": 40}, is_parent=True),
        quota("team", {"cpu": 7, "memory": 50}, parent="dept"),
        quota("other", {"gpu": 3}),
    ]
    total = {"cpu": 90, "memory": 90, "gpu": 9}
    asking = pod("p", "team", {"memory": 30})
    ledger = open_ledger(quotas, total=total, pods=[asking])
    assert limit_of(ledger, "team") == {"cpu": 7, "memory": 30}
    assert limit_of(ledger, ROOT_QUOTA) == limit_of(ledger, "nobody") == NO_RESOURCES
    capped = open_ledger(quotas, total=total, pods=[asking], policy=NO_RUNTIME)
    assert limit_of(capped, "team") == {"cpu": 7, "memory": 50}
    assert refused(ledger, pod("x", "team", {"cpu": 8})).limit == {"cpu": 7, "memory": 30}


# --- how it is written ------------------------------------------------------------------------------------


def test_without_runtimes_the_reason_names_the_max_as_it_was_written() -> None:
    ledger = open_ledger(
        [quota("q", {"cpu": 2000, "memory": 4 * GIB}, written_max=Spelling({"memory": "4096Mi"}))],
        total={},
        policy=NO_RUNTIME,
    )
    asking = pod("p", "q", {"cpu": 3000, "memory": GIB}, written=Spelling({"cpu": "3", "memory": "1024Mi"}))
    assert refused(ledger, asking).message == (
        "Insufficient quotas, quotaName: q, runtime: cpu:2,memory:4096Mi, used: <empty>,"
        " pod's request: cpu:3,memory:1024Mi, exceedDimensions: [cpu]"
    )


def test_a_min_is_named_as_it_was_written() -> None:
    ledger = open_ledger(
        [quota("q", {"memory": 4 * GIB}, {"memory": GIB}, written_min=Spelling({"memory": "1024Mi"}))],
        total={"memory": 4 * GIB},
    )
    refusal = refused(ledger, pod("p", "q", {"memory": 2 * GIB}, preemptible=False))
    assert "min: memory:1024Mi, nonPreemptibleUsed: <empty>," in refusal.message


def test_the_default_quota_is_refused_with_its_max() -> None:
    policy = QuotaPolicy(default_quota_group_max=make_resources({"cpu": 4, "memory": GIB}))
    ledger = open_ledger([], total={"cpu": 100}, policy=policy)
    message = refused(ledger, pod("p", "", {"cpu": 5})).message
    assert f"quotaName: {DEFAULT_QUOTA}, runtime: cpu:4m,memory:1Gi, used: <empty>," in message


def used_text(ledger: QuotaLedger, asking: QuotaPod) -> str:
    """What a refusal says is used."""
    message = refused(ledger, asking).message
    return message[message.index("sed: ") + len("sed: ") : message.index(", pod's request")]


def ran(name: str, owner: str, memory: int, text: str, **fields: Any) -> QuotaPod:
    written = Spelling({"memory": text}) if text else Spelling()
    return pod(name, owner, {"memory": memory}, node="n", written=written, **fields)


@pytest.mark.parametrize(
    ("first", "second", "printed"),
    [
        ((GIB, "1Gi"), (2 * GIB, "2Gi"), "memory:3Gi"),
        ((2 * GB, "2G"), (GB, "1G"), "memory:3G"),
        ((2 * GB, "2G"), (GIB, "1Gi"), "memory:3073741824"),
        ((GIB, "1Gi"), (GB, "1G"), "memory:2073741824"),
        ((0, "0"), (GIB, "1Gi"), "memory:1Gi"),
        ((0, "0Gi"), (3 * GB, "3G"), "memory:3G"),
        ((GIB, ""), (3 * GB, "3G"), "memory:4073741824"),
    ],
)
@pytest.mark.parametrize("guarded", [False, True])
def test_a_sum_is_printed_as_the_first_pod_wrote_its_amount(
    first: tuple[int, str], second: tuple[int, str], printed: str, guarded: bool
) -> None:
    runs = [
        ran("a", "q", *first, preemptible=not guarded),
        ran("b", "q", *second, preemptible=not guarded),
    ]
    quotas = [quota("q", {"memory": 99 * GIB}, {"memory": GB} if guarded else {})]
    ledger = open_ledger(quotas, total={"memory": 99 * GIB}, pods=runs)
    assert used_text(ledger, pod("p", "q", {"memory": 100 * GIB}, preemptible=not guarded)) == printed


def test_a_pod_that_wrote_nothing_leaves_the_notation_to_the_next() -> None:
    runs = [pod("a", "q", {"cpu": 1}, node="n"), ran("b", "q", 3 * GB, "3G")]
    quotas = [quota("q", {"cpu": 9, "memory": 4 * GB})]
    ledger = open_ledger(quotas, total={"cpu": 9, "memory": 4 * GB}, pods=runs)
    assert used_text(ledger, pod("p", "q", {"memory": 2 * GB})) == "cpu:1m,memory:3G"


@pytest.mark.parametrize(
    ("dept", "one", "two", "printed"),
    [
        ((0, ""), (2 * GB, "2G"), (GIB, "1Gi"), "3073741824"),
        ((0, ""), (2 * GB, "2G"), (GB, "1G"), "3G"),
        ((0, ""), (GIB, "1Gi"), (GIB, "1Gi"), "2Gi"),
        ((0, ""), (0, "0"), (GIB, "1Gi"), "1Gi"),
        ((GIB * 125, "125Gi"), (GB, "1G"), (0, "0"), "135217728000"),
        ((64 * GB, "64G"), (16 * GIB, "16Gi"), (0, "0"), "81179869184"),
        ((1024 * GB, "1024G"), (GIB * 1000, "1000Gi"), (0, "0"), "2097741824k"),
        ((1024 * 10**6 * 1024, "1048576M"), (0, "0"), (0, "0"), "1048576M"),
    ],
)
def test_a_sum_above_goes_by_its_own_pods_and_then_by_its_children(
    dept: tuple[int, str], one: tuple[int, str], two: tuple[int, str], printed: str
) -> None:
    quotas = [
        quota("dept", {"memory": 5000 * GIB}, is_parent=True),
        quota("one", {"memory": 10000 * GIB}, parent="dept"),
        quota("two", {"memory": 10000 * GIB}, parent="dept"),
    ]
    runs = [ran("d", "dept", *dept), ran("e", "one", *one), ran("f", "two", *two)]
    ledger = open_ledger(quotas, total={}, pods=runs, policy=PARENTS)
    asking = pod("p", "two", {"memory": 6000 * GIB})
    assert refused(ledger, asking).ancestor == "dept"
    assert used_text(ledger, asking) == f"memory:{printed}"


def test_a_notation_of_what_the_quota_does_not_count_is_nobodys() -> None:
    usage = {
        "q": QuotaUsage(
            used=make_resources({"cpu": 3, "memory": GB}),
            binary=immutabledict({"cpu": False, "memory": True}),
        )
    }
    ledger = open_ledger([quota("q", {"cpu": 4})], total={"cpu": 4}, usage=usage)
    assert used_text(ledger, pod("p", "q", {"cpu": 2})) == "cpu:3m"
