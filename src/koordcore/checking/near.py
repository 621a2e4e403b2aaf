"""Who has a say about the neighbours of pods that came."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from koordcore.checking.domains import hard_constraints, selected
from koordcore.checking.holders import holder_of
from koordcore.checking.index import ClusterIndex, Holder
from koordcore.checking.neighbours import means, terms_of
from koordcore.model.cluster import Namespace
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation
from koordcore.model.selectors import LabelSelector


def near(
    index: ClusterIndex,
    came: Iterable[tuple[Pod, Node]],
    filters: Callable[[str], bool],
    whole: Collection[str],
) -> Iterator[Holder]:
    """Give those whom a pod that came shuns, needs or is spread among, and those who shun it, where it is.

    Parameters
    ----------
    filters
        Whether a plugin has a say.
    whole
        Names of the nodes of which everybody is looked at.
    """
    spaces = {one.name: one.labels for one in index.of(Namespace)}
    for pod, node in came:
        if filters("InterPodAffinity"):
            for term in terms_of(pod, "anti"):
                yield from _inside(index, node, term.topology_key, term.selector)
            for term in terms_of(pod, "pod"):
                yield from _needed(index, pod, node, term.topology_key, whole)
            for (term, space), homes in index.shunning.items():
                home = homes.get(node.labels.get(term.topology_key, ""), {})
                if home and means(term, space, pod, spaces, resolved=False):
                    yield from home.values()
        if filters("PodTopologySpread"):
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
    whole: Collection[str],
) -> Iterator[Holder]:
    """Give somebody whom a pod needs in the domain of its node, and all reservations that it may mean there.

    Who is on nodes that are looked at whole is known already, and may be about to leave.
    """
    spaces = {one.name: one.labels for one in index.of(Namespace)}
    wanted = terms_of(pod, "pod")
    found = False
    for holder in index.candidates(wanted[0].selector):
        if isinstance(holder, Reservation):
            if _in_domain(index, holder, node, key):
                yield holder
        elif not found and holder.node_name not in whole and _in_domain(index, holder, node, key):
            found = all(means(term, pod.namespace, holder, spaces, resolved=True) for term in wanted)
            if found:
                yield holder


def _inside(index: ClusterIndex, node: Node, key: str, selector: LabelSelector | None) -> Iterator[Holder]:
    """Give those whom a selector may mean in the domain of a node."""
    return (one for one in index.candidates(selector) if _in_domain(index, one, node, key))


def _in_domain(index: ClusterIndex, holder: Holder, node: Node, key: str) -> bool:
    state = index.states.get(_node_name(holder))
    here = node.labels.get(key)
    return state is not None and here is not None and state.node.labels.get(key) == here


def _node_name(holder: Holder) -> str:
    name = holder.status.node_name if isinstance(holder, Reservation) else holder.node_name
    return name or ""
