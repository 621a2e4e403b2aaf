"""VolumeRestrictions and NodeVolumeLimits: volumes that are in use already.

A claim of one pod only (``ReadWriteOncePod``) keeps all others away, and a node attaches no more volumes of a
CSI driver than its CSINode says; after Kubernetes 1.37. Disks named in the pod itself, drivers that took the
place of in-tree volumes, and VolumeAttachments of pods that are gone are not modelled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.hints import ROOM, ChangeKind
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod, PodKey
from koordcore.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from koordcore.scheduling.plugins.volumes import VolumePlugin, claims_of, class_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ChangeReader, ClusterChanges

REASON_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
    "another pod"
)
REASON_TOO_MANY: Final = "node(s) exceed max volume count"
_NO_LIMIT: Final = 2**31

Attached: TypeAlias = tuple[str, str]
"""A driver, and what it calls a volume."""
_Place: TypeAlias = tuple[PodKey, str]
"""A pod, and the name of its node."""


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

    def moved(self, moves: NodeMoves) -> bool:
        """Nothing here is by row."""
        return True


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


class _Attachments(_Readers):
    """Which volumes are attached where: a volume of several pods of a node counts once there.

    Attributes
    ----------
    users
        How many pods of a node use a volume, by the name of the node.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._snapshot = workspace.snapshot
        self._names = workspace.layout.names
        self._used: dict[str, IntVector] = {}
        self.users: dict[Attached, dict[str, int]] = {}
        # Pods with claims that run: where, and what was counted for them; who uses which claim and volume.
        self._pods: dict[_Place, tuple[Pod, tuple[Attached, ...]]] = {}
        self._by_claim: dict[tuple[str, str], set[_Place]] = {}
        self._by_volume: dict[str, set[_Place]] = {}
        super().__init__(workspace)

    def used(self, driver: str) -> IntVector:
        """Give how many volumes of a driver each node has attached: ``(N,)``."""
        found = self._used.get(driver)
        if found is None:
            found = self._used[driver] = np.zeros(len(self._names), np.int64)
        return found

    def count(self, pod: Pod, row: int, sign: int) -> None:
        if not pod.claims:
            return
        if sign < 0:
            self._take_off((pod.key, self._names[row]), row)
        else:
            self._put_on(pod, row)

    def _put_on(self, pod: Pod, row: int) -> None:
        name, volumes = self._names[row], attached_by(self._snapshot, pod)
        self._pods[pod.key, name] = pod, volumes
        for index, what in self._sources(pod):
            index.setdefault(what, set()).add((pod.key, name))
        for volume in volumes:
            users = self.users.setdefault(volume, {})
            users[name] = users.get(name, 0) + 1
            self.used(volume[0])[row] += users[name] == 1

    def _take_off(self, place: _Place, row: int) -> None:
        (pod, volumes), name = self._pods.pop(place), place[1]
        for index, what in self._sources(pod):
            index[what].discard(place)
            if not index[what]:
                del index[what]
        for volume in volumes:
            users = self.users[volume]
            users[name] -= 1
            if not users[name]:
                self.used(volume[0])[row] -= 1
                del users[name]
                if not users:
                    del self.users[volume]

    def _sources(self, pod: Pod) -> Iterator[tuple[dict[Any, set[_Place]], Any]]:
        """Give what says which volumes a pod has, with the index that tells who hangs on it."""
        claims = [claim for claim in claims_of(self._snapshot, pod) if not isinstance(claim, str)]
        for name in dict.fromkeys(pod.claims):
            yield self._by_claim, (pod.namespace, name)
        for volume in dict.fromkeys(claim.volume for claim in claims if claim.volume):
            yield self._by_volume, volume

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left; whoever was on these has left before."""
        self.update()
        self._used = {driver: moves.by_row(used) for driver, used in self._used.items()}
        self._names = self._workspace.layout.names
        return True

    def follow(self, changes: ClusterChanges) -> None:
        """Count those anew who use claims and volumes that are others now."""
        if self._snapshot is self._workspace.snapshot:
            return  # another plugin has told it
        self.update()
        concerned = set[_Place]()
        for kind, index in ((PersistentVolumeClaim, self._by_claim), (PersistentVolume, self._by_volume)):
            for pair in changes.records.get(kind, ()):
                one = pair[0] or pair[1]
                assert one is not None  # a pair says something
                what: Any = (one.namespace, one.name) if kind is PersistentVolumeClaim else one.name
                concerned |= index.get(what, set())
        if StorageClass in changes.records:
            concerned = {*self._pods}
        row_of = self._workspace.layout.row_of
        again = [(self._pods[place][0], row_of[place[1]]) for place in sorted(concerned)]
        for pod, row in again:
            self._take_off((pod.key, self._names[row]), row)
        self._snapshot = self._workspace.snapshot
        for pod, row in again:
            self._put_on(pod, row)


class _Limits:
    """How many volumes of each driver nodes can attach: ``(N,)`` by driver."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._snapshot = workspace.snapshot
        self.of: dict[str, IntVector] = {}
        for one in workspace.snapshot.of(CSINode):
            self._put(one.name, one)

    def _put(self, name: str, said: CSINode | None) -> None:
        layout = self._workspace.layout
        row = layout.row_of.get(name)
        if row is None:
            return
        for column in self.of.values():
            column[row] = _NO_LIMIT
        for driver, limit in said.limits.items() if said is not None else ():
            if driver not in self.of:
                self.of[driver] = np.full(len(layout.names), _NO_LIMIT, np.int64)
            self.of[driver][row] = min(limit, _NO_LIMIT)

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left; :meth:`follow` reads what is said of those that joined."""
        self.of = {driver: moves.by_row(column) for driver, column in self.of.items()}
        return True

    def follow(self, changes: ClusterChanges) -> None:
        """Read what is said of nodes that are others, and what is said otherwise of the others."""
        snapshot = self._workspace.snapshot
        if self._snapshot is snapshot:
            return  # another plugin has told it
        self._snapshot = snapshot
        said = [one for pair in changes.records.get(CSINode, ()) for one in pair if one is not None]
        names = {after.name for _, after in changes.nodes.values()}.union(one.name for one in said)
        for name in sorted(names):
            self._put(name, snapshot.find(CSINode, name))


class LimitEvaluator(Evaluator):
    """Nodes that can attach what the pod brings."""

    scope = Scope.NODE

    def __init__(self, plugin: NodeVolumeLimits, volumes: tuple[Attached, ...]) -> None:
        self._plugin = plugin
        self._by_driver: dict[str, list[Attached]] = {}
        for volume in volumes:
            self._by_driver.setdefault(volume[0], []).append(volume)

    def shares(self) -> bool:
        users = self._plugin.attachments.users
        return any(one in users for ones in self._by_driver.values() for one in ones)

    def fits(self, view: NodeView) -> BoolVector:
        attachments, layout = self._plugin.attachments, self._plugin.workspace.layout
        fitting = np.ones(len(layout.names), np.bool_)[view.rows]
        for driver, wanted in self._by_driver.items():
            new: IntVector = np.full(len(fitting), len(wanted), np.int64)
            there = [layout.row_of[name] for one in wanted for name in attachments.users.get(one, ())]
            if there:
                known = np.bincount(np.array(there), minlength=len(layout.names))
                new -= known[view.rows]
            spare = self._plugin.limits[driver][view.rows] - attachments.used(driver)[view.rows]
            # Who brings nothing new is let in even where there is too much already.
            fitting &= (new == 0) | (new <= spare)
        return fitting

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return [(REASON_TOO_MANY, ~self.fits(view))]


class NodeVolumeLimits(VolumePlugin):
    """As many volumes of a driver as the node can attach; silent where no CSINode tells a number."""

    name = "NodeVolumeLimits"
    by_template = True
    helped_by = ROOM | {"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode"}
    follows_pods = False
    reads = frozenset((*VolumePlugin.reads, CSINode))

    def follow(self, changes: ClusterChanges) -> bool:
        if self.workspace.made(_Attachments):
            self.workspace.once(_Attachments).follow(changes)
        if self.workspace.made(_Limits):
            limits: _Limits = self.workspace.once(_Limits)
            drivers = len(limits.of)
            limits.follow(changes)
            if len(limits.of) > drivers:  # a node is there now that tells of another one: pods ask for more
                return False
        return not self.concerned(changes)

    @property
    def limits(self) -> Mapping[str, IntVector]:
        """How many volumes of each driver nodes can attach: ``(N,)`` by driver."""
        found: _Limits = self.workspace.once(_Limits)
        return found.of

    @property
    def attachments(self) -> _Attachments:
        """What is attached where now."""
        found: _Attachments = self.workspace.once(_Attachments)
        found.update()
        return found

    def request_of(self, pod: Pod) -> Hashable | None:
        if not pod.claims or not self.limits:
            return None
        volumes = attached_by(self.workspace.snapshot, pod)
        return tuple(one for one in volumes if one[0] in self.limits) or None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return LimitEvaluator(self, request)


def attached_by(snapshot: ClusterSnapshot, pod: Pod) -> tuple[Attached, ...]:
    """Give the volumes that a pod brings, each once.

    A claim that waits for its volume counts for the driver that will make it, and so does one whose volume
    the snapshot does not show.
    """
    found: set[Attached] = set()
    for claim in claims_of(snapshot, pod):
        if isinstance(claim, str):
            continue
        volume = snapshot.find(PersistentVolume, claim.volume) if claim.volume else None
        if volume is not None:
            found.add((volume.driver, volume.handle or volume.name))
        elif (made_by := class_of(snapshot, claim)) is not None:
            found.add((made_by.provisioner, f"{claim.namespace}/{claim.name}"))
    return tuple(sorted(found))
