"""For how many members a group of Kubernetes makes room where not everybody may leave."""

from __future__ import annotations

import pytest

from koordcore import Nominated
from koordcore.model.scheduling_groups import CompositePodGroup, DisruptionMode
from tests.scheduling.test_groups import RULES, cluster, decided, group, node, pod, pods

PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
STAYS = {"labels": {PREEMPTIBLE: "false"}}


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize(
    ("mode", "stays", "gone"),
    [
        (DisruptionMode.ALL, True, ["bare"]),
        (DisruptionMode.ALL, False, ["bare", "v-1", "v-2"]),
        (DisruptionMode.SINGLE, True, ["bare", "v-1"]),
    ],
)
def test_room_of_a_unit_that_cannot_leave_is_not_hoped_for(
    mode: DisruptionMode, stays: bool, gone: list[str], above: bool
) -> None:
    """Of a group that leaves whole one member stays, so all do; two and three more members would start."""
    nodes = [
        node("n0", 1000, pod("bare", 1000)),
        node("n1", 1000, pod("v-1", 1000, "v")),
        node("n2", 1000, pod("v-2", 1000, "v", **(STAYS if stays else {}))),
    ]
    records = [
        group("v", 1, disruption=DisruptionMode.SINGLE if above else mode, parent="root" if above else ""),
        *([CompositePodGroup(name="root", disruption=mode)] if above else []),
        group("job", 1, priority=10),
    ]
    result = decided(cluster(nodes, pods("job", 3, priority=10), *records), preempt=RULES)
    (plan,) = result.preemptions
    assert sorted(victim.pod.name for victim in plan.victims) == gone
    assert sum(isinstance(one, Nominated) for one in result.decisions) == len(gone)
    assert plan.certificate.proven
