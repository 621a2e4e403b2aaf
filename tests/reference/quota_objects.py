"""Objects of quotas that only cases hold: sums of usage, and pods as raw objects."""

from __future__ import annotations

from collections.abc import Mapping

from immutabledict import immutabledict

from koordcore.model.pods import PodKey
from koordcore.model.quotas import QuotaPod, QuotaUsage
from koordcore.protocol.exact import (
    ExactList,
    Notation,
    amounts_of,
    exact_pod_requests,
    parse_exact_list,
)
from koordcore.protocol.fields import Json, as_mapping, as_str, at
from koordcore.protocol.quota import (
    _spelling,
    is_preemptible,
    labels_of,
    metadata_of,
    quota_label,
)
from koordcore.protocol.times import parse_timestamp


def quota_usage_from_object(raw: Mapping[str, Json]) -> QuotaUsage:
    """Read per-quota sums: ``request``, ``used`` and their non-preemptible parts, each a resource list.

    What is used is part of what is requested, so an absent ``request`` is what is used.
    """
    lists = {
        key: parse_exact_list(raw.get(key))
        for key in ("request", "used", "nonPreemptibleRequest", "nonPreemptibleUsed")
    }
    used = lists["used"]
    request = lists["request"] if raw.get("request") is not None else used
    non_preemptible_used = lists["nonPreemptibleUsed"]
    if raw.get("nonPreemptibleRequest") is None:
        lists["nonPreemptibleRequest"] = non_preemptible_used
    return QuotaUsage(
        request=amounts_of(request),
        used=amounts_of(used),
        non_preemptible_request=amounts_of(lists["nonPreemptibleRequest"]),
        non_preemptible_used=amounts_of(non_preemptible_used),
        binary=_binary(used),
        non_preemptible_binary=_binary(non_preemptible_used),
    )


def _binary(exact: ExactList) -> immutabledict[str, bool]:
    """Which sums are in powers of two; a sum of nothing but zeros was never written down."""
    if not any(quantity.nano for quantity in exact.values()):
        return immutabledict()
    return immutabledict({name: one.notation is Notation.BINARY_SI for name, one in exact.items()})


def quota_pod_from_object(raw: Mapping[str, Json], *, overhead: bool = True) -> QuotaPod:
    """Read of a Pod object what quotas need.

    ``overhead=False`` is the gate ``ElasticQuotaIgnorePodOverhead``.
    """
    metadata, spec = metadata_of(raw), as_mapping(raw.get("spec") or {})
    status = as_mapping(raw.get("status") or {})
    labels = labels_of(raw)
    exact = exact_pod_requests(raw, overhead=overhead)
    namespace = as_str(metadata.get("namespace") or "")
    priority, start = spec.get("priority"), status.get("startTime")
    return QuotaPod(
        key=PodKey(namespace, as_str(metadata.get("name") or "")),
        quota=quota_label(labels),
        request=amounts_of(exact),
        preemptible=is_preemptible(labels),
        priority=priority if isinstance(priority, int) else 0,
        start=None if start is None else at("status.startTime", _moment, start),
        node=as_str(spec.get("nodeName") or ""),
        labels=immutabledict(labels),
        terminating=metadata.get("deletionTimestamp") is not None,
        finished=status.get("phase") in ("Succeeded", "Failed"),
        written=_spelling(exact),
    )


def _moment(raw: Json) -> int:
    return parse_timestamp(as_str(raw))
