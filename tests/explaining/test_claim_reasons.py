"""What a pod is told whose claims no device satisfies."""

from __future__ import annotations

import attrs
import pytest

from koordcore import explain
from koordcore.model.device_slices import DeviceTaint, ResourceSlice
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_claims import GPU, TEMPLATES, cluster, gpus, pod

TAINT = DeviceTaint(key="xid", value="79", effect="NoSchedule")


def with_slice(changed: ResourceSlice) -> ClusterSnapshot:
    known = cluster({"a": 0}, pending=[pod("p", "two")])
    records = [GPU, *TEMPLATES, changed]
    return ClusterSnapshot(nodes=[one.node for one in known.nodes], pending=known.pending, records=records)


def tainted() -> ResourceSlice:
    one, other = gpus("a", 2).devices
    return attrs.evolve(gpus("a", 2), devices=(attrs.evolve(one, taints=(TAINT,)), other))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            tainted(),
            "1 of 2 devices can be had (1 suit: 1 with taints that it does not tolerate: xid=79:NoSchedule)",
        ),
        (
            attrs.evolve(gpus("a", 2), slice_count=2),
            "(none suits); slices of gpu.example.com/a are missing or contradict each other",
        ),
    ],
)
def test_what_keeps_devices_from_a_request_is_named(changed: ResourceSlice, told: str) -> None:
    explained = explain(with_slice(changed), "default/p")
    lines = [line for one in explained.help for line in one.details]
    assert any(line.endswith(told) for line in lines), lines
