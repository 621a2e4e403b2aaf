"""Laws of runtime quotas.

* the array kernel, the plain loop and the fractions agree, also beyond 64 bits;
* whole trees agree with the slow reference; lazy and one-pass evaluation agree;
* a ledger changed step by step equals one built anew;
* children never get more together than their parent has, unless its floors alone exceed it;
* nobody gets less than the smaller of need and floor, nor more than the larger;
* all that can be used is dealt out, to the unit;
* a raised weight costs its owner nothing but rounding; the order of quotas is irrelevant; shares scale.
"""

from __future__ import annotations

import attrs
from hypothesis import given, settings, strategies as st

from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy, QuotaUsage
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources
from koordcore.quota.distribution import Round, share_out
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.runtime import VECTOR_WORTHWHILE
from koordcore.quota.sharing import Dealt, Pool, Siblings
from koordcore.quota.tree import TOP, compile_tree
from tests.reference.quota_runtime import SlowTree, share

KEYS = ("cpu", "memory", "nvidia.com/gpu")
small = st.integers(0, 40)
wide = st.one_of(small, st.integers(0, 10**6), st.integers(0, 2**52), st.integers(2**58, 2**66))
Claim = tuple[int, int, int, bool]


@st.composite
def claims(
    draw: st.DrawFn, amounts: st.SearchStrategy[int] = small, weights: st.SearchStrategy[int] = small
) -> tuple[int, list[Claim]]:
    size = draw(st.integers(1, 7))
    members = [(draw(amounts), draw(amounts), draw(weights), draw(st.booleans())) for _ in range(size)]
    return draw(st.one_of(amounts, st.just(sum(need for _, need, _, _ in members)))), members


def by_loop(total: int, members: list[Claim], trace: list[Round] | None = None) -> list[int]:
    floors, needs, weights, lends = map(list, zip(*members, strict=True))
    return share_out(total, floors, needs, weights, lends, trace=trace)


