"""What a snapshot keeps beside nodes and pods, whatever it is."""

from __future__ import annotations

from typing import Protocol


class ClusterRecord(Protocol):
    """Anything that a snapshot keeps beside nodes and pods: a frozen record with a name."""

    @property
    def namespace(self) -> str:
        """Namespace, empty for objects of the whole cluster."""

    @property
    def name(self) -> str:
        """Unique among the records of its type and namespace."""
