"""Objects that want pods of which a dump has none are named, whatever their kind."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.manifests import snapshot_from_objects

Object = dict[str, Any]
TEMPLATE: Object = {"spec": {"containers": [{"name": "main"}]}}


def thing(api: str, kind: str, spec: Object, status: Object | None = None, **meta: Any) -> Object:
    made = {"apiVersion": api, "kind": kind, "metadata": {"name": "train", "namespace": "ml", **meta}}
    return {**made, "spec": spec, "status": status or {}}


def podless(*objects: Object) -> dict[str, int]:
    return dict(snapshot_from_objects(objects).podless)


JOB = thing("batch/v1", "Job", {"parallelism": 2, "template": TEMPLATE})


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (JOB, "Job"),
        (thing("apps/v1", "StatefulSet", {"replicas": 2, "template": TEMPLATE}), "StatefulSet"),
        (thing("apps/v1", "Deployment", {"template": TEMPLATE}), "Deployment"),
        (
            thing("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"replicas": 2, "template": TEMPLATE}]}),
            "Job.batch.volcano.sh",
        ),
        (
            thing("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": {"Worker": {"template": TEMPLATE}}}),
            "TFJob.kubeflow.org",
        ),
        (thing("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "t"}}), None),
        (
            thing("apps/v1", "Deployment", JOB["spec"], {"conditions": [{"type": ["x"], "status": "True"}]}),
            "Deployment",
        ),
    ],
)
def test_whoever_holds_a_template_and_has_made_nothing_is_named(one: Object, kind: str | None) -> None:
    assert podless(one) == {kind or "TrainJob.trainer.kubeflow.org": 1}


@pytest.mark.parametrize(
    "one",
    [
        thing("batch/v1", "Job", JOB["spec"], {"conditions": [{"type": "Complete", "status": "True"}]}),
        thing("batch/v1", "Job", JOB["spec"], {"completionTime": "2026-11-01T10:00:00Z"}),
        thing("batch/v1", "Job", JOB["spec"], deletionTimestamp="2026-11-01T10:00:00Z"),
        thing("apps/v1", "ReplicaSet", {"replicas": 0, "template": TEMPLATE}),
        thing("apps/v1", "DaemonSet", {"template": TEMPLATE}, {"desiredNumberScheduled": 0}),
        thing("batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": TEMPLATE}}}),
        thing("trainer.kubeflow.org/v1alpha1", "TrainingRuntime", {"template": TEMPLATE}),
        thing("example.org/v1", "Bucket", {"size": 4}),
    ],
)
def test_what_has_ended_or_wants_no_pods_now_is_not_named(one: Object) -> None:
    assert podless(one) == {}


def pod(name: str, **meta: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", **meta},
        "spec": TEMPLATE["spec"],
    }


def owner(kind: str, name: str) -> list[Object]:
    return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u"}]


def test_pods_are_found_by_their_owner_by_the_owner_in_between_and_by_their_name() -> None:
    deployment = thing("apps/v1", "Deployment", {"template": TEMPLATE})
    assert podless(deployment, pod("x", ownerReferences=owner("Deployment", "train"))) == {}
    assert podless(deployment, pod("x", ownerReferences=owner("ReplicaSet", "train-5d4"))) == {}
    assert podless(deployment, pod("train-0")) == {}
    assert podless(deployment, pod("trainer-0")) == {"Deployment": 1}
    elsewhere = pod("train-0")
    elsewhere["metadata"]["namespace"] = "web"
    assert podless(deployment, elsewhere) == {"Deployment": 1}
