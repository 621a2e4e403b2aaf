"""Members that no node is at fault for: beyond a quota, or refused wherever they would go."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, Nominated, Pod, Unschedulable, schedule, verify
from koordcore.model.pods import PodResourceClaim
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from koordcore.model.scheduling_groups import CompositePodGroup
from tests.scheduling.test_gangs import MUST, NETWORK, members, node as block_node
from tests.scheduling.test_groups import RULES, cluster, group, node, pod, pods

IN_QUOTA = {"quota.scheduling.koordinator.sh/name": "q"}


def quota(cpu: int) -> ElasticQuota:
    return ElasticQuota(name="q", max=make_resources({"cpu": cpu}), min=make_resources({"cpu": cpu}))


def started(snapshot: ClusterSnapshot) -> dict[str, int]:
    """How many members of each group start."""
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    names = [one.pod.name.partition("-")[0] for one in result.bound]
    return {name: names.count(name) for name in sorted(set(names))}


def nowhere(pod: Pod) -> Pod:
    """A pod that no node takes whoever leaves: its claim does not exist."""
    return attrs.evolve(pod, resource_claims=(PodResourceClaim(name="x", claim="missing"),))


@pytest.mark.parametrize(("cpu", "expected"), [(1000, {}), (3000, {"g": 3}), (9000, {"g": 5})])
def test_a_gathered_gang_starts_with_as_many_as_its_quota_takes(cpu: int, expected: dict[str, int]) -> None:
    own = [attrs.evolve(one, labels=IN_QUOTA) for one in members("g", 5, 1000, 2, spec=MUST)]
    snapshot = ClusterSnapshot(nodes=[block_node("n", 9000, "a")], pending=own, records=[NETWORK, quota(cpu)])
    assert started(snapshot) == expected


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [(1000, {}), (2000, {"x": 2}), (4000, {"x": 2, "y": 2}), (5000, {"x": 3, "y": 2})],
)
def test_groups_below_one_share_a_quota_so_that_most_of_them_start(
    cpu: int, expected: dict[str, int]
) -> None:
    """The members of the first alone would use the quota up."""
    root = CompositePodGroup(name="root", min_groups=1, topology_keys=("zone",))
    own = [*pods("x", 4, labels=IN_QUOTA), *pods("y", 4, labels=IN_QUOTA)]
    records = [root, group("x", 2, parent="root"), group("y", 2, parent="root"), quota(cpu)]
    assert started(cluster([node("n", 9000, zone="z")], own, *records)) == expected


def test_a_member_that_no_node_takes_holds_nobody_back() -> None:
    lost, other = pods("g", 2)
    snapshot = cluster([node("n", 9000, rack="r")], [nowhere(lost), other], group("g", 1, "rack"))
    assert started(snapshot) == {"g": 1}
    refused = next(one for one in schedule(snapshot).decisions if isinstance(one, Unschedulable))
    assert refused.refusal == 'resourceclaim "missing" not found'


@pytest.mark.parametrize("key", ["", "rack"])
def test_a_group_beside_one_that_no_node_takes_makes_room(key: str) -> None:
    records: list[Any] = [
        CompositePodGroup(name="root", min_groups=1, priority=9, topology_keys=(key,) if key else ()),
        group("x", 1, parent="root", priority=9),
        group("y", 1, parent="root", priority=9),
    ]
    waiting = [nowhere(pod("x-0", 1000, "x", priority=9)), pod("y-0", 1000, "y", priority=9)]
    snapshot = cluster([node("n", 1000, pod("low", 1000), rack="r")], waiting, *records)
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    assert [one.pod.name for one in result.decisions if isinstance(one, Nominated)] == ["y-0"]
    (plan,) = result.preemptions
    assert plan.certificate.proven
    assert f"has 0 of 1 {'slots' if key else 'cpu'}; 1 more" in result.jobs[0].detail
