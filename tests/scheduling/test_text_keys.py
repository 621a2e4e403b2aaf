"""Pods may be named as text wherever they are asked about: ``namespace/name``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from koordcore import ClusterSnapshot, ModelError, Node, Pod, PodKey, backfill, earliest_start
from koordcore.scheduling.backfilling import EarliestStart
from koordcore.scheduling.serving import queue_starts

NOW = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def cluster() -> ClusterSnapshot:
    waiting = [Pod(name=name, requests={"cpu": 3000}) for name in ("first", "second")]
    node = Node(name="n", allocatable={"cpu": 4000, "pods": 9})
    return ClusterSnapshot(nodes=[node], pending=waiting).assume(
        Pod(name="runs", requests={"cpu": 2000}, node_name="n")
    )


def test_starts_are_the_same_whether_keys_or_texts_name_pods() -> None:
    snapshot, key = cluster(), PodKey("default", "runs")
    by_key = earliest_start(snapshot, [snapshot.pending[0]], {key: NOW + HOUR}, now=NOW)
    by_text = earliest_start(snapshot, ["first"], {"default/runs": NOW + HOUR}, now=NOW)
    assert isinstance(by_text, EarliestStart)
    assert by_text == by_key
    assert (by_text.start, by_text.waits_for) == (NOW + HOUR, (key,))
    between = backfill(snapshot, by_text, {"runs": NOW + HOUR}, {"default/second": HOUR}, now=NOW)
    assert between == backfill(
        snapshot, by_text, {key: NOW + HOUR}, {PodKey("default", "second"): HOUR}, now=NOW
    )
    starts = queue_starts(snapshot, {"default/runs": NOW + HOUR}, {"first": HOUR}, now=NOW)
    assert [(one.name, one.start) for one in starts] == [
        ("default/first", NOW + HOUR),
        ("default/second", NOW + 2 * HOUR),
    ]


@pytest.mark.parametrize(
    ("pods", "told"),
    [
        (["nobody"], "no pod nobody in the cluster"),
        ("first", r"pods: expected several of them, such as \['first'\]"),
        (PodKey("default", "first"), r"pods: expected several of them, such as \['default/first'\]"),
    ],
)
def test_a_pod_that_is_not_there_is_named(pods: list[str], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        earliest_start(cluster(), pods, {}, now=NOW)
