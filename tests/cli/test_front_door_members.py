"""Which pods of a job are still to be made, in which groups, and what is wrong with one job alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from koordcore.cli import main
from tests.cli.test_front_doors import (
    JOB,
    JOB_SET,
    MPI,
    RAY,
    RAY_JOB,
    RUNTIME,
    TORCH,
    TRAIN,
    Object,
    made,
    nodes,
    placed,
    planned,
    template,
)


def runtime(job: Object) -> Object:
    """The runtime of TRAIN with this template of its job."""
    body = {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}}
    return {**RUNTIME, "spec": {"mlPolicy": {"numNodes": 1}, "template": body}}


WITH_RESOURCES: Object = {
    **TRAIN,
    "spec": {**TRAIN["spec"], "trainer": {"resourcesPerNode": {"requests": {"cpu": "1"}}}},
}


OF_RUNTIME = "ClusterTrainingRuntime torch.spec.template.spec.replicatedJobs[0].template"


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ([TRAIN, runtime({})], f"TrainJob ml/train: {OF_RUNTIME}.spec: required"),
        (
            [WITH_RESOURCES, runtime({"spec": {"template": {}}})],
            f"TrainJob ml/train: {OF_RUNTIME}.spec.template.spec: required",
        ),
        (
            [made("batch/v1", "Job", {"template": {"metadata": {"labels": ["a"]}, "spec": {}}})],
            'Job ml/train: spec.template.metadata.labels: expected object, got ["a"]',
        ),
        (
            [made("batch/v1", "Job", {"template": {"metadata": {"annotations": "a"}, "spec": {}}})],
            'Job ml/train: spec.template.metadata.annotations: expected object, got "a"',
        ),
        (
            [
                made(
                    "jobset.x-k8s.io/v1alpha2",
                    "JobSet",
                    {
                        "replicatedJobs": [
                            {
                                "name": "w",
                                "template": {"spec": {"template": template()}},
                                "dependsOn": [{"name": ["a"], "status": "Complete"}],
                            }
                        ]
                    },
                )
            ],
            'JobSet ml/train: spec.replicatedJobs[0].dependsOn[0].name: expected string, got ["a"]',
        ),
    ],
)
def test_a_template_that_cannot_be_read_is_a_problem_of_its_job_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: Sequence[Object], told: str
) -> None:
    dump = tmp_path / "dump.json"
    other = {**JOB, "metadata": {"name": "other", "namespace": "ml"}}
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(3), *job, other]}))
    assert main(["schedule", str(dump), "--as-gangs"]) == 1
    said = capsys.readouterr()
    assert told in said.err
    assert "3 of 3 pods placed" in said.out


@pytest.mark.parametrize("api", ["scheduling.k8s.io/v1beta1", "scheduling.volcano.sh/v1beta1"])
def test_a_group_of_another_api_is_not_that_of_the_gang(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, api: str
) -> None:
    stranger = made(api, "PodGroup", {"schedulingPolicy": {"gang": {"minCount": 3}}})
    plan, _ = planned(capsys, tmp_path, [*nodes(3), stranger, JOB], "--as-gangs")
    assert sorted(placed(plan)) == ["train-0", "train-1", "train-2"]


@pytest.mark.parametrize(
    ("status", "pods"),
    [
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, 0),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}, 0),
        ({"jobStatus": "STOPPED"}, 0),
        ({"jobDeploymentStatus": "Failed"}, 0),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying"}, 4),
        ({"jobDeploymentStatus": "Initializing"}, 4),
    ],
)
@pytest.mark.parametrize("queue", [{}, {"kueue.x-k8s.io/queue-name": "q"}])
def test_a_ray_job_that_is_over_is_in_no_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, status: Object, pods: int, queue: Object
) -> None:
    job = {**RAY_JOB, "metadata": {**RAY_JOB["metadata"], "labels": queue}, "status": status}
    plan, told = planned(capsys, tmp_path, [*nodes(4), job], "--as-gangs")
    assert len(plan["decisions"]) == pods
    assert ("shown as gang" in told) == bool(pods)
    _, told = planned(capsys, tmp_path, [*nodes(4), job])
    assert ("1 RayJob without pods" in told or "1 RayJob.ray.io without pods" in told) == bool(pods)


@pytest.mark.parametrize(
    ("limits", "workers"),
    [
        ({"replicas": 0, "minReplicas": 2, "maxReplicas": 5}, 2),
        ({"replicas": 5, "minReplicas": 0, "maxReplicas": 3}, 3),
        ({"replicas": 2, "minReplicas": 1, "maxReplicas": 2147483647}, 2),
        ({"minReplicas": 1}, 1),
    ],
)
@pytest.mark.parametrize("cluster", [RAY, RAY_JOB], ids=lambda one: one["kind"])
def test_ray_makes_no_fewer_and_no_more_workers_than_its_limits_say(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cluster: Object, limits: Object, workers: int
) -> None:
    (group,) = RAY["spec"]["workerGroupSpecs"]
    bare = {key: value for key, value in group.items() if not key.endswith("eplicas")}
    spec = {**RAY["spec"], "workerGroupSpecs": [{**bare, **limits}]}
    spec = {**cluster["spec"], "rayClusterSpec": spec} if cluster is RAY_JOB else spec
    plan, _ = planned(capsys, tmp_path, [*nodes(8), {**cluster, "spec": spec}], "--as-gangs")
    assert len(placed(plan)) == 1 + workers
    assert [one["atLeast"] for one in plan["jobs"]] == [1 + workers]


@pytest.mark.parametrize(
    ("kind", "there", "pods"),
    [
        ("TrainingRuntime", [("ml", 1), ("other", 3)], 1),
        ("TrainingRuntime", [("other", 3)], 0),
        ("ClusterTrainingRuntime", [("", 2)], 2),
    ],
)
def test_a_training_runtime_serves_its_own_namespace(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
    there: Sequence[tuple[str, int]],
    pods: int,
) -> None:
    known = [
        {
            **RUNTIME,
            "kind": kind,
            "metadata": {"name": "torch", **({"namespace": space} if space else {})},
            "spec": {**RUNTIME["spec"], "mlPolicy": {"numNodes": number}},
        }
        for space, number in there
    ]
    job = {**TRAIN, "spec": {"runtimeRef": {"name": "torch", "kind": kind}}}
    plan, told = planned(capsys, tmp_path, [*nodes(3), *known, job], "--as-gangs")
    assert len(placed(plan)) == pods
    assert (f"its pods: {kind} torch is not in the dump" in told) == (not pods)


def pod(name: str, phase: str, labels: Object, owner: tuple[str, str], **spec: object) -> Object:
    """A pod of TRAIN's namespace that its controller has made."""
    kind, parent = owner
    owners = [{"kind": kind, "name": parent, "uid": "u", "apiVersion": "a", "controller": True}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "labels": labels, "ownerReferences": owners},
        "spec": {**template(0)["spec"], "nodeName": "r0-0", **spec},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize("cluster_is_there", [False, True])
