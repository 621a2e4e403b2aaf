"""Which NUMA nodes of a node serve a pod: hints and the choice among them under the pod's policy.

One provider of hints would suffice for CPUs and amounts; :class:`NUMAProvider` lets devices take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, Protocol

import attrs

from koordcore._record import record
from koordcore.allocators.numa_fit import Offer, feasible_masks, offer_of
from koordcore.allocators.numa_request import CPUDemand, NUMARefusal
from koordcore.allocators.numa_state import NO_GIVE_BACK, GiveBack, NUMAState
from koordcore.model.decisions import Shortfall
from koordcore.model.numa import DEFAULT_NUMA_ARGS, NUMAArgs, amplify
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.model.resources import CPU, is_scalar
from koordcore.topology.numa import (
    NUMAExclusive,
    NUMAHint,
    NUMAMask,
    NUMATopologyPolicy,
    exclusive_allows,
    masks_by_size,
    numa_ids,
    unaligned_reason,
)

_MISSING_NUMA: Final = "node(s) missing NUMA resources"
_NO_NUMA_RESOURCES: Final = "node(s) Insufficient NUMA Node resources"


@record(kw_only=True)
class NUMATrial:
    """A loan from which a pod may be served.

    Parameters
    ----------
    name
        Whose it is.
    give_back
        What counts as free when it is used.
    guard
        What must suffice as well, though it is not used; ``None`` for nothing.
    """

    name: str
    give_back: GiveBack
    guard: GiveBack | None = None


@record(kw_only=True)
class NUMARoom:
    """Where on a node a pod may find its CPUs and amounts besides what is simply free.

    Parameters
    ----------
    trials
        Loans, in the order in which they are tried before the node itself.
    fallback
        What counts as free when no loan is used; ``None`` where the pod must be served by one.
    scored
        What counts as free when NUMA nodes are compared.
    refusal
        What to say where nothing serves the pod; empty for the reasons of each trial.
    """

    trials: tuple[NUMATrial, ...] = ()
    fallback: GiveBack | None = NO_GIVE_BACK
    scored: GiveBack = NO_GIVE_BACK
    refusal: str = ""


PLAIN_ROOM: Final = NUMARoom()


@record
class NUMAAdmission:
    """A node that may take a pod.

    Parameters
    ----------
    policy
        Effective topology policy.
    aligned
        NUMA nodes were looked at.
    mask
        The NUMA nodes that were chosen; ``None`` where they do not matter.
    """

    policy: NUMATopologyPolicy = NUMATopologyPolicy.NONE
    aligned: bool = False
    mask: NUMAMask | None = None


class NUMAProvider(Protocol):
    """Something else that a pod needs from the same NUMA nodes, such as devices."""

    @property
    def names(self) -> Sequence[str]:
        """Resources that it answers for, in the order of their names."""

    @property
    def aligned(self) -> bool:
        """Whether NUMA nodes matter to it at all."""

    def feasible(self, mask: NUMAMask) -> bool:
        """Tell whether it can serve the pod from the NUMA nodes of a mask."""

    def score(self, mask: NUMAMask) -> int:
        """Rate a feasible mask; the higher, the better."""

    def refusal(self) -> NUMARefusal | None:
        """Say why it can serve the pod from no mask; ``None`` where it can."""


NO_PROVIDERS: Final[tuple[NUMAProvider, ...]] = ()


def offers_of(state: NUMAState, demand: CPUDemand, room: NUMARoom) -> list[tuple[str, Offer]]:
    """What loans and the node can give, by name of the loan, in the order of trial.

    Parameters
    ----------
    state, demand
        The node with its holders, and what the pod asks for there.
    room
        The loans that are tried, and whether the node itself is.
    """
    offers = []
    for trial in room.trials:
        guard = None if trial.guard is None else offer_of(state, demand, trial.guard)
        offers.append((trial.name, offer_of(state, demand, trial.give_back, guard=guard)))
    if room.fallback is not None:
        offers.append(("", offer_of(state, demand, room.fallback)))
    return offers


@record(kw_only=True)
class MaskField:
    """The masks of one node that can serve one pod, found size by size."""

    state: NUMAState
    demand: CPUDemand
    offers: Sequence[Offer]
    providers: Sequence[NUMAProvider]
    scorer: _MaskScorer

    def of_size(self, size: int) -> list[NUMAMask]:
        """Feasible masks of one size, lexicographically."""
        masks = feasible_masks(self.offers, self.state.node.zone_ids, size)
        for provider in self.providers:
            if provider.aligned:
                masks = [mask for mask in masks if provider.feasible(mask)]
        return masks

    def score(self, mask: NUMAMask) -> int:
        """Sum of the scores that all resources give a mask, as merging their hints would have it."""
        total = len(self.known) * self.scorer.score(mask) if self.known else 0
        for provider in self.providers:
            if provider.aligned:
                total += len(provider.names) * provider.score(mask)
        return total

    @cached_property
    def known(self) -> list[str]:
        """Requested resources that some NUMA node knows."""
        return sorted({name for offer in self.offers for name in offer.most})

    @property
    def names(self) -> list[str]:
        """Every resource that cares about NUMA nodes."""
        aligned = [name for provider in self.providers if provider.aligned for name in provider.names]
        return [*self.known, *aligned]


def align(
    state: NUMAState,
    demand: CPUDemand,
    *,
    args: NUMAArgs = DEFAULT_NUMA_ARGS,
    room: NUMARoom = PLAIN_ROOM,
    providers: Sequence[NUMAProvider] = NO_PROVIDERS,
) -> NUMAAdmission | NUMARefusal:
    """Choose the NUMA nodes of a pod under its topology policy.

    A mask serves the pod exactly when one allocation of everything that it asks for exists there. Fewest NUMA
    nodes win, then the higher score, then the smallest value; required exclusiveness rules masks out, under
    BestEffort only as long as others of the same size remain. With no mask, ``RESTRICTED`` and
    ``SINGLE_NUMA_NODE`` refuse, and ``BEST_EFFORT`` goes on with all NUMA nodes, or with none where there are
    none.

    Parameters
    ----------
    state, demand
        The node with its holders, and what the pod asks for there.
    args
        How NUMA nodes are rated.
    room
        Which loans are tried, and what counts as free where NUMA nodes are compared.
    providers
        What else the pod needs from the same NUMA nodes.
    """
    node, policy = state.node, demand.policy
    if not node.zones:
        if policy is NUMATopologyPolicy.BEST_EFFORT:
            return NUMAAdmission(policy, True)
        return NUMARefusal.because(_MISSING_NUMA, resolvable=False)
    if demand.bind and not node.topology.valid:
        return NUMARefusal.because(_NO_NUMA_RESOURCES)
    field = field_of(state, demand, args, room, providers)
    single = policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    if not field.names:
        return NUMAAdmission(policy, True, None if single else node.everything)
    allowed = _smallest_allowed(field)
    if allowed:
        best = allowed[0]
        if len(allowed) > 1:
            best = min(allowed, key=lambda mask: (-field.score(mask), mask))
        whole = single and best == node.everything
        return NUMAAdmission(policy, True, None if whole else best)
    if policy is NUMATopologyPolicy.BEST_EFFORT:
        return NUMAAdmission(policy, True, node.everything)
    return _refused(field, policy)


def _smallest_allowed(field: MaskField) -> list[NUMAMask]:
    """Masks of the smallest size that has any which exclusiveness lets the pod use."""
    demand, state = field.demand, field.state
    single = demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    exclusive = demand.request.exclusive_here
    strict = exclusive is NUMAExclusive.REQUIRED
    status = state.usage.status if strict else {}
    for size in range(1, 2 if single else len(state.node.zone_ids) + 1):
        masks = field.of_size(size)
        allowed = [mask for mask in masks if exclusive_allows(mask, exclusive, status)] if strict else masks
        if demand.policy is NUMATopologyPolicy.BEST_EFFORT:
            allowed = allowed or masks
        if allowed:
            return allowed
    return []


def has_room(
    state: NUMAState,
    demand: CPUDemand,
    providers: Sequence[NUMAProvider],
) -> bool:
    """Tell whether some set of NUMA nodes surely serves a pod, without choosing the best.

    ``False`` is no refusal yet: :func:`align` may still find that NUMA nodes do not matter.

    Parameters
    ----------
    state, demand, providers
        As for :func:`align`.
    """
    node = state.node
    if not node.zones or (demand.bind and not node.topology.valid):
        return False
    field = field_of(state, demand, DEFAULT_NUMA_ARGS, PLAIN_ROOM, providers)
    whole = demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE and len(node.zone_ids) == 1
    return bool(field.names) and not whole and bool(_smallest_allowed(field))


def allowed_masks(state: NUMAState, demand: CPUDemand, args: NUMAArgs) -> Iterator[NUMAMask]:
    """Every set of NUMA nodes that a pod may be given, best first, as :func:`align` would choose them.

    What exclusiveness rules out comes last of its size under BestEffort, and not at all under other policies.
    """
    field = field_of(state, demand, args, PLAIN_ROOM)
    single = demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    best_effort = demand.policy is NUMATopologyPolicy.BEST_EFFORT
    exclusive, status = demand.request.exclusive_here, state.usage.status
    for size in range(1, 2 if single else len(state.node.zone_ids) + 1):
        masks = field.of_size(size)
        best = [mask for mask in masks if exclusive_allows(mask, exclusive, status)]
        rest = [mask for mask in masks if mask not in best] if best_effort else []
        for some in (best, rest):
            yield from sorted(some, key=lambda mask: (-field.score(mask), mask))


def field_of(
    state: NUMAState,
    demand: CPUDemand,
    args: NUMAArgs,
    room: NUMARoom,
    providers: Sequence[NUMAProvider] = NO_PROVIDERS,
) -> MaskField:
    """Give the masks of a node that can serve a pod, found and rated on demand; see :func:`align`.

    Parameters
    ----------
    state, demand, args, room, providers
        As for :func:`align`.
    """
    offers = [offer for _, offer in offers_of(state, demand, room)]
    same = next((offer for offer in offers if offer.give_back is room.scored), None)
    return MaskField(
        state=state,
        demand=demand,
        offers=offers,
        providers=providers,
        scorer=_MaskScorer(state, demand, args, room.scored, same),
    )


def _refused(field: MaskField, policy: NUMATopologyPolicy) -> NUMARefusal:
    """Say why no mask will do, in upstream's words: what each side has by itself."""
    failures = [refusal for provider in field.providers if (refusal := provider.refusal()) is not None]
    if failures:
        return NUMARefusal(tuple(one for failure in failures for one in failure.shortfalls))
    sides = [hints_of(attrs.evolve(field, providers=()), policy)]
    for provider in field.providers:
        if provider.aligned:
            masks = [mask for mask in _every_mask(field) if provider.feasible(mask)]
            sides.append(dict.fromkeys(provider.names, _ranked(masks, policy, provider.score)))
    unsatisfied = sorted(name for side in sides for name, listed in side.items() if not listed)
    if unsatisfied:
        return NUMARefusal(tuple(_unsatisfied(field, name) for name in unsatisfied))
    return NUMARefusal.because(unaligned_reason(sides, policy))


