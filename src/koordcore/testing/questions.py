"""Clauses about a cluster that nobody changes: what is asked, and that asking changes nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

from koordcore._arrays import IntVector
from koordcore.framework.evaluator import Scope
from koordcore.framework.node_view import NodeView
from koordcore.testing.answers import Answers, MisshapenError, ask, difference
from koordcore.testing.bench import Bench, Concern
from koordcore.testing.violation import Clause

_AGES: Final = (None, datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 6, 15, 12, 34, 56, tzinfo=UTC))
"""Ages of pods that are equal but for them: a line between old and young is drawn somewhere in between."""

Finding: TypeAlias = tuple[Clause, str]
"""A clause that is broken, and what shows it."""


def check_requests(bench: Bench) -> Iterator[Finding]:
    """Check that requests are hashable and the same each time, from plugin to plugin."""
    other = Bench(bench.snapshot, bench.setting)
    for pod in bench.snapshot.pending:
        for place in range(len(bench.plugins.plugins)):
            request = bench.request(place, pod)
            try:
                hash(request)
            except TypeError as error:
                yield Clause.REQUEST, f"request_of pod {pod.key} is not hashable: {error}"
                continue
            for asked in (bench, other):
                again = asked.request(place, pod)
                if again != request or hash(again) != hash(request):
                    message = f"request_of pod {pod.key} gives something else when it is asked again"
                    yield Clause.REQUEST, message


def check_templates(bench: Bench) -> Iterator[Finding]:
    """Check that who reads templates asks for nothing that is a pod's own."""
    for pod in bench.snapshot.pending:
        again = attrs.evolve(pod, name=f"{pod.name}-again", uid=f"{pod.uid}-again")
        others = [attrs.evolve(again, created=created) for created in _AGES]
        for place, plugin in enumerate(bench.plugins.plugins):
            if not plugin.by_template:
                continue
            request = bench.request(place, pod)
            if any(bench.request(place, other) != request for other in others):
                message = f"request_of {pod.key} and of {again.key}, equal but for name, uid and age, differ"
                yield Clause.TEMPLATE, message


def check_classes(bench: Bench) -> Iterator[Finding]:
    """Check that pods with equal requests get equal answers."""
    first: dict[tuple[int, Hashable], tuple[Concern, Answers]] = {}
    for one in bench.concerns():
        answers = one.answers(bench.view)
        known, before = first.setdefault((one.place, one.request), (one, answers))
        differs = difference(before, answers)
        if differs:
            yield Clause.EQUAL_REQUESTS, f"{known} and {one} want the same: {differs}"


def check_shapes(bench: Bench) -> Iterator[Finding]:
    """Check that answers are arrays of the right kind, about all nodes and about each."""
    for one in bench.concerns():
        try:
            for view in (bench.view, *(bench.view.at(row) for row in range(len(bench.snapshot.nodes)))):
                one.answers(view)
        except MisshapenError as error:
            yield Clause.SHAPE, f"{one}: {error}"


def _print(bench: Bench) -> tuple[Any, ...]:
    """Take down everything that asking must leave as it is."""
    workspace = bench.workspace
    return (
        workspace.amounts.tobytes(),
        len(workspace.touched),
        len(workspace.journal),
        workspace.checkpoint(),
        [sorted(workspace.pods_on(row)) for row in range(len(bench.snapshot.nodes))],
        pickle.dumps((bench.snapshot.nodes, bench.snapshot.pending, bench.snapshot.records)),
    )


def check_purity(bench: Bench) -> Iterator[Finding]:
    """Check that the same question has the same answer, whoever asks, and that nothing is changed by it."""
    before = _print(bench)
    other = Bench(bench.snapshot, bench.setting)
    for one in bench.concerns():
        answers = one.answers(bench.view)
        others = {
            "again": one.answers(bench.view),
            "of another evaluator": ask(one.again(), bench.view),
            "of another plugin": other.answers_to(one),
        }
        for whom, again in others.items():
            differs = difference(answers, again)
            if differs:
                yield Clause.PURITY, f"{one}, asked {whom}: {differs}"
        if one.evaluator.amounts_only:
            first, second = (one.evaluator.scores(bench.view) for _ in range(2))
            if first is not None and second is not None and np.shares_memory(first, second):
                yield Clause.PURITY, f"{one}: scores gives the same array again, and the class adds to it"
        refusals = [one.evaluator.refuse() for _ in range(2)]
        if refusals[0] != refusals[1]:
            yield Clause.PURITY, f"{one}: refuse is {refusals[0]}, then {refusals[1]}"
    if _print(bench) != before:
        yield Clause.PURITY, "asking changed the cluster or the workspace"


