"""Scheduling hints: nodes that a pod must or would rather go to, as an annotation says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError
from koordcore.protocol.fields import Json, as_int, as_list, as_mapping, as_str, load_json, optional

ANNOTATION_SCHEDULING_HINT: Final = "internal.scheduling.koordinator.sh/scheduling-hint"
DEPRECATED_SCHEDULING_HINT: Final = "scheduling.koordinator.sh/scheduling-hint"
DEFAULT_MAX_HINT_NODES: Final = 100
HINT_PLUGIN: Final = "SchedulingHint"

_NO_FIELDS: Final[immutabledict[str, Json]] = immutabledict()


@record(kw_only=True)
class SchedulingHint:
    """What a hint says.

    Parameters
    ----------
    node_names
        The only nodes allowed; empty for no restriction.
    preferred_node_names
        Nodes to try first, in this order.
    extensions
        Switches for single plugins, as given.
    """

    node_names: tuple[str, ...] = ()
    preferred_node_names: tuple[str, ...] = ()
    extensions: immutabledict[str, Json] = _NO_FIELDS


def parse_scheduling_hint(annotations: Mapping[str, str]) -> SchedulingHint | None:
    """Read the hint of a pod; None when it has none. The deprecated key is read where the new one is empty.

    Raises
    ------
    ManifestError
        When the annotation is no JSON of the right shape.
    """
    key = ANNOTATION_SCHEDULING_HINT
    if not annotations.get(key):
        key = DEPRECATED_SCHEDULING_HINT
    text = annotations.get(key)
    if not text:
        return None
    try:
        raw = load_json(text)
        if raw is None:
            return SchedulingHint()
        body = as_mapping(raw)
        return SchedulingHint(
            node_names=optional(body, "nodeNames", _names, (), fold_case=True),
            preferred_node_names=optional(body, "preferredNodeNames", _names, (), fold_case=True),
            extensions=optional(body, "extensions", _extensions, _NO_FIELDS, fold_case=True),
        )
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{key}]") from None


def hints_at(annotations: Mapping[str, str], plugin: str) -> bool:
    """Tell whether the hint switches a plugin on, so that it takes what the pod is designated to get.

    A hint that cannot be read names no plugin.
    """
    try:
        hint = parse_scheduling_hint(annotations)
    except ManifestError:
        return False
    return hint is not None and plugin in hint.extensions


def _names(value: Json) -> tuple[str, ...]:
    return tuple("" if item is None else as_str(item) for item in as_list(value))


def _extensions(value: Json) -> immutabledict[str, Json]:
    return immutabledict(as_mapping(value))


def parse_max_hint_nodes(raw: Json) -> int:
    """Read ``maxHintNodes`` of SchedulingHintArgs.

    Raises
    ------
    ModelError
        With upstream's text when it is not positive.
    """
    count = optional(as_mapping(raw), "maxHintNodes", as_int, DEFAULT_MAX_HINT_NODES)
    if count <= 0:
        raise ModelError(f"maxHintNodes: Invalid value: {count}: must be a positive value")
    return count
