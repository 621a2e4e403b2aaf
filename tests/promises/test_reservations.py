"""Reservations: the printed preemption, profiles without the plugin, taints, ends, and the tables."""

from __future__ import annotations

import pytest

from tests.promises.door import (
    QUOTA,
    SCHED,
    Door,
    Object,
    available,
    card,
    device,
    gang,
    members,
    node,
    obj,
    pod,
    quota,
    reservation,
)

MINE = {"schedulerName": "koord-scheduler"}


def config(door: Door, *, version: str = "v1", args_version: str = "v1", key: str = "pluginConfig") -> str:
    """Preemption by Reservation, enabled at postFilter alone."""
    group = "kubescheduler.config.k8s.io/"
    args = {"apiVersion": group + args_version, "kind": "ReservationArgs", "enablePreemption": True}
    profile = {
        "schedulerName": "koord-scheduler",
        key: [{"name": "Reservation", "args": args}],
        "plugins": {
            "postFilter": {"disabled": [{"name": "*"}], "enabled": [{"name": "Reservation"}]},
        },
    }
    one = obj("KubeSchedulerConfiguration", "", version=group + version, profiles=[profile])
    del one["metadata"]
    return door.file(one)


@pytest.mark.parametrize(
    ("version", "args_version", "key"),
    [
        ("v1", "v1", "pluginConfig"),
        ("v1beta3", "v1beta3", "pluginConfigs"),
        ("v1", "v1beta3", "pluginConfig"),
    ],
)
def test_a_reservation_preempts_as_the_notes_configure_it(
    door: Door, version: str, args_version: str, key: str
) -> None:
    wants = reservation("keep", {"cpu": 20}, pod={**MINE, "priority": 800})
    low = pod("low", {"cpu": 20}, on="n", priority=90)
    words = ("--policy", config(door, version=version, args_version=args_version, key=key))
    dump = door.file(node("n"), low, wants)
    done = door.ask("schedule", dump, "--preempt", "-o", "json", *words).json
    assert [one["pod"] for plan in done["preemptions"] for one in plan["victims"]] == ["default/low"]
    quiet = door.ask("schedule", dump, *words)
    assert "reservation/keep" in quiet.out
    assert "enablePreemption of Reservation" in quiet.err
    less = reservation("keep", {"cpu": 20}, pod={**MINE, "priority": 9})
    kept = door.ask("schedule", door.file(node("n"), low, less), "--preempt", "-o", "json", *words).json
    assert not kept.get("preemptions")


@pytest.mark.parametrize("point", ["score", "filter"])
def test_what_a_profile_leaves_out_is_named_by_schedule_lint_and_verify(door: Door, point: str) -> None:
    plugin = "NodeResourcesFitPlus" if point == "score" else "NodeUnschedulable"
    profile = {"schedulerName": "default-scheduler", "plugins": {point: {"enabled": [{"name": plugin}]}}}
    one = obj("KubeSchedulerConfiguration", "", profiles=[profile])
    del one["metadata"]
    lean = door.file(one)
    room = available(reservation("r", {"cpu": 30}), "n")
    cluster = [
        node("n"),
        device("n", card(0)),
        room,
        quota("q", {"cpu": 1}),
        pod("big", {"cpu": 3}, labels={QUOTA + "name": "q"}),
        pod("gpu", {"koordinator.sh/gpu": 100}),
    ]
    dump = door.file(cluster)
    done = door.ask("schedule", dump, "-o", "json", "--policy", lean)
    missing = {one["what"]: one["why"] for one in done.json["notLookedAt"]}
    for what, plugin in (
        ("Reservation", "Reservation"),
        ("ElasticQuota", "ElasticQuota"),
        ("Device", "DeviceShare"),
        ("pod with requests for devices", "DeviceShare"),
    ):
        assert missing[what] == f"the profile default-scheduler has no {plugin}"
        assert f"not looked at: 1 {what}" in done.err
    plan = door.text("plan.json", done.out)
    assert "Reservation" in door.ask("verify", dump, "--plan", plan, "--policy", lean).err
    findings = door.ask("policy", lean, "-o", "json").out
    for name in ("Reservation", "ElasticQuota", "DeviceShare", "LoadAwareScheduling", "NodeNUMAResource"):
        assert name in findings
    full = door.schedule(cluster)
    assert not full.node_of("big")
    assert full.minors("gpu") == [0]


