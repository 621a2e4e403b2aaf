"""From nodes, pods and their metrics to a problem of moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.descheduling.classify import NodeLoad, classify_pool
from koordcore.descheduling.evict import Evictor, admitted
from koordcore.descheduling.moves import Group, Host, Movable, MoveProblem, hot_hosts
from koordcore.model.mappings import EMPTY
from koordcore.model.metrics import NodeMetric, rounded
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.model.rebalance import LowNodeLoadArgs
from koordcore.model.resources import NO_RESOURCES, PODS, Resources, make_resources
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.qos import PriorityClass

_PROD: Final = "prod "
"""No resource of Kubernetes has a space in its name."""


def prod_usage(name: str) -> str:
    """Name what prod pods use of a resource: an amount of its own in ``usage`` and ``high`` of a host."""
    return _PROD + name


def resource_of(name: str) -> str:
    """Name the resource that an amount of ``usage`` and ``high`` is about."""
    return name.removeprefix(_PROD)


def problem_of_load(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    metrics: Mapping[str, NodeMetric],
    args: LowNodeLoadArgs,
    *,
    now: int,
    evictor: Evictor,
    groups: Iterable[Group] = (),
    at_once: Iterable[Group] = (),
    costs: Mapping[PodKey, int] | None = None,
    under_way: Mapping[PodKey, str] = EMPTY,
) -> MoveProblem:
    """Set up the cooling of hot nodes as a problem of moves.

    A node is held to the lowest threshold of all pools that select it: the first one selects every node, and
    any pool that finds a node hot evicts from it. Without a fresh report it neither gives nor takes. Where a
    pool has prod thresholds, what prod pods use must stay below these, too: a node above one is hot, and no
    move makes it so.

    What leaves a hot node anyhow is taken to have gone, and what comes to another to be there. Until it has
    come to that, a node takes no pod that only then has its place.

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
    groups, at_once, costs
        Limits, and prices other than 1.
    under_way
        Pods that leave their nodes anyhow, and where they go, if that is known.
    """
    by_node = _running(pods)
    loads: dict[str, NodeLoad] = {}
    limits: dict[str, dict[str, int]] = {}
    unmeasured: set[str] = set()
    for pool in args.pools:
        # Without prod thresholds of its own a pool has nothing to say about prod usage.
        prod = frozenset({*(pool.prod_high or ()), *(pool.prod_low or ())})
        found = classify_pool(pool, nodes, by_node, metrics, args, now)
        # The first pool has all nodes, also where it has no thresholds, and nothing to say of them.
        unmeasured.update(found.skipped if pool.high or pool.low or prod else ())
        for load in found.loads:
            loads[load.name] = load
            lowest = limits.setdefault(load.name, {})
            for name, limit in _limits(load, prod).items():
                lowest[name] = min(limit, lowest.get(name, limit))
    admits = admitted(evictor, args.namespaces, args.pod_selectors)
    # A pod is counted by whatever some node limits: it may go to a node of another pool.
    limited = frozenset(name for lowest in limits.values() for name in lowest)
    totals: dict[str, Resources] = {}
    amounts: dict[PodKey, Resources] = {}
    for name, load in loads.items():
        own = sorted(by_node.get(name, ()), key=_by_name)
        totals[name], used = _usages(load, own, limited)
        amounts.update((pod.key, usage) for pod, usage in zip(own, used, strict=True))
    coming: dict[str, list[Resources]] = {}
    for key, target in sorted(under_way.items()):
        coming.setdefault(target, []).append(amounts.get(key, NO_RESOURCES))
    hosts: list[Host] = []
    movable: list[Movable] = []
    for node in sorted(nodes, key=lambda node: node.name):
        own = sorted(by_node.get(node.name, ()), key=_by_name)
        if node.name not in loads:
            missing = node.name in unmeasured
            hosts.append(attrs.evolve(_host(node, own, receives=False), measured=not missing))
            continue
        high = make_resources(limits[node.name])
        host = _host(node, own, receives=not node.unschedulable, usage=totals[node.name], high=high)
        going = {pod.key: amounts[pod.key] for pod in own if pod.key in under_way}
        hosts.append(_foreseen(host, going, coming.get(node.name, ())))
        for pod in own:
            if admits(pod):
                key = pod.key
                price = costs.get(key, 1) if costs else 1
                movable.append(
                    Movable(pod=key, node=node.name, requests=_asked(pod), usage=amounts[key], cost=price)
                )
    return MoveProblem(
        hosts=tuple(hosts),
        movable=tuple(movable),
        groups=tuple(groups),
        at_once=tuple(at_once),
    )


def problem_of_requests(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    *,
    evictor: Evictor,
    groups: Iterable[Group] = (),
    at_once: Iterable[Group] = (),
    costs: Mapping[PodKey, int] | None = None,
) -> MoveProblem:
    """Set up moves that look at requests alone, as defragmentation does.

    Parameters
    ----------
    nodes, pods
        The cluster.
    evictor
        Who says which pods may be evicted.
    groups, at_once, costs
        Limits, and prices other than 1.
    """
    by_node = _running(pods)
    hosts: list[Host] = []
    movable: list[Movable] = []
    for node in sorted(nodes, key=lambda node: node.name):
        own = sorted(by_node.get(node.name, ()), key=_by_name)
        hosts.append(_host(node, own, receives=not node.unschedulable and node.ready))
        for pod in own:
            if evictor.admits(pod):
                price = costs.get(pod.key, 1) if costs else 1
                movable.append(Movable(pod=pod.key, node=node.name, requests=_asked(pod), cost=price))
    return MoveProblem(
        hosts=tuple(hosts),
        movable=tuple(movable),
        groups=tuple(groups),
        at_once=tuple(at_once),
    )


def spared(problem: MoveProblem) -> MoveProblem:
    """Keep pods off nodes that stay hot: none is given up to spare others."""
    return attrs.evolve(problem, hosts=tuple(attrs.evolve(one, spared=True) for one in problem.hosts))


def _foreseen(host: Host, going: Mapping[PodKey, Resources], coming: Sequence[Resources]) -> Host:
    """Give a hot node without what leaves it, and another with what comes to it, unless that makes it hot."""
    hot = bool(hot_hosts([host]))
    leaving = going if hot else EMPTY
    if not leaving and not coming:
        return host
    usage = dict(host.usage)
    for sign, changes in ((1, coming), (-1, leaving.values())):
        for amounts in changes:
            for name, amount in amounts.items():
                usage[name] = usage.get(name, 0) + sign * amount
    then = attrs.evolve(host, usage=make_resources(usage), leaving=tuple(sorted(leaving)))
    if hot:
        return attrs.evolve(then, receives=False)
    return attrs.evolve(host, receives=False) if hot_hosts([then]) else then


def _by_name(pod: Pod) -> tuple[str, str]:
    return pod.namespace, pod.name


def _running(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.finished:
            by_node.setdefault(pod.node_name, []).append(pod)
    return by_node


def _asked(pod: Pod) -> Resources:
    return immutabledict({**pod.requests, PODS: 1})


def _host(
    node: Node,
    pods: Sequence[Pod],
    *,
    receives: bool,
    usage: Resources = NO_RESOURCES,
    high: Resources = NO_RESOURCES,
) -> Host:
    requested = {PODS: len(pods)}
    for pod in pods:
        for name, amount in pod.requests.items():
            requested[name] = requested.get(name, 0) + amount
    return Host(
        name=node.name,
        requested=make_resources(requested),
        allocatable=node.allocatable,
        usage=usage,
        high=high,
        receives=receives,
    )


def _limits(load: NodeLoad, prod: frozenset[str]) -> Resources:
    limits = dict(rounded(load.high))
    for name, limit in rounded(load.prod_high).items():
        if name in prod:
            limits[prod_usage(name)] = limit
    return make_resources(limits)


def _usages(
    load: NodeLoad, pods: Sequence[Pod], limited: frozenset[str]
) -> tuple[Resources, list[Resources]]:
    """Add up what was rounded up, so that a pod takes away exactly what it is counted with."""
    reported: dict[tuple[str, str], Resources] = {}
    total = dict(rounded(load.metric.system_usage))
    for metric in load.metric.pods:
        amounts = reported[metric.namespace, metric.name] = rounded(metric.usage)
        for name, amount in amounts.items():
            total[name] = total.get(name, 0) + amount
    used = []
    for pod in pods:
        amounts = reported.get((pod.namespace, pod.name), NO_RESOURCES)
        own: dict[str, int] = {}
        if PODS in limited:
            own[PODS] = 1
        if pod_priority_class(pod) is PriorityClass.PROD:
            for name, amount in (*amounts.items(), (PODS, 1)):
                if prod_usage(name) in limited:
                    own[prod_usage(name)] = amount
        for name, amount in own.items():
            total[name] = total.get(name, 0) + amount
        used.append(make_resources({**amounts, **own}) if own else amounts)
    return make_resources(total), used
