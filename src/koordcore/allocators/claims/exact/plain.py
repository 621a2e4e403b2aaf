"""Devices that stand for themselves, handed out by a flow of least cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordcore._record import record
from koordcore.allocators.claims.exact.flow import Network
from koordcore.allocators.claims.table import Element, bits

_CONDITIONAL = 1 << 20
"""Cost of a device with binding conditions: more than any choice among others can save."""


@record(eq=False)
class PlainType:
    """Demands that the same devices can serve.

    Parameters
    ----------
    wanted
        Devices wanted by all of them.
    element
        By device: the value in which no two of them may agree; ``None`` where they may.
    """

    mask: int
    wanted: int
    element: Mapping[int, Element] | None = None


def place_plain(types: Sequence[PlainType], conditional: int) -> list[list[int]] | None:
    """Give every type its devices, those without binding conditions and those that come first if possible.

    Parameters
    ----------
    types
        The types.
    conditional
        Devices with binding conditions.

    Returns
    -------
    list of list of int, or None
        Devices by type; ``None`` where that is impossible.
    """
    if len(types) == 1 and types[0].element is None:
        return _take_first(types[0], conditional)
    classes = _classes(types, conditional)
    total = sum(one.wanted for one in types)
    tokens = sorted(
        {
            (kind, one.element[device])
            for kind, one in enumerate(types)
            if one.element
            for device in one.element
        },
        key=repr,
    )
    first_class = 2 + len(types) + 2 * len(tokens)
    network = Network(first_class + len(classes))
    token_node = {token: 2 + len(types) + 2 * place for place, token in enumerate(tokens)}
    for node in token_node.values():
        network.add(node, node + 1, 1)
    for kind, one in enumerate(types):
        network.add(0, 2 + kind, one.wanted)
    edges: list[tuple[int, int, int]] = []
    for place, devices in enumerate(classes):
        network.add(first_class + place, 1, len(devices))
        device = devices[0]
        cost = place + (_CONDITIONAL if conditional >> device & 1 else 0)
        for kind, one in enumerate(types):
            if not one.mask >> device & 1:
                continue
            start = 2 + kind
            if one.element is not None:
                node = token_node[kind, one.element[device]]
                network.add(2 + kind, node, 1)
                start = node + 1
            edges.append((kind, place, network.add(start, first_class + place, len(devices), cost)))
    if network.fill(total) < total:
        return None
    free = [list(devices) for devices in classes]
    placed: list[list[int]] = [[] for _ in types]
    for kind, place, edge in edges:
        for _ in range(network.flow(edge)):
            placed[kind].append(free[place].pop(0))
    return placed


def _take_first(one: PlainType, conditional: int) -> list[list[int]] | None:
    """Serve one type for which nobody competes: those without binding conditions, in their order."""
    if one.mask.bit_count() < one.wanted:
        return None
    devices = [*bits(one.mask & ~conditional), *bits(one.mask & conditional)]
    return [devices[: one.wanted]]


def _classes(types: Sequence[PlainType], conditional: int) -> list[list[int]]:
    """Group the devices that nothing tells apart, in the order of their first members."""
    everything = 0
    for one in types:
        everything |= one.mask
    found: dict[object, list[int]] = {}
    for device in bits(everything):
        key = (
            tuple(
                (one.element[device] if one.element is not None else True) if one.mask >> device & 1 else None
                for one in types
            ),
            conditional >> device & 1,
        )
        found.setdefault(key, []).append(device)
    return list(found.values())
