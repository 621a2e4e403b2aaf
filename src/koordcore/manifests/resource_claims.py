"""What is asked of devices: DeviceClasses, ResourceClaims and their templates, with what claims were given.

Reads ``resource.k8s.io`` v1, v1beta2 and v1beta1 by their shapes: the oldest form has the fields of
``exactly`` in the request itself. Defaults are those that the API server adds. What it would refuse, but can
be understood, is read and warned of.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from koordcore.errors import ManifestError
from koordcore.manifests._reading import Metadata, Reading, as_labels, as_time, read_metadata, section
from koordcore.manifests.resource_slices import as_amounts
from koordcore.model.claims import (
    ALL_DEVICES,
    EXACT_COUNT,
    MAX_CONSUMERS,
    AllocatedDeviceStatus,
    ClaimAllocation,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    ConfigSource,
    DerivedAttribute,
    DeviceClass,
    DeviceConfig,
    DeviceConstraint,
    DeviceResult,
    DeviceSubRequest,
    DeviceToleration,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.selectors import NodeSelector
from koordcore.protocol.claims import EXTENDED_CLAIM, POD_CLAIM_NAME
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_mapping,
    as_str,
    as_strings,
    choice,
    list_of,
    optional,
    required,
)
from koordcore.protocol.selectors import as_node_selector

_MAX_REQUESTS: Final = 32
_MAX_FORMS: Final = 8
_OPERATORS: Final = frozenset({"Equal", "Exists"})
_source: Final = choice(ConfigSource)
_INLINE: Final = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations")
_EMPTY_SPEC: Final = ClaimSpec()


def read_device_class(reading: Reading, raw: Mapping[str, Json]) -> DeviceClass:
    """Decode a DeviceClass."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    return DeviceClass(
        name=meta.name,
        selectors=reading.take(spec, "selectors", "spec", list_of(_selector), ()),
        config=reading.take(spec, "config", "spec", list_of(_config), ()),
        extended_resource_name=reading.take(spec, "extendedResourceName", "spec", as_str, ""),
        created=meta.created,
    )


def read_resource_claim(reading: Reading, raw: Mapping[str, Json]) -> ResourceClaim:
    """Decode a ResourceClaim."""
    meta = read_metadata(reading, raw)
    spec = _read_spec(reading, raw, "spec")
    status = section(reading, raw, "status")
    reserved = reading.take(status, "reservedFor", "status", list_of(_consumer), ())
    if len(reserved) > MAX_CONSUMERS:
        reading.warn("status.reservedFor", f"at most {MAX_CONSUMERS} entries, got {len(reserved)}")
    for number, uid in _repeated([one.uid or one.name for one in reserved]):
        reading.warn(f"status.reservedFor[{number}]", f"{uid} stands there twice")
    allocation = reading.take(status, "allocation", "status", read_allocation, None)
    if allocation is not None and not reading.problems:
        _check_results(reading, spec, allocation)
    elif reserved and status.get("allocation") is None:
        reading.warn("status.reservedFor", "the claim is reserved although nothing is allocated")
    return ResourceClaim(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        spec=spec,
        allocation=allocation,
        reserved_for=reserved,
        devices=reading.take(status, "devices", "status", list_of(_device_status), ()),
        owner=_owner(meta),
        pod_claim_name=meta.annotations.get(POD_CLAIM_NAME, ""),
        deleting=meta.deleted is not None,
        extended=meta.annotations.get(EXTENDED_CLAIM) == "true",
        labels=meta.labels,
        annotations=meta.annotations,
    )


def _owner(meta: Metadata) -> str:
    """Give the uid of who controls the claim; its name where it carries no uid."""
    return next((one.uid or one.name for one in meta.owners if one.controller), "")


def read_claim_template(reading: Reading, raw: Mapping[str, Json]) -> ResourceClaimTemplate:
    """Decode a ResourceClaimTemplate."""
    meta = read_metadata(reading, raw)
    outer = section(reading, raw, "spec")
    inner = section(reading, outer, "metadata", "spec")
    return ResourceClaimTemplate(
        name=meta.name,
        namespace=meta.namespace,
        spec=_read_spec(reading, outer, "spec.spec"),
        labels=reading.take(inner, "labels", "spec.metadata", as_labels, {}),
        annotations=reading.take(inner, "annotations", "spec.metadata", as_labels, {}),
    )


