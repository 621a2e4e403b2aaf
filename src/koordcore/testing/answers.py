"""What an evaluator says about the nodes of a view, in a form that can be compared node by node."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore.framework.evaluator import Evaluator
from koordcore.framework.guarded import misshapen
from koordcore.framework.node_view import NodeView

_SLOTS: Final = 3
"""How many pods of a class a node is asked to take."""


class MisshapenError(Exception):
    """An answer is no array of the right kind; the text says which and what it is instead."""


@record(eq=False)
class Answers:
    """Answers about the nodes of one view.

    Parameters
    ----------
    names
        Of the nodes, in the order of the view.
    fits
        ``(n,)``: which of them take the pod.
    scores
        ``(n,)``: raw scores; ``None`` for no preference.
    slots
        ``(n,)``: how many such pods each takes, up to three; ``None`` for any number.
    unresolvable
        ``(n,)``: where no eviction would help.
    reasons
        For each node the texts that hold there.
    """

    names: tuple[str, ...]
    fits: BoolVector
    scores: IntVector | None
    slots: IntVector | None
    unresolvable: BoolVector
    reasons: tuple[frozenset[str], ...]

    def at(self, places: IntVector) -> Answers:
        """Give the answers about some of the nodes, by their places in the view, in that order."""
        return Answers(
            names=tuple(self.names[place] for place in places),
            fits=self.fits[places],
            scores=None if self.scores is None else self.scores[places],
            slots=None if self.slots is None else self.slots[places],
            unresolvable=self.unresolvable[places],
            reasons=tuple(self.reasons[place] for place in places),
        )


def _checked(question: str, answer: Any, number: int, kind: type) -> Any:
    wrong = misshapen(question, answer, number, kind)
    if wrong:
        raise MisshapenError(wrong)
    return answer.copy()


def _mask(question: str, answer: Any, number: int, default: bool) -> BoolVector:
    if answer is None:
        return np.full(number, default)
    mask: BoolVector = _checked(question, answer, number, np.bool_)
    return mask


def _numbers(question: str, answer: Any, number: int) -> IntVector | None:
    if answer is None:
        return None
    numbers: IntVector = _checked(question, answer, number, np.integer)
    return numbers


def ask(evaluator: Evaluator, view: NodeView) -> Answers:
    """Ask an evaluator all questions about the nodes of a view.

    Raises
    ------
    MisshapenError
        When an answer is no array of the right kind.
    """
    names = tuple(view.workspace.layout.names[row] for row in view.numbers.tolist())
    number = len(names)
    fits = _mask("fits", evaluator.fits(view), number, default=True)
    every = len(view.workspace.layout.names)
    looked_at = _mask("restriction", evaluator.restriction(), every, default=True)[view.numbers]
    for place in np.flatnonzero(fits & ~looked_at).tolist():
        raise MisshapenError(f"restriction leaves out {names[place]}, and fits takes the pod there")
    texts: list[set[str]] = [set() for _ in names]
    for reason, holds in evaluator.reasons(view):
        mask = _mask(f"reasons: {reason}", holds, number, default=False)
        for place in np.flatnonzero(mask & ~fits).tolist():
            texts[place].add(reason)
    return Answers(
        names=names,
        fits=fits,
        scores=_numbers("scores", evaluator.scores(view), number),
        slots=_numbers("slots", evaluator.slots(view, _SLOTS), number),
        unresolvable=_mask("unresolvable", evaluator.unresolvable(view), number, default=False) & ~fits,
        reasons=tuple(map(frozenset, texts)),
    )


def difference(one: Answers, other: Answers) -> str:
    """Tell in what two answers about the same nodes differ first, as text; empty where they do not.

    What is said of a node only counts where it is asked for: scores and slots where the pod fits, reasons
    where it does not.
    """
    for place, name in enumerate(one.names):
        fits = bool(one.fits[place])
        if fits != bool(other.fits[place]):
            return f"fits on {name} is {fits}, then {not fits}"
        asked = ("scores", "slots") if fits else ("unresolvable", "reasons")
        for question in asked:
            first, second = (_of(getattr(each, question), place) for each in (one, other))
            if first != second:
                return f"{question} on {name}: {_shown(first)}, then {_shown(second)}"
    return ""


def _of(answers: Any, place: int) -> Any:
    return None if answers is None else answers[place]


def _shown(answer: Any) -> str:
    return ", ".join(sorted(answer)) or "nothing" if isinstance(answer, frozenset) else str(answer)
