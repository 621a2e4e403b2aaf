"""What many pods add to the load of their nodes at once: columns instead of one sum a pod.

It is what :meth:`Estimator.contribution` gives of each of them, and a law of the tests says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntCube, IntMatrix
from koordcore.model.metrics import PodMetric, rounded_column
from koordcore.model.pods import Pod
from koordcore.protocol.times import moment_of
from koordcore.scoring.load_estimates import NO_REPORT, REPORTED_AS_PROD, Estimate, Estimator, Report


def add_all(
    parts: IntCube, pods: Iterable[tuple[Pod, int]], reports: Sequence[Report], estimator: Estimator, now: int
) -> None:
    """Add the contributions of pods to columns.

    Parameters
    ----------
    parts
        ``(4, C, N)`` or more: usage of prod pods, delta, delta of prod pods and estimate are added to the
        first four.
    pods
        Each with its row; ignored ones are left out.
    reports
        By row.
    estimator
        Who estimates.
    now
        The moment of the call, which counts for pods that do not say when they were scheduled.
    """
    kinds: dict[Estimate, int] = {}
    rows: list[int] = []
    numbers: list[int] = []
    at: list[int] = []
    which: list[int] = []
    metrics: list[PodMetric] = []
    outdated: list[bool] = []
    seen, lingers = estimator.seen, estimator.lingers
    here, report, shown = -1, NO_REPORT, NO_REPORT.by_key()
    for pod, row in pods:
        estimate = seen(pod)
        if estimate is None:
            continue
        if row != here:
            here, report = row, reports[row]
            shown = report.by_key()
        metric = shown.get(pod.key)
        if metric is None:
            rows.append(row)
            numbers.append(kinds.setdefault(estimate, len(kinds)))
            continue
        stamp = now if pod.scheduled is None else moment_of(pod.scheduled)
        newer = report.horizon < stamp or (lingers and estimator.deadline(pod, stamp) > report.update_time)
        at.append(row)
        which.append(kinds.setdefault(estimate, len(kinds)))
        metrics.append(metric)
        outdated.append(newer)
    if rows:
        _add(parts, rows, _unmeasured([*kinds])[:, numbers])
    if at:
        reported = np.array([one.priority == REPORTED_AS_PROD for one in metrics], np.bool_)
        usages = [one.usage for one in metrics]
        used = np.array([rounded_column(usages, name) for name in estimator.names], np.int64).T
        _add(parts, at, _measured([*kinds], which, used, reported, np.array(outdated, np.bool_)))


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
