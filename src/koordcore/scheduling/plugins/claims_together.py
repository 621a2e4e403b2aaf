"""Devices by claims for several pods of a gang, where one after another some find none left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Final, TypeAlias

import numpy as np

from koordcore.allocators.claims.outcome import ClaimsRefused
from koordcore.allocators.claims.results import Choice
from koordcore.allocators.claims.states import ClaimStates
from koordcore.framework.plugin import Together
from koordcore.model.claims import ALL_DEVICES, AllocationMode, ResourceClaim
from koordcore.model.pods import PodKey
from koordcore.scheduling.plugins.claim_book import ClaimKey
from koordcore.scheduling.plugins.claim_ledger import ClaimLedger

ChosenClaims: TypeAlias = Mapping[ClaimKey, Choice]
"""What the claims of one pod get, by claim."""

_MOST_COUNTS: Final = 300
"""Numbers of pods of several kinds that are tried on one state of a node."""
_MOST_CLAIMS: Final = 256
"""Claims whose devices are chosen together on several nodes."""


def claims_together(
    ledger: ClaimLedger, pods: Sequence[tuple[PodKey, Sequence[ResourceClaim]]], row: int
) -> Together | None:
    """Choose the devices of several pods on one node.

    A claim that several of them name is allocated once, with the first.

    Parameters
    ----------
    pods
        Each with its claims that are not allocated.
    row
        The node.

    Returns
    -------
    Together or None
        The plan of a pod holds the choices for those of its claims that are allocated with it; ``None`` where
        no claim is to be allocated, or the answer is not known.
    """
    first: dict[ClaimKey, ResourceClaim] = {}
    mine: dict[PodKey, list[ClaimKey]] = {}
    shared = False
    for pod, claims in pods:
        mine[pod] = []
        for claim in claims:
            key = (claim.namespace, claim.name)
            shared = shared or key in first
            if key not in first:
                first[key] = claim
                mine[pod].append(key)
    if not first:
        return None
    number = int(ledger.numbers[row])
    answer = ledger.states.together([tuple(first.values())]).at(number)
    if isinstance(answer, tuple):
        chosen = dict(zip(first, answer, strict=True))
        plan = {pod: {key: chosen[key] for key in keys} for pod, keys in mine.items()}
        return Together(plan=plan, rows=np.zeros(0, np.int64))
    if not isinstance(answer, ClaimsRefused) or _looks_on(first.values()):
        return None
    alike = [row] if shared else np.flatnonzero(ledger.numbers == number)
    return Together(plan={}, rows=np.asarray(alike, np.int64))


def _looks_on(claims: Iterable[ResourceClaim]) -> bool:
    """Tell whether some request has admin access: within one pod it stands in the way of later ones."""
    return any(form.admin_access for one in claims for request in one.spec.requests for form in request.forms)


def claims_on_nodes(
    ledger: ClaimLedger, pods: Sequence[tuple[PodKey, Sequence[ResourceClaim], int]]
) -> Mapping[PodKey, ChosenClaims] | None:
    """Choose the devices of pods on several nodes, some of which reach more than one of the nodes.

    A claim that several of them name is allocated once, with devices that all their nodes may use.

    Parameters
    ----------
    pods
        Each with its claims that are not allocated, and the row of its node.

    Returns
    -------
    mapping or None
        The choices of each pod, in the order in which their nodes are to be bound; of a shared claim the same
        for each, whoever is first there. Empty where it is proven that there are none, ``None`` where no
        claim is to be allocated, or where the answer is not known.
    """
    asked: dict[ClaimKey, tuple[dict[int, None], ResourceClaim]] = {}
    for _, claims, row in pods:
        for claim in claims:
            rows, _ = asked.setdefault((claim.namespace, claim.name), ({}, claim))
            rows[row] = None
    if not 0 < len(asked) <= _MOST_CLAIMS:
        return None
    answer = ledger.on_nodes([(tuple(rows), claim) for rows, claim in asked.values()])
    if not isinstance(answer, tuple):
        looks = _looks_on(claim for _, claim in asked.values())
        return {} if isinstance(answer, ClaimsRefused) and not looks else None
    chosen = dict(zip(asked, answer, strict=True))
    plans: dict[PodKey, dict[ClaimKey, Choice]] = {}
    lacking: Counter[int] = Counter()
    for pod, claims, row in pods:
        keys = [(claim.namespace, claim.name) for claim in claims]
        plans[pod] = {key: chosen[key][row] for key in keys if row in chosen[key]}
        lacking[row] += len(keys) - len(plans[pod])
    # What cannot be allocated on a node has to be by then.
    return {pod: plans[pod] for pod, _, row in sorted(pods, key=lambda one: lacking[one[2]])}


def asks_for_all(claim: ResourceClaim) -> bool:
    """Tell whether a claim may be for all devices of its node, which are others on the next."""
    return any(form.mode == ALL_DEVICES for request in claim.spec.requests for form in request.forms)


def never_together(
    states: ClaimStates, kinds: Sequence[tuple[ResourceClaim, ...]], demand: Sequence[int], number: int
) -> tuple[tuple[int, ...], ...]:
    """List the least numbers of pods of each kind that a state has no devices for.

    Parameters
    ----------
    kinds, demand
        The claims of one pod of each kind, and how many of each there are.
    number
        The state.

    Returns
    -------
    tuple
        So many of all kinds, or more, do not fit; empty where there are too many numbers to try.
    """
    if _looks_on(claim for kind in kinds for claim in kind):
        return ()
    most = [
        states.answers(kind, AllocationMode.EXACT).count(number, wanted)
        for kind, wanted in zip(kinds, demand, strict=True)
    ]
    if prod(count + 1 for count in most) > _MOST_COUNTS:
        return ()
    refused: list[tuple[int, ...]] = []
    for counts in sorted(product(*(range(count + 1) for count in most)), key=sum):
        if sum(map(bool, counts)) < 2 or any(_within(less, counts) for less in refused):
            continue
        pods = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
        if isinstance(states.together(pods).at(number), ClaimsRefused):
            refused.append(counts)
    return tuple(refused)


def _within(less: Sequence[int], more: Sequence[int]) -> bool:
    return all(a <= b for a, b in zip(less, more, strict=True))


def sharing_one_claim(
    pods: Iterable[tuple[PodKey, Sequence[ClaimKey]]],
) -> tuple[frozenset[PodKey], ...]:
    """Group the pods that name one claim, or are joined by others that do.

    Parameters
    ----------
    pods
        Each with its claims that are not allocated.
    """
    group: dict[PodKey, set[PodKey]] = {}
    first: dict[ClaimKey, PodKey] = {}
    for pod, claims in pods:
        group[pod] = {pod}
        for claim in claims:
            mine, other = group[pod], group[first.setdefault(claim, pod)]
            if mine is not other:
                other |= mine
                group.update(dict.fromkeys(mine, other))
    return tuple(frozenset(one) for one in {id(one): one for one in group.values()}.values() if len(one) > 1)
