"""Kubernetes' device claims (``resource.k8s.io``): what is asked for, and what is allocated.

Amounts of capacities and counters are integers in billionths of the unit
(:data:`koordcore.model.quantity.NANO`), so that every quantity is held exactly. Texts that the API leaves
open (taint effects, operators, allocation modes) stay texts: what they mean, and that an unknown one means
nothing, is said by the rules and not by the reader.

Reference: Kubernetes 1.37, ``k8s.io/api/resource/v1``; the older forms are brought to it by the reader.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.device_slices import DeviceId
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.selectors import NodeSelector

EXACT_COUNT: Final = "ExactCount"
ALL_DEVICES: Final = "All"
MAX_DEVICES: Final = 32
"""Devices that one claim may be allocated."""
MAX_ALTERNATIVES: Final = 8
"""Alternatives that a request may have (``firstAvailable``)."""
MAX_CONSUMERS: Final = 256
"""Entries of ``status.reservedFor``."""
POD_GROUPS: Final = "podgroups"
"""``resource`` of a consumer that is a group of pods."""


class AllocationMode(StrEnum):
    """Which of the legal allocations is taken.

    ``EXACT``: the best one, whenever there is one. ``FIRST_FIT``: the very devices that Kubernetes'
    allocator takes, and its errors.
    """

    EXACT = "exact"
    FIRST_FIT = "first-fit"


@names_its_fields
@record
class ClaimArgs:
    """Arguments of the feature ``DynamicResources``.

    Parameters
    ----------
    mode
        Which of the legal allocations is taken.
    await_claims
        A pod waits until a controller has made the claims of its templates, as kube-scheduler has it. Without
        it a pod gets the devices of claims that are made with its placement.
    packed
        Nodes are better where devices are packed, so that most of every card, and most nodes, stay whole;
        otherwise where most is free. Earlier alternatives of a request go before either.
    """

    mode: AllocationMode = attrs.field(default=AllocationMode.EXACT, converter=AllocationMode)
    await_claims: bool = False
    packed: bool = True

    __attrs_post_init__ = check_fields


# --- what is asked for --------------------------------------------------------------------------------


class ConfigSource(StrEnum):
    """Who gave a configuration."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


