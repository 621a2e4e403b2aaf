"""Layers of the network above each other."""

from __future__ import annotations

from collections.abc import Sequence


def is_ancestor(layers: Sequence[str], upper: str, lower: str) -> bool:
    """Tell whether a layer lies above another; an undeclared layer counts as the topmost one."""
    index = {layer: position for position, layer in enumerate(layers)}
    return index.get(upper, 0) < index.get(lower, 0)
