"""Columns of the cluster: how they are made, and what kernels call their types.

Resource-major matrices ``(R, N)`` of int64, nodes in the order of their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import sub
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore._columns import ClusterColumns, ClusterLayout
from koordcore._moved_rows import moved_rows
from koordcore._node_columns import NodeColumns
from koordcore._offers import Offers
from koordcore._vector import Names, Splice, Vector
from koordcore.errors import ModelError
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.resources import AMOUNT_LIMIT, CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources, counted

__all__ = [
    "AMOUNT_LIMIT",
    "BoolVector",
    "ClusterColumns",
    "ClusterLayout",
    "FloatCube",
    "FloatMatrix",
    "IntCube",
    "IntMatrix",
    "IntVector",
    "Rows",
    "as_rows",
    "changed_layout",
    "columns_again",
    "compile_columns",
    "compile_layout",
    "freeze",
    "moved_layout",
    "with_resources",
]

FloatCube: TypeAlias = NDArray[np.float64]
FloatMatrix: TypeAlias = NDArray[np.float64]
IntCube: TypeAlias = NDArray[np.int64]
IntMatrix: TypeAlias = NDArray[np.int64]
IntVector: TypeAlias = NDArray[np.int64]
BoolVector: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = IntVector | slice
"""Rows of the nodes asked about: an index vector, or a slice."""

FIRST_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
CPU_ROW, MEMORY_ROW, STORAGE_ROW, PODS_ROW = range(4)


def as_rows(numbers: Sequence[int]) -> Rows:
    """Select rows of a matrix, by a slice where they follow each other: that copies nothing."""
    first = numbers[0] if numbers else 0
    if list(numbers) == list(range(first, first + len(numbers))):
        return slice(first, first + len(numbers))
    return np.array(numbers, np.int64)


def freeze(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """Make a read-only view; the caller drops the array itself."""
    array.flags.writeable = False
    return array[...]


def _offered(node: Node) -> Resources:
    """What the node allocates, less what its annotations keep back; few nodes carry any."""
    if not node.annotations:
        return node.allocatable
    # Read on the first annotated node: its room's model is a fifth of the time of `import koordcore`.
    from koordcore.protocol.reserved_on_node import trimmed_allocatable

    return trimmed_allocatable(node.allocatable, node.annotations)


def compile_layout(states: Sequence[NodeState]) -> ClusterLayout:
    """Build the static columns.

    Parameters
    ----------
    states
        Nodes in the order of their names.

    Raises
    ------
    ModelError
        When an amount exceeds ``AMOUNT_LIMIT``.
    """
    nodes = Vector(state.node for state in states)
    offered = [_offered(node) for node in nodes]
    names = {name for amounts in offered for name in amounts}
    names.update(name for state in states for pod in state.pods for name in pod.requests)
    resources = (*FIRST_RESOURCES, *sorted(filter(counted, names.difference(FIRST_RESOURCES))))
    index = {name: row for row, name in enumerate(resources)}
    allocatable = np.zeros((len(resources), len(nodes)), np.int64)
    for row, node in enumerate(nodes):
        for resource, amount in _named(index, node.name, offered[row]):
            allocatable[resource, row] = amount
    return ClusterLayout(
        names=tuple(node.name for node in nodes),
        row_of={node.name: row for row, node in enumerate(nodes)},
        nodes=nodes,
        resources=resources,
        index=index,
        offers=Offers(allocatable),
        kinds=NodeColumns(nodes),
    )


def _named(index: Mapping[str, int], name: str, offered: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Give row and amount of each resource that is counted."""
    for resource, amount in offered.items():
        if resource in index:
            _check(amount, f"node {name}: allocatable {resource}")
            yield index[resource], amount


def _column(layout: ClusterLayout, name: str, offered: Mapping[str, int]) -> list[int]:
    """Give what a node offers, one amount per resource of the layout."""
    column = [0] * len(layout.resources)
    for resource, amount in _named(layout.index, name, offered):
        column[resource] = amount
    return column


def widened_layout(layout: ClusterLayout, names: Iterable[str]) -> ClusterLayout:
    """Give the layout with a row for each of some resources; the same where all are counted already."""
    more = {name for name in names if name not in layout.index and counted(name)}
    if not more:
        return layout
    known = layout.resources[len(FIRST_RESOURCES) :]
    resources = (*FIRST_RESOURCES, *sorted((*known, *more)))
    wider = attrs.evolve(layout, resources=resources, index={name: row for row, name in enumerate(resources)})
    return attrs.evolve(wider, offers=Offers(with_resources(layout.allocatable, wider, more)))


def with_resources(array: IntMatrix, layout: ClusterLayout, new: Collection[str], fill: int = 0) -> IntMatrix:
    """Give amounts by resource, ``(..., R, N)``, with rows for more of them.

    Parameters
    ----------
    layout
        Where each resource stands afterwards.
    new
        Those of them that had no row.
    fill
        What stands in the new rows.
    """
    rows = [row for row, name in enumerate(layout.resources) if name not in new]
    made: IntMatrix = np.full((*array.shape[:-2], len(layout.resources), array.shape[-1]), fill, np.int64)
    made[..., rows, :] = array
    return made


