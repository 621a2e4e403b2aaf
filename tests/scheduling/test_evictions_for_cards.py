"""Evictions for gangs with cards: what amounts do not tell of a node is learned of all nodes at once."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from benchmarks.claims_data import mig_cards, whole_gpus
from koordcore import (
    ClusterSnapshot,
    Nominated,
    Pod,
    Policy,
    PreemptionPlan,
    PreemptionRules,
    ResourceSlice,
    schedule,
    verify,
)
from koordcore.manifests import snapshot_from_objects
from koordcore.model.policy import DEFAULT_POLICY
from tests.scheduling.test_claims_gangs import cluster, gang, member
from tests.scheduling.test_gang_devices import CARD, GANG, PREFIX, node

pytestmark = pytest.mark.solver

NODES = 70
"""More than the plans that are tried of which each says something of one node."""


def evicting(snapshot: ClusterSnapshot, policy: Policy = DEFAULT_POLICY) -> PreemptionPlan:
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert all(isinstance(one, Nominated) for one in result.decisions)
    (plan,) = result.preemptions
    return plan


def full(nodes: list[list[ResourceSlice]], running: list[Pod], *waiting: str) -> ClusterSnapshot:
    """Nodes whose devices pods have by claims; a more important gang waits."""
    result = schedule(cluster(nodes, [attrs.evolve(one, annotations={}) for one in running]))
    assert len(result.bound) == len(running)
    return result.snapshot.with_pending(*(attrs.evolve(one, priority=100) for one in gang(*waiting)))


def test_members_share_the_card_of_who_leaves_where_each_would_rather_have_it_whole() -> None:
    low = member("low", "7g-80gb", least=1)
    plan = evicting(full([mig_cards("a", 1)], [low], *["card-or-1g"] * 7))
    assert [one.pod.name for one in plan.victims] == ["low"]
    assert len(plan.nominations) == 7


def test_a_card_beside_no_network_card_helps_nobody_however_many_nodes_offer_one() -> None:
    """Of four cards a node has two beside its network card, with the more important pods."""
    asking = [
        attrs.evolve(
            member(f"low-{number:03}", "gpu", least=1),
            priority=5 if number < 2 * NODES else 1,
            requests={"cpu": 25000 if number < 2 * NODES else 1000},
        )
        for number in range(4 * NODES)
    ]
    nodes = [whole_gpus(f"n{number:02}", 4, nics=(0,)) for number in range(NODES)]
    plan = evicting(full(nodes, asking, "pair", "pair"))
    assert [one.priority for one in plan.victims] == [5, 5]
    assert plan.certificate.proven


def running(on: str, minor: int, priority: int) -> dict[str, Any]:
    """A pod that has a card."""
    held = {"gpu": [{"minor": minor, "resources": CARD}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{on}-{minor}",
            "annotations": {f"{PREFIX}device-allocated": json.dumps(held)},
        },
        "spec": {
            "nodeName": on,
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"koordinator.sh/gpu": "100"}}}],
        },
        "status": {"phase": "Running"},
    }


def waiting(name: str, **requests: str) -> dict[str, Any]:
    """A member of a gang of two."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {f"{GANG}name": "g", f"{GANG}min-available": "2"}},
        "spec": {"priority": 100, "containers": [{"name": "c", "resources": {"requests": requests}}]},
    }


def test_a_pair_of_cards_is_found_beside_a_member_of_amounts_alone() -> None:
    """Everywhere two cards become free; only on the last node they are a pair, and dearer."""
    last = NODES - 1
    objects: list[dict[str, Any]] = []
    for number in range(NODES):
        cheap = (1, 3) if number < last else (0, 1)
        name = f"n{number:02}"
        objects += node(name)
        for minor in range(4):
            priority = 1000 if minor not in cheap else 5 if number == last else 1
            objects.append(running(name, minor, priority))
    pair = waiting("pair", **{"koordinator.sh/gpu": "200"})
    snapshot = snapshot_from_objects([*objects, pair, waiting("plain", cpu="1")]).snapshot
    # Without the plugin nothing but amounts counts for the plain member.
    plugins = tuple(one for one in Policy().plugins if one.name != "NodeNUMAResource")
    plan = evicting(snapshot, Policy(plugins=plugins))
    assert [one.pod.name for one in plan.victims] == [f"n{last}-0", f"n{last}-1"]
    assert plan.nominations["default/pair"] == f"n{last}"
