"""Jobs of known kinds as gangs, before anybody has made their groups or even their pods (``--as-gangs``).

LeaderWorkerSet, JobSet, RayCluster, RayJob, Kubeflow's TrainJob, PyTorchJob and MPIJob, and batch Job: each
becomes a PodGroup, or one for each replica, and the pods that its controller would make. Pods of a job that
are in the dump already are its members; what only its controller knows is named.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, product
from typing import Any, Final, TypeAlias, TypeGuard

import attrs

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._raw import Source
from koordcore.manifests.front_door_kinds import (
    DOORS,
    JOB_SET,
    OPENERS,
    TRAIN_JOB,
    Group,
    Jobs,
    Member,
    Opened,
    open_job_set,
    open_train_job,
)
from koordcore.manifests.kueue_doors import (
    Queued,
    pods_missing,
    pods_there,
    queue_of,
    queue_of_job,
    shown as shown_workload,
)
from koordcore.manifests.sources import SourceObject
from koordcore.manifests.suspension import has_ended, is_suspended, other_manager
from koordcore.model.kueue import WORKLOAD_ANNOTATION
from koordcore.protocol.fields import Json, as_mapping
from koordcore.protocol.gang_names import LABEL_POD_GROUP, gang_name
from koordcore.protocol.sub_groups import ANNOTATION_SUB_GROUPS

__all__ = ["DOORS", "with_gangs"]

_POD_GROUP: Final = ("scheduling.sigs.k8s.io", "PodGroup")
"""What a gang is made of; Kubernetes and others have kinds of this name, too."""
_LIVE: Final = "live"
_DONE: Final = "done"


def _identity(raw: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Give API group, kind, namespace and name."""
    meta = _part(raw, "metadata")
    group = str(raw.get("apiVersion") or "").rpartition("/")[0]
    return (
        group,
        str(raw.get("kind") or ""),
        str(meta.get("namespace") or "default"),
        str(meta.get("name") or ""),
    )


def _over(raw: Mapping[str, Any]) -> bool:
    """Tell whether a job has ended, or is being deleted."""
    return has_ended(raw) or bool(_part(raw, "metadata").get("deletionTimestamp"))


def _part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Give an object in an object; nothing where something else stands there, which its reader will say."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _owners(raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    listed = _part(raw, "metadata").get("ownerReferences")
    known = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [(str(one.get("kind")), str(one.get("name"))) for one in known]


def with_gangs(sources: Iterable[Source], problems: list[Problem], warnings: list[Problem]) -> list[Source]:
    """Add the groups and missing pods of all jobs that are known, and put pods that are there into them.

    Parameters
    ----------
    problems, warnings
        Jobs that cannot be read, and what was made of each job, are added to these.
    """
    known = list(sources)
    well = [one for one in known if _is_object(one)]
    ids = [_identity(_raw(one)) for one in well]
    queued = Queued(_raw(one) for one in well)
    groups = {(space, name) for (group, kind, space, name) in ids if (group, kind) == _POD_GROUP}
    pods = _Pods([(place, one) for place, one in enumerate(known) if _is_pod(one)])
    added: list[SourceObject] = []
    origin = {id(_raw(one)): one.source for one in well}
    for workload in queued.waiting:
        added += pods.of_workload(workload, origin[id(workload)], warnings)
    grouped: set[tuple[str, str]] = set()
    for one, opened in _opened_jobs(well, ids, queued, pods, problems, warnings):
        raw, (_, kind, space, name) = _raw(one), _identity(_raw(one))
        for written in opened.groups:
            gang = _of_its_own(written, space, kind, grouped)
            made = None if pods.knows(gang, space) else queued.made_for(gang, raw)
            if made is None:
                if gang.priority_class:
                    opened.unsaid.append("its priorityClass (schedulingPolicy)")
                added += pods.into(gang, space, kind, name, one, groups, warnings)
            else:
                if gang.spec is not None or gang.parts is not None:
                    opened.unsaid.append(f"in a queue: which domains the parts of {gang.name} need")
                added.append(SourceObject(one.source, made))
                added += pods.of_workload(made, one.source, warnings, gang.members)
        if manager := other_manager(raw):
            opened.unsaid.append(f"where {manager} makes its pods (managedBy)")
        queue = queue_of_job(raw)
        if queue and not queued.any:
            opened.unsaid.append(f"its quota in queue {queue}: there is no ClusterQueue")
        for what in opened.unsaid:
            warnings.append(Problem("", f"not said by a gang: {what}", f"{kind} {space}/{name}", one.source))
    taken = {(space, name) for _, kind, space, name in ids if kind == "Pod"}
    return [*pods.written(known), *(_under_free_name(one, taken, warnings) for one in added)]


