"""Why nodes do not serve, in upstream's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from koordcore.allocators.gang.demand import IntVector
from koordcore.model.resources import PODS

__all__ = ["fit_error", "insufficient"]


def fit_error(nodes: int, reasons: Mapping[str, Iterable[str]]) -> str:
    """Sum up the reasons of all nodes as the scheduling framework does.

    Parameters
    ----------
    nodes
        Nodes looked at.
    reasons
        Reasons per node that does not fit.
    """
    counts = Counter(reason for texts in reasons.values() for reason in texts)
    histogram = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    head = f"0/{nodes} nodes are available"
    return f"{head}: {histogram}." if histogram else f"{head}:"


def insufficient(free: IntVector, request: IntVector, names: Sequence[str]) -> tuple[str, ...]:
    """Say which resources of one node do not suffice for one more member, in upstream's words.

    ``free`` and ``request`` have shape (R,) with the resource names in the same order.
    """
    short = [name for name, have, ask in zip(names, free, request, strict=True) if 0 < ask > have]
    return tuple("Too many pods" if name == PODS else f"Insufficient {name}" for name in short)
