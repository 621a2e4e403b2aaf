"""First fit without search: the exact answer says at each device whether what follows can be completed.

It takes what :class:`koordcore.allocators.claims.first_fit.FirstFit` would take at last, because the first
full solution is made of the first choice at each step that can be completed at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from koordcore._cpsat import Outcome
from koordcore.allocators.claims.exact.question import Answer, Question, Wish, make_question
from koordcore.allocators.claims.exact.search import answer_question
from koordcore.allocators.claims.requests import ClaimForms
from koordcore.allocators.claims.results import Choice, choice_of
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import bits
from koordcore.model.certificates import Limits


def guided_first_fit(
    room: Room, claims: Sequence[ClaimForms], limits: Limits
) -> tuple[Choice, ...] | Outcome | None:
    """Give the first full solution in the order of claims, forms and devices.

    The claims must not hold what ends the reference's search with an error: devices on which a selector
    fails, and sets of all devices under a constraint.

    Parameters
    ----------
    room
        What the node has, and what is held of it.
    claims
        Of one pod, read against the room, in their order.
    limits
        Budget of the solver.

    Returns
    -------
    tuple of Choice, Outcome or None
        ``None`` where nothing fits; the solver's outcome where its budget ended.
    """
    try:
        return _Guided(make_question(room, claims), claims, limits).run()
    except _Undecided as undecided:
        return undecided.outcome


class _Undecided(Exception):  # noqa: N818 - carries the outcome out of the walk
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class _Guided:
    def __init__(self, question: Question, claims: Sequence[ClaimForms], limits: Limits) -> None:
        self._question = question
        self._claims = claims
        self._limits = limits
        self._done: list[tuple[Wish, tuple[int, ...]]] = []

    def run(self) -> tuple[Choice, ...] | None:
        if not self._completes(()):
            return None
        for request in range(len(self._question.requests)):
            self._serve(request)
        done = iter(self._done)
        choices = []
        for claim in self._claims:
            mine = [next(done) for _ in claim.requests]
            choices.append(
                choice_of(claim, [wish.form for wish, _ in mine], [devices for _, devices in mine])
            )
        return tuple(choices)

    def _completes(self, current: Sequence[Wish]) -> bool:
        """Tell whether the rest can be served beside what is done and begun."""
        question = self._question
        requests: list[tuple[Wish, ...]] = []
        owners: list[int] = []
        for request, (wish, devices) in enumerate(self._done):
            requests.append((_only(wish, devices),))
            owners.append(question.claims[request])
        at = len(self._done)
        for wish in current:
            requests.append((wish,))
            owners.append(question.claims[at])
        start = at + 1 if current else at
        requests += question.requests[start:]
        owners += question.claims[start:]
        answer = answer_question(
            attrs.evolve(question, requests=tuple(requests), claims=tuple(owners)), self._limits
        )
        if isinstance(answer, Outcome):
            raise _Undecided(answer)
        return isinstance(answer, Answer)

    def _serve(self, request: int) -> None:
        """Choose form and devices of one request, whose completion is known to exist."""
        for wish in self._question.requests[request]:
            if not wish.hopeful or not self._completes((wish,)):
                continue
            taken: list[int] = []
            rest = wish.mask
            for device in bits(wish.mask):
                if len(taken) == wish.count:
                    break
                rest &= ~(1 << device)
                behind = attrs.evolve(wish, mask=rest, count=wish.count - len(taken) - 1, whole=None)
                begun = [_only(wish, (*taken, device)), *((behind,) if behind.count else ())]
                if wish.whole is not None or self._completes(begun):
                    taken.append(device)
            self._done.append((wish, tuple(taken)))
            return


def _only(wish: Wish, devices: Sequence[int]) -> Wish:
    mask = sum(1 << device for device in devices)
    return attrs.evolve(wish, mask=mask, count=len(devices), whole=None)