# --- requests -----------------------------------------------------------------------------------------


def _read_spec(reading: Reading, raw: Mapping[str, Json], path: str) -> ClaimSpec:
    spec = section(reading, raw, "spec", path.rpartition(".")[0])
    before = len(reading.problems)
    found = reading.take(spec, "devices", path, _spec, _EMPTY_SPEC)
    if len(reading.problems) == before:
        devices = as_mapping(spec.get("devices") or {})
        inline = [
            one.get("exactly") is None for one in optional(devices, "requests", list_of(as_mapping), ())
        ]
        _check_spec(reading, found, f"{path}.devices", inline)
        _check_forms(reading, devices, f"{path}.devices.requests")
    return found


def _spec(value: Json) -> ClaimSpec:
    raw = as_mapping(value)
    return ClaimSpec(
        requests=optional(raw, "requests", list_of(_request), ()),
        constraints=optional(raw, "constraints", list_of(_constraint), ()),
        config=optional(raw, "config", list_of(_config), ()),
    )


def _request(value: Json) -> ClaimRequest:
    raw = as_mapping(value)
    name = required(raw, "name", as_str)
    if raw.get("firstAvailable") is not None:
        forms = required(raw, "firstAvailable", list_of(_alternative))
        return ClaimRequest(name, forms, prioritized=True)
    if raw.get("exactly") is not None:
        return ClaimRequest(name, (required(raw, "exactly", _form),))
    if any(raw.get(field) is not None for field in _INLINE):
        return ClaimRequest(name, (_form(raw),))
    return ClaimRequest(name)


def _alternative(value: Json) -> DeviceSubRequest:
    return attrs.evolve(_form(value), name=required(as_mapping(value), "name", as_str))


def _form(value: Json) -> DeviceSubRequest:
    raw = as_mapping(value)
    mode = optional(raw, "allocationMode", as_str, "") or EXACT_COUNT
    count = optional(raw, "count", as_int, 0)
    capacity: Mapping[str, Json] = optional(raw, "capacity", as_mapping, {})
    amounts: dict[str, int] = {}
    try:
        amounts = optional(capacity, "requests", as_amounts, amounts)
    except ManifestError as error:
        raise error.within("capacity") from None
    admin: bool | None = optional(raw, "adminAccess", as_bool, None)
    return DeviceSubRequest(
        class_name=optional(raw, "deviceClassName", as_str, ""),
        selectors=optional(raw, "selectors", list_of(_selector), ()),
        mode=mode,
        count=(count or 1) if mode == EXACT_COUNT else count,
        admin_access=admin,
        tolerations=optional(raw, "tolerations", list_of(_toleration), ()),
        capacity=amounts,
        derived_attributes=optional(raw, "derivedAttributes", list_of(_derived), ()),
    )


def _selector(value: Json) -> str | None:
    raw = as_mapping(value)
    cel: Mapping[str, Json] | None = optional(raw, "cel", as_mapping, None)
    if cel is None:
        return None
    try:
        return required(cel, "expression", as_str)
    except ManifestError as error:
        raise error.within("cel") from None


def _derived(value: Json) -> DerivedAttribute:
    raw = as_mapping(value)
    return DerivedAttribute(required(raw, "name", as_str), required(raw, "expression", as_str))


def _toleration(value: Json) -> DeviceToleration:
    raw = as_mapping(value)
    seconds: int | None = optional(raw, "tolerationSeconds", as_int, None)
    return DeviceToleration(
        key=optional(raw, "key", as_str, ""),
        operator=optional(raw, "operator", as_str, "") or "Equal",
        value=optional(raw, "value", as_str, ""),
        effect=optional(raw, "effect", as_str, ""),
        seconds=seconds,
    )


