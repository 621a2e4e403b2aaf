"""Quotas that count the devices of a class."""

from __future__ import annotations

from benchmarks.claims_data import whole_gpus
from koordcore import (
    ClusterSnapshot,
    ElasticQuota,
    Pod,
    PreemptionRules,
    ScheduleResult,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.checking.violation import ViolationKind
from koordcore.model.claims import ALL_DEVICES, ClaimRequest, ClaimSpec, DeviceSubRequest
from koordcore.model.pods import PodResourceClaim
from koordcore.quota.device_classes import devices_asked_for
from tests.scheduling.test_claims_gangs import cluster

NAME = "gpu.deviceclass.resource.k8s.io/devices"
QUOTA = "quota.scheduling.koordinator.sh/name"


def pod(name: str, template: str, priority: int = 0) -> Pod:
    return Pod(
        name=name,
        uid=name,
        requests={"cpu": 1000},
        labels={QUOTA: "team"},
        priority=priority,
        resource_claims=(PodResourceClaim("c", template=template),),
    )


def team(devices: int, *pods: Pod, nodes: int = 50) -> ClusterSnapshot:
    """Fifty nodes with eight cards, of which a team may have some."""
    limits = {"cpu": 10**9, NAME: devices}
    quota = ElasticQuota(name="team", max=limits, min=limits)
    return cluster([whole_gpus(f"n{n:02}", 8) for n in range(nodes)], pods).with_records(quota)


def legal(snapshot: ClusterSnapshot, preempt: PreemptionRules | None = None) -> ScheduleResult:
    result = schedule(snapshot, preempt=preempt)
    assert verify(snapshot, result) == ()
    return result


def test_a_team_gets_no_more_devices_of_a_class_than_its_quota_says() -> None:
    result = legal(team(5, *(pod(f"p{number}", "two") for number in range(4))))
    assert len(result.bound) == 2
    refused = next(one for one in result.decisions if isinstance(one, Unschedulable))
    assert NAME in refused.message
    # One more device is within it.
    assert len(legal(result.snapshot.with_pending(pod("q", "gpu"))).bound) == 1


def test_a_plan_beyond_the_quota_is_not_legal() -> None:
    pods = [pod(f"p{number}", "two") for number in range(3)]
    wide = schedule(team(6, *pods))
    assert len(wide.bound) == 3
    narrow = team(5, *pods)
    found = verify(narrow, wide)
    assert ViolationKind.QUOTA in {one.kind for one in found}


def test_a_pod_of_the_same_quota_makes_room_in_it() -> None:
    start = legal(team(4, pod("low", "two", 1), pod("mid", "two", 2))).snapshot
    asked = start.with_pending(pod("high", "two", 9))
    (plan,) = legal(asked, PreemptionRules()).preemptions
    assert [one.pod.name for one in plan.victims] == ["low"]


def test_how_a_claim_is_counted() -> None:
    """Every device of a class as many as a claim may have; of alternatives the most of each class."""
    spec = ClaimSpec(
        (
            ClaimRequest("a", (DeviceSubRequest(class_name="nic", mode=ALL_DEVICES),)),
            ClaimRequest(
                "b",
                (
                    DeviceSubRequest(class_name="gpu", name="x", count=1),
                    DeviceSubRequest(class_name="mig", name="y", count=4),
                    DeviceSubRequest(class_name="gpu", name="z", count=2),
                ),
                prioritized=True,
            ),
            ClaimRequest("c", (DeviceSubRequest(class_name="gpu", count=3),)),
        )
    )
    assert devices_asked_for(spec) == {"nic": 32, "gpu": 5, "mig": 4}
