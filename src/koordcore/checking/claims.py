"""Whether allocations of claims are legal: the checker's own reading of ``../spec/dra.md`` section 9."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore.checking.claim_pools import CheckedNode, Published, SliceBook
from koordcore.checking.claim_results import check_written
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimRequest,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    DeviceToleration,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    DeviceCapacity,
    DeviceId,
    DeviceTaint,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.quantity import format_exact_quantity

Selects: TypeAlias = Callable[[str, str, SliceDevice], bool | None]
"""Whether an expression selects a device of a driver; ``None`` where it has no answer."""
Derives: TypeAlias = Callable[[str, str, SliceDevice], AttributeValue | None]
_NANO: Final = 10**9
_MILLI: Final = 10**6
_Chosen: TypeAlias = tuple[ClaimRequest, DeviceSubRequest]
_Used: TypeAlias = tuple[int, DeviceResult, _Chosen, Published]


@attrs.define(eq=False)
class _Held:
    """What claims hold of the devices."""

    whole: Counter[DeviceId] = attrs.field(factory=Counter)
    shares: Counter[DeviceId] = attrs.field(factory=Counter)
    named: Counter[tuple[DeviceId, str]] = attrs.field(factory=Counter)
    amounts: dict[DeviceId, Counter[str]] = attrs.field(factory=dict)

    def charged(self, device: DeviceId) -> bool:
        return self.whole[device] > 0 or self.shares[device] > 0


class ClaimChecker:
    """Checks attempt after attempt, each against what was held before it.

    Parameters
    ----------
    slices, classes
        Every ResourceSlice with the taints of rules on its devices, and every DeviceClass.
    selects, derives
        The answers of expressions.
    driver_of
        The one driver whose devices an expression can select; ``None`` where its text does not say so.
    on
        Names of the features that are switched on.
    """

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass],
        selects: Selects,
        derives: Derives,
        driver_of: Callable[[str], str | None],
        on: frozenset[str],
    ) -> None:
        self._on = on
        self._driver_of = driver_of
        self._book = SliceBook(
            slices,
            partitions="DRAPartitionableDevices" in on,
            groups="DRADeviceCompatibilityGroups" in on,
        )
        self._classes = {one.name: one for one in classes}
        self._selects = selects
        self._derives = derives
        self._held = _Held()

    def hold(self, results: Iterable[DeviceResult], times: int = 1) -> None:
        """Count devices as held from now on; with ``times`` -1 no longer."""
        for result in results:
            if result.admin_access:
                continue
            if result.share_id is None or "DRAConsumableCapacity" not in self._on:
                self._held.whole[result.id] += times
                continue
            self._held.shares[result.id] += times
            self._held.named[result.id, result.share_id] += times
            amounts = self._held.amounts.setdefault(result.id, Counter())
            for name, amount in result.consumed_capacity.items():
                amounts[name] += times * amount

    def check(self, node: CheckedNode, attempt: Sequence[tuple[ResourceClaim, ClaimAllocation]]) -> list[str]:
        """Say what is wrong with the allocations of a pod's claims, made together on a node."""
        problems: list[str] = []
        used: list[_Used] = []
        for number, (claim, allocation) in enumerate(attempt):
            mine, wrong = self._read(number, claim, allocation, node)
            problems += [f"claim {claim.name}: {text}" for text in wrong]
            problems += [f"claim {claim.name}: {text}" for text in self._check_claim(claim, mine, node)]
            if not wrong:
                written = check_written(claim, allocation, [one[3] for one in mine], self._classes, node)
                problems += [f"claim {claim.name}: {text}" for text in written]
            used += mine
        problems += self._check_exclusive(used)
        problems += self._check_counters(used, node)
        problems += self._check_capacity(used)
        return problems

    # --- one claim --------------------------------------------------------------------------------

    def _read(
        self, number: int, claim: ResourceClaim, allocation: ClaimAllocation, node: CheckedNode
    ) -> tuple[list[_Used], list[str]]:
        forms: dict[str, _Chosen] = {}
        for request in claim.spec.requests:
            for form in request.forms:
                name = f"{request.name}/{form.name}" if request.prioritized else request.name
                forms[name] = (request, form)
        used: list[_Used] = []
        wrong: list[str] = []
        for result in allocation.results:
            chosen = forms.get(result.request)
            found = self._book.find(result.id, node)
            if chosen is None:
                wrong.append(f"{result.id} is for request {result.request}, which is not there")
            elif isinstance(found, str):
                wrong.append(f"{result.id}: {found}")
            else:
                used.append((number, result, chosen, found))
        return used, wrong

    def _check_claim(self, claim: ResourceClaim, used: Sequence[_Used], node: CheckedNode) -> Iterator[str]:
        if len(used) > 32:
            yield f"{len(used)} devices, at most 32 are allowed"
        for request in claim.spec.requests:
            mine = [one for one in used if one[2][0] is request]
            taken = {id(one[2][1]): one[2][1] for one in mine}
            if len(taken) != 1:
                yield f"request {request.name} is served in {len(taken)} of its forms"
                continue
            (form,) = taken.values()
            yield from self._check_request(request.name, form, [one[1].id for one in mine], node)
        for _, result, (_, form), found in used:
            for text in self._unsuited(form, found, node):
                yield f"{result.id} for {result.request}: {text}"
            if bool(form.admin_access) != result.admin_access:
                yield f"{result.id} for {result.request}: admin access is {result.admin_access}"
        single = Counter(one[1].id for one in used if not self._shareable(one[3]))
        for device, count in single.items():
            if count > 1:
                yield f"{device} is taken {count} times"
        for constraint in claim.spec.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            touched = [one for one in used if self._touches(constraint.requests, one)]
            sets = [self._members(one, attribute) for one in touched]
            if any(members is None for members in sets):
                yield f"a device has no attribute {attribute}"
                continue
            known = [members for members in sets if members is not None]
            if constraint.match_attribute and len(known) > 1 and not frozenset.intersection(*known):
                yield f"devices do not agree in {attribute}"
            if constraint.distinct_attribute and len(known) > 1:
                tally = Counter(member for members in known for member in members)
                if not all(known) or any(count > 1 for count in tally.values()):
                    yield f"devices are not distinct in {attribute}"

    def _touches(self, references: Sequence[str], used: _Used) -> bool:
        return not references or used[2][0].name in references or used[1].request in references

    def _members(self, used: _Used, attribute: str) -> frozenset[tuple[str, object]] | None:
        _, result, (_, form), found = used
        value: AttributeValue | None
        for derived in form.derived_attributes:
            if derived.name == attribute:
                value = self._derives(derived.expression, result.driver, found.device)
                break
        else:
            value = found.device.attributes.get(attribute)
            if value is None and attribute.startswith(f"{result.driver}/"):
                value = found.device.attributes.get(attribute[len(result.driver) + 1 :])
            if value is not None and value.listed and "DRAListTypeAttributes" not in self._on:
                return frozenset()
        if value is None or value.kind is AttributeKind.NONE or not value.values:
            return None
        return frozenset((str(value.kind), one) for one in value.values)

    def _check_request(
        self, name: str, form: DeviceSubRequest, devices: Sequence[DeviceId], node: CheckedNode
    ) -> Iterator[str]:
        if len(set(devices)) != len(devices):
            yield f"request {name} has a device twice"
        if form.mode == "ExactCount":
            if len(devices) != form.count:
                yield f"request {name} has {len(devices)} of {form.count} devices"
            return
        offered, trouble = self._book.offered(node, self._drivers_of(form))
        if trouble:
            yield f"request {name} asks for all devices, but {trouble}"
            return
        wanted = {device for device, found in offered if self._meant(form, device.driver, found)}
        if wanted != set(devices):
            yield f"request {name} has {len(devices)} devices, not all {len(wanted)}"

    def _drivers_of(self, form: DeviceSubRequest) -> str:
        """Give the driver whose devices a form can mean, where its selectors say that; empty for any."""
        known = self._classes.get(form.class_name)
        texts = (*(known.selectors if known is not None else ()), *form.selectors)
        named = (self._driver_of(text) for text in texts if text is not None)
        return next((one for one in named if one is not None), "")

    # --- one device -------------------------------------------------------------------------------

    def _meant(self, form: DeviceSubRequest, driver: str, found: Published) -> bool:
        """Tell whether a device belongs to the set that a form speaks of."""
        if found.device.binding_conditions and "DRADeviceBindingConditions" not in self._on:
            return False
        known = self._classes.get(form.class_name)
        if known is None:
            return False
        for expression in (*known.selectors, *form.selectors):
            if expression is None or self._selects(expression, driver, found.device) is not True:
                return False
        return self._consumed(form, found) is not None

    def _unsuited(self, form: DeviceSubRequest, found: Published, node: CheckedNode) -> Iterator[str]:
        if not self._meant(form, found.slice.driver, found):
            yield "the request does not mean the device, or asks for more than it has"
        for taint in found.device.taints if "DRADeviceTaints" in self._on else ():
            if taint.effect in ("NoSchedule", "NoExecute") and not any(
                _covers(toleration, taint) for toleration in form.tolerations
            ):
                yield f"taint {taint.key} is not tolerated"
        if found.slice.skip_node_operations and not (
            "DRAOptionalNodeOperations" in self._on and "DRAOptionalNodeOperations" in node.features
        ):
            yield "the node cannot leave node operations out"
        if found.device.consumes_counters and "DRAPartitionableDevices" not in self._on:
            yield "partitionable devices are switched off"

    def _shareable(self, found: Published) -> bool:
        return found.device.allow_multiple_allocations and "DRAConsumableCapacity" in self._on

    def _consumed(self, form: DeviceSubRequest, found: Published) -> dict[str, int] | None:
        """Work out what a form takes of every capacity; ``None`` where the device cannot give it at all."""
        if "DRAConsumableCapacity" not in self._on:
            return {}
        if not set(form.capacity) <= set(found.device.capacity):
            return None
        taken = {}
        for name, capacity in found.device.capacity.items():
            amount = self._least(capacity, form.capacity.get(name))
            if amount is None or not 0 <= amount <= capacity.value:
                return None
            taken[name] = amount
        return taken

    def _least(self, capacity: DeviceCapacity, asked: int | None) -> int | None:
        """Give the least amount that the policy allows and that serves the request."""
        policy = capacity.policy
        if asked is None:
            return capacity.value if policy is None or policy.default is None else policy.default
        if policy is None:
            return asked
        if policy.valid_values:
            return min((value for value in policy.valid_values if value >= asked), default=None)
        bounds = policy.valid_range
        if bounds is None or bounds.min is None:
            return asked
        amount = max(asked, bounds.min)
        if bounds.step and asked >= bounds.min:
            ends = [part for part in (bounds.min, bounds.max, bounds.step) if part is not None]
            fine = "DRAFractionalCapacityRange" in self._on and not any(part % _MILLI for part in ends)
            unit = _MILLI if fine else _NANO
            least, step, wanted = (_up(part, unit) for part in (bounds.min, bounds.step, amount))
            amount = (least + _up(wanted - least, step) * step) * unit
            if amount >= 2**63 * unit or (fine and asked % _MILLI):
                return None
        if bounds.max is not None and amount > bounds.max and amount != policy.default:
            return None
        return amount

    # --- together ---------------------------------------------------------------------------------

    def _check_exclusive(self, used: Sequence[_Used]) -> Iterator[str]:
        takers: dict[DeviceId, list[tuple[int, DeviceResult]]] = {}
        for number, result, _, found in used:
            if not result.admin_access and self._held.whole[result.id]:
                yield f"{result.id} is held by another claim"
            share = result.share_id
            if self._shareable(found):
                if share is None:
                    yield f"{result.id} is shared, and its result has no shareID"
                elif self._held.named[result.id, share]:
                    yield f"another claim has shareID {share} of {result.id}"
                continue
            if share is not None:
                # Nobody would count the device as taken.
                yield f"{result.id} is not shared, and its result has a shareID"
            takers.setdefault(result.id, []).append((number, result))
        for device, mine in takers.items():
            for number, result in mine:
                if not result.admin_access and any(other < number for other, _ in mine):
                    yield f"{device} is taken by an earlier claim of the pod"

    def _check_counters(self, used: Sequence[_Used], node: CheckedNode) -> Iterator[str]:
        if "DRAPartitionableDevices" not in self._on:
            return
        drawing = ((one[1].driver, one[1].pool) for one in used if one[3].device.consumes_counters)
        for pool in dict.fromkeys(drawing):
            left, devices = self._book.drawn(pool, node)
            common: dict[str, frozenset[str] | None] = {}
            for device in devices:
                if self._held.charged(DeviceId(*pool, device.name)):
                    self._draw(device, left, common, check=False)
            charged: set[DeviceId] = set()
            drew = False
            for _, result, _, mine in used:
                if (result.driver, result.pool) != pool or not mine.device.consumes_counters:
                    continue
                if self._shareable(mine):
                    if self._held.shares[result.id] or result.id in charged:
                        continue
                    charged.add(result.id)
                drew = True
                if not self._draw(mine.device, left, common, check=True):
                    yield f"{result.id}: no compatibility group is common to its counter set"
            for (counters, name), amount in left.items():
                if drew and amount < 0:
                    over = format_exact_quantity(-amount)
                    yield f"pool {pool[0]}/{pool[1]}: counter {counters}/{name} is exceeded by {over}"

    def _draw(
        self,
        device: SliceDevice,
        left: dict[tuple[str, str], int],
        common: dict[str, frozenset[str] | None],
        *,
        check: bool,
    ) -> bool:
        agrees = True
        for entry in device.consumes_counters:
            for name, amount in entry.counters.items():
                if (entry.counter_set, name) in left:
                    left[entry.counter_set, name] -= amount
            mine = frozenset(entry.compatibility_groups) or frozenset(("no groups",))
            known = common.get(entry.counter_set)
            if known is None:
                common[entry.counter_set] = mine
            elif check or ("no groups" not in known and "no groups" not in mine):
                common[entry.counter_set] = known & mine
                agrees = agrees and bool(known & mine)
        return agrees or not check

    def _check_capacity(self, used: Sequence[_Used]) -> Iterator[str]:
        totals: dict[DeviceId, Counter[str]] = {}
        for _, result, (_, form), found in used:
            amounts = self._consumed(form, found) or {}
            if self._shareable(found):
                if dict(result.consumed_capacity) != amounts:
                    written = dict(result.consumed_capacity)
                    yield f"{result.id} for {result.request}: consumes {written}, not {amounts}"
                totals.setdefault(result.id, Counter(self._held.amounts.get(result.id, {}))).update(amounts)
                over = totals[result.id]
            else:
                over = Counter(self._held.amounts.get(result.id, {}))
                over.update(amounts)
            for name, amount in over.items():
                capacity = found.device.capacity.get(name)
                if capacity is not None and amount > capacity.value:
                    more = format_exact_quantity(amount - capacity.value)
                    yield f"{result.id}: capacity {name} is exceeded by {more}"


def _up(amount: int, unit: int) -> int:
    return -(-amount // unit)


def _covers(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    for mine, theirs in ((toleration.effect, taint.effect), (toleration.key, taint.key)):
        if mine not in ("", theirs):
            return False
    return toleration.operator == "Exists" or (
        toleration.operator in ("", "Equal") and toleration.value == taint.value
    )
