"""Features that pods need of their kubelets, and nodes declare (``status.declaredFeatures``)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    Policy,
    PreemptionRules,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.checking.violation import ViolationKind
from koordcore.explaining import explain
from koordcore.manifests import pod_from_manifest, pod_manifest
from koordcore.snapshot.changes import NodeReplaced
from koordcore.testing import check_plugin

REFUSED = "node(s) didn't match Pod's required features"
RESTART = "RestartAllContainersOnContainerExits"
ALL_AGAIN = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [3]}}]
READ_ONLY = [{"name": "v", "mountPath": "/v", "bindMountOptions": ["noexec"]}]


def pod(**spec: Any) -> Pod:
    containers = spec.pop("containers", [{"name": "c"}])
    return pod_from_manifest({"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}})


def node(name: str, *features: str) -> Node:
    return Node(name=name, allocatable={"cpu": 4000, "pods": 10}, features=features)


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({"hostNetwork": True, "hostUsers": False}, ("UserNamespacesHostNetworkSupport",)),
        ({"hostNetwork": True, "hostUsers": True}, ()),
        ({"hostUsers": False}, ()),
        ({"containers": [{"name": "c", "restartPolicyRules": ALL_AGAIN}]}, (RESTART,)),
        ({"initContainers": [{"name": "i", "restartPolicyRules": ALL_AGAIN}]}, (RESTART,)),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, ()),
        ({"containers": [{"name": "c", "volumeMounts": READ_ONLY}]}, ("VolumeBindMountOptions",)),
        ({"ephemeralContainers": [{"name": "e", "volumeMounts": READ_ONLY}]}, ("VolumeBindMountOptions",)),
        ({"containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}, ()),
    ],
)
def test_a_pod_goes_where_its_kubelet_declares_what_it_needs(
    spec: dict[str, Any], features: tuple[str, ...]
) -> None:
    """After Kubernetes 1.37; a node that declares other things, or nothing, does not do."""
    one = pod(**spec)
    assert one.features == features
    lacking = [node("a"), node("b", "Other")]
    found = schedule(ClusterSnapshot(nodes=[*lacking, node("z", "Other", *features)], pending=[one]))
    assert [bound.node for bound in found.bound] == (["z"] if features else ["a"])
    (refused,) = schedule(ClusterSnapshot(nodes=lacking, pending=[one])).decisions
    assert isinstance(refused, Unschedulable) == bool(features)
    if isinstance(refused, Unschedulable):
        assert refused.message == f"0/2 nodes are available: 2 {REFUSED}."


def test_whoever_asks_why_is_told_which_features_are_missing() -> None:
    one = Pod(name="p", features=(RESTART, "VolumeBindMountOptions"))
    found = explain(ClusterSnapshot(nodes=[node("a", "Other")], pending=[one]), "default/p")
    (only,) = found.verdicts
    assert [one.reason for one in only.shortfalls] == [f"{REFUSED} ({RESTART}, VolumeBindMountOptions)"]


def test_no_eviction_gives_a_node_a_feature() -> None:
    one = attrs.evolve(pod(containers=[{"name": "c", "restartPolicyRules": ALL_AGAIN}]), priority=9)
    low = Pod(name="low", node_name="a", requests={"cpu": 4000})
    state = ClusterSnapshot(nodes=[NodeState(node("a"), (low,))], pending=[one])
    (refused,) = schedule(state, preempt=PreemptionRules()).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.message.startswith(f"0/1 nodes are available: 1 {REFUSED}.")


def test_the_checker_looks_at_features_by_itself() -> None:
    state = ClusterSnapshot(nodes=[node("a", "Other")], pending=[Pod(name="p", features=("Other", RESTART))])
    heedless = Policy(plugins=tuple(one for one in Policy().plugins if one.name != "NodeDeclaredFeatures"))
    result = schedule(state, policy=heedless)
    assert [one.node for one in result.bound] == ["a"]
    (told,) = result.not_looked_at
    assert str(told).startswith("1 pod that need features of nodes")
    assert verify(state, result) == ()
    (wrong,) = verify(state, attrs.evolve(result, policy=Policy()))
    assert (wrong.kind, wrong.message) == (
        ViolationKind.FEATURE,
        f"needs {RESTART}, which a does not declare",
    )


def test_a_node_that_declares_more_takes_the_pod_in_the_next_call() -> None:
    one = Pod(name="p", features=(RESTART,))
    state = ClusterSnapshot(nodes=[node("a")], pending=[one])
    assert not schedule(state).bound
    after = state.apply(NodeReplaced(node("a", RESTART)))
    assert [bound.node for bound in schedule(after).bound] == ["a"]


def test_the_plugin_keeps_its_contract() -> None:
    pods = [Pod(name="p", features=(RESTART,)), Pod(name="q")]
    state = ClusterSnapshot(nodes=[node("a"), node("b", RESTART)], pending=pods)
    assert check_plugin("NodeDeclaredFeatures", snapshots=[state]) == ()


def test_a_pod_that_is_written_back_needs_the_same() -> None:
    needs = [{"name": "c", "restartPolicyRules": ALL_AGAIN, "volumeMounts": READ_ONLY}]
    one = pod(hostNetwork=True, hostUsers=False, containers=needs)
    assert len(one.features) == 3
    assert pod_from_manifest(pod_manifest(one)) == one
