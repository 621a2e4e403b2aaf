"""What would help pods whose claims no node can serve, and which claims no node can ever serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import attrs

from koordcore.allocators.claims.allocate import allocate_claims
from koordcore.allocators.claims.cluster import cluster_devices
from koordcore.allocators.claims.outcome import ClaimShortfall, ClaimsRefused
from koordcore.allocators.claims.room import room_of
from koordcore.allocators.claims.state import devices_in_use
from koordcore.explaining.attempts import Attempts
from koordcore.explaining.remedy import Remedy, RemedyKind
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import ResourceSlice
from koordcore.protocol.claims import ClaimProblem
from koordcore.scheduling.plugins.claim_book import ClaimBook
from koordcore.snapshot import ClusterSnapshot

_Request: TypeAlias = tuple[str, str]
"""Name of a claim, and of a request in it."""


def never_by_claims(asked: Attempts) -> Iterator[str]:
    """Name the requests for devices that no node could serve if nobody held any."""
    for claims in _wanted(asked):
        most = _most_by_request(asked.snapshot, claims)
        for (claim, request), (found, nodes) in most.items():
            what = f"claim {claim}, request {request}"
            if " and " in request:
                yield f"no node can ever serve {what}, together"
            elif not found.free:
                yield f"no device of any node suits {what}"
            else:
                more = f" and {len(nodes) - 1} more" * (len(nodes) > 1)
                yield (
                    f"no node has ever {found.wanted} devices for {what}: the most is {found.free}, "
                    f"on {nodes[0]}{more}"
                )


def _wanted(asked: Attempts) -> list[tuple[ResourceClaim, ...]]:
    """Give the claims without devices of the members, those of one member for all who ask for the same."""
    if not any(pod.resource_claims for pod in asked.members) and not asked.snapshot.of(DeviceClass):
        return []
    book = ClaimBook(asked.snapshot)
    kinds: dict[tuple[ClaimSpec, ...], tuple[ResourceClaim, ...]] = {}
    for pod in asked.members:
        found = book.claims_of(pod)
        if not isinstance(found, ClaimProblem):
            claims = tuple(one for one in found.claims if one.allocation is None)
            kinds.setdefault(tuple(one.spec for one in claims), claims)
    return [claims for claims in kinds.values() if claims]


def _most_by_request(
    snapshot: ClusterSnapshot, claims: Sequence[ResourceClaim]
) -> dict[_Request, tuple[ClaimShortfall, list[str]]]:
    """Give what comes nearest, and where, of each request that all nodes lack.

    Empty where a node serves all, or may do so once a pool is published in full.
    """
    classes = {one.name: one for one in snapshot.of(DeviceClass)}
    devices, nothing = cluster_devices(snapshot), devices_in_use(())
    names: list[list[str]] = [[] for _ in range(devices.shapes)]
    for state, shape in zip(snapshot.nodes, devices.shape, strict=True):
        names[shape].append(state.name)
    best: dict[_Request, tuple[ClaimShortfall, list[str]]] = {}
    for shape, nodes in enumerate(names):
        table = devices.table(shape)
        if not all(one.usable for one in table.pools.pools):
            return {}  # what its driver will publish there is not known
        answer = allocate_claims(room_of(table, nothing), claims, classes)
        lacks = answer.shortfalls if isinstance(answer, ClaimsRefused) else ()
        here = {(one.claim, one.request): one for one in lacks}
        if not shape:
            best = {key: (one, nodes) for key, one in here.items()}
        best = {key: _nearer(found, here[key], nodes) for key, found in best.items() if key in here}
        if not best:
            break
    return best


def _nearer(
    known: tuple[ClaimShortfall, list[str]], one: ClaimShortfall, nodes: list[str]
) -> tuple[ClaimShortfall, list[str]]:
    if one.free == known[0].free:
        return one, sorted({*known[1], *nodes})
    return (one, nodes) if one.free > known[0].free else known


def fewer_devices(asked: Attempts) -> Iterator[Remedy]:
    """Find the most devices of one request with which the pods would fit, all else as it is asked for."""
    for claims in _wanted(asked):
        for claim in claims:
            for request in claim.spec.requests:
                if len(request.forms) != 1 or request.forms[0].count < 2:
                    continue
                most = _most_devices(asked, claim, request)
                if most:
                    text = f"{most} devices instead of {request.forms[0].count}"
                    text = text.replace("1 devices", "1 device", most == 1)
                    told = f"{text} in claim {claim.name}, request {request.name}"
                    yield Remedy(kind=RemedyKind.SHRINK, text=told)
                    return


def _most_devices(asked: Attempts, claim: ResourceClaim, request: ClaimRequest) -> int:
    fitting, failing = 0, request.forms[0].count
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if asked.fits(snapshot=_asking(asked.snapshot, claim, request, middle)):
            fitting = middle
        else:
            failing = middle
    return fitting


def _asking(
    snapshot: ClusterSnapshot, claim: ResourceClaim, request: ClaimRequest, count: int
) -> ClusterSnapshot:
    """Let every claim and template that asks for the same ask for fewer devices."""
    less = attrs.evolve(request, forms=(attrs.evolve(request.forms[0], count=count),))
    spec = attrs.evolve(
        claim.spec, requests=tuple(less if one == request else one for one in claim.spec.requests)
    )
    claims = [
        attrs.evolve(one, spec=spec)
        for one in snapshot.of(ResourceClaim)
        if one.spec == claim.spec and one.namespace == claim.namespace and one.allocation is None
    ]
    templates = [
        attrs.evolve(one, spec=spec)
        for one in snapshot.of(ResourceClaimTemplate)
        if one.spec == claim.spec and one.namespace == claim.namespace
    ]
    return snapshot.with_records(*claims, *templates)


def slices_of(snapshot: ClusterSnapshot, node: str) -> tuple[ResourceSlice, ...]:
    """Give the slices whose devices only this node can use."""
    return tuple(one for one in snapshot.of(ResourceSlice) if one.node_name == node)


def slices_like(snapshot: ClusterSnapshot, node: str, name: str) -> Iterator[ResourceSlice]:
    """Make slices for a node of that name with devices as another one has them."""
    for one in slices_of(snapshot, node):
        yield attrs.evolve(one, name=f"{one.name}-{name}", node_name=name, pool=f"{one.pool}-{name}")
