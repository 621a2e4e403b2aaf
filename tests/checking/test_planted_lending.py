"""Victims that quotas give a reason for, or none: what is certain is said, and what is in doubt is not."""

from __future__ import annotations

import attrs
import pytest
from immutabledict import immutabledict

from koordcore import Bound, Nominated, Pod, Policy, ScheduleResult
from koordcore.checking.reclaims import check_reclaims
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.devices import Device, DeviceObject, DeviceType
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import PodResourceClaim
from koordcore.model.preemption import PreemptionPlan
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from tests.checking.test_planted_evictions import QUOTA, cluster, lending, of, pod, told, victims

CORE = "koordinator.sh/gpu-core"
NEEDLESS = ["default/a could stay: default/p fits all the same"]


def asking(quota: str, name: str, priority: int = 0, **amounts: int) -> Pod:
    return pod(name, 0, priority, labels={QUOTA: quota}, requests=amounts)


def test_what_nobody_uses_does_not_make_a_promise_doubtful() -> None:
    """The maximum names memory as well, of which nothing is promised and nothing used."""
    team = ElasticQuota(name="team", max={"cpu": 9000, "memory": 10}, min={"cpu": 4000})
    snapshot = cluster(of("team", "p", 1000, 5), records=(team,), n0=[of("team", "a")])
    assert told(snapshot, "n0", "a") == NEEDLESS
    used = cluster(
        asking("team", "p", 5, cpu=1000), records=(team,), n0=[asking("team", "a", cpu=1000), of("team", "b")]
    )
    assert told(used, "n0", "a") == NEEDLESS
    unpromised = [of("team", "a"), asking("team", "b", memory=1)]
    assert told(cluster(of("team", "p", 1000, 5), records=(team,), n0=unpromised), "n0", "a") == []


def theirs(**least: int) -> tuple[ClusterRecord, ...]:
    many = {"cpu": 9000, "example.com/x": 9000}
    return (
        ElasticQuota(name="mine", max=many, min={}),
        ElasticQuota(name="theirs", max=many, min=least),
    )


@pytest.mark.parametrize(
    ("asks", "least", "named"),
    [
        ({"cpu": 10}, {"cpu": 1000}, True),
        ({"cpu": 10}, {"cpu": 999}, False),
        # All that both ask for has to be promised; what only the victim asks for does not matter.
        ({"cpu": 10, "example.com/x": 1}, {"cpu": 1000}, False),
        ({"cpu": 10, "example.com/x": 1}, {"cpu": 1000, "example.com/x": 5}, True),
    ],
)
def test_a_victim_within_the_promise_of_its_own_quota_is_needless(
    asks: dict[str, int], least: dict[str, int], named: bool
) -> None:
    snapshot = cluster(
        pod("p", 0, 5, labels={QUOTA: "mine"}, requests=asks),
        records=theirs(**least),
        n1=[asking("theirs", "a", **{"cpu": 1000, "example.com/x": 5})],
    )
    found = told(snapshot, "n0", "a")
    assert (NEEDLESS[0] in found) is named


def test_devices_leave_doubt_where_a_node_tells_of_them_one_by_one() -> None:
    card = DeviceObject(name="n0", devices=(Device(type=DeviceType.GPU, minor=0, resources={CORE: 100}),))
    holds = pod("a", 1000, annotations={"scheduling.koordinator.sh/device-allocated": "{}"})
    for records, named in (
        ((), True),
        ((card,), False),
        ((NodeResourceTopology(name="n0"),), False),
        ((attrs.evolve(card, name="n1"),), True),
    ):
        snapshot = cluster(pod("p", 1000, 5), records=records, n0=[holds])
        assert told(snapshot, "n0", "a") == (NEEDLESS if named else [])


def reclaims(*pairs: tuple[str, str], before: str = "", mine: int = 2000, least: int = 1000) -> list[str]:
    """Plans for pods of ``mine``, each with a victim of ``lent``; before them somebody may be placed."""
    running = [of("lent", "a"), of("lent", "b")]
    start = lending(mine, least, running)
    waiting = [of("mine", name) for name in ("p", "q", "r")]
    snapshot = cluster(*waiting, records=tuple(start.records), n0=running)
    pods = {one.name: one for one in waiting}
    plans: list[PreemptionPlan] = []
    decisions: list[Bound | Nominated] = []
    if before:
        decisions.append(Bound(pod=pods[before].key, node="n1"))
    for name, victim in pairs:
        plan = PreemptionPlan(
            nominations=immutabledict({f"default/{name}": "n0"}),
            victims=victims(snapshot, victim),
            job=f"default/{name}",
            borrowers=("lent",),
            certificate=Certificate(CertificateStatus.HEURISTIC, (0,)),
        )
        plans.append(plan)
        decisions.append(Nominated(pod=pods[name].key, node="n0", victims=plan.victims))
    after = snapshot.assume(pods[before].at("n1")) if before else snapshot
    result = ScheduleResult(
        decisions=tuple(decisions), snapshot=after, preemptions=tuple(plans), policy=Policy()
    )
    return [f"{one.subject} {one.message}" for one in check_reclaims(snapshot, result)]


def test_whoever_was_placed_before_counts_at_the_turn() -> None:
    assert reclaims(("p", "a"), before="r") == []
    assert reclaims(("p", "a"), before="r", mine=1999) == [
        "mine reclaims for default/p and would use 2000 of cpu, 1999 promised"
    ]


def test_plans_follow_one_another() -> None:
    assert reclaims(("p", "a"), ("q", "b"), least=0) == []
    assert reclaims(("p", "a"), ("q", "b"), least=1000) == [
        "lent is within its min before the last of its victims leaves for default/q"
    ]
    assert reclaims(("p", "a"), ("q", "b"), least=0, mine=1999) == [
        "mine reclaims for default/q and would use 2000 of cpu, 1999 promised"
    ]


def test_one_of_those_who_come_with_claims_is_enough_for_doubt() -> None:
    claims = (PodResourceClaim("gpu", claim="c"),)
    moving = pod("b", 1000)
    for wish, named in ((claims, False), ((), True)):
        snapshot = cluster(
            pod("p", 1000, 5, resource_claims=wish), n0=[pod("a", 1000, resource_claims=claims)], n1=[moving]
        )
        found = told(snapshot, "n0", "a", "b", moves={"b": "n0"})
        assert (NEEDLESS[0] in found) is named