def changed_layout(layout: ClusterLayout, changed: Mapping[int, Node]) -> ClusterLayout:
    """Give the layout of the same nodes of which some were replaced.

    Raises
    ------
    ModelError
        When an amount exceeds ``AMOUNT_LIMIT``.
    """
    offered = {row: _offered(node) for row, node in changed.items()}
    layout = widened_layout(layout, (name for amounts in offered.values() for name in amounts))
    columns = {
        row: _column(layout, node.name, offered[row])
        for row, node in changed.items()
        if offered[row] != _offered(layout.nodes[row])
    }
    nodes = layout.nodes.changed(changed)
    return attrs.evolve(
        layout,
        nodes=nodes,
        offers=layout.offers.moved((), columns) if columns else layout.offers,
        kinds=layout.kinds.changed(nodes, list(changed)),
    )


def moved_layout(
    layout: ClusterLayout,
    known: Names,
    names: Names,
    fresh: Mapping[int, NodeState],
    edits: Sequence[Splice],
) -> ClusterLayout:
    """Give the layout after nodes joined and left.

    Parameters
    ----------
    known, names
        Of all nodes, before and after.
    fresh
        Row, and the node with its pods, of those that joined or say something else.
    edits
        Rows that are taken out and put in, one after another.
    """
    offered = {row: _offered(state.node) for row, state in fresh.items()}
    named = {name for amounts in offered.values() for name in amounts}
    named.update(name for state in fresh.values() for pod in state.pods for name in pod.requests)
    layout = widened_layout(layout, named)
    columns = {row: _column(layout, state.name, offered[row]) for row, state in fresh.items()}
    replaced = {row: state.node for row, state in fresh.items()}
    nodes = layout.nodes.spliced(edits, replaced, (known.order, names.order))
    return ClusterLayout(
        names=names.order,
        row_of=names,
        nodes=nodes,
        resources=layout.resources,
        index=layout.index,
        offers=layout.offers.moved(edits, columns),
        kinds=layout.kinds.changed(nodes, list(fresh), edits),
    )


def columns_again(
    known: ClusterColumns,
    layout: ClusterLayout,
    pairs: Iterable[tuple[NodeState | None, NodeState | None]],
    edits: Sequence[Splice],
) -> ClusterColumns:
    """Give the dynamic columns after nodes changed, joined or left: only pods that came or went are added up.

    Parameters
    ----------
    known
        Those from before, of the same resources or fewer.
    pairs
        Each node that says something else, holds other pods, joined or left, before and after.
    edits
        Rows that were taken out and put in, one after another.
    """
    before = [known.requested, known.scored]
    wider = known.layout.resources != layout.resources
    if wider:  # nobody asked for what had no row
        brought = {*layout.resources}.difference(known.layout.resources)
        before = [with_resources(one, layout, brought) for one in before]
    requested, scored = (moved_rows(one, edits) if edits else one if wider else one.copy() for one in before)
    rows: list[int] = []
    differences: list[tuple[list[int], list[int]]] = []
    for old, new in pairs:
        if new is None:
            continue
        there = {} if old is None else {id(pod): pod for pod in old.pods}
        came = [pod for pod in new.pods if there.pop(id(pod), None) is None]
        if came or there:
            rows.append(layout.row_of[new.name])
            plus, minus = node_columns(layout, new.name, came), node_columns(layout, new.name, there.values())
            differences.append(([*map(sub, plus[0], minus[0])], [*map(sub, plus[1], minus[1])]))
    if rows:
        changes = np.array(differences, np.int64)
        for number, one in enumerate((requested, scored)):
            one[:, rows] += changes[:, number].T
            for resource, place in np.argwhere(one[:, rows] > AMOUNT_LIMIT).tolist():
                node, name = layout.nodes[rows[place]].name, layout.resources[resource]
                _check(int(one[resource, rows[place]]), f"node {node}: {name} of its pods")
    return ClusterColumns(layout=layout, requested=freeze(requested), scored=freeze(scored))


def compile_columns(layout: ClusterLayout, states: Sequence[NodeState]) -> ClusterColumns:
    """Build the dynamic columns from the bound pods.

    Raises
    ------
    ModelError
        When the sum on a node exceeds ``AMOUNT_LIMIT``.
    """
    requested = np.zeros(layout.allocatable.shape, np.int64)
    scored = np.zeros(layout.allocatable.shape, np.int64)
    for row, state in enumerate(states):
        if state.pods:
            requested[:, row], scored[:, row] = node_columns(layout, state.name, state.pods)
    return ClusterColumns(layout=layout, requested=freeze(requested), scored=freeze(scored))


def node_columns(layout: ClusterLayout, node: str, pods: Iterable[Pod]) -> tuple[list[int], list[int]]:
    """Add up pods of one node: ``requested`` and ``scored``, one amount per resource of the layout.

    A pod is one pod, whatever it asks for under that name.
    """
    requested = [0] * len(layout.resources)
    scored = [0] * len(layout.resources)
    index = layout.index
    number = 0
    for pod in pods:
        number += 1
        for name, amount in pod.requests.items():
            if name in index:
                requested[index[name]] += amount
        for name, amount in pod.scored_requests.items():
            if name in index:
                scored[index[name]] += amount
    requested[PODS_ROW] = scored[PODS_ROW] = number
    for name, *amounts in zip(layout.resources, requested, scored, strict=True):
        _check(max(amounts), f"node {node}: {name} of its pods")
    return requested, scored


def _check(amount: int, what: str) -> None:
    if amount > AMOUNT_LIMIT:
        raise ModelError(f"{what}: {amount} is more than {AMOUNT_LIMIT}")
