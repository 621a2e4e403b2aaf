"""What texts about colocation say in vain: of nodes, and of the ConfigMap ``slo-controller-config``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._reading import is_object
from koordcore.manifests._reads import Traced, unread
from koordcore.manifests.text_checks import unknown_word
from koordcore.model.colocation import ColocationConfig
from koordcore.protocol.colocation import parse_selector, parse_strategy
from koordcore.protocol.fields import Json, as_mapping, field, load_json
from koordcore.protocol.profile import ColocationProfile, parse_profile
from koordcore.protocol.qos import QoSClass
from koordcore.protocol.raw_selectors import selector_of
from koordcore.protocol.strategy_rules import out_of_range, unknown_words

_SELECTORS: Final = ("namespaceSelector", "selector")


def strategy_text(key: str, text: str) -> tuple[Problem, ...]:
    """Check a strategy that stands on a node: its fields, their types and their words."""
    try:
        raw = load_json(text)
        traced = Traced(raw) if is_object(raw) else raw
        strategy = parse_strategy({} if traced is None else traced)
    except ManifestError as error:
        return error.problems
    strange = (Problem(name, "unknown field; it is ignored") for name in unread(traced))
    return (*strange, *unknown_words(strategy))


def config_remarks(config: ColocationConfig) -> Iterator[Problem]:
    """Name what the strategies of a configuration say in vain, and what spoils them."""
    for problem in out_of_range(config.strategy):
        yield Problem(problem.path, f"{problem.message}; none of the configuration is taken")
    yield from unknown_words(config.strategy)
    for number, entry in enumerate(config.node_strategies):
        for problem in out_of_range(entry.strategy):
            message = f"{problem.message}; the strategy of all nodes counts instead of this one"
            yield Problem(f"nodeConfigs[{number}].{problem.path}", message)
        for problem in unknown_words(entry.strategy):
            yield problem.within(f"nodeConfigs[{number}]")


def unselected(raw: Json) -> Iterator[Problem]:
    """Name the exceptions of a configuration that select no node, whatever its labels."""
    entries = field(raw, "nodeConfigs", fold_case=True) if isinstance(raw, Mapping) else None
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        if is_object(entry):
            written = field(entry, "nodeSelector", fold_case=True)
            why = "absent" if written is None else _unusable(written)
            if why:
                yield Problem(f"nodeConfigs[{number}].nodeSelector", f"{why}; it selects no node")


def profile_read(raw: Mapping[str, Json]) -> tuple[ColocationProfile, tuple[Problem, ...]]:
    """Read a ClusterColocationProfile; a selector that cannot be evaluated selects nobody."""
    profile = parse_profile(raw)
    spec = as_mapping(raw.get("spec") or {})
    found = {name: _unusable(spec[name]) for name in _SELECTORS if spec.get(name) is not None}
    warnings = [
        Problem(f"spec.{name}", f"{why}; the profile applies to no pod") for name, why in found.items() if why
    ]
    known = [str(one) for one in QoSClass if one]
    if profile.qos_class and profile.qos_class not in known:
        warnings.append(
            unknown_word("spec.qosClass", profile.qos_class, known, "its pods get no class by it")
        )
    return profile, tuple(warnings)


def _unusable(written: Json) -> str:
    """Say why a selector cannot be evaluated; empty where it can."""
    try:
        selector_of(parse_selector(written))
    except ManifestError as error:
        return error.problems[0].message
    return ""
