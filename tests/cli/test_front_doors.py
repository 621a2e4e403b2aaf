"""Jobs of known kinds as gangs before their groups or pods exist."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main

Object = dict[str, Any]
RACK = "topology.kubernetes.io/rack"


def nodes(*racks: int) -> list[Object]:
    """Racks of so many nodes with eight cards each."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"r{rack}-{one}", "labels": {RACK: f"r{rack}"}},
            "status": {"allocatable": amounts},
        }
        for rack, size in enumerate(racks)
        for one in range(size)
    ]


def template(cards: int = 8, **meta: Any) -> Object:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": cards} if cards else {}}}
    return {**({"metadata": meta} if meta else {}), "spec": {"containers": [container]}}


def made(api: str, kind: str, spec: Object, **annotations: str) -> Object:
    notes = {key.replace("__", "/").replace("_", "-"): text for key, text in annotations.items()}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "ml", "annotations": notes},
        "spec": spec,
    }


JOB = made("batch/v1", "Job", {"parallelism": 3, "completions": 3, "template": template()})
JOB_SET = made(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": template(0)}}},
            {
                "name": "w",
                "replicas": 2,
                "template": {"spec": {"parallelism": 2, "completions": 2, "template": template()}},
            },
        ]
    },
)
LWS = made(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 3, "leaderTemplate": template(0), "workerTemplate": template()},
    },
    **{"leaderworkerset.sigs.k8s.io/exclusive-topology": RACK},
)
RAY = made(
    "ray.io/v1",
    "RayCluster",
    {
        "headGroupSpec": {"template": template(0)},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": 3, "minReplicas": 1, "template": template()}],
    },
)
RAY_JOB = made("ray.io/v1", "RayJob", {"entrypoint": "x", "rayClusterSpec": RAY["spec"]})
MPI = made(
    "kubeflow.org/v2beta1",
    "MPIJob",
    {
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": template(0)},
            "Worker": {"replicas": 3, "template": template()},
        }
    },
)
TORCH = made(
    "kubeflow.org/v1",
    "PyTorchJob",
    {
        "pytorchReplicaSpecs": {
            "Master": {"template": template()},
            "Worker": {"replicas": 2, "template": template()},
        }
    },
)
RUNTIME: Object = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template(0)}}}]}
        },
    },
}
TRAIN = made(
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 3}},
)


def planned(
    capsys: pytest.CaptureFixture[str], path: Path, objects: Sequence[Object], *words: str
) -> tuple[Object, str]:
    """The plan as JSON, and warnings."""
    dump = path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    assert main(["schedule", str(dump), "-o", "json", *words]) in (0, 1)
    told = capsys.readouterr()
    plan: Object = json.loads(told.out)
    return plan, told.err


def placed(plan: Object) -> dict[str, str]:
    return {one["pod"].partition("/")[2]: one["node"] for one in plan["decisions"] if "node" in one}


@pytest.mark.parametrize(
    ("job", "pods", "gangs"),
    [
        ([JOB], 3, 1),
        ([JOB_SET], 5, 1),
        ([LWS], 6, 2),
        ([RAY], 4, 1),
        ([RAY_JOB], 4, 1),
        ([MPI], 4, 1),
        ([TORCH], 3, 1),
        ([TRAIN, RUNTIME], 3, 1),
    ],
    ids=lambda value: value[0]["kind"] if isinstance(value, list) else None,
)
def test_each_kind_starts_whole_or_not_at_all(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: list[Object], pods: int, gangs: int
) -> None:
    """Without the wish nothing waits; with it all pods are placed, or none where some do not fit."""
    plan, _ = planned(capsys, tmp_path, [*nodes(3, 3), *job])
    assert plan["decisions"] == []
    plan, told = planned(capsys, tmp_path, [*nodes(3, 3), *job], "--as-gangs")
    assert len(placed(plan)) == pods
    assert len(plan["jobs"]) == gangs
    assert told.count("shown as gang ml/train") == gangs
    plan, _ = planned(capsys, tmp_path, [*nodes(1), *job], "--as-gangs")
    cards = '"nvidia.com/gpu": 8' in json.dumps(job)
    assert len(placed(plan)) == (0 if cards else pods)


def test_replicas_of_a_leader_worker_set_each_lie_in_a_rack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan, told = planned(capsys, tmp_path, [*nodes(1, 2, 2), LWS], "--as-gangs")
    found = placed(plan)
    for group in (0, 1):
        assert len({found[f"train-{group}{part}"][:2] for part in ("", "-1", "-2")}) == 1
    assert found["train-0-1"][:2] != found["train-1-1"][:2]
    assert f"not said by a gang: that no other group comes into its domain of {RACK}" in told
    assert "is read as" not in told


