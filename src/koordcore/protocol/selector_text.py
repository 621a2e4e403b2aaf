"""Label selectors as people type them: ``app=web,tier!=db,zone in (a,b),!spot``."""

from __future__ import annotations

import re
from typing import Final

from koordcore.errors import ModelError
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator

_COMMA: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(r"(?P<key>[^\s!=,()]+)\s+(?P<not>not)?in\s*\((?P<values>[^()]*)\)\Z")
_EQUAL: Final = re.compile(r"(?P<key>[^\s!=,()]+)\s*(?P<not>!)?={1,2}\s*(?P<value>[^\s!=,()]*)\Z")
_THERE: Final = re.compile(r"(?P<not>!)?\s*(?P<key>[^\s!=,()]+)\Z")


def label_selector_of(text: str) -> LabelSelector:
    """Read a selector; an empty text selects everything.

    Raises
    ------
    ModelError
        With the part that cannot be read.

    Examples
    --------
    >>> selector = label_selector_of("app=web, zone notin (a,b)")
    >>> selector.matches({"app": "web", "zone": "c"}), selector.matches({"app": "web", "zone": "a"})
    (True, False)
    """
    return LabelSelector(
        requirements=tuple(_requirement(part.strip()) for part in _COMMA.split(text) if part.strip())
    )


def _requirement(text: str) -> Requirement:
    """Read one condition on labels.

    >>> _requirement("tier!=db").operator.value, _requirement("zone in (a, b)").values
    ('NotIn', ('a', 'b'))
    """
    if found := _SET.match(text):
        values = tuple(one.strip() for one in found["values"].split(","))
        return Requirement(found["key"], _negated(found["not"]), values)
    if found := _EQUAL.match(text):
        return Requirement(found["key"], _negated(found["not"]), (found["value"],))
    if found := _THERE.match(text):
        there = SelectorOperator.DOES_NOT_EXIST if found["not"] else SelectorOperator.EXISTS
        return Requirement(found["key"], there)
    raise ModelError(f'expected NAME=VALUE, NAME!=VALUE, "NAME in (A,B)", NAME or !NAME, got "{text}"')


def _negated(word: str | None) -> SelectorOperator:
    return SelectorOperator.NOT_IN if word else SelectorOperator.IN
