"""Arithmetic of overcommit on pairs of cpu and memory, exact, in upstream's order of operations.

An :class:`Amounts` counts nano-cores and nano-bytes. Only three steps round: reading milli-cores or bytes
(up, away from zero), multiplying with a ratio (a float product of the rounded number, cut towards zero),
and dividing among NUMA nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore._record import record
from koordcore.model.quantity import NANO
from koordcore.model.resources import CPU, MEMORY

MILLI_CORE: Final = 1_000_000
"""Nano-cores of one milli-core."""


def ceil_divide(amount: int, step: int) -> int:
    """Divide and round away from zero, as ``Quantity.ScaledValue`` does.

    Examples
    --------
    >>> ceil_divide(7, 2), ceil_divide(-7, 2)
    (4, -4)
    """
    return -(-amount // step) if amount >= 0 else amount // step


def milli_up(nano_cores: int) -> int:
    """Milli-cores, rounded up."""
    return ceil_divide(nano_cores, MILLI_CORE)


def bytes_up(nano_bytes: int) -> int:
    """Bytes, rounded up."""
    return ceil_divide(nano_bytes, NANO)


def gigabytes(nano_bytes: int) -> int:
    """Decimal gigabytes, rounded up, as messages show memory."""
    return ceil_divide(nano_bytes, NANO * NANO)


def scaled_cpu(nano_cores: int, ratio: float) -> int:
    """Nano-cores of a ratio of cpu: the float product of whole milli-cores, cut towards zero."""
    return int(float(milli_up(nano_cores)) * ratio) * MILLI_CORE


def scaled_memory(nano_bytes: int, ratio: float) -> int:
    """Nano-bytes of a ratio of memory: the float product of whole bytes, cut towards zero."""
    return int(float(bytes_up(nano_bytes)) * ratio) * NANO


def format_ratio(ratio: float) -> str:
    """Write a ratio in its shortest form, as Go's ``%v`` does.

    Examples
    --------
    >>> format_ratio(1.0), format_ratio(0.07), format_ratio(1e-5)
    ('1', '0.07', '1e-05')
    """
    text = repr(float(ratio))
    return text.removesuffix(".0")


@record
class Amounts:
    """Cpu in nano-cores and memory in nano-bytes."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu - other.cpu, self.memory - other.memory)

    def maximum(self, other: Amounts) -> Amounts:
        """Larger of each."""
        return Amounts(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def minimum(self, other: Amounts) -> Amounts:
        """Smaller of each."""
        return Amounts(min(self.cpu, other.cpu), min(self.memory, other.memory))

    def clamped(self) -> Amounts:
        """Neither below zero."""
        return self.maximum(NO_AMOUNTS)


NO_AMOUNTS: Final = Amounts()


def amounts_of(measured: Mapping[str, int]) -> Amounts:
    """Take cpu and memory out of exact amounts by name; what is absent is zero."""
    return Amounts(measured.get(CPU, 0), measured.get(MEMORY, 0))
