"""Subjects ``normalization.cpu`` and ``colocation.sync``: ratios, and what is written to nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from immutabledict import immutabledict

from koordcore.colocation.batch import Failed
from koordcore.colocation.normalization import (
    amplification_changed,
    amplification_ratios,
    amplify_node,
    normalization_changed,
    normalization_ratio,
)
from koordcore.colocation.sync import (
    NodeResource,
    NodeStatus,
    needs_meta_sync,
    needs_status_sync,
    prepare_node,
    run_cycle,
)
from koordcore.colocation.zones import ZoneResource, ZoneStatus, update_zones
from koordcore.errors import ManifestError
from koordcore.model.colocation import DEFAULT_STRATEGY, ColocationConfig, overlay
from koordcore.model.metrics import Measured, parse_measured
from koordcore.model.quantity import NANO, parse_exact_quantity
from koordcore.protocol.colocation import parse_config, parse_strategy
from koordcore.protocol.fields import load_json
from koordcore.protocol.normalization import (
    ANNOTATION_NORMALIZATION_RATIO,
    ANNOTATION_RAW_ALLOCATABLE,
    AmplificationConfig,
    NormalizationConfig,
    format_amplification,
    parse_amplification_config,
    parse_normalization_config,
    parse_raw_allocatable,
)
from koordcore.protocol.times import parse_timestamp
from tests.conformance.adapters.colocation import node_load
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
    return {"error": True} if isinstance(ratio, Failed) else {"ratio": f"{ratio:.2f}"}


def amplify_answer(given: Mapping[str, Any]) -> Any:
    node = given["node"]
    ratios = amplification_ratios(
        config_of(given.get("config"), parse_amplification_config, AmplificationConfig()),
        node["metadata"]["name"],
        metadata(node, "labels"),
        metadata(node, "annotations"),
    )
    if isinstance(ratios, Failed):
        return {"error": True}
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
    return answer | ({"error": True} if node.problem else {})


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
    if isinstance(expected, Mapping) and "error" in expected and answer.get("error") is True:
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


def resource_list(raw: Mapping[str, Any] | None) -> Measured:
    """Amounts by name; null means the same as absent."""
    return parse_measured({name: text for name, text in (raw or {}).items() if text is not None})


def status_of(node: Mapping[str, Any]) -> NodeStatus:
    status = node.get("status") or {}
    notes = (node.get("metadata") or {}).get("annotations")
    return NodeStatus(
        capacity=parse_measured(status.get("capacity") or {}),
        allocatable=allocatable(node),
        annotations=None if notes is None else immutabledict(notes),
    )


def resource_of(raw: Mapping[str, Any]) -> NodeResource:
    return NodeResource(
        resources=resource_list(raw.get("resources")),
        resets=tuple(raw.get("resets") or ()),
        annotations=immutabledict(raw.get("annotations") or {}),
        zone_resources=immutabledict(
            {zone: resource_list(amounts) for zone, amounts in (raw.get("zoneResources") or {}).items()}
        ),
    )


def json_or_text(text: str, key: str) -> Any:
    if key == ANNOTATION_NORMALIZATION_RATIO:
        return text
    try:
        value = load_json(text)
    except ManifestError:
        return text
    return value if isinstance(value, Mapping) else text


def shown_number(amount: int) -> int | str:
    """A whole amount as a number, any other as text with three digits."""
    whole, rest = divmod(amount, NANO)
    return whole if rest == 0 else f"{whole}.{rest * 1000 // NANO:03d}"


def extended(amounts: Measured | None) -> dict[str, int | str]:
    return {
        name: shown_number(amount)
        for name, amount in (amounts or {}).items()
        if name.startswith("kubernetes.io/")
    }


def prepared_answer(node: NodeStatus) -> dict[str, Any]:
    notes: Mapping[str, str] = node.annotations or {}
    answer = {
        "allocatable": extended(node.allocatable),
        "annotations": {key: json_or_text(text, key) for key, text in notes.items()},
    }
    capacity = extended(node.capacity)
    return answer | ({"capacity": capacity} if capacity != answer["allocatable"] else {})


def moment(text: str | None) -> int | None:
    return None if text is None else parse_timestamp(text)


def needs_sync(given: Mapping[str, Any]) -> Any:
    old, new = status_of(given["oldNode"]), status_of(given["newNode"])
    return {
        "syncStatus": needs_status_sync(
            parse_strategy(given.get("strategy") or {}),
            old.allocatable,
            new.allocatable,
            last_sync=moment(given["lastSync"]),
            now=parse_timestamp(given["now"]),
        ),
        "syncMeta": needs_meta_sync(old.annotations or {}, new.annotations or {}),
    }


def zone_status(raw: Mapping[str, Any]) -> ZoneStatus:
    def amount(one: Mapping[str, Any], field: str) -> int:
        return parse_exact_quantity(one.get(field) or 0)

    return ZoneStatus(
        raw["name"],
        tuple(
            ZoneResource(
                one["name"], amount(one, "capacity"), amount(one, "allocatable"), amount(one, "available")
            )
            for one in raw.get("resources") or []
        ),
    )


def zones_answer(given: Mapping[str, Any]) -> Any:
    update = update_zones(
        tuple(zone_status(raw) for raw in (given["nodeResourceTopology"] or {}).get("zones", [])),
        resource_of(given["nodeResource"]),
        parse_strategy(given.get("strategy") or {}),
        last_update=moment(given["lastSync"]),
        now=parse_timestamp(given["now"]),
    )

    if given["nodeResourceTopology"] is None:
        return {"updated": update.updated}

    return {
        "updated": update.updated,
        "zones": {
            zone.name: [
                {
                    "name": one.name,
                    "capacity": shown_number(one.capacity),
                    "allocatable": shown_number(one.allocatable),
                    "available": shown_number(one.available),
                }
                for one in zone.resources
            ]
            for zone in update.zones
        },
    }


def cycle_answer(given: Mapping[str, Any]) -> Any:
    topology = given.get("nodeResourceTopology")
    config = parse_config(given["colocationConfig"])
    cycle = run_cycle(
        node_load(given),
        metadata(given["node"], "labels"),
        (given["node"].get("metadata") or {}).get("annotations"),
        ColocationConfig(overlay(DEFAULT_STRATEGY, config.strategy), config.node_strategies),
        last_sync=moment(given["lastSync"]),
        now=parse_timestamp(given["now"]),
        topology_annotations=None if topology is None else metadata(topology, "annotations"),
        normalization=config_of(
            given.get("cpuNormalizationConfig"), parse_normalization_config, NormalizationConfig()
        ),
        amplification=config_of(
            given.get("resourceAmplificationConfig"), parse_amplification_config, AmplificationConfig()
        ),
    )
    return prepared_answer(cycle.prepared) | {
        "disabled": cycle.disabled,
        "messages": dict(cycle.resource.messages),
        "syncStatus": cycle.sync_status,
        "syncMeta": cycle.sync_meta,
    }


@subject("colocation.sync")
def sync(case: Case) -> Any:
    given = case.input
    match given["op"]:
        case "sync":
            return needs_sync(given)
        case "prepare":
            return prepared_answer(prepare_node(status_of(given["node"]), resource_of(given["nodeResource"])))
        case "zones":
            return zones_answer(given)
        case "cycle":
            return cycle_answer(given)
        case _:
            raise Missing(given["op"])
