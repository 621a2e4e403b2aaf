"""Scheduling pod by pod and node by node, as one would explain it on a blackboard."""

from __future__ import annotations

import math
from collections.abc import Iterable

import attrs

from koordcore.model.affinity import TaintEffect
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.scheduling.cycle import queue_order
from koordcore.snapshot import ClusterSnapshot

SCORED = ("cpu", "memory")
CARDS = "nvidia.com/gpu"


def fits(pod: Pod, node: Node, held: list[Pod]) -> bool:
    """All stock filters of the default policy."""
    if len(held) + 1 > node.allocatable.get("pods", 0):
        return False
    for name, amount in pod.requests.items():
        used = sum(other.requests.get(name, 0) for other in held)
        if amount > 0 and used + amount > node.allocatable.get(name, 0):
            return False
    for taint in node.taints:
        hard = taint.effect is not TaintEffect.PREFER_NO_SCHEDULE
        if hard and not any(one.tolerates(taint) for one in pod.tolerations):
            return False
    if node.unschedulable:
        return False
    if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
        return False
    required = pod.affinity.node.required if pod.affinity and pod.affinity.node else None
    if required is not None and not required.matches(node.name, node.labels):
        return False
    return not any(
        wanted.conflicts(taken) for other in held for taken in other.host_ports for wanted in pod.host_ports
    )


def least_allocated(pod: Pod, node: Node, held: list[Pod]) -> int:
    """Mean over cpu and memory of what would stay free, in percent."""
    scores = []
    for name in SCORED:
        whole = node.allocatable.get(name, 0)
        if whole == 0:
            continue
        used = sum(one.scored_requests.get(name, 0) for one in (*held, pod))
        scores.append(0 if used > whole else (whole - used) * 100 // whole)
    return sum(scores) // len(scores) if scores else 0


def balanced(pod: Pod, node: Node, held: list[Pod]) -> int:
    """How even the used fractions of cpu and memory would be."""
    if not any(pod.requests.get(name, 0) for name in SCORED):
        return 0
    fractions = []
    for name in SCORED:
        whole = node.allocatable.get(name, 0)
        if whole:
            used = sum(one.requests.get(name, 0) for one in (*held, pod))
            fractions.append(min(1.0, used / whole))
    if len(fractions) != 2:
        return 100
    return math.trunc((1.0 - abs(fractions[0] - fractions[1]) / 2) * 100)


def packed(pod: Pod, node: Node, held: list[Pod]) -> int:
    """How full the cards would be, in percent: those are packed, and go before CPUs and memory."""
    if not pod.requests.get(CARDS, 0):
        return 0
    used = sum(one.requests.get(CARDS, 0) for one in (*held, pod))
    return used * 100 // node.allocatable[CARDS]


def soft_taints(pod: Pod, node: Node) -> int:
    soft = [one for one in pod.tolerations if one.effect in (None, TaintEffect.PREFER_NO_SCHEDULE)]
    return sum(
        taint.effect is TaintEffect.PREFER_NO_SCHEDULE and not any(one.tolerates(taint) for one in soft)
        for taint in node.taints
    )


def preferred(pod: Pod, node: Node) -> int:
    terms = pod.affinity.node.preferred if pod.affinity and pod.affinity.node else ()
    return sum(one.weight for one in terms if one.term.matches(node.name, node.labels))


def normalised(raw: dict[str, int], *, reverse: bool) -> dict[str, int]:
    top = max(raw.values(), default=0)
    if top == 0:
        return dict.fromkeys(raw, 100 if reverse else 0)
    scaled = {name: value * 100 // top for name, value in raw.items()}
    return {name: 100 - value for name, value in scaled.items()} if reverse else scaled


def place(pod: Pod, nodes: dict[str, Node], held: dict[str, list[Pod]]) -> str | None:
    feasible = [name for name in sorted(nodes) if fits(pod, nodes[name], held[name])]
    if not feasible:
        return None
    taints = normalised({name: soft_taints(pod, nodes[name]) for name in feasible}, reverse=True)
    likes = normalised({name: preferred(pod, nodes[name]) for name in feasible}, reverse=False)
    totals = {
        name: 3 * taints[name]
        + 2 * likes[name]
        + least_allocated(pod, nodes[name], held[name])
        + balanced(pod, nodes[name], held[name])
        + 10 * packed(pod, nodes[name], held[name])
        for name in feasible
    }
    return min(feasible, key=lambda name: (-totals[name], name))


def reference_schedule(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> list[tuple[str, str | None]]:
    """Pod key and node name (or ``None``) in queue order, under the default policy."""
    nodes = {state.name: state.node for state in snapshot.nodes}
    held = {state.name: list(state.pods) for state in snapshot.nodes}
    decided = []
    for pod in queue_order(pods):
        where = None if pod.gated else place(pod, nodes, held)
        if where is not None:
            held[where].append(attrs.evolve(pod, node_name=where))
        decided.append((str(pod.key), where))
    return decided
