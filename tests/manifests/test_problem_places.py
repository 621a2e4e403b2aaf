"""Whatever is wrong with a field of an object is told with the place where it stands there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from koordcore.manifests import snapshot_from_objects

KOORDINATOR: Final = "scheduling.koordinator.sh/v1alpha1"
ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
ALLOCS: Final = "node.koordinator.sh/pod-cpu-allocs"
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
SELECTOR: Final = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
OLD_NAMES: Final = {"kubernetes.io/gpu-core": "100", "kubernetes.io/gpu-memory": "1Gi", "cpu": "1"}
PART: Final = {"resources": OLD_NAMES, "type": "gpu", "minor": 0, "health": True}
CONDITIONS: Final = [
    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"},
]
DEVICE: Final = {
    "attributes": {"numa": {"int": 1}},
    "capacity": {"memory": {"value": "1Gi"}},
    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    "consumesCounters": [{"counterSet": "c", "counters": {"a": {"value": "1"}}}],
}


def obj(version: str, kind: str, **fields: Any) -> dict[str, Any]:
    metadata = {
        "name": "x",
        "namespace": "d",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"a": "b"},
        **fields.pop("metadata", {}),
    }
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


OBJECTS: Final = [
    obj(
        "topology.node.k8s.io/v1alpha1",
        "NodeResourceTopology",
        zones=[
            {
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "memory", "allocatable": "1Gi"}, {"name": "cpu", "allocatable": "1"}],
            }
        ],
    ),
    obj(
        "scheduling.sigs.k8s.io/v1alpha1",
        "ElasticQuota",
        spec={"max": {"cpu": "4"}, "min": {"cpu": "2"}},
        status={"used": {"cpu": "1"}},
    ),
    obj(
        "quota.koordinator.sh/v1alpha1",
        "ElasticQuotaProfile",
        spec={
            "quotaName": "q",
            "quotaLabels": {"a": "b"},
            "resourceRatio": "0.9",
            "nodeSelector": {"matchLabels": {"a": "b"}},
        },
    ),
    obj(
        KOORDINATOR,
        "PodMigrationJob",
        spec={"podRef": {"namespace": "d", "name": "p", "uid": "u"}, "ttl": "5m", "paused": False},
        status={"phase": "Running", "status": "s", "reason": "r", "message": "m"},
    ),
    obj(KOORDINATOR, "Device", spec={"devices": [PART]}),
    obj(
        KOORDINATOR,
        "Reservation",
        spec={
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": OLD_NAMES}}]}},
            "owners": [{"labelSelector": SELECTOR}],
            "ttl": "1h",
        },
        status={"phase": "Available", "nodeName": "n", "allocatable": OLD_NAMES},
    ),
    obj(
        "slo.koordinator.sh/v1alpha1",
        "NodeMetric",
        spec={"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        status={"podsMetric": [None, {"name": "p", "namespace": "d"}]},
    ),
    obj(
        KUEUE,
        "ClusterQueue",
        spec={
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [
                        {
                            "name": "f",
                            "resources": [
                                {"name": "cpu", "nominalQuota": 1, "borrowingLimit": 1, "lendingLimit": 1}
                            ],
                        }
                    ],
                }
            ],
            "preemption": {"borrowWithinCohort": {"policy": "Never"}},
            "fairSharing": {"weight": "1"},
        },
    ),
    obj(
        KUEUE,
        "Workload",
        spec={"podSets": [{"name": "main", "count": 1, "template": {"metadata": {}, "spec": {}}}]},
        status={
            "conditions": [
                {"type": "Evicted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]
        },
    ),
    *(
        obj(
            f"resource.k8s.io/{version}",
            "ResourceSlice",
            spec={
                "driver": "d",
                "nodeName": "n",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d0", **device}],
            },
        )
        for version, device in (("v1beta1", {"basic": DEVICE}), ("v1", DEVICE))
    ),
    *(
        obj(
            f"resource.k8s.io/{version}",
            "ResourceClaim",
            spec={"devices": {"requests": [{"name": "r", **form}]}},
        )
        for version, form in (
            ("v1beta1", {"deviceClassName": "c", "count": 1}),
            ("v1", {"exactly": {"deviceClassName": "c", "count": 1}}),
        )
    ),
    obj("v1", "Node", status={"allocatable": OLD_NAMES, "capacity": OLD_NAMES}),
    obj(
        "v1",
        "Pod",
        spec={"containers": [{"name": "c", "resources": {"requests": OLD_NAMES, "limits": OLD_NAMES}}]},
        status={"phase": "Pending", "conditions": CONDITIONS},
    ),
    obj("v1", "ReplicationController", spec={"replicas": 1, "selector": {"a": "b"}}),
]
TEMPLATE: Final = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
JOB: Final = {"spec": {"parallelism": 2, "completions": 2, "template": TEMPLATE}}
JOBS: Final = [
    obj("batch/v1", "Job", **JOB, status={"succeeded": 1, "failedIndexes": "0"}),
    obj(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        spec={
            "replicatedJobs": [{"name": "j", "replicas": 1, "template": JOB, "dependsOn": [{"name": "i"}]}]
        },
        status={"replicatedJobsStatus": [{"name": "i", "succeeded": 1}]},
    ),
    obj(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        spec={
            "replicas": 1,
            "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE, "leaderTemplate": TEMPLATE},
        },
    ),
    obj(
        "ray.io/v1",
        "RayJob",
        spec={
            "rayClusterSpec": {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [
                    {
                        "groupName": "w",
                        "replicas": 1,
                        "minReplicas": 1,
                        "maxReplicas": 2,
                        "template": TEMPLATE,
                    }
                ],
            }
        },
        status={"rayClusterName": "r"},
    ),
    obj(
        "kubeflow.org/v1",
        "PyTorchJob",
        spec={
            "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": TEMPLATE}},
            "runPolicy": {"schedulingPolicy": {"minAvailable": 1}},
        },
    ),
    obj("trainer.kubeflow.org/v1alpha1", "TrainJob", spec={"runtimeRef": {"name": "r"}}),
]
IN_TEXTS: Final = [
    (
        obj("topology.node.k8s.io/v1alpha1", "NodeResourceTopology"),
        ALLOCS,
        [{"uid": "a"}, {"uid": "b", "managedByKubelet": True, "cpuset": "0-1"}],
    ),
    (
        obj("v1", "Pod", spec={"containers": [{"name": "c"}]}),
        "node.koordinator.sh/resctrl",
        {"llc": {"schemata": {"range": [0, 50]}}, "mb": {"schemata": {"percent": 50}}},
    ),
    (
        obj("v1", "Pod", spec={"containers": [{"name": "c"}], "nodeName": "n"}),
        ALLOCATED,
        {"gpu": [{"minor": 0, "resources": {}}, {"minor": 1, "resources": OLD_NAMES}]},
    ),
]
WRONG: Final = ([None], {"a": [1]}, "x y!", -7, 1.5)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Give the place of everything in a value, itself excepted."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*path, key)
        yield from places(one, (*path, key))


def changed(value: Any, path: tuple[str | int, ...], wrong: Any) -> Any:
    done = json.loads(json.dumps(value))  # parts that stand twice are two then
    place = done
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    return done


def spelt(path: str | tuple[str | int, ...]) -> str:
    """Spell a place with dots alone."""
    written = path if isinstance(path, str) else ".".join(map(str, path))
    return written.replace("[", ".").replace("]", "") + "."


def told(raw: Any) -> set[tuple[str, str]]:
    """Give what is wrong; a warning about the object as a whole has no place."""
    loaded = snapshot_from_objects([raw])
    found = {(one.path, one.message) for one in loaded.problems}
    return found | {(one.path, one.message) for one in loaded.warnings if one.path}


@pytest.mark.parametrize("raw", OBJECTS, ids=lambda raw: f"{raw['apiVersion']} {raw['kind']}")
def test_what_is_wrong_with_a_field_is_told_with_its_place(raw: Any) -> None:
    before = told(raw)
    for path in places(raw):
        if path[0] in {"apiVersion", "kind"} or path == ("metadata",):
            continue  # without them nobody knows which object it is
        own = spelt(path)
        for wrong in WRONG:
            for place, message in told(changed(raw, path, wrong)) - before:
                there = spelt(place)
                # What is read in a wrong field, or was to be, is missing there.
                assert place, (path, message)
                assert there.startswith(own) or own.startswith(there), (path, place, message)


@pytest.mark.parametrize(
    ("raw", "key", "value"), IN_TEXTS, ids=lambda one: one if isinstance(one, str) else ""
)
def test_what_is_wrong_in_the_text_of_an_annotation_is_told_with_its_place(
    raw: Any, key: str, value: Any
) -> None:
    before = told(changed(raw, ("metadata", "annotations"), {key: json.dumps(value)}))
    for path in places(value):
        own = spelt(("metadata", "annotations", key, *path))
        for wrong in WRONG:
            noted = {key: json.dumps(changed(value, path, wrong))}
            for place, message in told(changed(raw, ("metadata", "annotations"), noted)) - before:
                there = spelt(place)
                assert there.startswith(own) or own.startswith(there), (path, place, message)


@pytest.mark.parametrize("raw", JOBS, ids=lambda raw: raw["kind"])
def test_what_is_wrong_with_a_job_as_a_gang_is_told_with_its_place(raw: Any) -> None:
    for path in places(raw):
        if path[0] in {"apiVersion", "kind"} or path == ("metadata",):
            continue
        own = spelt(path)
        for wrong in WRONG:
            loaded = snapshot_from_objects([changed(raw, path, wrong)], as_gangs=True)
            for one in loaded.problems:
                if one.object_name.startswith("Pod "):
                    continue  # one that was made of the template
                there = spelt(one.path)
                assert one.path, (path, one)
                assert there.startswith(own) or own.startswith(there), (path, one)


def test_amounts_in_lists_are_told_with_their_index_and_field() -> None:
    zones = [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "x"}]}]
    topology = obj("topology.node.k8s.io/v1alpha1", "NodeResourceTopology", zones=zones)
    quota = obj("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", spec=[None])
    assert [str(one) for one in snapshot_from_objects([topology, quota]).problems] == [
        'object 1: NodeResourceTopology d/x: zones[0].resources[0].allocatable: expected a quantity, got "x"',
        "object 2: ElasticQuota d/x: spec: expected object, got [null]",
    ]
