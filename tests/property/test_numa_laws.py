"""Laws of CPUs and NUMA nodes.

Take: exactly the count, all available, or a shortage. Whole cores stay whole where there are enough.
Fit: legal by the slow reference, never refused where a placement exists, on the fewest NUMA nodes.
Amounts sum to the request. Merging does not depend on the order of hints. Release restores. Equal inputs
give equal answers, and inputs are left alone.
"""

from __future__ import annotations

import itertools
import random

from hypothesis import given, settings, strategies as st

from koordcore.allocators.cpu_wish import CPUShortage, CPUWish
from koordcore.allocators.cpuset import available_cpus, take_cpus
from koordcore.allocators.numa import NodeAmounts, NUMAAllocation, filter_numa
from koordcore.allocators.numa_fit import offer_of, split
from koordcore.allocators.numa_request import CPUDemand, CPURequest, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMAState
from koordcore.allocators.numa_together import fit_together
from koordcore.model.numa import CPUAllocation, CPUBindPolicy, CPUExclusivePolicy, NUMAAllocateStrategy
from koordcore.model.resources import make_resources
from koordcore.topology.cpu import cpuset_of, format_cpulist, lowest_cpus, parse_cpulist
from koordcore.topology.numa import NUMAHint, NUMATopologyPolicy, exclusive_allows, mask_of, numa_ids
from tests.numa.worlds import World
from tests.reference.cpu_masks import cpu_ids
from tests.reference.numa_merge import merge_hints
from tests.reference.numa_placement import StaticResult
from tests.reference.numa_score import fit_numa

SEEDS = st.integers(0, 2**32)
ROOMY = NodeAmounts(make_resources({"cpu": 10**9}))
FEW = settings(max_examples=23, deadline=None)
MANY = settings(max_examples=100, deadline=None)


@FEW
@given(st.sets(st.integers(0, 300)))
def test_a_cpu_list_reads_back(ids: set[int]) -> None:
    cpus = cpuset_of(ids)
    assert parse_cpulist(format_cpulist(cpus)) == cpus
    assert cpu_ids(cpus) == tuple(sorted(ids))


@FEW
@given(st.sets(st.integers(0, 80)), st.integers(0, 90))
def test_lowest_cpus_are_the_first_of_the_list(ids: set[int], count: int) -> None:
    assert lowest_cpus(cpuset_of(ids), count) == cpuset_of(sorted(ids)[:count])


@MANY
@given(SEEDS, st.integers(0, 20), st.sampled_from(CPUBindPolicy), st.sampled_from(CPUExclusivePolicy))
def test_take_gives_the_count_or_a_shortage(
    seed: int, count: int, policy: CPUBindPolicy, exclusive: CPUExclusivePolicy
) -> None:
    world = World(seed)
    holdings = world.state.usage.holdings
    free = available_cpus(world.topology, holdings, max_ref_count=1 + seed % 2)
    wish = CPUWish(
        bind_policy=policy,
        exclusive=exclusive,
        strategy=list(NUMAAllocateStrategy)[seed % 3],
        max_ref_count=1 + seed % 2,
    )
    taken = take_cpus(world.topology, free, count, wish, holdings)
    if free.bit_count() < count:
        assert taken is CPUShortage.NOT_ENOUGH
    else:
        assert not isinstance(taken, CPUShortage)
        assert taken.bit_count() == count
        assert not taken & ~free


@MANY
@given(SEEDS, st.integers(1, 12))
def test_whole_cores_are_split_only_where_they_must(seed: int, count: int) -> None:
    world = World(seed)
    free = available_cpus(world.topology, world.state.usage.holdings)
    taken = take_cpus(world.topology, free, count, CPUWish())
    if isinstance(taken, CPUShortage):
        return
    whole = world.topology.complete_cores(free).bit_count()
    per_core = world.topology.cpus_per_core
    split_cores = [mask for mask in world.topology.core_masks if mask & taken and (mask & free) & ~taken]
    if whole >= count:
        assert len(split_cores) <= (count % per_core > 0)


@MANY
@given(SEEDS)
def test_a_fit_is_legal_and_refused_only_where_none_exists(seed: int) -> None:
    world = World(seed)
    demand = demand_on(world.request, world.node)
    allocation = fit_numa(world.state, world.request, ROOMY)
    if isinstance(demand, NUMARefusal):
        assert isinstance(allocation, NUMARefusal)
        return
    ground = StaticResult(world.node, world.state.allocations, demand)
    if isinstance(allocation, NUMAAllocation):
        status = allocation.status
        aligned = allocation.mask is not None
        assert not ground.violations(status.cpuset, status.numa_node_resources, aligned=aligned)
        fewest = _fewest(ground, demand, world.state)
        if aligned and fewest:
            assert len(numa_ids(allocation.mask or 0)) == fewest
    elif allocation.resolvable:
        assert not _exists(ground, demand, world.state), allocation.reasons


def _masks(ground: StaticResult, demand: CPUDemand, state: NUMAState) -> list[tuple[int, ...]]:
    ids = ground.node.zone_ids
    most = 1 if demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE else len(ids)
    masks = [mask for size in range(1, most + 1) for mask in itertools.combinations(ids, size)]
    if demand.policy is not NUMATopologyPolicy.BEST_EFFORT:
        exclusive, status = demand.request.exclusive_here, state.usage.status
        masks = [mask for mask in masks if exclusive_allows(mask_of(mask), exclusive, status)]
    return [mask for mask in masks if ground.exists(mask)]