def test_sub_groups_of_a_leader_worker_set_leave_the_leader_free(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A leader with eight cards and two slices of two: racks of one, two and two nodes hold them."""
    body = {
        "size": 5,
        "workerTemplate": template(),
        "subGroupPolicy": {"subGroupSize": 2, "type": "LeaderExcluded"},
    }
    spec = {"replicas": 1, "leaderWorkerTemplate": body}
    sliced = made(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        spec,
        **{"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": RACK},
    )
    plan, _ = planned(capsys, tmp_path, [*nodes(1, 2, 2), sliced], "--as-gangs")
    found = placed(plan)
    assert found["train-0"] == "r0-0"
    assert {found["train-0-1"][:2], found["train-0-3"][:2]} == {"r1", "r2"}
    assert found["train-0-1"][:2] == found["train-0-2"][:2]


def test_pods_that_are_there_are_members(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One worker runs, one waits, and only the third is still to be made."""
    label = {"batch.kubernetes.io/job-name": "train"}
    spec = template()["spec"]
    there: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train-x1", "namespace": "ml", "labels": label},
            "spec": {**spec, "nodeName": "r0-0"},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train-x2", "namespace": "ml", "labels": label},
            "spec": spec,
        },
    ]
    plan, told = planned(capsys, tmp_path, [*nodes(3), *there, JOB], "--as-gangs")
    assert sorted(placed(plan)) == ["train-2", "train-x2"]
    assert "shown as gang ml/train of 3, of which 2 are there" in told


def test_children_are_told_by_their_parent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A Job of the JobSet makes no second gang, and one that is over none at all."""
    child = {
        **JOB,
        "metadata": {
            "name": "train-w-0",
            "namespace": "ml",
            "ownerReferences": [{"kind": "JobSet", "name": "train", "uid": "u", "apiVersion": "x"}],
        },
    }
    over = {
        **JOB,
        "metadata": {"name": "old", "namespace": "ml"},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    plan, _ = planned(capsys, tmp_path, [*nodes(3, 3), JOB_SET, child, over], "--as-gangs")
    assert len(placed(plan)) == 5


def test_what_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    bad = {**JOB, "spec": {"parallelism": -1, "template": template()}}
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(1), bad]}))
    assert main(["schedule", str(dump), "--as-gangs"]) == 1
    told = capsys.readouterr().err
    assert "Job ml/train: spec.parallelism: expected 0 to 100000, got -1" in told
    assert "not looked at: 1 Job without pods (see above)" in told
    _, told = planned(capsys, tmp_path, [*nodes(1), TRAIN], "--as-gangs")
    assert "not said by a gang: its pods: ClusterTrainingRuntime torch is not in the dump" in told


@pytest.mark.parametrize(("racks", "code"), [((3,), 0), ((2,), 1)])
def test_what_would_become_of_a_job(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, racks: tuple[int, ...], code: int
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(*racks), JOB]}))
    assert main(["explain", "job/train", str(dump)]) == code
    assert "train-0" in capsys.readouterr().out
    assert main(["explain", "jobset/train", str(dump)]) == 2
    assert "no pod of JobSet train in the dump; did you mean job/train?" in capsys.readouterr().err


def test_every_replica_of_a_job_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The first replica fits and the second does not: one of them alone would be half the answer."""
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(2), LWS]}))
    assert main(["explain", "lws/train", str(dump), "-q"]) == 1
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in rows if row and row[0] in ("ml/train-0", "ml/train-1") and len(row) > 3] == [
        ["ml/train-0", "3/3", "3"],
        ["ml/train-1", "0/3", "3"],
    ]
    assert main(["when", "lws/train", str(dump), "--now", "2026-01-01T00:00:00Z"]) == 0
    assert "lws/train: this is about gang ml/train-0; ask for ml/train-1 likewise" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("explain",), ("when", "--now", "2026-01-01T00:00:00Z")])
def test_a_job_without_pods_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: Sequence[str]
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(1), TRAIN]}))
    assert main([*verb, "trainjob/train", "-q", str(dump)]) == 2
    told = capsys.readouterr().err
    assert "no pod of TrainJob train in the dump" in told
    assert "ClusterTrainingRuntime torch is not in the dump" in told


def test_jobs_without_pods_are_named_where_nobody_takes_them_for_gangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "d.json"
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {},
    }
    told = "not looked at: 1 JobSet without pods (--as-gangs takes them for gangs)\n"
    owner = {"apiVersion": JOB_SET["apiVersion"], "kind": "JobSet", "name": "train", "uid": "u"}
    owned = {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}
    for more, flags, said in ((pod, (), told), (pod, ("-q",), ""), (owned, (), "")):
        dump.write_text(json.dumps([*nodes(8), JOB_SET, more]), encoding="utf-8")
        assert main(["schedule", str(dump), *flags]) == 0
        assert capsys.readouterr().err == said
    main(["schedule", str(dump), "--as-gangs"])
    assert "not looked at" not in capsys.readouterr().err


