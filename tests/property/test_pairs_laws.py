"""Arguments of every two plugins at once, in fours, none of them the default, on a small cluster.

Laws: nothing crashes; what ``schedule`` places ``verify`` finds legal; ``explain`` decides as ``schedule``
does; the order of the plugins decides nothing.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime
from itertools import combinations
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ScheduleResult, schedule, verify
from koordcore.explaining import explain
from koordcore.manifests.plugins import KOORDINATOR_CONFIGURATION
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model.policy import Policy
from tests.property.mixed_worlds import NOW, cluster

MOST = {"type": "MostAllocated"}
CPU_FIRST = [{"name": "cpu", "weight": 5}, {"name": "memory", "weight": 1}]
SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 60, "score": 10}, {"utilization": 100, "score": 2}]
ARGS: dict[str, list[dict[str, Any]]] = {
    "NodeResourcesFit": [
        {"scoringStrategy": {**MOST, "resources": CPU_FIRST}},
        {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": CPU_FIRST,
                "requestedToCapacityRatio": {"shape": SHAPE},
            },
            "ignoredResources": ["example.com/x"],
        },
    ],
    "NodeResourcesBalancedAllocation": [{"resources": [{"name": "cpu", "weight": 1}]}],
    "NodeResourcesFitPlus": [{"resources": {"cpu": {"type": "MostAllocated", "weight": 3}}}],
    "ScarceResourceAvoidance": [{"resources": ["koordinator.sh/gpu-core"]}],
    "NodeAffinity": [
        {
            "addedAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 50,
                        "preference": {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["z2"]}]
                        },
                    }
                ]
            }
        }
    ],
    "InterPodAffinity": [{"hardPodAffinityWeight": 80, "ignorePreferredTermsOfExistingPods": True}],
    "PodTopologySpread": [
        {
            "defaultingType": "List",
            "defaultConstraints": [
                {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
        }
    ],
    "LoadAwareScheduling": [
        {"usageThresholds": {"cpu": 45}},
        {"prodUsageThresholds": {"cpu": 40}, "scoreAccordingProdUsage": True, "dominantResourceWeight": 1},
    ],
    "NodeNUMAResource": [
        {"defaultCPUBindPolicy": "SpreadByPCPUs", "numaScoringStrategy": {**MOST, "resources": CPU_FIRST}},
        {"scoringStrategy": {**MOST, "resources": CPU_FIRST}},
    ],
    "DeviceShare": [
        {"scoringStrategy": {**MOST, "resources": [{"name": "koordinator.sh/gpu-core", "weight": 1}]}},
        {"disableDeviceNUMATopologyAlignment": True},
    ],
    "Reservation": [{"enablePreemption": True, "matching": "Joint"}],
    "ElasticQuota": [{"enableRuntimeQuota": False}, {"enableCheckParentQuota": True}],
    "Coscheduling": [{"defaultTimeout": "10s"}],
}
NAMES = list(ARGS)
FOURS = [tuple(NAMES[(number + step) % 13] for step in (0, 1, 3, 9)) for number in range(13)]
"""Thirteen fours in which every two of thirteen names meet, once: the lines of the plane of order three."""


def policy_of(config: dict[str, dict[str, Any]]) -> Policy:
    """Koordinator's shipped profile with other arguments for some plugins, which are on in any case."""
    raw = json.loads(json.dumps(KOORDINATOR_CONFIGURATION, default=dict))
    profile = raw["profiles"][0]
    off = ("NodeResourcesFitPlus", "ScarceResourceAvoidance")
    more = [{"name": name, "weight": 2} for name in config if name in off]
    profile["plugins"]["multiPoint"] = {"enabled": more}
    kept = [one for one in profile["pluginConfig"] if one["name"] not in config]
    profile["pluginConfig"] = [*kept, *({"name": name, "args": args} for name, args in config.items())]
    return policies_from_manifest(raw)[0]


def placements(result: ScheduleResult) -> list[tuple[Any, ...]]:
    """Where every pod goes and what it gets."""
    return [
        (one.pod, one.node, one.annotations, one.reservation) if isinstance(one, Bound) else (one.pod,)
        for one in result.decisions
    ]


def test_every_two_plugins_meet() -> None:
    met = Counter(pair for four in FOURS for pair in combinations(sorted(four), 2))
    assert met == Counter(combinations(sorted(NAMES), 2))


@pytest.mark.parametrize("number", range(2 * len(FOURS)))
def test_arguments_of_plugins_hold_together(number: int) -> None:
    """Every two of them at once, with the first and with the last arguments of each."""
    snapshot, now = cluster(number % 5), datetime.fromisoformat(NOW)
    config = {name: ARGS[name][-(number % 2)] for name in FOURS[number // 2]}
    policy = policy_of(config)
    known = {one.name: one.args for one in policy.plugins}
    assert config.keys() <= known.keys(), "all are asked"
    result = schedule(snapshot, policy=policy, now=now)
    assert verify(snapshot, result) == ()
    assert len(result.bound) > 2
    for pod in snapshot.pending[number % 12 :: 12]:
        assert explain(snapshot, pod, policy=policy, now=now).decision == result.decision(pod.key)
    plugins = list(policy.plugins)
    random.Random(number).shuffle(plugins)
    other = schedule(snapshot, policy=attrs.evolve(policy, plugins=tuple(plugins)), now=now)
    assert placements(other) == placements(result)


@given(st.data())
@settings(max_examples=8)
def test_the_order_of_any_plugins_decides_nothing(data: st.DataObject) -> None:
    """Some of the plugins only, each filtering or scoring only at times, with other weights, in any order."""
    snapshot, now = cluster(data.draw(st.integers(0, 4))), datetime.fromisoformat(NOW)
    whole = policy_of({name: data.draw(st.sampled_from(found)) for name, found in ARGS.items()})
    chosen = [one for one in whole.plugins if data.draw(st.integers(0, 3), label=one.name)]
    plugins = [
        attrs.evolve(one, weight=data.draw(st.integers(1, 5)) if one.scores else one.weight) for one in chosen
    ]
    shuffled = data.draw(st.permutations(plugins))
    results = [
        schedule(snapshot, policy=attrs.evolve(whole, plugins=tuple(order)), now=now)
        for order in (plugins, shuffled)
    ]
    assert placements(results[0]) == placements(results[1])
    assert [type(one) for one in results[0].decisions] == [type(one) for one in results[1].decisions]
    assert [verify(snapshot, one) for one in results] == [(), ()]
