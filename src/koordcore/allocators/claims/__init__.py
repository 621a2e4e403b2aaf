"""Allocation of devices to ResourceClaims (``resource.k8s.io``) on one node.

:class:`SliceIndex` holds what drivers publish, :func:`gather_pools` what a node sees of it, and a
:class:`DeviceTable` its devices as columns. :func:`room_of` takes off what claims hold, and
:func:`allocate_claims` answers what the claims of a pod get there: devices, the proof that nothing fits, or
an error that names the object that is wrong.
"""

from koordcore.allocators.claims.allocate import allocate_claims, choose_devices
from koordcore.allocators.claims.features import ALL_FEATURES, ClaimFeature
from koordcore.allocators.claims.outcome import (
    ClaimError,
    ClaimErrorKind,
    ClaimOutcome,
    ClaimsAllocated,
    ClaimShortfall,
    ClaimsRefused,
)
from koordcore.allocators.claims.pools import NodePools, NodeView, SliceIndex, gather_pools, with_taint_rules
from koordcore.allocators.claims.room import Room, room_of
from koordcore.allocators.claims.selectors import CelCompiler
from koordcore.allocators.claims.state import DevicesInUse, devices_in_use
from koordcore.allocators.claims.table import DeviceTable, DeviceView, SelectorFault
from koordcore.model.claims import AllocationMode

__all__ = [
    "ALL_FEATURES",
    "AllocationMode",
    "CelCompiler",
    "ClaimError",
    "ClaimErrorKind",
    "ClaimFeature",
    "ClaimOutcome",
    "ClaimShortfall",
    "ClaimsAllocated",
    "ClaimsRefused",
    "DeviceTable",
    "DeviceView",
    "DevicesInUse",
    "NodePools",
    "NodeView",
    "Room",
    "SelectorFault",
    "SliceIndex",
    "allocate_claims",
    "choose_devices",
    "devices_in_use",
    "gather_pools",
    "room_of",
    "with_taint_rules",
]
