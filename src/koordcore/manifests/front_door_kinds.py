"""Which pods the controllers of known kinds of jobs make, and which of them start together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.manifests.parts_of_objects import Part, entries, inner, maybe, needed, place_in, taken
from koordcore.manifests.suspension import has_ended
from koordcore.model.mappings import EMPTY
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_list,
    as_mapping,
    as_str,
    at,
    required,
)

_LWS: Final = "leaderworkerset.sigs.k8s.io/"
_JOBSET: Final = "jobset.sigs.k8s.io/"
_RAY: Final = "ray.io/"
_KUBEFLOW: Final = "training.kubeflow.org/"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
Jobs: TypeAlias = Mapping[str, Mapping[str, Json]]
"""Objects of one kind, by name."""
_MOST: Final = 100_000
"""Pods of one object; more are a slip of the pen."""


@record(kw_only=True)
class Member:
    """A pod that a controller would make: its name, what tells it, the template, and a role of no label."""

    name: str
    labels: Mapping[str, str]
    template: Mapping[str, Json]
    role: str = ""
    once: bool = False
    """Whether nobody makes it again when it has succeeded."""


@record(kw_only=True)
class Group:
    """Pods that start together."""

    name: str
    least: int
    members: tuple[Member, ...]
    parts: Json = None
    spec: Json = None
    priority_class: str = ""
    """That of all of them, which a gang cannot say."""


@attrs.define
class Opened:
    """What becomes of one object: its groups, and what of it nobody here can say."""

    groups: list[Group]
    unsaid: list[str]


def _template(raw: Mapping[str, Json], name: str = "template") -> Part:
    found = inner(raw, name)
    meta = maybe(found, "metadata")
    for part in ("labels", "annotations"):
        maybe(meta, part)  # what is wrong with a template is said of its job, once
    return found


def _count(raw: Mapping[str, Json], name: str, default: int) -> int:
    number = taken(raw, name, as_int, default)
    if not 0 <= number <= _MOST:
        raise ManifestError.at(place_in(raw, name), f"expected 0 to {_MOST}, got {number}")
    return number


def _must(key: str) -> list[dict[str, str]]:
    return [{"layer": key, "strategy": "MustGather"}]


def _exclusive(key: str, what: str) -> str:
    return f"that no other {what} comes into its domain of {key} (exclusive-topology); it is gathered there"


def _job(
    name: str, spec: Mapping[str, Json], labels: Mapping[str, str], status: Mapping[str, Json]
) -> list[Member]:
    """List the pods of a batch Job that run at once, no more than its status leaves to do."""
    parallel = _count(spec, "parallelism", 1)
    succeeded = _count(status, "succeeded", 0)
    if spec.get("completions") is not None or spec.get("parallelism") is None:
        done = succeeded + _indexes(taken(status, "failedIndexes", as_str, ""))
        parallel = min(parallel, max(0, _count(spec, "completions", 1) - done))
    elif succeeded:  # one that has succeeded found no more work: those that run are the last
        parallel = min(parallel, _count(status, "active", 0))
    template = _template(spec)
    return [Member(name=f"{name}-{one}", labels=labels, template=template) for one in range(parallel)]


def _batch_job(name: str, raw: Mapping[str, Json]) -> Opened:
    labels = {"batch.kubernetes.io/job-name": name}
    members = _job(name, inner(raw, "spec"), labels, maybe(raw, "status"))
    return Opened([Group(name=name, least=len(members), members=tuple(members))], [])


def _indexes(text: str) -> int:
    """Count the indexes of a list such as ``1,3-5``; what is none counts nothing."""
    ends = [part.split("-") for part in text.split(",")]
    return sum(int(one[-1]) - int(one[0]) + 1 for one in ends if all(map(_is_index, one)))


def _is_index(text: str) -> bool:
    return text.isdecimal() and len(text) < 11


def open_job_set(
    name: str, raw: Mapping[str, Json], made: Jobs, spec: Mapping[str, Json] | None = None
) -> Opened:
    """Open a JobSet; those of its jobs that are over, by themselves or by its status, have no pods any more.

    Parameters
    ----------
    made
        Batch Jobs that are there, by name.
    spec
        Its own, unless another is given.
    """
    spec = inner(raw, "spec") if spec is None else spec
    over = _over(maybe(raw, "status"))
    members: list[Member] = []
    parts: list[Json] = []
    unsaid: list[str] = []
    ended: set[str] = set()
    whole = _note(raw, "alpha.jobset.sigs.k8s.io/exclusive-topology")
    needed(spec, "replicatedJobs", as_list)
    for entry in entries(spec, "replicatedJobs"):
        job = needed(entry, "name", as_str)
        template = _template(entry)
        key = _note(template, "alpha.jobset.sigs.k8s.io/exclusive-topology") or whole
        replicas = _count(entry, "replicas", 1)
        children = [as_mapping(made.get(f"{name}-{job}-{index}") or {}) for index in range(replicas)]
        if over.get(job, 0) >= replicas or all(map(has_ended, children)):
            ended.add(job)
            continue
        if key:
            unsaid.append(_exclusive(key, "job"))
        for index, child in enumerate(children):
            if has_ended(child):
                continue
            labels = {
                f"{_JOBSET}jobset-name": name,
                f"{_JOBSET}replicatedjob-name": job,
                f"{_JOBSET}job-index": str(index),
            }
            own = f"{name}-{job}-{index}"
            status = maybe(Part(child, f"Job {own}"), "status")
            members += _job(own, inner(template, "spec"), labels, status)
        if key:
            chosen = {f"{_JOBSET}replicatedjob-name": job}
            parts.append(
                {
                    "name": job,
                    "matchLabels": chosen,
                    "by": f"{_JOBSET}job-index",
                    "gatherStrategy": _must(key),
                }
            )
        for before in entries(entry, "dependsOn"):
            if needed(before, "name", as_str) in ended:
                continue  # jobs are listed after those that they wait for
            beside = ", and so need not run beside it" if before.get("status") == "Complete" else ""
            waits = f"that {job} waits until {before.get('name')} is {before.get('status')}"
            unsaid.append(f"{waits}{beside} (dependsOn)")
    if maybe(spec, "startupPolicy").get("startupPolicyOrder") == "InOrder":
        unsaid.append("that its jobs start in order (startupPolicy)")
    found = {"subGroups": parts} if parts else None
    return Opened([Group(name=name, least=len(members), members=tuple(members), parts=found)], unsaid)


def _over(status: Mapping[str, Json]) -> dict[str, int]:
    """Count the jobs of each name that have succeeded, as a JobSet or a TrainJob says it."""
    listed = entries(status, "replicatedJobsStatus" if status.get("replicatedJobsStatus") else "jobsStatus")
    return {needed(one, "name", as_str): _count(one, "succeeded", 0) for one in listed}


def _leader_worker_set(name: str, raw: Mapping[str, Json]) -> Opened:
    spec = inner(raw, "spec")
    body = inner(spec, "leaderWorkerTemplate")
    size = _count(body, "size", 1)
    workers = _template(body, "workerTemplate")
    leader = _template(body, "leaderTemplate") if body.get("leaderTemplate") else workers
    # Without a template of its own the leader is one of the workers.
    roles = ("leader", "worker") if body.get("leaderTemplate") else ("main", "main")
    unsaid = []
    if spec.get("startupPolicy") == "LeaderReady":
        unsaid.append("that workers are made once their leader is ready (startupPolicy)")
    policy = maybe(body, "subGroupPolicy")
    each = _count(policy, "subGroupSize", 0)
    apart = policy.get("type") == "LeaderExcluded" or policy.get("subGroupPolicyType") == "LeaderExcluded"
    if each and size % each and (size - 1) % each:
        raise ManifestError.at(
            "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize", f"{each} parts no {size} pods"
        )
    whole = _note(raw, f"{_LWS}exclusive-topology")
    within = _note(raw, f"{_LWS}subgroup-exclusive-topology")
    unsaid += [_exclusive(key, what) for key, what in ((whole, "group"), (within, "sub-group")) if key]
    groups = []
    for number in range(_count(spec, "replicas", 1)):
        members = []
        for index in range(size):
            labels = {
                f"{_LWS}name": name,
                f"{_LWS}group-index": str(number),
                f"{_LWS}worker-index": str(index),
            }
            if each and not (apart and index == 0):
                shifted = apart or size % each
                labels[f"{_LWS}subgroup-index"] = str(max(0, index - 1) // each if shifted else index // each)
            own = f"{name}-{number}-{index}" if index else f"{name}-{number}"
            template, role = (workers, roles[1]) if index else (leader, roles[0])
            members.append(Member(name=own, labels=labels, template=template, role=role))
        parts: Json = None
        if each:
            rules = {"gatherStrategy": _must(within)} if within else {}
            parts = {"subGroups": [{"name": "sub-group", "by": f"{_LWS}subgroup-index", **rules}]}
        together = {"gatherStrategy": _must(whole)} if whole else None
        own = f"{name}-{number}"
        groups.append(Group(name=own, least=size, members=tuple(members), parts=parts, spec=together))
    return Opened(groups, unsaid)


def _ray_cluster(
    name: str, raw: Mapping[str, Json], spec: Mapping[str, Json] | None = None, cluster: str = ""
) -> Opened:
    """Open a cluster of Ray, or that of a RayJob; its pods are called after the cluster once there is one."""
    spec, cluster = inner(raw, "spec") if spec is None else spec, cluster or name
    elastic = taken(spec, "enableInTreeAutoscaling", as_bool, False)
    head = _template(inner(spec, "headGroupSpec"))
    labels = {f"{_RAY}cluster": cluster, f"{_RAY}node-type": "head"}
    members = [Member(name=f"{cluster}-head", labels=labels, template=head)]
    least = 1
    parts: list[Json] = []
    for entry in entries(spec, "workerGroupSpecs"):
        group = needed(entry, "groupName", as_str)
        if taken(entry, "suspend", as_bool, False):
            continue
        wanted = _within_limits(entry)
        hosts = max(1, _count(entry, "numOfHosts", 1))
        least += hosts * (min(wanted, _count(entry, "minReplicas", 0)) if elastic else wanted)
        for index in range(wanted * hosts):
            labels = {f"{_RAY}cluster": cluster, f"{_RAY}node-type": "worker", f"{_RAY}group": group}
            template = _template(entry)
            members.append(Member(name=f"{cluster}-{group}-worker-{index}", labels=labels, template=template))
        if hosts > 1 and wanted:
            part = {"name": group, "matchLabels": {f"{_RAY}group": group}, "size": hosts}
            enough = min(wanted, _count(entry, "minReplicas", 0)) if elastic else wanted
            parts.append({**part, "minReplicas": enough} if 0 < enough < wanted else part)
    unsaid = ["how far its autoscaler will go"] if elastic else []
    found = {"subGroups": parts} if parts else None
    return Opened([Group(name=name, least=least, members=tuple(members), parts=found)], unsaid)


def _within_limits(group: Mapping[str, Json]) -> int:
    """Count the replicas of a group of workers, which Ray keeps within its limits."""
    fewest = _count(group, "minReplicas", 0)
    wanted = _count(group, "replicas", fewest)
    if wanted < fewest:
        return fewest
    most = taken(group, "maxReplicas", as_int, wanted)  # its default is the greatest number there is
    return max(0, min(wanted, most))


def _ray_job(name: str, raw: Mapping[str, Json]) -> Opened:
    spec = inner(raw, "spec")
    if not spec.get("rayClusterSpec"):
        return Opened([], ["the cluster that it selects (clusterSelector)"])
    cluster = taken(maybe(raw, "status"), "rayClusterName", as_str, "")
    opened = _ray_cluster(name, raw, inner(spec, "rayClusterSpec"), cluster)
    opened.unsaid.append("its submitter, which comes once the cluster runs")
    return opened


def _replicas(
    name: str,
    raw: Mapping[str, Json],
    field: str,
    label: str = f"{_KUBEFLOW}replica-type",
    few: Mapping[str, int] = EMPTY,
) -> Opened:
    """Open a job of Kubeflow with one entry for every role.

    Parameters
    ----------
    label
        Which label tells the role of a pod.
    few
        How many pods a role has that does not say it, where that is not one.
    """
    spec = inner(raw, "spec")
    members: list[Member] = []
    roles = inner(spec, field)
    for role in sorted(roles):
        kind = role.lower()
        body = inner(roles, role)
        for index in range(_count(body, "replicas", few.get(kind, 1))):
            labels = {f"{_KUBEFLOW}job-name": name, label: kind}
            own = f"{name}-{kind}-{index}"
            members.append(Member(name=own, labels=labels, template=_template(body), once=True))
    policy = maybe(maybe(spec, "runPolicy"), "schedulingPolicy")
    least = _count(policy, "minAvailable", len(members))
    named = ["its queue (schedulingPolicy)"] if policy.get("queue") else []
    of_all = taken(policy, "priorityClass", as_str, "")
    return Opened([Group(name=name, least=least, members=tuple(members), priority_class=of_all)], named)


def _mpi_job(name: str, raw: Mapping[str, Json]) -> Opened:
    """Open a job of MPI: its launcher is one of the gang, whether or not it works as well.

    Upstream's minimum is that of the workers and one more in both cases. The MPI Operator and the older one
    for all kinds tell roles by different labels.
    """
    older = raw.get("apiVersion") == "kubeflow.org/v1"
    label = f"{_KUBEFLOW}{'replica-type' if older else 'job-role'}"
    opened = _replicas(name, raw, "mpiReplicaSpecs", label, {"worker": 0})
    if required(raw, "spec", as_mapping).get("launcherCreationPolicy") == "WaitForWorkersReady":
        opened.unsaid.insert(0, "that its launcher waits for its workers (launcherCreationPolicy)")
    return opened


def _pytorch_job(name: str, raw: Mapping[str, Json]) -> Opened:
    opened = _replicas(name, raw, "pytorchReplicaSpecs")
    if maybe(inner(raw, "spec"), "elasticPolicy"):
        opened.unsaid.insert(0, "how far its elastic policy will go")
    return opened


JOB_SET: Final = ("jobset.x-k8s.io", "JobSet")
OPENERS: Final[Mapping[tuple[str, str], Callable[[str, Mapping[str, Json]], Opened]]] = {
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    JOB_SET: lambda name, raw: open_job_set(name, raw, {}),
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_job,
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("kubeflow.org", "MPIJob"): _mpi_job,
    ("batch", "Job"): _batch_job,
}
"""By API group and kind: what becomes of an object of a name."""
TRAIN_JOB: Final = ("trainer.kubeflow.org", "TrainJob")
DOORS: Final = {kind.lower(): kind for _, kind in (*OPENERS, TRAIN_JOB)} | {"lws": "LeaderWorkerSet"}
"""Kinds that become gangs, by what people type."""


def _note(raw: Mapping[str, Json], key: str) -> str:
    """Read an annotation of an object or template."""
    notes = maybe(maybe(raw, "metadata"), "annotations")
    return at(f"{notes.place}[{key}]", as_str, notes.get(key) or "")


def open_train_job(
    place: tuple[str, str],
    raw: Mapping[str, Json],
    runtimes: Mapping[tuple[str, str, str], Mapping[str, Json]],
    made: Jobs,
) -> Opened:
    """Open a TrainJob: its runtime is a JobSet, of which the trainer's job has the trainer's nodes.

    Parameters
    ----------
    place
        Namespace and name of the job.
    runtimes
        By kind, namespace (none for those of the cluster) and name. A TrainingRuntime serves its namespace.
    made
        Batch Jobs that are there, by name.
    """
    space, name = place
    spec = inner(raw, "spec")
    named = inner(spec, "runtimeRef")
    kind, runtime = str(named.get("kind") or "ClusterTrainingRuntime"), needed(named, "name", as_str)
    found = runtimes.get((kind, "" if kind.startswith("Cluster") else space, runtime))
    if found is None:
        return Opened([], [f"its pods: {kind} {runtime} is not in the dump"])
    trainer = maybe(spec, "trainer")
    found_spec = inner(Part(found, f"{kind} {runtime}"), "spec")
    body = inner(inner(found_spec, "template"), "spec")
    policy = maybe(found_spec, "mlPolicy")
    told = trainer.get("numNodes") is not None or found_spec.get("mlPolicy") is not None
    number = _count(trainer, "numNodes", _count(policy, "numNodes", 1))
    mpi = maybe(policy, "mpi")
    if taken(mpi, "runLauncherAsNode", as_bool, False):
        number = max(0, number - 1)  # the launcher is one of them
    needed(body, "replicatedJobs", as_list)
    listed = entries(body, "replicatedJobs")
    # The launcher of MPI may be labelled as the trainer; the nodes are still those of the job of that name.
    labelled = any(_is_trainer(one) for one in listed) and not policy.get("mpi")
    jobs: list[Mapping[str, Json]] = []
    for entry in listed:
        if not (_is_trainer(entry) if labelled else entry.get("name") == "node"):
            jobs.append(entry)
            continue
        job = inner(_template(entry), "spec")
        sized: dict[str, Json] = {**job}
        if told:
            sized |= {"parallelism": number, "completions": number}
        if trainer.get("resourcesPerNode"):
            sized["template"] = _sized(_template(job), maybe(trainer, "resourcesPerNode"))
        once: dict[str, Json] = {"replicas": 1} if _is_trainer(entry) else {}
        jobs.append({**entry, **once, "template": {**_template(entry), "spec": sized}})
    opened = open_job_set(name, raw, made, Part({**body, "replicatedJobs": jobs}, body.place))
    for field in ("podTemplateOverrides", "podSpecOverrides", "runtimePatches"):
        if spec.get(field):
            opened.unsaid.append(f"what it changes in its runtime's templates ({field})")
    return opened


def _is_trainer(job: Mapping[str, Json]) -> bool:
    """Tell whether a job of a runtime is labelled as that which trains."""
    return maybe(maybe(_template(job), "metadata"), "labels").get(_STEP) == "trainer"


def _sized(template: Mapping[str, Json], resources: Mapping[str, Json]) -> Mapping[str, Json]:
    spec = inner(template, "spec")
    containers = [
        {**one, "resources": resources} if one.get("name") == "node" else one
        for one in entries(spec, "containers")
    ]
    return {**template, "spec": {**spec, "containers": containers}}
