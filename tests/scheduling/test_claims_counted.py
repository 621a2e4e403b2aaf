"""What claims come to in numbers: how many pods of several kinds a node takes, and what evictions give."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from benchmarks.claims_data import whole_gpus
from koordcore import ClusterSnapshot, Policy, schedule
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.scheduling.plugins.claims import DynamicResources
from tests.scheduling.test_claims_gangs import cluster, member


def plugin_over(snapshot: ClusterSnapshot) -> DynamicResources:
    every = PluginSet(Workspace(snapshot), Policy()).plugins
    return next(one for one in every if isinstance(one, DynamicResources))


def kinds(*templates: str) -> list[Pod]:
    return [member(f"k-{name}", name, least=1) for name in templates]


def never(cards: int, nics: Sequence[int], wanted: Sequence[str], demand: Sequence[int]) -> list[list[int]]:
    """Which numbers of pods one node never takes together."""
    pods = kinds(*wanted)
    found = plugin_over(cluster([whole_gpus("a", cards, nics=nics)], pods)).never_together(pods, demand, [0])
    return [list(counts) for counts in found[0]]


@pytest.mark.parametrize(
    ("wanted", "demand"), [(("gpu", "two"), (4, 2)), (("gpu", "two", "pair"), (3, 2, 1)), (("gpu",), (5,))]
)
def test_what_pods_of_several_kinds_never_get_together_is_all_that_needs_more_cards_than_there_are(
    wanted: tuple[str, ...], demand: tuple[int, ...]
) -> None:
    """Four cards, and a NIC beside two of them for one pair; of one kind alone nothing is said here."""
    cards = [{"gpu": 1, "two": 2, "pair": 1}[name] for name in wanted]
    least = never(4, (0,), wanted, demand)
    for counts in product(*(range(most + 1) for most in demand)):
        told = any(all(a <= b for a, b in zip(bar, counts, strict=True)) for bar in least)
        needed = sum(each * count for each, count in zip(cards, counts, strict=True))
        assert told == (needed > 4 and sum(map(bool, counts)) > 1), counts
    assert least == sorted(least, key=sum)


def test_of_too_many_numbers_to_try_nothing_is_said() -> None:
    """Sixteen of each kind make 289 numbers with those of none, seventeen 324."""
    assert never(33, (), ("gpu", "two"), (16, 16))
    assert never(33, (), ("gpu", "two"), (17, 17)) == []


def test_devices_are_counted_that_pods_ask_for_that_are_left_and_that_others_give_back() -> None:
    low = [member(f"low-{number}", wish, least=1) for number, wish in enumerate(("two", "gpu", "gpu"))]
    snapshot = cluster([whole_gpus("a", 4), whole_gpus("b", 2)], [])
    there = schedule(snapshot.with_pending(*low)).snapshot
    running = [(pod, row) for row, state in enumerate(there.nodes) for pod in state.pods]
    plugin = plugin_over(there)
    counted = plugin.countable(kinds("gpu", "two", "eight"), running)
    assert counted is not None
    assert counted.requests.tolist() == [[1, 2, 8]]
    held = {pod.key: sum(len(one.allocation.results) for one in pod.held_claims) for pod, _ in running}
    assert sorted(held.values()) == [1, 1, 2]
    assert counted.gives.tolist() == [[held[pod.key] for pod, _ in running]]
    used = [sum(held[pod.key] for pod, at in running if at == row) for row in range(2)]
    assert counted.free.tolist() == [[4 - used[0], 2 - used[1]]]


def test_requests_with_alternatives_are_not_counted() -> None:
    snapshot = cluster([whole_gpus("a", 4)], [])
    assert plugin_over(snapshot).countable(kinds("card-or-1g"), []) is None
