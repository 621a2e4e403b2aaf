"""Many nodes at once say what each node says by itself."""

from __future__ import annotations

import numpy as np
import pytest

from koordcore.allocators.node import NodeAllocation, NodeOffer
from koordcore.allocators.node_batch import NodeVerdicts, node_table
from koordcore.allocators.node_request import NodeRequest
from koordcore.allocators.numa import (
    NodeAmounts,
    NUMAAllocation,
    filter_numa,
)
from koordcore.allocators.numa_request import CPURequest, NUMARefusal
from koordcore.allocators.numa_state import NUMAState
from koordcore.model.numa import CPUAllocation
from koordcore.model.resources import make_resources
from tests.numa.worlds import GIB, World
from tests.reference.numa_score import fit_numa, score_numa


def _columns(states: list[NUMAState]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    allocatable = {
        name: np.array([sum(zone.resources.get(name, 0) for zone in state.node.zones) for state in states])
        for name in ("cpu", "memory")
    }
    requested = {
        "cpu": np.array([1000 * state.usage.holdings.held.bit_count() + 500 for state in states]),
        "memory": np.array([len(state.allocations) * GIB // 2 for state in states]),
    }
    return allocatable, requested


@pytest.mark.parametrize("seed", range(40))
def test_the_table_agrees_with_each_node(seed: int) -> None:
    """Fits, reasons, resolvability and scores are those of the single-node functions."""
    request = World(seed).request
    states = [World(seed * 100 + index % 25).state for index in range(40)]
    table = node_table(map(NodeOffer, states))
    assert len(table.states) <= 25
    allocatable, requested = _columns(states)
    verdicts = NodeVerdicts(table, NodeRequest(cpu=request), allocatable=allocatable, requested=requested)
    fits, scores, hopeless = verdicts.fits(), verdicts.scores(), verdicts.unresolvable()
    reasons = verdicts.reasons()
    for row, state in enumerate(states):
        amounts = NodeAmounts(
            make_resources({name: int(column[row]) for name, column in allocatable.items()}),
            make_resources({name: int(column[row]) for name, column in requested.items()}),
        )
        alone = fit_numa(state, request, amounts)
        assert bool(fits[row]) == isinstance(alone, NUMAAllocation)
        answer = verdicts.answer(row)
        assert (answer.numa if isinstance(answer, NodeAllocation) else answer) == alone
        told = tuple(reason for reason, rows in reasons if rows[row])
        if isinstance(alone, NUMARefusal):
            assert told == alone.reasons
            assert bool(hopeless[row]) == (not alone.resolvable)
        else:
            assert told == ()
            admission = filter_numa(state, request, amounts)
            assert not isinstance(admission, NUMARefusal)
            assert scores[row] == score_numa(state, request, amounts, admission)


def test_only_new_states_are_worked_out() -> None:
    """A second question costs nothing, a changed node costs one state."""
    worlds = [World(seed) for seed in range(10)]
    table = node_table([NodeOffer(world.state) for world in worlds] * 3)
    request = CPURequest(requests=make_resources({"cpu": 1000}), bind=True)
    verdicts = NodeVerdicts(table, NodeRequest(cpu=request))
    verdicts.fits()
    asked = verdicts.asked
    verdicts.fits()
    verdicts.fits(np.array([0, 3]))
    assert verdicts.asked == asked == len(table.states)
    holder = CPUAllocation(uid="new", cpuset=0b10)
    table.put(4, NodeOffer(table.rows[4].numa.adding(holder)))
    verdicts.fits()
    assert verdicts.asked == asked + 1
    assert table.rows[4].numa.allocations[-1] is holder
    assert table.ids[4] != table.ids[14]


def test_equal_states_of_other_holders_are_one() -> None:
    """Who the holders are makes no difference."""
    node = World(3).node
    first = NUMAState.of(node, [CPUAllocation(uid="a", cpuset=0b11)])
    second = NUMAState.of(node, [CPUAllocation(uid="b", cpuset=0b1), CPUAllocation(uid="c", cpuset=0b10)])
    assert len(node_table([NodeOffer(first), NodeOffer(second)]).states) == 1
