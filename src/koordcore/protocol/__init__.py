"""What pods and nodes say in labels and annotations: keys, JSON shapes, parsing and formatting.

The control plane's wire formats that sit *inside* objects live here, so that plugins can read a pod's
wishes without knowing manifests, and manifests can write decisions back in the same shapes.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.protocol.device import format_allocation as format_allocation
    from koordcore.protocol.device_object import (
        device_object_from_manifest as device_object_from_manifest,
        inventory_of as inventory_of,
    )
    from koordcore.protocol.gang import ANNOTATION_MIN_AVAILABLE as ANNOTATION_MIN_AVAILABLE
    from koordcore.protocol.gang_names import ANNOTATION_GANG_NAME as ANNOTATION_GANG_NAME
    from koordcore.protocol.numa import format_resource_status as format_resource_status
    from koordcore.protocol.profile import parse_profile as parse_profile
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.protocol.device": ("format_allocation",),
            "koordcore.protocol.device_object": ("device_object_from_manifest", "inventory_of"),
            "koordcore.protocol.gang": ("ANNOTATION_MIN_AVAILABLE",),
            "koordcore.protocol.gang_names": ("ANNOTATION_GANG_NAME",),
            "koordcore.protocol.numa": ("format_resource_status",),
            "koordcore.protocol.profile": ("parse_profile",),
        },
    )
