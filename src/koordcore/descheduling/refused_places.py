"""Where pods may not go although there is room: what plugins refuse, for many pods and nodes at once.

A planner knows amounts. Where a plugin refuses one of its moves, the next best plan takes the next node, and
after that the next pod like it, one by one. So all nodes are asked about the pod, and others that the planner
may turn to: those of its workload, those beside it, and the more the longer it goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np

from koordcore._arrays import BoolVector
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.reset import unbound
from koordcore.snapshot import ClusterSnapshot

_FIRST: Final = 64
_MOST: Final = 1024
"""Pods that are asked about at once."""


class RefusedPlaces:
    """What plugins say of pods and nodes as things stand; private to one call.

    Parameters
    ----------
    snapshot
        The cluster before any move.
    policy
        Which plugins have a say.
    movable
        Pods that a plan may move.
    now
        The moment that is asked about.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        policy: Policy,
        movable: Collection[PodKey],
        now: datetime | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._movable = movable
        self._now = now
        self._refusing: dict[PodKey, BoolVector] = {}
        self._budget = _FIRST

    @cached_property
    def _opened(self) -> tuple[Workspace, PluginSet]:
        workspace = open_workspace(self._snapshot, self._policy, self._now)
        return workspace, PluginSet(workspace, self._policy)

    def refuses(self, key: PodKey, name: str) -> bool:
        """Tell whether a node has room for a pod that was asked about, and refuses it all the same.

        What stands in the pod's way may be about to move as well, so the pair may be legal in some plan.
        Nodes without room refuse nobody here, since to make it is what plans are for.
        """
        known = self._refusing.get(key)
        return known is not None and bool(known[self._opened[0].layout.row_of[name]])

    def ask(self, refused: Sequence[PodKey]) -> None:
        """Ask all nodes about pods that one of them refused, and about others like them."""
        for key in [*refused, *islice(self._likely(refused), self._budget)]:
            pod = self._snapshot.pod(key)
            if pod is not None and key not in self._refusing:
                self._refusing[key] = self._asked(pod)
        self._budget = min(2 * self._budget, _MOST)

    def _likely(self, refused: Sequence[PodKey]) -> Iterator[PodKey]:
        """Give the other pods that a plan may move, those first that it may turn to next."""
        pods = [pod for key in refused if (pod := self._snapshot.pod(key)) is not None]
        owners = {pod.controller.uid for pod in pods if pod.controller is not None}
        nodes = {pod.node_name for pod in pods}

        def place(key: PodKey) -> tuple[bool, bool, PodKey]:
            pod = self._snapshot.pod(key)
            owner = None if pod is None else pod.controller
            beside = pod is not None and pod.node_name in nodes
            return owner is None or owner.uid not in owners, not beside, key

        return iter(sorted(set(self._movable) - set(refused) - self._refusing.keys(), key=place))

    def _asked(self, pod: Pod) -> BoolVector:
        workspace, plugins = self._opened
        row = workspace.layout.row_of[pod.node_name or ""]
        mark = workspace.checkpoint()
        plugins.removed(workspace.evict(pod.key, row), row)
        anew = unbound(pod)
        own = plugins.class_of(anew)
        if isinstance(own, Refusal) or own.refuse() is not None:
            refusing: BoolVector = np.ones(len(workspace.layout.names), np.bool_)
        else:
            refusing = ~own.feasible() & _has_room(workspace, anew)
        workspace.rollback(mark)
        refusing[row] = False
        return refusing


def _has_room(workspace: Workspace, pod: Pod) -> BoolVector:
    """Tell which nodes have as much free as a pod asks for: ``(N,)``."""
    index, room = workspace.layout.index, np.ones(len(workspace.layout.names), np.bool_)
    for name, amount in pod.requests.items():
        if name in index and amount:
            room &= workspace.free[index[name]] >= amount
    return room
