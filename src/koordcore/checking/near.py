"""Who has a say about the neighbours of pods that came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from koordcore.checking.holders import holder_of
from koordcore.checking.index import ClusterIndex, Holder
from koordcore.checking.neighbours import hard_constraints, means, selected, terms_of
from koordcore.model.cluster import Namespace
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation
from koordcore.model.selectors import LabelSelector, SelectorOperator


def near(
    index: ClusterIndex, came: Iterable[tuple[Pod, Node]], filters: Callable[[str], bool]
) -> Iterator[Holder]:
    """Give those whom a pod that came shuns, needs or is spread among, and those who shun it, where it is.

    Parameters
    ----------
    filters
        Whether a plugin has a say.
    """
    spaces = {one.name: one.labels for one in index.of(Namespace)}
    for pod, node in came:
        if filters("InterPodAffinity"):
            for term in terms_of(pod, "anti"):
                yield from _inside(index, node, term.topology_key, term.selector)
            wanted = terms_of(pod, "pod")
            for term in wanted:
                yield from _inside(index, node, term.topology_key, wanted[0].selector)
            for (term, space), homes in index.shunning.items():
                home = homes.get(node.labels.get(term.topology_key, ""), {})
                if home and means(term, space, pod, spaces, resolved=False):
                    yield from home.values()
        if filters("PodTopologySpread"):
            for rule in hard_constraints(pod):
                for holder in _candidates(index, rule.selector):
                    other = _pod(holder)
                    if other.namespace == pod.namespace and selected(rule, pod, other):
                        yield holder


def _inside(index: ClusterIndex, node: Node, key: str, selector: LabelSelector | None) -> Iterator[Holder]:
    """Give those whom a selector may mean in the domain of a node."""
    if key not in node.labels:
        return
    for holder in _candidates(index, selector):
        state = index.states.get(_node_name(holder))
        if state is not None and state.node.labels.get(key) == node.labels[key]:
            yield holder


def _candidates(index: ClusterIndex, selector: LabelSelector | None) -> Iterable[Holder]:
    """Give all whom a selector may mean, and some others."""
    if selector is None:
        return ()
    for pair in selector.match_labels.items():
        return index.labelled.get(pair, {}).values()
    for one in selector.requirements:
        if one.operator is SelectorOperator.IN:
            pairs = [(one.key, value) for value in one.values]
            return [holder for pair in pairs for holder in index.labelled.get(pair, {}).values()]
    return index.everybody()


def _pod(holder: Holder) -> Pod:
    return holder_of(holder) if isinstance(holder, Reservation) else holder


def _node_name(holder: Holder) -> str:
    name = holder.status.node_name if isinstance(holder, Reservation) else holder.node_name
    return name or ""
