"""The parts of a class of pods by what they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.state_scores import AmountParts
from koordcore.framework.static_result import Part, StaticResult


class Roles(NamedTuple):
    """The parts of a class by what they are asked for; ``amounts`` look at nothing else."""

    refusing: tuple[Part, ...]
    allocating: tuple[Part, ...]
    amounts: AmountParts
    other_filters: tuple[Part, ...]
    other_scorers: tuple[Part, ...]
    cluster_filters: tuple[Part, ...]
    whole_scorers: tuple[Part, ...]

    @property
    def looks_at_amounts(self) -> bool:
        """Some look at amounts."""
        return bool(self.amounts.scorers or self.amounts.filters)

    @property
    def amounts_alone(self) -> bool:
        """The states that nodes are in tell all there is to choose by."""
        return not (self.other_filters or self.other_scorers or self.cluster_filters or self.whole_scorers)


def roles_of(parts: Sequence[Part], static: StaticResult) -> Roles:
    """Sort the parts of a class; most roles stay empty, and an empty tuple is no object of its own."""
    refusing: list[Part] = []
    allocating: list[Part] = []
    other_filters: list[Part] = []
    other_scorers: list[Part] = []
    cluster_filters: list[Part] = []
    whole_scorers: list[Part] = []
    amount_filters: list[Evaluator] = []
    amount_scorers: list[tuple[int, Evaluator]] = []
    for part in parts:
        setting, evaluator = part.setting, part.evaluator
        answers, scope = evaluator.answers, evaluator.scope
        if answers:
            if "refuse" in answers and setting.filters:
                refusing.append(part)
            if "allocate" in answers:
                allocating.append(part)
        if scope is Scope.STATIC:
            continue
        # Nodes with the same amounts get the same answers.
        alike = evaluator.amounts_only
        if setting.filters:
            if scope is Scope.CLUSTER:
                cluster_filters.append(part)
            elif alike:
                amount_filters.append(evaluator)
            else:
                other_filters.append(part)
        if setting.scores:
            if scope is Scope.CLUSTER or evaluator.normalises:
                whole_scorers.append(part)
            elif alike:
                amount_scorers.append((setting.weight, evaluator))
            else:
                other_scorers.append(part)
    return Roles(
        refusing=tuple(sorted(refusing, key=lambda part: part.plugin.refuses_at)) if refusing else (),
        allocating=tuple(sorted(allocating, key=lambda part: not part.plugin.gives_first)),
        amounts=AmountParts(tuple(amount_scorers), tuple(amount_filters)),
        other_filters=tuple(other_filters),
        other_scorers=tuple(other_scorers),
        cluster_filters=tuple(cluster_filters),
        whole_scorers=(*whole_scorers, *static.uneven),
    )
