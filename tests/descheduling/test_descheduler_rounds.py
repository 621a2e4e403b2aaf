"""The heuristic against uneven nodes."""

from __future__ import annotations

import pytest

from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.resources import make_resources
from tests.reference.descheduler_rounds import imbalance, imbalance_gains

NODE = Node(name="n", allocatable=make_resources({"cpu": 10, "memory": 10}))


def pod(name: str, cpu: int, memory: int, uid: str = "") -> Pod:
    return Pod(name=name, uid=uid, requests=make_resources({"cpu": cpu, "memory": memory}), node_name="n")


def test_imbalance_is_the_deviation_of_the_shares() -> None:
    """Half and nothing deviate by a quarter; what the node lacks does not count."""
    assert imbalance({"cpu": 5}, NODE.allocatable, ["cpu", "memory", "gpu"]) == pytest.approx(0.25)
    assert imbalance({"cpu": 5}, {}, ["cpu"]) == 0.0


def test_pods_without_uid_are_several() -> None:
    """Each pod's gain is its own; with one uid they go together."""
    before, gains = imbalance_gains(NODE, [pod("a", 4, 0), pod("b", 2, 0)], ["cpu", "memory"])
    assert before == pytest.approx(0.3)
    assert gains == pytest.approx((0.2, 0.1))
    _, together = imbalance_gains(NODE, [pod("a", 4, 0, "u"), pod("b", 2, 0, "u")], ["cpu", "memory"])
    assert together == pytest.approx((0.3, 0.3))
