"""What plugins say of nodes that does not depend on the pods that are bound."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import BoolVector, IntVector
from koordcore._moved_rows import SPARE
from koordcore._record import record
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.policy import PluginSetting

T = TypeVar("T", bound=np.generic)

_OF_NODES: Final = frozenset({"fits", "scores"})


class Part(NamedTuple):
    """One plugin's evaluator within a class.

    Parameters
    ----------
    plugin, setting, evaluator
        Who is asked, as the policy has it, and what answers.
    key
        The plugin's number and what the pods want of it.
    """

    plugin: Plugin
    setting: PluginSetting
    evaluator: Evaluator
    key: tuple[int, Hashable]

    @property
    def owner(self) -> Plugin:
        """The plugin itself, or the one behind it."""
        return self.plugin.joint or self.plugin

    def moved(self) -> bool:
        """Go on where nodes joined and left; ``False`` where the evaluator is to be made anew."""
        evaluator = self.evaluator
        return evaluator.scope is not Scope.CLUSTER and (type(evaluator) is Evaluator or evaluator.moved())


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
    alike
        The evaluators that were asked, and what each says of all nodes alike.
    """

    mask: BoolVector
    score: IntVector
    uneven: tuple[Part, ...]
    flat: int | None
    alike: tuple[tuple[Evaluator, tuple[bool, int | None] | None], ...] = ()

    @classmethod
    def of(
        cls, parts: tuple[Part, ...], workspace: Workspace, older: StaticResult | None = None
    ) -> StaticResult:
        """Ask static plugins about all nodes.

        Parameters
        ----------
        older
            What plugins of the same settings said before nodes joined or left.
        """
        number, view = len(workspace.layout.names), NodeView(workspace)
        told = tuple([(part.evaluator, part.evaluator.alike) for part in parts])
        everyone = all(alike is not None and alike[0] for _, alike in told)
        if everyone and number and older is not None and older.flat is not None and told == older.alike:
            return cls(_of_one(older.mask, number), _of_one(older.score, number), (), older.flat, told)
        asked, common, mask = [], 0, np.ones(number, bool)
        for part, (_, alike) in zip(parts, told, strict=True):
            if alike is None or not alike[0]:
                asked.append(part)
            elif part.setting.scores and alike[1] is not None:
                one = alike[1]
                if part.evaluator.normalises:
                    one = int(part.evaluator.normalise(np.array([one], np.int64), np.ones(1, np.bool_))[0])
                common += part.setting.weight * one
        if not asked:
            score = np.full(number, common, np.int64)
            return cls(mask, score, (), common if number else None, told)
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
        return cls(mask, score, tuple(uneven), flat, told)

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


def _of_one(known: NDArray[T], number: int) -> NDArray[T]:
    """Give so many entries that all are those of an array, in the same memory where it has room for them."""
    whole: NDArray[T] = known if known.base is None else known.base
    if len(whole) < number:
        whole = np.full(number + number // SPARE + 1, known[0], known.dtype)
    return whole[:number]


class StaticResults:
    """What static plugins say, once for all classes that want the same of them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._parts: dict[tuple[int, Hashable], Part] = {}
        # With the parts: one that is gone would lend its identity to another.
        self._results: dict[tuple[int, ...], tuple[tuple[Part, ...], StaticResult]] = {}

    def part(self, key: tuple[int, Hashable]) -> Part | None:
        """Give the part of a class that wanted this before."""
        return self._parts.get(key) if self._parts else None  # what is wanted takes long to hash

    def of(self, parts: Sequence[Part], older: StaticResult | None = None) -> StaticResult:
        """Give what the static ones of some parts say together; see :meth:`StaticResult.of`."""
        static = [part for part in parts if part.evaluator.scope is Scope.STATIC]
        for part in static:
            self._parts.setdefault(part.key, part)
        # Who says nothing of nodes makes no difference to what is said of them.
        telling: tuple[Part, ...] = ()
        if static:
            telling = tuple([part for part in static if not part.evaluator.answers.isdisjoint(_OF_NODES)])
        signature = tuple(map(id, telling))
        found = self._results.get(signature)
        if found is None:
            found = self._results[signature] = telling, StaticResult.of(telling, self._workspace, older)
        return found[1]

    def forget(self, plugins: Sequence[Plugin]) -> Iterable[StaticResult]:
        """Forget what some plugins have said; gives all that is left."""
        self._parts = {key: part for key, part in self._parts.items() if part.owner not in plugins}
        kept = self._results.items()
        self._results = {key: one for key, one in kept if all(part.owner not in plugins for part in one[0])}
        return [result for _, result in self._results.values()]