def _fewest(ground: StaticResult, demand: CPUDemand, state: NUMAState) -> int:
    if not {name for here in ground.available.values() for name in here} & set(demand.request.requests):
        return 0
    return min(map(len, _masks(ground, demand, state)), default=0)


def _exists(ground: StaticResult, demand: CPUDemand, state: NUMAState) -> bool:
    known = {name for here in ground.available.values() for name in here} & set(demand.request.requests)
    if demand.policy is NUMATopologyPolicy.NONE or not known:
        return not demand.bind or len(ground.free) >= demand.request.cpus_needed
    return bool(_masks(ground, demand, state))


@MANY
@given(SEEDS)
def test_amounts_sum_to_the_request_and_stay_within_what_is_there(seed: int) -> None:
    world = World(seed)
    demand = demand_on(world.request, world.node)
    if isinstance(demand, NUMARefusal):
        return
    offer = offer_of(world.state, demand)
    if not offer.feasible(world.node.everything):
        return
    entries = split(offer, world.node.everything)
    for name in offer.most:
        assert sum(entry.resources.get(name, 0) for entry in entries) == world.request.requests[name]
    for entry in entries:
        for name, amount in entry.resources.items():
            assert 0 < amount <= offer.most[name][entry.node]


@FEW
@given(SEEDS)
def test_release_restores(seed: int) -> None:
    world = World(seed)
    before = world.state
    allocation = fit_numa(before, world.request, ROOMY)
    if isinstance(allocation, NUMARefusal):
        return
    held = _holder("new", world.request, allocation)
    if held.empty:
        return
    after = before.adding(held)
    assert after.removing("new") == before
    assert after.adding(held) is after
    assert before.removing("nobody") is before
    assert world.state == NUMAState.of(world.node, world.holders)


@FEW
@given(SEEDS)
def test_equal_inputs_give_equal_answers(seed: int) -> None:
    first, second = World(seed), World(seed)
    assert first.state == second.state
    assert hash(first.state) == hash(second.state)
    assert fit_numa(first.state, first.request, ROOMY) == fit_numa(second.state, second.request, ROOMY)


@FEW
@given(SEEDS)
def test_more_room_never_turns_a_pod_away(seed: int) -> None:
    world = World(seed)
    if isinstance(filter_numa(world.state, world.request, ROOMY), NUMARefusal):
        return
    fewer = NUMAState.of(world.node, world.holders[:-1])
    if fewer.usage.single | fewer.usage.shared != world.state.usage.single | world.state.usage.shared:
        return
    refusal = filter_numa(fewer, world.request, ROOMY)
    assert not isinstance(refusal, NUMARefusal), refusal


@FEW
@given(
    st.sampled_from(list(NUMATopologyPolicy)),
    st.lists(
        st.lists(
            st.builds(NUMAHint, st.integers(1, 7), st.booleans(), st.integers(0, 100)),
            max_size=6,
        ),
        max_size=3,
    ),
    SEEDS,
)
def test_merging_does_not_depend_on_the_order_of_hints(
    policy: NUMATopologyPolicy, lists: list[list[NUMAHint]], seed: int
) -> None:
    providers = [{f"r{index}": hints} for index, hints in enumerate(lists)]
    draw = random.Random(seed)
    shuffled = [
        {name: draw.sample(hints, len(hints)) for name, hints in provider.items()} for provider in providers
    ]
    draw.shuffle(shuffled)
    first = merge_hints(policy, (0, 1, 2), providers)
    second = merge_hints(policy, (0, 1, 2), shuffled)
    assert (first.admitted, first.hint) == (second.admitted, second.hint)


@FEW
@given(SEEDS, st.integers(1, 4))
def test_pods_placed_together_are_legal_one_after_another(seed: int, count: int) -> None:
    world = World(seed)
    requests = [world.make_request() for _ in range(count)]
    together = fit_together(world.state, requests, ROOMY, visits=100)
    if isinstance(together, NUMARefusal):
        # Nothing that fits one after another is turned away.
        state = world.state
        for index, request in enumerate(requests):
            allocation = fit_numa(state, request, ROOMY)
            if isinstance(allocation, NUMARefusal):
                return
            state = state.adding(_holder(f"new{index}", request, allocation))
        raise AssertionError(together.reasons)
    assert len(together) == count
    held = [allocation.status.cpuset for allocation in together]
    assert sum(cpus.bit_count() for cpus in held) == cpuset_union(held).bit_count()
    assert not cpuset_union(held) & world.state.usage.holdings.held


def cpuset_union(sets: list[int]) -> int:
    union = 0
    for cpus in sets:
        union |= cpus
    return union


def _holder(uid: str, request: CPURequest, allocation: NUMAAllocation) -> CPUAllocation:
    return CPUAllocation(
        uid=uid,
        cpuset=allocation.status.cpuset,
        exclusive=request.exclusive,
        numa_resources=allocation.status.numa_node_resources,
    )
