"""Claims that have to do with pods that were decided about, and who holds devices of the same pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from koordcore.checking.index import HOLDING, ClusterIndex, Holder, pools_of
from koordcore.model.claims import ResourceClaim, ResourceClaimTemplate
from koordcore.model.decisions import Bound
from koordcore.model.device_slices import DeviceTaintRule
from koordcore.model.pods import Pod


class ClaimsNear(NamedTuple):
    """What is looked at with claims.

    Parameters
    ----------
    records
        Claims, templates, slices and rules.
    claims
        The claims among them.
    holders
        Pods and reservations that were given devices of the pools here.
    """

    records: list[Any]
    claims: list[ResourceClaim]
    holders: list[Holder]


def claims_near(
    index: ClusterIndex,
    decided: Sequence[Pod],
    placed: Sequence[Bound],
    changed: Sequence[ResourceClaim],
    nodes: Iterable[str],
) -> ClaimsNear:
    """Gather what says which devices pods may have on some nodes: devices of other pools are not theirs.

    Parameters
    ----------
    index
        Of the cluster before.
    decided, placed
        The pods that were decided about, and what those were given that got a node.
    changed
        Claims that say something else afterwards, or said so before.
    nodes
        Names of the nodes that are looked at whole.
    """
    claims: list[ResourceClaim] = []
    for space, name in _names(decided, placed):
        claims += index.find(ResourceClaim, name, space)
    for pod in decided:
        claims += index.by("claim made for", (pod.namespace, pod.uid or pod.name))
    seen = [one for name in ("", *nodes) for one in index.by("slice of node", name)]
    given = [one.allocation for one in (*claims, *changed) if one.allocation is not None]
    given += [held.allocation for one in (*placed,) for held in one.claims]
    given += [held.allocation for pod in decided for held in pod.held_claims]
    records: list[Any] = [*index.of(ResourceClaimTemplate), *index.of(DeviceTaintRule)]
    holders: list[Holder] = []
    for pool in sorted({*((one.driver, one.pool) for one in seen), *pools_of(given)}):
        records += index.by("slice of pool", pool)
        claims += index.by("claim holds of pool", pool)
        holders += index.marked((HOLDING, pool))
    return ClaimsNear([*records, *claims], claims, holders)


def _names(decided: Sequence[Pod], placed: Sequence[Bound]) -> Iterator[tuple[str, str]]:
    """Namespace and name of the claims that decisions, and those who were decided about, name."""
    for one in placed:
        yield from ((one.pod.namespace, held.name) for held in one.claims)
    for pod in decided:
        yield from ((pod.namespace, entry.claim) for entry in pod.resource_claims if entry.claim)
        yield from ((pod.namespace, held.name) for held in pod.held_claims)