def _constraint(value: Json) -> DeviceConstraint:
    raw = as_mapping(value)
    match: str | None = optional(raw, "matchAttribute", as_str, None)
    distinct: str | None = optional(raw, "distinctAttribute", as_str, None)
    return DeviceConstraint(optional(raw, "requests", as_strings, ()), match, distinct)


def _config(value: Json) -> DeviceConfig:
    raw = as_mapping(value)
    opaque: Mapping[str, Json] = optional(raw, "opaque", as_mapping, {})
    parameters = opaque.get("parameters")
    source: ConfigSource | None = optional(raw, "source", _source, None)
    try:
        driver = optional(opaque, "driver", as_str, "")
    except ManifestError as error:
        raise error.within("opaque") from None
    return DeviceConfig(
        requests=optional(raw, "requests", as_strings, ()),
        driver=driver,
        parameters="" if parameters is None else _json_text(parameters),
        source=source,
    )


def _json_text(value: Json) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ManifestError.at("opaque.parameters", f"not JSON: {error}") from None


# --- what was given -----------------------------------------------------------------------------------


def read_allocation(value: Json) -> ClaimAllocation:
    """Read ``status.allocation``.

    Raises
    ------
    ManifestError
        When a field is of another kind, with its path.
    """
    raw = as_mapping(value)
    devices: Mapping[str, Json] = optional(raw, "devices", as_mapping, {})
    selector: NodeSelector | None = optional(raw, "nodeSelector", as_node_selector, None)
    try:
        results = optional(devices, "results", list_of(_result), ())
        config = optional(devices, "config", list_of(_config), ())
    except ManifestError as error:
        raise error.within("devices") from None
    return ClaimAllocation(
        results=results,
        config=config,
        node_selector=selector,
        allocated=optional(raw, "allocationTimestamp", as_time, None),
    )


def _result(value: Json) -> DeviceResult:
    raw = as_mapping(value)
    share: str | None = optional(raw, "shareID", as_str, None)
    consumed: dict[str, int] = optional(raw, "consumedCapacity", as_amounts, {})
    return DeviceResult(
        request=optional(raw, "request", as_str, ""),
        driver=required(raw, "driver", as_str),
        pool=required(raw, "pool", as_str),
        device=required(raw, "device", as_str),
        admin_access=optional(raw, "adminAccess", as_bool, False),
        tolerations=optional(raw, "tolerations", list_of(_toleration), ()),
        binding_conditions=optional(raw, "bindingConditions", as_strings, ()),
        binding_failure_conditions=optional(raw, "bindingFailureConditions", as_strings, ()),
        share_id=share,
        consumed_capacity=consumed,
        skip_node_operations=optional(raw, "skipNodeOperations", as_strings, ()),
    )


def _consumer(value: Json) -> ClaimConsumer:
    raw = as_mapping(value)
    return ClaimConsumer(
        name=required(raw, "name", as_str),
        uid=optional(raw, "uid", as_str, ""),
        resource=optional(raw, "resource", as_str, "pods"),
        api_group=optional(raw, "apiGroup", as_str, ""),
    )


def _device_status(value: Json) -> AllocatedDeviceStatus:
    raw = as_mapping(value)
    share: str | None = optional(raw, "shareID", as_str, None)
    pairs = optional(raw, "conditions", list_of(_condition), ())
    return AllocatedDeviceStatus(
        driver=required(raw, "driver", as_str),
        pool=required(raw, "pool", as_str),
        device=required(raw, "device", as_str),
        share_id=share,
        conditions=dict(pairs),
    )


def _condition(value: Json) -> tuple[str, bool]:
    raw = as_mapping(value)
    return required(raw, "type", as_str), optional(raw, "status", as_str, "") == "True"


# --- what the API server would not take -----------------------------------------------------------------


def _repeated(names: list[str]) -> list[tuple[int, str]]:
    counts = Counter(names)
    return [
        (number, name) for number, name in enumerate(names) if counts[name] > 1 and name in names[:number]
    ]