def _opened_jobs(
    well: Sequence[SourceObject],
    ids: Sequence[tuple[str, str, str, str]],
    queued: Queued,
    pods: _Pods,
    problems: list[Problem],
    warnings: list[Problem],
) -> Iterator[tuple[SourceObject, Opened]]:
    """Open the jobs for which no other object speaks; why some cannot be opened is added to the lists."""
    jobs = {(i[1], i[2], i[3]) for i in ids if i[:2] in OPENERS or i[:2] == TRAIN_JOB}
    runtimes = {
        (kind, "" if kind.startswith("Cluster") else space, name): _raw(one)
        for one, (group, kind, space, name) in zip(well, ids, strict=True)
        if group == TRAIN_JOB[0] and kind.endswith("TrainingRuntime")
    }
    made_jobs = _jobs_there([_raw(one) for one in well])
    parents = {
        (kind, i[2], name) for one, i in zip(well, ids, strict=True) for kind, name in _owners(_raw(one))
    }
    for one, (group, kind, space, name) in zip(well, ids, strict=True):
        raw = _raw(one)
        if (group, kind) not in (*OPENERS, TRAIN_JOB) or _over(raw):
            continue
        # A RayJob's cluster says more than the job; any other child is told by its parent.
        owned = any((parent, space, up) in jobs for parent, up in _owners(raw))
        cluster = ("RayCluster", space, str(_part(raw, "status").get("rayClusterName") or ""))
        told = (kind, space, name) in parents or cluster in jobs
        if (kind == "RayJob" and told) or (owned and kind != "RayCluster"):
            continue
        # What Kueue has made of a job says more than the job.
        if (kind, space, name) in queued.owners and not pods.has_owned(kind, space, name):
            continue
        shown = f"{kind} {space}/{name}"
        if is_suspended(raw):
            why = "suspended, so nobody makes its pods: it is in no plan"
            asks = f"`koordcore explain {kind.lower()}/{name}` shows it as if it were resumed"
            warnings.append(Problem("", f"{why} ({asks})", shown, one.source))
            continue
        try:
            opened = _opened((group, kind), (space, name), raw, runtimes, made_jobs.get(space, {}))
        except ManifestError as error:
            problems += [Problem(each.path, each.message, shown, one.source) for each in error.problems]
            continue
        yield one, opened


def _jobs_there(objects: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Json]]]:
    """Give batch Jobs by namespace and name; how far one is that the dump lacks its pods tell."""
    found: dict[str, dict[str, Mapping[str, Json]]] = {}
    pods: dict[tuple[str, str], Counter[str]] = {}
    for raw in objects:
        group, kind, space, name = _identity(raw)
        if (group, kind) == ("batch", "Job"):
            found.setdefault(space, {})[name] = raw
        elif (group, kind) == ("", "Pod"):
            phase = str(_part(raw, "status").get("phase"))
            count_as = {"Succeeded": "succeeded", "Failed": "failed"}.get(phase, "active")
            for parent, own in _owners(raw):
                if parent == "Job":
                    pods.setdefault((space, own), Counter())[count_as] += 1
    for (space, own), counted in pods.items():
        found.setdefault(space, {}).setdefault(own, {"status": dict(counted)})
    return found


def _opened(
    kind: tuple[str, str],
    place: tuple[str, str],
    raw: Mapping[str, Json],
    runtimes: Mapping[tuple[str, str, str], Mapping[str, Json]],
    made: Jobs,
) -> Opened:
    """Open a job by its kind, with what else has to be known for it."""
    if kind == TRAIN_JOB:
        return open_train_job(place, raw, runtimes, made)
    if kind == JOB_SET:
        return open_job_set(place[1], raw, made)
    return OPENERS[kind](place[1], raw)


def _of_its_own(gang: Group, space: str, kind: str, grouped: set[tuple[str, str]]) -> Group:
    """Call a group after its kind, too, where another job of the same name has one."""
    name = gang.name
    while (space, name) in grouped:
        name = f"{name}-{kind.lower()}"
    grouped.add((space, name))
    return attrs.evolve(gang, name=name)