def _shares(number: int) -> Iterator[IntVector]:
    """Give selections of nodes: each alone, and some of them."""
    for row in range(number):
        yield np.array([row])
    if number > 1:
        yield np.arange(0, number, 2)
        yield np.arange(number // 2)


def _orders(number: int) -> Iterator[IntVector]:
    every = np.arange(number)
    yield every[::-1].copy()
    yield np.roll(every, 1)


def _selected(
    bench: Bench, selections: Callable[[int], Iterator[IntVector]], clause: Clause, what: str
) -> Iterator[Finding]:
    number = len(bench.snapshot.nodes)
    for one in bench.concerns():
        answers = one.answers(bench.view)
        for rows in selections(number):
            differs = difference(answers.at(rows), one.answers(NodeView(bench.workspace, rows)))
            if differs:
                yield clause, f"{one}, asked about all nodes and about {what} {rows.tolist()}: {differs}"


def check_rows(bench: Bench) -> Iterator[Finding]:
    """Check that nodes in another order get the same answers."""
    return _selected(bench, _orders, Clause.ROWS, "the rows")


def check_batch(bench: Bench) -> Iterator[Finding]:
    """Check that answers about many nodes are those about each alone, and about some of them."""
    yield from _selected(bench, _shares, Clause.BATCH, "only the rows")
    for one in bench.concerns():
        if one.evaluator.fits_everywhere() and not one.answers(bench.view).fits.all():
            yield Clause.BATCH, f"{one}: fits_everywhere is true, and fits is not"
        alike, answers = one.evaluator.alike, one.answers(bench.view)
        if alike is not None:
            fits, score = alike
            told = {*answers.fits.tolist()}, None if answers.scores is None else {*answers.scores.tolist()}
            if told != ({fits}, None if score is None else {score}):
                yield Clause.BATCH, f"{one}: alike is {alike}, and fits or scores differ from it"


def check_equal_amounts(bench: Bench) -> Iterator[Finding]:
    """Check that an evaluator of amounts alone answers equally about nodes with equal amounts."""
    amounts = bench.workspace.amounts
    for one in bench.concerns():
        if one.evaluator.scope is not Scope.NODE or not one.evaluator.amounts_only:
            continue
        answers = one.answers(bench.view)
        first: dict[bytes, int] = {}
        for row, name in enumerate(answers.names):
            like = first.setdefault(amounts[:, :, row].tobytes(), row)
            here, there = answers.at(np.array([row])), answers.at(np.array([like]))
            differs = difference(there, here)
            if differs:
                message = f"{answers.names[like]} and {name} have equal amounts"
                yield Clause.EQUAL_AMOUNTS, f"{one}: {message}: {differs}"


def check_scores(bench: Bench) -> Iterator[Finding]:
    """Check that a normalised score lies within 0..100, whichever nodes are feasible."""
    for one in bench.concerns():
        answers = one.answers(bench.view)
        if answers.scores is None or not answers.fits.any():
            continue
        alone = np.zeros_like(answers.fits)
        alone[np.flatnonzero(answers.fits)[-1]] = True
        for feasible in (answers.fits, alone):
            raw = answers.scores.copy()
            score = one.evaluator.normalise(raw, feasible)
            if not np.array_equal(raw, answers.scores):
                yield Clause.PURITY, f"{one}: normalise writes into the scores that it is given"
            for row in np.flatnonzero(feasible).tolist():
                if not 0 <= score[row] <= 100:
                    name = answers.names[row]
                    yield Clause.SCORE, f"{one}: the score of {name} is {score[row]}, not within 0..100"


def check_reasons(bench: Bench) -> Iterator[Finding]:
    """Check that every refused node is refused for a reason."""
    for one in bench.concerns():
        answers = one.answers(bench.view)
        for name, fits, reasons in zip(answers.names, answers.fits, answers.reasons, strict=True):
            if not fits and not reasons:
                yield Clause.REASONS, f"{one}: {name} is refused without a reason"


QUESTIONS: tuple[Callable[[Bench], Iterator[Finding]], ...] = (
    check_requests,
    check_templates,
    check_shapes,
    check_purity,
    check_classes,
    check_rows,
    check_batch,
    check_equal_amounts,
    check_scores,
    check_reasons,
)
"""All checks, in order; each leaves the bench as it was, where the plugin does."""
