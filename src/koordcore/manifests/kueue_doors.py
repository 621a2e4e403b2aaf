"""Pods of Kueue's Workloads before anybody has made them, and Workloads of jobs that Kueue has not seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from koordcore.manifests.front_door_kinds import Group, Member
from koordcore.manifests.kueue_workloads import MOST_PODS, topology_annotations
from koordcore.manifests.pods import BUILT_IN_PRIORITIES
from koordcore.model.kueue import GATES, POD_SET_LABEL, PRIORITY_LABEL, QUEUE_LABEL, WORKLOAD_ANNOTATION

KUEUE: Final = "kueue.x-k8s.io"
_VERSION: Final = f"{KUEUE}/v1beta2"
_NAMES: Final = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "ray.io/group",
    "ray.io/node-type",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
)
"""Labels of members that tell their role."""
_LEAST: Final = f"{KUEUE}/job-min-parallelism"
"""Annotation of a batch Job: with how many pods it may start."""
Object = dict[str, Any]


class Queued:
    """What a dump says about Kueue's Workloads, as raw objects.

    Parameters
    ----------
    objects
        All objects of the dump.
    """

    def __init__(self, objects: Iterable[Object]) -> None:
        objects = list(objects)
        workloads = [one for one in objects if _kind(one) == "Workload" and _group(one) == KUEUE]
        self._waiting = [one for one in workloads if _waits(one)]
        self.any = any(_kind(one) == "ClusterQueue" for one in objects)
        """Whether the dump has a ClusterQueue."""
        self.owners = {
            (str(owner.get("kind")), _space(one), str(owner.get("name")))
            for one in workloads
            for owner in _owners(one)
        }
        """Kind, namespace and name of what has a Workload already."""
        self._values = {
            (_kind(one), _name(one)): one.get("value")
            for one in objects
            if _kind(one) in ("PriorityClass", "WorkloadPriorityClass")
        }
        defaults = [
            one.get("value") for one in objects if _kind(one) == "PriorityClass" and one.get("globalDefault")
        ]
        self._default = min((value for value in defaults if isinstance(value, int)), default=0)

    @property
    def waiting(self) -> Sequence[Object]:
        """Workloads that wait for quota."""
        return self._waiting

    def made_for(self, gang: Group, job: Object) -> Object | None:
        """Make the Workload that Kueue would make for a group of a job.

        Nothing is made for a job in no queue, nor where no ClusterQueue is known.
        """
        labels, queue = _part(_part(job, "metadata"), "labels"), queue_of_job(job)
        if not queue or not gang.members or not self.any:
            return None
        return {
            "apiVersion": _VERSION,
            "kind": "Workload",
            "metadata": {
                "name": gang.name,
                "namespace": _space(job),
                "creationTimestamp": _part(job, "metadata").get("creationTimestamp"),
                "ownerReferences": [_reference(job)],
            },
            "spec": {
                "queueName": queue,
                "priority": self._priority(labels.get(PRIORITY_LABEL), gang),
                "podSets": [
                    _pod_set(name, members) | _least(job, len(members))
                    for name, members in roles(gang.members).items()
                ],
            },
        }

    def _priority(self, named: object, gang: Group) -> int:
        """Give the value of its class of Workloads, else of the job's or the first that a template names."""
        if named:
            value = self._values.get(("WorkloadPriorityClass", str(named)))
        else:
            told = (_part(one.template, "spec").get("priorityClassName") for one in gang.members)
            name = gang.priority_class or str(next(filter(None, told), ""))
            value = self._values.get(("PriorityClass", name), BUILT_IN_PRIORITIES.get(name, 0))
            value = value if name else self._default
        return value if isinstance(value, int) else 0


def pods_there(workload: Object, pods: Mapping[int, Object]) -> dict[int, Object]:
    """Find pods that belong to a Workload: they name it, or it was made for them; give them with its name."""
    owners = {str(one.get("name")) for one in _owners(workload) if one.get("kind") == "Pod"}
    first = _pod_sets(workload)[0] if _pod_sets(workload) else {}
    found = {}
    for place, raw in pods.items():
        meta = _part(raw, "metadata")
        notes = _part(meta, "annotations")
        if _space(raw) != _space(workload) or _part(raw, "spec").get("nodeName"):
            continue
        if notes.get(WORKLOAD_ANNOTATION) != _name(workload) and _name(raw) not in owners:
            continue
        labels = {POD_SET_LABEL: str(first.get("name") or "main"), **_part(meta, "labels")}
        named = {**meta, "labels": labels, "annotations": {**notes, WORKLOAD_ANNOTATION: _name(workload)}}
        found[place] = {**raw, "metadata": named}
    return found


