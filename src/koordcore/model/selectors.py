"""Label selectors and node selectors, as Kubernetes matches them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.mappings import EMPTY, frozen_texts


class SelectorOperator(StrEnum):
    """How a requirement compares a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_BY_VALUE = (SelectorOperator.IN, SelectorOperator.NOT_IN)
_BY_NUMBER = (SelectorOperator.GT, SelectorOperator.LT)


def integer_of(text: str) -> int | None:
    """Read an integer as Go's ParseInt does; ``None`` where it would refuse."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if not (body.isascii() and body.isdigit()) or len(body) > 19:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


@names_its_fields
@record
class Requirement:
    """One condition on one label (or field).

    Parameters
    ----------
    key
        Label key.
    operator
        Comparison.
    values
        What ``In`` and ``NotIn`` compare with; one number in text form for ``Gt`` and ``Lt``.

    Raises
    ------
    ModelError
        When the number of values does not suit the operator.
    """

    key: str
    operator: SelectorOperator = attrs.field(converter=SelectorOperator)
    values: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.operator in _BY_VALUE and not self.values:
            raise ModelError(f"{self.key}: {self.operator} needs values")
        if self.operator in _BY_NUMBER and len(self.values) != 1:
            raise ModelError(f"{self.key}: {self.operator} needs one value")
        if self.operator not in (*_BY_VALUE, *_BY_NUMBER) and self.values:
            raise ModelError(f"{self.key}: {self.operator} takes no values")

    @property
    def comparable(self) -> bool:
        """``Gt`` and ``Lt`` have an integer to compare with; without one they match nothing."""
        return self.operator not in _BY_NUMBER or integer_of(self.values[0]) is not None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels satisfy the condition; ``NotIn`` holds where the label is absent."""
        value = labels.get(self.key)
        match self.operator:
            case SelectorOperator.IN:
                return value is not None and value in self.values
            case SelectorOperator.NOT_IN:
                return value is None or value not in self.values
            case SelectorOperator.EXISTS:
                return value is not None
            case SelectorOperator.DOES_NOT_EXIST:
                return value is None
            case SelectorOperator.GT | SelectorOperator.LT:
                left = None if value is None else integer_of(value)
                right = integer_of(self.values[0])
                if left is None or right is None:
                    return False
                return left > right if self.operator is SelectorOperator.GT else left < right


@record
class LabelSelector:
    """All requirements must hold; an empty selector matches everything.

    Parameters
    ----------
    match_labels
        Exact labels.
    requirements
        Further conditions.
    """

    match_labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    requirements: tuple[Requirement, ...] = ()

    __attrs_post_init__ = check_fields

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels satisfy every requirement."""
        # A generator costs as much again, and every pod is asked about.
        for key, value in self.match_labels.items():
            if key not in labels or labels[key] != value:
                return False
        return not self.requirements or all(one.matches(labels) for one in self.requirements)


EVERYTHING: Final = LabelSelector()
"""The empty selector."""

NOTHING: Final = LabelSelector(requirements=(Requirement("", SelectorOperator.EXISTS),))
"""What a selector that is absent means where Kubernetes says "matches no objects"."""


@record
class NodeSelectorTerm:
    """Conditions on a node's labels and fields, all of which must hold; an empty term matches nothing.

    Parameters
    ----------
    expressions
        Conditions on labels.
    fields
        Conditions on fields; Kubernetes knows only ``metadata.name``.
    """

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    __attrs_post_init__ = check_fields

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the node of that name and labels satisfies the term."""
        if not self.expressions and not self.fields:
            return False
        return all(one.matches(labels) for one in self.expressions) and all(
            one.matches({"metadata.name": name}) for one in self.fields
        )


@record
class NodeSelector:
    """One of the terms must hold; no terms match nothing."""

    terms: tuple[NodeSelectorTerm, ...] = ()

    __attrs_post_init__ = check_fields

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the node of that name and labels satisfies one of the terms."""
        return any(term.matches(name, labels) for term in self.terms)
