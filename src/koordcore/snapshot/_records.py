"""What several steps come to for the records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from koordcore.snapshot.changes import RecordKey, record_key

if TYPE_CHECKING:
    from koordcore._line import Delta, RecordPair


def net_records(deltas: Iterable[Delta]) -> list[RecordPair]:
    """Give each record that is not the same object after some steps, before and after."""
    records: dict[RecordKey, RecordPair] = {}
    for delta in deltas:
        for pair in delta.records:
            one = pair[0] if pair[1] is None else pair[1]
            assert one is not None  # a pair says something
            key = record_key(one)
            records[key] = (records[key][0] if key in records else pair[0], pair[1])
    return [pair for pair in records.values() if pair[0] is not pair[1]]
