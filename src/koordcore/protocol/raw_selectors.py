"""Label selectors that are kept as they are written: whether they can be evaluated is decided at last."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.colocation import RawRequirement, RawSelector
from koordcore.model.selectors import NOTHING, LabelSelector, Requirement, SelectorOperator

_NAME: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)\Z", re.ASCII)
_DOMAIN: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*\Z", re.ASCII
)
_MAX_DOMAIN: Final = 253


def _check_label(key: str, values: Iterable[str]) -> None:
    prefix, slash, name = key.rpartition("/")
    valid = bool(_NAME.match(name))
    if slash:
        valid = valid and len(prefix) <= _MAX_DOMAIN and bool(_DOMAIN.match(prefix))
    if not valid:
        raise ManifestError.at("", f'"{key[:60]}" is no label key')
    for value in values:
        if value and not _NAME.match(value):
            raise ManifestError.at("", f'"{value[:60]}" is no label value')


def _requirement(raw: RawRequirement) -> Requirement:
    _check_label(raw.key, raw.values)
    match raw.operator:
        case SelectorOperator.IN | SelectorOperator.NOT_IN:
            if not raw.values:
                raise ManifestError.at("", f"{raw.key}: {raw.operator} needs values")
        case SelectorOperator.EXISTS | SelectorOperator.DOES_NOT_EXIST:
            if raw.values:
                raise ManifestError.at("", f"{raw.key}: {raw.operator} takes no values")
        case _:
            raise ManifestError.at("", f'"{raw.operator[:60]}" is not a valid label selector operator')
    return Requirement(raw.key, SelectorOperator(raw.operator), raw.values)


@lru_cache(maxsize=1024)
def selector_of(raw: RawSelector | None) -> LabelSelector:
    """Make a selector of what is written; an absent one selects nothing, an empty one everything.

    Raises
    ------
    ManifestError
        When a key, value, operator or number of values cannot be.
    """
    if raw is None:
        return NOTHING
    labels = raw.match_labels
    for key, value in (labels or {}).items():
        _check_label(key, [value])
    return LabelSelector(labels or {}, tuple(_requirement(one) for one in raw.match_expressions or ()))
