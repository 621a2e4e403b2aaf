"""The steps by themselves: the shape of a tree, its sums, one family's shares, one question to a ledger."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy, QuotaUsage, Spelling
from koordcore.model.resources import make_resources
from koordcore.quota.admission import exceeding, limit_of, masked_request
from koordcore.quota.explain import explain_runtime
from koordcore.quota.opening import open_ledger
from koordcore.quota.reclaim import kept_floor
from koordcore.quota.rollup import Sums, TreeState, roll_up
from koordcore.quota.runtime import LARGEST, arrays_of
from koordcore.quota.sharing import Pool, Siblings
from koordcore.quota.tree import DETACHED, TOP, QuotaTree, compile_tree

GUARANTEE = QuotaPolicy(guarantee_usage=True)


def tree(**quotas: tuple[str, int, int]) -> QuotaTree:
    """Quotas by name: parent, max and min in cpu."""
    made = [
        ElasticQuota(
            name=name, parent=parent, max=make_resources({"cpu": most}), min=make_resources({"cpu": least})
        )
        for name, (parent, most, least) in quotas.items()
    ]
    return compile_tree("", made)


def using(amount: int) -> Sums:
    return Sums((amount,), (amount,), (0,), (0,))


def state(shape: QuotaTree, policy: QuotaPolicy, **uses: int) -> TreeState:
    own = {shape.row_of[name]: using(amount) for name, amount in uses.items()}
    return roll_up(shape, policy, own, Pool((50,), (True,)))


def test_children_stand_below_their_parent_those_of_the_first_row_as_well() -> None:
    shape = tree(a=("", 9, 1), a1=("a", 9, 1), a2=("a", 9, 1), b=("", 9, 1), c=("ghost", 9, 1))
    assert [quota.name for quota in shape.quotas] == ["a", "b", "c", "a1", "a2"]
    assert shape.parent == (-1, -1, -2, 0, 0)
    assert (shape.groups[TOP], shape.groups[DETACHED]) == ((0, 1), (2,))
    assert shape.groups[shape.group_below[0]] == (3, 4)
    assert shape.group_of == (TOP, TOP, DETACHED, shape.group_below[0], shape.group_below[0])
    assert shape.place_of == (0, 1, 0, 0, 1)
    assert [shape.attached(row) for row in range(5)] == [True, True, False, True, True]


@pytest.mark.parametrize(
    ("field", "amount", "held"),
    [
        ("min", LARGEST // 2 - 1, True),
        ("min", LARGEST // 2, False),
        ("min", -LARGEST // 2, False),
        ("shared_weight", LARGEST - 1, True),
        ("shared_weight", LARGEST, False),
        ("shared_weight", -1, False),
        ("max", 2**70, True),
        ("max", 1 - LARGEST, True),
        ("max", -LARGEST, False),
    ],
)
def test_arrays_hold_a_tree_whose_sums_stay_within_64_bits(field: str, amount: int, *, held: bool) -> None:
    fields: dict[str, Any] = {"max": make_resources({"cpu": 9}), "shared_weight": make_resources({"cpu": 1})}
    fields[field] = make_resources({"cpu": amount})
    shape = compile_tree("", [ElasticQuota(name="a", **fields), ElasticQuota(name="b", max=fields["max"])])
    arrays = arrays_of(attrs.evolve(shape, weight=((fields["shared_weight"]["cpu"],), (1,))))
    assert (arrays is not None) is held


def test_a_tree_without_resources_or_quotas_is_held_in_arrays() -> None:
    assert arrays_of(compile_tree("", [])) is not None
    assert arrays_of(compile_tree("", [ElasticQuota(name="a")])) is not None


def test_sums_go_up_and_are_replaced_one_path_at_a_time() -> None:
    shape = tree(a=("", 9, 1), a1=("a", 5, 1), a2=("a", 9, 1), b=("", 9, 1))
    start = state(shape, QuotaPolicy(), a1=7, a2=2)
    rows = shape.row_of
    assert [start.tally(rows[name]).limit for name in ("a1", "a2", "a", "b")] == [(5,), (2,), (7,), (0,)]
    later = start.with_sums(rows["a2"], using(4))
    assert (later.tally(rows["a"]).limit, later.tally(rows["a"]).used) == ((9,), (11,))
    assert (start.tally(rows["a"]).limit, start.tally(rows["a"]).used) == ((7,), (9,))
    assert later.with_sums(rows["a2"], using(2)).tally(rows["a"]) == start.tally(rows["a"])


def test_another_pool_is_shared_and_the_same_one_changes_nothing() -> None:
    start = state(tree(a=("", 99, 1), b=("", 99, 1)), QuotaPolicy(), a=90, b=90)
    assert start.runtime(0) == (25,)
    assert start.with_pool(Pool((70,), (True,))).runtime(0) == (35,)
    assert start.with_pool(Pool((50,), (True,))) is start


def test_a_guarantee_is_the_larger_of_min_and_use_and_goes_up() -> None:
    shape = tree(a=("", 99, 1), a1=("a", 99, 8), a2=("a", 99, 2), b=("", 99, 9))
    kept = state(shape, GUARANTEE, a1=5, a2=6)
    told = {shape.quotas[row].name: kept.tally(row) for row in range(4)}
    assert {name: one.guaranteed for name, one in told.items()} == {
        "a": (14,),
        "a1": (8,),
        "a2": (6,),
        "b": (9,),
    }
    assert {name: one.allocated for name, one in told.items()} == {
        "a": (14,),
        "a1": (5,),
        "a2": (6,),
        "b": (0,),
    }


def test_under_the_guarantee_a_family_is_shared_from_what_it_uses() -> None:
    shape = tree(a=("", 99, 10), b=("", 99, 10))
    kept = state(shape, GUARANTEE, a=45, b=20)
    assert [kept.runtime(row) for row in (0, 1)] == [(45,), (20,)]
    free = state(shape, QuotaPolicy(), a=45, b=20)
    assert [free.runtime(row) for row in (0, 1)] == [(30,), (20,)]


def test_a_family_whose_parent_hands_nothing_out_gets_nothing() -> None:
    bare = ElasticQuota(name="p")
    child = ElasticQuota(name="c", parent="p", max=make_resources({"cpu": 9}))
    shape = compile_tree("", [bare, child])
    below = Siblings(shape, shape.group_below[0])
    shares = below.deal([((5,), ())], Pool((7,), (True,)), QuotaPolicy()).shares
    assert (shares.runtime_at(0), shares.scaled_at(0)) == ((0,), (0,))


# --- one question to a ledger -----------------------------------------------------------------------------

BOTH = make_resources({"cpu": 9, "gpu": 4})
CPU, GPU = make_resources({"cpu": 9}), make_resources({"gpu": 4})


def test_a_runtime_is_told_in_what_the_max_names() -> None:
    ledger = open_ledger([ElasticQuota(name="a", max=CPU), ElasticQuota(name="b", max=GPU)], total=BOTH)
    assert ledger.runtime_of("a") == make_resources({"cpu": 0})


def test_a_quota_without_a_max_is_told_no_runtime() -> None:
    ledger = open_ledger([ElasticQuota(name="a"), ElasticQuota(name="b", max=CPU)], total=BOTH)
    assert ledger.runtime_of("a") == make_resources({})


def test_a_runtime_is_told_whole_where_the_max_names_all() -> None:
    ledger = open_ledger([ElasticQuota(name="a", max=BOTH, min=CPU, allow_lent=False)], total=BOTH)
    assert ledger.runtime_of("a") == make_resources({"cpu": 9, "gpu": 0})


def test_a_published_runtime_is_told_as_it_was_published() -> None:
    ledger = open_ledger([ElasticQuota(name="a", max=CPU)], total=CPU)
    assert ledger.with_runtimes({"a": {"gpu": 3}}).runtime_of("a") == make_resources({"gpu": 3})


def test_another_total_is_shared() -> None:
    ledger = open_ledger([ElasticQuota(name="a", max=CPU, min=CPU)], total={"cpu": 3})
    assert ledger.with_total({"cpu": 5}).pool_of() == {"cpu": 5}
    assert ledger.with_total({"cpu": 5}).state().pool.amounts == (5,)


def test_a_request_counts_in_what_the_max_names() -> None:
    ledger = open_ledger([ElasticQuota(name="a", max=CPU)], total=BOTH)
    asking = QuotaPod(key=PodKey("d", "p"), quota="a", request=make_resources({"cpu": 2, "gpu": 1}))
    assert masked_request(ledger, "a", asking) == {"cpu": 2}


def test_max_limits_what_the_parent_does_not_hand_out() -> None:
    quotas = [ElasticQuota(name="p", max=GPU), ElasticQuota(name="a", parent="p", max=BOTH)]
    assert limit_of(open_ledger(quotas, total=BOTH), "a") == {"cpu": 9, "gpu": 0}


def test_without_runtimes_max_is_the_limit() -> None:
    policy = QuotaPolicy(enable_runtime_quota=False)
    assert limit_of(open_ledger([ElasticQuota(name="a", max=BOTH)], total=BOTH, policy=policy), "a") == BOTH


def test_use_and_request_together_exceed_a_limit() -> None:
    assert exceeding(make_resources({"cpu": 3}), make_resources({"cpu": 7}), CPU) == ("cpu",)
    assert exceeding(make_resources({"cpu": 2}), make_resources({"cpu": 7}), CPU) == ()


def test_a_floor_without_a_min_is_kept_under_the_guarantee() -> None:
    used = {"a": QuotaUsage(request=CPU, used=CPU)}
    ledger = open_ledger([ElasticQuota(name="a", max=CPU)], total=CPU, usage=used, policy=GUARANTEE)
    assert kept_floor(ledger, "a") == CPU


def test_the_account_of_a_runtime_starts_from_what_is_guaranteed() -> None:
    used = {"a": QuotaUsage(request=CPU, used=CPU)}
    ledger = open_ledger([ElasticQuota(name="a", max=CPU)], total=CPU, usage=used, policy=GUARANTEE)
    assert explain_runtime(ledger, "a", "cpu").families[0].member.floor == 9


@pytest.mark.parametrize("texts", [("", "3G"), ("3G", ""), ("3G", "1Gi")])
def test_the_first_written_amount_decides_how_a_sum_is_printed(texts: tuple[str, str]) -> None:
    memory = make_resources({"memory": 1 << 30})
    pods = [
        QuotaPod(
            key=PodKey("d", f"p{place}"),
            quota="a",
            request=memory,
            node="n",
            written=Spelling({"memory": text} if text else {}),
        )
        for place, text in enumerate(texts)
    ]
    ledger = open_ledger([ElasticQuota(name="a", max=memory)], total={}, pods=pods)
    assert ledger.notations["a"][0] == {"memory": False}
