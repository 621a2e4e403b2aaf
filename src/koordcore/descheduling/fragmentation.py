"""Evicting pods of nodes whose resource types are unevenly allocated (``plugins/fragmentation``).

The reference's heuristic: single evictions, one per node, judged by the node that they leave.
:mod:`koordcore.descheduling.defrag` plans moves instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from koordcore.colocation.config import selector_of
from koordcore.descheduling.evict import Eviction, Evictor, admitted
from koordcore.descheduling.nodefit import Fit
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.rebalance import FragmentationAwareArgs

__all__ = ["balance_fragmentation", "imbalance", "imbalance_gains"]


def imbalance(
    requested: Mapping[str, int], allocatable: Mapping[str, int], resources: Iterable[str]
) -> float:
    """Give the population standard deviation of the requested shares; 0 for less than two resources.

    Parameters
    ----------
    requested, allocatable
        Amounts (milli-CPU, bytes, counts).
    resources
        Which; those that the node lacks do not count.
    """
    shares = [
        requested.get(name, 0) / allocatable[name] for name in resources if allocatable.get(name, 0) > 0
    ]
    if not shares:
        return 0.0
    mean = sum(shares) / len(shares)
    return math.sqrt(sum((one - mean) * (one - mean) for one in shares) / len(shares))


def imbalance_gains(
    node: Node, pods: Sequence[Pod], resources: Sequence[str]
) -> tuple[float, tuple[float, ...]]:
    """Give a node's imbalance, and how much of it would go with each pod.

    Parameters
    ----------
    node
        The node.
    pods
        Those of the node that have not ended.
    resources
        Which shares are compared.
    """
    total: Counter[str] = Counter()
    for pod in pods:
        total.update(pod.requests)
    before = imbalance(total, node.allocatable, resources)

    def without(pod: Pod) -> float:
        left = dict(total)
        # Pods of one uid are one pod to upstream and go together; without uids each goes alone.
        for one in pods if pod.uid else ():
            if one.uid == pod.uid and one is not pod:
                left = {name: amount - one.requests.get(name, 0) for name, amount in left.items()}
        left = {name: amount - pod.requests.get(name, 0) for name, amount in left.items()}
        return before - imbalance(left, node.allocatable, resources)

    return before, tuple(map(without, pods))


def balance_fragmentation(
    nodes: Sequence[Node], pods: Sequence[Pod], args: FragmentationAwareArgs, *, evictor: Evictor
) -> tuple[Eviction, ...]:
    """Run one round: of every uneven node, evict the pod with the largest gain.

    Numbers are those of the start of the round. Pods are told apart by namespace and name.

    Parameters
    ----------
    nodes, pods
        The cluster, in the order in which nodes are visited and pods compared.
    args
        Thresholds and switches; a dry run gives what would be evicted.
    evictor
        Whoever carries the evictions out.
    """
    if args.paused:
        return ()
    selector = None if args.node_selector is None else selector_of(args.node_selector)
    chosen = [node for node in nodes if selector is None or selector.matches(node.labels)]
    fit = Fit(chosen, pods)
    admits = admitted(evictor, args.namespaces, args.pod_selectors)
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.finished:
            by_node.setdefault(pod.node_name, []).append(pod)
    evicted = []
    for node in chosen:
        own = by_node.get(node.name, [])
        before, gains = imbalance_gains(node, own, args.resources)
        if before <= args.imbalance_threshold:
            continue
        best, most = None, args.min_improvement_threshold
        for pod, gain in zip(own, gains, strict=True):
            if gain > most and admits(pod) and (not args.node_fit or fit.fits_another(pod)):
                best, most = pod, gain
        if best is not None and (args.dry_run or evictor.evict(best)):
            text = f"stdBefore={before:.4f} stdAfter={before - most:.4f} gain={most:.4f}"
            evicted.append(Eviction(best, node.name, f"fragmentation reduction: {text}"))
    return tuple(evicted)
