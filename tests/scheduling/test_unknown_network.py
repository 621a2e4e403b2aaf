"""A started gang in a dump that does not tell the network: only what it demands keeps members out."""

from __future__ import annotations

import json

import pytest

from koordcore import ClusterSnapshot, Node, Pod, PodGroup, schedule, verify

LABEL = "pod-group.scheduling.sigs.k8s.io"
SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"


@pytest.mark.parametrize(
    ("rule", "running", "placed"),
    [
        ({"layer": "SpineLayer", "strategy": "MustGather"}, 2, False),
        ({"layer": "SpineLayer", "podCountMultiple": 2}, 2, False),
        ({"layer": "SpineLayer", "strategy": "PreferGather"}, 2, True),
        ({"layer": "NodeTopologyLayer", "strategy": "MustGather"}, 2, True),
        ({"layer": "SpineLayer", "strategy": "PreferGather"}, 0, False),
    ],
)
def test_a_replacement_waits_only_for_what_is_demanded(
    rule: dict[str, object], running: int, placed: bool
) -> None:
    notes = {SPEC: json.dumps({"gatherStrategy": [rule]})}
    group = PodGroup(namespace="default", name="g", min_member=2, annotations=notes)
    pods = [Pod(name=f"m{row}", labels={LABEL: "g"}, requests={"cpu": 1000}) for row in range(running + 2)]
    there = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 9000, "pods": 9})], pending=pods[running:], records=[group]
    ).assume(*(pod.at("n") for pod in pods[:running]))
    result = schedule(there)
    assert bool(result.bound) is placed
    assert verify(there, result) == ()
    if not placed:
        assert all("no cluster network topology" in one.message for one in result.decisions)  # type: ignore[union-attr]
