"""Jobs of which nobody here makes pods: suspended ones, ones that are over, and ones that others manage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore.errors import Problem
from koordcore.manifests._raw import Source, SourceObject
from koordcore.manifests._reading import is_object
from koordcore.model.kueue import QUEUE_LABEL
from koordcore.protocol.fields import Json

_POLICIES: Final = ("runPolicy",)
"""Where Kubeflow's older jobs say it, instead of in ``spec`` itself."""
_OWN_MANAGERS: Final = (
    "kubernetes.io/job-controller",
    "jobset.sigs.k8s.io/jobset-controller",
    "trainer.kubeflow.org/trainjob-controller",
    "kubeflow.org/training-operator",
    "kubeflow.org/mpi-operator",
    "ray.io/kuberay-operator",
)
"""What ``managedBy`` names where the usual controller makes the pods."""

_ENDED: Final = ("Complete", "Completed", "Failed", "Succeeded")
"""Conditions of jobs that are over."""
_RAY_ENDED: Final = ("Complete", "Failed")
_RAY_JOB_ENDED: Final = ("SUCCEEDED", "FAILED", "STOPPED")
_RAY_TRIES_ANEW: Final = ("Retrying", "Suspending", "Suspended")
"""What a RayJob says, which has no conditions: a try that has ended is not the last one here."""


def has_ended(raw: Mapping[str, Json]) -> bool:
    """Tell whether a job is over, whether or not it went well."""
    status, group = raw.get("status"), str(raw.get("apiVersion") or "").rpartition("/")[0]
    if not is_object(status):
        return False
    if (group, raw.get("kind")) == ("ray.io", "RayJob"):
        stage = status.get("jobDeploymentStatus")
        tried = status.get("jobStatus") in _RAY_JOB_ENDED
        return stage in _RAY_ENDED or (tried and stage not in _RAY_TRIES_ANEW)
    conditions = status.get("conditions")
    return status.get("completionTime") is not None or any(
        is_object(one) and one.get("type") in _ENDED and one.get("status") == "True"
        for one in (conditions if isinstance(conditions, list) else ())
    )


def is_suspended(raw: Mapping[str, Json]) -> bool:
    """Tell whether a job waits for somebody to resume it; one in a queue of Kueue waits for its quota."""
    meta = raw.get("metadata")
    labels = meta.get("labels") if is_object(meta) else None
    if is_object(labels) and labels.get(QUEUE_LABEL):
        return False
    return any(one.get("suspend") is True for one in _told(raw))


def other_manager(raw: Mapping[str, Json]) -> str:
    """Name the controller that manages a job instead of the usual one; empty for none."""
    managers = (str(one.get("managedBy") or "") for one in _told(raw))
    return next((one for one in managers if one and one not in _OWN_MANAGERS), "")


def _told(raw: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Give the parts of a job that may say how it is run."""
    spec = raw.get("spec")
    if not is_object(spec):
        return []
    return [spec, *(one for name in _POLICIES if is_object(one := spec.get(name)))]


def resumed(
    sources: Iterable[Source], job: tuple[str, str, str], warnings: list[Problem]
) -> Iterator[Source]:
    """Give the objects of a dump, a suspended job as if somebody had resumed it.

    Parameters
    ----------
    sources
        One object each, no lists.
    job
        Its kind, namespace and name; without a namespace it may be in any.
    warnings
        That it is suspended is added to these.
    """
    for source in sources:
        raw = source.raw if isinstance(source, SourceObject) else None
        if is_object(raw) and _is_called(raw, job) and is_suspended(raw):
            assert isinstance(source, SourceObject)
            shown = f"{job[0]} {_space(raw)}/{job[2]}"
            told = "suspended: it is shown as if somebody had resumed it"
            warnings.append(Problem("", told, shown, source.source))
            yield SourceObject(source.source, _running(raw))
        else:
            yield source


def _is_called(raw: Mapping[str, Json], job: tuple[str, str, str]) -> bool:
    (kind, namespace, name), meta = job, raw.get("metadata")
    called = raw.get("kind") == kind and is_object(meta) and meta.get("name") == name
    return called and namespace in ("", _space(raw))


def _space(raw: Mapping[str, Json]) -> str:
    meta = raw.get("metadata")
    return str((meta.get("namespace") if is_object(meta) else "") or "default")


def _running(raw: Mapping[str, Json]) -> dict[str, Json]:
    spec = raw["spec"]
    assert is_object(spec)
    changed: dict[str, Json] = {**spec, "suspend": False}
    for policy in _POLICIES:
        if is_object(part := spec.get(policy)):
            changed[policy] = {**part, "suspend": False}
    return {**raw, "spec": changed}
