"""A running pod that goes to another node: what plans of moves are made of."""

from __future__ import annotations

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.pods import PodKey


@record(kw_only=True)
class Move:
    """One pod from one node to another.

    Parameters
    ----------
    pod, source, target
        Who, from where, where to.
    leaves, arrives
        Waves in which it is evicted and starts again, from 0. They differ only in a ring of moves, which
        no order can carry out without one pod being down for a while.
    """

    pod: PodKey
    source: str
    target: str
    leaves: int = 0
    arrives: int = 0

    __attrs_post_init__ = check_fields