def by_group(total: int, members: list[Claim]) -> list[int]:
    """Share out as among many siblings, after they asked for something else; the others ask for nothing."""
    idle: Claim = (0, 0, 0, True)
    everyone = [*members, *[idle] * VECTOR_WORTHWHILE]
    quotas = [ElasticQuota(name=f"q{place:03}", max={"cpu": 1}) for place in range(len(everyone))]
    tree = attrs.evolve(
        compile_tree("", quotas),
        min=tuple((floor,) for floor, _, _, _ in everyone),
        weight=tuple((weight,) for _, _, weight, _ in everyone),
        lends=tuple(lends for _, _, _, lends in everyone),
    )
    siblings, policy = Siblings(tree, TOP), QuotaPolicy(enable_min_quota_scale=False)
    last = [((need,), ()) for _, need, _, _ in everyone]
    first = [((need[0] // 2,), ()) if place % 2 else (need, ()) for place, (need, _) in enumerate(last)]
    known: Dealt | None = None
    for needs in (first, [one if place % 2 else last[place] for place, one in enumerate(first)], last):
        known = siblings.deal(needs, Pool((total,), (True,)), policy, known)
    assert known is not None
    return [known.shares.runtime_at(place)[0] for place in range(len(members))]


@given(claims(wide, wide))
def test_array_loop_and_fractions_agree(case: tuple[int, list[Claim]]) -> None:
    total, members = case
    floors, needs, weights, lends = map(list, zip(*members, strict=True))
    plain = share_out(total, floors, needs, weights, lends)
    assert by_group(total, members) == plain
    named = {f"{index}": member for index, member in enumerate(members)}
    assert list(share(total, named).values()) == plain


@given(claims(st.integers(0, 2**40), st.integers(-(2**40), 2**60)))
def test_they_agree_on_negative_and_large_weights(case: tuple[int, list[Claim]]) -> None:
    total, members = case
    assert by_group(total, members) == by_loop(total, members)


@given(claims())
def test_shares_lie_between_need_and_floor(case: tuple[int, list[Claim]]) -> None:
    total, members = case
    for got, (floor, need, _, lends) in zip(by_loop(total, members), members, strict=True):
        assert min(need, floor) <= got <= max(need, floor)
        assert not lends or got <= need


@given(claims())
def test_all_that_can_be_used_is_dealt_out(case: tuple[int, list[Claim]]) -> None:
    total, members = case
    got = by_loop(total, members)
    base = [floor if need > floor or not lends else need for floor, need, _, lends in members]
    if sum(base) >= total:
        assert got == base
        return
    content = all(
        share_ >= need or weight == 0 for share_, (_, need, weight, _) in zip(got, members, strict=True)
    )
    assert sum(got) <= total
    assert sum(got) == total or content


@given(claims(), st.data())
def test_a_raised_weight_costs_its_owner_at_most_rounding(
    case: tuple[int, list[Claim]], data: st.DataObject
) -> None:
    """In one round a raised weight never costs its owner; every further round may cost one unit."""
    total, members = case
    index = data.draw(st.integers(0, len(members) - 1))
    floor, need, weight, lends = members[index]
    more = (floor, need, weight + data.draw(st.integers(1, 50)), lends)
    before, after = list[Round](), list[Round]()
    old = by_loop(total, members, before)[index]
    new = by_loop(total, [*members[:index], more, *members[index + 1 :]], after)[index]
    assert new >= old - max(0, len(before) - 1, len(after) - 1)


def test_a_raised_weight_can_cost_a_unit() -> None:
    assert share_out(8, [0, 2, 0], [4, 8, 13], [9, 1, 1], [True] * 3) == [4, 4, 0]
    assert share_out(8, [0, 2, 0], [4, 8, 13], [9, 3, 1], [True] * 3) == [4, 3, 1]


@given(claims(), st.integers(1, 50))
def test_weights_count_by_their_ratio_only(case: tuple[int, list[Claim]], factor: int) -> None:
    total, members = case
    scaled = [(floor, need, weight * factor, lends) for floor, need, weight, lends in members]
    assert by_loop(total, scaled) == by_loop(total, members)


# --- trees ------------------------------------------------------------------------------------------------


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[ElasticQuota], dict[str, QuotaUsage], Resources]:
    size = draw(st.integers(1, 6))
    quotas: list[ElasticQuota] = []
    usage: dict[str, QuotaUsage] = {}
    for index in range(size):
        name = f"q{index}"
        parent = draw(st.sampled_from(["", *(quota.name for quota in quotas)]))
        keys = draw(st.lists(st.sampled_from(KEYS), unique=True, min_size=1))
        most = {key: draw(small) for key in keys}
        least = {key: draw(small) for key in draw(st.lists(st.sampled_from(KEYS), unique=True))}
        weight = draw(st.one_of(st.none(), st.fixed_dictionaries(dict.fromkeys(keys, small))))
        quotas.append(
            ElasticQuota(
                name=name,
                parent=parent,
                max=make_resources(most),
                min=make_resources(least),
                shared_weight=None if weight is None else make_resources(weight),
                allow_lent=draw(st.booleans()),
            )
        )
        request = {key: draw(small) for key in keys}
        usage[name] = QuotaUsage(
            request=make_resources(request),
            used=make_resources({key: draw(st.integers(0, amount)) for key, amount in request.items()}),
        )
    total = draw(st.dictionaries(st.sampled_from(KEYS), st.integers(0, 120)))
    return quotas, usage, make_resources(total)


policies = st.builds(QuotaPolicy, enable_min_quota_scale=st.booleans(), guarantee_usage=st.booleans())


def masked(tree: SlowTree, runtimes: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {
        name: {key: amount for key, amount in runtime.items() if key in tree.quotas[name].max}
        for name, runtime in runtimes.items()
    }


@settings(max_examples=17)
@given(forests(), policies)
def test_trees_agree_with_the_slow_reference(
    case: tuple[list[ElasticQuota], dict[str, QuotaUsage], Resources], policy: QuotaPolicy
) -> None:
    quotas, usage, total = case
    slow = SlowTree(quotas, usage, scale=policy.enable_min_quota_scale, guarantee=policy.guarantee_usage)
    ledger = open_ledger(quotas, total=total, usage=usage, policy=policy)
    expected = masked(slow, slow.runtimes(total))
    lazily = {quota.name: dict(ledger.runtime_of(quota.name) or {}) for quota in quotas}
    at_once = {name: dict(one.runtime or {}) for name, one in ledger.statuses().items()}
    assert lazily == expected
    assert at_once == expected


@settings(max_examples=10)
@given(forests(), policies, st.randoms(use_true_random=False))
def test_the_order_of_quotas_is_irrelevant(
    case: tuple[list[ElasticQuota], dict[str, QuotaUsage], Resources], policy: QuotaPolicy, dice: object
) -> None:
    quotas, usage, total = case
    shuffled = list(quotas)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]  # a random.Random made by hypothesis
    one = open_ledger(quotas, total=total, usage=usage, policy=policy)
    other = open_ledger(shuffled, total=total, usage=usage, policy=policy)
    assert one.statuses() == other.statuses()


@settings(max_examples=17)
@given(forests())
def test_children_share_what_their_parent_has(
    case: tuple[list[ElasticQuota], dict[str, QuotaUsage], Resources],
) -> None:
    """With mins scaled and everything lent, a family never exceeds its parent in what that hands out."""
    quotas, usage, total = case
    quotas = [
        attrs.evolve(quota, allow_lent=True, max=make_resources({key: quota.max.get(key, 0) for key in KEYS}))
        for quota in quotas
    ]
    total = make_resources({key: total.get(key, 0) for key in KEYS})
    statuses = open_ledger(quotas, total=total, usage=usage).statuses()
    for key in KEYS:
        got = {name: (one.runtime or NO_RESOURCES).get(key, 0) for name, one in statuses.items()}
        for parent, whole in [("", total[key]), *((quota.name, got[quota.name]) for quota in quotas)]:
            assert sum(got[quota.name] for quota in quotas if quota.parent == parent) <= whole


# --- change -----------------------------------------------------------------------------------------------


@st.composite
def scripts(draw: st.DrawFn) -> tuple[list[ElasticQuota], Resources, list[tuple[str, QuotaPod]]]:
    quotas, _, total = draw(forests())
    if draw(st.booleans()):  # siblings enough for arrays
        quotas += [ElasticQuota(name=f"r{place:02}", max={"cpu": 1}) for place in range(VECTOR_WORTHWHILE)]
    steps: list[tuple[str, QuotaPod]] = []
    waiting: list[QuotaPod] = []
    placed: list[QuotaPod] = []
    for index in range(draw(st.integers(1, 6))):
        verb = draw(st.sampled_from(["track", "untrack", "assume", "forget", "total"]))
        if verb in ("untrack", "assume") and waiting:
            pod = waiting.pop(draw(st.integers(0, len(waiting) - 1)))
            if verb == "assume":
                placed.append(pod)
        elif verb == "forget" and placed:
            pod = placed.pop(draw(st.integers(0, len(placed) - 1)))
            waiting.append(pod)
        else:
            verb = "track"
            pod = QuotaPod(
                key=PodKey("a", f"p{index}"),
                quota=draw(st.sampled_from([*(quota.name for quota in quotas), "", "unknown"])),
                request=make_resources(draw(st.dictionaries(st.sampled_from(KEYS), small))),
                preemptible=draw(st.booleans()),
            )
            waiting.append(pod)
        steps.append((verb, pod))
    return quotas, total, steps


@settings(max_examples=8)
@given(scripts(), policies)
def test_a_changed_ledger_equals_a_new_one(
    case: tuple[list[ElasticQuota], Resources, list[tuple[str, QuotaPod]]], policy: QuotaPolicy
) -> None:
    quotas, total, steps = case
    start = ledger = open_ledger(quotas, total=total, policy=policy)
    before = start.statuses()
    alive: dict[PodKey, QuotaPod] = {}
    for verb, pod in steps:
        match verb:
            case "track":
                ledger, alive[pod.key] = ledger.track(pod), pod
            case "untrack":
                ledger = ledger.untrack(pod)
                del alive[pod.key]
            case "assume":
                ledger, alive[pod.key] = ledger.assume(pod), attrs.evolve(pod, node="n")
            case _:
                ledger, alive[pod.key] = ledger.forget(pod), pod
        same(ledger, open_ledger(quotas, total=total, policy=policy, pods=alive.values()))
    assert start.statuses() == before


def same(one: QuotaLedger, other: QuotaLedger) -> None:
    told = other.statuses()
    assert one.statuses() == told
    assert one.pool_of() == other.pool_of()
    for name in one.quotas:
        assert one.status(name) == told[name]
