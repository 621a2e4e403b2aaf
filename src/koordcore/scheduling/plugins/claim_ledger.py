"""Which claims are allocated, by whom they are used, and in which state that leaves every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

import attrs
import numpy as np

from koordcore._arrays import IntVector
from koordcore._vector import Table, Vector
from koordcore.allocators.claims.cluster import ClusterDevices, cluster_devices
from koordcore.allocators.claims.outcome import ClaimError, ClaimsRefused
from koordcore.allocators.claims.pools import PoolKey
from koordcore.allocators.claims.results import Choice
from koordcore.allocators.claims.several_nodes import choose_on_nodes
from koordcore.allocators.claims.states import ClaimStates, DevicesHeld
from koordcore.framework.extended_resources import asks_for_served, served_by_classes
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import ClaimAllocation, ClaimSpec, ResourceClaim, ResourceClaimTemplate
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.claims import ClaimIndex, ClaimProblem, PodClaims, awaits_binding, claims_of_pod
from koordcore.protocol.extended_resources import extended_claim
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_states, derived, once

_KEY: Final = attrgetter("key")
ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name of a claim."""


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


def _claiming(snapshot: ClusterSnapshot) -> Table[PodKey, Pod]:
    """Give the pods on nodes that name claims, or were given some here."""
    return Table({pod.key: pod for pod in snapshot.bound_pods() if pod.resource_claims or pod.held_claims})


def _claiming_again(
    before: Vector[NodeState],
    _: Vector[ClusterRecord],
    known: Table[PodKey, Pod],
    snapshot: ClusterSnapshot,
) -> Table[PodKey, Pod]:
    gone: list[PodKey] = []
    come: dict[PodKey, Pod] = {}
    for old, new in changed_states(snapshot, before):
        gone += [pod.key for pod in (() if old is None else old.pods) if pod.key in known]
        pods = () if new is None else new.pods
        come |= {pod.key: pod for pod in pods if pod.resource_claims or pod.held_claims}
    return known.changed([key for key in gone if key not in come], come) if gone or come else known


