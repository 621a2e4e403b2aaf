"""Kueue's objects as people and controllers write them: both versions, and what is no object at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.model.kueue import ClusterQueue, Cohort, KueueWorkload
from tests.manifests.kueue_builders import GPU, admitted, local, made, pod_set, queue, workload


def test_both_versions_say_the_same() -> None:
    new = queue("team", {"a100": 8}, "all", limits={"borrowingLimit": 2, "lendingLimit": "3"})
    old = copy.deepcopy(new)
    old["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    old["spec"]["cohort"] = old["spec"].pop("cohortName")
    (one,), (other,) = (snapshot_from_objects([raw]).snapshot.of(ClusterQueue) for raw in (new, old))
    assert one == other
    (quota,) = one.groups[0].flavors
    assert (dict(quota.nominal), dict(quota.borrowing), dict(quota.lending)) == ({GPU: 8}, {GPU: 2}, {GPU: 3})
    (cohort,) = snapshot_from_objects([made("Cohort", "all", {"parentName": "top"})]).snapshot.of(Cohort)
    assert cohort.parent == "top"


@pytest.mark.parametrize(
    ("reason", "hour"),
    [("PodsReadyTimeout", 9), ("AdmissionCheck", 9), ("Preempted", 0), ("InactiveWorkload", 0)],
)
def test_who_was_preempted_keeps_its_age(reason: str, hour: int) -> None:
    raw = workload("w", pod_set("main", 4, 1))
    evicted = {"type": "Evicted", "status": "True", "reason": reason}
    raw["status"] = {"conditions": [{**evicted, "lastTransitionTime": "2026-01-01T09:00:00Z"}]}
    (one,) = snapshot_from_objects([raw]).snapshot.of(KueueWorkload)
    assert one.created is not None
    assert one.created.hour == hour


def test_what_is_reclaimed_is_not_used() -> None:
    raw = admitted(workload("w", pod_set("main", 4, 1)), "team", {GPU: "a100"}, 8)
    raw["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    (one,) = snapshot_from_objects([raw]).snapshot.of(KueueWorkload)
    assert dict(one.assignments[0].usage) == {GPU: 6}
    assert not one.waits


def test_what_is_not_decided_is_named() -> None:
    raw = queue(
        "team",
        {"a100": 8},
        preemption={"withinClusterQueue": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}},
        admissionChecks=["prov"],
        fairSharing={"weight": 1},
        flavorFungibility={"preference": "PreemptionOverBorrowing"},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
    )
    told = [str(one) for one in snapshot_from_objects([raw]).warnings]
    fields = (
        "admissionChecks",
        "fairSharing",
        "withinClusterQueue",
        "borrowWithinCohort.policy",
        "spec.flavorFungibility.preference",
        "admissionScope",
    )
    for field in fields:
        assert any(field in line for line in told), field


@pytest.mark.parametrize(
    ("covered", "message"),
    [
        ([GPU, "cpu"], "has no quota for cpu, which coveredResources names"),
        (["cpu"], "has no quota for cpu, which coveredResources names"),
        ([], f"has quota for {GPU}, which coveredResources does not name"),
    ],
)
def test_a_flavor_has_quota_for_what_its_group_covers(covered: list[str], message: str) -> None:
    raw = queue("team", {"a100": 8, "h100": 8})
    raw["spec"]["resourceGroups"][0]["coveredResources"] = covered
    (told,) = snapshot_from_objects([raw]).problems
    assert (told.path, told.message) == ("spec.resourceGroups[0]", f"flavor a100 {message}")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("spec",), True),
        (("spec", "podSets"), {"a": 1}),
        (("spec", "podSets", 0), "x"),
        (("spec", "podSets", 0, "count"), 10**12),
        (("spec", "podSets", 0, "minCount"), 0),
        (("spec", "podSets", 0, "template"), [1]),
        (("spec", "podSets", 0, "template", "metadata"), "x"),
        (("spec", "podSets", 0, "template", "spec"), [[]]),
        (("metadata", "ownerReferences"), "x"),
        (("metadata", "labels"), [None]),
        (("status", "conditions"), {"a": 1}),
    ],
)
def test_a_workload_of_the_wrong_shape_is_named(place: tuple[Any, ...], value: Any) -> None:
    raw: Any = workload("w", pod_set("main", 2, 8))
    raw["status"] = {}
    inner = raw
    for key in place[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    inner[place[-1]] = value
    objects = [raw, queue("team", {"a100": 8}), local("q", "team")]
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects(objects, as_gangs=True, strict=True)
    assert all(one.object_name for one in caught.value.problems)
