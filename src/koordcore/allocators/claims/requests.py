"""Claims read against a node: which devices each form of each request could have (sections 4 and 5).

What the allocator checks before it searches is checked here, in its order; the first failing check is the
error. In use or not, how much is left and what constraints say is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from koordcore._record import record
from koordcore.allocators.claims.features import ClaimFeature
from koordcore.allocators.claims.outcome import OF_SELECTORS, ClaimError, ClaimErrorKind
from koordcore.allocators.claims.table import DeviceTable, SelectorFault, bits
from koordcore.model.claims import (
    ALL_DEVICES,
    EXACT_COUNT,
    MAX_DEVICES,
    ClaimRequest,
    DeviceClass,
    DeviceConstraint,
    DeviceSubRequest,
    ResourceClaim,
)


@record(eq=False)
class Form:
    """One form of a request, read against a node.

    Parameters
    ----------
    claim, request, index
        Place of the claim, of the request in it, and among the request's forms.
    name
        ``main`` or ``main/sub``.
    count
        Devices it takes; for ``All`` the size of the set.
    every
        It takes all devices of ``selectable``, not any ``count``.
    selectable
        Devices that its selectors mean and that have the amounts asked for.
    candidates
        Those of them whose taints it tolerates and that are offered.
    unable
        Devices that its selectors mean and that cannot give the amounts asked for, whoever holds them.
    faults
        What looking at a device leads to where that is an error.
    amounts
        What it consumes of each device.
    unsettled
        Why nobody knows which devices all of them are: it has none then, and the other forms of its request
        are left, of which there are some.
    """

    claim: int
    request: int
    index: int
    name: str
    spec: DeviceSubRequest
    count: int
    every: bool
    selectable: int
    candidates: int
    unable: int
    faults: Mapping[int, ClaimError]
    amounts: Mapping[int, Mapping[str, int]]
    unsettled: ClaimError | None = None

    @property
    def admin(self) -> bool:
        """It may have devices that others hold."""
        return bool(self.spec.admin_access)

    def named(self, references: Sequence[str]) -> bool:
        """Tell whether a constraint or configuration for some requests is for this form."""
        return not references or self.name in references or self.name.partition("/")[0] in references


@record(eq=False)
class ClaimForms:
    """A claim read against a node.

    Parameters
    ----------
    requests
        The forms of each request, the best first.
    prioritized
        Whether each request has alternatives.
    """

    claim: ResourceClaim
    requests: tuple[tuple[Form, ...], ...]
    constraints: tuple[DeviceConstraint, ...]


class _Refused(Exception):  # noqa: N818 - carries the error value out of nested checks
    def __init__(self, kind: ClaimErrorKind, text: str) -> None:
        super().__init__(text)
        self.error = ClaimError(kind, text)


def read_claims(
    table: DeviceTable,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    as_reference: bool = False,
) -> tuple[ClaimForms, ...] | ClaimError:
    """Read the claims of a pod against the devices of a node.

    Parameters
    ----------
    table
        The node's devices.
    claims
        Claims to allocate, in the order of the pod.
    classes
        DeviceClasses by name.
    as_reference
        A request for all devices is an error as long as any pool is incomplete or invalid, or a selector errs
        on any device, as the reference has it; otherwise only if the pool may have devices for it and no
        alternative does without, and devices on which a selector errs are left out.
    """
    reader = _Reader(table, classes, as_reference=as_reference)
    try:
        listed = table.pools.node.listed
        own = [_without(claim, listed) for claim in claims] if listed else claims
        return tuple(reader.claim(place, claim) for place, claim in enumerate(own))
    except _Refused as refused:
        return refused.error


def _without(claim: ResourceClaim, listed: frozenset[str]) -> ResourceClaim:
    """Leave out the requests for extended resources that the node has a device plugin for."""
    kept = tuple(one for one in claim.spec.requests if one.resource not in listed)
    if len(kept) == len(claim.spec.requests):
        return claim
    return attrs.evolve(claim, spec=attrs.evolve(claim.spec, requests=kept))


class _Reader:
    def __init__(self, table: DeviceTable, classes: Mapping[str, DeviceClass], *, as_reference: bool) -> None:
        self._table = table
        self._classes = classes
        self._as_reference = as_reference

    def claim(self, place: int, claim: ResourceClaim) -> ClaimForms:
        """Read one claim by its place among those of the pod."""
        who = f"claim {claim.namespace}/{claim.name}"
        requests = []
        least = 0
        for number, request in enumerate(claim.spec.requests):
            forms = self._request(who, (place, number), request)
            smallest = min(form.count for form in forms)
            if smallest > MAX_DEVICES - least:
                raise _Refused(
                    ClaimErrorKind.LIMIT,
                    f"{who}, request {request.name}: adding {smallest} devices exceeds the claim limit of "
                    f"{MAX_DEVICES}, with {least} already accounted for",
                )
            least += smallest
            requests.append(forms)
        for number, constraint in enumerate(claim.spec.constraints):
            if not constraint.match_attribute and not constraint.distinct_attribute:
                raise _Refused(
                    ClaimErrorKind.UNSUPPORTED,
                    f"{who}, constraint #{number}: empty constraint (unsupported constraint type?)",
                )
        return ClaimForms(claim, tuple(requests), claim.spec.constraints)

    def _request(self, who: str, place: tuple[int, int], request: ClaimRequest) -> tuple[Form, ...]:
        features = self._table.pools.features
        if not request.forms:
            raise _Refused(
                ClaimErrorKind.UNSUPPORTED, f"{who}, request {request.name}: unsupported request type"
            )
        if request.prioritized and ClaimFeature.PRIORITIZED_LIST not in features:
            raise _Refused(
                ClaimErrorKind.FEATURE_OFF,
                f"{who}, request {request.name}: has subrequests, but the DRAPrioritizedList feature is "
                "disabled",
            )
        forms: list[Form] = []
        for index, spec in enumerate(request.forms):
            name = f"{request.name}/{spec.name}" if request.prioritized else request.name
            label = (
                f"{who}, subrequest {spec.name}" if request.prioritized else f"{who}, request {request.name}"
            )
            _check_gates(spec, label, features)
            forms.append(self._form((*place, index), (name, who, label), spec))
        unsettled = [form.unsettled for form in forms if form.unsettled is not None]
        if len(unsettled) == len(forms):
            raise _Refused(unsettled[0].kind, unsettled[0].text)
        return tuple(forms)

    def _form(self, place: tuple[int, int, int], texts: tuple[str, str, str], spec: DeviceSubRequest) -> Form:
        name, who, label = texts
        if None in spec.selectors:
            text = f"{label}: CEL expression empty (unsupported selector type?)"
            raise _Refused(ClaimErrorKind.UNSUPPORTED, text)
        if not spec.class_name:
            raise _Refused(
                ClaimErrorKind.UNSUPPORTED, f"{label}: missing device class name (unsupported request type?)"
            )
        table = self._table
        device_class = self._classes.get(spec.class_name)
        if device_class is None:
            raise _Refused(
                ClaimErrorKind.CLASS_NOT_FOUND,
                f"{label}: could not retrieve device class {spec.class_name}: "
                f'deviceclass.resource.k8s.io "{spec.class_name}" not found',
            )
        selected, faults = _selectable(table, who, spec, device_class)
        column = table.capacity(spec.capacity)
        for device, problem in column.problems.items():
            if selected >> device & 1:
                text = f"{label}: checking capacity for device {table.devices[device].id}: {problem.text}"
                faults.setdefault(device, ClaimError(ClaimErrorKind.CAPACITY, text))
        selectable = selected & column.mask
        if spec.mode == ALL_DEVICES:
            unsettled = self._check_all(label, spec, device_class, faults)
            if unsettled is not None:
                return Form(*place, name, spec, 0, True, 0, 0, 0, {}, {}, unsettled)
            count = selectable.bit_count()
        elif spec.mode == EXACT_COUNT:
            count = spec.count
            if count < 1:
                raise _Refused(ClaimErrorKind.UNSUPPORTED, f"{label}: unsupported count {count}")
        else:
            raise _Refused(ClaimErrorKind.UNSUPPORTED, f"{label}: unsupported count mode {spec.mode}")
        return Form(
            *place,
            name,
            spec,
            count,
            spec.mode == ALL_DEVICES,
            selectable,
            selectable & table.offered & table.tolerated(spec.tolerations),
            selected & ~column.mask,
            faults,
            column.amounts,
        )

    def _check_all(
        self, label: str, spec: DeviceSubRequest, device_class: DeviceClass, faults: Mapping[int, ClaimError]
    ) -> ClaimError | None:
        """A set of all devices is settled pool by pool: whatever is wrong first is the error.

        What a selector says of a device that it errs on is no error here: it does not mean the device. A pool
        that is not known in full is given back, unless that ends the claim as well.
        """
        place = 0
        texts = (*device_class.selectors, *spec.selectors)
        for pool in self._table.pools.pools:
            if not pool.usable and not (self._as_reference or self._table.may_select(pool.driver, texts)):
                continue
            if not pool.usable:
                kind = ClaimErrorKind.ALL_INCOMPLETE if pool.incomplete else ClaimErrorKind.ALL_INVALID
                state = "being updated" if pool.incomplete else "invalid"
                which = f"resource pool {pool.driver}/{pool.name} is currently {state}"
                text = f"{label}: asks for all devices, but {which}"
                if self._as_reference:
                    raise _Refused(kind, text)
                return ClaimError(kind, text)
            for device in range(place, place + len(pool.devices)):
                error = faults.get(device)
                if error is not None and (self._as_reference or error.kind not in OF_SELECTORS):
                    raise _Refused(error.kind, error.text)
            place += len(pool.devices)
        return None


def _check_gates(spec: DeviceSubRequest, label: str, features: frozenset[ClaimFeature]) -> None:
    gates = (
        (ClaimFeature.ADMIN_ACCESS, spec.admin_access is not None, "admin access is requested"),
        (ClaimFeature.CONSUMABLE_CAPACITY, bool(spec.capacity), "has capacity requests"),
        (ClaimFeature.DERIVED_ATTRIBUTES, bool(spec.derived_attributes), "has derived attributes"),
    )
    for feature, used, what in gates:
        if used and feature not in features:
            text = f"{label}: {what}, but the {feature} feature is disabled"
            raise _Refused(ClaimErrorKind.FEATURE_OFF, text)


def _selectable(
    table: DeviceTable, who: str, spec: DeviceSubRequest, device_class: DeviceClass
) -> tuple[int, dict[int, ClaimError]]:
    """Give the devices that every selector means, and what goes wrong on which device."""
    alive = table.everything
    if ClaimFeature.BINDING_CONDITIONS not in table.pools.features:
        alive &= ~table.conditional
    faults: dict[int, ClaimError] = {}
    for whose, selectors in ((f"class {device_class.name}", device_class.selectors), (who, spec.selectors)):
        for number, expression in enumerate(selectors):
            if expression is None:
                text = f"{whose}: selector #{number}: CEL expression empty (unsupported selector type?)"
                fault = ClaimError(ClaimErrorKind.UNSUPPORTED, text)
                faults.update(dict.fromkeys(bits(alive), fault))
                return 0, faults
            selection = table.selected(expression)
            for device, broken in selection.faults.items():
                if alive >> device & 1:
                    faults[device] = _selector_error(table, f"{whose}: selector #{number}", device, broken)
            alive &= selection.mask
    return alive & table.reaching, faults


def _selector_error(table: DeviceTable, where: str, device: int, fault: SelectorFault) -> ClaimError:
    if not fault.compiles:
        return ClaimError(ClaimErrorKind.CEL_COMPILE, f"{where}: {fault.text}")
    text = f"{where} on device {table.devices[device].id}: {fault.text}"
    return ClaimError(ClaimErrorKind.CEL_RUNTIME, text)