def test_pods_of_each_profile_are_counted_by_what_their_own_leaves_out(door: Door) -> None:
    profiles = [
        {"schedulerName": name, "plugins": {"multiPoint": {"enabled": [{"name": plugin}]}}}
        for name, plugin in (("a-cards", "DeviceShare"), ("b-cpus", "NodeNUMAResource"))
    ]
    one = obj("KubeSchedulerConfiguration", "", profiles=profiles)
    del one["metadata"]
    pods = [
        pod(f"p{number}", {"koordinator.sh/gpu": 100}, scheduler=name)
        for number, name in enumerate(("a-cards", "a-cards", "b-cpus"))
    ]
    done = door.schedule(node("n"), device("n", *map(card, range(3))), pods, say=("--policy", door.file(one)))
    assert "1 pod with requests for devices (the profile b-cpus has no DeviceShare)" in done.err
    assert "a-cards has no DeviceShare" not in done.err


def test_taints_keep_owners_out_only_with_an_affinity_and_are_warned_of(door: Door) -> None:
    room = available(
        reservation("r", {"cpu": 8}, spec={"taints": [{"key": "k", "effect": "NoSchedule"}]}), "n"
    )
    plain = pod("plain", {"cpu": 8}, labels={"app": "r"})
    wary = pod("wary", {"cpu": 8}, labels={"app": "r"}, annotations={SCHED + "reservation-affinity": {}})
    told = door.ask("schedule", door.file(node("n"), room, plain), "--expand")
    assert "reservation r" in told.out
    assert "Reservation r: spec.taints" in told.err
    assert not door.schedule(node("n"), room, wary).bound


def ending(how: str) -> Object:
    """A reservation of all CPUs that ends at one o'clock."""
    spec = {"ttl": "1h"} if how == "ttl" else {"expires": "2026-01-01T01:00:00Z"}
    return available(reservation("r", {"cpu": 32}, spec=spec), "n")


@pytest.mark.parametrize("how", ["ttl", "expires"])
@pytest.mark.parametrize("verb", ["schedule", "explain", "compare", "when", "defrag", "report"])
def test_a_reservation_ends_at_the_moment_that_is_given(
    door: Door, how: str, verb: str, tmp_path: object
) -> None:
    dump = door.file(node("n"), ending(how), pod("p", {"cpu": 32}))
    words = {
        "explain": ("default/p", dump),
        "when": ("default/p", dump),
        "defrag": (dump, "--want", "cpu=32"),
        "report": (dump, "-o", f"{tmp_path}/r.html"),
    }.get(verb, (dump,))
    early = door.ask(verb, *words, "--now", "2026-01-01T00:59:00Z")
    late = door.ask(verb, *words, "--now", "2026-01-01T01:00:01Z")
    assert "no longer available: reservation r" in late.err
    assert not early.err
    if verb in ("schedule", "explain", "defrag"):
        assert (early.code, late.code) == (1, 0)


@pytest.mark.parametrize("how", ["ttl", "expires"])
def test_when_waits_for_the_end_of_a_reservation(door: Door, how: str) -> None:
    dump = door.file(node("n"), ending(how), pod("p", {"cpu": 32}))
    told = door.ask("when", "default/p", dump, "--now", "2026-01-01T00:20:00Z")
    assert "starts at 2026-01-01T01:00:00Z" in told.out
    assert "waits for the end of reservation r" in told.out
    queue = door.ask("when", "--all", dump, "--now", "2026-01-01T00:20:00Z", "-o", "json").json["queue"]
    assert queue[0]["expectedStart"] == "2026-01-01T01:00:00Z"
    owner = pod("own", {"cpu": 32}, labels={"app": "r"})
    own = door.ask("when", "default/own", door.file(node("n"), ending(how), owner), "--now",
                   "2026-01-01T00:20:00Z", "-o", "json").json  # fmt: skip
    assert own["start"] == "2026-01-01T00:20:00Z"


def test_an_annotation_where_a_label_is_meant_is_told(door: Door) -> None:
    said = {SCHED + "reservation-ignored": "true"}
    done = door.schedule(node("n"), ending("ttl"), pod("p", {"cpu": 2}, annotations=said))
    assert not done.bound
    assert "a label is meant" in done.err
    labelled = pod("p", {"cpu": 2}, labels=said)
    assert door.schedule(node("n"), ending("ttl"), labelled).node_of("p") == "n"


def test_a_gang_draws_from_its_reservation(door: Door) -> None:
    room = available(reservation("r", {"cpu": 32}, spec={"allocateOnce": False}), "n")
    pods = members("g", 2, {"cpu": 16})
    assert not door.schedule(node("n"), room, gang("g", 2), pods).bound
    for one in pods:
        one["metadata"]["labels"]["app"] = "r"
    assert len(door.schedule(node("n"), room, gang("g", 2), pods).bound) == 2
