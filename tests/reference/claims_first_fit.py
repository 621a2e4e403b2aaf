"""The allocator of Kubernetes 1.37 read word by word: first fit without memory (``../spec/dra.md`` 3 to 11).

It knows no masks, no classes of equal devices and no failed states, and gives up after some steps. With
``lenient`` it is brute force for the exact answer: constraints restrict sets of all devices instead of ending
the search, and devices on which something fails are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, TypeAlias

import attrs

from koordcore.model.claims import DeviceConstraint, DeviceSubRequest, ResourceClaim
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    CapacityRange,
    DeviceCapacity,
    DeviceId,
    DeviceTaint,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.selectors import NodeSelector

_UNIT: Final = Fraction(10**9)
_MILLI: Final = Fraction(10**6)
_MOST: Final = 2**63 - 1
_LIMIT: Final = 32

Selects: TypeAlias = Callable[[str, str, SliceDevice], bool | str]
"""Whether an expression selects a device of a driver; a text is the kind of error that it ends in."""
Derives: TypeAlias = Callable[[str, str, SliceDevice], AttributeValue | str | None]
Answer: TypeAlias = list[list[tuple[str, DeviceId]]]
"""By claim: name of the request and device, in the order of taking."""


class Failed(Exception):  # noqa: N818 - it ends a search as the reference's errors do
    """The whole allocation ends; ``kind`` is that of the vectors."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class GaveUp(Exception):  # noqa: N818 - nothing is known
    """The search took too long."""


@attrs.frozen(kw_only=True)
class World:
    """What one allocation is asked against.

    Parameters
    ----------
    able
        The node's ``status.declaredFeatures``.
    slices
        All slices of the cluster, in their order.
    classes
        Selectors by name of the class.
    on
        Names of the features that are switched on.
    whole, shares, consumed
        Devices that one claim holds, devices of which there are shares, and what shares take by capacity.
    """

    node: str
    labels: Mapping[str, str]
    able: Sequence[str]
    slices: Sequence[ResourceSlice]
    classes: Mapping[str, Sequence[str | None]]
    selects: Selects
    derives: Derives
    on: frozenset[str]
    whole: frozenset[DeviceId] = frozenset()
    shares: frozenset[DeviceId] = frozenset()
    consumed: Mapping[DeviceId, Mapping[str, int]] = attrs.field(factory=dict)

    def has(self, feature: str) -> bool:
        """Tell whether a feature is on."""
        return feature in self.on

    def in_state(self, device: DeviceId) -> bool:
        """Tell whether the device counts as allocated for counters."""
        return device in self.whole or device in self.shares or device in self.consumed


# --- pools (section 3) --------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Pool:
    driver: str
    name: str
    kept: list[ResourceSlice]
    others: list[ResourceSlice] = attrs.field(factory=list)
    incomplete: bool = False
    invalid: bool = False

    @property
    def all_slices(self) -> list[ResourceSlice]:
        return [*self.kept, *self.others]


def _near(world: World, name: str, selector: NodeSelector | None, everywhere: bool) -> bool:
    if name:
        return name == world.node
    return everywhere or (selector is not None and selector.matches(world.node, world.labels))


def _reaches(world: World, device: SliceDevice) -> bool:
    return _near(world, device.node_name, device.node_selector, device.all_nodes)


def _relevant(world: World, one: ResourceSlice) -> bool:
    if one.per_device_node_selection and not one.node_name:
        return any(_reaches(world, device) for device in one.devices)
    return _near(world, one.node_name, one.node_selector, one.all_nodes)


def _uses_groups(one: ResourceSlice) -> bool:
    return any(entry.compatibility_groups for device in one.devices for entry in device.consumes_counters)


