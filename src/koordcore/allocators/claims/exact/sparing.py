"""Fewest devices with binding conditions: whoever gets one waits until its driver has made it ready."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from koordcore.allocators.claims.exact.program import solve_question
from koordcore.allocators.claims.exact.question import Answer, Question, Wish
from koordcore.allocators.claims.exact.search import answer_question
from koordcore.model.certificates import Limits


def spare_conditional(question: Question, answer: Answer, limits: Limits) -> Answer:
    """Give an answer with the same alternatives and the fewest devices that have binding conditions.

    Parameters
    ----------
    question, answer
        What was asked, and an answer to it.
    limits
        Budget of the solver, which is asked where they can neither be left out nor are all that suits. Where
        it ends, the answer stays.
    """
    conditional = question.room.table.conditional
    forced = [_forced(wish, conditional) for wish in answer.wishes]
    least = _taken(answer, conditional)
    if least <= sum(forced):
        return answer
    spared = (
        wish if number else attrs.evolve(wish, mask=wish.mask & ~conditional)
        for wish, number in zip(answer.wishes, forced, strict=True)
    )
    found = answer_question(_alike(question, spared), limits)
    if not isinstance(found, Answer) or _taken(found, conditional) > sum(forced):
        found = solve_question(_alike(question, answer.wishes), limits)
    if isinstance(found, Answer) and _taken(found, conditional) < least:
        return attrs.evolve(answer, devices=found.devices)
    return answer


def _alike(question: Question, wishes: Iterable[Wish]) -> Question:
    """Ask for the same with but one wish for each request."""
    return attrs.evolve(question, requests=tuple((wish,) for wish in wishes))


def _forced(wish: Wish, conditional: int) -> int:
    """Count the devices with binding conditions that a wish cannot do without, whatever others want."""
    return max(0, wish.count - (wish.mask & ~conditional).bit_count())


def _taken(answer: Answer, conditional: int) -> int:
    return sum(conditional >> device & 1 for devices in answer.devices for device in devices)
