"""Which parts of device claims a cluster has switched on."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ClaimFeature(StrEnum):
    """A feature gate of Kubernetes that changes what is legal, by its name there.

    Binding conditions need two gates upstream; ``BINDING_CONDITIONS`` stands for both.
    """

    ADMIN_ACCESS = "DRAAdminAccess"
    BINDING_CONDITIONS = "DRADeviceBindingConditions"
    COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DERIVED_ATTRIBUTES = "DRADerivedAttributes"
    FRACTIONAL_RANGES = "DRAFractionalCapacityRange"
    LIST_ATTRIBUTES = "DRAListTypeAttributes"
    OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
    PARTITIONABLE = "DRAPartitionableDevices"
    PRIORITIZED_LIST = "DRAPrioritizedList"
    TAINTS = "DRADeviceTaints"


ALL_FEATURES: Final = frozenset(ClaimFeature)
"""The default: everything on, as with the newest release and its alpha features."""
