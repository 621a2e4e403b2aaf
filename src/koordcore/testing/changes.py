"""Clauses about pods that come and go: what changes, what must not, and what is taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from koordcore.framework.evaluator import Refusal, Scope
from koordcore.framework.node_view import NodeView
from koordcore.framework.nominated import assume_nominated, forget_nominated
from koordcore.framework.requests import Marks
from koordcore.model.decisions import Bound, PodDecision
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.scheduling.entry import schedule
from koordcore.scheduling.one_pod import place_there
from koordcore.snapshot import ClusterSnapshot, RecordAdded
from koordcore.testing.answers import Answers, difference
from koordcore.testing.bench import Bench, Concern
from koordcore.testing.questions import Finding
from koordcore.testing.violation import Clause


class _Watch:
    """The evaluators of a bench, kept while pods come and go, with what they said at first."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._amounts = bench.workspace.amounts.copy()
        self.kept = [(one, one.answers(bench.view)) for one in bench.concerns()]

    def undone(self, what: str) -> Iterator[Finding]:
        """Check that evaluators, kept and new, answer as they did at first."""
        bench = self._bench
        for one, before in self.kept:
            for after in (one.answers(bench.view), bench.answers_to(one)):
                differs = difference(before, after)
                if differs:
                    yield Clause.UNDO, f"{one}, before and after {what}: {differs}"

    def followed(self, snapshot: ClusterSnapshot, row: int, what: str) -> Iterator[Finding]:
        """Check what changed after a pod came to a node or left it, against plugins made anew.

        Parameters
        ----------
        snapshot
            The cluster as it is now.
        row
            The node.
        """
        workspace = self._bench.workspace
        cold = Bench(snapshot, self._bench.setting)
        here, elsewhere = np.array([row]), np.flatnonzero(np.arange(len(snapshot.nodes)) != row)
        for one, before in self.kept:
            anew = cold.answers_to(one)
            allowed = _allowed(one, before, anew, elsewhere)
            if allowed:
                yield Clause.SCOPE, f"{one}: scope is {one.evaluator.scope}, and after {what} {allowed}"
            elif one.evaluator.scope is not Scope.STATIC:
                differs = difference(anew, one.answers(self._bench.view))
                if differs:
                    yield Clause.WARM, f"{one}, asked of a new plugin and of this one after {what}: {differs}"
                if one.evaluator.scope is Scope.NODE and one.evaluator.amounts_only:
                    supposed = NodeView.supposed(workspace, here, self._amounts[:, :, here])
                    differs = difference(before.at(here), one.answers(supposed))
                    if differs:
                        message = f"{one}, after {what}, in a view of the amounts before: {differs}"
                        yield Clause.EQUAL_AMOUNTS, message


def _allowed(one: Concern, before: Answers, after: Answers, elsewhere: np.ndarray) -> str:
    match one.evaluator.scope:
        case Scope.STATIC:
            return difference(before, after)
        case Scope.NODE:
            return difference(before.at(elsewhere), after.at(elsewhere))
        case Scope.CLUSTER:
            return ""


def _places(bench: Bench) -> Iterator[tuple[Pod, int]]:
    """Give pods that wait, each with the first and the last node that takes it."""
    for pod in bench.snapshot.pending:
        found = bench.plugins.class_of(pod)
        if isinstance(found, Refusal) or found.refuse() is not None:
            continue
        rows = np.flatnonzero(found.feasible()).tolist()
        for row in sorted({*rows[:1], *rows[-1:]}):
            yield pod, row


def check_assumed(bench: Bench) -> Iterator[Finding]:
    """Check that pods can be bound where they fit, that plugins follow, and that all of it can be undone."""
    workspace, plugins = bench.workspace, bench.plugins
    watch = _Watch(bench)
    for pod, row in _places(bench):
        name = workspace.layout.names[row]
        what = f"pod {pod.key} was bound to {name}"
        mark = workspace.checkpoint()
        if place_there(workspace, plugins, pod, row) is None:
            yield Clause.RESERVE, f"pod {pod.key} fits {name} and cannot be allocated there"
            workspace.rollback(mark)
            continue
        bound = workspace.pods_on(row)[pod.key]
        yield from watch.followed(bench.snapshot.assume(bound), row, what)
        plugins.removed(workspace.evict(pod.key, row), row)
        yield from watch.undone(f"{what} and taken off")
        workspace.rollback(mark)
        yield from watch.undone(f"{what} and that was rolled back")


