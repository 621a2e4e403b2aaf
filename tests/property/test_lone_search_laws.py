"""Laws of the search for one member's place: the order of the nodes, and the cheapest victims on one."""

from __future__ import annotations

import random
from itertools import product

import attrs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from koordcore.model.certificates import Limits
from koordcore.preemption import node_victims
from koordcore.preemption.cost import close, damage_of
from koordcore.preemption.lone import LoneSearch
from koordcore.preemption.node_victims import Wanted, cheapest_victims
from koordcore.preemption.problem import Domains, PreemptionProblem
from tests.preemption.worlds import gang_problem, one_member, pooled, problem_of
from tests.reference.lone_bounds import NodeBound, nodes_in_order

seeds = st.integers(0, 10**6)


class Untouched(LoneSearch):
    """Goes through all nodes without looking at any."""

    def __init__(self, problem: PreemptionProblem, domains: Domains) -> None:
        super().__init__(problem, domains, Limits())
        self.seen: list[NodeBound] = []
        self._last: NodeBound | None = None

    def bound(self) -> NodeBound | None:
        """Remember what was said last."""
        self._last = super().bound()
        return self._last

    def work_out(self, row: int) -> None:
        """Remember what was said of the node that comes."""
        assert self._last is not None
        assert self._last[1] == row
        self.seen.append(self._last)


def refined(problem: PreemptionProblem, seed: int) -> PreemptionProblem:
    """Limit what nodes take beside amounts, at times."""
    rng = random.Random(seed)
    number, (shape,) = len(problem.nodes), problem.shapes
    if rng.random() < 0.3:
        shape = attrs.evolve(shape, most=np.array([rng.randint(0, 2) for _ in range(number)], dtype=np.int64))
    if rng.random() < 0.5:
        shape = attrs.evolve(shape, now=np.array([rng.random() < 0.5 for _ in range(number)], dtype=np.bool_))
    return attrs.evolve(problem, shapes=(shape,))


@settings(max_examples=100, deadline=None)
@given(seeds, st.booleans(), st.booleans())
def test_nodes_come_in_the_order_of_what_they_cost_at_least(seed: int, lacking: bool, limited: bool) -> None:
    problem = one_member(seed)
    if lacking:
        problem = pooled(problem, seed)
    if limited:
        problem = refined(problem, seed)
    home = np.where(np.random.default_rng(seed).random(len(problem.nodes)) < 0.9, 0, -1).astype(np.int64)
    domains = Domains(home, 1)
    search = Untouched(problem, domains)
    assert search.pop() is None
    assert search.seen == nodes_in_order(problem, domains)


def wanted(problem: PreemptionProblem, seed: int) -> Wanted:
    """Draw a node with what it lacks, and victims that were not enough there."""
    rng = random.Random(seed)
    number, (pool,) = len(problem.candidates), problem.pools
    row = rng.randrange(len(problem.nodes))
    lack = tuple((one, rng.randint(1, 6)) for one in range(problem.free.shape[0]) if rng.random() < 0.7)
    shared = tuple((given, rng.randint(1, 4)) for given in pool.gives if rng.random() < 0.3)
    gives = np.any([given > 0 for given, _ in shared], axis=0) if shared else np.zeros(number, dtype=np.bool_)
    refused = []
    for _ in range(rng.choice((0, 1, 2)) if lack or shared else 1):
        mask = problem.candidates.node != row
        mask |= np.array([rng.random() < 0.5 for _ in range(number)], dtype=np.bool_)
        refused.append(mask)
    far = tuple(np.flatnonzero(gives & problem.usable).tolist())
    return Wanted(row, lack, shared, far, tuple(refused))


@settings(max_examples=133, deadline=None)
@given(seeds, st.booleans())
def test_no_set_of_victims_is_cheaper_than_the_cheapest(seed: int, gangs: bool) -> None:
    problem = pooled(gang_problem(seed) if gangs else one_member(seed), seed)
    asked = wanted(problem, seed)
    table = problem.candidates
    costs = {}
    for flags in product((False, True), repeat=len(table)):
        chosen = np.array(flags, dtype=np.bool_)
        closed = close(problem, chosen)
        if closed is None or (closed != chosen).any() or any(mask[chosen].all() for mask in asked.refused):
            continue
        here = chosen & (table.node == asked.row)
        if all(table.amounts[one, here].sum() >= amount for one, amount in asked.lack) and all(
            given[chosen].sum() >= missing for given, missing in asked.shared
        ):
            costs[tuple(np.flatnonzero(chosen).tolist())] = damage_of(problem, chosen).vector[:6]
    found = cheapest_victims(problem, asked)
    if found is None:
        assert not costs
    else:
        assert found.cost == costs[found.ones] == min(costs.values())


@pytest.mark.parametrize(("steps", "enough"), [(60, 72), (300, 111)])
def test_bounds_keep_the_search_on_a_node_short(steps: int, enough: int) -> None:
    """Ten pods that differ, of gangs and of none: there are a thousand sets of them, and more in steps."""
    found = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_victims, "_MOST_STEPS", steps)
        for seed in range(150):
            rng = random.Random(seed)
            victims = [
                (
                    0,
                    (rng.randint(1, 9), rng.randint(0, 9)),
                    rng.randint(0, 2),
                    rng.choice(("d/g", "d/h", "", "")),
                )
                for _ in range(10)
            ]
            problem = problem_of([[0, 0]], victims, [(1, 1)], minimums={"d/g": 1, "d/h": 2})
            try:
                cheapest_victims(problem, Wanted(0, ((0, rng.randint(9, 30)), (1, rng.randint(9, 30)))))
            except node_victims.StepsExceeded:
                continue
            found += 1
    assert found >= enough
