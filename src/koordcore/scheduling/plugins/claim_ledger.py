"""Which claims are allocated, by whom they are used, and in which state that leaves every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from koordcore._arrays import IntVector
from koordcore._vector import Vector
from koordcore.allocators.claims.cluster import ClusterDevices, cluster_devices
from koordcore.allocators.claims.outcome import ClaimError, ClaimsRefused
from koordcore.allocators.claims.pools import PoolKey
from koordcore.allocators.claims.results import Choice
from koordcore.allocators.claims.several_nodes import choose_on_nodes
from koordcore.allocators.claims.states import ClaimStates, DevicesHeld
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import ClaimAllocation, ResourceClaim
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.scheduling.plugins.claim_book import ClaimKey, claim_book
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_states, derived, records_changed


def claim_states(devices: ClusterDevices) -> ClaimStates:
    """Give the states known of some devices, kept with them."""
    found = devices.kept
    if not isinstance(found, ClaimStates) or found.full:
        found = devices.kept = ClaimStates(devices)
    return found


class _Named(NamedTuple):
    """How many pods name each claim: those that wait, and those on nodes."""

    pending: tuple[Pod, ...]
    waiting: Counter[ClaimKey]
    running: Counter[ClaimKey]


def _named(snapshot: ClusterSnapshot) -> _Named:
    return _Named(snapshot.pending, _names(snapshot.pending), _names(snapshot.bound_pods()))


def _named_again(
    before: Vector[NodeState], _: Vector[ClusterRecord], known: _Named, snapshot: ClusterSnapshot
) -> _Named:
    """Follow pods that came, left, or wait now."""
    waiting, running = known.waiting, known.running
    if known.pending is not snapshot.pending:
        waiting = _names(snapshot.pending)
    left, came = Counter[ClaimKey](), Counter[ClaimKey]()
    for old, new in changed_states(snapshot, before):
        left += _names(() if old is None else old.pods)
        came += _names(() if new is None else new.pods)
    if left != came:
        running = running + came - left
    return _Named(snapshot.pending, waiting, running)


def _names(pods: Iterable[Pod]) -> Counter[ClaimKey]:
    # With a template it is the pod's own, or its group's, whose name the status tells.
    return Counter(
        (pod.namespace, one.claim)
        for pod in pods
        for one in pod.resource_claims
        if one.claim and not one.template
    )


_Place: TypeAlias = tuple[PodKey, str]
"""A pod and the name of its node."""
_PLACE: Final = itemgetter(0)


def _names_of(pod: Pod) -> set[str]:
    """Give the names by which claims may mean a pod on a node; none where it was told here what it has."""
    if pod.held_claims:
        return set()
    return {pod.name, pod.uid or pod.name, *(one.claim for one in pod.resource_claims if one.claim)}


class ClaimLedger:
    """Follows the pods of a workspace.

    Attributes
    ----------
    numbers
        ``(N,)``: the state of each node's devices, after :meth:`update`.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._snapshot = workspace, workspace.snapshot
        self.book = claim_book(workspace.snapshot)
        self.devices = cluster_devices(workspace.snapshot)
        self.states = claim_states(self.devices)
        self._held = DevicesHeld(self.devices.features)
        self._users: Counter[ClaimKey] = Counter()
        self._fresh: Counter[ClaimKey] = Counter()
        self._used: dict[ClaimKey, ClaimAllocation] = {}
        self._counted: dict[_Place, tuple[Pod, tuple[tuple[ClaimKey, ClaimAllocation], ...]]] = {}
        """What was counted for pods on nodes, to be taken off again."""
        self._named: dict[ClaimKey, dict[_Place, None]] = {}
        """Pods of which claims tell what they hold, by all names by which these may mean them."""
        self._stale: set[PoolKey] = set()
        empty = np.array(self.states.empty, np.int64)
        self.numbers: IntVector = empty[np.array(self.devices.shape, np.int64)]
        self._names = workspace.layout.names
        self._seen: Sequence[Any] = self.devices.pools
        """By row: what the node saw when its number was worked out."""
        self.version = 0
        for allocation in self.book.standing.values():
            self._stale |= self._held.add(allocation)
        self._journal, self._read = workspace.journal, len(workspace.journal)
        self._led = self._read
        for pod in self.book.concerned(workspace.snapshot):
            self._count(pod, str(pod.node_name), 1)
        for pod, row, sign in workspace.journal[workspace.stands :]:
            self._count(pod, self._names[row], sign)
        self._refresh()

    def lead(self) -> bool:
        """Go on with the claims as the call finds them; ``False`` where it has to be made anew."""
        snapshot, before = self._workspace.snapshot, self.book
        if snapshot is self._snapshot:
            return True
        book = claim_book(snapshot)
        if not book.follows(before):
            return False
        pairs = records_changed(self._snapshot, snapshot)
        changed = [one for pair in pairs for one in pair if isinstance(one, ResourceClaim)]
        moved = [pod.key for pod, _, _ in self._journal[self._led :]]
        reserved = (one for key in moved for kept in (before, book) for one in kept.reserved_for(key))
        self.book, self._snapshot, self._led = book, snapshot, len(self._journal)
        for key in dict.fromkeys((one.namespace, one.name) for one in (*changed, *reserved)):
            self._stand(key, before.standing.get(key), book.standing.get(key))
        self._catch_up()
        self._tell(changed)
        self._look(cluster_devices(snapshot))
        self.version += 1
        self._refresh()
        return True

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left; whoever was on these has left before."""
        self._catch_up()
        self._names = self._workspace.layout.names
        self.numbers = moves.by_row(self.numbers)
        seen = list(self._seen)
        for at, gone, come in moves.edits:
            seen[at : at + gone] = [None] * come
        self._seen = seen
        return True

    def _look(self, devices: ClusterDevices) -> None:
        """Go on with these devices: nodes that see the same as before are in the states that they were in."""
        if devices is self.devices:
            return
        known, others = self.states, [*compress(count(), map(is_not, self._seen, devices.pools))]
        self.devices, self.states, self._seen = devices, claim_states(devices), devices.pools
        shape = np.array(devices.shape, np.int64)
        same = np.ones(len(shape), np.bool_)
        same[others] = False
        before, first, which = np.unique(self.numbers[same], return_index=True, return_inverse=True)
        shapes = shape[same][first].tolist()
        taken = [self.states.take_over(known, *pair) for pair in zip(before.tolist(), shapes, strict=True)]
        numbers: IntVector = np.array(self.states.empty, np.int64)[shape]
        numbers[same] = np.array(taken, np.int64)[which]
        self.numbers = numbers
        for row in others:
            if any(self._held.of((one.driver, one.name)) for one in devices.pools[row].pools):
                numbers[row] = self.states.number_of(row, self._held)

    def _stand(self, key: ClaimKey, before: ClaimAllocation | None, after: ClaimAllocation | None) -> None:
        """Hold what stands now instead of what stood; where nothing does, what users have of a claim."""
        was, now = before or self._used.get(key), after or self._used.get(key)
        if was is not now:
            self._stale |= set() if was is None else self._held.add(was, -1)
            self._stale |= set() if now is None else self._held.add(now)

    def _tell(self, changed: Iterable[ResourceClaim]) -> None:
        """Count anew the pods on nodes that some claims mean, as they were and as they are."""
        places: dict[_Place, Pod] = {}
        row_of = self._workspace.layout.row_of
        for claim in changed:
            for name in (claim.name, claim.owner, *(one.name for one in claim.reserved_for)):
                places |= {one: self._counted[one][0] for one in self._named.get((claim.namespace, name), ())}
                key = PodKey(claim.namespace, name)
                node = self._snapshot.location.get(key, "")
                pod = self._workspace.pods_on(row_of[node]).get(key) if node in row_of else None
                if pod is not None:
                    places[key, node] = pod
        # All of them leave before any comes back: while one uses a claim, it is allocated what it was.
        for sign in (-1, 1):
            for (_, node), pod in sorted(places.items(), key=_PLACE):
                self._count(pod, node, sign)

    def allocation(self, key: ClaimKey) -> ClaimAllocation | None:
        """Give what a claim is allocated now."""
        return self.book.standing.get(key) or self._used.get(key)

    def named(self, key: ClaimKey) -> int:
        """Tell how many pods name a claim that is not made for them, on nodes or not, as the call began."""
        found = derived(self._workspace.snapshot, _named, _named_again, replaced=True)
        return found.waiting[key] + found.running[key]

    def fresh_users(self, key: ClaimKey) -> int:
        """Tell how many pods on nodes use a claim that is not reserved for them yet."""
        return self._fresh[key]

    def freed_with(self, key: ClaimKey, users: int) -> ClaimAllocation | None:
        """Give what is free once so many users of a claim have left; ``None`` where it is held still."""
        if key in self.book.standing or self._users[key] > users:
            return None
        return self._used.get(key)

    def number_without(self, row: int, allocations: Sequence[ClaimAllocation]) -> int:
        """Give the state that a node would be in if some claims were free."""
        for one in allocations:
            self._held.add(one, -1)
        number = self.states.number_of(row, self._held)
        for one in allocations:
            self._held.add(one)
        return number

    def number_within(self, row: int, allocations: Sequence[ClaimAllocation]) -> int:
        """Give the state in which a node would have nothing but what some claims hold."""
        places = self.devices.places(row)
        own = sum(
            {
                1 << places[one.driver, one.pool][one.device]
                for allocation in allocations
                for one in allocation.results
                if one.device in places.get((one.driver, one.pool), {})
            }
        )
        return self.states.only(self.number_without(row, allocations), own)

    def on_nodes(
        self, claims: Sequence[tuple[Sequence[int], ResourceClaim]]
    ) -> tuple[Mapping[int, Choice], ...] | ClaimsRefused | ClaimError | None:
        """Choose the devices of claims on several nodes together, each with the rows of its users."""
        return choose_on_nodes(self.devices, self._held, claims)

    def update(self) -> None:
        """Take in who came and who left since the last call."""
        if self._read < len(self._journal):  # several ask on end about one pod
            self._catch_up()
        self._refresh()

    def _catch_up(self) -> None:
        """Count who came and who left since the last call."""
        begin, self._read = self._read, len(self._journal)
        for pod, row, sign in self._journal[begin : self._read]:
            self._count(pod, self._names[row], sign)

    def _count(self, pod: Pod, node: str, sign: int) -> None:
        """Count what a pod on a node has by claims, or take off again what was counted for it."""
        place = (pod.key, node)
        if sign > 0:
            if not self.book.concerns(pod):
                return
            holds = tuple(self.book.held_by(pod))
            self._counted[place] = pod, holds
            self._name(pod, place)
        elif place in self._counted:
            pod, holds = self._counted.pop(place)
            self._unname(pod, place)
        else:
            return
        for held in pod.held_claims:
            if held.promised:
                self._stale |= self._held.add(held.allocation, sign)
                self.version += 1
        for key, allocation in holds:
            before = self._users[key] > 0
            self._users[key] += sign
            self._fresh[key] += sign if pod.held_claims else 0
            now = self._users[key] > 0
            if before == now:
                continue
            self.version += 1
            if now:
                self._used[key] = allocation
            mine = self._used[key] if now else self._used.pop(key)
            if key not in self.book.standing:
                self._stale |= self._held.add(mine, 1 if now else -1)

    def _name(self, pod: Pod, place: _Place) -> None:
        for name in _names_of(pod):
            self._named.setdefault((pod.namespace, name), {})[place] = None

    def _unname(self, pod: Pod, place: _Place) -> None:
        for name in _names_of(pod):
            there = self._named[pod.namespace, name]
            del there[place]
            if not there:
                del self._named[pod.namespace, name]

    def _refresh(self) -> None:
        if not self._stale:
            return
        rows = {row for pool in self._stale for row in self.devices.rows_of(pool)}
        for row in rows:
            self.numbers[row] = self.states.number_of(row, self._held)
        self._stale.clear()
