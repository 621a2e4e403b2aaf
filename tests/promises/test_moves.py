"""Moves: every limit and selector of the descheduler holds, what binds is named, amounts go by meaning."""

from __future__ import annotations

from typing import Any

import pytest

from tests.promises.door import KOORD, Door, Object, card, device, held, node, obj, pod

WHEN = "2026-01-01T00:00:00Z"


def owned(name: str, on: str, owner: str = "web", **parts: Any) -> Object:
    reference: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": owner,
        "uid": owner,
        "controller": True,
    }
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    asks = parts.pop("asks", {"cpu": 2})
    return pod(name, asks, on=on, meta={"ownerReferences": [reference]}, status=ready, **parts)


def replicas(name: str, number: int) -> Object:
    spec = {"replicas": number, "selector": {"matchLabels": {"app": name}}}
    return obj("ReplicaSet", name, namespace="default", meta={"uid": name}, spec=spec)


def metric(name: str, used: str, pods: dict[str, str]) -> Object:
    own = [
        {"name": one, "namespace": "default", "podUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}
        for one, cpu in pods.items()
    ]
    usage = {"nodeUsage": {"resources": {"cpu": used, "memory": "8Gi"}}}
    return obj("NodeMetric", name, status={"updateTime": WHEN, "nodeMetric": usage, "podsMetric": own})


def warm(scheduler: str = "koord-scheduler") -> list[Object]:
    """A node at 28 of 32 CPUs by seven pods, each of 4, beside two that idle; four may leave by half."""
    pods = [owned(f"w{one}", "hot", scheduler=scheduler) for one in range(7)]
    labels = {"hot": "x", "cool": "x", "calm": "y"}
    machines = [node(name, labels={"pool": pool}) for name, pool in labels.items()]
    usage = metric("hot", "28", {f"w{one}": "4" for one in range(7)})
    return [*machines, replicas("web", 7), *pods, usage, metric("cool", "1", {}), metric("calm", "1", {})]


HALF = {"maxMigratingPerWorkload": "50%", "maxUnavailablePerWorkload": "50%"}


@pytest.mark.parametrize(
    ("setting", "moves", "why"),
    [
        ({}, 2, "ReplicaSet default/web lets 2 of 7 move"),
        (HALF, 3, "ReplicaSet default/web lets 3 of 7 move"),
        (
            {**HALF, "objectLimiters": {"workload": {"duration": "1m", "maxMigrating": 1}}},
            1,
            "objectLimiters",
        ),
        ({**HALF, "objectLimiters": {"namespace": {"duration": "1m", "maxMigrating": 2}}}, 2, "of default"),
        ({**HALF, "maxNoOfPodsToEvictTotal": 1}, 1, "maxNoOfPodsToEvictTotal lets 1 of 7 move"),
        ({**HALF, "maxNoOfPodsToEvictPerNode": 2}, 2, "maxNoOfPodsToEvictPerNode of hot lets 2 of 7"),
        ({**HALF, "maxNoOfPodsToEvictPerNamespace": 0}, 0, "maxNoOfPodsToEvictPerNamespace of default"),
        ({**HALF, "nodeSelector": "pool=y"}, 0, "nodeSelector lets 0 of 7 move"),
        ({**HALF, "nodeSelector": "pool in (x, z)"}, 3, "lets 3 of 7 move"),
        ({**HALF, "schedulerNames": ["volcano"]}, 0, "schedulerNames lets 0 of 7 move"),
        ({**HALF, "schedulerNames": ["volcano"], "defaultJobMode": "EvictDirectly"}, 3, "lets 3"),
        ({**HALF, "namespaces": {"exclude": ["default"]}}, 0, "no pod on it may be evicted"),
        ({**HALF, "labelSelector": {"matchLabels": {"app": "other"}}}, 0, "no pod on it may be evicted"),
    ],
)
def test_every_limit_of_migration_holds_and_the_one_that_binds_is_named(
    door: Door, setting: Object, moves: int, why: str
) -> None:
    limits = door.file({"kind": "MigrationControllerArgs", **setting})
    words = ("rebalance", door.file(warm()), "--high", "cpu=40", "--migration", limits, "-o", "json")
    done = door.ask(*words).json
    assert len(done["moves"]) == moves
    assert why in "; ".join(done["why"]["hot"])
    if setting.get("nodeSelector") == "pool in (x, z)":
        assert {one["to"] for one in done["moves"]} == {"cool"}


@pytest.mark.parametrize("pool", ["x", "y"])
def test_the_descheduler_looks_at_the_nodes_that_its_configuration_selects(door: Door, pool: str) -> None:
    cooling = {"highThresholds": {"cpu": 40}, "lowThresholds": {"cpu": 20}}
    whole = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "nodeSelector": {"matchLabels": {"pool": pool}},
        "profiles": [{"name": "p", "pluginConfig": [{"name": "LowNodeLoad", "args": cooling}]}],
    }
    words = ("rebalance", door.file(warm()), "--args", door.file(whole), "-o", "json")
    done = door.ask(*words)
    assert "nodeSelector" not in done.err
    assert len(done.json["moves"]) == (2 if pool == "x" else 0)


