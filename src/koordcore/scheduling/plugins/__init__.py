"""One file per family of plugins; this is the list of all of them.

A module is imported when a policy names its plugin, so that ``import koordcore`` does not pay for allocators
that nobody asks for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from immutabledict import immutabledict

from koordcore.framework.plugin import Plugin

__all__ = ["PLUGINS", "plugin_type"]

PLUGINS: Final[immutabledict[str, tuple[str, str]]] = immutabledict(
    {
        "NodeUnschedulable": ("placement", "Unschedulable"),
        "NodeName": ("placement", "NodeName"),
        "TaintToleration": ("placement", "Taints"),
        "NodeAffinity": ("placement", "NodeLabels"),
        "NodePorts": ("placement", "NodePorts"),
        "NodeResourcesFit": ("resources", "ResourceFit"),
        "NodeResourcesBalancedAllocation": ("resources", "BalancedAllocation"),
        "NodeResourcesFitPlus": ("resources", "FitPlus"),
        "ScarceResourceAvoidance": ("resources", "ScarceAvoidance"),
        "VolumeRestrictions": ("volume_use", "VolumeRestrictions"),
        "NodeVolumeLimits": ("volume_use", "NodeVolumeLimits"),
        "VolumeBinding": ("volumes", "VolumeBinding"),
        "VolumeZone": ("volumes", "VolumeZone"),
        "PodTopologySpread": ("spread", "TopologySpread"),
        "InterPodAffinity": ("interpod", "InterPodAffinity"),
        "ImageLocality": ("images", "ImageLocality"),
        "LoadAwareScheduling": ("load", "LoadAware"),
        "NodeNUMAResource": ("numa", "NUMAPlugin"),
        "DeviceShare": ("devices", "Devices"),
        "SchedulingHint": ("network", "Hints"),
        "Coscheduling": ("network", "Coscheduling"),
        "GpuShare": ("gpu_share", "GpuShare"),
        "ElasticQuota": ("quota", "QuotaPlugin"),
        "Reservation": ("reservation", "ReservationPlugin"),
    }
)
"""Every plugin that the library has: the name that a policy uses, its module here, and its class."""


def plugin_type(name: str) -> type[Plugin]:
    """Give the class of a plugin.

    Raises
    ------
    KeyError
        When there is no such plugin.
    """
    module, attribute = PLUGINS[name]
    return cast("type[Plugin]", getattr(import_module(f"{__name__}.{module}"), attribute))