def pods_missing(
    workload: Object, there: Iterable[Object], members: Sequence[Member] = ()
) -> Iterator[Object]:
    """Make the pods of a Workload that are not there; a gate keeps them waiting for its admission."""
    counts: dict[str, int] = {}
    for raw in there:
        name = raw["metadata"]["labels"][POD_SET_LABEL]
        counts[name] = counts.get(name, 0) + 1
    known, back = roles(members), _reclaimed(workload)
    for one in _pod_sets(workload):
        name, count = str(one.get("name") or "main"), one.get("count", 1)
        template = _part(one, "template")
        meta, spec = _part(template, "metadata"), _part(template, "spec")
        # What is wrong with a count is said where the Workload is read.
        number = count if isinstance(count, int) and 0 <= count <= MOST_PODS else 0
        for index in range(counts.get(name, 0), number - back.get(name, 0)):
            member = known[name][index] if name in known else None
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": member.name if member else f"{_name(workload)}-{name}-{index}",
                    "namespace": _space(workload),
                    "labels": {
                        **_part(meta, "labels"),
                        **(member.labels if member else {}),
                        POD_SET_LABEL: name,
                    },
                    "annotations": {**_part(meta, "annotations"), WORKLOAD_ANNOTATION: _name(workload)},
                    "ownerReferences": _owners(workload),
                },
                "spec": {**spec, "schedulingGates": [{"name": GATES[0]}]},
            }


def shown(workload: Object) -> str:
    """Name a Workload in messages."""
    return f"Workload {_space(workload)}/{_name(workload)}"


def queue_of_job(job: Object) -> str:
    """Give the LocalQueue that a job names in its label; empty for none."""
    return str(_part(_part(job, "metadata"), "labels").get(QUEUE_LABEL) or "")


def queue_of(workload: Object) -> str:
    """Give the LocalQueue that a Workload names."""
    return str(_part(workload, "spec").get("queueName") or "")


def roles(members: Sequence[Member]) -> dict[str, list[Member]]:
    """Part the members of a group into pod sets, by their role or what their labels say about it."""
    found: dict[str, list[Member]] = {}
    for one in members:
        role = one.role or next((one.labels[key] for key in _NAMES if key in one.labels), "main")
        found.setdefault(role, []).append(one)
    return found


def _pod_set(name: str, members: Sequence[Member]) -> Object:
    template = dict(members[0].template)
    request = topology_annotations(_part(_part(template, "metadata"), "annotations"))
    found: Object = {"name": name, "count": len(members), "template": template}
    return found | ({"topologyRequest": request} if request else {})


def _least(job: Object, count: int) -> Object:
    """Give the least number of pods that a Job starts with, of so many that it has left.

    What is no number stays as it is: the reader of the Workload says so.
    """
    text = _part(_part(job, "metadata"), "annotations").get(_LEAST)
    if text is None or (_group(job), _kind(job)) != ("batch", "Job"):
        return {}
    number = isinstance(text, str) and len(text) < 10 and text.isascii() and text.isdecimal()
    return {"minCount": min(int(text), count) if number else text}


def _reference(job: Object) -> Object:
    return {
        "apiVersion": job.get("apiVersion"),
        "kind": job.get("kind"),
        "name": _name(job),
        "uid": _part(job, "metadata").get("uid") or "",
        "controller": True,
    }


def _waits(workload: Object) -> bool:
    status = _part(workload, "status")
    conditions = status.get("conditions")
    listed = conditions if isinstance(conditions, list) else []
    stated = [one for one in listed if isinstance(one, dict)]
    ended = any(one.get("type") == "Finished" and one.get("status") == "True" for one in stated)
    leaving = _part(workload, "metadata").get("deletionTimestamp")
    return not ended and not status.get("admission") and not leaving


def _part(raw: Mapping[str, Any], name: str) -> Object:
    """Give an object within another; an empty one for what is none: its reader says what is wrong."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _pod_sets(workload: Object) -> list[Object]:
    listed = _part(workload, "spec").get("podSets")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _reclaimed(workload: Object) -> dict[str, int]:
    """Count the pods of each pod set that have ended, which nobody makes again."""
    listed = _part(workload, "status").get("reclaimablePods")
    stated = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    counts = {str(one.get("name")): one.get("count") for one in stated}
    return {name: count for name, count in counts.items() if isinstance(count, int) and count > 0}


def _owners(raw: Object) -> list[Object]:
    listed = _part(raw, "metadata").get("ownerReferences")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _kind(raw: Object) -> str:
    return str(raw.get("kind") or "")


def _group(raw: Object) -> str:
    return str(raw.get("apiVersion") or "").rpartition("/")[0]


def _name(raw: Object) -> str:
    return str(_part(raw, "metadata").get("name") or "")


def _space(raw: Object) -> str:
    return str(_part(raw, "metadata").get("namespace") or "default")