def test_kinds_that_are_no_gangs_are_named_without_the_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Job of another group is none that ``--as-gangs`` takes."""
    dump = tmp_path / "d.json"
    spec: Object = {"template": {"spec": {"containers": []}}}
    made = [
        {"apiVersion": api, "kind": kind, "metadata": {"name": kind.lower()}, "spec": spec}
        for api, kind in (
            ("batch/v1", "Job"),
            ("batch.volcano.sh/v1alpha1", "Job"),
            ("apps/v1", "Deployment"),
        )
    ]
    made[1]["metadata"] = {"name": "volcano"}
    dump.write_text(json.dumps([*nodes(8), *made]), encoding="utf-8")
    assert main(["schedule", str(dump)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "not looked at: 1 Job without pods (--as-gangs takes them for gangs)",
        "not looked at: 1 Deployment, 1 Job.batch.volcano.sh without pods (only pods are placed)",
    ]


def test_a_pod_with_the_name_of_a_member_hurts_nobody(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two jobs of one name and a pod that is called like a member: all are decided, the names are told."""
    torch = made(
        "kubeflow.org/v1",
        "PyTorchJob",
        {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template()}}},
    )
    stranger = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train-0", "namespace": "ml"},
        "spec": template()["spec"],
    }
    dump = tmp_path / "dump.json"
    dump.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(5), JOB, torch, stranger]})
    )
    assert main(["schedule", str(dump), "--as-gangs", "-o", "json"]) == 0
    told = capsys.readouterr()
    placed = {one["pod"]: one["node"] for one in json.loads(told.out)["decisions"]}
    names = ["train-0", "train-0-2", "train-1", "train-2", "train-worker-0"]
    assert sorted(placed) == [f"ml/{name}" for name in names]
    assert "another pod has this name; the member that is still to be made is shown as train-0-2" in told.err
    assert "PyTorchJob ml/train: shown as gang ml/train-pytorchjob of 1" in told.err


@pytest.mark.parametrize(
    ("status", "members"),
    [({}, 4), ({"succeeded": 3}, 2), ({"succeeded": 2, "failedIndexes": "0,3-4"}, 0), ({"succeeded": 1}, 4)],
)
def test_a_job_runs_no_more_pods_than_it_has_completions_left(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, status: Object, members: int
) -> None:
    spec = {"parallelism": 4, "completions": 5, "template": template()}
    job = {**made("batch/v1", "Job", spec), "status": status}
    plan, _ = planned(capsys, tmp_path, [*nodes(4), job], "--as-gangs")
    assert len(plan["decisions"]) == members


WAITING: Object = {
    **RUNTIME,
    "spec": {
        "mlPolicy": {"numNodes": 3, "mpi": {"runLauncherAsNode": True}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "data", "template": {"spec": {"template": template(0)}}},
                    {"name": "launcher", "template": {"spec": {"template": template()}}},
                    {
                        "name": "node",
                        "dependsOn": [{"name": "data", "status": "Complete"}],
                        "template": {"spec": {"template": template()}},
                    },
                ]
            }
        },
    },
}


@pytest.mark.parametrize(
    ("job", "pods", "told"),
    [
        (
            [{**MPI, "spec": {**MPI["spec"], "launcherCreationPolicy": "WaitForWorkersReady"}}],
            4,
            ["that its launcher waits for its workers (launcherCreationPolicy)"],
        ),
        (
            [
                {**TRAIN, "spec": {"runtimeRef": {"name": "torch"}, "podTemplateOverrides": [{}]}},
                WAITING,
            ],
            4,
            ["node waits until data is Complete, and so need not run beside it", "podTemplateOverrides"],
        ),
        (
            [
                made(
                    "kubeflow.org/v2beta1",
                    "MPIJob",
                    {
                        "runPolicy": {"schedulingPolicy": {"queue": "a", "priorityClass": "high"}},
                        **MPI["spec"],
                    },
                )
            ],
            4,
            ["its queue (schedulingPolicy)", "its priorityClass (schedulingPolicy)"],
        ),
    ],
)
def test_what_a_gang_cannot_say_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: list[Object], pods: int, told: list[str]
) -> None:
    plan, err = planned(capsys, tmp_path, [*nodes(4), *job], "--as-gangs")
    assert len(plan["decisions"]) == pods
    for text in told:
        assert text in err


def test_explain_counts_what_members_of_each_kind_ask_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(4), MPI]}))
    main(["explain", "mpijob/train", str(dump), "-q"])
    told = capsys.readouterr().out
    assert "3 of them ask for 8 gpu" in told
    assert "1 of them asks for nothing" in told
