"""How many pods hard spread constraints count in each domain, as sums that follow nodes and pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from koordcore._record import record
from koordcore.model.affinity import (
    NodeInclusionPolicy,
    TaintEffect,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod


@record
class SpreadRule:
    """A hard constraint with all that decides what it counts; equal rules are one.

    Parameters
    ----------
    keys
        Topology keys of all hard constraints of the pod: a node without one of them is not counted.
    like
        What of the pod decides which nodes are counted, and last which pods.
    """

    constraint: TopologySpreadConstraint
    keys: tuple[str, ...]
    namespace: str
    like: tuple[object, ...]

    @property
    def of_nodes(self) -> tuple[object, ...]:
        """All of it that decides which nodes it counts, whichever pods."""
        one, (*like, _) = self.constraint, self.like
        return (one.topology_key, one.node_affinity_policy, one.node_taints_policy, self.keys, *like)


Domains: TypeAlias = Callable[[SpreadRule, Pod], dict[str, int]]
"""By value of its key, each domain of a rule that a pod has, with how many pods count that are not shown."""


def hard_constraints(pod: Pod) -> list[TopologySpreadConstraint]:
    """Give the spread constraints of a pod that must hold."""
    return [
        one for one in pod.spread_constraints if one.when_unsatisfiable is UnsatisfiableAction.DO_NOT_SCHEDULE
    ]


def spread_rules(pod: Pod) -> Iterator[SpreadRule]:
    """Give the rules that a pod has to keep."""
    hard = hard_constraints(pod)
    affinity = pod.affinity.node if pod.affinity else None
    for one in hard:
        values = tuple(pod.labels.get(key) for key in one.match_label_keys)
        yield SpreadRule(
            one,
            tuple(each.topology_key for each in hard),
            pod.namespace,
            (pod.node_selector, affinity, pod.tolerations, values),
        )


def selected(constraint: TopologySpreadConstraint, like: Pod, pod: Pod) -> bool:
    """Tell whether a constraint of one pod counts another one."""
    if constraint.selector is None or not constraint.selector.matches(pod.labels):
        return False
    keys: Iterable[str] = (key for key in constraint.match_label_keys if key in like.labels)
    return all(pod.labels.get(key) == like.labels[key] for key in keys)


def counts_pod(rule: SpreadRule, like: Pod, pod: Pod) -> bool:
    """Tell whether a rule counts a pod, if it counts its node."""
    return pod.namespace == rule.namespace and pod.deleted is None and selected(rule.constraint, like, pod)


def domain_of(rule: SpreadRule, like: Pod, node: Node) -> str | None:
    """Give the domain of a node; ``None`` where a rule of such a pod does not count it."""
    value = node.labels.get(rule.constraint.topology_key)
    if value is None or not all(each in node.labels for each in rule.keys):
        return None
    return value if _counts(rule.constraint, like, node) else None


def _counts(constraint: TopologySpreadConstraint, like: Pod, node: Node) -> bool:
    """Tell whether the constraint's policies leave a node in the count."""
    if constraint.node_affinity_policy is NodeInclusionPolicy.HONOR:
        if any(node.labels.get(key) != value for key, value in like.node_selector.items()):
            return False
        required = like.affinity.node.required if like.affinity and like.affinity.node else None
        if required is not None and not required.matches(node.name, node.labels):
            return False
    if constraint.node_taints_policy is NodeInclusionPolicy.HONOR:
        hard = (one for one in node.taints if one.effect is not TaintEffect.PREFER_NO_SCHEDULE)
        return all(any(one.tolerates(taint) for one in like.tolerations) for taint in hard)
    return True


def domains_among(nodes: Iterable[NodeState]) -> Domains:
    """Give the domains of some nodes, all of whose pods are shown."""

    def domains(rule: SpreadRule, like: Pod) -> dict[str, int]:
        values = (domain_of(rule, like, state.node) for state in nodes)
        return {value: 0 for value in values if value is not None}

    return domains


class DomainSums:
    """Nodes and pods that one rule counts, by domain.

    Parameters
    ----------
    nodes
        Those of a rule that counts the same nodes, to be shared with it.
    """

    def __init__(self, rule: SpreadRule, like: Pod, nodes: Counter[str] | None = None) -> None:
        self._rule, self._like = rule, like
        self.nodes: Counter[str] = Counter() if nodes is None else nodes
        self.pods: Counter[str] = Counter()

    def node(self, node: Node, sign: int) -> None:
        """Add a node, or take it away; its pods are another matter."""
        value = domain_of(self._rule, self._like, node)
        if value is not None:
            self.nodes[value] += sign

    def pod(self, pod: Pod, node: Node, sign: int) -> None:
        """Add a pod on a node, or take it away."""
        if counts_pod(self._rule, self._like, pod):
            value = domain_of(self._rule, self._like, node)
            if value is not None:
                self.pods[value] += sign

    def without(
        self,
        shown: Iterable[NodeState],
        gone: Iterable[Node],
        come: Iterable[Node],
    ) -> dict[str, int]:
        """Give the domains after some nodes left and others came, with the pods that are not shown."""
        nodes, shown_pods = DomainSums(self._rule, self._like), DomainSums(self._rule, self._like)
        for one in gone:
            nodes.node(one, -1)
        for one in come:
            nodes.node(one, 1)
        for state in shown:
            for pod in state.pods:
                shown_pods.pod(pod, state.node, 1)
        counts = {value: self.pods[value] for value, number in self.nodes.items() if number > 0}
        for value, number in nodes.nodes.items():
            if self.nodes[value] + number > 0:
                counts[value] = self.pods[value]
            else:
                counts.pop(value, None)
        for value, number in shown_pods.pods.items():
            if value in counts:
                counts[value] -= number
        return counts


class KnownDomains:
    """Sums of the rules that were asked for, for as long as there are not too many.

    Rules of different workloads mostly count the same nodes, and share these.
    """

    MOST = 64

    def __init__(self) -> None:
        self._known: dict[SpreadRule, DomainSums] = {}
        self._first: dict[tuple[object, ...], DomainSums] = {}
        """Of the rules that count the same nodes, one."""

    def of(
        self, rule: SpreadRule, like: Pod, nodes: Iterable[NodeState], pods: Iterable[tuple[Pod, Node]]
    ) -> DomainSums:
        """Give the sums of a rule, made of all nodes and of some pods, whom it may count, where it is new."""
        found = self._known.pop(rule, None)
        if found is None:
            alike = self._first.get(rule.of_nodes)
            found = DomainSums(rule, like, None if alike is None else alike.nodes)
            for state in nodes if alike is None else ():
                found.node(state.node, 1)
            for pod, node in pods:
                found.pod(pod, node, 1)
            self._first.setdefault(rule.of_nodes, found)
        self._known[rule] = found  # the one that was asked for last is dropped last
        if len(self._known) > self.MOST:
            del self._known[next(iter(self._known))]
            used = {one.of_nodes for one in self._known}
            self._first = {key: one for key, one in self._first.items() if key in used}
        return found

    def node(self, node: Node, sign: int) -> None:
        """Add a node without its pods, or take it away."""
        for one in self._first.values():
            one.node(node, sign)

    def pod(self, pod: Pod, node: Node, sign: int) -> None:
        """Add a pod on a node, or take it away."""
        for one in self._known.values():
            one.pod(pod, node, sign)
