"""What upstream's validation says about the arguments of the descheduler's plugins."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from koordcore.descheduling.migration.max_unavailable import check_share
from koordcore.errors import ManifestError
from koordcore.model.migration import JobMode
from koordcore.model.rebalance import DEFAULT_POOL, EvictionGate, MigrationControllerArgs
from koordcore.protocol.label_names import label_name_fault

_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z", re.ASCII)
_LONGEST: Final = 63
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_TOO_LONG: Final = f"must be no more than {_LONGEST} bytes"


def _invalid(path: str, value: object, reason: str) -> str:
    shown = value if isinstance(value, _Shown) else json.dumps(value, separators=(",", ":"))
    return f"{path}: Invalid value: {shown}: {reason}"


class _Shown(str):
    """A value that is already written as the message shows it."""

    __slots__ = ()


def _number(value: float) -> _Shown:
    return _Shown(int(value) if float(value).is_integer() else value)


def _value_reason(value: str) -> str | None:
    if len(value) > _LONGEST:
        return _TOO_LONG
    return None if not value or _NAME.match(value) else _VALUE_TEXT


def _selector_reason(raw: Mapping[str, Any]) -> str | None:
    """Say why a selector cannot be evaluated (``LabelSelectorAsSelector``); ``None`` when it can."""
    for key, value in sorted(raw.get("matchLabels", {}).items()):
        reason = _requirement_reason(key, [value])
        if reason:
            return reason
    for one in raw.get("matchExpressions", ()):
        key, operator, values = one.get("key", ""), one.get("operator", ""), one.get("values", [])
        if operator in ("In", "NotIn"):
            if not values:
                return _invalid("values", None, "for 'in', 'notin' operators, values set can't be empty")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                return _invalid("values", values, "values set must be empty for exists and does not exist")
        else:
            return f'"{operator}" is not a valid label selector operator'
        reason = _requirement_reason(key, values)
        if reason:
            return reason
    return None


def _requirement_reason(key: str, values: Sequence[str]) -> str | None:
    reason = label_name_fault(key)
    if reason:
        return _invalid("key", key, reason)
    for index, value in enumerate(values):
        reason = _value_reason(value)
        if reason:
            return _invalid(f"values[{index}][{key}]", value, reason)
    return None


def _selector(path: str, raw: Mapping[str, Any] | None) -> Iterator[str]:
    reason = None if raw is None else _selector_reason(raw)
    if reason:
        yield _invalid(path, raw, reason)


def _pod_selectors(raw: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for index, one in enumerate(raw):
        reason = _selector_reason(one.get("selector") or {})
        if reason:
            shown = {"Name": one["name"]} if one.get("name") else {}
            yield _invalid(f"podSelectors[{index}]", {**shown, "Selector": one.get("selector")}, reason)


def _namespaces(path: str, raw: Mapping[str, Any] | None) -> Iterator[str]:
    if raw and raw.get("include") and raw.get("exclude"):
        shown = {"Include": raw["include"], "Exclude": raw["exclude"]}
        yield _invalid(path, shown, "only one of Include/Exclude namespaces can be set")


def low_node_load_problems(defaulted: Mapping[str, Any]) -> tuple[str, ...]:
    """List what is wrong with defaulted ``LowNodeLoadArgs``, sorted.

    Parameters
    ----------
    defaulted
        As :func:`~koordcore.protocol.rebalance.default_low_node_load` gives them.
    """
    found: list[str] = []
    if defaulted.get("numberOfNodes", 0) < 0:
        text = "must be greater than or equal to 0"
        found.append(_invalid("numberOfNodes", defaulted["numberOfNodes"], text))
    expiration = defaulted["nodeMetricExpirationSeconds"]
    if expiration <= 0:
        text = "nodeMetricExpiredSeconds should be a positive value"
        found.append(_invalid("nodeMetricExpiredSeconds", expiration, text))
    found += _namespaces("evictableNamespaces", defaulted.get("evictableNamespaces"))
    found += _pod_selectors(defaulted.get("podSelectors", ()))
    pools = [{**defaulted, "name": DEFAULT_POOL}, *defaulted.get("nodePools", ())]
    for index, pool in enumerate(pools):
        found += _pool_problems(f"nodePools[{index}].", pool)
    return tuple(sorted(found))


def _pool_problems(path: str, pool: Mapping[str, Any]) -> Iterator[str]:
    yield from _selector(f"{path}nodeSelector", pool.get("nodeSelector"))
    high, low = pool.get("highThresholds", {}), pool.get("lowThresholds", {})
    prod_high, prod_low = pool.get("prodHighThresholds", {}), pool.get("prodLowThresholds", {})
    named = {
        "highThresholds": high,
        "lowThresholds": low,
        "ProdHighThresholds": prod_high,
        "ProdLowThresholds": prod_low,
    }
    for name, table in named.items():
        for resource, percent in table.items():
            if percent < 0:
                text = "percentage must be greater than or equal to 0"
                yield _invalid(f"{path}{name}[{resource}]", _number(percent), text)
    pairs = (
        ("lowThresholds", low, high, "low percentage must be less than or equal to highThresholds"),
        (
            "ProdHighThresholds",
            prod_high,
            high,
            "node percentage must be greater than or equal to prodHighThresholds",
        ),
        (
            "ProdLowThresholds",
            prod_low,
            prod_high,
            "low percentage must be less than or equal to prodHighThresholds",
        ),
    )
    for name, lesser, greater, text in pairs:
        for resource, percent in lesser.items():
            if resource in greater and percent > greater[resource]:
                yield _invalid(f"{path}{name}[{resource}]", _number(percent), text)
    condition = pool.get("anomalyCondition") or {}
    for name in ("consecutiveAbnormalities", "consecutiveNormalities"):
        if condition and condition.get(name, 0) <= 0:
            where = f"{path}anomalyDetectionThresholds.{name}"
            yield _invalid(where, condition.get(name, 0), f"{name} must be greater than 0")


def migration_controller_problems(defaulted: Mapping[str, Any]) -> tuple[str, ...]:
    """List what is wrong with defaulted ``MigrationControllerArgs``, sorted.

    Parameters
    ----------
    defaulted
        As :func:`~koordcore.protocol.rebalance.default_migration_controller` gives them.
    """
    found: list[str] = []
    if defaulted["maxConcurrentReconciles"] < 1:
        text = "maxConcurrentReconciles should be greater than or equal to 1"
        found.append(_invalid("maxConcurrentReconciles", defaulted["maxConcurrentReconciles"], text))
    for name in ("maxMigratingGlobally", "maxMigratingPerNamespace", "maxMigratingPerNode"):
        if defaulted.get(name) is not None and defaulted[name] < 0:
            found.append(_invalid(name, defaulted[name], f"{name} should be greater or equal 0"))
    for name in ("maxMigratingPerWorkload", "maxUnavailablePerWorkload"):
        try:
            check_share(defaulted.get(name, 0))
        except ManifestError as error:
            found.append(_invalid(name, defaulted[name], f"{name} is invalid, err: {error} "))
    if not _positive(defaulted["evictQPS"]):
        found.append(_invalid("evictQPS", defaulted["evictQPS"], "evictQPS must be greater than 0"))
    if defaulted["evictBurst"] <= 0:
        found.append(_invalid("evictBurst", defaulted["evictBurst"], "evictBurst must be greater than 0"))
    if defaulted["defaultJobMode"] not in list(JobMode):
        text = f"defaultJobMode must be {' or '.join(JobMode)}"
        found.append(_invalid("defaultJobMode", defaulted["defaultJobMode"], text))
    if defaulted["defaultJobTTL"].startswith("-"):
        text = "defaultJobTTL should be positive or zero"
        found.append(_invalid("defaultJobTTL", defaulted["defaultJobTTL"], text))
    found += _namespaces("namespaces", defaulted.get("namespaces"))
    found += _label_selector("labelSelector", defaulted.get("labelSelector") or {})
    known = list(EvictionGate)
    for index, gate in enumerate(defaulted.get("skipEvictionGates", ())):
        if gate not in known:
            found.append(_invalid(f"skipEvictionGates[{index}]", gate, "unknown eviction gate"))
    return tuple(sorted(found))


def limiter_problems(args: MigrationControllerArgs) -> tuple[str, ...]:
    """List the limiters whose share nobody can read: upstream takes them, and then limits nothing."""
    found = []
    for kind, limiter in sorted(args.limiters.items()):
        try:
            check_share(limiter.max_migrating or 0)
        except ManifestError as error:
            found.append(_invalid(f"objectLimiters[{kind}].maxMigrating", limiter.max_migrating, str(error)))
    return tuple(found)


def _positive(value: float | str) -> bool:
    try:
        number = float(value)
    except ValueError:
        return False
    return number > 0


def _label_selector(path: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """List what ``ValidateLabelSelector`` of Kubernetes says."""
    for key, value in sorted(raw.get("matchLabels", {}).items()):
        for shown, reason in ((key, label_name_fault(key)), (value, _value_reason(value))):
            if reason:
                yield _invalid(f"{path}.matchLabels", shown, reason)
    for index, one in enumerate(raw.get("matchExpressions", ())):
        where = f"{path}.matchExpressions[{index}]"
        key, operator, values = one.get("key", ""), one.get("operator", ""), one.get("values", [])
        if operator in ("In", "NotIn"):
            if not values:
                yield f"{where}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                kinds = "'Exists' or 'DoesNotExist'"
                yield f"{where}.values: Forbidden: may not be specified when `operator` is {kinds}"
        else:
            yield _invalid(f"{where}.operator", operator, "not a valid selector operator")
        reason = label_name_fault(key)
        if reason:
            yield _invalid(f"{where}.key", key, reason)
        for at, value in enumerate(values):
            reason = _value_reason(value)
            if reason:
                yield _invalid(f"{where}.values[{at}]", value, reason)