def _under_free_name(one: SourceObject, taken: set[tuple[str, str]], warnings: list[Problem]) -> SourceObject:
    """Show a member under another name where a pod that is none has its own."""
    raw = _raw(one)
    _, kind, space, name = _identity(raw)
    if kind != "Pod":
        return one
    free = next(
        text for text in (name if not n else f"{name}-{n + 1}" for n in count()) if (space, text) not in taken
    )
    taken.add((space, free))
    if free == name:
        return one
    message = f"another pod has this name; the member that is still to be made is shown as {free}"
    warnings.append(Problem("", message, f"Pod {space}/{name}", one.source))
    return SourceObject(one.source, {**raw, "metadata": {**raw["metadata"], "name": free}})


def _raw(one: Source) -> dict[str, Any]:
    """Give an object; nothing for what is none."""
    raw = one.raw if isinstance(one, SourceObject) else None
    return raw if isinstance(raw, dict) else {}


def _is_object(one: Source) -> TypeGuard[SourceObject]:
    return isinstance(_raw(one).get("metadata"), dict)


def _is_pod(one: Source) -> TypeGuard[SourceObject]:
    return _is_object(one) and _raw(one).get("kind") == "Pod"


_Places: TypeAlias = dict[tuple[str, ...], deque[int]]
"""Places in a dump, in order, by what is said there."""


