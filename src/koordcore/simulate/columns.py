"""Columns of a replay by how much has arrived: what the published figures are drawn from."""

from __future__ import annotations

from typing import Final

import numpy as np

from koordcore._record import record
from koordcore.simulate.course import Replay

LAST_PERCENT: Final = 130


@record
class ArrivalColumns:
    """Entry k stands for the events after which k percent of the cluster's cards had been asked for.

    Parameters
    ----------
    allocated
        Cards in use, percent of the cluster's, two decimals.
    fragmented
        Fragmented idle cards, percent of the cluster's, two decimals.
    """

    allocated: tuple[float, ...]
    fragmented: tuple[float, ...]


def arrival_columns(replay: Replay, *, last: int = LAST_PERCENT) -> ArrivalColumns:
    """Average a replay over the events of each percent arrived (``merge_*_discrete.py`` of the experiment).

    A percent without an event takes those of its neighbours, and the entry before it where these have none
    either.

    Parameters
    ----------
    replay
        A finished replay.
    last
        The last percent.
    """
    columns = replay.columns
    capacity = max(1, replay.capacity)  # a cluster without cards has none in use
    cards = capacity / 1000
    percent = np.rint(columns.arrived / cards / 10).astype(np.int64)
    allocated = np.round(columns.allocated / cards / 10, 2)
    shares = []
    fragments = []
    for k in range(last + 1):
        chosen = percent == k
        if not chosen.any():
            chosen = np.abs(percent - k) <= 1
        if chosen.any():
            shares.append(float(np.round(allocated[chosen].mean(), 2)))
            fragments.append(float(np.round(100 * columns.fragmented[chosen].mean() / capacity, 2)))
        else:
            shares.append(shares[-1] if shares else 0.0)
            fragments.append(fragments[-1] if fragments else 0.0)
    return ArrivalColumns(tuple(shares), tuple(fragments))
