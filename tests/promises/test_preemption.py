"""Who leaves, and who leaves already: a second look preempts nobody more, whatever has happened since."""

from __future__ import annotations

import copy

import pytest

from tests.promises.door import GROUP, Door, Object, gang, node, obj, pod

FOUR = {"cpu": "4"}


def leaving(one: Object, reason: str | None) -> Object:
    """The pod on its way out, with the condition of whoever sent it."""
    gone = copy.deepcopy(one)
    gone["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30}
    if reason:
        told = {"type": "DisruptionTarget", "status": "True", "reason": reason}
        gone["status"]["conditions"] = [told]
    return gone


@pytest.mark.parametrize(
    "reason", [None, "PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager"]
)
def test_nobody_further_leaves_while_the_victims_are_still_there(door: Door, reason: str | None) -> None:
    machines = [node(name, amounts=FOUR) for name in "abcd"]
    waits = [
        pod(
            f"t{one}",
            {"cpu": 3},
            labels={GROUP: "train"},
            priority=10_000,
            status={"nominatedNodeName": "ab"[one]},
        )
        for one in range(2)
    ]
    victims = [leaving(pod(f"l{name}", {"cpu": 4}, on=name, priority=1), reason) for name in "ab"]
    others = [pod(f"o{name}", {"cpu": 4}, on=name, priority=500) for name in "cd"]
    dump = door.file(machines, gang("train", 2), waits, victims, others)
    plans = door.ask("schedule", dump, "--preempt", "-o", "json").json.get("preemptions", [])
    assert [one for plan in plans for one in plan["victims"]] == []
    if reason in ("PreemptionByScheduler", "EvictionByEvictionAPI"):
        told = door.ask("schedule", dump, "--preempt", "--expand").out
        assert "a: waits until default/la left" in told


def test_room_that_comes_free_anyhow_is_preferred_to_evictions(door: Door) -> None:
    pods = [
        leaving(pod("goes", {"cpu": 4}, on="b", priority=50), None),
        pod("stays", {"cpu": 4}, on="a", priority=1),
    ]
    dump = door.file([node(name, amounts=FOUR) for name in "ab"], pods, pod("w", {"cpu": 4}, priority=100))
    (plan,) = door.ask("schedule", dump, "--preempt", "-o", "json").json["preemptions"]
    assert not plan["victims"]
    assert list(plan["nominations"].values()) == ["b"]


def test_whoever_applies_the_patches_evicts_once(door: Door) -> None:
    machine, low = node("n", amounts=FOUR), pod("low", {"cpu": 4}, on="n", priority=1)
    high = pod("high", {"cpu": 4}, priority=100)
    dump = door.file(machine, low, high)
    now = ("--now", "2026-01-01T00:00:00Z")
    told, evicted, nominated = door.ask("schedule", dump, "--preempt", "-o", "patches", *now).lines
    assert told["body"]["status"]["conditions"][0]["reason"] == "PreemptionByScheduler"
    assert evicted["path"].endswith("/pods/low/eviction")
    low["status"]["conditions"] = told["body"]["status"]["conditions"]
    low["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:30Z"}
    high["status"] |= nominated["body"]["status"]
    assert not door.ask("schedule", door.file(machine, low, high), "--preempt", "-o", "patches").out.count(
        "/eviction"
    )


@pytest.mark.parametrize("plugin", ["Coscheduling", "Reservation"])
def test_preemption_that_is_configured_and_not_asked_for_is_said(door: Door, plugin: str) -> None:
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": plugin}]}},
        "pluginConfig": [{"name": plugin, "args": {"enablePreemption": True}}],
    }
    config = obj("KubeSchedulerConfiguration", "", profiles=[profile])
    del config["metadata"]
    done = door.schedule(node("n"), pod("p", {"cpu": 1}), say=("--policy", door.file(config)))
    assert f"not looked at: enablePreemption of {plugin}" in done.err


def test_what_helps_is_named_even_where_a_node_can_never_serve(door: Door) -> None:
    """The eviction on the other node, and not two CPUs more on the one that has four."""
    low = pod("low", {"cpu": 6}, on="large", priority=1)
    machines = [node("small", amounts=FOUR), node("large", amounts={"cpu": "8"})]
    told = door.ask("explain", "default/p", door.file(machines, low, pod("p", {"cpu": 6}, priority=9)))
    assert "evict         default/low (priority 1): the cheapest, proven" in told.out
    assert "2 cpu more" not in told.out