class ClaimBook:
    """The claims of a snapshot, and which allocations stand whatever happens to bound pods.

    An allocated claim holds its devices, whoever it is reserved for, until its controller deallocates it.
    That it does once all are gone for whom the claim is reserved; an allocation stands where that is nobody,
    or somebody who is on no node here: a group, a pod that waits, one that the snapshot does not know.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        claims = snapshot.of(ResourceClaim)
        self.index = ClaimIndex(claims, snapshot.of(ResourceClaimTemplate), snapshot.of(SchedulingPodGroup))
        self._served = served_by_classes(snapshot)
        self._last: tuple[Pod, PodClaims | ClaimProblem] | None = None
        self._templates: dict[Hashable, tuple[ClaimSpec, ...] | None] = {}
        bound = snapshot.location
        self.standing: dict[ClaimKey, ClaimAllocation] = {}
        self.awaits = False
        """Some claim waits for binding conditions for a time that runs out."""
        self._reserved: dict[ClaimKey, list[ResourceClaim]] = {}
        """By namespace and name of a pod: the claims that are reserved for it."""
        for claim in claims:
            if claim.allocation is None:
                continue
            self.awaits = self.awaits or awaits_binding(claim)
            for one in claim.reserved_for:
                if one.resource == "pods":
                    self._reserved.setdefault((claim.namespace, one.name), []).append(claim)
            leave = [
                one.resource == "pods" and PodKey(claim.namespace, one.name) in bound
                for one in claim.reserved_for
            ]
            if not leave or not all(leave):
                self.standing[claim.namespace, claim.name] = claim.allocation

    def claims_of(self, pod: Pod) -> PodClaims | ClaimProblem:
        """Find the claims of a pod; the one for its extended resources comes last."""
        known = self._last
        if known is None or known[0] is not pod:
            # A pod is asked about several times on end.
            known = self._last = pod, self._find(pod)
        return known[1]

    def specs_of(self, pod: Pod) -> tuple[ClaimSpec, ...] | None:
        """Give what the claims of a pod ask for, where templates say it all; ``None`` where others may."""
        asked = pod.resource_claims
        if not asked or pod.scheduling_group is not None or asks_for_served(pod, self._served):
            return None
        key = (pod.namespace, *asked)
        if key not in self._templates:
            found = [self.index.template(pod.namespace, one.template) for one in asked if not one.claim]
            specs = tuple(one.spec for one in found if one is not None)
            self._templates[key] = specs if len(specs) == len(asked) else None
        made = any(self.index.made_for(pod, one.name) for one in asked)
        return None if made else self._templates[key]

    def _find(self, pod: Pod) -> PodClaims | ClaimProblem:
        found = claims_of_pod(pod, self.index)
        if isinstance(found, ClaimProblem) or not asks_for_served(pod, self._served):
            return found
        known = self.index.extended_of(pod)
        if known is not None and known.allocation is not None:
            return attrs.evolve(found, claims=(*found.claims, known))
        names = [name for name, amount in pod.requests.items() if amount and name in self._served]
        made = extended_claim(pod, names, self._served).claim
        if known is not None:
            made = attrs.evolve(known, spec=made.spec)
            return attrs.evolve(found, claims=(*found.claims, made))
        return attrs.evolve(found, claims=(*found.claims, made), planned=found.planned | {made.name})

    def concerns(self, pod: Pod) -> bool:
        """Tell whether a pod on a node may have devices by claims."""
        return (
            bool(pod.resource_claims or pod.held_claims)
            or (pod.namespace, pod.name) in self._reserved
            or self.index.extended_of(pod) is not None
        )

    def concerned(self, snapshot: ClusterSnapshot) -> list[Pod]:
        """Give the pods on nodes that may have devices by claims, by their keys."""
        if self.index.extends:
            return sorted(filter(self.concerns, snapshot.bound_pods()), key=_KEY)
        found = dict(derived(snapshot, _claiming, _claiming_again, replaced=True).items())
        for namespace, name in self._reserved:
            key = PodKey(namespace, name)
            pod = snapshot.pod(key) if key in snapshot.location else None
            if pod is not None:
                found[key] = pod
        return sorted(found.values(), key=_KEY)

    def reserves_else(self, moved: Iterable[tuple[Pod, int, int]]) -> bool:
        """Tell whether pods with claims reserved for them came to nodes, or left and let the claims stand."""
        if not self._reserved:
            return False
        came: Counter[ClaimKey] = Counter()
        for pod, _, sign in moved:
            if (pod.namespace, pod.name) in self._reserved:
                came[pod.namespace, pod.name] += sign
        return any(came.values())

    def held_by(self, pod: Pod) -> Iterator[tuple[ClaimKey, ClaimAllocation]]:
        """Give the allocated claims of a pod on a node: as decided here, or as it and its claims tell."""
        if pod.held_claims:
            for held in pod.held_claims:
                if not held.promised:
                    yield (pod.namespace, held.name), held.allocation
            return
        told = dict.fromkeys(one.name for one in self._told(pod))
        for name in told:
            claim = self.index.claim(pod.namespace, name)
            if claim is not None and claim.allocation is not None:
                yield (claim.namespace, name), claim.allocation

    def _told(self, pod: Pod) -> Iterator[ResourceClaim]:
        """Give the claims that a pod names, and those that are reserved for it all the same.

        A running pod keeps what it has: while a claim of it is being deleted, and where another is missing.
        """
        found = claims_of_pod(pod, self.index)
        if not isinstance(found, ClaimProblem):
            yield from found.claims
        else:
            for entry in pod.resource_claims:
                claim = self.index.claim(pod.namespace, entry.claim)
                claim = claim or self.index.made_for(pod, entry.name)
                if claim is not None:
                    yield claim
        extended = self.index.extended_of(pod)
        if extended is not None:
            yield extended
        yield from self._reserved.get((pod.namespace, pod.name), ())


def _book(snapshot: ClusterSnapshot) -> ClaimBook:
    return ClaimBook(snapshot)


class ClaimLedger:
    """Follows the pods of a workspace.

    Attributes
    ----------
    numbers
        ``(N,)``: the state of each node's devices, after :meth:`update`.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.book: ClaimBook = once(workspace.snapshot, _book)
        self.devices = cluster_devices(workspace.snapshot)
        self.states = claim_states(self.devices)
        self._held = DevicesHeld(self.devices.features)
        self._users: Counter[ClaimKey] = Counter()
        self._fresh: Counter[ClaimKey] = Counter()
        self._used: dict[ClaimKey, ClaimAllocation] = {}
        self._stale: set[PoolKey] = set()
        empty = np.array(self.states.empty, np.int64)
        self.numbers: IntVector = empty[np.array(self.devices.shape, np.int64)]
        self.version = 0
        for allocation in self.book.standing.values():
            self._stale |= self._held.add(allocation)
        self._journal, self._read = workspace.journal, len(workspace.journal)
        for pod in self.book.concerned(workspace.snapshot):
            self._count(pod, 1)
        for pod, _, sign in workspace.journal[workspace.stands :]:
            if self.book.concerns(pod):
                self._count(pod, sign)
        self._refresh()

    def stands_on(self, snapshot: ClusterSnapshot) -> bool:
        """Tell whether the devices of the nodes are the same there."""
        return cluster_devices(snapshot) is self.devices

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
        begin, end = self._read, len(self._journal)
        if begin == end:  # several ask on end about one pod
            return
        self._read = end
        for pod, _, sign in self._journal[begin:end]:
            if self.book.concerns(pod):
                self._count(pod, sign)
        self._refresh()

    def _count(self, pod: Pod, sign: int) -> None:
        for held in pod.held_claims:
            if held.promised:
                self._stale |= self._held.add(held.allocation, sign)
                self.version += 1
        for key, allocation in self.book.held_by(pod):
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

    def _refresh(self) -> None:
        if not self._stale:
            return
        rows = {row for pool in self._stale for row in self.devices.rows_of(pool)}
        for row in rows:
            self.numbers[row] = self.states.number_of(row, self._held)
        self._stale.clear()
