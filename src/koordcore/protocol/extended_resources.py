"""Extended resources that are served by device classes instead of a device plugin.

A container asks for ``nvidia.com/gpu: 2``; where no device plugin offers that on a node, but a DeviceClass
goes by that name, the scheduler makes one claim for the pod, with a request per container.

Reference: Kubernetes 1.37, KEP-5004; ``dynamicresources`` and ``extendedresourcecache``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.claims import ClaimRequest, ClaimSpec, DeviceClass, DeviceSubRequest, ResourceClaim
from koordcore.model.containers import Container, only_container
from koordcore.model.pods import Pod
from koordcore.protocol.claims import EXTENDED_CLAIM, claim_name

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
"""Before the name of a class: the resource name that every class has."""
_ENTRY: Final = "extended-resources"
_NATIVE: Final = "kubernetes.io/"
_QUOTA: Final = "requests."


def classes_by_resource(classes: Iterable[DeviceClass]) -> immutabledict[str, str]:
    """Find the class that serves each resource name.

    Of two classes with one name the newer wins, at equality the lower name. As in the reference, a class that
    loses when it arrives is not known by its implicit name either.

    Parameters
    ----------
    classes
        In the order in which they arrive.

    Examples
    --------
    >>> dict(classes_by_resource([DeviceClass(name="gpu", extended_resource_name="nvidia.com/gpu")]))
    {'deviceclass.resource.kubernetes.io/gpu': 'gpu', 'nvidia.com/gpu': 'gpu'}
    """
    winners: dict[str, DeviceClass] = {}
    for one in classes:
        known = winners.get(one.extended_resource_name)
        if one.extended_resource_name:
            if known is not None and not _before(one, known):
                continue
            winners[one.extended_resource_name] = one
        winners[IMPLICIT_PREFIX + one.name] = one
    return immutabledict(sorted((resource, one.name) for resource, one in winners.items()))


def _before(one: DeviceClass, other: DeviceClass) -> bool:
    """Whether the first is preferred; a class that does not say when it was made counts as oldest."""
    mine, theirs = (0.0 if each.created is None else each.created.timestamp() for each in (one, other))
    return mine > theirs or (mine == theirs and one.name < other.name)


@record
class ExtendedDemand:
    """Who serves a pod's extended resources on a node; a device plugin serves those that are not named here.

    Parameters
    ----------
    claimed
        Resource names that device classes serve, sorted.
    missing
        Resource names that nobody offers on the node, sorted.
    """

    claimed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def extended_demand(
    requests: Mapping[str, int], allocatable: Mapping[str, int], classes: Mapping[str, str]
) -> ExtendedDemand | None:
    """Say who serves the extended resources of a pod on a node.

    Parameters
    ----------
    requests
        What the pod asks for as a whole.
    allocatable
        What the node lists.
    classes
        Class by resource name, as :func:`classes_by_resource` gives it.

    Returns
    -------
    ExtendedDemand or None
        ``None`` where no class serves any of them on any node: the pod is none of the claims' business.
    """
    wanted = sorted(name for name, amount in requests.items() if amount)
    if not any(name in classes for name in wanted):
        return None
    claimed = [name for name in wanted if name in classes and not allocatable.get(name)]
    missing = [name for name in wanted if name not in classes and _extended(name) and name not in allocatable]
    return ExtendedDemand(tuple(claimed), tuple(missing))


def _extended(name: str) -> bool:
    return "/" in name and _NATIVE not in name and not name.startswith(_QUOTA)


@record
class RequestMapping:
    """Which request of the claim serves a container's resource (``extendedResourceClaimStatus``)."""

    container: str
    resource: str
    request: str


@record
class ExtendedClaim:
    """The claim that the scheduler makes for a pod's extended resources.

    Parameters
    ----------
    claim
        Not in the cluster yet; its name ends in characters that the API server will choose otherwise.
    mappings
        What the pod's status will tell the kubelet.
    """

    claim: ResourceClaim
    mappings: tuple[RequestMapping, ...]


def extended_claim(pod: Pod, claimed: Sequence[str], classes: Mapping[str, str]) -> ExtendedClaim:
    """Make the claim for a pod's extended resources.

    Parameters
    ----------
    pod
        Who asks; one without containers asks as one container would.
    claimed
        Resource names that device classes serve.
    classes
        Class by resource name.
    """
    requests: list[ClaimRequest] = []
    mappings: list[RequestMapping] = []
    for name in sorted(claimed):
        mine, own_mappings = _for_resource(pod, name, classes[name])
        requests += mine
        mappings += own_mappings
    return ExtendedClaim(
        ResourceClaim(
            name=claim_name(pod, _ENTRY),
            namespace=pod.namespace,
            spec=ClaimSpec(requests=tuple(sorted(requests, key=lambda one: one.name))),
            owner=pod.uid or pod.name,
            extended=True,
            annotations={EXTENDED_CLAIM: "true"},
        ),
        tuple(mappings),
    )


@record
class _Need:
    """A container that asks for the resource: its place among all, its request's name and count."""

    place: int
    container: Container
    request: str
    count: int


def _for_resource(pod: Pod, name: str, class_name: str) -> tuple[list[ClaimRequest], list[RequestMapping]]:
    containers = (*pod.init_containers, *pod.containers) or (only_container(pod.requests),)
    needs = [
        _Need(place, one, f"container-{place}-request-{sorted(one.requests).index(name)}", one.requests[name])
        for place, one in enumerate(containers)
        if one.requests.get(name)
    ]
    staying = [
        need for need in needs if need.place >= len(pod.init_containers) or need.container.restarts_always
    ]
    passing = [need for need in needs if need not in staying]
    mappings = [RequestMapping(need.container.name, name, need.request) for need in staying]
    # A container that ends uses the devices of those that start after it, and wants only the rest anew. The
    # largest rest serves all of them, one after the other.
    rests: list[tuple[int, _Need]] = []
    borrowed: list[tuple[_Need, list[str]]] = []
    for need in passing:
        reused, rest = _reused(need, staying)
        borrowed.append((need, reused))
        if rest:
            rests.append((rest, need))
    largest = max(rests, key=lambda one: one[0], default=None)
    for need, reused in borrowed:
        mappings += [RequestMapping(need.container.name, name, request) for request in reused]
        if largest is not None and any(need is other for _, other in rests):
            mappings.append(RequestMapping(need.container.name, name, largest[1].request))
    counted = [(need.request, need.count) for need in staying]
    if largest is not None:
        counted.append((largest[1].request, largest[0]))
    return [_request(request, class_name, count, name) for request, count in counted], mappings


def _reused(need: _Need, staying: Sequence[_Need]) -> tuple[list[str], int]:
    """The requests that a container that ends takes over, and how many devices it lacks even so."""
    reused: list[str] = []
    rest = need.count
    for other in staying:
        if other.place >= need.place and rest > 0:
            reused.append(other.request)
            rest -= other.count
    return reused, max(rest, 0)


def _request(name: str, class_name: str, count: int, resource: str) -> ClaimRequest:
    return ClaimRequest(name, (DeviceSubRequest(class_name=class_name, count=count),), resource=resource)
