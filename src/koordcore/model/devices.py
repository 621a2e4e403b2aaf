"""Devices of a node, and what a pod holds of them; what it asks is in :mod:`koordcore.model.device_requests`.

Every record here is a value without behaviour that decides anything; the rules are in
:mod:`koordcore.protocol.device` (names on the wire) and :mod:`koordcore.allocators.device` (allocation).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.decisions import Shortfall
from koordcore.model.resources import NO_RESOURCES, Resources, frozen_amounts

NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
DCU_GPU: Final = "dcu.com/gpu"
GPU: Final = "koordinator.sh/gpu"
GPU_CORE: Final = "koordinator.sh/gpu-core"
GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED: Final = "koordinator.sh/gpu.shared"
NPU_CORE: Final = "huawei.com/npu-core"
NPU_CPU: Final = "huawei.com/npu-cpu"
NPU_DVPP: Final = "huawei.com/npu-dvpp"
RDMA: Final = "koordinator.sh/rdma"
FPGA: Final = "koordinator.sh/fpga"
GPU_COUNT: Final = "alibabacloud.com/gpu-count"

MOST_CARDS: Final = 1024
"""Cards that are looked at one by one on a node that only counts them; no machine has as many."""

ALL_GPU_RESOURCES: Final = (
    NVIDIA_GPU,
    AMD_GPU,
    DCU_GPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
)
"""Every resource name by which a pod may ask for devices of type ``gpu``."""


class DeviceType(StrEnum):
    """What kind of device; every GPU-like card (NPU, MLU, DCU, …) is a ``gpu``."""

    FPGA = "fpga"
    GPU = "gpu"
    RDMA = "rdma"


class StatusCode(StrEnum):
    """How a filter ends, by the scheduler framework's names."""

    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"


# --- what is there ------------------------------------------------------------------------------------


@record
class VirtualFunction:
    """A virtual function of a NIC; ``minor`` is -1 where the node does not number them."""

    bus_id: str
    minor: int = 0

    __attrs_post_init__ = check_fields


@names_its_fields
@record
class VFGroup:
    """Virtual functions that carry the same labels."""

    labels: immutabledict[str, str] = attrs.field(default=immutabledict(), converter=immutabledict)
    vfs: tuple[VirtualFunction, ...] = ()

    __attrs_post_init__ = check_fields


@record
class DeviceTopology:
    """Where a device sits; ``node_id`` -1 means that its NUMA node is unknown."""

    node_id: int = -1
    pcie_id: str = ""
    socket_id: int = -1
    bus_id: str = ""

    __attrs_post_init__ = check_fields


