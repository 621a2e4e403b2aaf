"""Cases that still come out differently for no reason that a ruling gives; the runner shows them as wrong.

They stand in ``open_cases.json``, one line a case with what differs, and the list may only shrink:
a case that passes again has to leave it. ``python -m tests.conformance --prune`` takes out those that pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

__all__ = ["AWAITED", "OPEN", "prune"]

LIST: Final = Path(__file__).with_name("open_cases.json")
OPEN: Final[Mapping[str, Mapping[str, str]]] = json.loads(LIST.read_text(encoding="utf-8"))
"""Subject to case to what differs."""

AWAITED: Final = ("dra.*", "podgroup.*")
"""Subjects that may be without an adapter."""


def prune(passed: Iterable[tuple[str, str]]) -> int:
    """Take cases that pass out of the list, given as pairs of subject and id; return how many stood there."""
    done = set(passed)
    left = {
        subject: {name: why for name, why in listed.items() if (subject, name) not in done}
        for subject, listed in OPEN.items()
    }
    write(left)
    return sum(map(len, OPEN.values())) - sum(map(len, left.values()))


def write(listed: Mapping[str, Mapping[str, str]]) -> None:
    """Write the list in its order: subjects and cases by name, one line a case."""
    sorted_ = {
        subject: dict(sorted(listed[subject].items())) for subject in sorted(listed) if listed[subject]
    }
    LIST.write_text(json.dumps(sorted_, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
