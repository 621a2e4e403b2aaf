"""The page of a large cluster: how long it takes to write, and how much it weighs."""

from __future__ import annotations

from koordcore import report
from koordcore.snapshot import ClusterSnapshot
from tests.reporting.clusters import large


class Page:
    """1000 nodes of 8 cards, 10,000 pods in 100 workloads."""

    def setup(self) -> None:
        self.snapshot: ClusterSnapshot = large()
        report(self.snapshot)

    def time_report(self) -> None:
        report(self.snapshot)

    def track_bytes(self) -> int:
        return len(report(self.snapshot).encode())
