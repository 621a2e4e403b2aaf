"""One file per family of features; this is the list of all of them.

A module is imported when a policy names its feature, so that ``import koordcore`` does not pay for allocators
that nobody asks for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, cast

from immutabledict import immutabledict

from koordcore.schedule.feature import Feature

__all__ = ["FEATURES", "feature_type"]

FEATURES: Final[immutabledict[str, tuple[str, str]]] = immutabledict(
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
        "NodeNUMAResource": ("numa", "NUMAFeature"),
        "DeviceShare": ("devices", "Devices"),
        "SchedulingHint": ("network", "Hints"),
        "Coscheduling": ("network", "Coscheduling"),
        "GpuShare": ("gpu_share", "GpuShare"),
        "ElasticQuota": ("quota", "QuotaFeature"),
        "Reservation": ("reservation", "ReservationFeature"),
    }
)
"""Every feature that the library has: the name that a policy uses, its module here, and its class."""


def feature_type(name: str) -> type[Feature]:
    """Give the class of a feature.

    Raises
    ------
    KeyError
        When there is no such feature.
    """
    module, attribute = FEATURES[name]
    return cast("type[Feature]", getattr(import_module(f"{__name__}.{module}"), attribute))
