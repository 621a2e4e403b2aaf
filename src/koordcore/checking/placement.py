"""Each bound pod against its node: taints, cordon, features, selector and affinity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import ManifestError
from koordcore.model.affinity import Taint, TaintEffect, Tolerances
from koordcore.model.decisions import Bound
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.protocol.hints import HINT_PLUGIN, parse_scheduling_hint
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_CORDON: Final = Taint("node.kubernetes.io/unschedulable")


def check_placements(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """Every pod that was bound may sit where it sits."""
    nodes = {state.name: state.node for state in snapshot.nodes}
    pods = {pod.key: pod for state in result.snapshot.nodes for pod in state.pods}
    for decision in result.decisions:
        if isinstance(decision, Bound) and decision.pod in pods and decision.node in nodes:
            yield from check_place(pods[decision.pod], nodes[decision.node], result.policy)
            if result.policy.filters(HINT_PLUGIN):
                yield from _check_hint(pods[decision.pod], decision.node)


def _check_hint(pod: Pod, node: str) -> Iterator[Violation]:
    """A scheduling hint that names nodes allows no others; those that it prefers bind nobody."""
    try:
        hint = parse_scheduling_hint(pod.annotations)
    except ManifestError:
        return
    if hint is not None and hint.node_names and node not in hint.node_names:
        message = f"its hint allows {', '.join(hint.node_names)}, not {node}"
        yield Violation(ViolationKind.AFFINITY, str(pod.key), message)


def check_place(pod: Pod, node: Node, policy: Policy) -> Iterator[Violation]:
    """Tell what keeps a pod off a node."""
    subject = str(pod.key)
    allowed = Tolerances(pod.tolerations)
    if policy.filters("TaintToleration"):
        for taint in node.taints:
            hard = taint.effect is not TaintEffect.PREFER_NO_SCHEDULE
            if hard and not allowed.cover(taint):
                yield Violation(ViolationKind.TAINT, subject, f"does not tolerate {taint} of {node.name}")
    if policy.filters("NodeUnschedulable") and node.unschedulable and not allowed.cover(_CORDON):
        yield Violation(ViolationKind.CORDON, subject, f"{node.name} is cordoned")
    lacking = [feature for feature in pod.features if feature not in node.features]
    if lacking and policy.filters("NodeDeclaredFeatures"):
        message = f"needs {', '.join(lacking)}, which {node.name} does not declare"
        yield Violation(ViolationKind.FEATURE, subject, message)
    if policy.filters("NodeAffinity"):
        yield from _check_affinity(pod, node, policy)


def _check_affinity(pod: Pod, node: Node, policy: Policy) -> Iterator[Violation]:
    subject = str(pod.key)
    for key, value in sorted(pod.node_selector.items()):
        if node.labels.get(key) != value:
            message = f"wants {key}={value}, {node.name} has {node.labels.get(key)}"
            yield Violation(ViolationKind.AFFINITY, subject, message)
    setting = policy.plugin("NodeAffinity")
    added = setting.args.added if setting and setting.args else None
    own = pod.affinity.node if pod.affinity else None
    for affinity, whose in ((own, "its"), (added, "the policy's")):
        required = affinity.required if affinity else None
        if required is not None and not required.matches(node.name, node.labels):
            message = f"{whose} required affinity does not match {node.name}"
            yield Violation(ViolationKind.AFFINITY, subject, message)
