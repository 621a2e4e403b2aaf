"""Plans with one thing changed: what a judge of the objects finds illegal, ``verify`` does not let pass."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from campaigns.case import Case, Failure, Figures
from campaigns.judge import Judge
from campaigns.plans import Plans, asked
from koordcore import (
    Bound,
    ClusterSnapshot,
    Nominated,
    PodDecision,
    PodKey,
    ScheduleResult,
    Unschedulable,
    Waiting,
    verify,
)
from koordcore.manifests import snapshot_from_objects
from koordcore.protocol.gang_names import WAITS_AT_PERMIT

__all__ = ["Corruptions"]

_NUMBERED: Final = ("device-allocated", "resource-status")


class Corruptions:
    """The campaign; see the module."""

    name = "corruptions"
    laws: tuple[str, ...] = ("found",)
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a world as ``plans`` does."""
        return Plans().draw(chance)

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Change what was decided, one thing at a time, and have both judge it."""
        snapshot = snapshot_from_objects(case["objects"], strict=True).snapshot
        result = asked(case, snapshot)
        found = []
        for what, kind, corrupt in _corrupted(snapshot, result, random.Random(case["seed"])):
            figures["outcome", "decisions"] += 1
            fault = next(iter(Judge(case, corrupt).faults()), None)
            figures["corruption", f"{kind}, {'legal' if fault is None else 'illegal'}"] += 1
            if fault is not None and "found" in laws and not verify(snapshot, corrupt):
                found.append(Failure("found", f"{kind}: {what}: {fault}"))
        return found


def _corrupted(
    snapshot: ClusterSnapshot, result: ScheduleResult, chance: random.Random
) -> Iterator[tuple[str, str, ScheduleResult]]:
    """Change one decision at a time, and the cluster afterwards alike; says of whom, and what was done."""
    nodes = [state.name for state in result.snapshot.nodes]
    for number, one in enumerate(result.decisions):
        if result.snapshot.pod(one.pod) is None or not nodes:
            continue  # it stands for something else than a pod
        for kind, decision in _others(one, chance.choice(nodes), chance):
            yield str(one.pod), kind, _placed(result, number, decision)
        if isinstance(one, Nominated) and one.victims:
            spared = chance.choice(one.victims).pod
            yield f"{one.pod}, {spared}", "one victim less", _sparing(snapshot, result, spared)


def _others(one: PodDecision, other: str, chance: random.Random) -> Iterator[tuple[str, PodDecision]]:
    """Decide otherwise about a pod."""
    if isinstance(one, Bound) and not (one.claims or one.reservation or one.over):
        yield "on another node", attrs.evolve(one, node=other)
        yield "waits where it was bound", Waiting(pod=one.pod, reason="its gang", held=one)
        yield "is not bound", Unschedulable(pod=one.pod, nodes=1)
        for key, text in _other_numbers(one, chance):
            yield "holds something else", attrs.evolve(one, annotations={**one.annotations, key: text})
    elif isinstance(one, Waiting) and one.held is not None and not one.held.claims:
        yield "is bound where it waits", one.held
        yield "waits on another node", attrs.evolve(one, held=attrs.evolve(one.held, node=other))
    elif isinstance(one, Unschedulable):
        there = Bound(pod=one.pod, node=other)
        yield "is bound all the same", there
        yield "waits on a node all the same", Waiting(pod=one.pod, reason="its gang", held=there)
    elif isinstance(one, Nominated) and not one.victims:
        yield "is bound at once", Bound(pod=one.pod, node=one.node)


def _sparing(snapshot: ClusterSnapshot, result: ScheduleResult, spared: PodKey) -> ScheduleResult:
    """Give the result with one pod that stays."""
    stays = snapshot.pod(spared)
    assert stays is not None, "who leaves ran before"

    def without(one: Any) -> Any:
        return attrs.evolve(one, victims=tuple(each for each in one.victims if each.pod != spared))

    return attrs.evolve(
        result,
        decisions=tuple(without(one) if isinstance(one, Nominated) else one for one in result.decisions),
        preemptions=tuple(map(without, result.preemptions)),
        snapshot=result.snapshot.forget(spared).assume(stays),
    )


def _placed(result: ScheduleResult, number: int, decision: PodDecision) -> ScheduleResult:
    """Give the result with another decision, and its cluster as that comes to."""
    decisions = list(result.decisions)
    decisions[number] = decision
    snapshot, key = result.snapshot, decision.pod
    pod = snapshot.pod(key)
    assert pod is not None
    old = result.decisions[number]
    was = old.held if isinstance(old, Waiting) else old
    notes = {**pod.annotations}
    if isinstance(was, Bound):
        for name in was.annotations:
            notes.pop(name, None)
    plain = attrs.evolve(pod, node_name=None, annotations=notes)
    snapshot = _without(snapshot, key)
    now = decision.held if isinstance(decision, Waiting) else decision
    if isinstance(now, Bound):
        notes = {**notes, **now.annotations}
        if not isinstance(decision, Waiting):
            notes.pop(WAITS_AT_PERMIT, None)
        snapshot = snapshot.assume(attrs.evolve(plain, node_name=now.node, annotations=notes))
    else:
        snapshot = snapshot.with_pending(plain)
    return attrs.evolve(result, decisions=tuple(decisions), snapshot=snapshot)


def _without(snapshot: ClusterSnapshot, key: PodKey) -> ClusterSnapshot:
    """Take a pod out, from wherever it is."""
    if key in snapshot.location:
        return snapshot.forget(key)
    return attrs.evolve(snapshot, pending=[pod for pod in snapshot.pending if pod.key != key])


def _other_numbers(one: Bound, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Give what a pod holds with one number changed by one."""
    for key, text in sorted(one.annotations.items()):
        if not key.endswith(_NUMBERED):
            continue
        value = json.loads(text)
        places = list(_numbers(value))
        if places:
            holder, name = chance.choice(places)
            holder[name] += chance.choice((-1, 1))
            yield key, json.dumps(value)


def _numbers(value: Any) -> Iterator[tuple[Any, Any]]:
    """Find every number of a JSON value, by what it stands in and its name there."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in items:
        if isinstance(one, int) and not isinstance(one, bool):
            yield value, name
        else:
            yield from _numbers(one)
