"""A snapshot lends: configuration, table, waterfalls, and batch pods that find room."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.colocation.cluster import (
    config_of_snapshot,
    latest_report,
    lend,
    lending,
    lending_table,
)
from koordcore.colocation.columns import compile_loads, compile_strategies, lend_cluster
from koordcore.colocation.config import completed_config
from koordcore.colocation.sync import NodeResource
from koordcore.colocation.waterfall import explain_node, render_waterfalls
from koordcore.colocation.zones import ZoneResource, ZoneStatus, update_zones
from koordcore.errors import ManifestError, ModelError
from koordcore.model.cluster import ConfigMap
from koordcore.model.colocation import ColocationConfig, ColocationStrategy, NodeLoad, PodLoad
from koordcore.model.durations import MINUTE, SECOND
from koordcore.model.metrics import HostApplicationMetric, NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node, NodeState
from koordcore.model.numa import NodeResourceTopology, NUMANodeResource
from koordcore.model.pods import Pod, PodPhase
from koordcore.model.quantity import NANO
from koordcore.snapshot import ClusterSnapshot

NOW = 1_800_000_000 * SECOND
GIB = 2**30
ON = completed_config(ColocationConfig(ColocationStrategy(enable=True)))
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"


def prod(name: str, cpu: int, gib: int) -> Pod:
    return Pod(
        name=name,
        node_name="n1",
        phase=PodPhase.RUNNING,
        priority=9500,
        requests={"cpu": cpu, "memory": gib * GIB},
    )


def metric(node: str = "n1", *, age: int = 1) -> NodeMetric:
    return NodeMetric(
        node=node,
        update_time=NOW - age * MINUTE,
        node_usage=measured_of({"cpu": 10_000, "memory": 40 * GIB}),
        system_usage=measured_of({"cpu": 2_000, "memory": 10 * GIB}),
        pods=(
            PodMetric(
                namespace="default",
                name="web",
                priority="koord-prod",
                usage=measured_of({"cpu": 8_000, "memory": 30 * GIB}),
            ),
        ),
        prod_reclaimable=measured_of({"cpu": 5_000, "memory": 20 * GIB}),
    )


def node(**fields: object) -> Node:
    amounts = {"cpu": 100_000, "memory": 400 * GIB, "pods": 110}
    return Node(name="n1", allocatable=amounts, capacity=amounts, **fields)  # type: ignore[arg-type]  # as above


def cluster(*records: object, state: Node | None = None) -> ClusterSnapshot:
    return ClusterSnapshot(
        nodes=(NodeState(state or node(), (prod("web", 20_000, 60),)),),
        records=(metric(), *records),  # type: ignore[arg-type]  # records of several types
    )


def test_a_node_offers_what_prod_does_not_use() -> None:
    lent = lend(cluster(), ON, now=NOW).node("n1").node.allocatable
    # 100 - 40 margin - 2 system - 8 used; 400 - 140 - 10 - 30; mid is what prod will not use.
    assert lent[BATCH_CPU] == 50_000
    assert lent[BATCH_MEMORY] == 220 * GIB
    assert lent[MID_CPU] == 5_000
    assert lent["cpu"] == 100_000


def test_capacity_and_the_origin_annotation_follow() -> None:
    changed = lend(cluster(state=node(annotations={"x": "y"})), ON, now=NOW).node("n1").node
    assert changed.capacity[BATCH_CPU] == 50_000
    origin = json.loads(changed.annotations["node.koordinator.sh/originExtendedAllocatable"])
    assert origin["resources"][BATCH_CPU] == "50k"


def test_lending_twice_is_lending_once() -> None:
    once = lend(cluster(), ON, now=NOW)
    assert lend(once, ON, now=NOW) == once


def test_what_was_lent_is_withdrawn_when_the_report_is_too_old() -> None:
    lent = lend(cluster(), ON, now=NOW)
    later = lend(lent, ON, now=NOW + 20 * MINUTE).node("n1").node.allocatable
    assert BATCH_CPU not in later
    assert MID_CPU not in later


def test_nothing_is_lent_by_default() -> None:
    snapshot = cluster()
    assert config_of_snapshot(snapshot) == ColocationConfig()
    assert BATCH_CPU not in lend(snapshot, ColocationConfig(), now=NOW).node("n1").node.allocatable
    row = lending_table(snapshot, ColocationConfig(), now=NOW).rows[0]
    assert (row.batch, row.batch_note) == ((0, 0), "colocation is off")


def config_map(text: str) -> ConfigMap:
    data = {"colocation-config": text}
    return ConfigMap("slo-controller-config", "koordinator-system", data)


def test_the_config_map_of_the_snapshot_decides() -> None:
    snapshot = cluster(config_map('{"enable":true,"cpuReclaimThresholdPercent":70}'))
    config = config_of_snapshot(snapshot)
    assert lend(snapshot, config, now=NOW).node("n1").node.allocatable[BATCH_CPU] == 60_000


@pytest.mark.parametrize("text", ["{", '{"degradeTimeMinutes":0}'])
def test_a_config_map_that_cannot_be_used_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(ManifestError, match="koordinator-system/slo-controller-config"):
        config_of_snapshot(cluster(config_map(text)))


def test_a_stored_ratio_amplifies_batch_cpu_only() -> None:
    notes = {"node.koordinator.sh/cpu-normalization-ratio": "1.20"}
    lent = lend(cluster(state=node(annotations=notes)), ON, now=NOW).node("n1").node.allocatable
    assert (lent[BATCH_CPU], lent[MID_CPU]) == (60_000, 5_000)


def test_an_amplified_node_keeps_back_what_its_kubelet_does() -> None:
    capacity = {"cpu": 100_000, "memory": 400 * GIB}
    own = attrs.evolve(node(), allocatable={"cpu": 90_000, "memory": 380 * GIB}, capacity=capacity)
    notes = {
        "node.koordinator.sh/resource-amplification-ratio": '{"cpu":2.00}',
        "node.koordinator.sh/raw-allocatable": '{"cpu":"90","memory":"380Gi"}',
    }
    shown = attrs.evolve(own, allocatable={**own.allocatable, "cpu": 180_000}, annotations=notes)
    plain, amplified = (lending_table(cluster(state=one), ON, now=NOW).rows[0] for one in (own, shown))
    assert plain.taken == (10_000, 20 * GIB)
    assert amplified == plain
    assert explain_node(cluster(state=shown), ON, "n1", now=NOW)[0].steps[3].amount == -10_000


def test_third_parties_keep_what_they_hold() -> None:
    yarn = {"name": "yarn", "priority": "koord-batch", "resources": {BATCH_CPU: "1k"}}
    notes = {"node.koordinator.sh/thirdPartyAllocations": json.dumps({"allocations": [yarn]})}
    assert (
        lend(cluster(state=node(annotations=notes)), ON, now=NOW).node("n1").node.allocatable[BATCH_CPU]
        == 49_000
    )


def test_numa_nodes_share_what_is_lent_and_forget_what_was() -> None:
    half = {"cpu": 50_000, "memory": 200 * GIB}
    topology = NodeResourceTopology(
        name="n1",
        zones=tuple(NUMANodeResource(index, half) for index in range(2)),
    )
    snapshot = cluster(topology)
    lent = lend(snapshot, ON, now=NOW)
    zones = lent.find(NodeResourceTopology, "n1")
    assert zones is not None
    assert [zone.resources[BATCH_CPU] for zone in zones.zones] == [25_000, 25_000]
    assert sum(zone.resources[BATCH_MEMORY] for zone in zones.zones) == 220 * GIB
    gone = lend(lent, ON, now=NOW + 20 * MINUTE).find(NodeResourceTopology, "n1")
    assert gone is not None
    assert [zone.resources[BATCH_CPU] for zone in gone.zones] == [0, 0]


def test_a_node_made_by_hand_without_capacity_lends_from_its_allocatable() -> None:
    bare = Node(name="n1", allocatable={"cpu": 100_000, "memory": 400 * GIB})
    lent = lend(cluster(state=bare), ON, now=NOW)
    assert lent.node("n1").node.allocatable[BATCH_CPU] == 50_000
    assert lend(lent, ON, now=NOW) == lent


def test_the_table_adds_up() -> None:
    table = lending_table(cluster(), ON, now=NOW)
    row = table.rows[0]
    for index in range(2):
        assert (
            row.batch[index] == row.capacity[index] - row.margin[index] - row.taken[index] - row.pods[index]
        )
    assert table.total.batch == row.batch


def test_the_steps_of_a_waterfall_add_up_to_what_is_lent() -> None:
    for one in explain_node(cluster(), ON, "n1", now=NOW):
        assert sum(step.amount for step in one.steps if not step.detail) == one.lent == one.published


def test_the_text_names_every_step() -> None:
    text = render_waterfalls(explain_node(cluster(), ON, "n1", now=NOW))
    for word in ("capacity", "safety margin", "system usage", "reclaimable from prod", "= lent"):
        assert word in text
    off = render_waterfalls(explain_node(cluster(), ColocationConfig(), "n1", now=NOW))
    assert "colocation is off" in off


def test_the_newest_report_is_the_natural_now() -> None:
    assert latest_report(cluster()) == NOW - MINUTE
    assert latest_report(ClusterSnapshot()) is None


@pytest.mark.parametrize(("year", "stale"), [(1, True), (1900, True), (9999, False)])
def test_reports_of_any_year_are_old_or_not(year: int, stale: bool) -> None:
    moment = (year - 1970) * 365 * 24 * 60 * MINUTE
    there = cluster().with_records(attrs.evolve(metric(), update_time=moment))
    row = lending_table(there, ON, now=NOW).rows[0]
    assert (row.batch_note != "") == stale
    assert (row.batch[0] == 0) == stale


@pytest.mark.parametrize("memory", [2**63, 10**16])
def test_columns_refuse_what_could_overflow(memory: int) -> None:
    load = NodeLoad(name="n1", capacity=measured_of({"memory": memory}))
    with pytest.raises(ModelError, match="too large for a column"):
        compile_loads([load])


def test_columns_refuse_pods_whose_sum_overflows() -> None:
    pods = tuple(
        PodLoad(namespace="d", name=f"p{index}", request=measured_of({"memory": 9 * 10**12}))
        for index in range(300)
    )
    with pytest.raises(ModelError, match="add up to more"):
        compile_loads([NodeLoad(name="n1", pods=pods)])


def test_no_nodes_lend_nothing() -> None:
    lending = lend_cluster(compile_loads([]), compile_strategies([], enabled=[]), NOW)
    assert lending.names == ()
    assert lending.batch.shape == (2, 0)


def test_a_zone_amount_may_be_a_fraction() -> None:
    split = NodeResource(zone_resources=immutabledict({"node-0": immutabledict({BATCH_MEMORY: NANO // 2})}))
    before = ZoneStatus("node-0", (ZoneResource("memory", 1, 1, 1),))
    after = update_zones((before,), split, ON.strategy, last_update=NOW, now=NOW)
    assert after.zones[0].resources[0] == ZoneResource(BATCH_MEMORY, NANO // 2, NANO // 2, NANO // 2)


HUGE = measured_of({"cpu": 5 * 2**30 * 1000, "memory": GIB})
"""More than nine million cores."""


def uncounted(*, pods: tuple[Pod, ...] = (), cpu: int = 4000, **said: Any) -> ClusterSnapshot:
    """The cluster of two nodes, the second of which says something absurd."""
    bad = Node(name="n2", allocatable={"cpu": cpu, "memory": GIB})
    there = cluster().with_nodes(NodeState(bad, pods))
    return there.with_records(attrs.evolve(metric("n2"), **said)) if said else there


METRIC = "NodeMetric n2: status."


@pytest.mark.parametrize(
    ("snapshot", "place"),
    [
        (uncounted(node_usage=HUGE), f"{METRIC}nodeMetric.nodeUsage.resources.cpu: "),
        (uncounted(system_usage=HUGE), f"{METRIC}nodeMetric.systemUsage.resources.cpu: "),
        (uncounted(prod_reclaimable=HUGE), f"{METRIC}prodReclaimableMetric.resource.resources.cpu: "),
        (
            uncounted(
                host_applications=(HostApplicationMetric(name="h", priority="koord-prod", usage=HUGE),)
            ),
            f"{METRIC}hostApplicationMetric[0].usage.resources.cpu: ",
        ),
        (uncounted(cpu=2**43), "Node n2: status.capacity.cpu: "),
        (
            uncounted(pods=(attrs.evolve(prod("big", 2**43, 1), node_name="n2"),)),
            "Pod default/big: requests.cpu: ",
        ),
    ],
    ids=["usage", "system", "reclaimable", "host", "capacity", "pod"],
)
def test_an_absurd_amount_hurts_its_node_alone(snapshot: ClusterSnapshot, place: str) -> None:
    before, after = (lending_table(one, ON, now=NOW) for one in (cluster(), snapshot))
    kept, bad = after.rows
    assert kept == before.rows[0]
    assert (bad.batch, bad.mid) == ((0, 0), (0, 0))
    assert bad.batch_note == bad.mid_note == after.problems["n2"]
    assert bad.batch_note.startswith(f"{place}an amount is too large for a column")
    assert lending(snapshot, ON, now=NOW).problems == after.problems
    there = lend(snapshot, ON, now=NOW)
    assert there.node("n1") == lend(cluster(), ON, now=NOW).node("n1")
    assert there.node("n2").node.allocatable.get(BATCH_CPU, 0) == 0
