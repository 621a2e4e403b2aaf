"""Whether an allocation says what follows from its devices (``../spec/dra.md`` section 12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from koordcore.checking.claim_pools import CheckedNode, Published
from koordcore.model.claims import (
    ClaimAllocation,
    ConfigSource,
    DeviceClass,
    DeviceSubRequest,
    ResourceClaim,
)


def check_written(
    claim: ResourceClaim,
    allocation: ClaimAllocation,
    devices: Sequence[Published],
    classes: Mapping[str, DeviceClass],
    node: CheckedNode,
) -> Iterator[str]:
    """Compare results, configuration and node selector with the devices, which are those of the results."""
    forms = _forms(claim)
    for result, found in zip(allocation.results, devices, strict=True):
        form = forms[result.request]
        for what, written, wanted in (
            ("tolerations", result.tolerations, form.tolerations),
            ("binding conditions", result.binding_conditions, found.device.binding_conditions),
            (
                "failure conditions",
                result.binding_failure_conditions,
                found.device.binding_failure_conditions,
            ),
            ("node operations", result.skip_node_operations, found.slice.skip_node_operations),
        ):
            if written != wanted:
                yield f"{result.id}: {what} are {written}, not {wanted}"
    shares = [result.share_id for result in allocation.results if result.share_id is not None]
    if len(shares) != len(set(shares)):
        yield "two shares have one shareID"
    yield from _check_config(claim, allocation, classes, forms)
    yield from _check_selector(allocation, devices, node)


def _forms(claim: ResourceClaim) -> dict[str, DeviceSubRequest]:
    return {
        f"{request.name}/{form.name}" if request.prioritized else request.name: form
        for request in claim.spec.requests
        for form in request.forms
    }


def _check_config(
    claim: ResourceClaim,
    allocation: ClaimAllocation,
    classes: Mapping[str, DeviceClass],
    forms: Mapping[str, DeviceSubRequest],
) -> Iterator[str]:
    taken = {result.request for result in allocation.results}
    chosen = [name for name in forms if name in taken]
    mains = [name.partition("/")[0] for name in chosen]
    wanted: list[tuple[ConfigSource, tuple[str, ...], str, str]] = []
    for class_name in dict.fromkeys(forms[name].class_name for name in chosen):
        users = tuple(name for name in chosen if forms[name].class_name == class_name)
        wanted += [
            (ConfigSource.CLASS, users, one.driver, one.parameters) for one in classes[class_name].config
        ]
    for one in claim.spec.config:
        if not one.requests or set(one.requests) & {*chosen, *mains}:
            wanted.append((ConfigSource.CLAIM, one.requests, one.driver, one.parameters))
    expected = [
        (source, () if _covers(names, chosen) else names, driver, parameters)
        for source, names, driver, parameters in wanted
    ]
    written = [(one.source, one.requests, one.driver, one.parameters) for one in allocation.config]
    if written != expected:
        yield f"the configuration is {written}, not {expected}"


def _covers(names: Sequence[str], chosen: Sequence[str]) -> bool:
    return all(name in names or name.partition("/")[0] in names for name in chosen)


def _check_selector(
    allocation: ClaimAllocation, devices: Sequence[Published], node: CheckedNode
) -> Iterator[str]:
    """A device of the node ties the claim to it; otherwise all its devices' requirements must be said."""
    selector = allocation.node_selector
    tied = False
    wanted: set[tuple[str, str, str, frozenset[str]]] = set()
    for found in devices:
        place = found.device if found.slice.per_device_node_selection else found.slice
        tied = tied or bool(place.node_name) or found.device.binds_to_node
        for term in place.node_selector.terms if place.node_selector is not None else ():
            wanted |= {("label", one.key, one.operator, frozenset(one.values)) for one in term.expressions}
            wanted |= {("field", one.key, one.operator, frozenset(one.values)) for one in term.fields}
    if tied:
        wanted = {("field", "metadata.name", "In", frozenset((node.name,)))}
    terms = () if selector is None else selector.terms
    written = {
        (kind, one.key, one.operator, frozenset(one.values))
        for term in terms
        for kind, mine in (("label", term.expressions), ("field", term.fields))
        for one in mine
    }
    if written != wanted or len(terms) > 1:
        yield f"the node selector is {sorted(map(str, written))}, not {sorted(map(str, wanted))}"
