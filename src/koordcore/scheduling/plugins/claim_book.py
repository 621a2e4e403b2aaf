"""The claims of a snapshot: whose they are, and which allocations stand whatever happens to pods on nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import Final, TypeAlias, cast

import attrs

from koordcore._vector import Table, Vector
from koordcore.framework.extended_resources import asks_for_served, served_by_classes
from koordcore.model.claims import ClaimAllocation, ClaimSpec, ResourceClaim, ResourceClaimTemplate
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.claims import ClaimIndex, ClaimProblem, PodClaims, awaits_binding, claims_of_pod
from koordcore.protocol.extended_resources import extended_claim
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived

_KEY: Final = attrgetter("key")
ClaimKey: TypeAlias = tuple[str, str]
"""Namespace and name of a claim."""
ClaimPair: TypeAlias = tuple[ResourceClaim | None, ResourceClaim | None]
"""A claim before and after; ``None`` where it was not, or is no longer, there."""


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
        self.standing: dict[ClaimKey, ClaimAllocation] = {}
        self._awaiting = 0
        self._reserved: dict[ClaimKey, tuple[ResourceClaim, ...]] = {}
        """By namespace and name of a pod: the claims that are reserved for it."""
        self._line = object()
        for claim in claims:
            self._enter(claim, snapshot.location)

    def _enter(self, claim: ResourceClaim, bound: Mapping[PodKey, str]) -> None:
        if claim.allocation is None:
            return
        self._awaiting += awaits_binding(claim)
        for one in claim.reserved_for:
            if one.resource == "pods":
                user = (claim.namespace, one.name)
                self._reserved[user] = (*self._reserved.get(user, ()), claim)
        self._stand(claim, bound)

    def _stand(self, claim: ResourceClaim, bound: Mapping[PodKey, str]) -> None:
        leave = [
            one.resource == "pods" and PodKey(claim.namespace, one.name) in bound
            for one in claim.reserved_for
        ]
        if claim.allocation is not None and not (leave and all(leave)):
            self.standing[claim.namespace, claim.name] = claim.allocation
        else:
            self.standing.pop((claim.namespace, claim.name), None)

    def _forget(self, claim: ResourceClaim) -> None:
        if claim.allocation is None:
            return
        self._awaiting -= awaits_binding(claim)
        self.standing.pop((claim.namespace, claim.name), None)
        for user in {(claim.namespace, one.name) for one in claim.reserved_for if one.resource == "pods"}:
            others = tuple(one for one in self._reserved.pop(user) if one is not claim)
            if others:
                self._reserved[user] = others

    def after(
        self, changed: Sequence[ClaimPair], moved: Iterable[PodKey], snapshot: ClusterSnapshot
    ) -> ClaimBook:
        """Give the book after some claims changed, and some pods came to nodes or left."""
        index = self.index.after(changed) if changed else self.index
        if index is None:
            return ClaimBook(snapshot)
        made, bound = copy(self), snapshot.location
        made.index, made._last = index, None  # noqa: SLF001  # its own kind
        made.standing, made._reserved = dict(self.standing), dict(self._reserved)  # noqa: SLF001
        for before, after in changed:
            if before is not None:
                made._forget(before)  # noqa: SLF001
            if after is not None:
                made._enter(after, bound)  # noqa: SLF001
        for key in moved:
            for claim in made.reserved_for(key):
                made._stand(claim, bound)  # noqa: SLF001
        return made

    def follows(self, before: ClaimBook) -> bool:
        """Tell whether a book came about from another by changes of claims and pods alone."""
        return self._line is before._line

    @property
    def awaits(self) -> bool:
        """Some claim waits for binding conditions for a time that runs out."""
        return self._awaiting > 0

    def reserved_for(self, key: PodKey) -> Sequence[ResourceClaim]:
        """Give the allocated claims that are reserved for a pod."""
        return self._reserved.get((key.namespace, key.name), ())

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

    def serves(self, snapshot: ClusterSnapshot) -> bool:
        """Tell whether device classes serve the same extended resources in a snapshot."""
        return served_by_classes(snapshot) == self._served

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


def claim_book(snapshot: ClusterSnapshot) -> ClaimBook:
    """Give the book of a snapshot; it follows what changes on a line."""
    found: ClaimBook = derived(snapshot, _book, _book_again, replaced=True)
    return found


def _book(snapshot: ClusterSnapshot) -> ClaimBook:
    return ClaimBook(snapshot)


def _shares(one: ClusterRecord | None) -> bool:
    """Tell whether a group has claims that its members share."""
    return isinstance(one, SchedulingPodGroup) and bool(one.claims)


def _book_again(
    before: Vector[NodeState], records: Vector[ClusterRecord], known: ClaimBook, snapshot: ClusterSnapshot
) -> ClaimBook:
    """Follow claims, and pods for whom some are reserved; what else changes seldom is read anew."""
    claims: list[ClaimPair] = []
    for old, new in changed_records(snapshot, records):
        one = new if old is None else old
        if isinstance(one, ResourceClaim):
            claims.append(cast("ClaimPair", (old, new)))
        elif isinstance(one, ResourceClaimTemplate) or any(map(_shares, (old, new))):
            return ClaimBook(snapshot)
    if not known.serves(snapshot):
        return ClaimBook(snapshot)
    moved: list[PodKey] = []
    for there, here in changed_states(snapshot, before):
        left = () if there is None else [pod.key for pod in there.pods]
        came = () if here is None else [pod.key for pod in here.pods]
        moved += sorted({*left} ^ {*came})
    moved = [key for key in moved if known.reserved_for(key)]
    return known.after(claims, moved, snapshot) if claims or moved else known
