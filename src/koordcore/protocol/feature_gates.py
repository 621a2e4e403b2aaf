"""Feature gates as they are written: a mapping in a file, ``Name=true,Name=false`` on a command line."""

from __future__ import annotations

from typing import Final

from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.protocol.fields import Json, as_bool, as_mapping, at, show

_WORDS: Final = {
    **dict.fromkeys(("true", "t", "1"), True),
    **dict.fromkeys(("false", "f", "0"), False),
}


def parse_feature_gates(value: Json) -> immutabledict[str, bool]:
    """Read feature gates; a text is that of the flag ``--feature-gates``.

    Raises
    ------
    ManifestError
        When a gate is neither on nor off.

    Examples
    --------
    >>> dict(parse_feature_gates("MultiQuotaTree=true, DisableDefaultQuota=false"))
    {'MultiQuotaTree': True, 'DisableDefaultQuota': False}
    """
    if isinstance(value, str):
        return immutabledict(_entry(one.strip()) for one in value.split(",") if one.strip())
    raw = as_mapping(value)
    return immutabledict({name: at(name, _switch, raw[name]) for name in raw})


def _entry(text: str) -> tuple[str, bool]:
    name, equals, word = (part.strip() for part in text.partition("="))
    if not name or not equals or word.lower() not in _WORDS:
        raise ManifestError.at("", f"expected Name=true or Name=false, got {show(text)}")
    return name, _WORDS[word.lower()]


def _switch(value: Json) -> bool:
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    return as_bool(value)
