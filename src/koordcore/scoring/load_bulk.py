"""What many pods add to the load of their nodes at once: columns instead of one sum a pod.

It is what :meth:`Estimator.contribution` gives of each of them, and a law of the tests says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntCube, IntMatrix
from koordcore.model.metrics import PodMetric, rounded_column
from koordcore.model.pods import Pod
from koordcore.scoring.load_estimates import REPORTED_AS_PROD, Estimate, Estimator, Report


def add_all(
    parts: IntCube,
    nodes: Iterable[tuple[int, Sequence[Pod]]],
    reports: Sequence[Report],
    estimator: Estimator,
    now: int,
) -> None:
    """Add the contributions of pods to columns.

    Parameters
    ----------
    parts
        ``(4, C, N)`` or more: usage of prod pods, delta, delta of prod pods and estimate are added to the
        first four.
    nodes
        Row, and the pods there; ignored ones are left out. Tuples are read once as long as they live.
    reports
        By row.
    estimator
        Who estimates.
    now
        The moment of the call, which counts for pods that do not say when they were scheduled.
    """
    plain, shown = _Pods(), _Pods()
    metrics: list[PodMetric] = []
    outdated: list[bool] = []
    for row, everybody in nodes:
        pods, keys, estimates, stamps = estimator.counted(everybody)
        if not pods:
            continue
        report = reports[row]
        by_key = report.by_key()
        found = [*map(by_key.get, keys)] if by_key else []
        if not any(found):
            plain.add(row, estimates)
            continue
        moments = [now if stamp is None else stamp for stamp in stamps]
        newer = [report.horizon < moment for moment in moments]
        if estimator.lingers:
            lasting = map(estimator.deadline, pods, moments)
            newer = [one or until > report.update_time for one, until in zip(newer, lasting, strict=True)]
        if not all(found):
            plain.add(row, [one for one, metric in zip(estimates, found, strict=True) if metric is None])
            there = [place for place, metric in enumerate(found) if metric is not None]
            estimates, newer = [estimates[place] for place in there], [newer[place] for place in there]
        shown.add(row, estimates)
        metrics += [metric for metric in found if metric is not None]
        outdated += newer
    if plain.rows:
        kinds, numbers = plain.kinds()
        _add(parts, plain.rows, _unmeasured(kinds)[:, numbers])
    if shown.rows:
        kinds, numbers = shown.kinds()
        reported = np.array([one.priority == REPORTED_AS_PROD for one in metrics], np.bool_)
        usages = [one.usage for one in metrics]
        used = np.array([rounded_column(usages, name) for name in estimator.names], np.int64).T
        _add(parts, shown.rows, _measured(kinds, numbers, used, reported, np.array(outdated, np.bool_)))


class _Pods:
    """Rows of pods, and what each is expected to use."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._estimates: list[Estimate] = []

    def add(self, row: int, estimates: Sequence[Estimate]) -> None:
        """Add pods of one node."""
        self.rows += [row] * len(estimates)
        self._estimates += estimates

    def kinds(self) -> tuple[list[Estimate], list[int]]:
        """Give the estimates that differ, and the number of each pod's among them."""
        kinds = {id(one): one for one in self._estimates}
        numbers = dict(zip(kinds, range(len(kinds)), strict=True))
        return [*kinds.values()], [numbers[id(one)] for one in self._estimates]


def _add(parts: IntCube, rows: Sequence[int], amounts: IntCube) -> None:
    """Add ``(4, n, C)`` to the columns of some rows, of which one may stand several times."""
    if rows.count(rows[0]) == len(rows):
        parts[: len(amounts), :, rows[0]] += amounts.sum(axis=1)
        return
    at = np.array(rows, np.int64)
    for part, each in zip(parts, amounts, strict=False):
        for column, counted in enumerate(part):
            np.add.at(counted, at, each[:, column])


def _unmeasured(kinds: Sequence[Estimate]) -> IntCube:
    """Give what pods add that no report shows, ``(4, K, C)`` by kind: all of it is expected beyond."""
    amounts = np.array([one.amounts for one in kinds], np.int64)
    positive = np.maximum(amounts, 0)
    prod = np.array([one.prod for one in kinds], np.bool_)[:, None]
    return np.stack([np.zeros_like(amounts), positive, np.where(prod, positive, 0), amounts])


def _measured(
    kinds: Sequence[Estimate],
    numbers: Sequence[int],
    usages: IntMatrix,
    reported: BoolVector,
    newer: BoolVector,
) -> IntCube:
    """Give what pods add that their reports show: ``(4, n, C)``.

    Parameters
    ----------
    kinds, numbers
        The estimates, and which of them is each pod's.
    usages
        ``(n, C)``: what the pods use.
    reported, newer
        ``(n,)``: reported as prod pods; newer than what the report shows whole.
    """
    _, _, prod_positive, amounts = _unmeasured(kinds)[:, numbers]
    any_, prod = np.array([(one.any, one.prod) for one in kinds], np.bool_)[numbers].T[:, :, None]
    reported, newer = reported[:, None], newer[:, None]
    active = prod & reported
    delta = np.where(newer & any_, np.maximum(amounts - usages, 0), 0)
    # What a pod uses under another class than its own is not in the prod usage: all of it is missing.
    return np.stack([np.where(active, usages, 0), delta, np.where(active, delta, prod_positive), amounts])