def test_pods_of_a_running_ray_job_are_those_of_its_cluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cluster_is_there: bool
) -> None:
    """The job names its cluster; the dump has its pods, and may have the cluster itself."""
    job = {**RAY_JOB, "status": {"jobDeploymentStatus": "Running", "rayClusterName": "train-x7"}}
    label, owner = {"ray.io/cluster": "train-x7"}, ("RayCluster", "train-x7")
    worker = {**label, "ray.io/node-type": "worker", "ray.io/group": "gpu"}
    there = [
        pod("head", "Running", {**label, "ray.io/node-type": "head"}, owner),
        *(pod(f"w{number}", "Running", worker, owner) for number in range(2)),
    ]
    cluster = {**RAY, "metadata": {**RAY["metadata"], "name": "train-x7"}}
    objects = [*nodes(4), *there, job, *([cluster] if cluster_is_there else [])]
    plan, told = planned(capsys, tmp_path, objects, "--as-gangs")
    assert list(placed(plan)) == ["train-x7-gpu-worker-2"]
    assert "of 4, of which 3 are there" in told


STAGES: Object = made(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {
        "replicatedJobs": [
            {"name": "init", "template": {"spec": {"template": template(0)}}},
            {
                "name": "w",
                "replicas": 2,
                "dependsOn": [{"name": "init", "status": "Complete"}],
                "template": {"spec": {"parallelism": 2, "completions": 2, "template": template()}},
            },
        ]
    },
)


def child(name: str, **status: object) -> Object:
    """A Job that the JobSet has made."""
    owner = {"kind": "JobSet", "name": "train", "uid": "u", "apiVersion": JOB_SET["apiVersion"]}
    meta = {"name": name, "namespace": "ml", "ownerReferences": [owner]}
    return {**JOB, "metadata": meta, "status": status}


OVER: Object = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}


@pytest.mark.parametrize(
    ("status", "children", "pods"),
    [
        ({}, [], 5),
        ({"replicatedJobsStatus": [{"name": "init", "succeeded": 1}]}, [], 4),
        ({}, [child("train-init-0", **OVER)], 4),
        ({"replicatedJobsStatus": [{"name": "init", "succeeded": 1}]}, [child("train-w-1", **OVER)], 2),
        ({}, [child("train-init-0", **OVER), child("train-w-0", succeeded=1, active=1)], 3),
    ],
)
def test_jobs_of_a_job_set_that_are_over_are_not_made_again(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    status: Object,
    children: Sequence[Object],
    pods: int,
) -> None:
    plan, told = planned(capsys, tmp_path, [*nodes(4), {**STAGES, "status": status}, *children], "--as-gangs")
    assert len(placed(plan)) == pods
    assert [one["atLeast"] for one in plan["jobs"]] == [pods]
    assert ("w waits until init is Complete" in told) == (pods == 5)


