"""Allocation of devices to ResourceClaims (``resource.k8s.io``) on one node.

:class:`SliceIndex` holds what drivers publish, :func:`gather_pools` what a node sees of it, and a
:class:`DeviceTable` its devices as columns. :func:`room_of` takes off what claims hold, and
:func:`allocate_claims` answers what the claims of a pod get there: devices, the proof that nothing fits, or
an error that names the object that is wrong.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.allocators.claims.allocate import (
        allocate_claims as allocate_claims,
        choose_devices as choose_devices,
    )
    from koordcore.allocators.claims.features import (
        ALL_FEATURES as ALL_FEATURES,
        ClaimFeature as ClaimFeature,
    )
    from koordcore.allocators.claims.outcome import (
        ClaimError as ClaimError,
        ClaimErrorKind as ClaimErrorKind,
        ClaimOutcome as ClaimOutcome,
        ClaimsAllocated as ClaimsAllocated,
        ClaimShortfall as ClaimShortfall,
        ClaimsRefused as ClaimsRefused,
    )
    from koordcore.allocators.claims.pools import (
        NodePools as NodePools,
        NodeView as NodeView,
        SliceIndex as SliceIndex,
        gather_pools as gather_pools,
        with_taint_rules as with_taint_rules,
    )
    from koordcore.allocators.claims.room import (
        Room as Room,
        room_of as room_of,
    )
    from koordcore.allocators.claims.selectors import CelCompiler as CelCompiler
    from koordcore.allocators.claims.state import (
        DevicesInUse as DevicesInUse,
        devices_in_use as devices_in_use,
    )
    from koordcore.allocators.claims.table import (
        DeviceTable as DeviceTable,
        DeviceView as DeviceView,
        SelectorFault as SelectorFault,
    )
    from koordcore.model.claims import AllocationMode as AllocationMode

# Inner names, each read with its module: whoever needs one of them is not to wait for all.
__all__, __getattr__, __dir__ = read_late(
    __name__,
    {
        "koordcore.allocators.claims.allocate": ("allocate_claims", "choose_devices"),
        "koordcore.allocators.claims.features": ("ALL_FEATURES", "ClaimFeature"),
        "koordcore.allocators.claims.outcome": (
            "ClaimError",
            "ClaimErrorKind",
            "ClaimOutcome",
            "ClaimsAllocated",
            "ClaimShortfall",
            "ClaimsRefused",
        ),
        "koordcore.allocators.claims.pools": (
            "NodePools",
            "NodeView",
            "SliceIndex",
            "gather_pools",
            "with_taint_rules",
        ),
        "koordcore.allocators.claims.room": ("Room", "room_of"),
        "koordcore.allocators.claims.selectors": ("CelCompiler",),
        "koordcore.allocators.claims.state": ("DevicesInUse", "devices_in_use"),
        "koordcore.allocators.claims.table": ("DeviceTable", "DeviceView", "SelectorFault"),
        "koordcore.model.claims": ("AllocationMode",),
    },
)
