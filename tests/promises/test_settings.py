"""What a dump or a configuration says is done, or named as not done; bad texts hurt themselves alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.promises.door import KOORD, NODE, SCHED, Door, Object, node, obj, pod


def config(door: Door, profile: Object, **more: Any) -> str:
    one = obj("KubeSchedulerConfiguration", "", profiles=[profile], **more)
    del one["metadata"]
    return door.file(one)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (
            {"pluginConfig": [{"name": "LoadAwareScheduling", "args": {"usageThreshold": {}}}]},
            "usageThreshold",
        ),
        ({"pluginConfig": [{"name": "MyOwn", "args": {"a": 1}}]}, "pluginConfig[0].args"),
        (
            {
                "pluginConfig": [
                    {
                        "name": "NodeResourcesFit",
                        "args": {
                            "scoringStrategy": {
                                "type": "MostAllocated",
                                "resources": [{"name": "kubernetes.io/gpu-core", "weight": 1}],
                            }
                        },
                    }
                ]
            },
            "scoringStrategy.resources[0].name",
        ),
        ({"plugins": {"bind": {"enabled": [{"name": "DefaultBinder"}]}}}, "bind"),
        ({"plugins": {"multiPoint": {"enabled": [{"name": "Strange"}]}}}, "Strange"),
        ({"percentageOfNodesToScores": 3}, "percentageOfNodesToScores"),
    ],
)
def test_what_a_configuration_says_in_vain_is_a_finding_and_said_by_schedule(
    door: Door, profile: Object, words: str
) -> None:
    path = config(door, {"schedulerName": "default-scheduler", **profile})
    found = door.ask("policy", path, "-o", "json")
    assert words in found.out + found.err
    done = door.ask("schedule", door.file(node("n"), pod("p", {"cpu": 1})), "--policy", path)
    assert words in done.err


@pytest.mark.parametrize("value", [5, True, 1.5, None, ["a"], {"a": 1}])
@pytest.mark.parametrize("who", ["runs", "waits", "node", "reservation"])
def test_an_annotation_without_quotes_closes_nothing(door: Door, value: Any, who: str) -> None:
    odd: dict[str, Any] = {"meta": {"annotations": {"example.com/note": value}}}
    machine = node("n", **(odd if who == "node" else {}))
    others = {
        "runs": pod("odd", {"cpu": 1}, on="n", **odd),
        "waits": pod("odd", {"cpu": 1}, **odd),
        "reservation": obj("Reservation", "odd", spec={"template": {"spec": {"containers": []}}}, **odd),
    }
    done = door.ask("schedule", door.file(machine, others.get(who, []), pod("p", {"cpu": 1})), "-o", "json")
    assert done.node_of("p") == "n"
    if who == "waits":
        assert done.node_of("odd") == "n"
    assert ("taken as its JSON text" in done.err) == (value is not None)


@pytest.mark.parametrize("policy", ["None", "none", "Strange", "single-numa-node"])
@pytest.mark.parametrize("who", ["pod", "node"])
def test_a_numa_policy_that_is_none_is_told_as_it_acts(door: Door, policy: str, who: str) -> None:
    labels = {NODE + "numa-topology-policy": policy} if who == "node" else {}
    said = {SCHED + "numa-topology-spec": {"numaTopologyPolicy": policy}} if who == "pod" else {}
    done = door.schedule(node("n", labels=labels), pod("p", {"cpu": 1}, annotations=said))
    assert f'unknown NUMA topology policy "{policy}"' in done.why("p")
    assert f'"{policy}" is none of BestEffort, Restricted, SingleNUMANode; ' in done.err
    assert "takes" in done.err


@pytest.mark.parametrize("where", ["node", "topology"])
def test_cpus_that_a_node_keeps_for_itself_are_handed_to_nobody(door: Door, where: str) -> None:
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": 0} for cpu in range(8)]
    kept = {NODE + "reservation": {"reservedCPUs": "0-1,4"}}
    machine = node("n", amounts={"cpu": "8"}, annotations=kept if where == "node" else {})
    topology = obj(
        "NodeResourceTopology",
        "n",
        annotations={NODE + "cpu-topology": {"detail": detail}, **(kept if where == "topology" else {})},
    )
    wants = pod(
        "p",
        {"cpu": 4},
        labels={KOORD + "qosClass": "LSR"},
        priority=9500,
        annotations={SCHED + "resource-spec": {"preferredCPUBindPolicy": "SpreadByPCPUs"}},
    )
    text = door.schedule(machine, topology, wants).decision("p")["annotations"][SCHED + "resource-status"]
    given = text.split('"cpuset":"')[1].split('"')[0]
    taken: set[int] = set()
    for part in given.split(","):
        first, _, last = part.partition("-")
        taken.update(range(int(first), int(last or first) + 1))
    assert len(taken) == 4
    assert not taken & {0, 1, 4}


def test_objects_without_a_name_are_called_after_their_place(door: Door) -> None:
    machine = node("n")
    nameless: list[Object] = []
    for kind in ("Pod", "Reservation", "PodGroup"):
        one = pod("x", {"cpu": 1}) if kind == "Pod" else obj(kind, "x", spec={"template": {"spec": {}}})
        del one["metadata"]["name"]
        nameless.append(one)
    done = door.ask("schedule", door.file(machine, nameless), "-o", "json")
    assert list(done.bound) == ["dump-1-2"]
    assert done.err.count("metadata.name: none is there; the object is called") == 3


def test_shares_of_a_cache_beyond_all_of_it_are_told(door: Door) -> None:
    said = {
        NODE + "resctrl": {"llc": {"schemata": {"range": [0, 120]}}, "mb": {"schemata": {"percent": 130}}}
    }
    done = door.schedule(node("n"), pod("p", {"cpu": 1}, annotations=said))
    assert "goes beyond 100 %" in done.err
    assert "130 % is more than all of it" in done.err


def test_policies_are_taken_by_name_by_every_verb(door: Door) -> None:
    dump = door.file(node("n"), pod("p", {"cpu": 1}))
    for name in ("default", "stock", "koordinator", "binpack", "spread"):
        for words in (("schedule", dump), ("explain", "default/p", dump), ("policy", name)):
            said = () if words[0] == "policy" else ("--policy", name)
            assert door.ask(*words, *said).code in (0, 1)
    lost = door.ask("schedule", dump, "--policy", "binpak")
    assert lost.code == 2
    assert "binpack" in lost.err
