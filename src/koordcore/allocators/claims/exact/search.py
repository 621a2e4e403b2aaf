"""The best alternatives that fit: lexicographically first over all requests, whatever the devices."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore._cpsat import Outcome
from koordcore.allocators.claims.exact.agree import demands_of, serve
from koordcore.allocators.claims.exact.entities import TooMany
from koordcore.allocators.claims.exact.program import solve_question
from koordcore.allocators.claims.exact.question import Answer, Question, Wish
from koordcore.model.certificates import Limits
from koordcore.model.claims import MAX_DEVICES

_MAX_NODES = 400


def answer_question(question: Question, limits: Limits) -> Answer | Outcome | None:
    """Find the best answer.

    Returns
    -------
    Answer, Outcome or None
        ``None`` where it is proven that nothing fits; the solver's outcome where the budget ended without an
        answer.
    """
    try:
        return _Forms(question).run()
    except TooMany:
        return solve_question(question, limits)


class _Forms:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._hopeful = [
            [wish for wish in wishes if wish.hopeful and wish.count <= MAX_DEVICES]
            for wishes in question.requests
        ]
        self._nodes = 0

    def run(self) -> Answer | None:
        if not all(self._hopeful):
            return None
        return self._search([])

    def _search(self, chosen: list[Wish]) -> Answer | None:
        """Complete the choices made for the first requests in the best way."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise TooMany
        start = len(chosen)
        rest = self._hopeful[start:]
        best = [*chosen, *(wishes[0] for wishes in rest)]
        answer = self._serve(best, {})
        if answer is not None or all(len(wishes) == 1 for wishes in rest):
            return answer
        fixed = {place: wishes[0] for place, wishes in enumerate(self._hopeful) if len(wishes) == 1}
        turn = next(place for place in range(start, len(self._hopeful)) if len(self._hopeful[place]) > 1)
        chosen = best[:turn]
        for wish in self._hopeful[turn]:
            tried = [*chosen, wish]
            if self._serve(tried, fixed) is None:
                continue
            answer = self._search(tried)
            if answer is not None:
                return answer
        return None

    def _serve(self, chosen: Sequence[Wish], fixed: dict[int, Wish]) -> Answer | None:
        """Serve the chosen wishes, and those of later requests that have no alternative."""
        question = self._question
        wishes = [*enumerate(chosen), *((place, one) for place, one in fixed.items() if place >= len(chosen))]
        totals: dict[int, int] = {}
        for place, wish in wishes:
            claim = question.claims[place]
            totals[claim] = totals.get(claim, 0) + wish.count
            if totals[claim] > MAX_DEVICES:
                return None
        demands = demands_of(question, wishes)
        packed = None if demands is None else serve(question, demands)
        if packed is None:
            return None
        return Answer(tuple(wish for _, wish in wishes), tuple(packed[place] for place in range(len(wishes))))
