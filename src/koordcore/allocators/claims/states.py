"""What is held of the devices of a cluster, and the states in which nodes are by it.

Nodes of one shape on which the same places are held are in one *state*, and what claims get there is worked
out once for all of them: an answer speaks of places, not of names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from threading import Lock
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.allocators.claims.allocate import choose_forms, read_for
from koordcore.allocators.claims.cluster import ClusterDevices
from koordcore.allocators.claims.exact.options import options_lost
from koordcore.allocators.claims.features import ClaimFeature
from koordcore.allocators.claims.outcome import ClaimError, ClaimShortfall, ClaimsRefused
from koordcore.allocators.claims.pools import Pool, PoolDevice, PoolKey
from koordcore.allocators.claims.refusal import claim_shortfalls
from koordcore.allocators.claims.requests import ClaimForms
from koordcore.allocators.claims.results import Choice
from koordcore.allocators.claims.room import Room, make_room
from koordcore.allocators.claims.table import DeviceTable
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.claims import MAX_ALTERNATIVES, AllocationMode, ClaimAllocation, ResourceClaim
from koordcore.topology.numa import NUMAMask

StateAnswer: TypeAlias = tuple[Choice, ...] | ClaimsRefused | ClaimError
_KEPT: Final = 75
"""Of a hundred parts of the score so many are for what is left of cards, the others for fullness."""
_MAX_REQUESTS: Final = 512
_MAX_STATES: Final = 200_000


@attrs.define(eq=False)
class _PoolUse:
    """What is held of one pool, by name of the device."""

    whole: Counter[str] = attrs.field(factory=Counter)
    shares: Counter[str] = attrs.field(factory=Counter)
    consumed: dict[str, Counter[str]] = attrs.field(factory=dict)


class DevicesHeld:
    """What claims hold, by pool; allocations come and go."""

    def __init__(self, features: frozenset[ClaimFeature]) -> None:
        self._sharing = ClaimFeature.CONSUMABLE_CAPACITY in features
        self._pools: dict[PoolKey, _PoolUse] = {}

    def add(self, allocation: ClaimAllocation, sign: int = 1) -> set[PoolKey]:
        """Count an allocation, or take it off again; tells which pools changed."""
        changed: set[PoolKey] = set()
        for result in allocation.results:
            if result.admin_access:
                continue
            key = (result.driver, result.pool)
            changed.add(key)
            use = self._pools.setdefault(key, _PoolUse())
            if result.share_id is None or not self._sharing:
                _count(use.whole, result.device, sign)
                continue
            _count(use.shares, result.device, sign)
            amounts = use.consumed.setdefault(result.device, Counter())
            for name, amount in result.consumed_capacity.items():
                _count(amounts, name, sign * amount)
            if result.device not in use.shares:
                del use.consumed[result.device]
        return changed

    def of(self, pool: PoolKey) -> _PoolUse | None:
        """Give what is held of a pool; ``None`` where nothing is."""
        return self._pools.get(pool)


def _count(counter: Counter[str], name: str, amount: int) -> None:
    counter[name] += amount
    if not counter[name]:
        del counter[name]


@record(eq=False)
class PlacesHeld:
    """What is held of some pools, by the places of the devices.

    Parameters
    ----------
    whole
        Devices that one claim holds whole.
    shared
        Devices of which there are shares.
    consumed
        What shares take of a device, by capacity.
    elsewhere
        Devices in use that have no place and draw on counters of the pools.
    """

    whole: int
    shared: Sequence[int]
    consumed: Mapping[int, Mapping[str, int]]
    elsewhere: Sequence[PoolDevice]


def use_of(
    pools: Iterable[Pool], places: Mapping[PoolKey, Mapping[str, int]], held: DevicesHeld
) -> PlacesHeld:
    """Say what is held of some pools, whose devices have places by pool and name."""
    whole = 0
    shared: list[int] = []
    consumed: dict[int, Mapping[str, int]] = {}
    elsewhere: list[PoolDevice] = []
    for pool in pools:
        use = held.of((pool.driver, pool.name))
        if use is None:
            continue
        mine = places.get((pool.driver, pool.name), {})
        for name in use.whole:
            if name in mine:
                whole |= 1 << mine[name]
        for name in use.shares:
            if name in mine:
                shared.append(mine[name])
                consumed[mine[name]] = dict(use.consumed[name])
        elsewhere += [
            one
            for one in pool.consumers
            if one.id.device not in mine and (one.id.device in use.whole or one.id.device in use.shares)
        ]
    return PlacesHeld(whole, shared, consumed, elsewhere)


@record(eq=False)
class _State:
    shape: int
    held: int
    shared: tuple[int, ...]
    consumed: Mapping[int, Mapping[str, int]]
    elsewhere: tuple[PoolDevice, ...]
    beside: int = 0
    """Devices that are not to be had and hold nothing."""


class ClaimStates:
    """States that nodes were seen in, by number, and what was worked out about them.

    Parameters
    ----------
    devices
        The devices of the cluster.
    """

    def __init__(self, devices: ClusterDevices) -> None:
        self.devices = devices
        # Snapshots of one line share this, and their calls may run in threads.
        self._lock = Lock()
        self._numbers: dict[Hashable, int] = {}
        self._states: list[_State] = []
        self._rooms: dict[int, Room] = {}
        self._near: dict[tuple[int, NUMAMask], int] = {}
        self._answers: dict[Hashable, Answers] = {}
        self.empty = [self._number(_State(shape, 0, (), {}, ())) for shape in range(devices.shapes)]

    @property
    def full(self) -> bool:
        """More states were seen than are worth keeping."""
        return len(self._states) > _MAX_STATES

    def number_of(self, row: int, held: DevicesHeld) -> int:
        """Give the number of the state that a node is in."""
        use = use_of(self.devices.pools[row].pools, self.devices.places(row), held)
        shape = self.devices.shape[row]
        shared = tuple(sorted(use.shared))
        return self._number(_State(shape, use.whole, shared, use.consumed, tuple(use.elsewhere)))

    def _number(self, state: _State) -> int:
        key = (
            state.shape,
            state.held,
            state.shared,
            tuple(
                (place, tuple(sorted(amounts.items()))) for place, amounts in sorted(state.consumed.items())
            ),
            tuple(one.id for one in state.elsewhere),
            state.beside,
        )
        number = self._numbers.get(key)
        if number is None:
            with self._lock:
                number = self._numbers.get(key)
                if number is None:
                    self._states.append(state)
                    number = self._numbers[key] = len(self._states) - 1
        return number

    def take_over(self, before: ClaimStates, number: int, shape: int) -> int:
        """Give the number of a state that others had, of nodes that are of this shape now."""
        return self._number(attrs.evolve(before._states[number], shape=shape))

    def after(self, number: int, choices: Iterable[Choice]) -> int:
        """Give the number of the state that follows when claims take what was chosen."""
        state = self._states[number]
        shareable = self.devices.table(state.shape).shareable
        whole = state.held
        shared = set(state.shared)
        consumed = {place: Counter(amounts) for place, amounts in state.consumed.items()}
        for choice in choices:
            for taken in choice.taken:
                if taken.form.admin:
                    continue
                if not shareable >> taken.device & 1:
                    whole |= 1 << taken.device
                    continue
                shared.add(taken.device)
                consumed.setdefault(taken.device, Counter()).update(taken.form.amounts[taken.device])
        return self._number(attrs.evolve(state, held=whole, shared=tuple(sorted(shared)), consumed=consumed))

    def only(self, number: int, places: int) -> int:
        """Give the number of the state in which others than some devices are not to be had."""
        state = self._states[number]
        return self._number(attrs.evolve(state, beside=self.devices.table(state.shape).everything & ~places))

    def near(self, number: int, mask: NUMAMask) -> int:
        """Give the number of the state in which devices that are far from NUMA nodes are not to be had."""
        key = number, mask
        found = self._near.get(key)
        if found is None:
            state = self._states[number]
            table = self.devices.table(state.shape)
            far = table.everything & ~table.near_numa.devices(mask)
            found = self._near[key] = self._number(attrs.evolve(state, beside=state.beside | far))
        return found

    def shape_of(self, number: int) -> int:
        """Give the shape of the nodes in a state."""
        return self._states[number].shape

    def in_use(self, number: int) -> int:
        """Give the devices that are held in a state, whole or in shares."""
        state = self._states[number]
        return state.held | sum(1 << place for place in state.shared)

    def room(self, number: int) -> Room:
        """Give what is left of the devices in a state."""
        found = self._rooms.get(number)
        if found is None:
            state = self._states[number]
            table = self.devices.table(state.shape)
            found = make_room(table, state.held, state.shared, state.consumed, state.elsewhere)
            if state.beside:
                found = attrs.evolve(found, overdrawn=found.overdrawn | state.beside)
            self._rooms[number] = found
        return found

    def hold(self, number: int, pods: Sequence[tuple[ResourceClaim, ...]]) -> bool:
        """Tell whether a state has devices for the claims of several pods, all chosen together."""
        return self.together(pods).fits(number)

    def together(self, pods: Sequence[tuple[ResourceClaim, ...]]) -> Answers:
        """Open what is known about several pods whose devices are chosen together."""
        return self.answers(tuple(chain.from_iterable(pods)), AllocationMode.EXACT)

    def answers(
        self,
        claims: tuple[ResourceClaim, ...],
        mode: AllocationMode,
        limits: Limits = DEFAULT_LIMITS,
        *,
        packed: bool = True,
    ) -> Answers:
        """Open what is known about claims that ask for these things, whatever they are called.

        Parameters
        ----------
        claims
            In their order; names do not matter.
        mode
            Exact, or first fit as upstream does it.
        limits
            Budget of the exact search.
        packed
            States score by how well devices are packed there, otherwise by how much is free.
        """
        key = (tuple(claim.spec for claim in claims), mode, limits, packed)
        with self._lock:
            found = self._answers.pop(key, None)
            if found is None:
                found = Answers(self, claims, mode, limits, packed)
                if len(self._answers) >= _MAX_REQUESTS:
                    self._answers.pop(next(iter(self._answers)))
            self._answers[key] = found
        return found


class Answers:
    """What the claims of one kind of pods get in each state.

    Parameters
    ----------
    states
        Where the states are.
    claims
        Claims of one such pod.
    """

    def __init__(
        self,
        states: ClaimStates,
        claims: tuple[ResourceClaim, ...],
        mode: AllocationMode,
        limits: Limits,
        packed: bool,
    ) -> None:
        self._states = states
        self.claims = claims
        self._mode = mode
        self._limits = limits
        self._packs = packed
        self._scores: dict[int, int] = {}
        # By identity: devices keep the tables of their shapes for good.
        self._forms: dict[int, tuple[ClaimForms, ...] | ClaimError] = {}
        self._known: dict[int, StateAnswer] = {}
        self._lacking: dict[int, tuple[ClaimShortfall, ...]] = {}

    def at(self, number: int) -> StateAnswer:
        """Give what the claims get in a state."""
        found = self._known.get(number)
        if found is None:
            room = self._states.room(number)
            found = self._known[number] = choose_forms(
                room, self._read(room.table), mode=self._mode, limits=self._limits
            )
        return found

    def _read(self, table: DeviceTable) -> tuple[ClaimForms, ...] | ClaimError:
        """Read the claims against the devices of a shape, once for all states that nodes of it are in."""
        found = self._forms.get(id(table))
        if found is None:
            found = self._forms[id(table)] = read_for(
                table, self.claims, self._states.devices.classes, self._mode
            )
        return found

    def fits(self, number: int) -> bool:
        """Tell whether the claims fit in a state."""
        return isinstance(self.at(number), tuple)

    def shortfalls(self, number: int) -> tuple[ClaimShortfall, ...]:
        """Say what the claims lack in a state in which they do not fit."""
        found = self._lacking.get(number)
        if found is None:
            found = self._lacking[number] = claim_shortfalls(
                self._states.room(number), self.claims, self._states.devices.classes, limits=self._limits
            )
        return found

    def shortfalls_on(
        self, row: int, number: int, claims: tuple[ResourceClaim, ...]
    ) -> tuple[ClaimShortfall, ...]:
        """Say what claims that ask for the same lack on a node, by their own names.

        The node's own pools are named where they offer nothing.
        """
        pools = self._states.devices.pools[row]
        usable = all(one.usable for one in pools.pools)
        if usable and claims == self.claims:
            return self.shortfalls(number)
        room, classes = self._states.room(number), self._states.devices.classes
        return claim_shortfalls(room, claims, classes, limits=self._limits, pools=None if usable else pools)

    def score(self, number: int) -> int:
        """Score a state in which the claims fit, 0..100: early alternatives first, then packing.

        As upstream counts them: an alternative is worth 8 as the first of its request, and 1 less for each
        place further down.
        """
        found = self._scores.get(number)
        if found is None:
            found = self._scores[number] = self._score(number)
        return found

    def _score(self, number: int) -> int:
        chosen = self.at(number)
        if not isinstance(chosen, tuple):
            return 0
        places = [
            form.index
            for choice in chosen
            for form, request in zip(choice.forms, choice.claim.claim.spec.requests, strict=True)
            if request.prioritized
        ]
        packed = self._packed(number, chosen)
        if not places:
            return packed
        return (100 * sum(max(0, MAX_ALTERNATIVES - 1 - place) for place in places) + packed) // (
            MAX_ALTERNATIVES * len(places)
        )

    def _packed(self, number: int, chosen: tuple[Choice, ...]) -> int:
        """Rate how well a choice packs, or spreads where that is asked for, 0..100.

        By what is left of the cards that are partitioned, for three parts, and by how much of the node is in
        use. Of streams of single partitions over nodes of one to four cards fewer are refused by this than by
        either alone.
        """
        taken = [one.device for choice in chosen for one in choice.taken if not one.form.admin]
        used = self._states.in_use(number)
        for device in taken:
            used |= 1 << device
        room = self._states.room(number)
        total = room.table.everything.bit_count()
        full = 100 * used.bit_count() // total if total else 0
        if not self._packs:
            return 100 - full
        lost, most = options_lost(room, taken)
        return full if not most else (_KEPT * (100 - 100 * lost // most) + (100 - _KEPT) * full) // 100

    def unresolvable(self, number: int) -> bool:
        """Tell that the claims do not even fit where nobody holds anything."""
        return not self.fits(self._states.empty[self._states.shape_of(number)])

    def count(self, number: int, most: int) -> int:
        """Tell how many such pods fit in a state, up to ``most``; in exact mode as many as can be."""
        found = 0
        place = number
        while found < most:
            chosen = self.at(place)
            if not isinstance(chosen, tuple):
                break
            after = self._states.after(place, chosen)
            if after == place:
                return most
            place = after
            found += 1
        if found and self._mode is AllocationMode.EXACT:
            # One after another they may have taken what two of them need.
            while found < most and self._states.hold(number, [self.claims] * (found + 1)):
                found += 1
        return found
