"""Random profiles as a KubeSchedulerConfiguration has them: which plugins, in which order, what arguments."""

from __future__ import annotations

import random
from typing import Final

from campaigns.case import Object

__all__ = ["PLUGINS", "draw_policy", "reordered"]

ALWAYS: Final = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeNUMAResource",
    "DeviceShare",
    "ElasticQuota",
    "Reservation",
    "Coscheduling",
)
"""Plugins that decide what is legal; a profile without one of them would answer another question."""
SOMETIMES: Final = (
    "NodeVolumeLimits",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "LoadAwareScheduling",
    "NodeResourcesFitPlus",
    "ScarceResourceAvoidance",
    "SchedulingHint",
)
PLUGINS: Final = (*ALWAYS, *SOMETIMES)


def draw_policy(chance: random.Random) -> Object | None:
    """Draw a profile; None for the library's own policy."""
    if chance.random() < 0.3:
        return None
    names = [*ALWAYS, *(name for name in SOMETIMES if chance.random() < 0.4)]
    enabled = [{"name": name, "weight": chance.choice((1, 1, 2, 5))} for name in names]
    strategy = chance.choice(("LeastAllocated", "MostAllocated"))
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": chance.choice((1, 2))}]
    args: list[Object] = [
        {
            "name": "NodeResourcesFit",
            "args": {"scoringStrategy": {"type": strategy, "resources": resources}},
        }
    ]
    if chance.random() < 0.5:
        share: Object = {"type": chance.choice(("LeastAllocated", "MostAllocated"))}
        share |= {"resources": [{"name": "koordinator.sh/gpu-memory-ratio", "weight": 1}]}
        args.append({"name": "DeviceShare", "args": {"scoringStrategy": share}})
    if chance.random() < 0.3:
        policy = chance.choice(("FullPCPUs", "SpreadByPCPUs"))
        args.append({"name": "NodeNUMAResource", "args": {"defaultCPUBindPolicy": policy}})
    if "LoadAwareScheduling" in names:
        limits = {"cpu": chance.choice((50, 65, 90)), "memory": 95}
        args.append({"name": "LoadAwareScheduling", "args": {"usageThresholds": limits}})
    if chance.random() < 0.3:
        args.append({"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": chance.randint(0, 100)}})
    return {
        "plugins": enabled,
        "args": args,
        "turns": chance.choice(("OneByOne", "OneByOne", "Together")),
    }


def reordered(policy: Object, chance: random.Random) -> Object:
    """Give the same profile with its plugins in another order."""
    plugins = list(policy["plugins"])
    chance.shuffle(plugins)
    return {**policy, "plugins": plugins}