def test_pods_of_any_scheduler_move_where_nobody_says_whose(door: Door) -> None:
    done = door.ask("rebalance", door.file(warm("default-scheduler")), "--high", "cpu=40", "-o", "json")
    assert len(done.json["moves"]) == 2


def test_a_node_that_cannot_be_cooled_is_relieved_and_says_what_is_lacking(door: Door) -> None:
    told = door.ask("rebalance", door.file(warm()), "--high", "cpu=40").out
    assert "still hot: hot" in told
    assert "proven: no plan cools more with fewer moves" in told
    full = [one for one in warm() if one["metadata"]["name"] not in ("cool", "calm")]
    told = door.ask("rebalance", door.file(full), "--high", "cpu=40").out
    assert "no other node takes pods" in told
    assert "proven: no plan cools more" in told


def shelf(name: str, busy: int) -> list[Object]:
    """Four cards under every name they have, some of them held by single-card pods."""
    amounts = {"nvidia.com/gpu": "4", KOORD + "gpu": "400"}
    asks = {KOORD + "gpu-core": 100, KOORD + "gpu-memory-ratio": 100}
    pods = [owned(f"{name}{one}", name, asks=asks, annotations=held(one)) for one in range(busy)]
    return [node(name, amounts=amounts), device(name, *map(card, range(4))), *pods]


@pytest.mark.parametrize(
    "want",
    [
        "nvidia.com/gpu=4",
        "koordinator.sh/gpu=400",
        "koordinator.sh/gpu-core=400,koordinator.sh/gpu-memory-ratio=400",
        "kubernetes.io/gpu-core=400,kubernetes.io/gpu-memory-ratio=400",
        "cpu=8,nvidia.com/gpu=4",
    ],
)
def test_room_for_cards_goes_by_what_is_meant(door: Door, want: str) -> None:
    dump = door.file(shelf("a", 1), shelf("b", 3), shelf("c", 3), replicas("web", 30))
    done = door.ask("defrag", dump, "--want", want, "-o", "json").json
    assert [one["pod"] for one in done["moves"]] == ["default/a0"]
    assert done["missing"] == 0


@pytest.mark.parametrize(
    ("want", "words"),
    [
        ("nvidia.com/gpus=4", "did you mean nvidia.com/gpu?"),
        ("koordinator.sh/gpu-core=400", "invalid resource device requests"),
        ("koordinator.sh/gpu=150", "invalid resource unit"),
    ],
)
def test_shapes_that_can_never_be_are_refused_with_the_reason(door: Door, want: str, words: str) -> None:
    told = door.ask("defrag", door.file(shelf("a", 1)), "--want", want)
    assert told.code == 2
    assert words in told.err


def test_waiting_jobs_are_arbitrated(door: Door) -> None:
    jobs = [
        obj(
            "PodMigrationJob",
            f"j{one}",
            version="scheduling.koordinator.sh/v1alpha1",
            meta={"creationTimestamp": WHEN, "uid": f"j{one}"},
            spec={"podRef": {"namespace": "default", "name": f"w{one}"}},
            status={"phase": "Pending"},
        )
        for one in range(4)
    ]
    limits = door.file({"maxMigratingPerNode": 1, **HALF})
    told = door.ask("rebalance", door.file(warm(), jobs), "--jobs", "--migration", limits, "-o", "json").json
    assert sum(one["outcome"] == "passes" for one in told["jobs"]) == 1
