"""A whole cluster is held to the rules as it stands."""

from __future__ import annotations

import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    ManifestError,
    Node,
    NodeState,
    Pod,
    Policy,
    PreemptionRules,
    ViolationKind,
    schedule,
    verify,
)
from koordcore.checking.cpus import cpulist
from koordcore.checking.placement import check_place
from koordcore.model.affinity import TaintEffect, Toleration, TolerationOperator
from koordcore.model.gangs import PodGroup
from koordcore.model.quotas import ElasticQuota
from koordcore.topology.cpu import parse_cpulist

ROOM = {"cpu": 4000, "memory": 2**33, "pods": 10}
GANG = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"


def cluster(*pods: Pod, **node: object) -> ClusterSnapshot:
    one = Node(name="n", allocatable=ROOM, **node)  # type: ignore[arg-type]
    return ClusterSnapshot(nodes=[NodeState(one, tuple(pod.at("n") for pod in pods))])


def kinds(snapshot: ClusterSnapshot) -> set[ViolationKind]:
    return {one.kind for one in verify(snapshot)}


def test_what_fits_is_legal_and_what_waits_is_not_looked_at() -> None:
    snapshot = cluster(Pod(name="a", requests={"cpu": 4000})).with_pending(
        Pod(name="b", requests={"cpu": 9000})
    )
    assert verify(snapshot) == ()


def test_a_node_that_holds_more_than_it_has_is_found() -> None:
    some = [Pod(name=name, requests={"cpu": 3000}) for name in "ab"]
    assert kinds(cluster(*some)) == {ViolationKind.RESOURCE}


def test_half_a_gang_and_a_quota_beyond_its_max_are_found() -> None:
    pod = Pod(name="a", labels={GANG: "g", QUOTA: "q"}, requests={"cpu": 2000})
    half = cluster(pod).with_records(
        PodGroup(namespace="default", name="g", min_member=2), ElasticQuota(name="q", max={"cpu": 1000})
    )
    assert kinds(half) == {ViolationKind.GANG, ViolationKind.QUOTA}
    without = Policy().without_plugin("ElasticQuota")
    assert {one.kind for one in verify(half, policy=without)} == {ViolationKind.GANG}


def test_what_kubernetes_asks_only_at_the_start_is_named_as_well() -> None:
    assert kinds(cluster(Pod(name="a"), unschedulable=True)) == {ViolationKind.CORDON}


def test_a_result_has_a_policy_of_its_own() -> None:
    snapshot = cluster()
    result = schedule(snapshot, preempt=PreemptionRules())
    with pytest.raises(TypeError, match="policy: a result is held to its own"):
        verify(snapshot, result, policy=Policy())


@pytest.mark.parametrize(
    ("toleration", "fine"),
    [
        (Toleration(), True),  # no key, and the value of a cordon: none
        (Toleration(value="x"), False),
        (Toleration(key="node.kubernetes.io/unschedulable"), True),
        (Toleration(key="node.kubernetes.io/unschedulable", effect=TaintEffect.NO_EXECUTE), False),
        (Toleration(operator=TolerationOperator.EXISTS), True),
        (Toleration(key="other", operator=TolerationOperator.EXISTS), False),
    ],
)
def test_a_cordon_is_tolerated_as_kubernetes_compares_its_taint(toleration: Toleration, fine: bool) -> None:
    pod = Pod(name="a", requests={"cpu": 1}, tolerations=(toleration,))
    waiting = ClusterSnapshot(nodes=[Node(name="n", allocatable=ROOM, unschedulable=True)], pending=[pod])
    result = schedule(waiting)
    assert isinstance(result.decisions[0], Bound) == fine
    assert verify(waiting, result) == ()
    placed = {one.kind for one in check_place(pod, waiting.node("n").node, Policy())}
    assert placed == (set() if fine else {ViolationKind.CORDON})


@pytest.mark.parametrize("text", ["0,,2", "0-", "-1", "0,1,", " 0", "+1", "1_0", "5000-5001", "0-4097"])
def test_a_broken_list_of_cpus_holds_none(text: str) -> None:
    """As the library reads it, which warns: whoever wants CPUs may have them."""
    with pytest.raises(ValueError):
        cpulist(text)
    with pytest.raises(ManifestError):
        parse_cpulist(text)


@pytest.mark.parametrize("text", ["", "0", "0-3,8", "3-1", "00", "4095-4096", "4097"])
def test_a_list_of_cpus_is_read_as_the_library_reads_it(text: str) -> None:
    assert sum(1 << cpu for cpu in cpulist(text)) == parse_cpulist(text)
