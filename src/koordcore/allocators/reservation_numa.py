"""CPUs and NUMA amounts that reservations hold, and how a pod gets at them.

A reservation and its owners both hold the same CPUs and amounts, so that whatever owners use of a reservation
counts twice on the node; giving back corrects that for every pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import attrs

from koordcore._record import record
from koordcore.allocators.numa_align import NUMARoom, NUMATrial
from koordcore.allocators.numa_state import GiveBack
from koordcore.model.numa import CPUAllocation, NUMANodeResource
from koordcore.model.resources import make_resources
from koordcore.topology.cpu import NO_CPUS, CPUSet

NOMINATED_REFUSED: Final = "pod has a nominated reservation but cannot be allocated within its NUMA scope"

_Amounts = dict[int, dict[str, int]]


class ReservationUse(StrEnum):
    """How a pod stands to the reservations of a node."""

    OPTIONAL = "optional"
    REQUIRED = "required"
    IGNORED = "ignored"


@record(kw_only=True)
class NUMAReservation:
    """What one reservation holds of a node's CPUs and NUMA nodes.

    Parameters
    ----------
    name, uid
        Of the reservation; trials go by uid.
    matched
        Whether the pod may use it.
    restricted
        Allocate policy Restricted: what is left of it must suffice. Otherwise the pod may take from the node
        as well.
    allocation
        What it holds, as recorded.
    owners
        What the pods hold that use it.
    shared
        It was made for shared CPUs: it has amounts of NUMA nodes, of which any free CPUs there are part.
    """

    name: str
    uid: str
    matched: bool
    restricted: bool = False
    allocation: CPUAllocation
    owners: tuple[CPUAllocation, ...] = ()
    shared: bool = False

    @property
    def remained_cpus(self) -> CPUSet:
        """Reserved CPUs that no owner holds."""
        left = self.allocation.cpuset
        for owner in self.owners:
            left &= ~owner.cpuset
        return left

    @property
    def remained(self) -> tuple[NUMANodeResource, ...]:
        """Reserved amounts that no owner holds; negative where owners hold more."""
        sums = _sums([self.allocation])
        for numa, amounts in _sums(self.owners).items():
            here = sums.setdefault(numa, {})
            for name, amount in amounts.items():
                here[name] = here.get(name, 0) - amount
        return _entries(sums)


def _sums(allocations: Iterable[CPUAllocation]) -> _Amounts:
    sums: _Amounts = {}
    for allocation in allocations:
        _add(sums, allocation.numa_resources)
    return sums


def _add(sums: _Amounts, entries: Iterable[NUMANodeResource]) -> None:
    for entry in entries:
        here = sums.setdefault(entry.node, {})
        for name, amount in entry.resources.items():
            here[name] = here.get(name, 0) + amount


def _entries(sums: _Amounts) -> tuple[NUMANodeResource, ...]:
    return tuple(NUMANodeResource(numa, make_resources(sums[numa])) for numa in sorted(sums))


def _used(reservation: NUMAReservation) -> tuple[NUMANodeResource, ...]:
    """What owners use of a reservation: never more than it holds, nothing where they hold less than none."""
    remained = _sums([])
    _add(remained, reservation.remained)
    return tuple(
        NUMANodeResource(
            entry.node,
            make_resources(
                {
                    name: max(0, amount - remained[entry.node].get(name, 0))
                    for name, amount in entry.resources.items()
                }
            ),
        )
        for entry in reservation.allocation.numa_resources
    )


def room_of(
    reservations: Sequence[NUMAReservation],
    *,
    use: ReservationUse = ReservationUse.OPTIONAL,
    nominated: str | None = None,
) -> NUMARoom:
    """Work out where a pod may find CPUs and amounts on a node with reservations.

    Parameters
    ----------
    reservations
        All of the node, used or not.
    use
        ``REQUIRED``: without a reservation the pod is refused. ``IGNORED``: the pod takes what is reserved
        and unused as if it were free.
    nominated
        Uid of the reservation that the pod has to use; ``None`` before one is chosen.
    """
    ordered = sorted(reservations, key=lambda one: (one.uid, one.name))
    twice: _Amounts = {}
    for one in ordered:
        _add(twice, _used(one) if not one.matched else _entries(_sums(one.owners)))
    if use is ReservationUse.IGNORED:
        freed = {numa: dict(amounts) for numa, amounts in twice.items()}
        cpus = NO_CPUS
        for one in ordered:
            _add(freed, one.remained)
            cpus |= one.remained_cpus
        everything = GiveBack(preferred_cpus=cpus, reusable=_entries(freed))
        return NUMARoom(fallback=everything, scored=everything)
    matched = [one for one in ordered if one.matched]
    scored: _Amounts = {}
    for one in ordered:
        _add(scored, one.allocation.numa_resources if one.matched else _used(one))
    free = NO_CPUS
    for one in matched:
        free |= one.remained_cpus
    fallback: GiveBack | None = GiveBack(reusable=_entries(twice))
    if nominated is not None or (use is ReservationUse.REQUIRED and matched):
        fallback = None
    chosen = matched if nominated is None else [one for one in matched if one.uid == nominated]
    return NUMARoom(
        trials=tuple(_trial(one, twice) for one in chosen),
        fallback=fallback,
        scored=GiveBack(preferred_cpus=free, reusable=_entries(scored)),
        refusal=NOMINATED_REFUSED if nominated is not None else "",
    )


def _trial(one: NUMAReservation, twice: _Amounts) -> NUMATrial:
    sums = {numa: dict(amounts) for numa, amounts in twice.items()}
    _add(sums, one.remained)
    # Only CPUs of this reservation: upstream also frees those of every other one that the pod matches.
    aligned = GiveBack(preferred_cpus=one.remained_cpus, reusable=_entries(sums))
    if not one.restricted:
        return NUMATrial(name=one.name, give_back=aligned)
    # What it does not hold comes from the node, as of one that may be left.
    held = {name for entry in one.allocation.numa_resources for name in entry.resources}
    remained = {
        entry.node: {name: amount for name, amount in entry.resources.items() if name in held}
        for entry in one.remained
    }
    own = GiveBack(
        preferred_cpus=one.remained_cpus,
        reusable=aligned.reusable,
        available=_entries(remained),
        cpus=one.remained_cpus,
        shared=one.shared,
    )
    return NUMATrial(name=one.name, give_back=own, guard=aligned)


def remaining_cpus(held: CPUAllocation, used: Iterable[CPUAllocation]) -> CPUAllocation:
    """Give what a reservation still holds besides what its users took of it."""
    one = NUMAReservation(name=held.name, uid=held.uid, matched=False, allocation=held, owners=tuple(used))
    left = {
        entry.node: {name: max(0, amount) for name, amount in entry.resources.items() if amount > 0}
        for entry in one.remained
    }
    return attrs.evolve(
        held,
        cpuset=one.remained_cpus,
        numa_resources=_entries({numa: amounts for numa, amounts in left.items() if amounts}),
    )