def check_forgotten(bench: Bench) -> Iterator[Finding]:
    """Check that plugins follow who leaves, and that it can be undone."""
    workspace = bench.workspace
    watch = _Watch(bench)
    for row, state in enumerate(bench.snapshot.nodes):
        for pod in state.pods:
            what = f"pod {pod.key} left {state.name}"
            mark = workspace.checkpoint()
            bench.plugins.removed(workspace.evict(pod.key, row), row)
            yield from watch.followed(bench.snapshot.forget(pod.key), row, what)
            workspace.rollback(mark)
            yield from watch.undone(f"{what} and that was rolled back")


def check_nominated(bench: Bench) -> Iterator[Finding]:
    """Check that a pod which counts on its node before it is there leaves no trace when it is taken back."""
    watch = _Watch(bench)
    for pod, row in _places(bench):
        name = bench.workspace.layout.names[row]
        held = assume_nominated(bench.workspace, bench.plugins, pod, name)
        forget_nominated(bench.workspace, bench.plugins, held)
        yield from watch.undone(f"pod {pod.key} was nominated to {name} and withdrawn")


def _policy(setting: PluginSetting) -> Policy:
    fit = PluginSetting(name="NodeResourcesFit")
    return Policy(plugins=(setting,) if setting.name == fit.name else (fit, setting))


def _anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


def check_next_call(bench: Bench) -> Iterator[Finding]:
    """Check that a call which goes on with what an earlier one learnt decides as any other."""
    policy, waiting = _policy(bench.setting), bench.snapshot.pending
    half = len(waiting) // 2
    first = schedule(bench.snapshot, waiting[:half], policy=policy)
    for gone in (first.bound[:0], first.bound[:1]):
        later = first.snapshot.forget(*(one.pod for one in gone))
        warm, cold = (schedule(one, waiting[half:], policy=policy).decisions for one in (later, _anew(later)))
        for one, other in zip(warm, cold, strict=True):
            if one != other:
                yield (
                    Clause.WARM,
                    f"a second call: {_decision_text(one)}, with new plugins {_decision_text(other)}",
                )


def check_needs(bench: Bench) -> Iterator[Finding]:
    """Check that a plugin which sleeps has nothing to say, and decides as any other when it wakes."""
    needs = bench.plugins.plugins[-1].needs
    if needs is None:
        return
    whole, marks = bench.snapshot, Marks(frozenset(one for one in needs if isinstance(one, str)))
    kept = [one for one in whole.records if type(one) not in needs]
    nodes = [NodeState(one.node, tuple(pod for pod in one.pods if not marks.on(pod))) for one in whole.nodes]
    plain = [pod for pod in whole.pending if not marks.on(pod)]
    bare = ClusterSnapshot(nodes=nodes, pending=plain, records=kept)
    silent = Bench(bare, bench.setting)
    for pod in bare.pending:
        if any(silent.request(place, pod) is not None for place in range(len(silent.plugins.plugins))):
            yield Clause.NEEDS, f"pod {pod.key} wants something in a cluster without {_names(needs)}"
    policy = _policy(bench.setting)
    later = schedule(bare, (), policy=policy).snapshot
    later = later.apply(*(RecordAdded(one) for one in whole.records if type(one) in needs))
    later = later.assume(*(pod for state in whole.nodes for pod in state.pods if marks.on(pod)))
    warm, cold = (schedule(one, whole.pending, policy=policy).decisions for one in (later, _anew(later)))
    for one, other in zip(warm, cold, strict=True):
        if one != other:
            came = f"{_names(needs)} came"
            yield (
                Clause.NEEDS,
                f"after {came}: {_decision_text(one)}, with new plugins {_decision_text(other)}",
            )


def _names(needs: frozenset[type | str]) -> str:
    return ", ".join(sorted(one if isinstance(one, str) else one.__name__ for one in needs))


def _decision_text(decision: PodDecision) -> str:
    if isinstance(decision, Bound):
        return f"{decision.pod} to {decision.node} with score {decision.score}"
    return f"{decision.pod} nowhere"


CHANGES: tuple[Callable[[Bench], Iterator[Finding]], ...] = (
    check_assumed,
    check_forgotten,
    check_nominated,
    check_next_call,
    check_needs,
)
"""All checks, in order; each leaves the bench as it was, where the plugin does."""
