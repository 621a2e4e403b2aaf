"""Who has a say about the neighbours of pods that came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set

from koordcore.checking.domains import hard_constraints, selected
from koordcore.checking.holders import holder_of
from koordcore.checking.index import ClusterIndex, Holder
from koordcore.checking.neighbours import counted, means, terms_of
from koordcore.model.affinity import PodAffinityTerm
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation
from koordcore.model.selectors import LabelSelector


def near(
    index: ClusterIndex,
    came: Iterable[tuple[Pod, Node]],
    filters: Callable[[str], bool],
    whole: Set[str],
) -> Iterator[Holder]:
    """Give those whom a pod that came shuns, needs or is spread among, and those who shun it, where it is.

    Parameters
    ----------
    filters
        Whether a plugin has a say.
    whole
        Names of the nodes of which everybody is looked at.
    """
    spaces = index.spaces
    for pod, node in came:
        if filters("InterPodAffinity"):
            for term in terms_of(pod, "anti"):
                if not _within(index, node, term.topology_key, whole):
                    yield from _inside(index, node, term.topology_key, term.selector)
            for term in terms_of(pod, "pod"):
                yield from _needed(index, pod, node, term.topology_key, whole)
            for pair in (*pod.labels.items(), None):
                for (term, space), homes in index.shunning.get(pair, {}).items():
                    home = homes.get(node.labels.get(term.topology_key, ""), {})
                    if home and means(term, space, pod, spaces, resolved=False):
                        yield from home.values()
        if filters("PodTopologySpread") and index.has(Reservation):
            # Of pods it is known how many are where; what stands for reservations is looked at one by one.
            for rule in hard_constraints(pod):
                for one in index.candidates(rule.selector):
                    if isinstance(one, Reservation) and selected(rule, pod, holder_of(one)):
                        yield one


def _needed(
    index: ClusterIndex,
    pod: Pod,
    node: Node,
    key: str,
    whole: Set[str],
) -> Iterator[Holder]:
    """Give somebody whom a pod needs in the domain of its node, and all reservations that it may mean there.

    Who is on nodes that are looked at whole is known already, and may be about to leave. Where nobody is
    found, somebody elsewhere tells that the pod was not the first of a series.
    """
    spaces = index.spaces
    wanted = terms_of(pod, "pod")
    found, elsewhere = False, None
    seen = _within(index, node, key, whole)
    alone = not index.has(Reservation)

    def is_meant(holder: Pod) -> bool:
        return all(means(term, pod.namespace, holder, spaces, resolved=True) for term in wanted)

    for holder in index.candidates(wanted[0].selector):
        if (found and alone) or (seen and elsewhere is not None):
            break
        if isinstance(holder, Reservation):
            if _in_domain(index, holder, node, key):
                yield holder
        elif not found and holder.node_name not in whole and _in_domain(index, holder, node, key):
            found = is_meant(holder)
            if found:
                yield holder
        elif elsewhere is None and not found and counted(holder) and _is_anywhere(index, holder, wanted):
            elsewhere = holder if is_meant(holder) else None
    if elsewhere is not None and not found:
        yield elsewhere


def _inside(index: ClusterIndex, node: Node, key: str, selector: LabelSelector | None) -> Iterator[Holder]:
    """Give those whom a selector may mean in the domain of a node."""
    return (one for one in index.candidates(selector) if _in_domain(index, one, node, key))


def _within(index: ClusterIndex, node: Node, key: str, whole: Set[str]) -> bool:
    """Tell whether everybody in the domain of a node is looked at anyhow."""
    value = node.labels.get(key)
    return value is None or index.nodes_of(key, value) <= whole


def _in_domain(index: ClusterIndex, holder: Holder, node: Node, key: str) -> bool:
    state = index.states.get(_node_name(holder))
    here = node.labels.get(key)
    return state is not None and here is not None and state.node.labels.get(key) == here


def _is_anywhere(index: ClusterIndex, holder: Pod, terms: Iterable[PodAffinityTerm]) -> bool:
    """Tell whether a pod is in a domain of any of the terms' keys."""
    state = index.states.get(holder.node_name or "")
    return state is not None and any(term.topology_key in state.node.labels for term in terms)


def _node_name(holder: Holder) -> str:
    name = holder.status.node_name if isinstance(holder, Reservation) else holder.node_name
    return name or ""