@names_its_fields
@record(kw_only=True)
class Device:
    """One device as its node reports it.

    Parameters
    ----------
    type, minor
        Together the name of the device on its node.
    id
        UUID of a GPU, PCI address of a NIC; written into allocations.
    health
        An unhealthy device stays known and holds nothing.
    labels
        What a request's selector looks at.
    resources
        Capacity: percent points (core, ratio, rdma, fpga), bytes (memory), units (``npu-*``).
    topology
        ``None`` where the node does not know it.
    vf_groups
        Virtual functions.
    """

    type: DeviceType
    minor: int
    id: str = ""
    health: bool = True
    labels: immutabledict[str, str] = attrs.field(default=immutabledict(), converter=immutabledict)
    resources: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    topology: DeviceTopology | None = None
    vf_groups: tuple[VFGroup, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.minor < 0:
            raise ModelError(f"device {self.type} {self.minor}: a minor is not negative")


@record(kw_only=True)
class GPUPartition:
    """Cards that one switch fabric joins at full bandwidth.

    Parameters
    ----------
    minors
        The cards, in the order of the table.
    allocation_score
        Higher is better (ruling 1).
    link_type
        ``NVLink``, ``HCCS``, …; for people.
    ring_bus_bandwidth
        Bytes per second; ``None`` where it is not told.
    """

    minors: tuple[int, ...]
    allocation_score: int = 0
    link_type: str = ""
    ring_bus_bandwidth: int | None = None

    __attrs_post_init__ = check_fields

    @property
    def mask(self) -> int:
        """Bit ``m`` is set for minor ``m``."""
        return sum(1 << minor for minor in set(self.minors))

    def is_of(self, size: int) -> bool:
        """Tell whether it is a set of so many cards; a table may say otherwise."""
        return len(self.minors) == len(set(self.minors)) == size


PartitionTable: TypeAlias = immutabledict[int, tuple[GPUPartition, ...]]
"""Number of cards to the partitions of that size, in the order of the table."""


class TableSource(StrEnum):
    """Where a node's partition table comes from."""

    DEVICE = "device"
    BUILTIN = "builtin"
    NONE = "none"


@record(kw_only=True)
class DeviceInventory:
    """All devices of one node with what the node says about them.

    Parameters
    ----------
    devices
        Sorted by type and minor.
    partitions
        ``None`` where there is no table; an empty table is one that has no size at all.
    source
        Where the table comes from.
    honor
        The node's policy: whole cards only by partitions.
    vendor, model
        Labels of the node, for templates and bans.
    isolation_provider
        Label of the node, for shared cards.
    well_planned
        Label of the Device object. It changes nothing here, because every type is decided at once (ruling 3);
        it is kept because reports show it.
    warnings
        What was read in a way that upstream would not.
    """

    devices: tuple[Device, ...] = ()
    partitions: PartitionTable | None = None
    source: TableSource = TableSource.NONE
    honor: bool = False
    vendor: str = ""
    model: str = ""
    isolation_provider: str = ""
    well_planned: bool = False
    warnings: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class DeviceObject:
    """A Device object as it stands, before the labels of its node are known.

    Parameters
    ----------
    name
        Name of the node.
    labels
        Of the object.
    devices
        Sorted by type and minor.
    partitions
        The table on the object; ``None`` where it has none.
    warnings
        What was read in a way that upstream would not.
    """

    name: str
    namespace: str = ""
    labels: immutabledict[str, str] = immutabledict()
    devices: tuple[Device, ...] = ()
    partitions: PartitionTable | None = None
    warnings: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


SharedResourceTemplates: TypeAlias = immutabledict[str, immutabledict[str, Resources]]
"""``<vendor>-<model>`` to template name to what one virtual card of that template takes."""


@record
class SharedTemplates:
    """The record of the ConfigMap with the templates of virtual cards."""

    name: str
    namespace: str
    templates: SharedResourceTemplates

    __attrs_post_init__ = check_fields


# --- what a pod gets --------------------------------------------------------------------------------------


@record(kw_only=True)
class DeviceHolding:
    """A part of one device, or all of it.

    Parameters
    ----------
    minor
        Which device of its type.
    resources
        Amounts taken.
    id
        Of the device; empty where unknown.
    vfs
        Virtual functions taken, in the order of taking.
    template
        Name of the vendor's template for a virtual card.
    """

    minor: int
    resources: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    id: str = ""
    vfs: tuple[VirtualFunction, ...] = ()
    template: str = ""

    __attrs_post_init__ = check_fields


@names_its_fields
@record
class DeviceAllocation:
    """The devices of one pod; per type in the order of selection."""

    devices: immutabledict[DeviceType, tuple[DeviceHolding, ...]] = attrs.field(
        default=immutabledict(), converter=immutabledict
    )

    __attrs_post_init__ = check_fields

    def minors(self, kind: DeviceType) -> tuple[int, ...]:
        """The minors of one type, in the order of selection."""
        return tuple(holding.minor for holding in self.devices.get(kind, ()))

    @property
    def total(self) -> Resources:
        """Sum over all devices of all types."""
        amounts: dict[str, int] = {}
        for holdings in self.devices.values():
            for holding in holdings:
                for name, amount in holding.resources.items():
                    amounts[name] = amounts.get(name, 0) + amount
        return immutabledict(sorted(amounts.items()))


@record(kw_only=True)
class DeviceShortfall:
    """Why devices are refused.

    Parameters
    ----------
    reasons
        Upstream's wording, one per type or reservation that refuses.
    code
        ``Unschedulable`` where evictions may help.
    device_type
        The type that is short; ``None`` where no single one is.
    requested, available
        Devices wanted and devices that could serve; 0 where numbers do not apply.
    detail
        More for people, such as who holds a designated device.
    """

    reasons: tuple[str, ...]
    code: StatusCode = StatusCode.UNSCHEDULABLE
    device_type: DeviceType | None = None
    requested: int = 0
    available: int = 0
    detail: str = ""

    __attrs_post_init__ = check_fields

    @property
    def resolvable(self) -> bool:
        """Evicting pods may help."""
        return self.code is StatusCode.UNSCHEDULABLE

    @property
    def shortfalls(self) -> tuple[Shortfall, ...]:
        """The same in the library's common form, one per reason."""
        return tuple(
            Shortfall(
                reason,
                resource=str(self.device_type or "") if self.requested else "",
                requested=self.requested,
                available=self.available,
                resolvable=self.resolvable,
            )
            for reason in self.messages
        )

    @property
    def messages(self) -> tuple[str, ...]:
        """The reasons, or what says more than they do: who holds what a pod must be given."""
        return (self.detail,) if self.detail else self.reasons
