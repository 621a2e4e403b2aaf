"""Plans that their dry run refuses are cut out and planned anew; whatever is asked gets an answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from immutabledict import immutabledict

from koordcore.checking import verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.decisions import Nominated, Unschedulable
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric, measured_of
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.quotas import ElasticQuota
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.times import moment_of
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot

RULES = PreemptionRules()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "kubernetes.io/hostname"
GANG = "gang.scheduling.koordinator.sh"


def node(name: str, amounts: dict[str, int], *pods: Pod) -> NodeState:
    there = Node(name=name, allocatable={"pods": 10, **amounts}, labels={HOST: name})
    return NodeState(there, tuple(pod.at(name) for pod in pods))


def victims(result: ScheduleResult) -> list[str]:
    return [victim.pod.name for plan in result.preemptions for victim in plan.victims]


def test_a_quota_without_a_bound_is_no_hindrance() -> None:
    """The preemptor belongs to no quota of its own; the default one has upstream's limit of all there is."""
    quota = ElasticQuota(name="q", namespace="default", min=immutabledict(cpu=1), max=immutabledict(cpu=9))
    low, high = Pod(name="low", requests={"cpu": 4000}), Pod(name="high", requests={"cpu": 4000}, priority=9)
    snapshot = ClusterSnapshot(nodes=[node("n", {"cpu": 4000}, low)], pending=[high], records=[quota])
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["low"]
    assert verify(snapshot, result) == ()


def test_a_gang_that_needs_nobody_any_more_is_only_refused() -> None:
    """Its minimum runs, it has no room for more, and somebody before it in the queue was nominated."""
    gang = {f"{GANG}/name": "g", f"{GANG}/min-available": "1"}
    running = (
        Pod(name="g-0", requests={"cpu": 2000}, annotations=gang, priority=100),
        Pod(name="low", requests={"cpu": 2000}),
    )
    pending = [
        Pod(name="high", requests={"cpu": 2000}, priority=1000),
        Pod(name="g-1", requests={"cpu": 2000}, annotations=gang, priority=100),
    ]
    snapshot = ClusterSnapshot(nodes=[node("n", {"cpu": 4000}, *running)], pending=pending)
    result = schedule(snapshot, preempt=RULES)
    assert [type(one) for one in result.decisions] == [Nominated, Unschedulable]
    assert verify(snapshot, result) == ()


def test_without_nodes_there_is_nobody_to_evict() -> None:
    asked = Pod(name="g", requests={"nvidia.com/gpu": 1})
    (decision,) = schedule(ClusterSnapshot(pending=[asked]), preempt=RULES).decisions
    assert isinstance(decision, Unschedulable)
    assert decision.refusal == "no nodes available to schedule pods"


@pytest.mark.parametrize(("holder", "partner"), [(20, 10), (10, 20)])
def test_whom_the_pod_needs_beside_it_stays(holder: int, partner: int) -> None:
    """To evict the partner is the cheaper plan in the first case, and no help."""
    card = {"nvidia.com/gpu": 1}
    term = PodAffinityTerm(selector=LabelSelector(immutabledict(app="c")), topology_key=HOST)
    asked = Pod(name="x", requests=card, priority=100, affinity=Affinity(pod=PodAffinity(required=(term,))))
    running = (
        Pod(name="a", requests=card, priority=holder),
        Pod(name="partner", labels={"app": "c"}, requests=card, priority=partner),
    )
    snapshot = ClusterSnapshot(nodes=[node("n", {"nvidia.com/gpu": 2}, *running)], pending=[asked])
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["a"]
    assert result.preemptions[0].certificate.proven
    assert verify(snapshot, result) == ()


def numa_node(name: str, cpu: int) -> list[dict[str, Any]]:
    """Give a node whose CPUs lie on two NUMA nodes, one of which has to hold a pod."""
    half = str(cpu // 2)
    zone = [{"name": "cpu", "capacity": half, "allocatable": half, "available": half}]
    label = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}
    return [
        {**plain_node(name, cpu), "metadata": {"name": name, "labels": label}},
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {"name": name},
            "topologyPolicies": ["None"],
            "zones": [{"name": f"node-{number}", "type": "Node", "resources": zone} for number in range(2)],
        },
    ]


def plain_node(name: str, cpu: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}},
    }


def manifest(name: str, cpu: int, priority: int, on: str | None = None) -> dict[str, Any]:
    amounts = {"cpu": str(cpu)}
    containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
        "spec": {"priority": priority, "containers": containers, **({"nodeName": on} if on else {})},
    }


@pytest.mark.parametrize("priority", [10, 50])
def test_cheap_victims_where_no_eviction_helps_do_not_block_other_nodes(priority: int) -> None:
    """16 CPUs are asked for; no NUMA node of ``a`` has as many, whoever leaves it."""
    objects = [
        *numa_node("a", 24),
        plain_node("b", 16),
        manifest("on-a", 12, priority, "a"),
        manifest("on-b", 4, 50, "b"),
        manifest("x", 16, 100),
    ]
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["on-b"]
    assert result.preemptions[0].certificate.proven
    assert verify(snapshot, result) == ()


def test_the_load_of_victims_leaves_with_them() -> None:
    """Amounts would do; the node is too busy by what ``low`` is expected to use (ruling 33)."""
    policy = Policy().with_plugin(
        PluginSetting(name="LoadAwareScheduling", args=LoadAwareArgs(usage_thresholds={"cpu": 65}))
    )
    low = Pod(name="low", requests={"cpu": 3000}, started=NOW)
    usage = measured_of({"cpu": 100, "memory": 0})
    metric = NodeMetric(node="n", update_time=moment_of(NOW), node_usage=usage)
    snapshot = ClusterSnapshot(
        nodes=[node("n", {"cpu": 4000, "memory": 2**34}, low)],
        pending=[Pod(name="p", requests={"cpu": 1000}, priority=10)],
        records=[metric],
    )
    result = schedule(snapshot, policy=policy, preempt=RULES, now=NOW)
    assert victims(result) == ["low"]
    assert result.preemptions[0].certificate.proven
    assert verify(snapshot, result) == ()
