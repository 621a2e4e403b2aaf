"""Chosen devices written down as ``status.allocation`` (section 12)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import attrs

from koordcore._record import record
from koordcore.allocators.claims.outcome import ClaimError, ClaimErrorKind
from koordcore.allocators.claims.pools import NodePools, PoolDevice
from koordcore.allocators.claims.requests import ClaimForms, Form
from koordcore.model.claims import (
    ClaimAllocation,
    ConfigSource,
    DeviceClass,
    DeviceConfig,
    DeviceResult,
    ResourceClaim,
)
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator


@record(eq=False)
class Taken:
    """A device taken for a form of a request."""

    form: Form
    device: int


@record(eq=False)
class Choice:
    """The devices of one claim in the order of taking, with the form chosen for each request."""

    claim: ClaimForms
    forms: tuple[Form, ...]
    taken: tuple[Taken, ...]


def choice_of(claim: ClaimForms, forms: Sequence[Form], devices: Sequence[Sequence[int]]) -> Choice:
    """Make the choice of a claim from the devices of each of its requests.

    Parameters
    ----------
    claim
        The claim as it was read.
    forms
        By request: the alternative that is taken.
    devices
        By request: rows of its devices in the table.
    """
    taken = (
        Taken(form, device) for form, mine in zip(forms, devices, strict=True) for device in sorted(mine)
    )
    return Choice(claim, tuple(forms), tuple(taken))


def share_id(claim: ResourceClaim, number: int) -> str:
    """Make the id of a share: the same for the same claim and place, in the form of a UUID."""
    text = f"{claim.namespace}/{claim.name}/{claim.uid}/{number}"
    digits = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def allocation_of(
    pools: NodePools,
    shareable: int,
    choice: Choice,
    claim: ResourceClaim,
    classes: Mapping[str, DeviceClass],
) -> ClaimAllocation | ClaimError:
    """Write down what a claim gets.

    Parameters
    ----------
    pools
        The node's pools; the devices of the choice are places in them.
    shareable
        Devices that several claims share.
    choice
        Made for this claim, or for one that asks for the same on a node that looks the same.
    claim
        Whose allocation it is.

    Returns
    -------
    ClaimAllocation or ClaimError
        The error where a slice's node selector has more terms than one, which nothing can be made of.
    """
    devices = [pools.devices[one.device] for one in choice.taken]
    selector = _node_selector(devices, pools.node.name)
    if isinstance(selector, ClaimError):
        return selector
    results = tuple(
        _result(device, one, share_id(claim, number) if shareable >> one.device & 1 else None)
        for number, (device, one) in enumerate(zip(devices, choice.taken, strict=True))
    )
    return ClaimAllocation(results=results, config=_config(choice, classes), node_selector=selector)


def _result(one: PoolDevice, taken: Taken, share: str | None) -> DeviceResult:
    form = taken.form
    return DeviceResult(
        request=form.name,
        driver=one.id.driver,
        pool=one.id.pool,
        device=one.id.device,
        admin_access=form.admin,
        tolerations=form.spec.tolerations,
        binding_conditions=one.device.binding_conditions,
        binding_failure_conditions=one.device.binding_failure_conditions,
        share_id=share,
        consumed_capacity=EMPTY if share is None else frozen(form.amounts[taken.device]),
        skip_node_operations=one.slice.skip_node_operations,
    )


def _config(choice: Choice, classes: Mapping[str, DeviceClass]) -> tuple[DeviceConfig, ...]:
    own = choice.claim.claim.spec.config
    if not own and not any(classes[form.spec.class_name].config for form in choice.forms):
        return ()
    users: dict[str, list[str]] = {}
    for form in choice.forms:
        users.setdefault(form.spec.class_name, []).append(form.name)
    entries = [
        attrs.evolve(entry, requests=tuple(names), source=ConfigSource.CLASS)
        for class_name, names in users.items()
        for entry in classes[class_name].config
    ]
    entries += [
        attrs.evolve(entry, source=ConfigSource.CLAIM)
        for entry in own
        if not entry.requests or any(form.named(entry.requests) for form in choice.forms)
    ]
    return tuple(
        attrs.evolve(entry, requests=())
        if entry.requests and all(form.named(entry.requests) for form in choice.forms)
        else entry
        for entry in entries
    )


@lru_cache(maxsize=4096)
def _only_on(node: str) -> NodeSelector:
    only = Requirement("metadata.name", SelectorOperator.IN, (node,))
    return NodeSelector((NodeSelectorTerm(fields=(only,)),))


def _node_selector(devices: Iterable[PoolDevice], node: str) -> NodeSelector | ClaimError | None:
    """Say where all the devices can be used: on this node, by labels, or (``None``) everywhere."""
    collected: list[Requirement] = []
    fields: list[Requirement] = []
    for one in devices:
        per_device = one.slice.per_device_node_selection
        place = one.device if per_device else one.slice
        if place.node_name or one.device.binds_to_node:
            return _only_on(node)
        terms = place.node_selector.terms if place.node_selector is not None else ()
        if len(terms) > 1:
            text = f"device {one.id}: a node selector has {len(terms)} terms, one is allowed"
            return ClaimError(ClaimErrorKind.NODE_SELECTOR, text)
        for term in terms:
            _collect(collected, term.expressions)
            _collect(fields, term.fields)
    if not collected and not fields:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(collected), tuple(fields)),))


def _collect(known: list[Requirement], added: Iterable[Requirement]) -> None:
    for one in added:
        if not any(
            (one.key, one.operator) == (old.key, old.operator) and set(one.values) == set(old.values)
            for old in known
        ):
            known.append(one)