def _unsatisfied(field: MaskField, name: str) -> Shortfall:
    """Say how much of a resource the NUMA nodes that the policy allows could give at most."""
    requested = field.demand.request.requests.get(name, 0)
    single = field.demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    gather = max if single else sum
    there = [gather(offer.most[name].values()) for offer in field.offers if offer.most.get(name)]
    return Shortfall(f"Unsatisfied NUMA {name}", name, requested, max(there, default=0))


def _every_mask(field: MaskField) -> Iterator[NUMAMask]:
    ids = field.state.node.zone_ids
    for size in range(1, len(ids) + 1):
        yield from masks_by_size(ids, size)


def _ranked(
    masks: Sequence[NUMAMask], policy: NUMATopologyPolicy, score: Callable[[NUMAMask], int]
) -> list[NUMAHint]:
    """Hints of feasible masks, smallest first: preferred are the smallest, under RESTRICTED all."""
    smallest = masks[0].bit_count() if masks else 0
    every = policy is NUMATopologyPolicy.RESTRICTED
    return [NUMAHint(mask, every or mask.bit_count() == smallest, score(mask)) for mask in masks]


def hints_of(field: MaskField, policy: NUMATopologyPolicy) -> dict[str, list[NUMAHint]]:
    """List every mask that serves CPUs and amounts, for each resource that some NUMA node knows.

    Masks come by size and then lexicographically; all resources have the same, because each mask is judged
    by one allocation of everything. Preferred are those of the smallest size, under RESTRICTED all.
    """
    masks = [mask for size in range(1, len(field.state.node.zone_ids) + 1) for mask in field.of_size(size)]
    return dict.fromkeys(field.names, _ranked(masks, policy, field.scorer.score))


