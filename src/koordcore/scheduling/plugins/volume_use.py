"""VolumeRestrictions and NodeVolumeLimits: volumes that are in use already.

A claim of one pod only (``ReadWriteOncePod``) keeps all others away, and a node attaches no more volumes of a
CSI driver than its CSINode says; after Kubernetes 1.35. Disks named in the pod itself, drivers that took the
place of in-tree volumes, and VolumeAttachments of pods that are gone are not modelled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.hints import ROOM, ChangeKind
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.volumes import CSINode, PersistentVolumeClaim
from koordcore.scheduling.plugins.volumes import VolumePlugin
from koordcore.snapshot.following import ChangeReader, ClusterChanges

REASON_IN_USE: Final = (
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
)
REASON_TOO_MANY: Final = "node(s) exceed max volume count"
_NO_LIMIT: Final = 2**31

Attached: TypeAlias = tuple[str, str]
"""A driver, and what it calls a volume."""


class _Readers(ABC):
    """What pods on nodes have, kept up to date with the workspace's journal."""

    def __init__(self, workspace: Workspace) -> None:
        self._changes = ChangeReader(workspace.journal)
        # What happened so far is in the journal; the nodes are read as they were at the start.
        for row, state in enumerate(workspace.start.nodes):
            for pod in state.pods:
                self.count(pod, row, 1)
        for pod, row, sign in workspace.journal[workspace.origin :]:
            self.count(pod, row, sign)

    def update(self) -> None:
        """Take in who came and who left since the last call."""
        for pod, row, sign in self._changes.unread():
            self.count(pod, row, sign)

    @abstractmethod
    def count(self, pod: Pod, row: int, sign: int) -> None:
        """Count a pod that comes, or take off one that leaves."""


class _ClaimUsers(_Readers):
    """How many pods use each claim, anywhere."""

    def __init__(self, workspace: Workspace) -> None:
        self.users: Counter[tuple[str, str]] = Counter()
        super().__init__(workspace)

    def count(self, pod: Pod, row: int, sign: int) -> None:
        for name in set(pod.claims):
            self.users[pod.namespace, name] += sign


class InUseEvaluator(Evaluator):
    """Claims of one pod only: while another pod uses one of them, no node will do."""

    scope = Scope.CLUSTER

    def __init__(self, users: _ClaimUsers, claims: tuple[tuple[str, str], ...], number: int) -> None:
        self._users = users
        self._claims = claims
        self._number = number

    def fits(self, view: NodeView) -> BoolVector:
        self._users.update()
        free = not any(self._users.users[claim] > 0 for claim in self._claims)
        return np.full(self._number, free)[view.rows]

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return [(REASON_IN_USE, ~self.fits(view))]


class VolumeRestrictions(VolumePlugin):
    """Claims that one pod at a time may use."""

    name = "VolumeRestrictions"
    follows_pods = False
    by_template = True
    # Whoever uses a claim that one pod alone may use goes with its node.
    helped_by = ROOM | {
        *(ChangeKind.NODE_REMOVED, "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode")
    }

    def follow(self, changes: ClusterChanges) -> bool:
        return not self.concerned(changes)

    def request_of(self, pod: Pod) -> Hashable | None:
        if not pod.claims:
            return None
        found = (one for one in self.claims_of(pod) if isinstance(one, PersistentVolumeClaim) and one.one_pod)
        return tuple(sorted({(one.namespace, one.name) for one in found})) or None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        workspace = self.workspace
        return InUseEvaluator(workspace.once(_ClaimUsers), request, len(workspace.layout.names))


class _Volumes(_Readers):
    """Which volumes are attached where: a volume of several pods of a node counts once there."""

    def __init__(self, workspace: Workspace, plugin: NodeVolumeLimits) -> None:
        self._plugin = plugin
        number = len(workspace.layout.names)
        self.used: dict[str, IntVector] = defaultdict(lambda: np.zeros(number, np.int64))
        self.rows: dict[Attached, Counter[int]] = defaultdict(Counter)
        super().__init__(workspace)

    def count(self, pod: Pod, row: int, sign: int) -> None:
        for volume in self._plugin.attached_by(pod):
            users = self.rows[volume]
            before = users[row] > 0
            users[row] += sign
            self.used[volume[0]][row] += (users[row] > 0) - before


class LimitEvaluator(Evaluator):
    """Nodes that can attach what the pod brings."""

    scope = Scope.NODE

    def __init__(self, plugin: NodeVolumeLimits, volumes: tuple[Attached, ...]) -> None:
        self._plugin = plugin
        self._by_driver: dict[str, list[Attached]] = {}
        for volume in volumes:
            self._by_driver.setdefault(volume[0], []).append(volume)

    def fits(self, view: NodeView) -> BoolVector:
        volumes = self._plugin.volumes
        fitting = np.ones(len(self._plugin.workspace.layout.names), np.bool_)
        for driver, wanted in self._by_driver.items():
            new = np.full(len(fitting), len(wanted), np.int64)
            for volume in wanted:
                there = [row for row, users in volumes.rows[volume].items() if users > 0]
                new[there] -= 1
            # Who brings nothing new is let in even where there is too much already.
            fitting &= (new == 0) | (volumes.used[driver] + new <= self._plugin.limits[driver])
        return fitting[view.rows]

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return [(REASON_TOO_MANY, ~self.fits(view))]


class NodeVolumeLimits(VolumePlugin):
    """As many volumes of a driver as the node can attach; silent where no CSINode tells a number."""

    name = "NodeVolumeLimits"
    by_template = True
    helped_by = ROOM | {"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode"}
    follows_pods = False
    reads = frozenset((*VolumePlugin.reads, CSINode))

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._volumes: _Volumes | None = None
        row_of, number = workspace.layout.row_of, len(workspace.layout.names)
        self.limits: dict[str, IntVector] = {}
        for node in workspace.snapshot.of(CSINode):
            for driver, limit in node.limits.items() if node.name in row_of else ():
                column = self.limits.setdefault(driver, np.full(number, _NO_LIMIT, np.int64))
                column[row_of[node.name]] = min(limit, _NO_LIMIT)

    def follow(self, changes: ClusterChanges) -> bool:
        return not self.concerned(changes)

    def moved(self, moves: NodeMoves) -> bool:
        return self._volumes is None and not self.workspace.snapshot.has(CSINode)

    @property
    def volumes(self) -> _Volumes:
        """What is attached where now."""
        if self._volumes is None:
            self._volumes = _Volumes(self.workspace, self)
        self._volumes.update()
        return self._volumes

    def attached_by(self, pod: Pod) -> Iterator[Attached]:
        """Give the volumes that a pod brings of drivers with a limit somewhere, each once.

        A claim that waits for its volume counts for the driver that will make it, and so does one whose
        volume the snapshot does not show.
        """
        found: set[Attached] = set()
        for claim in self.claims_of(pod):
            if isinstance(claim, str):
                continue
            volume = self.volume(claim.volume) if claim.volume else None
            if volume is not None:
                found.add((volume.driver, volume.handle or volume.name))
            elif (made_by := self.class_of(claim)) is not None:
                found.add((made_by.provisioner, f"{claim.namespace}/{claim.name}"))
        return (one for one in sorted(found) if one[0] in self.limits)

    def request_of(self, pod: Pod) -> Hashable | None:
        if not pod.claims or not self.limits:
            return None
        return tuple(self.attached_by(pod)) or None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return LimitEvaluator(self, request)
