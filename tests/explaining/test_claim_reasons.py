"""What a pod is told whose claims no device satisfies."""

from __future__ import annotations

import attrs
import pytest

from koordcore import explain
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceConstraint,
    DeviceSubRequest,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import DeviceTaint, ResourceSlice
from koordcore.model.records import ClusterRecord
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_claims import GPU, TEMPLATES, cluster, gpus, pod

TAINT = DeviceTaint(key="xid", value="79", effect="NoSchedule")


def with_slice(changed: ResourceSlice) -> ClusterSnapshot:
    known = cluster({"a": 0}, pending=[pod("p", "two")])
    records: list[ClusterRecord] = [GPU, *TEMPLATES, changed]
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


def test_devices_without_an_attribute_that_must_agree_are_told() -> None:
    both = tuple(ClaimRequest(name, (DeviceSubRequest(class_name="gpu"),)) for name in ("one", "other"))
    rule = DeviceConstraint(("one", "other"), match_attribute="gpu.example.com/root")
    template = ResourceClaimTemplate(name="alike", spec=ClaimSpec(both, (rule,)))
    explained = explain(cluster({"a": 2}, template, pending=[pod("p", "alike")]), "default/p")
    lines = [line for one in explained.help for line in one.details]
    assert len(lines) == 2
    assert all(
        one.endswith("0 of 1 devices can be had (2 suit: 2 without gpu.example.com/root)") for one in lines
    )