def test_a_worker_of_kubeflow_that_has_succeeded_is_not_made_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The third member is missing and is made; the one that is done counts for the minimum."""
    key = "training.kubeflow.org/"
    role = {name: {f"{key}job-name": "train", f"{key}replica-type": name} for name in ("master", "worker")}
    owner = ("PyTorchJob", "train")
    there = [
        pod("train-master-0", "Running", role["master"], owner),
        pod("train-worker-0", "Succeeded", role["worker"], owner),
    ]
    plan, told = planned(capsys, tmp_path, [*nodes(4), *there, TORCH], "--as-gangs")
    assert list(placed(plan)) == ["train-worker-1"]
    assert "of 3, of which 2 are there" in told


@pytest.mark.parametrize(
    ("version", "label"), [("kubeflow.org/v2beta1", "job-role"), ("kubeflow.org/v1", "replica-type")]
)
def test_pods_of_mpi_are_found_by_the_label_of_their_operator(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, version: str, label: str
) -> None:
    key = "training.kubeflow.org/"
    there = [
        pod(name, "Running", {f"{key}job-name": "train", f"{key}{label}": role}, owner)
        for name, role, owner in (
            ("train-launcher-x7f", "launcher", ("Job", "train-launcher")),
            ("train-worker-0", "worker", ("MPIJob", "train")),
        )
    ]
    plan, told = planned(capsys, tmp_path, [*nodes(4), *there, {**MPI, "apiVersion": version}], "--as-gangs")
    assert list(placed(plan)) == ["train-worker-1", "train-worker-2"]
    assert "gang ml/train of 4, of which 2 are there" in told


@pytest.mark.parametrize(
    ("replicas", "pods"),
    [
        ({"Launcher": {"template": template()}, "Worker": {"replicas": 3, "template": template()}}, 4),
        ({"Launcher": {"template": template()}}, 1),
        ({"Launcher": {"template": template()}, "Worker": {"template": template()}}, 1),
    ],
)
def test_a_launcher_that_works_is_one_of_the_minimum(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, replicas: Object, pods: int
) -> None:
    """It may be all there is: a job of MPI that does not say how many workers it has has none."""
    job = made("kubeflow.org/v2beta1", "MPIJob", {"runLauncherAsWorker": True, "mpiReplicaSpecs": replicas})
    plan, told = planned(capsys, tmp_path, [*nodes(4), job], "--as-gangs")
    assert [(one["atLeast"], one["placed"]) for one in plan["jobs"]] == [(pods, pods)]
    assert "waits for its workers" not in told


def test_a_job_without_completions_makes_no_pods_after_its_first_success(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spec = {"parallelism": 3, "template": template(0)}
    job = {**made("batch/v1", "Job", spec), "status": {"succeeded": 1, "active": 2}}
    label, owner = {"batch.kubernetes.io/job-name": "train"}, ("Job", "train")
    there = [pod("a", "Succeeded", label, owner), *(pod(one, "Running", label, owner) for one in "bc")]
    plan, _ = planned(capsys, tmp_path, [*nodes(4), *there, job], "--as-gangs")
    assert plan["decisions"] == []
    plan, _ = planned(capsys, tmp_path, [*nodes(4), {**job, "status": {"active": 2}}], "--as-gangs")
    assert len(placed(plan)) == 3


LABEL = "pod-group.scheduling.sigs.k8s.io"
GANG = "gang.scheduling.koordinator.sh/"
MINE: Object = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": {"name": "mine", "namespace": "ml"},
    "spec": {"minMember": 2},
}
KUBERNETES: Object = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "mine", "namespace": "ml"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}


def in_group() -> Object:
    """A template in a group of Kubernetes."""
    found = template()
    return {**found, "spec": {**found["spec"], "schedulingGroup": {"podGroupName": "mine"}}}


@pytest.mark.parametrize(
    ("group", "body"),
    [
        ([MINE], template(labels={LABEL: "mine"})),
        ([KUBERNETES], in_group()),
        ([], template(annotations={f"{GANG}name": "mine", f"{GANG}min-available": "2"})),
        ([], template(annotations={f"{GANG}name": "train", f"{GANG}min-available": "2"})),
    ],
    ids=["label", "schedulingGroup", "annotation", "annotation with the name of the job"],
)
def test_a_template_that_names_a_group_keeps_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, group: Sequence[Object], body: Object
) -> None:
    """Two are enough for its own group, where three of four have room; a gang of all would not start."""
    job = made("batch/v1", "Job", {"parallelism": 4, "completions": 4, "template": body})
    plan, told = planned(capsys, tmp_path, [*nodes(3), *group, job], "--as-gangs")
    assert len(placed(plan)) == 3
    assert "no PodGroup" not in told
    own = "train" in json.dumps(body)
    assert ("shown with 4 of 4 pods in groups that they name themselves, of which 0 are there" in told) != own


def test_pods_in_a_group_of_kubernetes_stay_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two are in their group, and the gang is of the one that is left."""
    spec = {**template()["spec"], "schedulingGroup": {"podGroupName": "mine"}}
    label, owner = {"batch.kubernetes.io/job-name": "train"}, ("Job", "train")
    there = [{**pod(name, "Pending", label, owner), "spec": spec} for name in "ab"]
    plan, told = planned(capsys, tmp_path, [*nodes(3), KUBERNETES, *there, JOB], "--as-gangs")
    assert sorted(placed(plan)) == ["a", "b", "train-2"]
    assert "shown as gang ml/train of 1, of which 0 are there" in told
    assert "shown with 2 of 3 pods in groups that they name themselves" in told
    two = {**JOB, "spec": {**JOB["spec"], "parallelism": 2}}
    plan, told = planned(capsys, tmp_path, [*nodes(3), KUBERNETES, *there, two], "--as-gangs")
    assert sorted(placed(plan)) == ["a", "b"]
    assert "shown with 2 of 2 pods in groups that they name themselves, of which 2 are there" in told


