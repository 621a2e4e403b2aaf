"""Subjects ``normalization.cpu`` and ``colocation.sync``: ratios, and what is written to nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from koordcore.colocation.batch import Failed
from koordcore.colocation.normalization import (
    amplification_changed,
    amplification_ratios,
    amplify_node,
    normalization_changed,
    normalization_ratio,
)
from koordcore.errors import ManifestError
from koordcore.model.metrics import Measured, parse_measured
from koordcore.protocol.fields import load_json
from koordcore.protocol.normalization import (
    ANNOTATION_RAW_ALLOCATABLE,
    AmplificationConfig,
    NormalizationConfig,
    format_amplification,
    parse_amplification_config,
    parse_normalization_config,
    parse_raw_allocatable,
)
from tests.conformance.adapters.colocation_qos import shown_amount
from tests.conformance.core import Case, Missing, Verdict, equality, subject

T = TypeVar("T")


def config_of(raw: Any, parse: Callable[[Any], T], default: T) -> T | None:
    """Value of a ConfigMap key: an object, a literal text, or absent; ``None`` when it cannot be read."""
    try:
        if isinstance(raw, str):
            raw = load_json(raw) if raw else None
        return default if raw is None else parse(raw)
    except ManifestError:
        return None


def metadata(thing: Mapping[str, Any] | None, field: str) -> Mapping[str, str]:
    return ((thing or {}).get("metadata") or {}).get(field) or {}


def allocatable(node: Mapping[str, Any] | None) -> Measured | None:
    raw = ((node or {}).get("status") or {}).get("allocatable")
    return None if raw is None else parse_measured(raw)


def shown(amounts: Mapping[str, int] | None) -> dict[str, int | str]:
    return {name: shown_amount(name, amount) for name, amount in (amounts or {}).items()}


def ratio_answer(given: Mapping[str, Any]) -> Any:
    topology = given.get("nodeResourceTopology")
    ratio = normalization_ratio(
        config_of(given.get("config"), parse_normalization_config, NormalizationConfig()),
        metadata(given["node"], "labels"),
        None if topology is None else metadata(topology, "annotations"),
    )
    return {"error": ratio.message} if isinstance(ratio, Failed) else {"ratio": f"{ratio:.2f}"}


def amplify_answer(given: Mapping[str, Any]) -> Any:
    node = given["node"]
    ratios = amplification_ratios(
        config_of(given.get("config"), parse_amplification_config, AmplificationConfig()),
        node["metadata"]["name"],
        metadata(node, "labels"),
        metadata(node, "annotations"),
    )
    if isinstance(ratios, Failed):
        return {"error": ratios.message}
    return {"annotation": format_amplification(ratios) if ratios else None}


def webhook_answer(given: Mapping[str, Any]) -> Any:
    node = amplify_node(
        allocatable(given["node"]),
        metadata(given["node"], "annotations"),
        before=allocatable(given["oldNode"]),
    )
    text = node.annotations.get(ANNOTATION_RAW_ALLOCATABLE)
    try:
        raw: Any = None if text is None else shown(parse_raw_allocatable(node.annotations))
    except ManifestError:
        raw = text
    answer = {"allocatable": shown(node.allocatable), "rawAllocatable": raw}
    return answer | ({"error": node.problem} if node.problem else {})


def sync_answer(given: Mapping[str, Any]) -> Any:
    old, new = metadata(given["oldNode"], "annotations"), metadata(given["newNode"], "annotations")
    ratio, factors = normalization_changed(old, new), amplification_changed(old, new)
    return {
        "normalization": ratio.needed,
        "normalizationReason": ratio.reason,
        "amplification": factors.needed,
        "amplificationReason": factors.reason,
    }


def error_presence(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Only the presence of an error counts, not its text."""
    expected = case.raw.get("expect")
    if isinstance(expected, Mapping) and "error" in expected and "error" in answer:
        answer = {**answer, "error": expected["error"]}
    return equality(case, answer)


@subject("normalization.cpu", judge=error_presence)
def normalization(case: Case) -> Any:
    match case.input["op"]:
        case "normRatio":
            return ratio_answer(case.input)
        case "amplify":
            return amplify_answer(case.input)
        case "nodeWebhook":
            return webhook_answer(case.input)
        case "normSync":
            return sync_answer(case.input)
        case _:
            raise Missing(case.input["op"])
