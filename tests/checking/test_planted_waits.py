"""Who keeps a place while the rest of its gang is missing is held to what those are held to who are bound."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    NodeState,
    Nominated,
    Pod,
    PreemptionRules,
    ScheduleResult,
    Waiting,
    explain,
    schedule,
    verify,
)
from koordcore.checking.check import check_result
from koordcore.model.affinity import Taint, TaintEffect
from koordcore.model.gangs import PodGroup
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord

GANG = "pod-group.scheduling.sigs.k8s.io"
MODE = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
QUOTA = "quota.scheduling.koordinator.sh/name"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITS = PodGroup(namespace="default", name="g", min_member=2, annotations=MODE)


def member(quota: str = "", priority: int = 10) -> Pod:
    labels = {GANG: "g"} | ({QUOTA: quota} if quota else {})
    return Pod(name="m", labels=labels, requests={"cpu": 1000}, priority=priority)


def cluster(*pending: Pod, records: tuple[ClusterRecord, ...] = (), **node: Any) -> ClusterSnapshot:
    """One node; the other member of the gang wants one that is not there."""
    other = attrs.evolve(member(priority=-1), name="z", node_selector={"none": "such"})
    there = Node(name="n", **{"allocatable": {"cpu": 8000, "pods": 9}, **node})
    return ClusterSnapshot(nodes=[there], pending=(*pending, other), records=(WAITS, *records))


def found(before: ClusterSnapshot, result: ScheduleResult) -> list[str]:
    """Give what both ways of checking find, where they agree: on the line, and without a past."""
    (one,) = (decision for decision in result.decisions if isinstance(decision, Waiting))
    assert one.held is not None
    here = [f"{each.subject} {each.message}" for each in verify(before, result)]
    assert [f"{each.subject} {each.message}" for each in check_result(before, result)] == here
    return here


def with_node(snapshot: ClusterSnapshot, **fields: Any) -> ClusterSnapshot:
    (state,) = snapshot.nodes
    return snapshot.with_nodes(NodeState(attrs.evolve(state.node, **fields), state.pods))


KEEP_OFF = Taint("dedicated", "others", TaintEffect.NO_SCHEDULE)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"taints": (KEEP_OFF,)}, "does not tolerate"),
        ({"unschedulable": True}, "n is cordoned"),
        ({"allocatable": {"cpu": 500, "pods": 9}}, "cpu: 1000"),
    ],
)
def test_a_place_that_is_kept_is_one_that_its_pod_may_have(fields: dict[str, Any], what: str) -> None:
    before = cluster(member())
    result = schedule(before, now=NOW)
    assert found(before, result) == []
    corrupt = attrs.evolve(result, snapshot=with_node(result.snapshot, **fields))
    (message,) = found(with_node(before, **fields), corrupt)
    assert what in message


def test_a_place_that_is_kept_counts_against_the_quota() -> None:
    quota = ElasticQuota(name="q", max={"cpu": 1000}, min={"cpu": 1000})
    before = cluster(member("q"), records=(quota,))
    result = schedule(before, now=NOW)
    assert found(before, result) == []
    less = attrs.evolve(quota, max={"cpu": 900}, min={"cpu": 900})
    corrupt = attrs.evolve(result, snapshot=result.snapshot.with_records(less))
    assert "q cpu: 1000 used, max is 900" in found(before.with_records(less), corrupt)


def test_a_kept_place_that_the_cluster_does_not_show_is_missed() -> None:
    before = cluster(member())
    result = schedule(before, now=NOW)
    (gone,) = result.snapshot.bound_pods()
    corrupt = attrs.evolve(result, snapshot=result.snapshot.forget(gone.key).with_pending(*before.pending))
    assert found(before, corrupt) == ["default/m is decided but not bound"]


LENT = ElasticQuota(name="lent", max={"cpu": 8000}, min={"cpu": 1000})
MINE = ElasticQuota(name="mine", max={"cpu": 8000}, min={"cpu": 8000})


def crowded(*pending: Pod) -> ClusterSnapshot:
    """A small node, in part taken by a pod of the quota that lends, beside a large one."""
    runs = Pod(name="r", labels={QUOTA: "lent"}, requests={"cpu": 500})
    small = Node(name="small", labels={"size": "small"}, allocatable={"cpu": 2000, "pods": 9})
    return cluster(*pending, records=(LENT, MINE)).with_nodes(NodeState(small, (runs.at("small"),)))


def asks(priority: int) -> Pod:
    own = Pod(name="p", labels={QUOTA: "mine"}, requests={"cpu": 1800}, priority=priority)
    return attrs.evolve(own, node_selector={"size": "small"})


def test_a_quota_is_beyond_its_min_by_what_a_member_keeps_that_waits() -> None:
    """With the member that waits it is 500 beyond; so the running pod gives back, as the scheduler counts."""
    before = crowded(member("lent"), asks(0))
    result = schedule(before, now=NOW, preempt=PreemptionRules())
    waits, _, nominated = result.decisions
    assert isinstance(waits, Waiting)
    assert isinstance(nominated, Nominated)
    assert [one.pod.name for one in nominated.victims] == ["r"]
    assert found(before, result) == []
    after = result.snapshot.forget(waits.pod).with_pending(*before.pending)
    corrupt = attrs.evolve(result, decisions=(nominated,), snapshot=after)
    assert "is within its min before" in " ".join(one.message for one in verify(before, corrupt))


def test_and_by_what_it_has_kept_since_an_earlier_call_whoever_has_a_turn_first() -> None:
    first = schedule(crowded(member("lent")), now=NOW, preempt=PreemptionRules())
    before = first.snapshot.with_pending(asks(50))
    rules = PreemptionRules()
    result = schedule(before, now=NOW, preempt=rules)
    assert [type(one).__name__ for one in result.decisions] == ["Nominated", "Waiting", "Unschedulable"]
    assert found(before, result) == []


def test_what_a_member_keeps_in_its_quota_it_keeps_in_the_next_call() -> None:
    """What it asks for goes on counting: else its quota's runtime would be what the others ask for."""
    first = schedule(crowded(member("lent")), now=NOW)
    again = schedule(first.snapshot, now=NOW)
    assert again.decisions == first.decisions
    told = explain(first.snapshot, "default/m", now=NOW)
    assert told.decision == again.decision("default/m")
    assert [one.fits for one in told.verdicts] == [True, True]


def test_a_place_that_is_kept_is_in_order_as_it_stands_and_held_to_the_rules() -> None:
    there = schedule(cluster(member()), now=NOW).snapshot
    assert verify(there) == ()
    (message,) = verify(with_node(there, unschedulable=True))
    assert str(message) == "cordon: default/m: n is cordoned"
