"""Admission when a pod is created: the webhook's own count of what each quota was asked for.

After upstream's ``pkg/webhook/quotaevaluate``. The count is the annotation ``child-request`` of the quota.
It is written with optimistic concurrency, for all pods that wait for one quota together. Here the storage
is a function of the caller's, and nothing else happens outside the returned values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.durations import SECOND
from koordcore.model.quotas import BUILTIN_QUOTAS
from koordcore.protocol.exact import (
    ExactList,
    add_lists,
    exact_list,
    exact_of,
    exact_pod_requests,
    exceeded_names,
    masked,
    parse_exact_list,
    print_list,
    wire_list,
)
from koordcore.protocol.fields import Json, as_list, as_mapping
from koordcore.protocol.quota import (
    ADMISSION,
    CHILD_REQUEST,
    QuotaObject,
    annotations_of,
    metadata_of,
    resource_list_annotation,
)
from koordcore.protocol.times import parse_timestamp

REPLACE_RESOURCES: Final = "pod.koordinator.sh/replace-resources"

KNOWN_RESOURCES: Final = frozenset(
    {
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
        "kubernetes.io/mid-cpu",
        "kubernetes.io/mid-memory",
        "nvidia.com/gpu",
        "koordinator.sh/gpu",
        "koordinator.sh/gpu.shared",
        "koordinator.sh/gpu-memory-ratio",
    }
)
"""A quota whose ``max`` names none of these is not counted at creation."""

_NOTHING: Final[ExactList] = immutabledict()


def evaluated_request(pod: Mapping[str, Json], *, now: int) -> ExactList:
    """Give what a pod counts for: its effective request, overhead included; nothing once it has ended.

    Parameters
    ----------
    now
        Nanoseconds since 1970; a pod past its deletion time and grace period has ended.
    """
    phase = as_mapping(pod.get("status") or {}).get("phase")
    metadata = metadata_of(pod)
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if phase in ("Succeeded", "Failed"):
        return _NOTHING
    if (
        isinstance(deleted, str)
        and isinstance(grace, int)
        and now > parse_timestamp(deleted) + grace * SECOND
    ):
        return _NOTHING
    return exact_pod_requests(pod)


def replace_resources(pod: Mapping[str, Json]) -> Mapping[str, Json]:
    """Rename what containers ask for as the annotation ``replace-resources`` says.

    ``cpu:example.io/cpu,memory:`` counts CPU in thousandths as ``example.io/cpu`` and drops memory (gate
    ``ElasticQuotaEvaluationTransformPod`` with ``ReplaceResourcesTransformer``).
    """
    text = annotations_of(pod).get(REPLACE_RESOURCES, "")
    renames = dict(part.split(":", 1) for part in text.split(",") if ":" in part)
    if not renames:
        return pod
    spec = dict(as_mapping(pod.get("spec") or {}))
    for key in ("containers", "initContainers"):
        if spec.get(key):
            spec[key] = [_renamed(as_mapping(container), renames) for container in as_list(spec[key])]
    return {**pod, "spec": spec}


def _renamed(container: Mapping[str, Json], renames: Mapping[str, str]) -> Mapping[str, Json]:
    resources = dict(as_mapping(container.get("resources") or {}))
    requests = parse_exact_list(resources.get("requests"))
    kept = {name: quantity for name, quantity in requests.items() if name not in renames}
    for old, new in sorted(renames.items()):
        if old in requests and new:
            kept.update(exact_of({new: requests[old].amount(old)}))
    resources["requests"] = wire_list(exact_list(kept))
    return {**container, "resources": resources}


@record(kw_only=True)
class Granted:
    """Outcome for one pod.

    Parameters
    ----------
    reason
        Why it is denied; empty where it is admitted.
    quota
        The quota as it stands afterwards, where its count changed.
    """

    reason: str = ""
    quota: QuotaObject | None = None


def evaluate_creation(quotas: Iterable[QuotaObject], name: str, request: ExactList) -> Granted:
    """Decide one pod against the quota of that name, and count it.

    Parameters
    ----------
    quotas
        All of the cluster.
    name
        As resolved by :func:`~koordcore.protocol.quota_webhook.resolve_quota`; built-in quotas admit all.
    request
        From :func:`evaluated_request`.
    """
    if not name or name in BUILTIN_QUOTAS:
        return Granted()
    found = [quota for quota in quotas if quota.name == name]
    if not found:
        return Granted(reason=f"elastic quota {name} not found")
    if len(found) > 1:
        return Granted(reason=f"more than one elastic quota {name} found")
    return _evaluate(found[0], request)


def _evaluate(quota: QuotaObject, request: ExactList) -> Granted:
    delta = _counted(quota, request)
    if not delta:
        return Granted()
    try:
        used, limit = _read(quota)
    except ManifestError as error:
        return Granted(reason=str(error))
    after = add_lists(used, delta)
    exceeded = exceeded_names(masked(after, delta), limit)
    if not exceeded:
        return Granted(quota=_with_count(quota, after))
    parts = [print_list(masked(part, exceeded), between="=") for part in (delta, used, limit)]
    return Granted(
        reason=f"exceeded quota: {quota.namespace}/{quota.name}, requested: {parts[0]}, used: {parts[1]},"
        f" limited: {parts[2]}"
    )


def _counted(quota: QuotaObject, request: ExactList) -> ExactList:
    if not quota.max.keys() & KNOWN_RESOURCES:
        return _NOTHING
    return exact_list({name: one for name, one in request.items() if name in quota.max and one.nano})


def _read(quota: QuotaObject) -> tuple[ExactList, ExactList]:
    used = resource_list_annotation(quota.annotations, CHILD_REQUEST)
    return used, resource_list_annotation(quota.annotations, ADMISSION) or quota.max


def _with_count(quota: QuotaObject, count: ExactList) -> QuotaObject:
    kept = {name: quantity for name, quantity in count.items() if quantity.nano}
    text = json.dumps(wire_list(kept), separators=(",", ":"))
    return attrs.evolve(quota, annotations=immutabledict({**quota.annotations, CHILD_REQUEST: text}))


# --- many pods at once ------------------------------------------------------------------------------------

QuotaStore = Callable[[QuotaObject], QuotaObject | None]
"""Writes a quota; ``None`` when that went well, else the quota as somebody else has left it."""


def retry_budget(changed: int, max_retries: int = 3) -> int:
    """How often a batch may write again after a conflict, by the number of pods that change the count."""
    if changed <= 1:
        return 3
    return min(3 + changed.bit_length() - 1, max(3, max_retries))


def admit_batch(
    quota: QuotaObject,
    requests: Sequence[ExactList],
    write: QuotaStore,
    *,
    max_retries: int = 3,
    conflict: str = "conflict",
) -> tuple[str, ...]:
    """Decide several pods that wait for one quota, in their order, and write its count once.

    Parameters
    ----------
    quota, requests
        The quota as it was read, and the amounts of each pod.
    write
        The storage.
    max_retries
        Flag ``quota-update-max-retries``.
    conflict
        Text for pods that are still undecided when the retries are used up.

    Returns
    -------
    tuple of str
        For each pod why it is denied; empty where it is admitted.

    Notes
    -----
    After a conflict the pods that had been granted are added to the new count together, if they still fit;
    otherwise they are decided again one by one.
    """
    reasons: dict[int, str] = {}
    waiting = list(range(len(requests)))
    retries: int | None = None
    while True:
        after, granted = quota, list[int]()
        for index in waiting:
            outcome = _evaluate(after, requests[index])
            if outcome.quota is not None:
                after = outcome.quota
                granted.append(index)
            else:
                reasons[index] = outcome.reason
        if not granted:
            break
        if retries is None:
            retries = retry_budget(len(granted), max_retries)
        delta = _NOTHING
        for index in granted:
            delta = add_lists(delta, _counted(quota, requests[index]))
        written: QuotaObject | None = after
        while written is not None:
            found = write(written)
            if found is None:
                reasons.update(dict.fromkeys(granted, ""))
                return tuple(reasons[index] for index in range(len(requests)))
            if retries <= 0:
                reasons.update(dict.fromkeys(granted, conflict))
                return tuple(reasons[index] for index in range(len(requests)))
            retries -= 1
            quota = found
            written = _added(quota, delta)
        waiting = granted
    return tuple(reasons[index] for index in range(len(requests)))


def _added(quota: QuotaObject, delta: ExactList) -> QuotaObject | None:
    try:
        used, limit = _read(quota)
    except ManifestError:
        return None
    after = add_lists(used, delta)
    return None if exceeded_names(masked(after, delta), limit) else _with_count(quota, after)
