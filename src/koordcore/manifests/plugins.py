"""Scheduler plugins by name: at which extension points they speak, and which are enabled by default.

Kubernetes 1.35 (``pkg/scheduler/apis/config/v1/default_plugins.go``) and Koordinator's scheduler with the
profile that it ships (``config/manager/scheduler-config.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from immutabledict import immutabledict

from koordcore.model.installed import offered_plugins

POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""Extension points in the order in which a cycle passes them."""

_FULL: Final = ("preFilter", "filter", "preScore", "score")

PLUGIN_POINTS: Final[Mapping[str, tuple[str, ...]]] = immutabledict(
    {
        "SchedulingGates": ("preEnqueue",),
        "PrioritySort": ("queueSort",),
        "NodeUnschedulable": ("filter",),
        "NodeName": ("filter",),
        "TaintToleration": ("filter", "preScore", "score"),
        "NodeAffinity": _FULL,
        "NodePorts": ("preFilter", "filter"),
        "NodeResourcesFit": _FULL,
        "VolumeRestrictions": ("preFilter", "filter"),
        "NodeVolumeLimits": ("preFilter", "filter"),
        "VolumeBinding": (*_FULL, "reserve", "preBind"),
        "VolumeZone": ("preFilter", "filter"),
        "PodTopologySpread": _FULL,
        "InterPodAffinity": _FULL,
        "DefaultPreemption": ("preEnqueue", "postFilter"),
        "NodeResourcesBalancedAllocation": ("preScore", "score"),
        "ImageLocality": ("score",),
        "DefaultBinder": ("bind",),
        "NodeDeclaredFeatures": ("preFilter", "filter"),
        "GangScheduling": ("preEnqueue", "reserve", "permit"),
        "DynamicResources": (
            "preEnqueue",
            "preFilter",
            "filter",
            "postFilter",
            "score",
            "reserve",
            "preBind",
        ),
        "LoadAwareScheduling": ("preFilter", "filter", "preScore", "score", "reserve"),
        "NodeNUMAResource": (*_FULL, "reserve", "preBind"),
        "DeviceShare": (*_FULL, "reserve", "preBind"),
        "Reservation": (*_FULL, "postFilter", "reserve", "preBind", "bind"),
        "Coscheduling": (
            "preEnqueue",
            "queueSort",
            "preFilter",
            "postFilter",
            "preScore",
            "score",
            "reserve",
            "permit",
            "preBind",
            "postBind",
        ),
        "ElasticQuota": ("preFilter", "postFilter", "reserve"),
        "SchedulingHint": ("preFilter",),
        "NodeResourcesFitPlus": ("preScore", "score"),
        "ScarceResourceAvoidance": ("preScore", "score"),
        "DefaultPreBind": ("preBind",),
    }
)
"""Every plugin of the two schedulers."""

DEFAULT_PLUGINS: Final = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("DynamicResources", 2),
    ("NodeDeclaredFeatures", 0),
)
"""What ``multiPoint`` enables by default, with weights; 0 where none is given."""

REMOVED_PLUGINS: Final[Mapping[str, str]] = immutabledict(
    {
        "NodeLabel": "v1beta2",
        "ServiceAffinity": "v1beta2",
        "NodeResourcesLeastAllocated": "v1beta2",
        "NodeResourcesMostAllocated": "v1beta2",
        "RequestedToCapacityRatio": "v1beta2",
        "NodePreferAvoidPods": "v1beta3",
        "SelectorSpread": "v1",
    }
)
"""Plugins that were there once, with the version of the configuration that no longer knows them."""


MODELLED: Final = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"}
    | {"NodeResourcesBalancedAllocation", "PodTopologySpread", "InterPodAffinity", "ImageLocality"}
    | {"NodeResourcesFitPlus", "ScarceResourceAvoidance", "LoadAwareScheduling", "NodeNUMAResource"}
    | {"DeviceShare", "Reservation", "ElasticQuota", "Coscheduling", "SchedulingHint"}
    | {"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "DynamicResources"}
    | {"NodeDeclaredFeatures"}
)
"""Plugins that have their like in this library; the others are about the queue and binding."""


def _enabled(*names: str, **weights: int) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [{"name": name} for name in names]
    return {"enabled": [*listed, *({"name": name, "weight": weight} for name, weight in weights.items())]}


def _only(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": "*"}], **_enabled(*names)}


_ARGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "NodeResourcesFit": {
        "scoringStrategy": {
            "type": "LeastAllocated",
            "resources": [
                {"name": name, "weight": 1}
                for name in ("cpu", "memory", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
            ],
        }
    },
    "LoadAwareScheduling": {
        "filterExpiredNodeMetrics": False,
        "nodeMetricExpirationSeconds": 300,
        "resourceWeights": {"cpu": 1, "memory": 1},
        "usageThresholds": {"cpu": 0, "memory": 0},
        "estimatedScalingFactors": {"cpu": 85, "memory": 70},
    },
}

KOORDINATOR_CONFIGURATION: Final[Mapping[str, Any]] = immutabledict(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "koord-scheduler",
                "pluginConfig": [
                    {
                        "name": name,
                        "args": {
                            "apiVersion": "kubescheduler.config.k8s.io/v1",
                            "kind": f"{name}Args",
                            **args,
                        },
                    }
                    for name, args in _ARGS.items()
                ],
                "plugins": {
                    "preEnqueue": _enabled("Coscheduling"),
                    "preFilter": _enabled(
                        "SchedulingHint",
                        "Reservation",
                        "NodeNUMAResource",
                        "DeviceShare",
                        "Coscheduling",
                        "ElasticQuota",
                    ),
                    "filter": _enabled(
                        "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare", "Reservation"
                    ),
                    "postFilter": _only("Reservation", "Coscheduling", "ElasticQuota", "DefaultPreemption"),
                    "preScore": _enabled("Reservation", "Coscheduling"),
                    "score": _enabled(
                        LoadAwareScheduling=1,
                        NodeNUMAResource=1,
                        DeviceShare=1,
                        Reservation=5000,
                        Coscheduling=1,
                    ),
                    "reserve": _enabled(
                        "LoadAwareScheduling",
                        "NodeNUMAResource",
                        "DeviceShare",
                        "Reservation",
                        "Coscheduling",
                        "ElasticQuota",
                    ),
                    "permit": _enabled("Coscheduling"),
                    "preBind": _enabled(
                        "NodeNUMAResource", "DeviceShare", "Reservation", "Coscheduling", "DefaultPreBind"
                    ),
                    "bind": _only("Reservation", "DefaultBinder"),
                    "postBind": _enabled("Coscheduling"),
                },
            }
        ],
    }
)
"""The profile that Koordinator ships, without the parts that say nothing about placement."""


def points_of(name: str) -> tuple[str, ...]:
    """Give the points at which a plugin speaks; empty for one that nobody knows or offers."""
    return PLUGIN_POINTS.get(name, ("filter", "score") if name in offered_plugins() else ())


def deciding_plugins() -> frozenset[str]:
    """Give the names of the plugins that can decide here, those of installed packages among them."""
    return MODELLED.union(offered_plugins())
