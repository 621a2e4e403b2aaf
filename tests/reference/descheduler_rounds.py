"""The reference's descheduling heuristics: even shares on a node, and bin-packing when workloads shrink."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.descheduling.evict import Eviction, Evictor, admitted
from koordcore.descheduling.nodefit import Fit
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.migration import ANNOTATION_DELETION_COST, MAX_COST
from koordcore.protocol.raw_selectors import selector_of
from tests.reference.descheduler_args import BinPackStrategy, FragmentationAwareArgs, ScaleDownBinPackArgs


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


def _fits_another(fit: Fit, pod: Pod) -> bool:
    return any(not fit.failures(pod, node) for node in fit.nodes if node != pod.node_name)


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
            if gain > most and admits(pod) and (not args.node_fit or _fits_another(fit, pod)):
                best, most = pod, gain
        if best is not None and (args.dry_run or evictor.evict(best)):
            text = f"stdBefore={before:.4f} stdAfter={before - most:.4f} gain={most:.4f}"
            evicted.append(Eviction(best, node.name, f"fragmentation reduction: {text}"))
    return tuple(evicted)


_NO_COSTS: Final[immutabledict[PodKey, str]] = immutabledict()


@attrs.frozen
class RankedPod:
    """One pod in the order in which pods should go.

    Parameters
    ----------
    pod, node
        Who and where.
    score
        Other load of the node per load that can go; infinite where nothing that can go asks for anything.
    """

    pod: Pod
    node: str
    score: float


@attrs.frozen
class BinPackRound:
    """What one round gives.

    Parameters
    ----------
    ranked
        Pods that can go, first to go first.
    costs
        Deletion costs to write; only those that differ from what the pod has.
    evicted
        Pods that were evicted.
    """

    ranked: tuple[RankedPod, ...] = ()
    costs: immutabledict[PodKey, str] = _NO_COSTS
    evicted: tuple[Pod, ...] = ()


def _share(pod: Pod, node: Node, args: ScaleDownBinPackArgs) -> float:
    share = 0.0
    for name in args.resources:
        room = node.allocatable.get(name, 0)
        if room > 0:
            share += args.weights[name] * (pod.requests.get(name, 0) / room)
    return share


def scale_down_bin_pack(
    nodes: Sequence[Node], pods: Sequence[Pod], args: ScaleDownBinPackArgs, *, evictor: Evictor
) -> BinPackRound:
    """Rank the selected pods so that the nodes nearest to empty are emptied first.

    A selected pod that may not be evicted counts as other load; on a node where another one may, it is
    given the highest cost.

    Parameters
    ----------
    nodes, pods
        The cluster.
    args
        Which pods, what they are weighed by, and whether they are evicted.
    evictor
        Whoever carries the evictions out.
    """
    if args.paused:
        return BinPackRound()
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.finished:
            by_node.setdefault(pod.node_name, []).append(pod)
    selector = None if args.node_selector is None else selector_of(args.node_selector)
    chosen = [node for node in nodes if selector is None or selector.matches(node.labels)]
    entries, skipped = [], []
    for node in chosen:
        own = by_node.get(node.name, [])
        selected = _selected(own, args)
        targets = [pod for pod in selected if evictor.admits(pod)]
        if not targets:
            continue
        skipped += [pod for pod in selected if pod not in targets]
        shares = {pod.key: _share(pod, node, args) for pod in own}
        entries.append((_score(own, targets, shares), len(targets), node.name, _ordered(targets, shares)))
    entries.sort(key=lambda entry: entry[:3])
    ranked = tuple(RankedPod(pod, name, score) for score, _, name, own in entries for pod in own)
    if args.strategy == BinPackStrategy.EVICT_DIRECTLY:
        return BinPackRound(ranked, evicted=_evict(ranked, args.max_pods_to_evict or 0, evictor))
    costs = {one.pod.key: (one.pod, str(rank)) for rank, one in enumerate(ranked)}
    costs |= {pod.key: (pod, str(MAX_COST)) for pod in skipped}
    changed = {
        key: cost
        for key, (pod, cost) in sorted(costs.items())
        if pod.annotations.get(ANNOTATION_DELETION_COST) != cost
    }
    return BinPackRound(ranked, immutabledict(changed))


def _selected(pods: Sequence[Pod], args: ScaleDownBinPackArgs) -> list[Pod]:
    compiled = [selector_of(one.selector) for one in args.pod_selectors if one.selector is not None]
    return [
        pod
        for pod in pods
        if (args.namespaces is None or args.namespaces.admits(pod.namespace))
        and (not compiled or any(one.matches(pod.labels) for one in compiled))
    ]


def _score(pods: Sequence[Pod], targets: Sequence[Pod], shares: Mapping[PodKey, float]) -> float:
    going = {pod.key for pod in targets}
    target = sum(shares[pod.key] for pod in targets)
    other = sum(shares[pod.key] for pod in pods if pod.key not in going)
    if target > 0:
        return other / target
    return math.inf if other > 0 else 0.0


def _ordered(pods: Sequence[Pod], shares: Mapping[PodKey, float]) -> tuple[Pod, ...]:
    """Put larger pods first, then newer ones, then by name."""

    def newest(pod: Pod) -> float:
        return 0.0 if pod.created is None else -pod.created.timestamp()

    return tuple(sorted(pods, key=lambda pod: (-shares[pod.key], newest(pod), pod.namespace, pod.name)))


def _evict(ranked: Sequence[RankedPod], most: int, evictor: Evictor) -> tuple[Pod, ...]:
    evicted: list[Pod] = []
    for one in ranked:
        if len(evicted) >= most:
            break
        if evictor.evict(one.pod):
            evicted.append(one.pod)
    return tuple(evicted)


def sort_nodes(
    nodes: Sequence[Node],
    score: Callable[[Node], int],
) -> tuple[Node, ...]:
    """Put the hottest node first; equal nodes keep their order."""
    return tuple(sorted(nodes, key=lambda node: -score(node)))
