"""Compiling, forking and scheduling, each with what it achieves beside what it costs."""

from __future__ import annotations

from benchmarks.clusters import FIT_AND_FOUR_SCORES, busy_cluster, empty_nodes, pod_stream
from koordcore import ClusterSnapshot, Pod, ScheduleResult, schedule, verify
from koordcore._arrays import compile_columns, compile_layout


def timeraw_import() -> str:
    """A fresh interpreter that imports the library."""
    return "import koordcore"


def timeraw_everyday_names() -> str:
    """A fresh interpreter that imports what most callers need: their records, and the function."""
    return "from koordcore import ClusterSnapshot, Node, Pod, schedule"


class Compile:
    """From frozen records to columns, 5000 nodes with ten pods each."""

    def setup(self) -> None:
        self.snapshot = busy_cluster(5000, 10)

    def time_columns(self) -> None:
        layout = compile_layout(self.snapshot.nodes)
        compile_columns(layout, self.snapshot.nodes)


class Fork:
    """One pod bound in a fork of 5000 nodes, columns derived."""

    def setup(self) -> None:
        self.snapshot = busy_cluster(5000, 10)
        self.pod = Pod(name="new", node_name="node-00042", requests={"cpu": 1000})
        _ = self.snapshot.columns, self.snapshot.location

    def time_assume(self) -> None:
        _ = self.snapshot.assume(self.pod).columns


class Stream:
    """10,000 pods on 5000 nodes: resources and four scores."""

    params = (40, 10_000)
    param_names = ("classes",)
    timeout = 300

    def setup(self, classes: int) -> None:
        self.pods = pod_stream(10_000, classes)
        self.snapshot = ClusterSnapshot(nodes=empty_nodes(5000), pending=self.pods)
        _ = self.snapshot.columns

    def _run(self) -> ScheduleResult:
        return schedule(self.snapshot, policy=FIT_AND_FOUR_SCORES)

    def time_schedule(self, classes: int) -> None:
        self._run()

    def track_placed(self, classes: int) -> int:
        result = self._run()
        assert verify(self.snapshot, result) == ()
        return len(result.bound)

    track_placed.unit = "pods"  # type: ignore[attr-defined]  # read by asv


class Memory:
    """10,000 nodes with 100,000 bound pods: peak memory of a process that holds the compiled snapshot."""

    def peakmem_snapshot(self) -> None:
        snapshot = busy_cluster(10_000, 10)
        assert snapshot.columns.requested.shape[1] == 10_000
