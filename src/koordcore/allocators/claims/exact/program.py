"""The whole question as an integer program: what is left when counting does not decide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordcore._cpsat import Outcome, OutcomeStatus, Program, Stage, solve
from koordcore.allocators.claims.exact.question import Answer, Question, Wish
from koordcore.allocators.claims.table import Element, bits
from koordcore.model.certificates import Limits
from koordcore.model.claims import MAX_DEVICES

_BASE = 9
_DIGITS = 12
"""Alternatives of this many requests make one stage: their places are the digits of one number."""


class _Model:
    """Variables of one question: which form serves each request, and which devices it takes."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.room = question.room
        self.table = question.room.table
        self.program = Program()
        self.chosen: list[list[int]] = []
        self.takes: list[list[dict[int, int]]] = []
        for wishes in question.requests:
            self._request(wishes)
        self._limits()
        self._exclusive()
        self._counters()
        self._capacities()
        for number in range(len(question.bonds)):
            self._bond(number)

    def users(self) -> list[tuple[int, Wish, Mapping[int, int]]]:
        """Every wish with its request and the variables of its devices."""
        return [
            (request, wish, takes)
            for request, wishes in enumerate(self.question.requests)
            for wish, takes in zip(wishes, self.takes[request], strict=True)
        ]

    def _request(self, wishes: Sequence[Wish]) -> None:
        program = self.program
        chosen = [program.boolean() for _ in wishes]
        program.require([(one, 1) for one in chosen], equal=1)
        takes: list[dict[int, int]] = []
        for wish, one in zip(wishes, chosen, strict=True):
            if not wish.hopeful:
                program.require([(one, 1)], equal=0)
                takes.append({})
                continue
            mine = {device: program.boolean() for device in bits(wish.mask)}
            program.require([*((take, 1) for take in mine.values()), (one, -wish.count)], equal=0)
            takes.append(mine)
        self.chosen.append(chosen)
        self.takes.append(takes)

    def _limits(self) -> None:
        for claim in set(self.question.claims):
            self.program.require(
                [
                    (one, wish.count)
                    for request, wishes in enumerate(self.question.requests)
                    if self.question.claims[request] == claim
                    for wish, one in zip(wishes, self.chosen[request], strict=True)
                ],
                at_most=MAX_DEVICES,
            )

    def _exclusive(self) -> None:
        """A device that is not shared serves one request; behind an earlier claim only admin access."""
        uses: dict[int, dict[int, list[int]]] = {}
        ordinary: dict[int, dict[int, list[int]]] = {}
        for request, wish, takes in self.users():
            claim = self.question.claims[request]
            for device, take in takes.items():
                if self.table.shareable >> device & 1:
                    continue
                uses.setdefault(device, {}).setdefault(claim, []).append(take)
                if not wish.admin:
                    ordinary.setdefault(device, {}).setdefault(claim, []).append(take)
        for device, by_claim in uses.items():
            plain = ordinary.get(device, {})
            if all(len(plain.get(claim, ())) == len(takes) for claim, takes in by_claim.items()):
                self.program.require([(take, 1) for takes in by_claim.values() for take in takes], at_most=1)
                continue
            for claim, mine in by_claim.items():
                self.program.require([(take, 1) for take in mine], at_most=1)
                for later, others in plain.items():
                    if later > claim:
                        self.program.require([(take, 1) for take in (*mine, *others)], at_most=1)

    def _used(self) -> dict[int, list[int]]:
        """By device: variables that say that its counters are charged (once for a shared device)."""
        used: dict[int, list[int]] = {}
        shared: dict[int, int] = {}
        for _, _, takes in self.users():
            for device, take in takes.items():
                if not self.table.sets[device]:
                    continue
                if self.room.charged >> device & 1:
                    continue
                if not self.table.shareable >> device & 1:
                    used.setdefault(device, []).append(take)
                    continue
                if device not in shared:
                    shared[device] = self.program.boolean()
                    used[device] = [shared[device]]
                self.program.require([(take, 1), (shared[device], -1)], at_most=0)
        return used

    def _counters(self) -> None:
        used = self._used()
        draws: dict[int, list[tuple[int, int]]] = {}
        members: dict[int, list[tuple[int, frozenset[str]]]] = {}
        for device, variables in used.items():
            for variable in variables:
                for counter, amount in self.table.draws[device]:
                    draws.setdefault(counter, []).append((variable, amount))
                for number, groups in self.table.sets[device]:
                    members.setdefault(number, []).append((variable, groups))
        for counter, terms in draws.items():
            self.program.require(terms, at_most=max(0, self.room.left[counter]))
        for number, mine in members.items():
            self._groups(mine, self.room.groups.get(number))

    def _groups(self, members: list[tuple[int, frozenset[str]]], known: frozenset[str] | None) -> None:
        """All devices on a counter set have one compatibility group in common."""
        if len({groups for _, groups in members}) == 1 and known is None:
            return
        names = sorted(frozenset().union(*(groups for _, groups in members)))
        one_of = {name: self.program.boolean() for name in names if known is None or name in known}
        self.program.require([(one, 1) for one in one_of.values()], at_most=1)
        for variable, groups in members:
            allowed = [(one_of[name], -1) for name in groups if name in one_of]
            self.program.require([(variable, 1), *allowed], at_most=0)

    def _capacities(self) -> None:
        consumed: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for _, wish, takes in self.users():
            for device, take in takes.items():
                if self.table.shareable >> device & 1:
                    for name, amount in wish.form.amounts[device].items():
                        consumed.setdefault((device, name), []).append((take, amount))
        for (device, name), terms in consumed.items():
            left = self.table.devices[device].device.capacity[name].value
            left -= self.room.consumed.get(device, {}).get(name, 0)
            self.program.require(terms, at_most=left)

    def _bond(self, number: int) -> None:
        program = self.program
        affected = [
            (take, wish.values[number][device])
            for _, wish, takes in self.users()
            if number in wish.bonds
            for device, take in takes.items()
        ]
        by_element: dict[Element, list[int]] = {}
        for take, elements in affected:
            for element in elements:
                by_element.setdefault(element, []).append(take)
            if not elements:
                # Such a device goes with nobody: where it is taken, nothing else is.
                program.require([(one, 1) for one, _ in affected], at_most=1, when=[take])
        if not self.question.bonds[number].match:
            for takes in by_element.values():
                program.require([(take, 1) for take in takes], at_most=1)
            return
        agreed = {element: program.boolean() for element in sorted(by_element, key=repr)}
        program.require([(one, 1) for one in agreed.values()], at_most=1)
        for take, elements in affected:
            if elements:
                program.require(
                    [(take, 1), *((agreed[one], -1) for one in sorted(elements, key=repr))], at_most=0
                )

    def stages(self) -> list[Stage]:
        """Alternatives in the order of requests, then devices with binding conditions."""
        stages: list[Stage] = []
        varied = [chosen for chosen in self.chosen if len(chosen) > 1]
        for start in range(0, len(varied), _DIGITS):
            digits = varied[start : start + _DIGITS]
            stages.append(
                Stage(
                    [
                        (variable, index * _BASE ** (len(digits) - 1 - place))
                        for place, chosen in enumerate(digits)
                        for index, variable in enumerate(chosen)
                        if index
                    ]
                )
            )
        conditional = [
            (take, 1)
            for _, _, takes in self.users()
            for device, take in takes.items()
            if self.table.conditional >> device & 1
        ]
        if conditional:
            stages.append(Stage(conditional))
        return stages

    def answer(self, values: Sequence[int]) -> Answer:
        """Read the solver's values."""
        wishes = []
        devices = []
        for request, chosen in enumerate(self.chosen):
            index = next(place for place, variable in enumerate(chosen) if values[variable])
            wishes.append(self.question.requests[request][index])
            takes = self.takes[request][index]
            devices.append(tuple(device for device, take in takes.items() if values[take]))
        return Answer(tuple(wishes), tuple(devices))


def solve_question(question: Question, limits: Limits) -> Answer | Outcome | None:
    """Ask the solver for the best answer.

    Returns
    -------
    Answer, Outcome or None
        ``None`` where it is proven that nothing fits; the outcome where the budget ends without an answer.
    """
    model = _Model(question)
    outcome = solve(model.program, model.stages(), limits=limits)
    if outcome.status is OutcomeStatus.INFEASIBLE:
        return None
    if outcome.solved:
        return model.answer(outcome.values)
    return outcome
