"""Whatever is wrong with an argument of a plugin is told with its place in the configuration."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests.scheduler_config import scheduler_configuration
from tests.cli.test_configurations import ARGS

UNREAD: Final = {
    "ElasticQuota": {"hookPlugins", "revokePodInterval", "quotaSnapshotUpdateInterval", "enableQueueHint"}
    | {"quotaGroupNamespace"},
    "DynamicResources": {"filterTimeout"},
    "Coscheduling": {"skipCheckScheduleCycle"},
    "DeviceShare": {"allocator"},
    "VolumeBinding": {"bindTimeoutSeconds", "shape"},
    "DefaultPreemption": {"minCandidateNodesPercentage", "minCandidateNodesAbsolute"},
}
OURS: Final[dict[str, dict[str, Any]]] = {
    "DynamicResources": {"scoringStrategy": {"type": "MostAllocated"}, "allocationMode": "first-fit"},
    "Coscheduling": {"gangFit": "TightestFit"},
    "Reservation": {
        "preAllocationConfig": {"enableClusterMode": True, "clusterLabelKey": "a/b"},
        "ignoredResources": ["example.com/foo"],
        "ignoredResourceGroups": ["example.com"],
    },
    "SchedulingHint": {"maxHintNodes": 3},
}


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the place of everything in a value, itself included."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*path, key))


def changed(value: Any, path: tuple[str | int, ...], wrong: Any) -> Any:
    done = copy.deepcopy(value)
    place = done
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    return done


def spelt(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def same(path: str) -> str:
    """Spell names in a map, which some write in brackets, one way."""
    return path.replace("[", ".").replace("]", "")


def wrong_for(value: Any, path: tuple[str | int, ...]) -> Any:
    """Give what is never right in a place."""
    for key in path:
        value = value[key]
    return 1.5 if isinstance(value, list) else []


def problems(plugin: str, args: Any) -> list[str]:
    raw = {"profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}]}
    with pytest.raises(ManifestError) as caught:
        scheduler_configuration(raw)
    return [one.path for one in caught.value.problems]


CASES: Final = [
    (plugin, args, path)
    for given in (ARGS, OURS)
    for plugin, args in given.items()
    for path in places(args)
    if path[0] not in UNREAD.get(plugin, ())
]


@pytest.mark.parametrize(
    ("plugin", "args", "path"), CASES, ids=[f"{one}{spelt(path)}" for one, _, path in CASES]
)
def test_a_value_of_the_wrong_kind_is_told_with_its_place(
    plugin: str, args: Any, path: tuple[str | int, ...]
) -> None:
    told = problems(plugin, changed(args, path, wrong_for(args, path)))
    assert [same(one) for one in told] == [same(f"profiles[0].pluginConfig[0].args{spelt(path)}")]


@pytest.mark.parametrize(
    ("plugin", "args", "place"),
    [
        ("Coscheduling", {"defaultTimeout": "-1s"}, "defaultTimeout"),
        ("Coscheduling", {"controllerWorkers": 0}, "controllerWorkers"),
        ("SchedulingHint", {"maxHintNodes": 0}, "maxHintNodes"),
        ("DeviceShare", {"scoringStrategy": {"type": "Foo"}}, "scoringStrategy.type"),
        (
            "DeviceShare",
            {"scoringStrategy": {"resources": [{"name": "koordinator.sh/rdma", "weight": 0}]}},
            "scoringStrategy.resources[0].weight",
        ),
        ("LoadAwareScheduling", {"dominantResourceWeight": 101}, "dominantResourceWeight"),
        ("InterPodAffinity", {"hardPodAffinityWeight": 101}, "hardPodAffinityWeight"),
        ("DynamicResources", {"scoringStrategy": {"type": "Foo"}}, "scoringStrategy.type"),
        (
            "NodeAffinity",
            {
                "addedAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Foo"}]}]
                    }
                }
            },
            (
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
                ".matchExpressions[0].operator"
            ),
        ),
        (
            "NodeAffinity",
            {
                "addedAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "preference": {
                                "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]
                            },
                        }
                    ]
                }
            },
            (
                "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
                ".matchExpressions[0].values[0]"
            ),
        ),
    ],
)
def test_a_value_that_upstream_refuses_is_told_with_its_place(plugin: str, args: Any, place: str) -> None:
    assert problems(plugin, args) == [f"profiles[0].pluginConfig[0].args.{place}"]
