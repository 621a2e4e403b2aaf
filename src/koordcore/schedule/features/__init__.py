"""One file per family of features; this is the list of all of them."""

from __future__ import annotations

from typing import Final

from immutabledict import immutabledict

from koordcore.schedule.feature import Feature
from koordcore.schedule.features.images import ImageLocality
from koordcore.schedule.features.interpod import InterPodAffinity
from koordcore.schedule.features.load import LoadAware
from koordcore.schedule.features.placement import NodeLabels, NodeName, NodePorts, Taints, Unschedulable
from koordcore.schedule.features.quota import QuotaFeature
from koordcore.schedule.features.resources import BalancedAllocation, FitPlus, ResourceFit, ScarceAvoidance
from koordcore.schedule.features.spread import TopologySpread

__all__ = ["FEATURES"]

FEATURES: Final[immutabledict[str, type[Feature]]] = immutabledict(
    {
        feature.name: feature
        for feature in (
            Unschedulable,
            NodeName,
            Taints,
            NodeLabels,
            NodePorts,
            ResourceFit,
            BalancedAllocation,
            FitPlus,
            ScarceAvoidance,
            TopologySpread,
            InterPodAffinity,
            ImageLocality,
            LoadAware,
            QuotaFeature,
        )
    }
)
"""Every feature that the library has, by the name that a policy uses."""
