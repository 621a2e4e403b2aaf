"""What single plugins count and say, where one more or one less would show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    PluginSetting,
    Pod,
    Policy,
    PreemptionRules,
    Unschedulable,
    Waiting,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.framework.workspace import Workspace
from koordcore.manifests import snapshot_from_objects
from koordcore.model.affinity import Affinity, NodeAffinity, Taint
from koordcore.model.claims import MAX_CONSUMERS
from koordcore.model.plugin_args import FitArgs, NodeAffinityArgs
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.protocol.gang_names import ANNOTATION_TOPOLOGY_SELECTOR
from koordcore.scheduling.plugins.gpu_share import GPU_MILLI, demand_of
from koordcore.scheduling.plugins.network import Coscheduling
from tests.scheduling import test_claims as claims, test_volumes as volumes
from tests.scheduling.test_gangs import WAIT, cluster, members, node

ROOM = {"cpu": 4000, "pods": 10}


def message(snapshot: ClusterSnapshot, policy: Policy) -> str:
    """The refusal of the only pod."""
    (decision,) = schedule(snapshot, policy=policy).decisions
    assert isinstance(decision, Unschedulable)
    return decision.message


def wants(key: str, value: str) -> NodeAffinity:
    return NodeAffinity(
        required=NodeSelector((NodeSelectorTerm((Requirement(key, SelectorOperator.IN, (value,)),)),))
    )


def test_an_affinity_that_the_scheduler_adds_is_told_apart_from_the_pods_own() -> None:
    policy = Policy().with_plugin(
        PluginSetting(name="NodeAffinity", args=NodeAffinityArgs(added=wants("pool", "x")))
    )
    nodes = [
        Node(name=name, labels={"pool": pool, "disk": disk}, allocatable={**ROOM, "cpu": cpu})
        for name, pool, disk, cpu in (
            ("a", "y", "ssd", 4000),
            ("b", "x", "hdd", 4000),
            ("c", "x", "ssd", 0),
            ("d", "y", "hdd", 4000),
        )
    ]
    plain, choosy = (
        Pod(name="p", requests={"cpu": 1}),
        Pod(name="p", requests={"cpu": 1}, node_selector={"disk": "ssd"}),
    )
    assert message(ClusterSnapshot(nodes=nodes, pending=[choosy]), policy) == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
        "2 node(s) didn't match scheduler-enforced node affinity."
    )
    result = schedule(ClusterSnapshot(nodes=nodes, pending=[plain]), policy=policy)
    assert [one.node for one in result.bound] == ["b"]


def test_a_part_of_a_card_without_a_number_of_cards_is_of_one_card() -> None:
    demand = demand_of(Pod(name="p", annotations={GPU_MILLI: "500"}))
    assert (demand.gpus, demand.milli) == (1, 500)


def test_resources_of_equal_and_of_different_weights_are_averaged_alike() -> None:
    chip = "example.com/chip"
    only = Node(name="a", allocatable={**ROOM, chip: 4})
    asks = Pod(name="p", requests={"cpu": 1000, chip: 3})
    found = []
    for weights in ((("cpu", 1), (chip, 1)), (("cpu", 7), (chip, 7)), (("cpu", 1), (chip, 3))):
        policy = Policy().with_plugin(PluginSetting(name="NodeResourcesFit", args=FitArgs(resources=weights)))
        told = explain(ClusterSnapshot(nodes=[only], pending=[asks]), "default/p", policy=policy).verdicts[0]
        found.append(told.scores["NodeResourcesFit"])
    assert found == [50, 50, 37]  # 75 of the CPUs are left, 25 of the chips


def test_pods_that_left_draw_nobody_near() -> None:
    marked = {ANNOTATION_TOPOLOGY_SELECTOR: "job"}
    there = [Pod(name=name, annotations=marked).at("a") for name in ("one", "two")]
    workspace = Workspace(ClusterSnapshot(nodes=[Node(name="a", allocatable=ROOM)]).assume(*there))
    plugin = Coscheduling(workspace)
    assert plugin.counts("job") == {"a": 2}
    for left, pod in ((1, there[0]), (0, there[1])):
        workspace.evict(pod.key, 0)
        assert plugin.counts("job") == {"a": left}


# -- volumes and claims --------------------------------------------------------------------------------------


def test_a_volume_is_attached_until_the_last_who_uses_it_has_left() -> None:
    """One volume a node attaches, two pods use it: only without both there is room for another."""
    objects = [
        volumes.node("a"),
        volumes.csi_node("a", 1),
        *map(volumes.disk, ("v", "w")),
        volumes.named_claim("c", "v"),
        volumes.named_claim("d", "w"),
        *(volumes.user(name, "c", on="a") for name in ("one", "two")),
    ]
    urgent = volumes.user("urgent", "d")
    urgent["spec"]["priority"] = 9
    snapshot = snapshot_from_objects([*objects, urgent]).snapshot
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert [sorted(one.pod.name for one in plan.victims) for plan in result.preemptions] == [["one", "two"]]


@pytest.mark.parametrize("others", [MAX_CONSUMERS - 1, MAX_CONSUMERS])
def test_a_claim_serves_as_many_pods_as_its_status_can_name(others: int) -> None:
    shared = claims.taken("c", "gpu-0", *(f"u{number}" for number in range(others)))
    snapshot = claims.cluster(
        {"a": 1}, shared, pending=[claims.pod("p", claim="c"), claims.pod("q", claim="c")]
    )
    decisions = claims.legal(snapshot).decisions
    bound = [one.pod.name for one in decisions if isinstance(one, Bound)]
    assert bound == (["p"] if others < MAX_CONSUMERS else [])
    last = decisions[-1]
    assert isinstance(last, Unschedulable)
    assert f"reserved for {MAX_CONSUMERS} pods already" in last.message


# -- time ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("second", "held"), [(89, 1), (90, 0)])
def test_the_wait_begins_with_as_many_members_as_are_needed_not_with_the_last(second: int, held: int) -> None:
    """Two are needed, and the second was made after half a minute; one later one does not matter."""
    made = datetime(2026, 1, 1, tzinfo=UTC)
    gang = [
        attrs.evolve(
            pod, created=made + timedelta(seconds=later), annotations={**pod.annotations, WAIT: "60s"}
        )
        for pod, later in zip(members("g", 3, 1000, 2, mode="NonStrict"), (0, 30, 80), strict=True)
    ]
    result = schedule(cluster([node("n", 1000)], gang), now=made + timedelta(seconds=second))
    waiting: list[Any] = [one for one in result.decisions if isinstance(one, Waiting) and one.held]
    assert len(waiting) == held


def test_nodes_that_a_pod_does_not_name_are_refused_with_the_reason_of_each() -> None:
    """As a DaemonSet's pods name their one node."""
    mine = Requirement("metadata.name", SelectorOperator.IN, ("a",))
    required = NodeSelector((NodeSelectorTerm(fields=(mine,)),))
    affinity = Affinity(node=NodeAffinity(required=required))
    nodes = [
        Node(name="a", allocatable={"cpu": 1, "pods": 9}),
        Node(name="b", allocatable=ROOM),
        Node(name="c", allocatable=ROOM, taints=(Taint("t"),)),
    ]
    waiting = Pod(name="p", requests={"cpu": 4000}, affinity=affinity)
    told = message(ClusterSnapshot(nodes=nodes, pending=[waiting]), Policy())
    assert told == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s)."
    )
