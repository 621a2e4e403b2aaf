"""Kubernetes' own groups in every version that was served: read, validated, told from what they resemble."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.model.cluster import PriorityClass
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import PreemptionPolicy
from koordcore.model.scheduling_groups import (
    CompositePodGroup,
    DisruptionMode,
    GroupClaim,
    SchedulingPodGroup,
    SchedulingWorkload,
    WorkloadRef,
)

K8S = "scheduling.k8s.io/"
Raw = dict[str, Any]


def read(*objects: Raw) -> Any:
    return snapshot_from_objects(objects).snapshot


def group(version: str = "v1beta1", **spec: Any) -> Raw:
    return {
        "apiVersion": K8S + version,
        "kind": "PodGroup",
        "metadata": {"name": "a", "namespace": "ml"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, **spec},
    }


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_a_pod_group_says_all_that_it_can(version: str) -> None:
    raw = group(
        version,
        parentCompositePodGroupName="root",
        workloadRef={"workloadName": "w", "templateName": "t"},
        schedulingConstraints={"topology": [{"key": "topology.kubernetes.io/rack"}]},
        disruptionMode={"all": {}},
        priority=7,
        priorityClassName="high",
        preemptionPolicy="Never",
        resourceClaims=[{"name": "net", "resourceClaimTemplateName": "tmpl"}],
    )
    raw["status"] = {
        "conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled"}],
        "resourceClaimStatuses": [{"name": "net", "resourceClaimName": "a-net"}],
    }
    (one,) = read(raw).of(SchedulingPodGroup)
    assert (one.namespace, one.name, one.min_count, one.parent) == ("ml", "a", 3, "root")
    assert one.workload == WorkloadRef("w", "t")
    assert one.topology_keys == ("topology.kubernetes.io/rack",)
    assert one.disruption is DisruptionMode.ALL
    assert (one.priority, one.priority_class, one.preemption_policy) == (7, "high", PreemptionPolicy.NEVER)
    assert one.claims == (GroupClaim(name="net", claim="a-net", template="tmpl"),)
    assert one.conditions[0].reason == "Scheduled"


def test_the_words_of_v1alpha2_mean_the_same() -> None:
    raw = group(
        "v1alpha2",
        podGroupTemplateRef={"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        disruptionMode="PodGroup",
    )
    (one,) = read(raw).of(SchedulingPodGroup)
    assert (one.workload, one.disruption) == (WorkloadRef("w", "t"), DisruptionMode.ALL)
    (plain,) = read(group("v1alpha2", disruptionMode="Pod")).of(SchedulingPodGroup)
    assert plain.disruption is DisruptionMode.SINGLE


def test_a_workload_of_v1alpha1_holds_its_groups() -> None:
    raw = {
        "apiVersion": K8S + "v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {
            "podGroups": [
                {"name": "workers", "policy": {"gang": {"minCount": 2}}},
                {"name": "extra", "policy": {"basic": {}}},
            ]
        },
    }
    (one,) = read(raw).of(SchedulingWorkload)
    assert dict(one.pod_groups) == {"workers": 2, "extra": None}


def test_kinds_of_one_word_and_of_one_version_are_told_apart() -> None:
    """PriorityClass was served in v1beta1 long ago; the PodGroup of the sigs is another."""
    old = {"apiVersion": K8S + "v1beta1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 5}
    sigs = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "a", "namespace": "ml"},
        "spec": {"minMember": 2},
    }
    snapshot = read(old, sigs, group())
    assert [one.value for one in snapshot.of(PriorityClass)] == [5]
    assert [one.min_member for one in snapshot.of(PodGroup)] == [2]
    assert [one.min_count for one in snapshot.of(SchedulingPodGroup)] == [3]


def composite(**spec: Any) -> Raw:
    return {
        "apiVersion": K8S + "v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "root"},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": 2}},
            "workloadRef": {"workloadName": "w", "templateName": "t"},
            **spec,
        },
    }


def test_a_composite_group_counts_groups() -> None:
    (one,) = read(composite(schedulingConstraints={"topology": [{"key": "zone"}]})).of(CompositePodGroup)
    assert (one.min_groups, one.topology_keys) == (2, ("zone",))


def template(name: str, **more: Any) -> Raw:
    return {"name": name, "schedulingPolicy": {"basic": {}}, **more}


def workload(**spec: Any) -> Raw:
    return {"apiVersion": K8S + "v1beta1", "kind": "Workload", "metadata": {"name": "w"}, "spec": spec}


def nested(levels: int) -> Raw:
    inner: Raw = {"podGroupTemplates": [template("leaf")]}
    for level in range(levels):
        inner = {"compositePodGroupTemplates": [template(f"c{level}", **inner)]}
    return workload(**inner)


@pytest.mark.parametrize(
    ("raw", "path", "text"),
    [
        (
            group(schedulingPolicy={"gang": {"minCount": 0}}),
            "spec.schedulingPolicy.gang.minCount",
            "Invalid value: 0: must be greater than or equal to 1",
        ),
        (
            composite(schedulingPolicy={"gang": {"minGroupCount": -1}}),
            "spec.schedulingPolicy.gang.minGroupCount",
            "must be greater than or equal to 1",
        ),
        (group(priority=1_000_000_001), "spec.priority", "must be less than or equal to 1000000000"),
        (group(schedulingPolicy={}), "spec.schedulingPolicy", "must specify one of: `basic`, `gang`"),
        (
            group(schedulingPolicy={"basic": {}, "gang": {"minCount": 1}}),
            "spec.schedulingPolicy",
            "must specify exactly one of: `basic`, `gang`",
        ),
        (
            group(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
            "spec.schedulingConstraints.topology",
            "must have at most 1 item",
        ),
        (
            group(resourceClaims=[{"name": f"c{n}", "resourceClaimName": "x"} for n in range(5)]),
            "spec.resourceClaims",
            "must have at most 4 items",
        ),
        (
            {**group(), "status": {"resourceClaimStatuses": [{"name": "x"}]}},
            "status.resourceClaimStatuses",
            "must match the name of an entry in `spec.resourceClaims`",
        ),
        (
            workload(podGroupTemplates=[template("a"), template("a")]),
            "spec.podGroupTemplates[1].name",
            "Duplicate value",
        ),
        (
            workload(podGroupTemplates=[template(f"t{n}") for n in range(9)]),
            "spec.podGroupTemplates",
            "must have at most 8 items",
        ),
        (
            workload(podGroupTemplates=[template("a"), template("b", priority=5)]),
            "spec",
            "detected multiple priority configurations",
        ),
        (
            workload(
                compositePodGroupTemplates=[
                    template("a", podGroupTemplates=[template("b", priorityClassName="x")])
                ]
            ),
            "spec",
            "all priority and priorityClassName values must be identical, detected multiple values",
        ),
        (
            workload(compositePodGroupTemplates=[template("a")]),
            "spec.compositePodGroupTemplates[0]",
            "must have at least one child PodGroupTemplate or CompositePodGroupTemplate",
        ),
        (nested(4), "spec", "maximum template hierarchy depth is 4"),
        (
            {
                "apiVersion": K8S + "v1alpha1",
                "kind": "Workload",
                "metadata": {"name": "w"},
                "spec": {"podGroups": [{"name": "g", "policy": {}}]},
            },
            "spec.podGroups[0].policy",
            "exactly one of `basic`, `gang` is required",
        ),
        (
            {
                "apiVersion": K8S + "v1alpha1",
                "kind": "Workload",
                "metadata": {"name": "w"},
                "spec": {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 0}}}]},
            },
            "spec.podGroups[0].policy.gang.minCount",
            "must be greater than zero",
        ),
    ],
)
def test_what_the_api_server_refuses_is_refused_in_its_words(raw: Raw, path: str, text: str) -> None:
    before = copy.deepcopy(raw)
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([raw], strict=True)
    assert raw == before
    assert any(one.path.startswith(path) and text in one.message for one in caught.value.problems), (
        caught.value.problems
    )


def test_three_levels_below_a_root_are_allowed() -> None:
    assert len(read(nested(3)).of(SchedulingWorkload)[0].templates) == 4


def test_a_child_without_its_template_is_read_and_told() -> None:
    """The scheduler never looks the template up."""
    loaded = snapshot_from_objects([group(parentCompositePodGroupName="root")])
    (warning,) = loaded.warnings
    assert warning.path == "spec.workloadRef"
    assert "must be set when parentCompositePodGroupName is set" in warning.message


def told(*objects: Raw) -> list[str]:
    """What is said of objects, refusals first."""
    loaded = snapshot_from_objects(objects)
    return [f"{one.path}: {one.message}" for one in (*loaded.problems, *loaded.warnings)]


def test_a_priority_that_is_not_that_of_its_class_is_named() -> None:
    high = {
        "apiVersion": K8S + "v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
        "preemptionPolicy": "Never",
    }
    wrong = group(priority=5, priorityClassName="high", preemptionPolicy="PreemptLowerPriority")
    priority, policy = told(high, wrong)
    assert priority.endswith(
        "(5) must match the priority computed (100) based on the priority class set in the spec"
    )
    assert policy.startswith(
        "spec.preemptionPolicy: the string value of PreemptionPolicy (PreemptLowerPriority)"
    )
    assert "priority admission controller computed Never from the given PriorityClass name" in policy
    assert told(high, group(priority=100, priorityClassName="high", preemptionPolicy="Never")) == []
    assert told(group(priorityClassName="none")) == [
        "spec.priorityClassName: no PriorityClass with name none was found: it counts as priority 0"
    ]


def test_each_version_has_its_own_words() -> None:
    assert told(group("v1alpha2", disruptionMode={"all": {}}))[0].startswith("spec.disruptionMode: expected")
    assert told(group("v1beta1", disruptionMode="PodGroup"))[0].startswith("spec.disruptionMode: expected")
    (text,) = told(group("v1beta1", disruptionMode={"all": "yes"}))
    assert text.startswith("spec.disruptionMode.all: expected")
    later = group("v1alpha2", preemptionPolicy="Never")
    assert told(later) == ["spec.preemptionPolicy: v1alpha2 has no such field: it is not looked at"]
    (one,) = read(later).of(SchedulingPodGroup)
    assert one.preemption_policy is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"schedulingGroup": {}}, "spec.schedulingGroup: Invalid value: must specify one of: `podGroupName`"),
        (
            {"schedulingGroup": {"podGroupName": "a"}, "evictionResponders": [{"name": "x"}]},
            "spec.schedulingGroup: Forbidden: may not be set when evictionResponders is set",
        ),
    ],
)
def test_a_pod_names_its_group_in_one_way(spec: Raw, message: str) -> None:
    raw = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [], **spec}}
    assert message in told(raw)
