"""Exact devices for one pod on one node: GPUs and their kin, NICs, FPGAs."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.allocators.device.allocate import (
        allocate_devices as allocate_devices,
        refusal_of as refusal_of,
    )
    from koordcore.allocators.device.answers import (
        DeviceAnswers as DeviceAnswers,
        device_table as device_table,
        score_devices as score_devices,
    )
    from koordcore.allocators.device.explain import (
        DeviceExplanation as DeviceExplanation,
        Release as Release,
        explain_devices as explain_devices,
        smallest_release as smallest_release,
    )
    from koordcore.allocators.device.request import device_request_of as device_request_of
    from koordcore.allocators.device.state import (
        DeviceConflict as DeviceConflict,
        NodeDevices as NodeDevices,
        node_devices as node_devices,
    )
    from koordcore.allocators.device.view import (
        PLAIN_TERMS as PLAIN_TERMS,
        Terms as Terms,
    )
    from koordcore.model.device_policy import (
        DEFAULT_DEVICE_POLICY as DEFAULT_DEVICE_POLICY,
        DevicePolicy as DevicePolicy,
        ScoringStrategy as ScoringStrategy,
    )
    from koordcore.protocol.device_amounts import (
        DeviceResources as DeviceResources,
        device_resources as device_resources,
    )

# Inner names, each read with its module: whoever needs one of them is not to wait for all.
__all__, __getattr__, __dir__ = read_late(
    __name__,
    {
        "koordcore.allocators.device.allocate": ("allocate_devices", "refusal_of"),
        "koordcore.allocators.device.answers": ("DeviceAnswers", "device_table", "score_devices"),
        "koordcore.allocators.device.explain": (
            "DeviceExplanation",
            "Release",
            "explain_devices",
            "smallest_release",
        ),
        "koordcore.allocators.device.request": ("device_request_of",),
        "koordcore.allocators.device.state": ("DeviceConflict", "NodeDevices", "node_devices"),
        "koordcore.allocators.device.view": ("PLAIN_TERMS", "Terms"),
        "koordcore.model.device_policy": ("DEFAULT_DEVICE_POLICY", "DevicePolicy", "ScoringStrategy"),
        "koordcore.protocol.device_amounts": ("DeviceResources", "device_resources"),
    },
)
