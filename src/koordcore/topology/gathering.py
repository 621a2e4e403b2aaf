"""Does a placement keep the rules of gathering? A checker that shares nothing with the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from koordcore.topology.network import CLUSTER_LAYER, NetworkTopology


def gathering_violations(
    tree: NetworkTopology,
    placed: Iterable[str],
    *,
    must_layer: str = "",
    multiples: Mapping[str, int] | None = None,
    bound: Iterable[str] = (),
) -> tuple[str, ...]:
    """List the rules that a gang's nodes break.

    Parameters
    ----------
    tree
        The network.
    placed
        Node of every member that is placed now, one entry per member.
    must_layer
        Layer of which one domain must hold all members; empty for no such rule.
    multiples
        Pod-count multiple per layer.
    bound
        Node of every member that runs already.

    Returns
    -------
    tuple of str
        One sentence per broken rule; empty for a legal placement.
    """
    fresh, before = list(placed), [node for node in bound if node in tree.node_index]
    outside = sorted({node for node in fresh if node not in tree.node_index})
    broken = [f"node {node} has no place in the network topology" for node in outside]
    paths = {node: _domains(tree, node) for node in {*fresh, *before} if node in tree.node_index}
    inside = [node for node in fresh if node in paths]
    if must_layer and fresh:
        broken += _must_gather(tree, must_layer, [paths[node] for node in inside], [paths[n] for n in before])
    for layer, multiple in sorted((multiples or {}).items()):
        if multiple <= 1 or layer not in (CLUSTER_LAYER, *tree.layers):
            continue
        counts = Counter(paths[node][layer] for node in (*inside, *before))
        broken += [
            f"{tree.label(domain)} holds {count} members, no multiple of {multiple}"
            for domain, count in sorted(counts.items())
            if count % multiple
        ]
    return tuple(broken)


def _domains(tree: NetworkTopology, node: str) -> dict[str, int]:
    """Give the domain of a node on every layer, by climbing from the node."""
    domain = tree.first_node + tree.node_index[node]
    found = {}
    while domain >= 0:
        found[tree.layer_of(domain)] = domain
        domain = int(tree.parent[domain])
    return found


def _must_gather(
    tree: NetworkTopology,
    layer: str,
    fresh: list[dict[str, int]],
    before: list[dict[str, int]],
) -> list[str]:
    if layer not in (CLUSTER_LAYER, *tree.layers):
        return [f"the network topology has no layer {layer}"]
    used = sorted({path[layer] for path in fresh})
    held = {path[layer] for path in before}
    broken = []
    if len(used) > 1:
        names = ", ".join(tree.label(domain) for domain in used)
        broken.append(f"the members are spread over {names}")
    if held and not held.issuperset(used):
        names = ", ".join(tree.label(domain) for domain in sorted(held))
        broken.append(f"the gang runs in {names} already")
    return broken
