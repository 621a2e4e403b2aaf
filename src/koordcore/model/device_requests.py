"""What a pod asks of a node's devices.

What there is, and what a pod gets, stands in :mod:`koordcore.model.devices`; the rules are in
:mod:`koordcore.protocol.device` (names on the wire) and :mod:`koordcore.allocators.device` (allocation).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.devices import DeviceAllocation, DeviceType
from koordcore.model.resources import Resources
from koordcore.model.selectors import LabelSelector
from koordcore.topology.devices import TopologyScope


class AllocateStrategy(StrEnum):
    """How an amount of rdma or fpga becomes devices."""

    NONE = ""
    APPLY_FOR_ALL = "ApplyForAll"
    REQUESTS_AS_COUNT = "RequestsAsCount"


class ExclusivePolicy(StrEnum):
    """What a device must not be shared with."""

    NONE = ""
    DEVICE_LEVEL = "DeviceLevel"
    PCIE_LEVEL = "PCIeLevel"


class PartitionAllocatePolicy(StrEnum):
    """``Restricted`` takes nothing but a partition of the best score."""

    RESTRICTED = "Restricted"
    BEST_EFFORT = "BestEffort"


@record(kw_only=True)
class DeviceHint:
    """Wishes of a pod about one device type.

    Parameters
    ----------
    selector
        Labels that the device must carry; ``None`` for any.
    vf_selector
        A virtual function out of a group with these labels is wanted; ``None`` for the device itself.
    strategy, exclusive
        See the enumerations.
    required_topology_scope
        ``Device``, ``PCIe``, ``NUMANode``, ``Node``, empty for no requirement; another word asks for a known
        topology and nothing else, as upstream reads it.
    """

    selector: LabelSelector | None = None
    vf_selector: LabelSelector | None = None
    strategy: AllocateStrategy = AllocateStrategy.NONE
    exclusive: ExclusivePolicy = ExclusivePolicy.NONE
    required_topology_scope: str = ""

    __attrs_post_init__ = check_fields


NO_HINT: Final = DeviceHint()


@record
class JointAllocate:
    """Types that are to be close to each other.

    Parameters
    ----------
    types
        Those that the pod asks for, the primary one first.
    same_pcie
        Every type must sit on exactly the PCIe switches of the primary one.
    """

    types: tuple[DeviceType, ...]
    same_pcie: bool = False

    __attrs_post_init__ = check_fields


@record
class PartitionSpec:
    """A pod that insists on a partition."""

    policy: PartitionAllocatePolicy = PartitionAllocatePolicy.BEST_EFFORT
    ring_bus_bandwidth: int | None = None

    __attrs_post_init__ = check_fields


@names_its_fields
@record(kw_only=True)
class GPURequest:
    """What one card must give, and how many cards.

    Parameters
    ----------
    count
        Number of cards.
    per_device
        Amounts on each card.
    shared
        The cards may be shared with other pods; whole cards otherwise.
    enforce_template
        The vendor virtualises these cards by templates only.
    templates
        ``<vendor>-<model>`` to the names of the templates that equal ``per_device``.
    """

    count: int
    per_device: Resources
    shared: bool
    enforce_template: bool = False
    templates: immutabledict[str, tuple[str, ...]] = attrs.field(
        default=immutabledict(), converter=immutabledict
    )

    __attrs_post_init__ = check_fields


@names_its_fields
@record(kw_only=True, cache_hash=True)
class DeviceRequest:
    """Everything that a pod asks of a node's devices; equal requests are equal values.

    Parameters
    ----------
    amounts
        Per type the internal amounts (``nvidia.com/gpu: 2`` has become core 200, ratio 200).
    gpu
        The cards asked for; ``None`` without the type ``gpu``.
    hints, joint, partition
        Annotations of the pod.
    joint_named
        The pod carries the joint annotation at all, even if no type of it is left.
    isolation_provider
        Label of the pod; enforced for shared cards.
    loan_required, loans_ignored
        The pod must (must not care to) sit in a reservation.
    designated
        Exact devices that the caller wants the pod to get.
    warnings
        What was rounded, and what the pod wishes for in vain; the notes of its decision say so.
    """

    amounts: immutabledict[DeviceType, Resources]
    gpu: GPURequest | None = None
    hints: immutabledict[DeviceType, DeviceHint] = attrs.field(
        default=immutabledict(), converter=immutabledict
    )
    joint: JointAllocate | None = None
    joint_named: bool = False
    partition: PartitionSpec | None = None
    isolation_provider: str = ""
    loan_required: bool = False
    loans_ignored: bool = False
    designated: DeviceAllocation | None = None
    warnings: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def types(self) -> tuple[DeviceType, ...]:
        """The types asked for, by name."""
        return tuple(sorted(self.amounts))

    def hint(self, kind: DeviceType) -> DeviceHint:
        """Wishes about one type; the empty ones where there are none."""
        return self.hints.get(kind, NO_HINT)

    def scope(self, kind: DeviceType) -> TopologyScope | None:
        """How near the devices of one type must be to each other; ``None`` where any will do."""
        word = self.hints.get(kind, NO_HINT).required_topology_scope
        return TopologyScope.of(word) if word else None
