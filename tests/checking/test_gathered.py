"""Gangs whose rules are about nodes alone need no network to be gathered in."""

from __future__ import annotations

import json

import pytest

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify

SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
NODES = [Node(name=name, allocatable={"cpu": 4_000, "pods": 10}) for name in ("a", "b")]


def member(name: str, gang: str, strategy: str, **more: str) -> Pod:
    rules = {"gatherStrategy": [{"layer": "NodeTopologyLayer", "strategy": strategy}]}
    said = {
        "gang.scheduling.koordinator.sh/name": gang,
        "gang.scheduling.koordinator.sh/min-available": "1",
        **({SPEC: json.dumps(rules)} if strategy else {}),
    }
    return Pod(name=name, requests={"cpu": 1_000}, annotations={**said, **more})


@pytest.mark.parametrize("strategy", ["PreferGather", "MustGather"])
def test_gangs_gathered_on_nodes_need_no_network(strategy: str) -> None:
    pods = [member("p0", "g", strategy), member("p1", "g", strategy)]
    snapshot = ClusterSnapshot(nodes=NODES, pending=pods)
    result = schedule(snapshot)
    assert len(result.bound) == 2
    assert verify(snapshot, result) == ()


def test_nor_do_groups_of_gangs_of_which_one_has_such_rules() -> None:
    group = {"gang.scheduling.koordinator.sh/groups": '["default/g", "default/h"]'}
    pods = [member("p0", "g", "PreferGather", **group), member("p1", "h", "", **group)]
    snapshot = ClusterSnapshot(nodes=NODES, pending=pods)
    result = schedule(snapshot)
    assert len(result.bound) == 2
    assert verify(snapshot, result) == ()
