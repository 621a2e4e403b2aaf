"""What is promised to nominated pods, summed up: where nothing but amounts counts, nobody is put on trial."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntCube, IntMatrix, IntVector
from koordcore.framework.evaluator import Scope
from koordcore.framework.node_view import REQUESTED, NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.static_result import Part
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting

_SUMS_KEPT: Final = 8
"""Priorities of which it is kept what counts against their pods."""


def by_amounts(scheduling_class: SchedulingClass, everyone: Iterable[tuple[Plugin, PluginSetting]]) -> bool:
    """Tell whether amounts alone say if a node takes the pods of a class beside those nominated there.

    Parameters
    ----------
    everyone
        All plugins, which are told of nominated pods.
    """
    if scheduling_class.source is not None or scheduling_class.looks_elsewhere:
        return False
    heeding = (part for part in _counting(scheduling_class) if part.owner.heeds_promised)
    if not all(part.evaluator.amounts_only for part in heeding):
        return False
    return not any(plugin.shifts and not plugin.asleep for plugin, _ in everyone)


def _counting(scheduling_class: SchedulingClass) -> Iterator[Part]:
    """Give the filters that look at what runs on a node."""
    for part in scheduling_class.parts:
        counts = part.evaluator.scope is not Scope.STATIC and "fits" in part.evaluator.answers
        if counts and part.setting.filters:
            yield part


class PromisedAmounts:
    """What is promised on each node to pods of some priority or more.

    Parameters
    ----------
    workspace
        The state of the call.
    on
        The nominated pods by row.
    """

    def __init__(self, workspace: Workspace, on: Mapping[int, Sequence[Pod]]) -> None:
        self._workspace, self._on = workspace, on
        self._sums: dict[int, IntCube] = {}

    def beside(
        self, scheduling_class: SchedulingClass, pod: Pod, own: int | None, among: BoolVector
    ) -> tuple[IntVector, BoolVector]:
        """Give the nodes where pods count against one, and whether they take it beside these.

        Parameters
        ----------
        own
            Row of the node to which it is nominated itself.
        among
            The nodes that are asked about, ``(N,)``.
        """
        promised = self._against(pod, own)
        rows = np.flatnonzero(among & (promised[REQUESTED, PODS_ROW] > 0))
        amounts = self._workspace.amounts[:, :, rows] + promised[:, :, rows]
        view, fits = NodeView.supposed(self._workspace, rows, amounts), np.ones(len(rows), np.bool_)
        for part in _counting(scheduling_class):
            mask = part.evaluator.fits(view) if part.evaluator.amounts_only else None
            if mask is not None:
                fits &= mask
        return rows, fits

    def forget(self, pod: Pod, row: int) -> None:
        """Take off one who waits no longer."""
        for priority, sums in self._sums.items():
            if pod.priority >= priority:
                sums[:, :, row] -= self._change(pod)

    def _against(self, pod: Pod, own: int | None) -> IntCube:
        sums = self._sums.get(pod.priority)
        if sums is None:
            if len(self._sums) >= _SUMS_KEPT:
                self._sums.clear()
            sums = self._sums[pod.priority] = np.zeros_like(self._workspace.amounts)
            for row, there in self._on.items():
                for one in there:
                    if one.priority >= pod.priority:
                        sums[:, :, row] += self._change(one)
        if own is None:
            return sums
        others: IntCube = sums.copy()
        others[:, :, own] -= self._change(pod)
        return others

    def _change(self, pod: Pod) -> IntMatrix:
        return self._workspace.change_of(tuple(pod.requests.items()), tuple(pod.scored_requests.items()))
