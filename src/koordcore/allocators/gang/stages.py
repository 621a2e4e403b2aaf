"""Several objectives as one weighted sum, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordcore._cpsat import Program, Stage
from koordcore._record import record

_EXACT: Final = 2**50
"""Largest weighted objective: the solver reports bounds as floating-point numbers."""


@record(eq=False)
class StagePlan:
    """Objectives for the solver, some of them merged into one weighted sum.

    Merging the tail solves faster; what is opened stays apart, since each proven number of domains then is a
    sharp constraint on what follows.

    Parameters
    ----------
    stages
        What the solver minimises one after the other.
    spans
        Per stage the ranges of its parts, 0 up to the entry less one; empty for a stage that stands alone.
    """

    stages: tuple[Stage, ...]
    spans: tuple[tuple[int, ...], ...]

    @classmethod
    def merge(cls, program: Program, *groups: Sequence[Stage]) -> StagePlan:
        """Merge the stages of each group as far as the weights stay exact; all but lone ones count from 0."""
        stages: list[Stage] = []
        spans: list[tuple[int, ...]] = []
        for group in groups:
            if len(group) == 1:
                stages.append(group[0])
                spans.append(())
                continue
            for run in _runs(program, group):
                ranges = tuple(program.span(stage.terms)[1] + 1 for stage in run)
                terms: dict[int, int] = {}
                least, weight = 0, 1
                for stage, size in zip(reversed(run), reversed(ranges), strict=True):
                    least += weight * (stage.at_least or 0)
                    for variable, cost in stage.terms:
                        terms[variable] = terms.get(variable, 0) + weight * cost
                    weight *= size
                stages.append(Stage(tuple(terms.items()), at_least=least))
                spans.append(ranges)
        return cls(tuple(stages), tuple(spans))

    def unpack(self, values: Sequence[int]) -> tuple[int, ...]:
        """Split the values of the stages into the parts they were merged from."""
        parts: list[int] = []
        for value, ranges in zip(values, self.spans, strict=True):
            if not ranges:
                parts.append(value)
                continue
            left, digits = value, []
            for size in reversed(ranges[1:]):
                left, digit = divmod(left, size)
                digits.append(digit)
            parts += [left, *reversed(digits)]
        return tuple(parts)


def _runs(program: Program, group: Sequence[Stage]) -> list[list[Stage]]:
    """Cut a group where the product of the ranges would leave what the solver's bounds can say exactly."""
    runs: list[list[Stage]] = []
    size = 0
    for stage in group:
        span = program.span(stage.terms)[1] + 1
        if runs and size * span <= _EXACT:
            runs[-1].append(stage)
            size *= span
        else:
            runs.append([stage])
            size = span
    return runs
