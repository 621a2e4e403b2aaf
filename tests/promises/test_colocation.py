"""What nodes lend, how their CPUs are multiplied, and what agents set for each pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.door import KOORD, NODE, SCHED, Door, Object, node, obj, pod

NOW = "2026-01-01T00:00:00Z"
RATIO, RAW = NODE + "resource-amplification-ratio", NODE + "raw-allocatable"
ROOM = {"cpu": "16", "memory": "64Gi"}


def settings(**data: Any) -> Object:
    texts = {key.replace("_", "-"): json.dumps(one) for key, one in data.items()}
    on = {"colocation-config": json.dumps({"enable": True})}
    return obj("ConfigMap", "slo-controller-config", namespace="koordinator-system", data={**on, **texts})


def report(name: str) -> Object:
    used = {"resources": {"cpu": "2", "memory": "4Gi"}}
    status = {"updateTime": NOW, "nodeMetric": {"nodeUsage": used, "systemUsage": used}}
    return obj("NodeMetric", name, status=status)


def hardware(name: str, model: str = "Chip 9", *, threads: bool = True) -> Object:
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // 8} for cpu in range(16)]
    info = {"cpuModel": model, "hyperThreadEnabled": threads, "turboEnabled": False}
    said = {NODE + "cpu-topology": {"detail": detail}, NODE + "cpu-basic-info": info}
    return obj("NodeResourceTopology", name, annotations=said)


@pytest.mark.parametrize("late", [False, True])
def test_batch_pods_are_placed_on_what_is_lent_unless_the_report_is_old(door: Door, late: bool) -> None:
    asks = {"kubernetes.io/batch-cpu": 3000, "kubernetes.io/batch-memory": "1Gi"}
    batch = pod("b", asks, labels={KOORD + "qosClass": "BE"}, priority=5500)
    cluster = [node("n", amounts=ROOM), settings(), report("n"), batch]
    assert not door.schedule(cluster).bound
    now = "2026-01-01T06:00:00Z" if late else NOW
    done = door.schedule(cluster, say=("--lend", "--now", now))
    assert done.node_of("b") == ("" if late else "n")


NORMAL = {"cpu_normalization_config": {"enable": True, "ratioModel": {
    "Chip 9": {"baseRatio": 2.0, "hyperThreadEnabledRatio": 1.25},
}}}  # fmt: skip
AMPLE = {"resource_amplification_config": {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}}}


@pytest.mark.parametrize(
    ("said", "cpus"),
    [({}, 16), (NORMAL, 20), (AMPLE, 24), ({**NORMAL, **AMPLE}, 30)],
)
def test_cpus_are_multiplied_as_manager_and_webhook_would(
    door: Door, said: dict[str, Any], cpus: int
) -> None:
    cluster = [node("n", amounts=ROOM), hardware("n"), settings(**said), report("n")]

    def fits(size: int, *words: str) -> bool:
        return bool(door.schedule(cluster, pod("p", {"cpu": size}), say=words).bound)

    assert fits(cpus, "--lend")
    assert not fits(cpus + 1, "--lend")
    if said:
        assert not fits(cpus)
        plain = door.ask("schedule", door.file(cluster))
        assert "no node carries a ratio; without --lend CPU and memory count as they stand" in plain.err


def test_a_ratio_on_a_node_counts_with_lend_and_once(door: Door) -> None:
    bare = node("n", amounts=ROOM, annotations={RATIO: '{"cpu":1.50}'})
    done = door.schedule(bare, pod("p", {"cpu": 24}))
    assert not done.bound
    assert "raw-allocatable beside it" in done.err
    assert door.schedule(bare, pod("p", {"cpu": 24}), say=("--lend", "--now", NOW)).bound
    raw = {"cpu": "16", "memory": "64Gi"}
    live = node("n", amounts={**ROOM, "cpu": "24"}, annotations={RATIO: '{"cpu":1.50}', RAW: raw})
    for words in ((), ("--lend", "--now", NOW)):
        done = door.schedule(live, pod("p", {"cpu": 24}), say=words)
        assert done.bound
        assert not door.schedule(live, pod("p", {"cpu": 25}), say=words).bound
        # CPUs that a pod has for itself cost it their ratio.
        asks = {SCHED + "resource-spec": {"preferredCPUBindPolicy": "FullPCPUs"}}
        own = pod("own", {"cpu": 8}, labels={KOORD + "qosClass": "LSR"}, priority=9500, annotations=asks)
        both = door.schedule(live, hardware("n"), own, pod("p", {"cpu": 13}), say=words)
        assert list(both.bound) == ["own"]
    off = settings(resource_amplification_config={"enable": False})
    done = door.schedule(live, off, pod("p", {"cpu": 17}), say=("--lend", "--now", NOW))
    assert not done.bound


@pytest.mark.parametrize("ratios", [{}, {"cpu": 1.0}, {"memory": 1.25}])
def test_an_amount_that_is_multiplied_no_more_counts_as_the_kubelet_reports_it(
    door: Door, ratios: dict[str, float]
) -> None:
    raw = {"cpu": "16", "memory": "64Gi"}
    notes = {RATIO: '{"cpu":1.50}', RAW: raw}
    live = node("n", amounts={**ROOM, "cpu": "24"}, annotations=notes)
    lower = settings(resource_amplification_config={"enable": True, "resourceAmplificationRatio": ratios})
    for cpus in (16, 17):
        done = door.schedule(live, lower, pod("p", {"cpu": cpus}), say=("--lend", "--now", NOW))
        assert bool(done.bound) == (cpus == 16)


def test_a_cpu_that_is_not_known_is_not_multiplied_and_named(door: Door) -> None:
    cluster = [node("n", amounts=ROOM), hardware("n", "Chip 10"), settings(**NORMAL), report("n")]
    done = door.schedule(cluster, pod("p", {"cpu": 16}), say=("--lend",))
    assert done.bound
    assert "Node n is not amplified as configured" in done.err
    assert "Chip 10" in done.err


def test_a_cpu_that_is_not_known_is_multiplied_by_what_else_is_configured(door: Door) -> None:
    cluster = [node("n", amounts=ROOM), hardware("n", "Chip 10"), settings(**NORMAL, **AMPLE), report("n")]
    for cpus in (24, 25):
        done = door.schedule(cluster, pod("p", {"cpu": cpus}), say=("--lend",))
        assert bool(done.bound) == (cpus == 24)
        assert "Node n is not amplified as configured: " in done.err


@pytest.mark.parametrize("said", [{}, NORMAL, AMPLE, {**NORMAL, **AMPLE}])
def test_what_nodes_lend_is_one_answer_in_tables_and_patches(door: Door, said: dict[str, Any]) -> None:
    dump = door.file(node("n", amounts=ROOM), hardware("n"), settings(**said), report("n"))
    patches = door.ask("colocation", dump, "-o", "patches")
    (sent,) = [one["body"]["status"]["allocatable"] for one in patches.lines if "/status" in one["path"]]
    amount = int(sent["kubernetes.io/batch-cpu"])
    table = door.ask("colocation", dump, "-o", "json")
    assert json.loads(table.out)["nodes"][0]["batch"][0] == amount
    steps = door.ask("colocation", dump, "--node", "n", "-o", "json")
    assert json.loads(steps.out)["waterfalls"][0]["published"] == amount
    assert amount == (9500 if NORMAL.items() <= said.items() else 7600)
    for done in (patches, table, steps, door.ask("schedule", dump, "--lend")):
        assert "--lend" not in done.err


def test_a_node_whose_cpu_is_not_known_is_named_beside_what_it_lends(door: Door) -> None:
    dump = door.file(node("n", amounts=ROOM), hardware("n", "Chip 10"), settings(**NORMAL), report("n"))
    for words in ((), ("-o", "patches"), ("--node", "n")):
        assert "warning: Node n is not amplified as configured: " in door.ask("colocation", dump, *words).err


def test_patches_say_what_manager_and_agents_write(door: Door) -> None:
    limits = {NODE + "resctrl": {"llc": {"schemata": {"range": [0, 50]}}}}
    runs = pod("r", {"cpu": 1}, on="n", annotations=limits)
    dump = door.file(node("n", amounts=ROOM), hardware("n"), settings(**AMPLE), report("n"), runs)
    calls = door.ask("colocation", dump, "-o", "patches").lines
    notes = calls[0]["body"]["metadata"]["annotations"]
    assert notes[RATIO] == '{"cpu":1.50}'
    assert notes[RAW] == '{"cpu":"16","memory":"64Gi"}'
    assert calls[1]["body"]["status"]["allocatable"]["cpu"] == "24"
    assert calls[-1]["path"].endswith("/pods/r")