@record
class DeviceConfig:
    """Parameters for a driver, not read by anybody else.

    Parameters
    ----------
    requests
        Which requests it is for, by ``main`` or ``main/sub``; empty for all.
    driver
        Who reads it.
    parameters
        JSON text.
    source
        Who gave it; ``None`` outside allocations.
    """

    requests: tuple[str, ...] = ()
    driver: str = ""
    parameters: str = ""
    source: ConfigSource | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class DeviceClass:
    """A kind of device that claims can ask for.

    Parameters
    ----------
    selectors
        CEL expressions that a device must satisfy; ``None`` stands for one of a kind that is not known. No
        selectors match every device.
    extended_resource_name
        Resource name under which containers can ask for the class; empty for none.
    """

    name: str
    selectors: tuple[str | None, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    extended_resource_name: str = ""
    created: datetime | None = None
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record
class DeviceToleration:
    """What lets a request have a tainted device; effect and key of ``""`` stand for any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    __attrs_post_init__ = check_fields


@record
class DerivedAttribute:
    """An attribute that constraints see, computed by a CEL expression."""

    name: str
    expression: str

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class DeviceSubRequest:
    """One way to serve a request.

    Parameters
    ----------
    name
        Name among the alternatives of a request; empty where the request has but one form.
    mode
        :data:`EXACT_COUNT` or :data:`ALL_DEVICES`; anything else is refused.
    count
        Devices wanted, in mode ``ExactCount``.
    admin_access
        Devices that others hold may be taken; ``None`` where the request does not speak of it.
    capacity
        Amounts wanted of each device.
    """

    class_name: str
    name: str = ""
    selectors: tuple[str | None, ...] = ()
    mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    derived_attributes: tuple[DerivedAttribute, ...] = ()

    __attrs_post_init__ = check_fields


@record
class ClaimRequest:
    """A request for devices in one form, or in the first of several forms that can be had.

    Parameters
    ----------
    forms
        The one form (``exactly``), or the alternatives (``firstAvailable``), the best first; empty where the
        request has a form that is not known.
    prioritized
        ``forms`` are alternatives, and results name the one taken.
    resource
        Extended resource that it stands for: of a node that lists it, nothing is asked for. Known while a
        claim is planned, and not written.
    """

    name: str
    forms: tuple[DeviceSubRequest, ...] = ()
    prioritized: bool = False
    resource: str = ""

    __attrs_post_init__ = check_fields


@record
class DeviceConstraint:
    """What the devices of several requests must have in common, or apart.

    Parameters
    ----------
    requests
        Requests by ``main`` or ``main/sub``; empty for all of the claim.
    match_attribute
        All devices agree in this attribute (fully qualified name).
    distinct_attribute
        No two devices agree in it. A constraint with neither is refused.
    """

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None

    __attrs_post_init__ = check_fields


@record(cache_hash=True)
class ClaimSpec:
    """What a claim asks for."""

    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()

    __attrs_post_init__ = check_fields


# --- what is allocated --------------------------------------------------------------------------------


@record(kw_only=True)
class DeviceResult:
    """A device that is allocated for a request.

    Parameters
    ----------
    request
        ``main``, or ``main/sub`` for an alternative.
    admin_access
        The device is not held: others may have it too.
    share_id
        Tells the shares of one device apart; ``None`` where the device is held whole.
    consumed_capacity
        What a share takes, of every capacity.
    """

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = None
    consumed_capacity: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    skip_node_operations: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def id(self) -> DeviceId:
        """Which device."""
        return DeviceId(self.driver, self.pool, self.device)


@record(kw_only=True)
class ClaimAllocation:
    """``status.allocation`` of a claim.

    Parameters
    ----------
    node_selector
        Where the devices can be used; ``None`` for everywhere.
    allocated
        When it was written.
    """

    results: tuple[DeviceResult, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    node_selector: NodeSelector | None = None
    allocated: datetime | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class HeldClaim:
    """A claim as a pod has it on its node.

    Parameters
    ----------
    name
        Name of the claim, in the pod's namespace.
    entry
        Name in the pod of the entry that asks for it; empty for a claim of extended resources.
    allocation
        What it was allocated.
    fresh
        It was allocated for this pod; otherwise it was there already.
    planned
        It does not exist yet: the controller will make it, under a name with another ending.
    promised
        Its devices are only kept for a nominated pod: others of the claim do not have them either.
    """

    name: str
    allocation: ClaimAllocation
    entry: str = ""
    fresh: bool = True
    planned: bool = False
    promised: bool = False

    __attrs_post_init__ = check_fields


@record
class ClaimConsumer:
    """Who may use an allocated claim: a pod, or a group of pods (:data:`POD_GROUPS`)."""

    name: str
    uid: str = ""
    resource: str = "pods"
    api_group: str = ""

    __attrs_post_init__ = check_fields


@record
class AllocatedDeviceStatus:
    """What a driver says of an allocated device: conditions by type, ``True`` where they hold."""

    driver: str
    pool: str
    device: str
    share_id: str | None = None
    conditions: immutabledict[str, bool] = attrs.field(default=EMPTY, converter=frozen)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ResourceClaim:
    """Devices that pods ask for together, and what they got.

    Parameters
    ----------
    owner
        Uid of the pod or group for which it was made from a template; empty for one that stands by itself.
    pod_claim_name
        Name in the pod of the entry from which it was made; empty where none is told.
    deleting
        It is being deleted; it holds its devices as long as it has an allocation.
    extended
        It was made for extended resources of its owner.
    """

    name: str
    namespace: str = "default"
    uid: str = ""
    spec: ClaimSpec = ClaimSpec()
    allocation: ClaimAllocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()
    owner: str = ""
    pod_claim_name: str = ""
    deleting: bool = False
    extended: bool = False
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ResourceClaimTemplate:
    """From what a claim is made for each pod (or group) that names it."""

    name: str
    namespace: str = "default"
    spec: ClaimSpec = ClaimSpec()
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)

    __attrs_post_init__ = check_fields
