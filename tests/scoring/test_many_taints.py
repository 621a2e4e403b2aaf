"""Taints and tolerations by the thousand."""

from __future__ import annotations

from itertools import product

import pytest

from koordcore import ClusterSnapshot, Node, Pod, Taint, Toleration, schedule, verify
from koordcore.model import TaintEffect
from koordcore.model.affinity import Tolerances, TolerationOperator, tolerated

ALL = tuple(
    Toleration(key, operator, value, effect)
    for key, operator, value, effect in product(
        ("", "a", "b"), TolerationOperator, ("", "1", "2"), (None, TaintEffect.NO_EXECUTE)
    )
)


@pytest.mark.parametrize("taint", [Taint(key, value) for key in "ab" for value in ("", "1")])
def test_by_key_is_the_same_as_one_by_one(taint: Taint) -> None:
    """Each toleration alone, and all without it."""
    for number, one in enumerate(ALL):
        assert Tolerances([one]).cover(taint) == tolerated(taint, (one,))
        rest = ALL[:number]
        assert Tolerances(rest).cover(taint) == tolerated(taint, rest)


def test_ten_thousand_of_each_are_judged() -> None:
    """Tolerations of another key are not asked about a taint; the last taint alone keeps the pod away."""
    taints = [Taint(f"k{number}", "v") for number in range(10_000)]
    node = Node(name="n", allocatable={"cpu": 1000, "pods": 10}, taints=tuple(taints))
    some = tuple(Toleration(one.key, TolerationOperator.EQUAL, "v") for one in reversed(taints))
    fits, stays = Pod(name="fits", tolerations=some), Pod(name="stays", tolerations=some[1:])
    snapshot = ClusterSnapshot(nodes=[node], pending=[fits, stays])
    result = schedule(snapshot)
    assert [one.pod.name for one in result.bound] == ["fits"]
    assert verify(snapshot, result) == ()
