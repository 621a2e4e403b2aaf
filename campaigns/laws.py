"""Lines of changes: a snapshot that came about by changes decides as one made anew, and never changes."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from campaigns.case import Case, Failure, Figures, check_laws
from campaigns.plans import asked, outcomes
from campaigns.worlds import draw_world
from koordcore import Bound, ClusterSnapshot, NodeState, ScheduleResult, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.protocol.gang_names import gang_name

__all__ = ["Laws", "made_anew"]

CHANGES: Final = ("schedule", "schedule", "some", "forget", "cordon", "free", "leave", "later")


class Laws:
    """The campaign; see the module."""

    name = "laws"
    laws: tuple[str, ...] = ("answers", "anew", "untouched", "verified", "at once")
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a world and what happens to it."""
        line = [[chance.choice(CHANGES), chance.randrange(1000)] for _ in range(chance.randint(2, 6))]
        return {**draw_world(chance), "preempt": None, "line": line}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Follow the line; at every step ask about the line's snapshot and about one made anew."""
        wanted = frozenset(laws)
        found: list[Failure] = []
        snapshot = snapshot_from_objects(case["objects"], strict=True).snapshot
        if "at once" in wanted:
            found += check_laws({"at once": lambda: _at_once(case, snapshot)}, ("at once",))
        if not wanted & {"answers", "anew", "untouched", "verified"}:
            return found
        for kind, number in case["line"]:
            figures["change", kind] += 1
            before = pickle.dumps(snapshot)
            result = asked(case, snapshot)
            figures["outcome", "decisions"] += len(result.decisions)
            steps = {
                "anew": lambda now=snapshot, done=result: _anew(case, now, done),
                "untouched": lambda now=snapshot, was=before: _untouched(now, was),
                "verified": lambda now=snapshot, done=result: (str(one) for one in verify(now, done)),
            }
            found += check_laws(steps, wanted & steps.keys())
            if found:
                return found
            snapshot = _changed(snapshot, result, kind, number)
        return found


def made_anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same cluster without anything that is remembered."""
    return ClusterSnapshot(
        nodes=[NodeState(state.node, state.pods) for state in snapshot.nodes],
        pending=list(snapshot.pending),
        records=list(snapshot.records),
    )


def _anew(case: Case, snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[str]:
    fresh = made_anew(snapshot)
    if fresh != snapshot:
        yield "the line's snapshot is not the cluster that it stands for"
    again = asked(case, fresh)
    if again != result:
        mine, theirs = outcomes(result), outcomes(again)
        for key in mine:
            if mine[key] != theirs.get(key):
                yield f"made anew, {key} is {theirs.get(key)} and not {mine[key]}"
                return
        parts = [one.name for one in attrs.fields(ScheduleResult) if one.eq]
        yield f"made anew, {[one for one in parts if getattr(result, one) != getattr(again, one)]} differ"


def _untouched(snapshot: ClusterSnapshot, before: bytes) -> Iterator[str]:
    if pickle.loads(before) != snapshot:
        yield "the snapshot has changed"


def _at_once(case: Case, snapshot: ClusterSnapshot) -> Iterator[str]:
    """One call decides as many calls do, each about the next pod of the queue."""
    if any(pod.scheduling_group or gang_name(pod.labels, pod.annotations) for pod in snapshot.pending):
        return
    together = asked(case, snapshot)
    now = snapshot
    for one in together.decisions:
        pod = now.pod(one.pod)
        if pod is None or pod.node_name is not None:
            return
        alone = asked(case, now, [pod])
        mine, theirs = outcomes(together)[str(one.pod)], outcomes(alone).get(str(one.pod))
        if mine != theirs:
            yield f"{one.pod}: {mine} in one call, {theirs} in many"
            return
        now = alone.snapshot


def _changed(snapshot: ClusterSnapshot, result: ScheduleResult, kind: str, number: int) -> ClusterSnapshot:
    """The cluster after one change; the number chooses among what there is."""
    running = list(snapshot.bound_pods())
    if kind == "schedule":
        return result.snapshot
    if kind == "some":
        some = [one for one in result.decisions if isinstance(one, Bound)][: number % 3]
        pods = (snapshot.pod(one.pod) for one in some)
        return snapshot.assume(
            *(
                attrs.evolve(pod, node_name=one.node, annotations={**pod.annotations, **one.annotations})
                for pod, one in zip(pods, some, strict=True)
                if pod is not None and not one.reservation
            )
        )
    if kind == "forget" and running:
        return snapshot.forget(running[number % len(running)].key)
    if not snapshot.nodes:
        return snapshot
    state = snapshot.nodes[number % len(snapshot.nodes)]
    if kind == "cordon":
        node = attrs.evolve(state.node, unschedulable=not state.node.unschedulable)
        return snapshot.with_nodes(NodeState(node, state.pods))
    if kind == "free":
        return snapshot.forget(*(pod.key for pod in state.pods))
    if kind == "leave" and len(snapshot.nodes) > 1:
        return snapshot.without_nodes(state.name)
    if kind == "later" and snapshot.pending:
        pod = attrs.evolve(snapshot.pending[number % len(snapshot.pending)], name=f"later-{number}", uid="")
        # A number that was drawn before may run by now.
        return snapshot if snapshot.pod(pod.key) is not None else snapshot.with_pending(pod)
    return snapshot
