"""Whom pods have to wait for, and until when where somebody says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from koordcore.explaining.attempts import Attempts
from koordcore.explaining.ends import expectations, newest_start
from koordcore.explaining.remedy import Remedy, RemedyKind, some
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.times import format_time
from koordcore.scheduling.backfilling import EarliestStart, earliest_start
from koordcore.scheduling.fewest import fewest
from koordcore.scheduling.serving import MOST_ROUNDS, QueuedStart, queue_starts, queue_units
from koordcore.snapshot import ClusterSnapshot

_NODES: Final = 32
"""Nodes that are looked at for whom to wait for."""
_TRIES: Final = 48
"""Calls that are spent on finding out on which nodes a gang has to wait for somebody."""
_SERVINGS: Final = 16384
"""Turns of pods that are spent on serving the queue at the ends that are known."""
_NAMED: Final = 3
_STAYING: Final = ("DaemonSet", "Node")
"""Controllers whose pods stay as long as the node."""
_SERVING: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Controllers that replace a pod that ends."""


# -- waiting ---------------------------------------------------------------------------------------------


def waiting(asked: Attempts) -> Iterator[Remedy]:
    """Yield until when, or at least for whom, the pods have to wait."""
    now = asked.now or newest_start(asked.queue or asked.snapshot)
    until = None if now is None else _until(asked, now)
    if until is not None:
        yield until
        return
    found = _whose_ends(asked) if len(asked.members) > 1 else _whose_end(asked)
    if found is None and asked.refused and len(asked.members) == 1 and _whose_end(asked.alone()):
        found = _whose_ends(asked)  # one node does not do for those before and for them
    if found:
        nodes, pods = found
        ends = {} if now is None else expectations(asked.snapshot, now)[0]
        unknown = [str(key) for key in pods if key not in ends]
        end = "they end" if len(pods) > 1 else "it ends"
        if len(unknown) < len(pods):
            end = f"{some(unknown)} {'end' if len(unknown) > 1 else 'ends'}"
        known = f"; nothing says when {end}" if unknown else ""
        served = sorted({_served(asked.snapshot, key) for key in pods} - {""})
        if served:
            known = f", until somebody scales down {some(served)}"
        whom = f"{some(list(map(str, pods)))} on {some(nodes)}"
        if len(nodes) > _NAMED:
            whom = f"{len(pods)} pods on {len(nodes)} nodes, {', '.join(nodes[:_NAMED])} and others"
        text = f"for {whom}{known}{asked.first(asked.snapshot.forget(*pods))}"
        yield Remedy(kind=RemedyKind.WAIT, text=text, pods=pods)


def _until(asked: Attempts, now: datetime) -> Remedy | None:
    """Say at which known end the pods get their places, the queue served in its order as ends come."""
    ends, _ = expectations(asked.snapshot, now)
    if not ends:
        return None
    plan = earliest_start(
        asked.snapshot, asked.members, ends, now=now, policy=asked.policy, limits=asked.limits
    )
    if not isinstance(plan, EarliestStart) or plan.start <= now:
        return None
    first = format_time(plan.start)
    gone = [*map(str, plan.waits_for), *(f"reservation {one}" for one in plan.expired)]
    whom = ", ".join(gone) or "somebody"
    alone = f"until {first}, when {whom} {'end' if len(gone) > 1 else 'ends'}"
    served = None if asked.queue is None else _in_its_turn(asked, asked.queue, now)
    if served is None or served.start == plan.start:
        return Remedy(kind=RemedyKind.WAIT, text=alone, pods=plan.waits_for, until=first)
    if served.start is not None:
        until = format_time(served.start)
        nodes = some(sorted(set(served.nodes.values())))
        others = "take room before" if served.start > plan.start else "have come and gone by then"
        text = f"until {until}, when its turn brings it {nodes}; others {others}"
        return Remedy(kind=RemedyKind.WAIT, text=text, until=until)
    if served.not_before is not None:
        looked = format_time(served.not_before)
        text = f"beyond {looked}: others in the queue take room until then, and later ends were not looked at"
        return Remedy(kind=RemedyKind.WAIT, text=text)
    return None


def _in_its_turn(asked: Attempts, queue: ClusterSnapshot, now: datetime) -> QueuedStart | None:
    """Give when the queue, served whenever somebody ends, brings the members their turn."""
    own = {pod.key for pod in asked.members}
    name = next((one.name for one in queue_units(queue, asked.policy) if own.intersection(one.pods)), None)
    if name is None:
        return None
    rounds = min(MOST_ROUNDS, max(1, _SERVINGS // len(queue.pending)))
    ends, durations = expectations(queue, now)
    units = queue_starts(queue, ends, durations, now=now, policy=asked.policy, until=name, rounds=rounds)
    return next(one for one in units if one.name == name)


def _whose_end(asked: Attempts) -> tuple[list[str], tuple[PodKey, ...]] | None:
    """Find the fewest pods of one node without which the pod would fit there, those that can end first."""
    return _on_one_node(asked, _ending) or _on_one_node(asked, _leaving)


def _on_one_node(
    asked: Attempts, leaves: Callable[[Pod], bool]
) -> tuple[list[str], tuple[PodKey, ...]] | None:
    best: tuple[int, str, tuple[PodKey, ...]] | None = None
    states = sorted(asked.snapshot.nodes, key=lambda state: (len(state.pods), state.name))
    for state in states[:_NODES]:
        gone = [pod.key for pod in state.pods if leaves(pod)]
        if not gone or (best is not None and best[0] == 1):
            continue
        if state.name not in asked.fits(snapshot=asked.snapshot.forget(*gone)).values():
            continue
        for key in list(gone):
            fewer = [one for one in gone if one != key]
            if fewer and state.name in asked.fits(snapshot=asked.snapshot.forget(*fewer)).values():
                gone = fewer
        if best is None or len(gone) < best[0]:
            best = (len(gone), state.name, tuple(gone))
    return None if best is None else ([best[1]], best[2])


def _whose_ends(asked: Attempts) -> tuple[list[str], tuple[PodKey, ...]] | None:
    """Find few nodes, and few pods of them that can end, without which pods would fit on several nodes."""
    ending = {state.name: [pod.key for pod in state.pods if _ending(pod)] for state in asked.snapshot.nodes}
    nodes = [name for name, pods in ending.items() if pods]
    nodes.sort(key=lambda name: (len(ending[name]), name), reverse=True)

    def without(gone: Sequence[PodKey]) -> bool:
        return bool(asked.fits(snapshot=asked.snapshot.forget(*gone)))

    def enough(chosen: Sequence[str]) -> bool:
        return without([key for name in chosen for key in ending[name]])

    if not nodes or not enough(nodes):
        return None
    needed = fewest(nodes, enough, _TRIES)
    pods = fewest([key for name in needed for key in ending[name]], without, _TRIES)
    return [name for name in needed if not set(pods).isdisjoint(ending[name])], tuple(pods)


def _ending(pod: Pod) -> bool:
    """Tell whether a pod ends when it is done, and nobody makes another in its place."""
    return _leaving(pod) and (pod.controller is None or pod.controller.kind not in _SERVING)


def _leaving(pod: Pod) -> bool:
    return pod.controller is None or pod.controller.kind not in _STAYING


def _served(snapshot: ClusterSnapshot, key: PodKey) -> str:
    """Name who would make a pod again; empty where nobody would."""
    pod = snapshot.pod(key)
    if pod is None or pod.controller is None or pod.controller.kind not in _SERVING:
        return ""
    return f"{pod.controller.kind} {pod.controller.name}"
