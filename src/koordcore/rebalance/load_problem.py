"""From nodes, pods and their metrics to a problem of moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from koordcore.model.metrics import NodeMetric, rounded
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.model.rebalance import LowNodeLoadArgs
from koordcore.model.resources import PODS, Resources, add, make_resources
from koordcore.rebalance.classify import NodeLoad, classify_pool
from koordcore.rebalance.evict import Evictor, admitted
from koordcore.rebalance.moves import Allows, Group, Host, Movable, MoveProblem, anywhere

__all__ = ["problem_of_load", "problem_of_requests"]


def problem_of_load(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    metrics: Mapping[str, NodeMetric],
    args: LowNodeLoadArgs,
    *,
    now: int,
    evictor: Evictor,
    groups: Iterable[Group] = (),
    allows: Allows = anywhere,
    costs: Mapping[PodKey, int] | None = None,
) -> MoveProblem:
    """Set up the cooling of hot nodes as a problem of moves.

    A node belongs to the last pool that selects it; without a fresh report it neither gives nor takes.

    Parameters
    ----------
    nodes, pods, metrics
        The cluster.
    args
        Thresholds, and which pods are looked at.
    now
        Moment in nanoseconds since 1970.
    evictor
        Who says which pods may be evicted.
    groups, allows, costs
        Limits, where pods may run, and prices other than 1.
    """
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.finished:
            by_node.setdefault(pod.node_name, []).append(pod)
    loads: dict[str, NodeLoad] = {}
    for pool in args.pools:
        for load in classify_pool(pool, nodes, by_node, metrics, args, now).loads:
            loads[load.name] = load
    admits = admitted(evictor, args.namespaces, args.pod_selectors)
    hosts, movable = [], []
    for node in sorted(nodes, key=lambda node: node.name):
        own, known = by_node.get(node.name, []), loads.get(node.name)
        hosts.append(_host(node, own, known))
        if known is None:
            continue
        reported = known.metric.pod_usages()
        for pod in sorted(own, key=lambda pod: pod.key):
            if admits(pod):
                metric = reported.get((pod.namespace, pod.name))
                usage = make_resources({}) if metric is None else rounded(metric.usage)
                price = (costs or {}).get(pod.key, 1)
                movable.append(
                    Movable(pod=pod.key, node=node.name, requests=_asked(pod), usage=usage, cost=price)
                )
    return MoveProblem(hosts=tuple(hosts), movable=tuple(movable), groups=tuple(groups), allows=allows)


def problem_of_requests(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    *,
    evictor: Evictor,
    groups: Iterable[Group] = (),
    allows: Allows = anywhere,
    costs: Mapping[PodKey, int] | None = None,
) -> MoveProblem:
    """Set up moves that look at requests alone, as defragmentation does.

    Parameters
    ----------
    nodes, pods
        The cluster.
    evictor
        Who says which pods may be evicted.
    groups, allows, costs
        Limits, where pods may run, and prices other than 1.
    """
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.finished:
            by_node.setdefault(pod.node_name, []).append(pod)
    hosts, movable = [], []
    for node in sorted(nodes, key=lambda node: node.name):
        own = sorted(by_node.get(node.name, ()), key=lambda pod: pod.key)
        host = _host(node, own, None)
        hosts.append(attrs.evolve(host, receives=not node.unschedulable and node.ready))
        for pod in own:
            if evictor.admits(pod):
                price = (costs or {}).get(pod.key, 1)
                movable.append(Movable(pod=pod.key, node=node.name, requests=_asked(pod), cost=price))
    return MoveProblem(hosts=tuple(hosts), movable=tuple(movable), groups=tuple(groups), allows=allows)


def _asked(pod: Pod) -> Resources:
    return make_resources({**pod.requests, PODS: 1})


def _host(node: Node, pods: Sequence[Pod], load: NodeLoad | None) -> Host:
    requested: Resources = make_resources({PODS: len(pods)})
    for pod in pods:
        requested = add(requested, pod.requests)
    if load is None:
        return Host(name=node.name, requested=requested, allocatable=node.allocatable, receives=False)
    limits = {name: limit for name, limit in rounded(load.high).items() if name != PODS}
    return Host(
        name=node.name,
        requested=requested,
        allocatable=node.allocatable,
        usage=_usage(load),
        high=make_resources(limits),
        receives=not node.unschedulable,
    )


def _usage(load: NodeLoad) -> Resources:
    """Add up what was rounded up, so that a pod takes away exactly what it is counted with."""
    total = rounded(load.metric.system_usage)
    for metric in load.metric.pods:
        total = add(total, rounded(metric.usage))
    return total