def _group_named(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Tell how a pod names a group, and which one; nothing of a pod that is in none yet."""
    spec, meta = _part(raw, "spec"), _part(raw, "metadata")
    for field in ("schedulingGroup", "workloadRef"):
        if spec.get(field):
            return field, ""
    labels = _part(meta, "labels")
    name = gang_name(labels, _part(meta, "annotations"))
    return (LABEL_POD_GROUP if labels.get(LABEL_POD_GROUP) else "other" if name else ""), name


def _pod_of(member: Member, space: str, owner: dict[str, Any]) -> dict[str, Any]:
    """Make the manifest of a member that is missing."""
    template = as_mapping(member.template.get("metadata") or {})
    labels = {**as_mapping(template.get("labels") or {}), **member.labels}
    metadata = {
        "name": member.name,
        "namespace": space,
        "labels": labels,
        "annotations": template.get("annotations") or {},
        "ownerReferences": [owner],
    }
    spec = member.template.get("spec") or {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_group_of(gang: Group, space: str) -> dict[str, Any]:
    notes = {}
    if gang.parts is not None:
        notes[ANNOTATION_SUB_GROUPS] = json.dumps(gang.parts)
    if gang.spec is not None:
        notes["gang.scheduling.koordinator.sh/network-topology-spec"] = json.dumps(gang.spec)
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": gang.name, "namespace": space, "annotations": notes},
        "spec": {"minMember": gang.least},
    }


class _Pods:
    """The pods of a dump, each of which can be taken for one member."""

    def __init__(self, pods: Sequence[tuple[int, SourceObject]]) -> None:
        self._left = dict(pods)
        self._gang: dict[int, str] = {}
        self._queued: dict[int, dict[str, Any]] = {}
        self._labelled: dict[tuple[str, ...], _Places] = {}

    def into(
        self,
        gang: Group,
        space: str,
        kind: str,
        name: str,
        source: SourceObject,
        groups: set[tuple[str, str]],
        warnings: list[Problem],
    ) -> Iterator[SourceObject]:
        """Give the group and the pods that are missing; those that are there join it.

        Who names a group, by itself or in its template, stays in that one.
        """
        there = joined = apart = 0
        needed = False
        for member in gang.members:
            place = self._find(member, space)
            if place is not None:
                raw = _raw(self._left.pop(place))
                there += 1
            else:
                owner = {"kind": kind, "name": name, "uid": "", "apiVersion": _raw(source).get("apiVersion")}
                raw = _pod_of(member, space, {**owner, "controller": True})
            named = _group_named(raw)
            if named == ("", ""):
                named = (LABEL_POD_GROUP, gang.name)
                if place is None:
                    raw["metadata"]["labels"][LABEL_POD_GROUP] = gang.name
                else:
                    self._gang[place] = gang.name
            needed = needed or named == (LABEL_POD_GROUP, gang.name)
            if named[1] != gang.name:
                apart += 1
            else:
                joined += place is not None
            if place is None:
                yield SourceObject(source.source, raw)
        total, shown = len(gang.members), f"{kind} {space}/{name}"
        if needed and (space, gang.name) not in groups:
            own = attrs.evolve(gang, least=max(min(1, gang.least), gang.least - apart))
            yield SourceObject(source.source, _pod_group_of(own, space))
        if apart < total:
            message = f"shown as gang {space}/{gang.name} of {total - apart}, of which {joined} are there"
            warnings.append(Problem("", message, shown, source.source))
        if apart:
            message = f"shown with {apart} of {total} pods in groups that they name themselves"
            message += "" if apart < total else f", of which {there} are there"
            warnings.append(Problem("", message, shown, source.source))

    def of_workload(
        self, workload: dict[str, Any], source: str, warnings: list[Problem], members: Sequence[Member] = ()
    ) -> Iterator[SourceObject]:
        """Give the pods of a Workload of Kueue that are missing; those that are there name it."""
        _, _, space, name = _identity(workload)
        named = [("note", space, name), *(("name", space, own) for _, own in _owners(workload))]
        places = sorted(
            {place for one in named for place in self._by_reference.get(one, ()) if place in self._left}
        )
        there = pods_there(workload, {place: _raw(self._left[place]) for place in places})
        self._queued |= there
        for place in there:
            del self._left[place]
        made = list(pods_missing(workload, there.values(), members))
        yield from (SourceObject(source, one) for one in made)
        message = f"shown as gang of {len(there) + len(made)}, of which {len(there)} are there, "
        message += f"in queue {queue_of(workload)}"
        warnings.append(Problem("", message, shown_workload(workload), source))

    def knows(self, gang: Group, space: str) -> bool:
        """Tell whether a member of a group is in the dump."""
        return any(self._find(member, space) is not None for member in gang.members)

    def has_owned(self, kind: str, space: str, name: str) -> bool:
        """Tell whether pods of a job are in the dump."""
        return self._first(self._by_reference, ("owner", space, name, kind)) is not None

    @cached_property
    def _by_reference(self) -> _Places:
        """Where pods are of a name, of an owner, and of a Workload that they name."""
        found: _Places = {}
        for place, one in self._left.items():
            meta = _raw(one)["metadata"]
            _, _, space, name = _identity(_raw(one))
            owners = [("owner", space, own, kind) for kind, own in dict.fromkeys(_owners(_raw(one)))]
            note = _part(meta, "annotations").get(WORKLOAD_ANNOTATION)
            for key in (("name", space, name), ("note", space, str(note)), *owners):
                found.setdefault(key, deque()).append(place)
        return found

    def _first(self, places: _Places, key: tuple[str, ...]) -> int | None:
        """Give the first place of a key whose pod is not taken yet; those before it never come back."""
        known = places.get(key, deque())
        while known and known[0] not in self._left:
            known.popleft()
        return known[0] if known else None

    def _find(self, member: Member, space: str) -> int | None:
        """Find a pod that is the member: one that has not ended, else one that need not run again."""
        names = tuple(sorted(member.labels))
        key = (space, *(member.labels[name] for name in names))
        for phases in (_LIVE, _DONE) if member.once else (_LIVE,):
            known = (phases, *names)
            if known not in self._labelled:
                self._labelled[known] = self._by_labels(names, phases)
            place = self._first(self._labelled[known], key)
            if place is not None:
                return place
        return None

    def _by_labels(self, names: Sequence[str], phases: str) -> _Places:
        """Where pods are that run yet, or are done, by namespace and these labels, as each may be told."""
        found: _Places = {}
        for place, one in self._left.items():
            raw = _raw(one)
            labels = _part(raw["metadata"], "labels")
            phase = _part(raw, "status").get("phase")
            if phase == "Failed" or (phase == "Succeeded") != (phases == _DONE):
                continue
            other = labels.get("job-name")
            values_of = [
                (labels.get(name), other if name.startswith("batch.kubernetes.io/") else None)
                for name in names
            ]
            known = (dict.fromkeys(one for one in each if isinstance(one, str)) for each in values_of)
            for values in product(*known):
                found.setdefault((_identity(raw)[2], *values), deque()).append(place)
        return found

    def written(self, known: Sequence[Source]) -> list[Source]:
        """Give the objects of the dump, pods that joined a gang with its label."""
        found = list(known)
        for place, raw in self._queued.items():
            found[place] = _with(found[place], raw)
        for place, gang in self._gang.items():
            raw = _raw(found[place])
            meta = raw["metadata"]
            labels = {**_part(meta, "labels"), LABEL_POD_GROUP: gang}
            changed = {**raw, "metadata": {**meta, "labels": labels}}
            found[place] = _with(found[place], changed)
        return found


def _with(one: Source, raw: dict[str, Any]) -> SourceObject:
    """Give an object with another text in its place."""
    assert isinstance(one, SourceObject)  # pods are known to be objects
    return attrs.evolve(one, raw=raw)
