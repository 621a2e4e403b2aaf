"""The network tree as lines of text: one line per domain, one mark per node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from koordcore.topology.network import CLUSTER_LAYER, NetworkTopology

__all__ = ["draw_tree"]


def draw_tree(tree: NetworkTopology, marks: Mapping[str, str], legend: Mapping[str, str]) -> list[str]:
    """Draw the tree.

    Parameters
    ----------
    tree
        The network.
    marks
        One character per node name, such as ``□`` for a free one; a node without one is shown as ``·``.
    legend
        What a mark means, such as ``{"□": "free"}``; only these are counted per domain, in this order.

    Returns
    -------
    list of str
        One line per domain above the nodes, in pre-order; the lines of the lowest domains end in their nodes.
    """
    rows: list[tuple[str, str, str]] = []
    _lines(tree, 0, "", "", marks, legend, rows)
    names = max(len(name) for name, _, _ in rows)
    counts = max(len(count) for _, count, _ in rows)
    return [f"{name:<{names}}  {count:<{counts}}  {nodes}".rstrip() for name, count, nodes in rows]


def _lines(
    tree: NetworkTopology,
    domain: int,
    head: str,
    tail: str,
    marks: Mapping[str, str],
    legend: Mapping[str, str],
    rows: list[tuple[str, str, str]],
) -> str:
    """Add the lines of a domain; give the marks of all nodes below it."""
    layer = tree.layer_of(domain)
    name = "cluster" if layer == CLUSTER_LAYER else f"{layer.removesuffix('Layer')} {tree.names[domain]}"
    place = len(rows)
    rows.append(("", "", ""))
    children = tree.children(domain)
    lowest = int(tree.depth[domain]) == len(tree.layers) - 1
    if lowest:
        shown = "".join(marks.get(tree.names[child], "·") for child in children)
    else:
        shown = ""
        for child in children:
            last = child == children[-1]
            branch, below = ("└ ", "  ") if last else ("├ ", "│ ")
            shown += _lines(tree, child, tail + branch, tail + below, marks, legend, rows)
    found = Counter(shown)
    parts = [f"{len(shown)} nodes", *(f"{found[mark]} {meaning}" for mark, meaning in legend.items())]
    rows[place] = (head + name, ", ".join(parts), shown if lowest else "")
    return shown
