"""Why nodes and domains do not serve, in upstream's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

__all__ = ["fit_error"]


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
