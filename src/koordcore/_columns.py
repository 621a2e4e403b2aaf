"""Columns of the cluster as records: what the kernels read.

What does not change when a pod is bound stands in :class:`ClusterLayout`, what does in
:class:`ClusterColumns`; a fork shares the layout. They are made in :mod:`koordcore._arrays`, and only that
needs numpy: a snapshot can be made, read and sent about without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from koordcore._record import record
from koordcore._vector import Vector
from koordcore.model.nodes import Node

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from koordcore._node_columns import NodeColumns
    from koordcore._offers import Offers


@record(eq=False, kw_only=True)
class ClusterLayout:
    """What the nodes are, apart from what runs on them.

    Parameters
    ----------
    names
        Node names in order; a node's *row* is its place here.
    row_of
        Name to row.
    nodes
        The nodes themselves, by row.
    resources
        Names of the resources that are counted; cpu, memory, ephemeral-storage and pods come first, then by
        name.
    index
        Resource name to row of the matrices.
    offers
        What nodes allocate; 0 where a node does not name the resource. What a node keeps back is taken off.
    kinds
        Nodes by the values of single labels, by taints, and by whether they are cordoned.
    """

    names: Sequence[str]
    row_of: Mapping[str, int]
    nodes: Vector[Node]
    resources: tuple[str, ...]
    index: Mapping[str, int]
    offers: Offers
    kinds: NodeColumns

    @property
    def allocatable(self) -> NDArray[np.int64]:
        """What nodes offer, ``(R, N)``: milli-CPU, bytes, counts."""
        return self.offers.matrix


@record(eq=False, kw_only=True)
class ClusterColumns:
    """What is taken, by resource and node.

    Parameters
    ----------
    layout
        The nodes.
    requested
        ``(R, N)``: sum of the bound pods' requests; the row of ``pods`` counts them.
    scored
        ``(R, N)``: the same with non-zero defaults for cpu and memory, as scores read it.
    """

    layout: ClusterLayout
    requested: NDArray[np.int64]
    scored: NDArray[np.int64]
