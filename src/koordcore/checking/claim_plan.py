"""What the claims of new pods got: each attempt is judged against what was held before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import attrs

from koordcore.allocators.claims.cel import (
    DerivedExpression,
    Selector,
    SelectorError,
    compile_derived,
    compile_selector,
    device_variable,
)
from koordcore.checking.claim_pools import CheckedNode
from koordcore.checking.claim_records import failed_devices, group_that_shares
from koordcore.checking.claims import ClaimChecker
from koordcore.checking.extended import claimed_resources, classes_of_resources
from koordcore.checking.holders import IGNORED, holder_key, holder_of
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.claims import (
    ClaimAllocation,
    DeviceClass,
    HeldClaim,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.decisions import Bound
from koordcore.model.device_slices import (
    AttributeValue,
    DeviceTaintRule,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.pods import Pod, PodKey, PodResourceClaim
from koordcore.model.reservations import Reservation
from koordcore.protocol.extended_resources import extended_claim
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_ON = frozenset(
    {
        "DRAAdminAccess",
        "DRADeviceBindingConditions",
        "DRADeviceCompatibilityGroups",
        "DRAConsumableCapacity",
        "DRADerivedAttributes",
        "DRAFractionalCapacityRange",
        "DRAListTypeAttributes",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
        "DRADeviceTaints",
    }
)


class _Expressions:
    """Answers of expressions, each compiled once."""

    def __init__(self) -> None:
        self._selectors: dict[str, Selector | SelectorError] = {}
        self._derived: dict[str, DerivedExpression | SelectorError] = {}

    def selects(self, text: str, driver: str, device: SliceDevice) -> bool | None:
        if text not in self._selectors:
            self._selectors[text] = compile_selector(text)
        selector = self._selectors[text]
        if isinstance(selector, SelectorError):
            return None
        answer = selector.evaluate(device_variable(driver, device))
        return None if isinstance(answer, SelectorError) else answer

    def driver_of(self, text: str) -> str | None:
        selector = self._selectors.setdefault(text, compile_selector(text))
        return None if isinstance(selector, SelectorError) else selector.driver

    def derives(self, text: str, driver: str, device: SliceDevice) -> AttributeValue | None:
        if text not in self._derived:
            self._derived[text] = compile_derived(text)
        derived = self._derived[text]
        if isinstance(derived, SelectorError):
            return None
        answer = derived.evaluate(device_variable(driver, device))
        return None if isinstance(answer, SelectorError) else answer


def check_claims(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, standing: bool = False
) -> Iterator[Violation]:
    """Every claim of a pod that gets a node is allocated there, legally, and nothing is held twice.

    Parameters
    ----------
    snapshot, result
        Before, and what was decided.
    standing
        The pods run already: a claim of theirs may be gone, or be left out of the dump.
    """
    if not result.policy.filters("DynamicResources"):
        return
    pods = {pod.key: pod for pod in (*snapshot.pending, *result.snapshot.pending)}
    pods |= {pod.key: pod for pod in result.snapshot.bound_pods()}
    pods |= {holder_key(one): holder_of(one) for one in snapshot.of(Reservation) if not one.status.node_name}
    new = [one for one in result.decisions if isinstance(one, Bound)]
    classes = classes_of_resources(snapshot, result.policy)
    new = [
        bound
        for bound in new
        if bound.pod in pods
        and (pods[bound.pod].resource_claims or any(name in classes for name in pods[bound.pod].requests))
    ]
    if not new:
        return
    yield from _Plan(snapshot, classes, standing).check(new, pods, result.snapshot)


class _Plan:
    """What is held while the decisions of a plan are followed."""

    def __init__(self, snapshot: ClusterSnapshot, classes: Mapping[str, str], standing: bool) -> None:
        self._standing = standing
        self._classes = classes
        self._snapshot = snapshot
        self._common: dict[tuple[str, str], str] = {}
        """By group and entry: the claim that its members share."""
        expressions = _Expressions()
        rules = snapshot.of(DeviceTaintRule)
        self._claims = {(one.namespace, one.name): one for one in snapshot.of(ResourceClaim)}
        self._templates = {(one.namespace, one.name): one for one in snapshot.of(ResourceClaimTemplate)}
        self._checker = ClaimChecker(
            (_tainted(one, rules) for one in snapshot.of(ResourceSlice))
            if rules
            else snapshot.of(ResourceSlice),
            snapshot.of(DeviceClass),
            expressions.selects,
            expressions.derives,
            expressions.driver_of,
            _ON,
        )
        self._held: dict[tuple[str, str], ClaimAllocation] = {}
        self._given: dict[tuple[str, str], ClaimAllocation] = {}
        """What claims are allocated with a binding that says so: others may follow it and stand before it."""
        for key, claim in self._claims.items():
            if claim.allocation is not None:
                self._hold(key, claim.allocation)
        for pod in snapshot.bound_pods():
            for held in pod.held_claims:
                self._hold((pod.namespace, held.name), held.allocation)
        self._reserved: dict[str, Reservation] = {}
        for one in snapshot.of(Reservation):
            over = one.allocate_once and bool(one.status.current_owners)
            self._reserve(one, one.claims if one.active and not over else ())
        self._waiting = {holder_key(one): one for one in snapshot.of(Reservation) if not one.status.node_name}

    def _reserve(self, one: Reservation, claims: tuple[HeldClaim, ...]) -> None:
        """Hold what a reservation keeps for its owners."""
        if claims:
            self._reserved[one.name] = attrs.evolve(one, claims=claims)
            self._count(one.name, 1)

    def _count(self, reservation: str, times: int) -> None:
        for held in self._reserved[reservation].claims:
            self._checker.hold(held.allocation.results, times)

    def _hold(self, key: tuple[str, str], allocation: ClaimAllocation) -> None:
        if key not in self._held:
            self._held[key] = allocation
            self._checker.hold(allocation.results)

    def check(
        self, bindings: Sequence[Bound], pods: dict[PodKey, Pod], end: ClusterSnapshot
    ) -> Iterator[Violation]:
        """Follow the bindings in their order, but for members of gangs that take devices by admin access.

        These occupy nothing and have to find enough left, so that they were bound before those beside them.
        """
        for bound in bindings:
            for held in bound.claims if bound.pod not in self._waiting else ():
                if held.fresh:
                    self._given.setdefault((bound.pod.namespace, held.name), held.allocation)
        for bound in _by_turns(bindings, pods):
            pod = pods[bound.pod]
            state = end.node(bound.node)
            extended = claimed_resources(pod, state.node, self._classes)
            node = CheckedNode(state.name, state.node.labels, state.node.features)
            for message in self._check_pod(pod, bound, node, extended):
                yield Violation(ViolationKind.CLAIM, str(pod.key), message)

    def _check_pod(
        self, pod: Pod, bound: Bound, node: CheckedNode, extended: tuple[str, ...]
    ) -> Iterator[str]:
        given = {one.entry: one for one in bound.claims}
        attempt: dict[tuple[str, str], tuple[ResourceClaim, ClaimAllocation]] = {}
        wanted = [(entry.name, entry) for entry in pod.resource_claims]
        for name, entry in (*wanted, *([("", None)] if extended else [])):
            held = given.get(name)
            claim = None
            if held is not None:
                claim = self._claim(pod, entry, held.name) if entry else self._extended(pod, extended)
            if held is None and self._standing and self._gone(pod, entry):
                continue
            if held is None or claim is None:
                what = f"claim {name}" if name else f"the claim for {', '.join(extended)}"
                yield f"{what} is not allocated" if held is None else f"no claim {held.name}"
                continue
            key = (pod.namespace, held.name)
            group = group_that_shares(self._snapshot, pod, name) if entry else None
            if group is not None:
                common = self._common.setdefault((group.id, name), held.name)
                if common != held.name:
                    yield f"entry {name} is one claim of group {group.name}: {common}, not {held.name}"
            selector = held.allocation.node_selector
            if selector is not None and not selector.matches(node.name, node.labels):
                yield f"the devices of claim {held.name} cannot be used on {node.name}"
            if key in self._held:
                if self._held[key] != held.allocation:
                    yield f"claim {held.name} is allocated other devices already"
                elif claim.allocation == held.allocation:
                    for failed in failed_devices(claim):
                        yield f"claim {held.name} cannot be used: {failed} holds"
            elif not held.fresh and key in self._given:
                if self._given[key] != held.allocation:
                    yield f"claim {held.name} is allocated other devices already"
            elif key not in attempt:
                attempt[key] = (claim, held.allocation)
        # What reservations keep for the pod is not in its way.
        open_to_it = [bound.reservation] if bound.reservation in self._reserved else []
        if pod.labels.get(IGNORED) == "true":
            open_to_it = sorted(self._reserved)
        for name in open_to_it:
            self._count(name, -1)
        yield from self._checker.check(node, list(attempt.values()))
        for name in open_to_it:
            if name == bound.reservation and self._reserved[name].allocate_once:
                del self._reserved[name]  # it is over with its first user
            else:
                self._count(name, 1)
        if pod.key in self._waiting:
            self._reserve(self._waiting[pod.key], bound.claims)
            return
        for key, (_, allocation) in attempt.items():
            self._hold(key, allocation)

    def _made(self, pod: Pod, entry: str) -> ResourceClaim | None:
        """Find the claim that was made for an entry of a pod, or for its extended resources."""
        for one in self._claims.values():
            mine = one.namespace == pod.namespace and one.owner == (pod.uid or pod.name)
            if mine and (one.pod_claim_name == entry if entry else one.extended):
                return one
        return None

    def _extended(self, pod: Pod, names: tuple[str, ...]) -> ResourceClaim:
        """Find the claim that was made for a pod's extended resources, or what will be made."""
        return self._made(pod, "") or extended_claim(pod, names, self._classes).claim

    def _gone(self, pod: Pod, entry: PodResourceClaim | None) -> bool:
        """Tell whether there is no claim for what a pod asks for."""
        if entry is not None and entry.claim:
            return (pod.namespace, entry.claim) not in self._claims
        return self._made(pod, "" if entry is None else entry.name) is None

    def _claim(self, pod: Pod, entry: PodResourceClaim, name: str) -> ResourceClaim | None:
        """Find the claim of that name, or what the template of the entry will make of it."""
        known = self._claims.get((pod.namespace, name))
        if known is not None or entry.claim:
            return known if not entry.claim or entry.claim == name else None
        template = self._templates.get((pod.namespace, entry.template))
        if template is None:
            return None
        return ResourceClaim(name=name, namespace=pod.namespace, spec=template.spec)


def _by_turns(bindings: Sequence[Bound], pods: Mapping[PodKey, Pod]) -> Iterator[Bound]:
    """Give bindings in their order, of gangs that follow each other those with admin access first."""

    def in_gang(bound: Bound) -> bool:
        pod = pods[bound.pod]
        return pod.scheduling_group is not None or bool(gang_name(pod.labels, pod.annotations))

    def comes_last(bound: Bound) -> bool:
        watches = any(one.admin_access for held in bound.claims for one in held.allocation.results)
        return in_gang(bound) and not watches

    for _, turn in groupby(bindings, key=in_gang):
        yield from sorted(turn, key=comes_last)


def _tainted(one: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    """Put the taints of rules on the devices that they name."""
    devices = []
    for device in one.devices:
        names = ((one.driver, "driver"), (one.pool, "pool"), (device.name, "device"))
        added = [
            rule.taint
            for rule in rules
            if rule.selects and all(getattr(rule, field) in (None, value) for value, field in names)
        ]
        devices.append(attrs.evolve(device, taints=(*device.taints, *added)) if added else device)
    return attrs.evolve(one, devices=tuple(devices))
