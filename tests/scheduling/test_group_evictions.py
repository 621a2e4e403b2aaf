"""For how many members a group of Kubernetes makes room where not everybody may leave."""

from __future__ import annotations

import pytest

from koordcore import Nominated, PodGroup, PreemptionRules
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.nodes import NodeState
from koordcore.model.scheduling_groups import CompositePodGroup, DisruptionMode
from koordcore.model.selectors import LabelSelector
from tests.scheduling.test_groups import RULES, cluster, decided, group, node, pod, pods

GANG = "pod-group.scheduling.sigs.k8s.io"
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


def running_gang(*kept: int) -> list[NodeState]:
    """A node each for three members of a gang, some of which stay, and for a pod without one."""
    gang = [
        pod(f"v-{number}", 1000, labels={GANG: "v", **(STAYS["labels"] if number in kept else {})})
        for number in range(3)
    ]
    return [node(f"n{number}", 1000, one) for number, one in enumerate([*gang, pod("bare", 1000)])]


@pytest.mark.parametrize(("least", "gone"), [(1, 3), (2, 2), (3, 1)])
def test_a_gang_of_which_a_member_stays_gives_up_what_it_can_spare(least: int, gone: int) -> None:
    nodes = running_gang(0)
    records = [PodGroup(name="v", min_member=least), group("job", 1, priority=10)]
    (plan,) = decided(cluster(nodes, pods("job", 4, priority=10), *records), preempt=RULES).preemptions
    assert len(plan.nominations) == len(plan.victims) == gone
    assert "bare" in {victim.pod.name for victim in plan.victims}
    assert plan.certificate.proven


def test_a_tree_makes_room_for_what_a_gang_can_spare() -> None:
    """Were all room to be had both groups would start; there is room for two members of one of them."""
    records = [
        PodGroup(name="v", min_member=3),
        CompositePodGroup(name="root", min_groups=1, priority=10),
        group("x", 2, parent="root", priority=10),
        group("y", 2, parent="root", priority=10),
    ]
    members = [*pods("x", 2, priority=10), *pods("y", 2, priority=10)]
    nodes = [*running_gang(0), node("n9", 1000, pod("v-3", 1000, labels={GANG: "v"}))]
    (plan,) = decided(cluster(nodes, members, *records), preempt=RULES).preemptions
    assert len(plan.nominations) == len(plan.victims) == 2
    assert len({key.partition("-")[0] for key in plan.nominations}) == 1
    # Nobody is evicted where that is not enough for any of them.
    small = cluster([*nodes[:3], nodes[4]], members, *records)
    assert decided(small, preempt=RULES).preemptions == ()


def test_within_budgets_there_is_room_for_as_many_as_these_allow() -> None:
    budget = PodDisruptionBudget(
        name="b", selector=LabelSelector(match_labels={GANG: "v"}), disruptions_allowed=1
    )
    records = [PodGroup(name="v", min_member=1), group("job", 1, priority=10), budget]
    snapshot = cluster(running_gang(), pods("job", 4, priority=10), *records)
    (plan,) = decided(snapshot, preempt=PreemptionRules(within_budgets=True)).preemptions
    assert (len(plan.nominations), plan.damage.violations) == (2, 0)
    (more,) = decided(snapshot, preempt=RULES).preemptions
    assert (len(more.nominations), more.damage.violations) == (4, 2)
