"""One thing that would help pods that wait."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from koordcore._record import record
from koordcore.model.pods import PodKey


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
    """Write an amount of a resource as people say it."""
    if name == "cpu":
        return f"{value / 1000:g} cpu"
    if name == "memory" or name.endswith(("memory", "storage")):
        return f"{value / 2**30:g}Gi {name.rpartition('/')[2]}"
    return f"{value} {name}"
