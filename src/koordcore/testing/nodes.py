"""A clause about nodes that say something else from one call to the next: what a plugin says it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.snapshot import ClusterSnapshot, NodeReplaced
from koordcore.snapshot.following import changes_between
from koordcore.testing.bench import Bench
from koordcore.testing.questions import Finding
from koordcore.testing.violation import Clause

_FIELDS: Final = tuple(one.name for one in attrs.fields(Node) if one.name != "name")
_PLAIN: Final = Node(name="plain")


def _replacements(snapshot: ClusterSnapshot) -> Iterator[tuple[str, Node]]:
    """Give for each field a node that says what another one says, and one that says nothing of it."""
    nodes = [state.node for state in snapshot.nodes]
    for field in _FIELDS:
        said = [getattr(node, field) for node in nodes]
        for others in (said, [getattr(_PLAIN, field)]):
            # A truth is turned round, because all nodes may say the same.
            for node, own in zip(nodes, said, strict=True):
                wanted = [not own] if isinstance(own, bool) else others
                other = next((one for one in wanted if one != own), own)
                if other != own:
                    changed: dict[str, Any] = {field: other}
                    yield field, attrs.evolve(node, **changed)
                    break


def _opinion(plugins: PluginSet, pod: Pod) -> Refusal | tuple[BoolVector, IntVector]:
    """Give who takes a pod and its scores there, -1 where it does not fit, each ``(N,)``; or a refusal."""
    found = plugins.class_of(pod)
    if isinstance(found, Refusal):
        return found
    refused = found.refuse()
    if refused is not None:
        return refused[1]
    feasible = found.feasible()
    return feasible.copy(), found.totals(feasible).copy()


def _difference(bench: Bench, warm: PluginSet, cold: PluginSet, pod: Pod) -> str:
    """Tell in what two sets of plugins differ about a pod, as text; empty where they do not."""
    one, other = _opinion(warm, pod), _opinion(cold, pod)
    if isinstance(one, Refusal) or isinstance(other, Refusal):
        same = isinstance(one, Refusal) and isinstance(other, Refusal)
        return (
            "" if same and one == other else f"{_opinion_text(one)}, with a new plugin {_opinion_text(other)}"
        )
    for what, mine, anew in zip(("fits", "score"), one, other, strict=True):
        for row in np.flatnonzero(mine != anew)[:1].tolist():
            name = bench.workspace.layout.names[row]
            return f"{what} on {name} is {mine[row]}, with a new plugin {anew[row]}"
    return ""


def _opinion_text(opinion: Refusal | tuple[BoolVector, IntVector]) -> str:
    return f'refused ("{opinion.reason}")' if isinstance(opinion, Refusal) else "not refused"


def check_fields(bench: Bench) -> Iterator[Finding]:
    """Check that plugins which go on after a node said something else answer as new ones do."""
    for field, node in _replacements(bench.snapshot):
        later = bench.snapshot.apply(NodeReplaced(node))
        warm, cold = Bench(bench.snapshot, bench.setting), Bench(later, bench.setting)
        for pod in bench.snapshot.pending:
            _opinion(warm.plugins, pod)
        changes = changes_between(bench.snapshot.place.path(later.place) or ())
        plugins = warm.plugins
        if not warm.workspace.advance(later, changes, plugins.removed, plugins.placed):
            continue  # such a change begins everything anew
        plugins.follow(changes)
        for pod in bench.snapshot.pending:
            differs = _difference(bench, plugins, cold.plugins, pod)
            if differs:
                what = f"pod {pod.key}, after node {node.name} said something else in {field}: {differs}"
                yield Clause.LOOKS_AT if _undeclared(bench, field) else Clause.WARM, what


def _undeclared(bench: Bench, field: str) -> bool:
    """Tell whether some plugin says what it looks at and none of them names a field."""
    said = [one.looks_at for one in bench.plugins.plugins if one.looks_at is not None]
    return bool(said) and not any(field in one for one in said)


NODES: tuple[Callable[[Bench], Iterator[Finding]], ...] = (check_fields,)
"""All checks, in order; each works on benches of its own."""
