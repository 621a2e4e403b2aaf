"""Quantities as they were written: exact to the nano unit, with their notation.

The model counts in integers of fixed scales, which is all that a decision needs. What admission webhooks
compare and print is finer: ``1500001u`` exceeds ``1500m``, and a sum is printed in the notation of its first
operand. This module has that arithmetic, after ``k8s.io/apimachinery/pkg/api/resource`` and
``k8s.io/apiserver/pkg/quota/v1``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, Problem
from koordcore.model.quantity import INT64_MAX
from koordcore.model.resources import CPU, MEMORY, Resources, make_resources
from koordcore.protocol.fields import Json, as_list, as_mapping, show

_NANO: Final = 10**9
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX_OF: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,4})?\Z",
    re.ASCII,
)
_MAX_LENGTH: Final = 64
_MAX_EXPONENT: Final = 40


class Notation(StrEnum):
    """How an amount is written: powers of ten by letters, powers of two by letters, or an exponent."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@record
class ExactQuantity:
    """One amount of anything.

    Parameters
    ----------
    nano
        The amount in units of 10**-9; upstream keeps nothing finer.
    notation
        How it was written and is printed.
    """

    nano: int
    notation: Notation = Notation.DECIMAL_SI

    def __add__(self, other: ExactQuantity) -> ExactQuantity:
        notation = other.notation if self.nano == 0 else self.notation
        return ExactQuantity(self.nano + other.nano, notation)

    def __sub__(self, other: ExactQuantity) -> ExactQuantity:
        notation = other.notation if self.nano == 0 else self.notation
        return ExactQuantity(self.nano - other.nano, notation)

    def __neg__(self) -> ExactQuantity:
        return ExactQuantity(-self.nano, self.notation)

    def amount(self, name: str) -> int:
        """Count it in the model's units (milli for ``cpu``), away from zero and without a cap."""
        step = _NANO // 1000 if name == CPU else _NANO
        whole = -(-abs(self.nano) // step)
        return whole if self.nano >= 0 else -whole

    def __str__(self) -> str:
        if (
            self.notation is Notation.BINARY_SI
            and self.nano % _NANO == 0
            and not -1024 < self.nano // _NANO < 1024
        ):
            return _print_binary(self.nano // _NANO)
        return _print_decimal(self.nano, self.notation)


def _print_binary(value: int) -> str:
    suffix = ""
    for text, bits in _BINARY.items():
        if value % (1 << bits):
            break
        suffix = text
    return f"{value >> _BINARY[suffix] if suffix else value}{suffix}"


def _print_decimal(nano: int, notation: Notation) -> str:
    exponent = -9
    while nano and nano % 1000 == 0 and exponent < 18:
        nano, exponent = nano // 1000, exponent + 3
    if nano == 0:
        exponent = 0
    if notation is Notation.DECIMAL_EXPONENT:
        return f"{nano}e{exponent}" if exponent else str(nano)
    return f"{nano}{_SUFFIX_OF[exponent]}"


def parse_exact(raw: Json) -> ExactQuantity:
    """Read a quantity from its text, or from a plain JSON number.

    Digits below nano round away from zero; an amount with a binary suffix is capped at 2**63 - 1, others
    are not.

    Raises
    ------
    ManifestError
        When it is no quantity.

    Examples
    --------
    >>> str(parse_exact("1500000u")), str(parse_exact("2048Mi")), parse_exact("0.1m").amount("cpu")
    ('1500m', '2Gi', 1)
    """
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise ManifestError.at("", f"expected a quantity, got {show(raw)}")
    text = raw if isinstance(raw, str) else repr(raw)
    match = _QUANTITY.match(text) if len(text) <= _MAX_LENGTH else None
    if match is None or not (match["whole"] or match["part"]):
        raise ManifestError.at("", f"expected a quantity, got {show(text)}")
    part, suffix = match["part"] or "", match["suffix"] or ""
    digits = int((match["whole"] + part) or "0") * _NANO
    denominator: int = 10 ** len(part)
    notation = Notation.DECIMAL_SI
    if suffix in _BINARY:
        notation = Notation.BINARY_SI
        digits <<= _BINARY[suffix]
    elif suffix in _DECIMAL:
        digits, denominator = _scaled(digits, denominator, _DECIMAL[suffix])
    else:
        notation = Notation.DECIMAL_EXPONENT
        digits, denominator = _scaled(digits, denominator, int(suffix[1:]))
    nano = -(-digits // denominator)
    if notation is Notation.BINARY_SI:
        nano = min(nano, INT64_MAX * _NANO)
    return ExactQuantity(-nano if match["sign"] == "-" else nano, notation)


def _scaled(digits: int, denominator: int, exponent: int) -> tuple[int, int]:
    exponent = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, exponent))
    if exponent >= 0:
        return digits * 10**exponent, denominator
    return digits, denominator * 10**-exponent


ExactList: TypeAlias = immutabledict[str, ExactQuantity]
"""Resource name to exact amount, sorted by name; what a missing name means depends on the operation."""


def exact_list(pairs: Mapping[str, ExactQuantity]) -> ExactList:
    """Freeze a resource list in the order of its names."""
    return immutabledict(sorted(pairs.items()))


def exact_of(amounts: Mapping[str, int]) -> ExactList:
    """Give integer amounts the notation of computed ones: memory in powers of two, the rest of ten."""
    return exact_list(
        {
            name: ExactQuantity(
                amount * (_NANO // 1000 if name == CPU else _NANO),
                Notation.BINARY_SI if name == MEMORY else Notation.DECIMAL_SI,
            )
            for name, amount in amounts.items()
        }
    )


def parse_exact_list(raw: Json) -> ExactList:
    """Read a resource list; ``null`` is an empty list, and as an amount it is zero.

    Raises
    ------
    ManifestError
        Names every entry that is no quantity.
    """
    if raw is None:
        return immutabledict()
    amounts: dict[str, ExactQuantity] = {}
    problems: list[Problem] = []
    for name, value in as_mapping(raw).items():
        try:
            amounts[name] = ExactQuantity(0) if value is None else parse_exact(value)
        except ManifestError as error:
            problems.extend(error.within(f"[{name}]").problems)
    if problems:
        raise ManifestError(problems)
    return exact_list(amounts)


def amounts_of(exact: Mapping[str, ExactQuantity]) -> Resources:
    """Count every amount in the model's units."""
    return make_resources({name: quantity.amount(name) for name, quantity in exact.items()})


def add_lists(left: Mapping[str, ExactQuantity], right: Mapping[str, ExactQuantity]) -> ExactList:
    """Sum over the names of both."""
    result = dict(left)
    for name, quantity in right.items():
        result[name] = result[name] + quantity if name in result else quantity
    return exact_list(result)


def subtract_lists(left: Mapping[str, ExactQuantity], right: Mapping[str, ExactQuantity]) -> ExactList:
    """Difference over the names of both; a name of the right side alone comes out negative."""
    result = dict(left)
    for name, quantity in right.items():
        result[name] = result[name] - quantity if name in result else -quantity
    return exact_list(result)


def maximum_list(left: Mapping[str, ExactQuantity], right: Mapping[str, ExactQuantity]) -> ExactList:
    """Larger amount by name; a name that one side lacks comes from the other."""
    result = dict(left)
    for name, quantity in right.items():
        if name not in result or quantity.nano > result[name].nano:
            result[name] = quantity
    return exact_list(result)


def masked(exact: Mapping[str, ExactQuantity], names: Collection[str]) -> ExactList:
    """Keep the given names only."""
    return exact_list({name: quantity for name, quantity in exact.items() if name in names})


def exceeded_names(
    amounts: Mapping[str, ExactQuantity], limit: Mapping[str, ExactQuantity]
) -> tuple[str, ...]:
    """Names in which amounts exceed the limit, sorted; a name that the limit lacks is unlimited."""
    return tuple(
        sorted(
            name for name, quantity in amounts.items() if name in limit and quantity.nano > limit[name].nano
        )
    )


def negative_names(exact: Mapping[str, ExactQuantity]) -> tuple[str, ...]:
    """Names whose amount is below zero, sorted."""
    return tuple(sorted(name for name, quantity in exact.items() if quantity.nano < 0))


def print_list(exact: Mapping[str, object], *, between: str = ":", empty: str = "") -> str:
    """Print as ``cpu:1,memory:2Gi``, sorted by name.

    Parameters
    ----------
    exact
        Amounts by resource; texts are printed as they are.
    between
        What stands between a name and its amount.
    empty
        What is printed for no amounts.
    """
    return ",".join(f"{name}{between}{quantity}" for name, quantity in sorted(exact.items())) or empty


def wire_list(exact: Mapping[str, ExactQuantity]) -> dict[str, str]:
    """Write as a Kubernetes resource list."""
    return {name: str(quantity) for name, quantity in sorted(exact.items())}


def exact_pod_requests(pod: Mapping[str, Json], *, overhead: bool = True) -> ExactList:
    """Sum what a pod object asks for: the effective request of Kubernetes.

    App and sidecar containers add up; the peak of the init phase counts where it is higher; requests of
    the pod as a whole replace cpu, memory and hugepages; overhead comes on top unless it is left out.
    """
    spec = as_mapping(pod.get("spec") or {})
    steady: ExactList = immutabledict()
    for container in _containers(spec, "containers"):
        steady = add_lists(steady, container[0])
    sidecars: ExactList = immutabledict()
    peak: ExactList = immutabledict()
    for requests, restartable in _containers(spec, "initContainers"):
        if restartable:
            steady = add_lists(steady, requests)
            sidecars = add_lists(sidecars, requests)
            peak = maximum_list(peak, sidecars)
        else:
            peak = maximum_list(peak, add_lists(requests, sidecars))
    result = dict(maximum_list(steady, peak))
    whole = parse_exact_list(as_mapping(spec.get("resources") or {}).get("requests"))
    result.update(
        (name, quantity)
        for name, quantity in whole.items()
        if name in (CPU, MEMORY) or name.startswith("hugepages-")
    )
    if overhead:
        return add_lists(result, parse_exact_list(spec.get("overhead")))
    return exact_list(result)


def _containers(spec: Mapping[str, Json], key: str) -> Iterable[tuple[ExactList, bool]]:
    for raw in as_list(spec.get(key) or []):
        container = as_mapping(raw)
        requests = as_mapping(container.get("resources") or {}).get("requests")
        yield parse_exact_list(requests), container.get("restartPolicy") == "Always"