def gather(world: World) -> list[_Pool]:
    """Gather the pools of a node in the order in which they are searched."""
    known = [
        one for one in world.slices if world.has("DRADeviceCompatibilityGroups") or not _uses_groups(one)
    ]
    partitions = world.has("DRAPartitionableDevices")
    candidates = [one for one in known if one.node_name == world.node]
    candidates += [one for one in known if not one.node_name]
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for one in candidates:
        if not partitions and (one.shared_counters or one.per_device_node_selection is not None):
            continue
        if _relevant(world, one):
            pools.setdefault((one.driver, one.pool), []).append(one)
    found = []
    for (driver, name), slices in pools.items():
        newest = max(one.generation for one in slices)
        pool = _Pool(driver, name, [one for one in slices if one.generation == newest])
        everywhere = [one for one in known if (one.driver, one.pool) == (driver, name)]
        if len(pool.kept) != pool.kept[0].slice_count:
            if any(one.generation > newest for one in everywhere):
                continue
            same = [one for one in everywhere if one.generation == newest]
            pool.others = [one for one in same if not any(one is kept for kept in pool.kept)]
            pool.incomplete = len(same) != pool.kept[0].slice_count
        pool.invalid = not pool.incomplete and not _valid(pool, partitions)
        pool.kept.sort(key=lambda one: one.name.encode())
        found.append(pool)

    def conditional(pool: _Pool) -> bool:
        return any(device.binding_conditions for one in pool.kept for device in one.devices)

    found.sort(key=lambda pool: (conditional(pool), pool.driver.encode(), pool.name.encode()))
    return found


def _valid(pool: _Pool, partitions: bool) -> bool:
    names = [device.name for one in pool.kept for device in one.devices]
    sets = [(one.name, one) for each in pool.all_slices for one in each.shared_counters]
    if len(set(names)) < len(names) or len({name for name, _ in sets}) < len(sets):
        return False
    published = {name: one.counters for name, one in sets}
    return not partitions or all(
        entry.counter_set in published and set(entry.counters) <= set(published[entry.counter_set])
        for one in pool.all_slices
        for device in one.devices
        for entry in device.consumes_counters
    )


# --- one device (sections 4 and 7) --------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Device:
    id: DeviceId
    device: SliceDevice
    slice: ResourceSlice
    pool: _Pool


def bars(form: DeviceSubRequest, taint: DeviceTaint) -> bool:
    """Tell whether a taint keeps a form from a device."""
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return False
    for one in form.tolerations:
        same = one.effect in ("", taint.effect) and one.key in ("", taint.key)
        if same and (
            one.operator == "Exists" or (one.operator in ("", "Equal") and one.value == taint.value)
        ):
            return False
    return True


def consumption(capacity: DeviceCapacity, asked: int | None, *, fractional: bool) -> Fraction | None:
    """Give what is consumed of a capacity; ``None`` where its policy is violated.

    Raises
    ------
    Failed
        Where the amount cannot be represented.
    """
    policy = capacity.policy
    if policy is None:
        return Fraction(capacity.value if asked is None else asked)
    bounds = policy.valid_range
    taken = Fraction(capacity.value if policy.default is None else policy.default)
    if asked is not None:
        taken = Fraction(asked)
        if policy.valid_values:
            taken = min((Fraction(one) for one in policy.valid_values if one >= asked), default=taken)
        elif bounds is not None and bounds.min is not None:
            taken = max(taken, Fraction(bounds.min))
            if bounds.step and asked >= bounds.min:
                taken = _step_up(bounds, taken, fractional)
    if taken == policy.default:
        return taken
    if policy.valid_values:
        return taken if taken in policy.valid_values else None
    if bounds is None:
        return taken
    if bounds.max is not None and taken > bounds.max:
        return None
    if bounds.step and bounds.min is not None:
        unit = _unit_of(bounds, fractional)
        over = _whole(taken, unit) - _whole(Fraction(bounds.min), unit)
        if over % _whole(Fraction(bounds.step), unit):
            return None
    return taken


