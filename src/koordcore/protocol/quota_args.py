"""Arguments of the ElasticQuota plugin, with the feature gates that belong to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs

from koordcore.errors import ManifestError, Problem
from koordcore.model.quotas import QuotaPolicy
from koordcore.model.resources import Resources
from koordcore.protocol.exact import amounts_of, parse_exact_list
from koordcore.protocol.fields import Json, as_bool, as_duration, optional

_SWITCHES: Final = {
    "enableRuntimeQuota": "enable_runtime_quota",
    "enableMinQuotaScale": "enable_min_quota_scale",
    "enableCheckParentQuota": "enable_check_parent_quota",
    "disableDefaultQuotaPreemption": "disable_default_quota_preemption",
    "monitorAllQuotas": "monitor_all_quotas",
}
_GATES: Final = {
    "MultiQuotaTree": "multi_quota_tree",
    "ElasticQuotaGuaranteeUsage": "guarantee_usage",
    "DisableDefaultQuota": "disable_default_quota",
}
_LIMITS: Final = {
    "defaultQuotaGroupMax": "default_quota_group_max",
    "systemQuotaGroupMax": "system_quota_group_max",
}


def parse_quota_args(raw: Mapping[str, Json], *, gates: Collection[str] = ()) -> QuotaPolicy:
    """Read ``ElasticQuotaArgs``; what is left out has upstream's default.

    Parameters
    ----------
    raw
        The arguments. Queueing hints, intervals and hook plugins are the embedder's and are not read.
    gates
        Names of the feature gates that are on.

    Raises
    ------
    ManifestError
        Names every argument that cannot be read, and limits and delays below zero.
    """
    fields: dict[str, Any] = {field: gate in gates for gate, field in _GATES.items()}
    problems: list[Problem] = []
    defaults = QuotaPolicy()
    for name, field in _SWITCHES.items():
        try:
            fields[field] = optional(raw, name, as_bool, getattr(defaults, field))
        except ManifestError as error:
            problems.extend(error.problems)
    for name, field in _LIMITS.items():
        try:
            fields[field] = optional(raw, name, _limit, getattr(defaults, field))
        except ManifestError as error:
            problems.extend(error.problems)
    try:
        fields["delay_evict"] = optional(raw, "delayEvictTime", _delay, defaults.delay_evict)
    except ManifestError as error:
        problems.extend(error.problems)
    if problems:
        raise ManifestError(problems)
    return attrs.evolve(defaults, **fields)


def _limit(raw: Json) -> Resources:
    amounts = amounts_of(parse_exact_list(raw))
    for name, amount in amounts.items():
        if amount < 0:
            raise ManifestError.at(f"[{name}]", "must not be negative")
    return amounts


def _delay(raw: Json) -> int:
    delay = as_duration(raw)
    if delay < 0:
        raise ManifestError.at("", "must not be negative")
    return delay