class _MaskScorer:
    """Rates sets of NUMA nodes by what would be left on them."""

    def __init__(
        self,
        state: NUMAState,
        demand: CPUDemand,
        args: NUMAArgs,
        give_back: GiveBack,
        offer: Offer | None,
    ) -> None:
        self._state, self._demand, self._args, self._give_back = state, demand, args, give_back
        self._offer = offer

    def score(self, mask: NUMAMask) -> int:
        """Rate a mask, 0..100."""
        if self._offer is None:
            self._offer = offer_of(self._state, self._demand, self._give_back)
        capacity: dict[str, int] = {}
        requested: dict[str, int] = {}
        zones = self._state.node.capacity
        for numa in numa_ids(mask):
            here, free = zones[numa], self._offer.available.get(numa, {})
            for name, _ in self._args.weights:
                if name in here:
                    amount = here[name]
                    capacity[name] = capacity.get(name, 0) + amount
                    requested[name] = requested.get(name, 0) + amount - free.get(name, 0)
        request = pod_request(self._demand, self._state)
        return score_amounts(self._args.numa_scoring, self._args.weights, capacity, requested, request)


def pod_request(demand: CPUDemand, state: NUMAState) -> Mapping[str, int]:
    """Amounts of a pod as scores count them: CPU amplified where the pod is bound."""
    requests = demand.request.requests
    ratio = state.node.cpu_ratio or 1.0
    if demand.bind and ratio > 1 and requests.get(CPU):
        return {**requests, CPU: amplify(requests[CPU], ratio)}
    return requests


def score_amounts(
    strategy: ScoringStrategy,
    weights: Sequence[tuple[str, int]],
    capacity: Mapping[str, int],
    requested: Mapping[str, int],
    request: Mapping[str, int],
) -> int:
    """Weighted mean of how full, or how free, each resource would be, 0..100.

    A resource without capacity does not count, nor does one beyond CPU, memory and storage that the pod does
    not ask for.

    Parameters
    ----------
    strategy
        Fuller is better under MostAllocated, else emptier.
    weights
        Resources with their weights, above zero.
    capacity, requested
        What there is, and what is requested of it without the pod; milli-CPU and bytes.
    request
        What the pod asks for.
    """
    total = weight_sum = 0
    for name, weight in weights:
        room = capacity.get(name, 0)
        if room == 0 or (is_scalar(name) and not request.get(name)):
            continue
        used = requested.get(name, 0) + request.get(name, 0)
        if strategy is ScoringStrategy.MOST_ALLOCATED:
            total += weight * (min(used, room) * 100 // room)
        else:
            total += weight * (0 if used > room else (room - used) * 100 // room)
        weight_sum += weight
    return total // weight_sum if weight_sum else 0
