"""Gangs of members that ask for unlike amounts: what their nodes lack together, and what a quota takes."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from koordcore import Node, Pod, Policy, ScheduleResult, Unschedulable, schedule, verify
from koordcore.model.policy import DEFAULT_POLICY
from koordcore.model.records import ClusterRecord
from tests.scheduling.test_gangs import MUST, NETWORK, cluster, members, node
from tests.scheduling.test_members_beyond_limits import IN_QUOTA, quota

pytestmark = pytest.mark.solver


def gang(*cpus: int, least: int, **labels: str) -> list[Pod]:
    asking = zip(members("g", len(cpus), 0, least, spec=MUST), cpus, strict=True)
    return [attrs.evolve(one, requests={"cpu": cpu}, labels=labels) for one, cpu in asking]


def decided(
    nodes: Sequence[Node], pods: list[Pod], *records: ClusterRecord, policy: Policy = DEFAULT_POLICY
) -> ScheduleResult:
    snapshot = cluster(nodes, pods, NETWORK, *records)
    result = schedule(snapshot, policy=policy)
    assert verify(snapshot, result) == ()
    return result


def test_what_a_block_lacks_is_counted_in_what_its_nodes_have_left() -> None:
    """Each of them finds a node; 4600m are asked for, and 4000m are left where any of them goes."""
    result = decided(
        [node("a1", 1000, "a"), node("a2", 3000, "a"), node("a3", 500, "a")], gang(3000, 1000, 600, least=3)
    )
    assert not result.bound
    (job,) = result.jobs
    assert job.detail == "the best BlockLayer, a, has 4 of 4600m cpu; 600m more needed"
    assert job.certificate is not None
    assert job.certificate.proven


def test_unlike_members_share_a_node_that_is_too_small_where_a_policy_leaves_amounts_out_of_account() -> None:
    policy = Policy(plugins=tuple(one for one in Policy().plugins if one.name != "NodeResourcesFit"))
    result = decided([node("a1", 1000, "a")], gang(3000, 2000, 2000, least=3), policy=policy)
    assert [one.node for one in result.bound] == ["a1"] * 3


def test_members_that_a_quota_has_nothing_left_for_are_told_so() -> None:
    """Most members start with two small ones and one of the large; the quota refuses the others."""
    waiting = gang(1000, 1000, 1000, 500, 500, least=2, **IN_QUOTA)
    result = decided([node("a1", 9000, "a")], waiting, quota(2000))
    assert sorted(one.pod.name for one in result.bound) == ["g-0", "g-3", "g-4"]
    refused = [one.message for one in result.decisions if isinstance(one, Unschedulable)]
    assert len(refused) == 2
    assert all("Insufficient quotas, quotaName: q" in text for text in refused)


def test_equal_members_go_where_they_would_without_those_that_their_quota_refuses() -> None:
    nodes = [node("a1", 5000, "a"), node("b1", 2000, "b")]
    limited = decided(nodes, gang(*[1000] * 5, least=2, **IN_QUOTA), quota(2000))
    alone = decided(nodes, gang(*[1000] * 2, least=2))
    assert [(one.pod, one.node) for one in limited.bound] == [(one.pod, one.node) for one in alone.bound]
