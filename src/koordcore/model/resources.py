"""Amounts of resources as exact integers.

One convention for the whole library: ``cpu`` in milli-CPU, everything else in its own unit (``memory`` and
storage in bytes, ``koordinator.sh/gpu-core`` and ratios in percent points, ``kubernetes.io/batch-cpu`` in
milli-CPU as upstream counts it, devices and pods in pieces).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore._blame import shown
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.model.quantity import Scale, format_quantity, parse_quantity

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
BATCH_CPU: Final = "kubernetes.io/batch-cpu"
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"
DEPRECATED_BATCH_NAMES: Final = {
    "koordinator.sh/batch-cpu": BATCH_CPU,
    "koordinator.sh/batch-memory": BATCH_MEMORY,
}
"""Names of v0.7 to those that count."""
MID_CPU: Final = "kubernetes.io/mid-cpu"
MID_MEMORY: Final = "kubernetes.io/mid-memory"

AMOUNT_LIMIT: Final = 2**53
"""Largest amount in a column; a hundred times that still fits int64, and float64 holds it exactly."""
HELD_LIMIT: Final = AMOUNT_LIMIT >> 7
"""Largest amount of one that is on a node: a hundred of them together still fit a column."""

Resources: TypeAlias = immutabledict[str, int]
"""Resource name to amount; a name that is absent is zero unless the place says otherwise."""

NO_RESOURCES: Final[Resources] = immutabledict()


def make_resources(amounts: Mapping[str, int] | Iterable[tuple[str, int]]) -> Resources:
    """Freeze amounts, sorted by name so that equal contents are equal in every respect.

    Raises
    ------
    ModelError
        When an amount is not an integer.
    """
    if type(amounts) is immutabledict:
        return amounts  # frozen by an earlier call
    try:
        pairs = sorted(dict(amounts).items())
    except (TypeError, ValueError):
        raise ModelError(f"expected amounts by resource, got {shown(amounts)}") from None
    for name, amount in pairs:
        if type(amount) is not int or type(name) is not str:
            raise ModelError(f"{name}: expected int, got {shown(amount)}")
    return _shared(tuple(pairs))


def frozen_amounts(amounts: Mapping[str, int]) -> Resources:
    """Freeze amounts for a field; what are none stays as it is: the record's own check names the field."""
    try:
        return make_resources(amounts)
    except ModelError:
        return amounts  # type: ignore[return-value]  # it is wrong


@lru_cache(maxsize=16_384)
def _shared(pairs: tuple[tuple[str, int], ...]) -> Resources:
    """Give one object for equal amounts: most pods of a cluster ask for what others ask for."""
    return immutabledict(pairs)


_NATIVE: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})


@lru_cache(maxsize=4096)
def counted(name: str) -> bool:
    """Tell whether the scheduler keeps account of a resource.

    These are cpu, memory, ephemeral-storage and pods, and every name that Kubernetes calls scalar: one with a
    domain (``nvidia.com/gpu``), huge pages, and attachable volumes. A bare unknown name is ignored, as is one
    that starts with ``requests.``, which only quotas use.
    """
    if name in _NATIVE or name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name:
        return True
    return "/" in name and not name.startswith("requests.")


def scale_of(name: str) -> Scale:
    """Tell the scale in which a resource is counted: thousandths for ``cpu``, units for the rest."""
    return Scale.MILLI if name == CPU else Scale.UNIT


def parse_amount(name: str, value: object) -> int:
    """Read an amount of one resource.

    Raises
    ------
    ManifestError
        When it is no quantity.
    """
    return parse_quantity(value, scale=scale_of(name))  # type: ignore[arg-type]  # checked inside


def parse_resources(raw: Mapping[str, object]) -> Resources:
    """Read a Kubernetes resource list.

    Raises
    ------
    ManifestError
        Names every entry that is no quantity.
    """
    amounts: dict[str, int] = {}
    problems: list[Problem] = []
    for name, text in raw.items():
        try:
            amounts[name] = parse_amount(name, text)
        except ManifestError as error:
            problems.extend(error.within(f"[{name}]").problems)
    if problems:
        raise ManifestError(problems)
    return make_resources(amounts)


def parse_countable(raw: Mapping[str, object]) -> Resources:
    """Read a Kubernetes resource list of amounts that columns hold.

    Raises
    ------
    ManifestError
        Names an entry that is no quantity, negative, or more than ``AMOUNT_LIMIT``.
    """
    amounts = parse_resources(raw)
    for name, amount in amounts.items():
        if amount < 0:
            raise ManifestError.at(f"[{name}]", f"must not be negative, got {amount}")
        if amount > AMOUNT_LIMIT:
            raise ManifestError.at(f"[{name}]", f"{amount} is more than can be counted, {AMOUNT_LIMIT}")
    return amounts


def format_resources(resources: Mapping[str, int]) -> dict[str, str]:
    """Write amounts as a Kubernetes resource list, sorted by name."""
    return {
        name: format_quantity(
            amount, scale=scale_of(name), binary=name.endswith(("memory", "storage")) or "hugepages" in name
        )
        for name, amount in sorted(resources.items())
    }


def add(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Sum by name."""
    return make_resources({name: left.get(name, 0) + right.get(name, 0) for name in {*left, *right}})


def subtract(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Difference by name over all names of both; may be negative."""
    return make_resources({name: left.get(name, 0) - right.get(name, 0) for name in {*left, *right}})


def maximum(left: Mapping[str, int], right: Mapping[str, int]) -> Resources:
    """Larger amount by name."""
    names = {*left, *right}
    return make_resources({name: max(left.get(name, 0), right.get(name, 0)) for name in names})


def total(parts: Iterable[Mapping[str, int]]) -> Resources:
    """Sum of many, by name."""
    amounts: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            amounts[name] = amounts.get(name, 0) + amount
    return make_resources(amounts)


def fits(request: Mapping[str, int], free: Mapping[str, int]) -> bool:
    """Tell whether every positive amount asked for is there."""
    return all(amount <= free.get(name, 0) for name, amount in request.items() if amount > 0)


def is_scalar(name: str) -> bool:
    """Tell whether a resource is neither CPU, memory nor storage."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
