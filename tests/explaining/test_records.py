"""Diagnosis, score table and views of a small cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest

from koordcore.errors import ModelError
from koordcore.explaining.diagnosis import diagnose
from koordcore.explaining.reservation_events import MAX_EVENT_LENGTH, reservation_event
from koordcore.explaining.views import (
    device_view,
    gang_view,
    load_view,
    node_view,
    numa_view,
    quota_view,
)
from koordcore.manifests import load
from koordcore.model.affinity import Taint
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reference.score_table import render_score_table, score_nodes

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GIB = 2**30
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml"


def cluster() -> ClusterSnapshot:
    room = {"cpu": 4000, "memory": 8 * GIB, "pods": 10}
    tainted = Node(name="c", allocatable=room, taints=(Taint("k", "v"),))
    busy = Pod(name="busy", requests={"cpu": 3000, "memory": GIB}, node_name="b", scheduled=NOW)
    metric = NodeMetric(
        node="b",
        update_time=int(NOW.timestamp()) * 10**9,
        node_usage=measured_of({"cpu": 2000}),
        pods=(
            PodMetric(
                namespace="default", name="busy", priority="koord-prod", usage=measured_of({"cpu": 500})
            ),
        ),
    )
    return ClusterSnapshot(
        nodes=[
            Node(name="a", allocatable=room),
            NodeState(Node(name="b", allocatable=room), (busy,)),
            tainted,
        ],
        records=[metric],
    )


def test_a_failed_attempt_is_recorded_by_reason() -> None:
    pod = Pod(name="big", requests={"cpu": 4500})
    record = diagnose(cluster(), pod, now=NOW, waiting=("a", "a")).to_json()
    assert record == {
        "timestamp": "2026-03-01T12:00:00Z",
        "questionedKey": "default/big",
        "isRootCausePod": True,
        "scheduleDiagnosis": {
            "alreadyWaitForBound": 2,
            "nodeOfferSlot": {"a": 2},
            "nodeFailedDetails": [
                {"failedPlugin": "NodeResourcesFit", "reason": "Insufficient cpu", "failedNodes": ["a", "b"]},
                {
                    "failedPlugin": "TaintToleration",
                    "reason": "node(s) had untolerated taint(s)",
                    "failedNodes": ["c"],
                },
            ],
        },
    }


def test_the_table_names_the_node_that_schedule_takes() -> None:
    snapshot, pod = cluster(), Pod(name="p", requests={"cpu": 500, "memory": GIB})
    scores = score_nodes(snapshot, pod, now=NOW)
    (bound,) = schedule(snapshot, [pod]).bound
    assert (scores[0].node, scores[0].total) == (bound.node, bound.score)
    table = render_score_table("default/p", scores, 1)
    assert table.splitlines()[0].startswith("| # | Pod | Node | Score | TaintToleration |")
    assert table.splitlines()[2].startswith(f"| 0 | default/p | {bound.node} | {bound.score} |")
    assert score_nodes(snapshot, attrs.evolve(pod, requests={"cpu": 9000})) == ()


def test_a_node_is_shown_with_what_is_left() -> None:
    view = node_view(cluster(), "b")
    assert view["pods"] == ["default/busy"]
    assert view["requested"] == {"cpu": "3", "memory": "1Gi", "pods": "1"}
    assert view["remaining"] == {"cpu": "1", "memory": "7Gi", "pods": "9"}
    with pytest.raises(ModelError, match="no node z"):
        node_view(cluster(), "z")


def test_load_is_shown_with_the_pods_that_it_comes_from() -> None:
    view = load_view(cluster(), "b", NOW)
    assert view["pods"] == [{"timestamp": "2026-03-01T12:00:00Z", "pod": "default/busy"}]
    assert view["prodUsage"] == {"cpu": "500m", "memory": "0"}
    assert view["nodeDelta"]["cpu"] == "2050m"  # 85 % of 3 cpu, less what is measured already
    assert view["nodeDeltaPods"] == view["prodDeltaPods"] == view["nodeEstimatedPods"] == ["default/busy"]


def test_a_long_event_is_cut() -> None:
    taints = ". ".join(f"1 Reservation(s) had untolerated taint {{t{one}: }}" for one in range(40))
    event = reservation_event(f"0/3 nodes are available: {taints}. 40 Reservation(s) matched owner total")
    assert event is not None
    assert len(event) == MAX_EVENT_LENGTH
    assert event.startswith("0/40 reservations are available: ")
    assert event.endswith(" ...")


def test_devices_quotas_gangs_and_cpus_are_shown_as_their_endpoints_do() -> None:
    snapshot = load([EXAMPLE]).snapshot
    devices = device_view(snapshot, "gpu-s1b1-1")
    assert devices["allocateSet"]["gpu"].keys() == {"default/llama-serve-1"}
    assert devices["deviceTotal"]["gpu"]["koordinator.sh/gpu-core"] == "800"
    assert devices["deviceFree"]["gpu"]["koordinator.sh/gpu-core"] == "400"
    assert devices["deviceUsedDetail"]["gpu"]["0"]["koordinator.sh/gpu-core"] == "100"
    assert device_view(snapshot, "cpu-1") == {}
    gangs = gang_view(snapshot)
    assert gangs["default/pretrain"]["minRequiredNumber"] == 3
    assert set(gangs["default/pretrain"]["children"]) == {f"default/pretrain-{index}" for index in range(3)}
    assert numa_view(snapshot, "cpu-1")["cpuTopology"]["numCPUs"] >= 0
    quota = ElasticQuota(name="team", max=make_resources({"cpu": 1000}))
    shown = quota_view(snapshot.with_records(quota))["team"]
    assert (shown["max"], shown["parentName"]) == ({"cpu": "1"}, "koordinator-root-quota")
