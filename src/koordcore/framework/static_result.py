"""What plugins say of nodes that does not depend on the pods that are bound."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.policy import PluginSetting


class Part(NamedTuple):
    """One plugin's evaluator within a class."""

    plugin: Plugin
    setting: PluginSetting
    evaluator: Evaluator

    @property
    def owner(self) -> Plugin:
        """The plugin itself, or the one behind it."""
        return self.plugin.joint or self.plugin

    def moved(self) -> bool:
        """Go on where nodes joined and left; ``False`` where the evaluator is to be made anew."""
        return self.evaluator.scope is not Scope.CLUSTER and self.evaluator.moved()


@record(eq=False)
class StaticResult:
    """What the static plugins of a class say together.

    Parameters
    ----------
    mask, score
        ``(N,)``: nodes that they allow, and their weighted score where it needs no normalisation.
    flat
        They allow every node and score all of them the same; then this is that score.
    uneven
        The ones whose score has to be normalised over the nodes that are feasible at the time.
    """

    mask: BoolVector
    score: IntVector
    uneven: tuple[Part, ...]
    flat: int | None

    @classmethod
    def of(cls, parts: tuple[Part, ...], workspace: Workspace) -> StaticResult:
        """Ask static plugins about all nodes."""
        number, view = len(workspace.layout.names), NodeView(workspace)
        mask = np.ones(number, bool)
        asked, common = [], 0
        for part in parts:
            alike = part.evaluator.alike
            if alike is None or not alike[0]:
                asked.append(part)
            elif part.setting.scores and alike[1] is not None:
                one = part.evaluator.normalise(np.array([alike[1]], np.int64), np.ones(1, np.bool_))
                common += part.setting.weight * int(one[0])
        if not asked:
            return cls(mask, np.broadcast_to(np.int64(common), number), (), common if number else None)
        for part in asked:
            allowed = part.evaluator.fits(view) if part.setting.filters else None
            if allowed is not None:
                mask &= allowed
        everywhere = bool(mask.all())
        score = np.full(number, common, np.int64)
        uneven = []
        for part in asked:
            raw = part.evaluator.scores(view) if part.setting.scores and number else None
            if raw is None:
                continue
            # A raw score that is the same on every node that can ever be feasible normalises to a constant.
            if part.evaluator.normalises and mask.any() and np.ptp(raw if everywhere else raw[mask]):
                uneven.append(part)
            else:
                score += part.setting.weight * part.evaluator.normalise(raw, mask)
        flat = int(score[0]) if len(score) and everywhere and not np.ptp(score) else None
        return cls(mask, score, tuple(uneven), flat)

    def differing(self, older: StaticResult, past: Sequence[tuple[int, NodeMoves]]) -> IntVector:
        """Give the rows of which an older one said something else, before nodes joined and left."""
        if self.flat is not None and self.flat == older.flat:
            return np.empty(0, np.int64)
        mask, score = older.mask, older.score
        for _, moves in past:
            mask, score = moves.by_row(mask), moves.by_row(score)
        return np.flatnonzero((mask != self.mask) | (score != self.score))

    @cached_property
    def kinds(self) -> bytes:
        """A number for each node, eight bytes; equal where the static plugins say the same."""
        number = np.zeros(len(self.mask), np.int64)
        if self.flat is None:
            number = np.unique(2 * self.score + self.mask, return_inverse=True)[1]
        return number.astype(np.int64).tobytes()
