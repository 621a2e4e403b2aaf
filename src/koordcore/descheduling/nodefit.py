"""Could this pod run there: the descheduler's own, coarse test (``node/node.go``, ``NodeFit``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from koordcore.model.affinity import TaintEffect, tolerated
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod


def node_fit(pod: Pod, node: Node, requested: Mapping[str, int]) -> tuple[str, ...]:
    """List why a pod does not fit on a node; empty when it fits.

    Labels and required node affinity, taints, requests against status.allocatable, cordon. The number of
    pods is not checked; a resource that the node lacks has 0 left whatever is requested there.

    Parameters
    ----------
    pod
        Who asks.
    node
        Where.
    requested
        Sum of what the pods of the node request (milli-CPU, bytes, counts).
    """
    failures = []
    required = pod.affinity.node.required if pod.affinity and pod.affinity.node else None
    selected = all(node.labels.get(key) == value for key, value in pod.node_selector.items())
    if not selected or (required is not None and not required.matches(node.name, node.labels)):
        failures.append("pod node selector does not match the node label")
    hard = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
    if any(taint.effect in hard and not tolerated(taint, pod.tolerations) for taint in node.taints):
        failures.append("pod does not tolerate taints on the node")
    for name, amount in pod.requests.items():
        room = node.allocatable[name] - requested.get(name, 0) if name in node.allocatable else 0
        if amount > room:
            failures.append(f"insufficient {name}")
    if node.unschedulable:
        failures.append("node is not schedulable")
    return tuple(failures)


class Fit:
    """The test over one state of the cluster, with the sums of requests kept; private to one call."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self._requested: dict[str, Counter[str]] = {}
        for pod in pods:
            if pod.node_name and not pod.finished:
                self._requested.setdefault(pod.node_name, Counter()).update(pod.requests)

    def failures(self, pod: Pod, node: str) -> tuple[str, ...]:
        """List why the pod does not fit on the named node."""
        return node_fit(pod, self.nodes[node], self._requested.get(node, {}))