def _check_spec(reading: Reading, spec: ClaimSpec, path: str, inline: Sequence[bool]) -> None:
    """Say what the API server would not take; of each request whether its form stands in itself is known."""
    for name, entries in (
        ("requests", spec.requests),
        ("constraints", spec.constraints),
        ("config", spec.config),
    ):
        if len(entries) > _MAX_REQUESTS:
            reading.warn(f"{path}.{name}", f"at most {_MAX_REQUESTS}, got {len(entries)}")
    for number, name in _repeated([request.name for request in spec.requests]):
        reading.warn(f"{path}.requests[{number}].name", f"{name} stands there twice")
    for number, request in enumerate(spec.requests):
        where = f"{path}.requests[{number}]"
        if not request.forms:
            reading.warn(where, "needs one of exactly and firstAvailable: nothing can be allocated")
        if len(request.forms) > _MAX_FORMS:
            reading.warn(f"{where}.firstAvailable", f"at most {_MAX_FORMS}, got {len(request.forms)}")
        for place, form in enumerate(request.forms):
            own = where if inline[number] else f"{where}.exactly"
            _check_form(reading, form, f"{where}.firstAvailable[{place}]" if request.prioritized else own)
    known = {one for request in spec.requests for one in _names(request)}
    referring = {
        **{f"{path}.constraints[{number}]": one.requests for number, one in enumerate(spec.constraints)},
        **{f"{path}.config[{number}]": one.requests for number, one in enumerate(spec.config)},
    }
    for where, names in referring.items():
        for place, name in enumerate(names):
            if name not in known:
                reading.warn(f"{where}.requests[{place}]", f"no request {name}")
    for number, constraint in enumerate(spec.constraints):
        if (constraint.match_attribute is None) == (constraint.distinct_attribute is None):
            where = f"{path}.constraints[{number}]"
            reading.warn(where, "needs exactly one of matchAttribute and distinctAttribute")
        for field, attribute in (
            ("matchAttribute", constraint.match_attribute),
            ("distinctAttribute", constraint.distinct_attribute),
        ):
            if attribute and "/" not in attribute:
                reading.warn(
                    f"{path}.constraints[{number}].{field}", f"{attribute} has no domain: no device has it"
                )


def _check_forms(reading: Reading, devices: Mapping[str, Json], path: str) -> None:
    """Say which of several forms of a request does not count."""
    requests = optional(devices, "requests", list_of(as_mapping), ())
    for number, raw in enumerate(requests):
        said = [name for name in ("firstAvailable", "exactly", *_INLINE) if raw.get(name) is not None]
        if said[:1] in (["firstAvailable"], ["exactly"]):
            for name in said[1:]:
                reading.warn(f"{path}[{number}].{name}", f"does not count beside {said[0]}")


def _names(request: ClaimRequest) -> list[str]:
    alternatives = [f"{request.name}/{form.name}" for form in request.forms] if request.prioritized else []
    return [request.name, *alternatives]


def _check_form(reading: Reading, form: DeviceSubRequest, path: str) -> None:
    if not form.class_name:
        reading.warn(f"{path}.deviceClassName", "required: nothing can be allocated")
    if form.mode == ALL_DEVICES and form.count:
        reading.warn(f"{path}.count", "may not stand beside allocationMode All")
    if form.mode not in {ALL_DEVICES, EXACT_COUNT}:
        reading.warn(f"{path}.allocationMode", f"{form.mode} is not known: nothing can be allocated")
    if form.mode == EXACT_COUNT and form.count < 1:
        reading.warn(f"{path}.count", f"expected a positive number, got {form.count}")
    for number, toleration in enumerate(form.tolerations):
        if toleration.operator not in _OPERATORS:
            where = f"{path}.tolerations[{number}].operator"
            reading.warn(where, f"{toleration.operator} is not known: it tolerates nothing")


def _check_results(reading: Reading, spec: ClaimSpec, allocation: ClaimAllocation) -> None:
    known = {one for request in spec.requests for one in _names(request)}
    for number, result in enumerate(allocation.results):
        path = f"status.allocation.devices.results[{number}]"
        if result.request not in known:
            reading.warn(f"{path}.request", f"no request {result.request}")
    held = [str(one.id) for one in allocation.results if one.share_id is None and not one.admin_access]
    for _, device in _repeated(held):
        reading.warn("status.allocation.devices.results", f"{device} stands there twice")
