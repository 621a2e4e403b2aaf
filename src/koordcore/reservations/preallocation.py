"""Placing a reservation over running pods, which become its first owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import (
    DEFAULT_RESERVATION_ARGS,
    AllocatePolicy,
    PreAllocationMode,
    Reservation,
    ReservationArgs,
)
from koordcore.model.resources import PODS, Resources, add, counted, subtract, total
from koordcore.protocol.reservation import PRE_ALLOCATION_REQUIRED, RESERVATION_ALLOCATED, reservation_wish
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.reservations.filter import (
    ReservationRefusal,
    ReservedNode,
    fits_node,
    fits_reservation,
    shares_names,
)
from koordcore.reservations.match import exact_match, owns, untolerated
from koordcore.reservations.nominate import score_reservation
from koordcore.reservations.state import ReservationState, assigned_pod

UNSUPPORTED: Final = "node(s) reservation pre allocation is unsupported with current attributes"
CLUSTER_MODE_DISABLED: Final = "reservation requires cluster mode pre-allocation which is disabled"
NO_CANDIDATE: Final = "node(s) no pod match reservation with pre allocation required"
Serves: TypeAlias = Callable[[tuple[Pod, ...]], bool]
_MOST_ASKED: Final = 4096
"""How many sets of pods of one node are asked about beyond their amounts; it ends hopeless searches."""
NO_POD: Final = "node(s) no pod(s) to meet the pre-allocation requirements"


def _anybody(pods: tuple[Pod, ...]) -> bool:
    return True


def requires_pods(reservation: Reservation) -> bool:
    """Tell whether a reservation may only be placed over running pods."""
    return reservation.pre_allocation and reservation.labels.get(PRE_ALLOCATION_REQUIRED) == "true"


def pre_allocation_refusal(
    reservation: Reservation, args: ReservationArgs = DEFAULT_RESERVATION_ARGS
) -> ReservationRefusal | None:
    """Tell why a reservation cannot be placed over pods whatever the node; ``None`` where it can."""
    if reservation.allocate_policy is not AllocatePolicy.RESTRICTED:
        return ReservationRefusal((UNSUPPORTED,), resolvable=False)
    if reservation.pre_allocation_policy.mode is PreAllocationMode.CLUSTER:
        if not args.pre_allocation.cluster_mode:
            return ReservationRefusal((CLUSTER_MODE_DISABLED,), resolvable=False)
    elif reservation.owners_error:
        return ReservationRefusal((reservation.owners_error,), resolvable=False)
    return None


def is_candidate(
    pod: Pod, state: ReservationState, node: Node, args: ReservationArgs = DEFAULT_RESERVATION_ARGS
) -> bool:
    """Tell whether a running pod may become an owner of a reservation placed over it.

    Its own wishes about reservations hold, apart from one that is marked unschedulable. A pod that uses
    another reservation already is no candidate in either mode.
    """
    one = state.reservation
    if not pod.bound or is_reserve_pod(pod) or RESERVATION_ALLOCATED in pod.annotations:
        return False
    if one.pre_allocation_policy.mode is PreAllocationMode.CLUSTER:
        if pod.labels.get(args.pre_allocation.label) != "true":
            return False
    else:
        selected = any(term.selector is not None and term.selector.matches(pod.labels) for term in one.owners)
        if not selected or not owns(one.owners, pod):
            return False
    try:
        wish = reservation_wish(pod.labels, pod.annotations)
    except ManifestError:
        return False
    affinity = wish.affinity
    if not exact_match(wish.exact, pod.requests, state.allocatable):
        return False
    if affinity is not None and affinity.name:
        return affinity.name == one.name
    if untolerated(one, wish):
        return False
    return affinity is None or affinity.selects(one.name, {**node.labels, **one.labels})


def _priority(pod: Pod, args: ReservationArgs) -> int:
    text = pod.annotations.get(args.pre_allocation.priority_annotation, "")
    body = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if body.isascii() and body.isdigit() and len(body) <= 19 else 0


def order_candidates(
    pods: Iterable[Pod], state: ReservationState, args: ReservationArgs = DEFAULT_RESERVATION_ARGS
) -> tuple[Pod, ...]:
    """Sort candidates, the best first.

    Cluster mode goes by the pods' priority, then by uid. Default mode goes by how fully the reservation would
    be used, where it may take in several, and by uid and name.
    """
    policy = state.reservation.pre_allocation_policy
    if policy.mode is PreAllocationMode.CLUSTER:
        return tuple(sorted(pods, key=lambda pod: (-_priority(pod, args), pod.uid, pod.key)))
    return tuple(
        sorted(pods, key=lambda pod: (-score_reservation(pod.requests, state), pod.uid, pod.key))
        if policy.enable_multiple
        else sorted(pods, key=lambda pod: (pod.uid, pod.key))
    )


@record(kw_only=True)
class PreAllocation:
    """Over which pods a reservation is placed on a node.

    Parameters
    ----------
    selected
        The pods among which it is chosen (single mode), or all that are taken in (multiple mode); none where
        the node has room without.
    nominated
        In single mode the pod that is taken in: the one that uses the reservation best; else ``None``.
    """

    selected: tuple[Pod, ...] = ()
    nominated: Pod | None = None


def pre_allocate(
    pod: Pod,
    state: ReservationState,
    node: ReservedNode,
    candidates: Sequence[Pod],
    *,
    args: ReservationArgs = DEFAULT_RESERVATION_ARGS,
    serves: Serves | None = None,
) -> PreAllocation | ReservationRefusal:
    """Choose over which pods of a node a reservation is placed.

    Where several may be taken in, the walk in the order of :func:`order_candidates` comes first, as upstream
    has it; where it finds no set, or one that is larger than need be, the smallest set that works is taken,
    and of these the one whose pods come first.

    Parameters
    ----------
    pod
        The pod that stands for the reservation.
    node
        With ``requested`` as it is now, and ``restored`` and ``pods`` without the candidates.
    candidates
        From :func:`is_candidate`, in the order of :func:`order_candidates`.
    serves
        What else pods must satisfy together, such as that the reservation gets their CPUs and devices; it is
        asked about sets whose amounts suffice, the empty one included, and about 4096 sets of a node at most.
    """
    search = _Choice(pod.requests, state, node, candidates, args, serves or _anybody)
    required = requires_pods(state.reservation)
    requests = pod.requests
    prefers_none = not required and args.pre_allocation.prefer_none
    if prefers_none and not fits_node(requests, node, matched=0, args=args) and search.serves(()):
        return PreAllocation()
    several = state.reservation.pre_allocation_policy.enable_multiple
    found = search.several() if several else search.single()
    if isinstance(found, PreAllocation):
        return found
    lacking, reasons = found
    if required:
        reasons_found = [*(f"Insufficient {name} by node" for name in sorted(lacking)), *reasons]
        return ReservationRefusal(tuple(reasons_found) or (NO_POD,))
    if not lacking and (candidates or prefers_none):
        lacking = set(fits_node(requests, node, matched=0, args=args))
    if lacking:
        return ReservationRefusal(tuple(f"Insufficient {name} by node" for name in sorted(lacking)))
    return PreAllocation()


def _freed(node: ReservedNode, pods: Iterable[Pod]) -> ReservedNode:
    return attrs.evolve(node, requested=subtract(node.requested, total(pod.requests for pod in pods)))


class _Choice:
    """The choice of pods of one node for one reservation.

    ``several`` and ``single`` give the pods, or what nodes lack and what the account says.
    """

    def __init__(
        self,
        requests: Resources,
        state: ReservationState,
        node: ReservedNode,
        candidates: Sequence[Pod],
        args: ReservationArgs,
        serves: Serves,
    ) -> None:
        self._requests = requests
        self._state = state
        self._node = node
        self._candidates = candidates
        self._args = args
        self._serves = serves
        self._asked: dict[tuple[PodKey, ...], bool] = {}

    def serves(self, pods: Sequence[Pod]) -> bool:
        """Ask whether pods satisfy what else there is; each set once, and no more sets than the bound."""
        key = tuple(pod.key for pod in pods)
        if key not in self._asked:
            self._asked[key] = len(self._asked) < _MOST_ASKED and self._serves(tuple(pods))
        return self._asked[key]

    def _lacking(self, pods: Sequence[Pod]) -> set[str]:
        freed = _freed(self._node, pods)
        return set(fits_node(self._requests, freed, matched=len(pods), args=self._args))

    def single(self) -> PreAllocation | tuple[set[str], list[str]]:
        """Choose one pod: of those that do, the one that uses the reservation best."""
        lacking: set[str] = set()
        reasons: list[str] = []
        clean = []
        for one in self._candidates:
            if not shares_names(one.requests, self._state):
                continue
            by_node = self._lacking([one])
            by_account = fits_reservation(one.requests, self._state, args=self._args)
            if not by_node and not by_account and self.serves([one]):
                clean.append(one)
            lacking.update(by_node)
            reasons += by_account
        if not clean:
            return lacking, reasons
        best = max(
            clean, key=lambda one: score_reservation(one.requests, self._state)
        )  # the first of the best
        return PreAllocation(selected=tuple(self._candidates), nominated=best)

    def several(self) -> PreAllocation | tuple[set[str], list[str]]:
        """Walk the candidates, then look for a smaller set than the walk found, or for any."""
        taken: list[Pod] = []
        filled = self._state
        lacking: set[str] = set()
        reasons: list[str] = []
        for one in self._candidates:
            if not shares_names(one.requests, self._state):
                continue
            trial = [*taken, one]
            lacking = self._lacking(trial)
            by_account = fits_reservation(one.requests, filled, args=self._args)
            if by_account:
                reasons += by_account
                continue
            if not lacking and not self.serves(trial):
                continue
            taken = trial
            filled = filled.with_user(assigned_pod(one))
            if not lacking:
                smaller = self._smallest(most=len(taken) - 1)
                return PreAllocation(selected=smaller or tuple(taken))
        found = self._smallest(most=len(self._candidates))
        return PreAllocation(selected=found) if found else (lacking, reasons)

    def _smallest(self, *, most: int) -> tuple[Pod, ...]:
        """Find the smallest set of candidates that does, the first in order; empty for none of that size.

        Sets are tried by size; a branch ends where even the largest candidates left cannot free enough, or
        the smallest ones overrun the account, or the same state was met before.
        """
        useful = [one for one in self._candidates if shares_names(one.requests, self._state)]
        names = sorted({name for one in useful for name in one.requests if counted(name)} - {PODS})
        needed = _needed(self._requests, self._node, self._args)
        room = _room(self._state, self._args)
        amounts = [tuple(one.requests.get(name, 0) for name in names) for one in useful]
        need = [needed.get(name, 0) for name in names]
        cap = [room.get(name) for name in names]
        if any(amount > 0 for name, amount in needed.items() if name not in names):
            return ()
        slots = room.get(PODS)
        for size in range(1, min(most, len(useful), len(useful) if slots is None else slots) + 1):
            for chosen in _Search(amounts, need, cap).of_size(size):
                picked = tuple(useful[index] for index in chosen)
                if self._lacking(picked):
                    break  # it is the number of pods, the same for all sets of the size
                if self.serves(picked):
                    return picked
                if len(self._asked) >= _MOST_ASKED:
                    return ()
        return ()


def _needed(requests: Resources, node: ReservedNode, args: ReservationArgs) -> dict[str, int]:
    """Give what has to be freed of each resource for the reservation to fit."""
    allocatable = node.node.allocatable
    return {
        name: amount - (allocatable.get(name, 0) - node.requested.get(name, 0))
        for name, amount in requests.items()
        if amount > 0 and name != PODS and counted(name) and not args.ignores(name)
    }


def _room(state: ReservationState, args: ReservationArgs) -> dict[str, int]:
    """Give what the account of the reservation still covers."""
    used = add(state.allocated, state.reserved)
    room = {
        name: state.allocatable[name] - used.get(name, 0)
        for name in state.names
        if name != PODS and not args.ignores(name)
    }
    if PODS in state.allocatable:
        room[PODS] = state.allocatable[PODS] - len(state.assigned)
    return room


class _Search:
    """Sets of one size with sums between two bounds, in lexicographic order of their indices."""

    def __init__(
        self, amounts: Sequence[tuple[int, ...]], need: Sequence[int], cap: Sequence[int | None]
    ) -> None:
        self._amounts = amounts
        self._need = need
        self._cap = cap
        self._failed: set[tuple[int, int, tuple[int, ...]]] = set()
        kinds = range(len(need))
        # By start and resource: all later amounts, smallest first.
        self._later = [
            [sorted(one[kind] for one in amounts[start:]) for kind in kinds]
            for start in range(len(amounts) + 1)
        ]

    def of_size(self, size: int) -> Iterator[tuple[int, ...]]:
        """Give the sets of that size, the first first."""
        return self._from(0, size, (0,) * len(self._need), ())

    def _from(
        self, start: int, left: int, sums: tuple[int, ...], chosen: tuple[int, ...]
    ) -> Iterator[tuple[int, ...]]:
        if left == 0:
            if all(sum_ >= need for sum_, need in zip(sums, self._need, strict=True)):
                yield chosen
            return
        if len(self._amounts) - start < left or (start, left, sums) in self._failed:
            return
        found = False
        if self._within(start, left, sums):
            for index in range(start, len(self._amounts) - left + 1):
                after = tuple(map(int.__add__, sums, self._amounts[index]))
                if any(cap is not None and one > cap for one, cap in zip(after, self._cap, strict=True)):
                    continue
                for one_set in self._from(index + 1, left - 1, after, (*chosen, index)):
                    found = True
                    yield one_set
        if not found:
            self._failed.add((start, left, sums))

    def _within(self, start: int, left: int, sums: tuple[int, ...]) -> bool:
        """Tell whether the largest of what is left free enough, and the smallest fit the account."""
        for kind, later in enumerate(self._later[start]):
            cap = self._cap[kind]
            if sums[kind] + sum(later[-left:]) < self._need[kind]:
                return False
            if cap is not None and sums[kind] + sum(later[:left]) > cap:
                return False
        return True
