"""Misspelt wishes for gathering are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.manifests import snapshot_from_objects

SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
NETWORK = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "ClusterNetworkTopology",
    "metadata": {"name": "default"},
    "spec": {
        "networkTopologySpec": [
            {"labelKey": ["rack"], "topologyLayer": "RackLayer"},
            {"parentTopologyLayer": "RackLayer", "topologyLayer": "NodeTopologyLayer"},
        ]
    },
}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"layer": "RackLayer", "strategy": "Mustgather"}, 'got "Mustgather"; PreferGather is taken'),
        ({"layer": "Rak", "strategy": "MustGather"}, 'no layer "Rak" is declared'),
        ({"layer": "RackLayer", "podCountMultiple": -2}, "podCountMultiple: -2 does not bind"),
    ],
)
def test_a_misspelt_wish_is_told(rule: dict[str, Any], told: str) -> None:
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": {SPEC: json.dumps({"gatherStrategy": [rule]})}},
        "spec": {"minMember": 1},
    }
    assert any(told in one.message for one in snapshot_from_objects([NETWORK, group]).warnings)
