"""One node's devices as one pod may use them: what is free, what is touched, what is allowed.

A view is made per decision and dropped with it. It starts from the node's state and is narrowed by selectors,
NUMA affinity, exclusive policies and loans, or widened by what a loan or a victim gives back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from koordcore._record import record
from koordcore.allocators.device.shape import Amounts, TypeShape
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.wants import TypeWant
from koordcore.model.device_requests import (
    ExclusivePolicy,
)
from koordcore.model.devices import (
    DeviceType,
)
from koordcore.topology.devices import bits

PerMinor = Mapping[int, Amounts]


@record(kw_only=True)
class Terms:
    """On what terms a pod uses a node besides its own request.

    Parameters
    ----------
    lent
        Per type and minor: amounts to be counted as free although they are in use.
    lent_vfs
        Per type and minor: VFs (bit mask of ranks) likewise.
    limits
        Per type: the only minors that may be used, each with the most that may be used of it. A type that is
        absent is not limited.
    only_vfs
        Per type and minor: the only VFs that may be used.
    preferred
        Per type: minors to be used before others, as a bit mask.
    """

    lent: Mapping[DeviceType, PerMinor] = attrs.field(factory=dict)
    lent_vfs: Mapping[DeviceType, Mapping[int, int]] = attrs.field(factory=dict)
    limits: Mapping[DeviceType, PerMinor] = attrs.field(factory=dict)
    only_vfs: Mapping[DeviceType, Mapping[int, int]] = attrs.field(factory=dict)
    preferred: Mapping[DeviceType, int] = attrs.field(factory=dict)


PLAIN_TERMS = Terms()
"""No loan, no victim."""


class TypeView:
    """The devices of one type for one decision.

    Attributes
    ----------
    free
        Amounts per minor.
    busy
        Minors of which another pod holds something.
    allowed
        Minors that selectors, affinity and policies admit, whatever is left of them.
    usable
        Minors that can give one device's share of the request, a VF included where one is wanted.
    preferred
        Minors to be taken first.
    """

    __slots__ = (
        "_order",
        "_scores",
        "allowed",
        "busy",
        "free",
        "preferred",
        "shape",
        "usable",
        "vfs",
        "want",
    )

    def __init__(
        self,
        want: TypeWant,
        *,
        free: Mapping[int, Amounts],
        busy: int,
        allowed: int,
        vfs: Mapping[int, int] | None,
        preferred: int,
        limited: bool,
    ) -> None:
        self.want = want
        self.shape: TypeShape = want.shape
        self.free = free
        self.busy = busy
        self.allowed = allowed
        self.vfs = vfs
        self.preferred = preferred
        self._scores: dict[int, int] | None = None
        self._order: list[int] | None = None
        needs = want.needs
        usable = allowed & want.serving
        # An idle device serves by its build, unless terms limit what may be used of it.
        mask = usable if limited else usable & busy
        while mask:
            low = mask & -mask
            mask ^= low
            minor = low.bit_length() - 1
            left = free[minor]
            for column, amount in needs[minor]:
                if amount > left[column]:
                    usable ^= low
                    break
        if vfs is not None:
            for minor in bits(usable):
                if not vfs.get(minor, 0):
                    usable ^= 1 << minor
        self.usable = usable

    @property
    def scores(self) -> dict[int, int]:
        """Score of each usable device for this request."""
        if self._scores is None:
            self._scores = {minor: self._score(minor) for minor in bits(self.usable)}
        return self._scores

    @property
    def order(self) -> list[int]:
        """Usable minors: preferred first, best score first, lowest first."""
        if self._order is None:
            scores, preferred = self.scores, self.preferred
            if preferred:
                key = {minor: (not preferred >> minor & 1, -score, minor) for minor, score in scores.items()}
                self._order = sorted(scores, key=key.__getitem__)
            else:
                self._order = sorted(scores, key=lambda minor: (-scores[minor], minor))
        return self._order

    def ranked(self, minors: int) -> list[tuple[tuple[bool, int, int], int]]:
        """Order any devices, usable or not: preferred first, best score first, lowest first."""
        return sorted(
            ((not self.preferred >> minor & 1, -self._score(minor), minor), minor) for minor in bits(minors)
        )

    def _score(self, minor: int) -> int:
        return score_of(self.want, self.shape.totals[minor], self.free[minor])

    def slots(self, minor: int) -> int:
        """Count how often the device could give the request: once, or once per VF that a pod asks for."""
        if self.vfs is None or not self.want.by_vf:
            return 1
        left, needs = self.free[minor], self.want.needs[minor]
        most = self.vfs[minor].bit_count()
        for column, amount in needs:
            most = min(most, left[column] // amount)
        return most


def view_of(
    state: NodeDevices, want: TypeWant, numa_mask: int | None = None, terms: Terms = PLAIN_TERMS
) -> TypeView:
    """Look at one type of a node's devices through a request.

    Parameters
    ----------
    numa_mask
        Bit mask of NUMA ids that the pod is bound to; ``None`` for no affinity.
    """
    kind, shape = want.kind, want.shape
    free, busy, allowed = _base(state, want, numa_mask, terms)
    taken = state.use(kind).vfs if want.vf_ranks is not None else None
    lent_vfs = terms.lent_vfs.get(kind, {})
    if want.exclusive is not ExclusivePolicy.NONE:
        allowed &= ~_excluded(shape, busy, want.exclusive)
    vfs = None
    if taken is not None and want.vf_ranks is not None:
        vfs = {
            minor: ranks & ~(taken[shape.position[minor]] & ~lent_vfs.get(minor, 0))
            for minor, ranks in want.vf_ranks.items()
        }
        if kind in terms.only_vfs:
            vfs = {minor: ranks & terms.only_vfs[kind].get(minor, ranks) for minor, ranks in vfs.items()}
    preferred = terms.preferred.get(kind, 0)
    return TypeView(
        want,
        free=free,
        busy=busy,
        allowed=allowed,
        vfs=vfs,
        preferred=preferred,
        limited=terms is not PLAIN_TERMS,
    )


def open_amounts(
    state: NodeDevices, want: TypeWant, numa_mask: int | None = None, terms: Terms = PLAIN_TERMS
) -> tuple[PerMinor, int]:
    """Give the free amounts and the allowed minors of one type, whatever an exclusive policy says of them."""
    free, _, allowed = _base(state, want, numa_mask, terms)
    return free, allowed


def _base(
    state: NodeDevices, want: TypeWant, numa_mask: int | None, terms: Terms
) -> tuple[PerMinor, int, int]:
    kind, shape = want.kind, want.shape
    free: PerMinor = state.free[kind]
    busy = state.busy[kind]
    allowed = want.selected
    if terms is not PLAIN_TERMS:
        if kind in terms.lent:
            free, busy = _with_lent(shape, state, terms.lent[kind])
        if kind in terms.limits:
            limits = terms.limits[kind]
            inside = sum(1 << minor for minor in limits)
            allowed &= inside
            free = {
                minor: tuple(map(min, left, limits[minor])) if minor in limits else left
                for minor, left in free.items()
            }
            # What lies beyond the limit of a device is in use as far as the pod is concerned.
            cut = (minor for minor in bits(inside) if minor in free and free[minor] != shape.totals[minor])
            busy = busy & ~inside | sum(1 << minor for minor in cut)
    if numa_mask is not None:
        allowed &= shape.layout.numa_filter(numa_mask)
    return free, busy, allowed


def _with_lent(shape: TypeShape, state: NodeDevices, lent: PerMinor) -> tuple[PerMinor, int]:
    """Count lent amounts as free: what is in use beyond them stays in use."""
    use = state.use(shape.kind)
    free, busy = dict(state.free[shape.kind]), state.busy[shape.kind]
    for minor, amounts in lent.items():
        index = shape.position.get(minor)
        if index is None:
            continue
        used = tuple(max(0, u - back) for u, back in zip(use.used[index], amounts, strict=True))
        free[minor] = tuple(max(0, t - u) for t, u in zip(shape.totals[minor], used, strict=True))
        busy = busy | 1 << minor if any(used) else busy & ~(1 << minor)
    return free, busy


def _excluded(shape: TypeShape, busy: int, policy: ExclusivePolicy) -> int:
    """Find what an exclusive policy rules out: touched devices, or all on a switch with a touched one."""
    if policy is ExclusivePolicy.DEVICE_LEVEL:
        return busy
    excluded = busy
    for group in shape.layout.pcie_masks.values():
        if group & busy:
            excluded |= group
    return excluded


def score_of(want: TypeWant, total: Sequence[int], free: Sequence[int]) -> int:
    """Score a device (or the sum over many) 0..100 for a request."""
    score = heavy = 0
    for column, weight, amount in want.weights:
        size = total[column]
        if size == 0:
            continue
        taken = size - free[column] + amount if size >= free[column] else size
        if want.most:
            score += weight * (min(taken, size) * 100 // size)
        elif taken <= size:
            score += weight * ((size - taken) * 100 // size)
        heavy += weight
    return score // heavy if heavy else 0
