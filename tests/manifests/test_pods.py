"""Pods: what they take, what they want, where they stand in life."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import pod_from_manifest, pod_manifest, snapshot_from_objects
from koordcore.model.affinity import TaintEffect, Toleration, TolerationOperator, UnsatisfiableAction
from koordcore.model.cluster import PriorityClass
from koordcore.model.pods import HostPort, PodPhase, PreemptionPolicy
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator
from koordcore.model.volumes import EphemeralClaim
from tests.manifests.builders import container, obj, pod

GI = 2**30
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def problems(raw: Any) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        pod_from_manifest(raw)
    return [str(problem) for problem in caught.value.problems]


def test_requests_add_up_and_fall_back_to_limits() -> None:
    read = pod_from_manifest(
        pod(
            containers=[
                container("a", requests={"cpu": "500m"}, limits={"cpu": 1, "memory": "1Gi"}),
                container("b", limits={"cpu": "250m", "nvidia.com/gpu": 1}),
            ]
        )
    )
    assert dict(read.requests) == {"cpu": 750, "memory": GI, "nvidia.com/gpu": 1}
    assert dict(read.limits) == {"cpu": 1250, "memory": GI, "nvidia.com/gpu": 1}
    assert read.containers[0].requests == {"cpu": 500, "memory": GI}


def test_sidecars_stay_and_init_containers_peak() -> None:
    read = pod_from_manifest(
        pod(
            containers=[container(requests={"cpu": "1"})],
            initContainers=[
                container("early", requests={"cpu": "2"}),
                container("mesh", requests={"cpu": "500m"}, restartPolicy="Always"),
                container("late", requests={"cpu": "1200m"}),
            ],
            overhead={"cpu": "100m"},
        )
    )
    assert read.requests["cpu"] == 2000 + 100
    assert [one.restarts_always for one in read.init_containers] == [False, True, False]


def test_pod_level_resources_replace_the_sum_and_are_completed() -> None:
    read = pod_from_manifest(
        pod(
            containers=[container(requests={"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1})],
            resources={
                "requests": {"memory": "4Gi"},
                "limits": {"cpu": "3", "memory": "8Gi", "hugepages-2Mi": "4Mi"},
            },
        )
    )
    # cpu: what the containers ask for; hugepages: nobody asks, so the limit counts.
    assert dict(read.requests) == {
        "cpu": 1000,
        "memory": 4 * GI,
        "hugepages-2Mi": 4 << 20,
        "nvidia.com/gpu": 1,
    }


def test_a_resize_under_way_holds_the_larger_amount() -> None:
    status = {
        "containerStatuses": [
            {
                "name": "main",
                "resources": {"requests": {"cpu": "3"}},
                "allocatedResources": {"cpu": "2", "memory": "2Gi"},
            }
        ]
    }
    spec: dict[str, Any] = {"containers": [container(requests={"cpu": "1", "memory": "1Gi"})]}
    assert dict(pod_from_manifest(pod(nodeName="n1", status=status, **spec)).requests) == {
        "cpu": 3000,
        "memory": 2 * GI,
    }
    assert dict(pod_from_manifest(pod(status=status, **spec)).requests) == {"cpu": 1000, "memory": GI}


@pytest.mark.parametrize(
    ("status", "cpu", "memory"),
    [
        ({"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "5"}}, 6000, 4 * GI),
        ({"resources": {}, "allocatedResources": {"cpu": "5", "memory": "8Gi"}}, 5000, 8 * GI),
        ({"resources": {"requests": {"cpu": "1", "example.com/x": "3"}}}, 2000, 4 * GI),
        ({"resources": {"requests": {"cpu": "1"}}, "resize": "Infeasible"}, 1000, GI),
        ({"allocatedResources": {"cpu": "5"}}, 2000, 4 * GI),  # as upstream: nothing runs by it yet
    ],
)
def test_a_resize_of_the_whole_pod_holds_the_larger_amount(
    status: dict[str, Any], cpu: int, memory: int
) -> None:
    spec: dict[str, Any] = {
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
        "containers": [container(requests={"cpu": "1", "memory": "1Gi"})],
    }
    read = pod_from_manifest(pod(nodeName="n1", status=status, **spec))
    assert dict(read.requests) == {"cpu": cpu, "memory": memory}
    assert dict(pod_from_manifest(pod(status=status, **spec)).requests) == {"cpu": 2000, "memory": 4 * GI}


@pytest.mark.parametrize("sidecar", [True, False])
def test_an_init_container_that_is_being_resized_holds_the_larger_amount(sidecar: bool) -> None:
    """What is promised counts before anything runs by it; without either the specification does."""
    first = {**container(requests={"cpu": "1"}), "name": "i", "restartPolicy": "Always" if sidecar else ""}
    spec: dict[str, Any] = {"initContainers": [first], "containers": [{"name": "main"}]}
    for said, cpu in ({"allocatedResources": {"cpu": "3"}}, 3000), ({"resources": {}}, 1000):
        status = {"initContainerStatuses": [{"name": "i", **said}]}
        assert pod_from_manifest(pod(nodeName="n1", status=status, **spec)).requests["cpu"] == cpu


def test_containers_that_grow_and_shrink_at_once_hold_both() -> None:
    asked, had = ("1", "3"), ("3", "1")
    containers = [{**container(requests={"cpu": cpu}), "name": cpu} for cpu in asked]
    statuses = [
        {"name": one["name"], "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}
        for one, cpu in zip(containers, had, strict=True)
    ]
    status = {"containerStatuses": statuses}
    assert pod_from_manifest(pod(nodeName="n1", status=status, containers=containers)).requests["cpu"] == 6000


def test_a_running_pod_holds_what_its_devices_take_of_the_node() -> None:
    claims = [
        {
            "resourceClaimName": "c",
            "containers": ["main", "other"],
            "mapping": [{"name": "cpu", "quantity": "2"}, {"name": "memory"}],
            "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "2Gi"}],
        },
        {"resourceClaimName": "d", "overhead": [{"name": "cpu", "perPod": "500m", "perContainer": "1"}]},
    ]
    status = {"nodeAllocatableResourceClaimStatuses": claims}
    spec: dict[str, Any] = {"containers": [container(requests={"cpu": "1", "memory": "1Gi"})]}
    held = pod_from_manifest(pod(nodeName="n1", status=status, **spec))
    assert dict(held.requests) == {"cpu": 3500, "memory": 6 * GI}
    assert dict(pod_from_manifest(pod(status=status, **spec)).requests) == {"cpu": 1000, "memory": GI}


@pytest.mark.parametrize(
    "status",
    [
        {"resize": "Infeasible"},
        {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]},
    ],
)
def test_an_infeasible_resize_holds_what_it_has(status: dict[str, Any]) -> None:
    statuses = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    read = pod_from_manifest(
        pod(
            nodeName="n1",
            containers=[container(requests={"cpu": "9"})],
            status={**status, "containerStatuses": statuses},
        )
    )
    assert read.requests["cpu"] == 2000


def test_host_ports_of_containers_and_sidecars() -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 90}]
    read = pod_from_manifest(
        pod(
            containers=[container(ports=ports)],
            initContainers=[
                container("init", ports=[{"containerPort": 1, "hostPort": 1}]),
                container(
                    "mesh",
                    restartPolicy="Always",
                    ports=[{"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}],
                ),
            ],
        )
    )
    assert read.host_ports == (HostPort(8080), HostPort(53, "UDP", "10.0.0.1"))


def test_every_port_is_the_hosts_on_its_network() -> None:
    read = pod_from_manifest(pod(hostNetwork=True, containers=[container(ports=[{"containerPort": 80}])]))
    assert read.host_ports == (HostPort(80),)


def test_what_a_pod_wants_of_its_place() -> None:
    read = pod_from_manifest(
        pod(
            nodeSelector={"disk": "ssd"},
            tolerations=[{"operator": "Exists"}, {"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                        ]
                    }
                },
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 5, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                    ]
                },
            },
            topologySpreadConstraints=[
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "disk-1"}},
                {"name": "scratch", "ephemeral": {}},
                {"name": "tmp", "emptyDir": {}},
            ],
            schedulingGates=[{"name": "wait"}],
        )
    )
    assert read.node_selector == {"disk": "ssd"}
    assert read.tolerations == (
        Toleration("", TolerationOperator.EXISTS),
        Toleration("gpu", value="yes", effect=TaintEffect.NO_SCHEDULE),
    )
    assert read.affinity is not None
    assert read.affinity.node is not None
    assert read.affinity.node.required is not None
    assert read.affinity.node.required.terms[0].expressions[0].operator is SelectorOperator.IN
    assert read.affinity.anti is not None
    assert read.affinity.anti.preferred[0].weight == 5
    assert read.spread_constraints[0].when_unsatisfiable is UnsatisfiableAction.SCHEDULE_ANYWAY
    assert read.claims == ("disk-1", "web-scratch")
    assert read.ephemeral_claims == (EphemeralClaim("web-scratch", "web"),)
    assert pod_from_manifest(pod_manifest(read)).ephemeral_claims == read.ephemeral_claims
    assert read.gated


def test_labels_that_affinity_names_by_key_are_written_into_its_selectors() -> None:
    """As the API server does when it makes a pod; what has a uid has them, and keys it lacks do nothing."""

    def term(**selector: Any) -> dict[str, Any]:
        keys = {"matchLabelKeys": ["rev", "absent"], "mismatchLabelKeys": ["team"]}
        return {"topologyKey": "zone", **keys, **selector}

    wish = {
        REQUIRED: [term(labelSelector={"matchLabels": {"app": "a"}}), term()],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": term(labelSelector={})}
        ],
    }
    raw = pod(affinity={"podAffinity": wish, "podAntiAffinity": wish})
    raw["metadata"]["labels"] = {"app": "a", "rev": "v2", "team": "x"}
    raw["metadata"]["uid"] = "u"
    stored = pod_from_manifest(raw).affinity
    assert stored is not None
    assert stored.pod is not None
    assert [one.selector for one in stored.pod.required] == [LabelSelector({"app": "a"}), None]
    del raw["metadata"]["uid"]
    read = pod_from_manifest(raw)
    assert read.affinity is not None
    written = (
        Requirement("rev", SelectorOperator.IN, ("v2",)),
        Requirement("team", SelectorOperator.NOT_IN, ("x",)),
    )
    for side in (read.affinity.pod, read.affinity.anti):
        assert side is not None
        assert [one.selector for one in side.required] == [LabelSelector({"app": "a"}, written), None]
        assert [one.term.selector for one in side.preferred] == [LabelSelector(requirements=written)]
    assert pod_from_manifest(pod_manifest(read)) == read  # once


def test_pods_that_are_still_to_be_made_of_a_job_have_their_own_labels_in_selectors() -> None:
    far = {"topologyKey": "host", "labelSelector": {}, "mismatchLabelKeys": ["job"]}
    spec = {"containers": [container()], "affinity": {"podAntiAffinity": {REQUIRED: [far]}}}
    template = {"metadata": {"labels": {"job": "train"}}, "spec": spec}
    job = obj(
        "Job", "train", "batch/v1", metadata={"uid": "u"}, spec={"parallelism": 2, "template": template}
    )
    made = snapshot_from_objects([job], as_gangs=True).snapshot.pending
    assert len(made) == 2
    for one in made:
        assert one.affinity is not None
        assert one.affinity.anti is not None
        (term,) = one.affinity.anti.required
        others = Requirement("job", SelectorOperator.NOT_IN, ("train",))
        assert term.selector == LabelSelector(requirements=(others,))


def test_life_of_a_pod() -> None:
    read = pod_from_manifest(
        pod(
            nodeName="n1",
            metadata={
                "namespace": "prod",
                "uid": "u1",
                "creationTimestamp": "2024-05-01T10:00:00Z",
                "deletionTimestamp": "2024-05-01T12:00:00+02:00",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "DaemonSet",
                        "name": "d",
                        "uid": "u0",
                        "controller": True,
                    }
                ],
            },
            status={
                "phase": "Running",
                "startTime": "2024-05-01T10:00:02Z",
                "nominatedNodeName": "",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "True",
                        "lastTransitionTime": "2024-05-01T10:00:01.5Z",
                    },
                    {"type": "Ready", "status": "True"},
                ],
            },
        )
    )
    assert (read.namespace, read.uid, read.phase) == ("prod", "u1", PodPhase.RUNNING)
    assert read.created == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert read.started == datetime(2024, 5, 1, 10, 0, 2, tzinfo=UTC)
    assert read.scheduled == datetime(2024, 5, 1, 10, 0, 1, 500_000, tzinfo=UTC)
    assert read.deleted == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert read.terminating
    assert read.ready
    assert read.daemon
    assert read.nominated_node is None


def test_priority_comes_from_the_class_unless_given() -> None:
    high = PriorityClass(name="high", value=1000, preemption_policy=PreemptionPolicy.NEVER)
    usual = PriorityClass(name="usual", value=5, global_default=True)
    named = pod_from_manifest(pod(priorityClassName="high"), priority_classes=[high, usual])
    assert (named.priority, named.preemption_policy) == (1000, PreemptionPolicy.NEVER)
    assert pod_from_manifest(pod(), priority_classes=[high, usual]).priority == 5
    given = pod_from_manifest(pod(priority=7, priorityClassName="high"), priority_classes=[high])
    assert (given.priority, given.preemption_policy) == (7, PreemptionPolicy.NEVER)
    stated = pod_from_manifest(
        pod(priorityClassName="high", preemptionPolicy="PreemptLowerPriority"), priority_classes=[high]
    )
    assert stated.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    assert pod_from_manifest(pod(priorityClassName="system-node-critical")).priority == 2_000_001_000
    assert pod_from_manifest(pod(priorityClassName="unknown")).priority == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kubernetes.io/gpu-core", "koordinator.sh/gpu-core"),
        ("kubernetes.io/gpu-memory-ratio", "koordinator.sh/gpu-memory-ratio"),
        ("kubernetes.io/rdma", "koordinator.sh/rdma"),
        ("koordinator.sh/gpu-shared", "koordinator.sh/gpu.shared"),
    ],
)
def test_old_resource_names_mean_the_new_ones(old: str, new: str) -> None:
    read = pod_from_manifest(
        pod(containers=[container(requests={old: 50})], overhead={old: 1}, initContainers=[])
    )
    assert dict(read.requests) == {new: 51}
    both = pod_from_manifest(pod(containers=[container(requests={old: 50, new: 20})]))
    assert dict(both.requests) == {new: 20}


def test_true_is_no_amount_even_after_the_same_spec_with_one() -> None:
    found = problems(pod(containers=[container(requests={"cpu": 1}), container("b", requests={"cpu": True})]))
    assert found == ["spec.containers[1].resources.requests[cpu]: expected a quantity, got a boolean"]


def test_every_problem_is_told_with_its_path() -> None:
    raw = pod(
        priority="high",
        nodeName=5,
        hostNetwork="yes",
        tolerations=[{"effect": "Sometimes"}, {"operator": "Like"}],
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
        containers=[
            container(requests={"cpu": "1x", "memory": "-1"}, ports=[{"hostPort": 70000}]),
            5,
            container("c", requests=[]),
        ],
        topologySpreadConstraints=[
            {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        schedulingGates=[{}],
        status={"phase": "Walking", "startTime": "yesterday"},
        metadata={"labels": {"a": 1}, "creationTimestamp": "2024-13-01T00:00:00Z"},
    )
    assert sorted(problems(raw)) == sorted(
        [
            "metadata.labels[a]: expected string, got 1",
            (
                'metadata.creationTimestamp: expected an RFC 3339 time, got "2024-13-01T00:00:00Z": '
                "no such moment"
            ),
            "spec.nodeName: expected string, got 5",
            'spec.hostNetwork: expected bool, got "yes"',
            'spec.containers[0].resources.requests[cpu]: expected a quantity, got "1x"',
            'spec.containers[0].resources.requests[memory]: must not be negative, got "-1"',
            "spec.containers[0].ports[0].hostPort: expected 1..65535, got 70000",
            "spec.containers[1]: expected object",
            "spec.containers[2].resources.requests: expected object, got []",
            'spec.priority: expected int, got "high"',
            'status.phase: expected one of Pending, Running, Succeeded, Failed, Unknown, got "Walking"',
            'status.startTime: expected an RFC 3339 time, got "yesterday"',
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms: required",
            (
                "spec.tolerations[0].effect: expected one of NoSchedule, PreferNoSchedule, NoExecute, "
                'got "Sometimes"'
            ),
            'spec.tolerations[1].operator: expected one of Equal, Exists, Lt, Gt, got "Like"',
            "spec.topologySpreadConstraints[0].maxSkew: expected at least 1, got 0",
            "spec.schedulingGates[0].name: required",
        ]
    )


def test_negative_amounts_and_wrong_ports() -> None:
    raw = pod(containers=[container(requests={"memory": "-1"}, ports=[{"hostPort": 70000}])])
    assert problems(raw) == [
        'spec.containers[0].resources.requests[memory]: must not be negative, got "-1"',
        "spec.containers[0].ports[0].hostPort: expected 1..65535, got 70000",
    ]
    assert problems(pod(containers=[container(ports=[{"hostPort": 70000}])])) == [
        "spec.containers[0].ports[0].hostPort: expected 1..65535, got 70000"
    ]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"name": None}, "metadata.name: required"),
        ({"name": ""}, "metadata.name: required"),
        ({"name": 5}, "metadata.name: expected string, got 5"),
        ({"name": "x" * 1_000_000}, "metadata.name: a name has at most 253 characters, got 1000000"),
    ],
)
def test_a_pod_needs_a_name_of_sensible_length(metadata: dict[str, Any], message: str) -> None:
    assert problems(pod(metadata=metadata)) == [message]
