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


def fit(**args: Any) -> tuple[str, Any]:
    return "NodeResourcesFit", args


def scored(**scoring: Any) -> tuple[str, Any]:
    return fit(scoringStrategy=scoring)


def shaped(*shape: dict[str, int]) -> tuple[str, Any]:
    return scored(requestedToCapacityRatio={"shape": shape})


def balanced(*resources: dict[str, Any]) -> tuple[str, Any]:
    return "NodeResourcesBalancedAllocation", {"resources": resources}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            fit(ignoredResourceGroups=["a", "a/b"]),
            "ignoredResourceGroups[1]: Invalid value: \"a/b\": resource group name can't contain '/'",
        ),
        (
            fit(ignoredResourceGroups=[""]),
            'ignoredResourceGroups[0]: Invalid value: "": name part must be non-empty',
        ),
        (
            fit(ignoredResources=["a/b/c"]),
            'ignoredResources[0]: Invalid value: "a/b/c": a qualified name must',
        ),
        (
            fit(ignoredResources=["/c"]),
            'ignoredResources[0]: Invalid value: "/c": prefix part must be non-empty',
        ),
        (fit(ignoredResources=["A_/c"]), "prefix part a lowercase RFC 1123 subdomain"),
        (fit(ignoredResources=["a/-"]), "name part must consist of"),
        (fit(ignoredResources=["a/" + "b" * 64]), "name part must be no more than 63 bytes"),
        (fit(ignoredResources=["b" * 254 + "/a"]), "prefix part must be no more than 253 bytes"),
        (
            scored(resources=[{"name": "cpu", "weight": 101}]),
            ".resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
        ),
        (scored(resources=[{"name": ""}]), "scoringStrategy.resources[0].name: Required value"),
        (
            scored(type="RequestedToCapacityRatio"),
            "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is",
        ),
        (shaped(), "scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point"),
        (
            shaped({"utilization": 5}, {"utilization": 5}),
            "shape[1].utilization: Invalid value: 5: values must be sorted in increasing order",
        ),
        (shaped({"score": 11}), "shape[0].score: Invalid value: 11: not in valid range [0, 10]"),
        (shaped({"utilization": -1}), "shape[0].utilization: Invalid value: -1: not in valid range [0, 100]"),
        (balanced({"name": "cpu", "weight": 7}), "resources[0].weight: Invalid value: 7: must be 1"),
        (balanced({"name": "cpu"}, {"name": "cpu"}), 'args.resources[1].name: Duplicate value: "cpu"'),
    ],
)
def test_what_upstreams_validation_refuses_is_refused(given: tuple[str, Any], told: str) -> None:
    plugin, args = given
    with pytest.raises(ManifestError) as caught:
        scheduler_configuration({"profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}]})
    assert told in str(caught.value)
