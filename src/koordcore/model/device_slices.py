"""What drivers publish of Kubernetes' devices (``resource.k8s.io``): slices, devices, and taints on them.

Amounts of capacities and counters are integers in billionths of the unit
(:data:`koordcore.model.quantity.NANO`), so that every quantity is held exactly.

Reference: Kubernetes 1.37, ``k8s.io/api/resource/v1``; the older forms are brought to it by the reader.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.selectors import NodeSelector


class DeviceId(NamedTuple):
    """What names a device in the cluster; the slice that publishes it may change."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class AttributeKind(StrEnum):
    """Type of an attribute's value."""

    INT = "int"
    BOOL = "bool"
    STRING = "string"
    VERSION = "version"
    NONE = "none"
    """No value is set, or one of a type that is not known."""


AttributeScalar: TypeAlias = int | bool | str


@record
class AttributeValue:
    """Value of an attribute, or a list of values of one type.

    Parameters
    ----------
    kind
        Type of every value; values of different types are different.
    values
        One value, or the members of a list; versions as they are spelt. Empty means that nothing is set.
    listed
        The attribute is a list, even where it has one member.
    """

    kind: AttributeKind
    values: tuple[AttributeScalar, ...] = ()
    listed: bool = False

    __attrs_post_init__ = check_fields


@record
class CapacityRange:
    """Amounts from ``min`` to ``max`` in steps of ``step``; ``None`` is not set."""

    min: int | None = None
    max: int | None = None
    step: int | None = None

    __attrs_post_init__ = check_fields


@record
class CapacityPolicy:
    """Which amounts of a shared capacity can be had.

    Parameters
    ----------
    default
        Amount for requests that do not name the capacity; ``None`` stands for the whole of it.
    valid_values
        The amounts that can be had, ascending; empty for no such list.
    valid_range
        The amounts that can be had, as a range.
    """

    default: int | None = None
    valid_values: tuple[int, ...] = ()
    valid_range: CapacityRange | None = None

    __attrs_post_init__ = check_fields


@record
class DeviceCapacity:
    """How much of something a device has.

    Parameters
    ----------
    value
        Amount.
    policy
        How it is shared; ``None`` where nothing is said.
    binary
        Amounts are written with binary suffixes (``Gi``).
    """

    value: int
    policy: CapacityPolicy | None = None
    binary: bool = False

    __attrs_post_init__ = check_fields


@record
class CounterSet:
    """Amounts that the devices of a pool draw on together, such as the memory slices of one card."""

    name: str
    counters: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)

    __attrs_post_init__ = check_fields


@record
class CounterConsumption:
    """What a device takes from one counter set.

    Parameters
    ----------
    counter_set
        Name of the set, in the device's pool.
    counters
        Amount by counter.
    compatibility_groups
        All devices in use on one set must have a group in common.
    """

    counter_set: str
    counters: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    compatibility_groups: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


@record
class DeviceTaint:
    """A mark on a device that repels claims.

    Parameters
    ----------
    effect
        ``NoSchedule`` and ``NoExecute`` bar; any other effect does not.
    added
        Since when it is there; pods are evicted from then on where the effect is ``NoExecute``.
    """

    key: str
    value: str = ""
    effect: str = ""
    added: datetime | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class SliceDevice:
    """A device as its driver publishes it.

    Parameters
    ----------
    name
        Unique in the pool.
    attributes, capacity
        By name; a name without domain belongs to the driver's domain.
    consumes_counters
        What using the device takes from the pool's counter sets.
    node_name, node_selector, all_nodes
        Where it can be used, if its slice leaves that to the devices.
    taints
        What repels claims.
    binds_to_node
        Using it ties the claim to the node, although others could reach the device.
    binding_conditions, binding_failure_conditions
        Conditions of the device's status that must hold before a pod is bound, and that end the attempt.
    allow_multiple_allocations
        Several claims share the device, each with an amount of every capacity.
    """

    name: str
    attributes: immutabledict[str, AttributeValue] = attrs.field(default=EMPTY, converter=frozen)
    capacity: immutabledict[str, DeviceCapacity] = attrs.field(default=EMPTY, converter=frozen)
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ResourceSlice:
    """Some of the devices, or of the counter sets, of a driver's pool.

    Parameters
    ----------
    driver, pool
        Slices of one driver with one pool name form a pool.
    generation
        Slices of an older generation than the newest are out of date.
    slice_count
        How many slices of this generation make the pool complete.
    node_name, node_selector, all_nodes
        Where the devices can be used; at most one is set.
    per_device_node_selection
        Each device says so itself; ``None`` where the slice does not speak of it.
    shared_counters
        Counter sets of the pool.
    skip_node_operations
        Operations that the kubelet leaves out for these devices; nodes must say that they can.
    """

    name: str
    driver: str
    pool: str
    generation: int = 0
    slice_count: int = 1
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool | None = None
    devices: tuple[SliceDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    skip_node_operations: tuple[str, ...] = ()
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class DeviceTaintRule:
    """A taint that an administrator puts on devices.

    Parameters
    ----------
    selects
        The rule has a selector; without one it matches no device.
    driver, pool, device
        What a device must equal; ``None`` stands for anything.
    """

    name: str
    taint: DeviceTaint
    selects: bool = True
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    namespace: str = ""

    __attrs_post_init__ = check_fields