def _whole(amount: Fraction, unit: Fraction) -> int:
    return -int(-amount // unit)


def _unit_of(bounds: CapacityRange, fractional: bool) -> Fraction:
    parts = [Fraction(one) for one in (bounds.min, bounds.max, bounds.step) if one is not None]
    fine = fractional and all((one / _MILLI).denominator == 1 for one in parts)
    return _MILLI if fine and Fraction(bounds.step or 0) >= _MILLI else _UNIT


def _step_up(bounds: CapacityRange, asked: Fraction, fractional: bool) -> Fraction:
    unit = _unit_of(bounds, fractional)
    if unit == _MILLI and (asked / _MILLI).denominator != 1:
        raise Failed("capacity")
    least, step, wanted = (_whole(Fraction(one), unit) for one in (bounds.min or 0, bounds.step or 0, asked))
    if max(least, step, wanted) > _MOST:
        raise Failed("capacity")
    reached = least
    while reached < wanted:
        # The least of least + k * step that is not below; jump over what is far below.
        reached += max(1, (wanted - reached) // step) * step
    if reached > _MOST:
        raise Failed("capacity")
    return reached * unit


# --- the search (section 10) --------------------------------------------------------------------------


@attrs.define(eq=False)
class _Take:
    claim: int
    request: str
    form: DeviceSubRequest
    device: _Device
    shared: bool
    amounts: Mapping[str, Fraction]
    charges: bool


class _Search:
    def __init__(self, world: World, claims: Sequence[ResourceClaim], *, lenient: bool, steps: int) -> None:
        self.world = world
        self.claims = claims
        self.lenient = lenient
        self.steps = steps
        self.pools = gather(world)
        self.taken: list[_Take] = []
        self.every: dict[int, list[_Device]] = {}
        self.only: Mapping[tuple[int, int], int] = {}

    def devices(self) -> Iterator[_Device]:
        for pool in self.pools:
            if not pool.incomplete and not pool.invalid:
                yield from self.devices_of(pool)

    def devices_of(self, pool: _Pool) -> Iterator[_Device]:
        for one in pool.kept:
            for device in one.devices:
                yield _Device(DeviceId(pool.driver, pool.name, device.name), device, one, pool)

    # --- before the search

    def check(self) -> None:
        for claim in self.claims:
            least = 0
            for request in claim.spec.requests:
                if request.prioritized and not self.world.has("DRAPrioritizedList"):
                    raise Failed("feature-off")
                if not request.forms:
                    raise Failed("unsupported")
                least += min(self.check_form(form) for form in request.forms)
                if least > _LIMIT:
                    raise Failed("limit")
            for constraint in claim.spec.constraints:
                if constraint.match_attribute is None and constraint.distinct_attribute is None:
                    raise Failed("unsupported")

    def check_form(self, form: DeviceSubRequest) -> int:
        for feature, used in (
            ("DRAAdminAccess", form.admin_access is not None),
            ("DRAConsumableCapacity", bool(form.capacity)),
            ("DRADerivedAttributes", bool(form.derived_attributes)),
        ):
            if used and not self.world.has(feature):
                raise Failed("feature-off")
        if None in form.selectors or not form.class_name:
            raise Failed("unsupported")
        if form.class_name not in self.world.classes:
            raise Failed("class-not-found")
        if form.mode == "ExactCount":
            return form.count
        if form.mode != "All":
            raise Failed("unsupported")
        mine = []
        for pool in self.pools:
            if pool.incomplete or pool.invalid:
                raise Failed("all-incomplete" if pool.incomplete else "all-invalid")
            for device in self.devices_of(pool):
                if self.means(form, device) and self.amounts(form, device) is not None:
                    mine.append(device)
        self.every[id(form)] = mine
        return len(mine)

    def means(self, form: DeviceSubRequest, one: _Device) -> bool:
        try:
            return self.selectable(form, one)
        except Failed as failed:
            if self.lenient and failed.kind in ("cel-compile", "cel-runtime"):
                return False
            raise

    def selectable(self, form: DeviceSubRequest, one: _Device) -> bool:
        if one.device.binding_conditions and not self.world.has("DRADeviceBindingConditions"):
            return False
        for expression in (*self.world.classes[form.class_name], *form.selectors):
            if expression is None:
                raise Failed("unsupported")
            answer = self.world.selects(expression, one.id.driver, one.device)
            if isinstance(answer, str):
                raise Failed(answer)
            if not answer:
                return False
        return not one.slice.per_device_node_selection or _reaches(self.world, one.device)

    def amounts(self, form: DeviceSubRequest, one: _Device) -> dict[str, Fraction] | None:
        """What the form takes of a device that nobody uses."""
        if not self.world.has("DRAConsumableCapacity"):
            return {}
        if not set(form.capacity) <= set(one.device.capacity):
            return None
        fractional = self.world.has("DRAFractionalCapacityRange")
        found = {}
        fits = True
        for name, capacity in one.device.capacity.items():
            taken = consumption(capacity, form.capacity.get(name), fractional=fractional)
            fits = fits and taken is not None and taken <= capacity.value
            if taken is not None and taken < 0:
                raise Failed("capacity")
            found[name] = taken or Fraction(0)
        return found if fits else None

    # --- the recursion

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise GaveUp

    def claim(self, number: int) -> bool:
        if number == len(self.claims):
            return True
        return self.request(number, 0)

    def request(self, claim: int, place: int) -> bool:
        self.step()
        requests = self.claims[claim].spec.requests
        if place == len(requests):
            return self.claim(claim + 1)
        one = requests[place]
        for index, form in enumerate(one.forms):
            if self.only.get((claim, place), index) != index:
                continue
            every = self.every.get(id(form))
            count = form.count if every is None else len(every)
            if every is not None and not every:
                continue
            if sum(1 for take in self.taken if take.claim == claim) + count > _LIMIT:
                continue
            name = f"{one.name}/{form.name}" if one.prioritized else one.name
            offered = list(self.devices()) if every is None else every
            if self.device((claim, place), name, form, offered, 0, count):
                return True
        return False

    def device(
        self,
        at: tuple[int, int],
        name: str,
        form: DeviceSubRequest,
        offered: Sequence[_Device],
        start: int,
        missing: int,
    ) -> bool:
        if not missing:
            return self.request(at[0], at[1] + 1)
        self.step()
        for place in range(start, len(offered)):
            take = self.try_device(at[0], name, form, offered[place])
            if take is not None:
                self.taken.append(take)
                if self.device(at, name, form, offered, place + 1, missing - 1):
                    return True
                self.taken.pop()
            if id(form) in self.every:
                return False
        return False

    def try_device(self, claim: int, name: str, form: DeviceSubRequest, one: _Device) -> _Take | None:
        shared = one.device.allow_multiple_allocations and self.world.has("DRAConsumableCapacity")
        if not form.admin_access and one.id in self.world.whole:
            return None
        for take in self.taken:
            again = take.device.id == one.id and not take.shared
            if again and (take.claim == claim or not form.admin_access):
                return None
        try:
            if not self.selectable(form, one):
                return None
            amounts = self.amounts(form, one)
        except Failed:
            if self.lenient:
                return None
            raise
        if amounts is None:
            return None
        known = one.id in self.world.shares or one.id in self.world.consumed
        charges = not (shared and (known or any(take.device.id == one.id for take in self.taken)))
        trial = _Take(claim, name, form, one, shared, amounts, charges)
        if one.device.consumes_counters and not self.counted(trial):
            return None
        tainted = self.world.has("DRADeviceTaints") and any(bars(form, each) for each in one.device.taints)
        able = self.world.has("DRAOptionalNodeOperations") and "DRAOptionalNodeOperations" in self.world.able
        if tainted or (one.slice.skip_node_operations and not able):
            return None
        if not all(self.keeps(constraint, trial) for constraint in self.claims[claim].spec.constraints):
            if id(form) in self.every and not self.lenient:
                raise Failed("all-constraint")
            return None
        return trial if self.room(one, amounts) else None

    def room(self, one: _Device, amounts: Mapping[str, Fraction]) -> bool:
        for name, amount in amounts.items():
            used = Fraction(self.world.consumed.get(one.id, {}).get(name, 0))
            used += sum(take.amounts[name] for take in self.taken if take.shared and take.device.id == one.id)
            if used + amount > one.device.capacity[name].value:
                return False
        return True

    def counted(self, trial: _Take) -> bool:
        """Compatibility groups, then counters, of the whole pool."""
        if not self.world.has("DRAPartitionableDevices") or not trial.charges:
            return self.world.has("DRAPartitionableDevices")
        pool = trial.device.pool
        held = [
            device
            for one in pool.all_slices
            for device in one.devices
            if self.world.in_state(DeviceId(pool.driver, pool.name, device.name))
        ]
        mine = [take.device.device for take in self.taken if take.charges and take.device.pool is pool]
        groups: dict[str, set[str]] = {}
        for device, checked in [
            *((each, False) for each in held),
            *((each, True) for each in (*mine, trial.device.device)),
        ]:
            for entry in device.consumes_counters:
                of_device = set(entry.compatibility_groups) or {"(none)"}
                known = groups.get(entry.counter_set)
                if known is None:
                    groups[entry.counter_set] = of_device
                elif checked:
                    groups[entry.counter_set] = known & of_device
                    if not known & of_device:
                        return False
                elif "(none)" not in known | of_device:
                    groups[entry.counter_set] = known & of_device
        left = {
            (one.name, name): amount
            for each in pool.all_slices
            for one in each.shared_counters
            for name, amount in one.counters.items()
        }
        for device in (*held, *mine, trial.device.device):
            for entry in device.consumes_counters:
                for name, amount in entry.counters.items():
                    left[entry.counter_set, name] -= amount
        return min(left.values(), default=0) >= 0

    def keeps(self, constraint: DeviceConstraint, trial: _Take) -> bool:
        if not _names(constraint, trial):
            return True
        sets = [
            self.members(constraint, take)
            for take in (*self.taken, trial)
            if take.claim == trial.claim and _names(constraint, take)
        ]
        if sets[-1] is None:
            return False
        known = [one or set() for one in sets]
        if len(known) == 1:
            return True
        if constraint.match_attribute is not None:
            return bool(set.intersection(*known))
        return all(known) and len(set().union(*known)) == sum(map(len, known))

    def members(self, constraint: DeviceConstraint, take: _Take) -> set[tuple[str, object]] | None:
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        for one in take.form.derived_attributes:
            if one.name == name:
                value = self.world.derives(one.expression, take.device.id.driver, take.device.device)
                if isinstance(value, str):
                    if self.lenient:
                        return None
                    raise Failed(value)
                return _set(value)
        found = take.device.device.attributes
        domain, _, rest = name.partition("/")
        value = found.get(name)
        if value is None and domain == take.device.id.driver:
            value = found.get(rest)
        if value is not None and value.listed and not self.world.has("DRAListTypeAttributes"):
            return set()
        return _set(value)

    def answer(self) -> Answer:
        return [
            [(take.request, take.device.id) for take in self.taken if take.claim == number]
            for number in range(len(self.claims))
        ]


def _set(value: AttributeValue | None) -> set[tuple[str, object]] | None:
    if value is None or value.kind is AttributeKind.NONE or not value.values:
        return None
    return {(value.kind.value, one) for one in value.values}


def _names(constraint: DeviceConstraint, take: _Take) -> bool:
    main = take.request.partition("/")[0]
    return not constraint.requests or main in constraint.requests or take.request in constraint.requests


def first_fit(world: World, claims: Sequence[ResourceClaim], *, steps: int = 20_000) -> Answer | str | None:
    """Give what the reference gives: devices, the kind of its error, or ``None`` where nothing fits."""
    search = _Search(world, claims, lenient=False, steps=steps)
    try:
        search.check()
        if search.claim(0):
            return search.answer()
    except Failed as failed:
        return failed.kind
    return "invalid-pool" if any(pool.invalid for pool in search.pools) else None


def best_alternatives(
    world: World, claims: Sequence[ResourceClaim], *, steps: int = 60_000
) -> tuple[int, ...] | str | None:
    """Give the least places of alternatives, over claims and requests in order, with which something fits.

    Every combination of alternatives is tried, and every set of devices for each. A text is the kind of the
    error that forbids the question itself.
    """
    search = _Search(world, claims, lenient=True, steps=steps)
    try:
        search.check()
    except Failed as failed:
        return failed.kind
    slots = [
        (number, place, len(request.forms))
        for number, claim in enumerate(claims)
        for place, request in enumerate(claim.spec.requests)
        if request.prioritized
    ]
    for places in _products([many for _, _, many in slots]):
        search.taken = []
        search.only = {(slot[0], slot[1]): place for slot, place in zip(slots, places, strict=True)}
        if search.claim(0):
            return places
    return None


def _products(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for first in range(sizes[0]):
        for rest in _products(sizes[1:]):
            yield (first, *rest)