def trains(*jobs: tuple[str, str, Object], replicas: int = 1, **policy: object) -> Object:
    """A runtime of these jobs, each with the step that its label names and its own specification."""
    key = "trainer.kubeflow.org/trainjob-ancestor-step"
    listed = [
        {
            "name": name,
            "replicas": replicas,
            "template": {
                "metadata": {"labels": {key: step} if step else {}},
                "spec": {"template": template(0), **spec},
            },
        }
        for name, step, spec in jobs
    ]
    return {**RUNTIME, "spec": {**policy, "template": {"spec": {"replicatedJobs": listed}}}}


SIX: Object = {"parallelism": 6, "completions": 6}


@pytest.mark.parametrize(
    ("runtime", "number", "pods"),
    [
        (trains(("learn", "trainer", {}), mlPolicy={"numNodes": 1}), 4, {"learn": 4}),
        (trains(("learn", "trainer", {}), ("node", "", {}), mlPolicy={}), 3, {"learn": 3, "node": 1}),
        (trains(("node", "", SIX), mlPolicy={"numNodes": 2}), None, {"node": 2}),
        (trains(("node", "trainer", SIX)), None, {"node": 6}),
        (trains(("node", "trainer", SIX)), 2, {"node": 2}),
        (trains(("node", "trainer", {}), replicas=2, mlPolicy={"numNodes": 2}), None, {"node": 2}),
        (
            trains(
                ("launcher", "trainer", {}),
                ("node", "", {}),
                mlPolicy={"numNodes": 3, "mpi": {"runLauncherAsNode": True}},
            ),
            None,
            {"launcher": 1, "node": 2},
        ),
    ],
)
def test_the_trainer_of_a_runtime_is_the_job_that_its_label_names(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    runtime: Object,
    number: int | None,
    pods: dict[str, int],
) -> None:
    """Without a policy and a number of nodes the template's own parallelism counts."""
    trainer = {} if number is None else {"numNodes": number}
    job = {**TRAIN, "spec": {"runtimeRef": {"name": "torch"}, "trainer": trainer}}
    plan, _ = planned(capsys, tmp_path, [*nodes(3), runtime, job], "--as-gangs")
    found = [name.split("-")[1] for name in placed(plan)]
    assert {name: found.count(name) for name in sorted(set(found))} == pods


def test_pods_of_a_job_set_tell_how_far_a_job_is_that_the_dump_lacks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One of two pods of the first worker is done: nobody makes it again, nor that of the first job."""
    key = "jobset.sigs.k8s.io/"
    there = [
        pod(
            f"train-{job}-0-x",
            "Succeeded",
            {f"{key}jobset-name": "train", f"{key}replicatedjob-name": job, f"{key}job-index": "0"},
            ("Job", f"train-{job}-0"),
        )
        for job in ("init", "w")
    ]
    plan, _ = planned(capsys, tmp_path, [*nodes(4), *there, STAGES], "--as-gangs")
    assert sorted(placed(plan)) == ["train-w-0-0", "train-w-1-0", "train-w-1-1"]
