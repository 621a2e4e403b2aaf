"""Annotations by which a pod says what it holds.

On a pod that waits they are left over from a bind that failed, and hold nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.protocol.numa import ANNOTATION_RESOURCE_STATUS
from koordcore.protocol.reservation import RESERVATION_ALLOCATED

HOLDINGS: Final = frozenset(
    {
        DEVICE_ALLOCATED,
        ANNOTATION_RESOURCE_STATUS,
        RESERVATION_ALLOCATED,
        "alibabacloud.com/gpu-index",
    }
)
"""Keys that are written when a pod is bound."""


def stale_holdings(annotations: Mapping[str, str], written: Mapping[str, str]) -> tuple[str, ...]:
    """Name what a waiting pod says it holds and what a decision does not write anew."""
    if HOLDINGS.isdisjoint(annotations):
        return ()
    return tuple(sorted(key for key in HOLDINGS if key in annotations and key not in written))


def without(annotations: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """Give annotations without some keys."""
    gone = frozenset(keys)
    return {key: text for key, text in annotations.items() if key not in gone}
