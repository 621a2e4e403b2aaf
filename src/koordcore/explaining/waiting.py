"""Whom pods have to wait for, and until when where somebody says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from koordcore.explaining.attempts import Attempts
from koordcore.explaining.ends import expectations, newest_start
from koordcore.explaining.remedy import Remedy, RemedyKind, some
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.times import format_time
from koordcore.scheduling.backfilling import EarliestStart, earliest_start
from koordcore.scheduling.fewest import fewest
from koordcore.snapshot import ClusterSnapshot

_NODES: Final = 32
"""Nodes that are looked at for whom to wait for."""
_TRIES: Final = 48
"""Calls that are spent on finding out on which nodes a gang has to wait for somebody."""
_NAMED: Final = 3
_STAYING: Final = ("DaemonSet", "Node")
"""Controllers whose pods stay as long as the node."""
_SERVING: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Controllers that replace a pod that ends."""


# -- waiting ---------------------------------------------------------------------------------------------


def waiting(asked: Attempts) -> Iterator[Remedy]:
    """Yield until when, or at least for whom, the pods have to wait."""
    now = asked.now or newest_start(asked.snapshot)
    ends, _ = expectations(asked.snapshot, now)
    if ends and now is not None:
        plan = earliest_start(
            asked.snapshot, asked.members, ends, now=now, policy=asked.policy, limits=asked.limits
        )
        if isinstance(plan, EarliestStart) and plan.start > now:
            until = format_time(plan.start)
            gone = [*map(str, plan.waits_for), *(f"reservation {one}" for one in plan.expired)]
            whom = ", ".join(gone) or "somebody"
            text = f"until {until}, when {whom} {'end' if len(gone) > 1 else 'ends'}"
            yield Remedy(kind=RemedyKind.WAIT, text=text, pods=plan.waits_for, until=until)
            return
    found = _whose_ends(asked) if len(asked.members) > 1 else _whose_end(asked)
    if found:
        nodes, pods = found
        end = "they end" if len(pods) > 1 else "it ends"
        known = f"; nothing says when {end}"
        served = sorted({_served(asked.snapshot, key) for key in pods} - {""})
        if served:
            known = f", until somebody scales down {some(served)}"
        whom = f"{some(list(map(str, pods)))} on {some(nodes)}"
        if len(nodes) > _NAMED:
            whom = f"{len(pods)} pods on {len(nodes)} nodes, {', '.join(nodes[:_NAMED])} and others"
        text = f"for {whom}{known}"
        yield Remedy(kind=RemedyKind.WAIT, text=text, pods=pods)


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
    """Find few nodes where a gang would fit if all that can end there had ended."""
    ending = {state.name: [pod.key for pod in state.pods if _ending(pod)] for state in asked.snapshot.nodes}
    nodes = [name for name, pods in ending.items() if pods]
    nodes.sort(key=lambda name: (len(ending[name]), name), reverse=True)

    def enough(chosen: Sequence[str]) -> bool:
        gone = (key for name in chosen for key in ending[name])
        return bool(asked.fits(snapshot=asked.snapshot.forget(*gone)))

    if not nodes or not enough(nodes):
        return None
    needed = fewest(nodes, enough, _TRIES)
    return needed, tuple(key for name in needed for key in ending[name])


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
