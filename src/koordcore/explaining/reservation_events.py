"""Why no reservation served a pod: the reasons after a failed attempt, and the event on reservation level.

Specification sections 4.3 and 4.4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.quantity import INT64_MAX

MAX_EVENT_LENGTH: Final = 1024
"""Characters of an event; a longer text is cut and ends with `` ...``."""

_ON_RESERVATION: Final = "Reservation(s) "


@record(kw_only=True)
class ReservationCounts:
    """How the reservations of one node fared with a pod.

    Parameters
    ----------
    owner_matched
        Reservations whose owners include the pod.
    name_matched, name_unmatched, affinity_unmatched, is_unschedulable_unmatched, not_exact_matched
        What became of them.
    taints_unmatched
        Taint that the pod does not tolerate, as ``{key: value}``, to its number.
    node_reasons
        What the node's filters said.
    """

    owner_matched: int = 0
    name_matched: int = 0
    name_unmatched: int = 0
    affinity_unmatched: int = 0
    is_unschedulable_unmatched: int = 0
    not_exact_matched: int = 0
    taints_unmatched: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    node_reasons: tuple[str, ...] = ()

    def blamed_on_node(self) -> int:
        """Give how many of the reservations failed for what the node said, and not for themselves."""
        left = self.owner_matched - (
            self.name_unmatched
            + self.is_unschedulable_unmatched
            + self.affinity_unmatched
            + self.not_exact_matched
            + sum(self.taints_unmatched.values())
        )
        return left - sum(reason.startswith(_ON_RESERVATION) for reason in self.node_reasons)


def reservation_reasons(counts: Mapping[str, ReservationCounts], *, has_affinity: bool) -> tuple[str, ...]:
    """List why reservations did not serve a pod, as PostFilter appends it to the failure.

    Parameters
    ----------
    counts
        By node.
    has_affinity
        The pod must use a reservation.
    """
    nodes = counts.values()
    total = sum(one.owner_matched for one in nodes)
    if total <= 0 and not has_affinity:
        return ()
    taints: Counter[str] = Counter()
    blamed: Counter[str] = Counter()
    for one in nodes:
        taints.update(one.taints_unmatched)
        left = one.blamed_on_node()
        if left > 0:
            for reason in one.node_reasons:
                if not reason.startswith(_ON_RESERVATION):
                    blamed[reason] += left
    matched = [
        (sum(one.name_matched for one in nodes), "exactly matches the requested reservation name"),
        (sum(one.name_unmatched for one in nodes), "didn't match the requested reservation name"),
        (sum(one.affinity_unmatched for one in nodes), "didn't match affinity rules"),
        (sum(one.is_unschedulable_unmatched for one in nodes), "is unschedulable"),
        (sum(one.not_exact_matched for one in nodes), "is not exact matched"),
    ]
    tainted = [(number, f"had untolerated taint {taint}") for taint, number in taints.items()]
    by_node = [(number, f"for node reason that {reason}") for reason, number in blamed.items()]
    # Upstream's order within taints and within reasons is random; ours is that of the text.
    lines = [*_lines(matched), *sorted(_lines(tainted)), *sorted(_lines(by_node))]
    return (*lines, f"{total} {_ON_RESERVATION}matched owner total")


def _lines(items: Iterable[tuple[int, str]]) -> list[str]:
    return [f"{number} {_ON_RESERVATION}{text}" for number, text in items if number > 0]


_PREFIX: Final = re.compile(r"0/[0-9]+ nodes are available: ")
_TOTAL: Final = re.compile(r"([0-9]+) Reservation\(s\) matched owner total\Z")
_NODE_REASON: Final = re.compile(r"[0-9]+ Reservation\(s\) for node reason that ")
_EXACT_NAME: Final = re.compile(r"[0-9]+ Reservation\(s\) exactly matches the requested reservation name")
_OTHER: Final = re.compile(r"[0-9]+ Reservation\(s\) ")


def reservation_event(message: str) -> str | None:
    """Turn the text of a failed attempt into the event on the level of reservations.

    Parameters
    ----------
    message
        The whole text, as ``0/3 nodes are available: …``.

    Returns
    -------
    str or None
        At most as long as the note of an event; ``None`` where the text says nothing about reservations.

    Examples
    --------
    >>> reservation_event(
    ...     "0/3 nodes are available: 2 Reservation(s) is unschedulable. 2 Reservation(s) matched owner total"
    ... )
    '0/2 reservations are available: 2 Reservation(s) is unschedulable.'
    """
    message = message.strip()
    start = _PREFIX.match(message)
    if start is None:
        return None
    items = [item.strip(". ") for item in message[start.end() :].replace(". ", ", ").split(",")]
    totals = [int(found[1]) for found in map(_TOTAL.match, items) if found]
    if not totals or totals[-1] > INT64_MAX:
        return None
    lines = _in_order(item for item in items if not _TOTAL.match(item))
    return _truncated(f"0/{totals[-1]} reservations are available: {', '.join(lines)}.")


def _in_order(items: Iterable[str]) -> list[str]:
    """Keep what is about reservations: exact names first, what nodes said last."""
    exact: list[str] = []
    others: list[str] = []
    by_node: list[str] = []
    for item in items:
        if _NODE_REASON.match(item):
            by_node.append(item)
        elif _EXACT_NAME.match(item):
            exact.append(item)
        elif _OTHER.match(item):
            others.append(item)
    return [*exact, *others, *by_node]


def _truncated(message: str) -> str:
    """Cut a text to the length of an event."""
    if len(message) <= MAX_EVENT_LENGTH:
        return message
    return message[: MAX_EVENT_LENGTH - 4] + " ..."
