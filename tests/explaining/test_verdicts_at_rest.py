"""Nobody writes out what is said of every node before somebody looks at it."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Node, Pod, PodKey, explain
from koordcore.explaining.verdicts import NodeVerdict, NodeVerdicts


def test_an_explanation_writes_out_the_verdicts_that_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [Node(name=f"n{number}", allocatable={"cpu": 1000 * number, "pods": 9}) for number in range(9)]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[Pod(name="p", requests={"cpu": 3000})])
    written = list[int]()
    write = NodeVerdicts._at

    def writing(verdicts: NodeVerdicts, row: int) -> NodeVerdict:
        written.append(row)
        return write(verdicts, row)

    monkeypatch.setattr(NodeVerdicts, "_at", writing)
    told = explain(snapshot, PodKey("default", "p"))
    assert (told.best, written) == ("n8", [])
    assert told.verdicts[0].node == "n8"
    assert written == [8]
