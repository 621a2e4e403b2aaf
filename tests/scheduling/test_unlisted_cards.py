"""Cards of a node without a Device object: once nobody holds any, nothing is known of them again."""

from __future__ import annotations

import json

from koordcore import Bound, ClusterSnapshot, Node, Nominated, Pod, PreemptionRules, schedule, verify
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.snapshot import PodEnded

CARD = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
HELD = json.dumps({"gpu": [{"minor": 0, "resources": {name: str(amount) for name, amount in CARD.items()}}]})


def test_who_holds_the_only_card_is_evicted_for_a_more_important_pod() -> None:
    """The dry run finds the node as a call after the eviction does."""
    old = Pod(name="old", requests=CARD, annotations={DEVICE_ALLOCATED: HELD}).at("n")
    new = Pod(name="new", requests=CARD, priority=10)
    node = Node(name="n", allocatable={"cpu": 4000, "pods": 9, **dict.fromkeys(CARD, 800)})
    cluster = ClusterSnapshot(nodes=[node], pending=[new]).assume(old)
    result = schedule(cluster, preempt=PreemptionRules())
    (decision,) = result.decisions
    assert isinstance(decision, Nominated)
    assert verify(cluster, result) == ()
    (bound,) = schedule(cluster.apply(PodEnded(old.key))).decisions
    assert isinstance(bound, Bound)
    assert bound.notes == ("no card chosen: the node has no Device object",)
