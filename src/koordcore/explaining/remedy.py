"""One thing that would help pods that wait."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from koordcore._record import record
from koordcore.model.pods import PodKey
from koordcore.model.quantity import format_quantity

_MIB: Final = 2**20
_GIB: Final = 2**30


class RemedyKind(StrEnum):
    """What a user can do, in the order of what it costs."""

    WAIT = "wait"
    COMPLETE = "complete the gang"
    TOLERATE = "tolerate"
    SELECT = "select"
    RELAX = "relax"
    UNCORDON = "uncordon"
    QUOTA = "quota"
    SHRINK = "ask for less"
    FEWER = "fewer members"
    MOVE = "move pods"
    EVICT = "evict"
    GROW = "more nodes"


@record(kw_only=True)
class Remedy:
    """One thing that helps, by itself: it was tried out.

    Parameters
    ----------
    kind
        What is to be done.
    text
        To what, in words.
    paste
        YAML for the pod, or a command; empty where there is nothing to copy.
    pods
        Who has to leave or to move, where somebody has to.
    until
        RFC 3339, where the time helps.
    """

    kind: RemedyKind
    text: str
    paste: str = ""
    pods: tuple[PodKey, ...] = ()
    until: str = ""


def some(names: Sequence[str], most: int = 3) -> str:
    """Name the first few, and say how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def shown_amount(name: str, value: int) -> str:
    """Write an amount of a resource as people say it; odd numbers of bytes to six digits."""
    if _in_bytes(name):
        return f"{value / _GIB:g}Gi {name.rpartition('/')[2]}"
    return exact_amount(name, value)


def exact_amount(name: str, value: int) -> str:
    """Write an amount so that who asks for just that asks for no less and no more.

    Examples
    --------
    >>> exact_amount("cpu", 1234567), exact_amount("memory", 3 * 2**29), exact_amount("memory", 7 * 10**9)
    ('1234.567 cpu', '1.5Gi memory', '7G memory')
    >>> exact_amount("memory", 2**30 + 2**20), exact_amount("nvidia.com/gpu", 8)
    ('1025Mi memory', '8 nvidia.com/gpu')
    """
    if name == "cpu":
        return f"{value / 1000:.3f}".rstrip("0").rstrip(".") + " cpu"
    if not _in_bytes(name):
        return f"{value} {name}"
    ways = [format_quantity(value, binary=True), format_quantity(value)]
    if value >= _GIB and value * 8 % _GIB == 0:
        ways.insert(0, f"{value / _GIB:.3f}".rstrip("0").rstrip(".") + "Gi")
    return f"{min(ways, key=len)} {name.rpartition('/')[2]}"


def told_apart(name: str, value: int, other: int) -> tuple[str, str]:
    """Write two amounts as people say them, exactly where they would look the same."""
    shown = shown_amount(name, value), shown_amount(name, other)
    if value != other and shown[0] == shown[1]:
        return exact_amount(name, value), exact_amount(name, other)
    return shown


def rounded_up(name: str, value: int) -> int:
    """Give the next amount that can be written exactly and briefly: at least so much."""
    step = _grid(name, value)
    return -(-value // step) * step


def rounded_down(name: str, value: int) -> int:
    """Give the last amount that can be written exactly and briefly: at most so much."""
    step = _grid(name, value)
    return value // step * step


def _in_bytes(name: str) -> bool:
    return name.endswith(("memory", "storage"))


def _grid(name: str, value: int) -> int:
    if not _in_bytes(name) or not value % _MIB or not value % 10**6 or value < _MIB:
        return 1
    return _MIB if value >= _GIB else 2**10
