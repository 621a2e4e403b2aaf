"""Refusals by NUMA nodes in other words: one joint answer (ruling 5) names other resources and masks.

What may differ is the words of a node that its NUMA nodes refuse, and nothing else: no other reason, no count
of nodes, no sentence about evictions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from koordcore.model.pods import Pod
from tests.conformance.core import difference

__all__ = ["counts", "is_numa_word", "same_but_words", "worded_otherwise"]

_NAME: Final = r"[a-z0-9][A-Za-z0-9./-]*"
_HINT: Final = rf"{_NAME} prefer \[[01]*\] among \[[01 ]*\]"
_WORDS: Final = (
    rf"(?:Unsatisfied NUMA {_NAME}|Insufficient NUMA {_NAME}|Unaligned NUMA Hint cause {_HINT}(?:,{_HINT})*)"
)
_WORD: Final = re.compile(_WORDS)
_COUNTED: Final = re.compile(rf"(\d+) ((?:Reservation\(s\) for node reason that )?{_WORDS})(?=, |\.|$)")
_NAMED: Final = re.compile(rf"NUMA (?!Hint)({_NAME})|({_NAME}) prefer (\[[01]*\]) among (\[[01 ]*\])")
DEVICES: Final = {"gpu", "rdma", "fpga"}


def is_numa_word(reason: str, pod: Pod) -> bool:
    """Whether a reason is one that NUMA nodes give, about something that the pod asks for."""
    if not _WORD.fullmatch(reason):
        return False
    for amount, hint, prefer, among in _NAMED.findall(reason):
        if (amount or hint) not in {*pod.requests, *DEVICES}:
            return False
        if prefer and prefer.strip("[]") not in among.strip("[]").split(" "):
            return False
    return True


def counts(message: str) -> Counter[str]:
    """Count the reasons of a FailedScheduling text."""
    parts = message.partition("available: ")[2].removesuffix(".").split(", ")
    found: Counter[str] = Counter()
    for part in parts:
        number, _, reason = part.partition(" ")
        found[reason if number.isdigit() else part] += int(number) if number.isdigit() else 1
    return found


def worded_otherwise(pod: Pod, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two cycles laid open differ in the words of nodes alone that NUMA nodes refuse in both."""
    moved: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    for node, other in theirs.get("filter", {}).items():
        own = mine.get("filter", {}).get(node)
        if own is None or not difference(other, own):
            continue
        same = all(own.get(key) == other.get(key) for key in ("code", "plugin"))
        if not same or other.get("plugin") != "NodeNUMAResource" or set(own) != set(other):
            return False
        if not all(is_numa_word(reason, pod) for reason in (*own["reasons"], *other["reasons"])):
            return False
        moved.append((own, other))
    if not moved:
        return False
    told = counts(theirs.get("message", ""))
    for own, other in moved:
        told.subtract(other["reasons"])
        told.update(own["reasons"])
    if "message" in theirs and +told != counts(mine.get("message", "")):
        return False
    left, right = (
        {key: one for key, one in step.items() if key not in ("filter", "message")} for step in (theirs, mine)
    )
    return not difference(left, right)


def same_but_words(pod: Pod, nodes: int, mine: Any, theirs: Any) -> bool:
    """Whether two steps differ in such words alone, of so many nodes at most that our NUMA nodes refuse."""
    if not _numa_counts_fit(pod, nodes, str(mine.get("message", ""))):
        return False
    if not _numa_counts_fit(pod, nodes, str(theirs.get("message", ""))):
        return False
    return mine != theirs and not difference(_without_words(theirs), _without_words(mine))


def _numa_counts_fit(pod: Pod, nodes: int, message: str) -> bool:
    """Whether a text says of at least one node, and of no more than these, what NUMA nodes say."""
    found = {reason: number for reason, number in counts(message).items() if _WORD.fullmatch(reason)}
    if not found or not all(is_numa_word(reason, pod) for reason in found):
        return False
    hints = sum(number for reason, number in found.items() if reason.startswith("Unaligned"))
    amounts = max(
        (number for reason, number in found.items() if not reason.startswith("Unaligned")), default=0
    )
    return hints + amounts <= nodes


def _without_words(value: Any) -> Any:
    """Take the counted words of NUMA nodes out of every text."""
    if isinstance(value, str):
        return ", ".join(part for part in _split(value) if part)
    if isinstance(value, Mapping):
        return {key: _without_words(one) for key, one in value.items()}
    return [_without_words(one) for one in value] if isinstance(value, list) else value


def _split(text: str) -> Iterable[str]:
    head, mark, rest = text.partition("available: ")
    if mark:
        yield head
        text = rest
    yield from (part for part in text.removesuffix(".").split(", ") if not _COUNTED.fullmatch(part))
