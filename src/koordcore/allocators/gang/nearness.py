"""Topology-aware scores for pods that share a network-topology selector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from koordcore.topology.network import NetworkTopology


def nearness_positions(
    tree: NetworkTopology | None, candidates: Sequence[str], existing: Mapping[str, int]
) -> dict[str, int]:
    """Order candidate nodes by how near they are to the pods of the same selector.

    Compared from the node up through its domains: more pods of the selector first, then fewer candidates
    (a tight domain first), then the node's name. Nodes outside the tree come last, by name; without a tree
    no node is better than another.

    Parameters
    ----------
    tree
        The network, None for none.
    candidates
        Names of the nodes that passed the filters.
    existing
        Pods of the selector per node name.

    Returns
    -------
    dict
        Position of each candidate, 0 for the best.
    """
    if tree is None:
        return dict.fromkeys(candidates, 0)
    near = np.zeros(len(tree.nodes), dtype=np.int64)
    for node, count in existing.items():
        if node in tree.node_index:
            near[tree.node_index[node]] = count
    inside = sorted(name for name in candidates if name in tree.node_index)
    outside = sorted(name for name in candidates if name not in tree.node_index)
    rows = np.array([tree.node_index[name] for name in inside], dtype=np.int64)
    offered = np.zeros(len(tree.nodes), dtype=np.int64)
    offered[rows] = 1
    domains = tree.ancestors[::-1, rows]
    keys = [*(-tree.sum_up(near)[domains]), *tree.sum_up(offered)[domains]]
    order = [inside[row] for row in np.lexsort(keys[::-1])] if inside else []
    return {name: position for position, name in enumerate([*order, *outside])}


def nearness_scores(positions: Mapping[str, int]) -> dict[str, int]:
    """Turn positions into scores: 100 for the best position, 0 for the last, whole numbers between."""
    last = max(positions.values(), default=0)
    if last == 0:
        return dict.fromkeys(positions, 100)
    return {name: 100 - 100 * position // last for name, position in positions.items()}
