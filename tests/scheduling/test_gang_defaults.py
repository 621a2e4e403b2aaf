"""Defaults of Coscheduling's arguments hold for gangs that say nothing themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from koordcore import ClusterSnapshot, Node, PluginSetting, Pod, PodGroup, Policy, schedule, verify
from koordcore.manifests import policies_from_manifest
from koordcore.model import Waiting
from koordcore.model.gangs import CoschedulingArgs, MatchPolicy

LABEL = "pod-group.scheduling.sigs.k8s.io"
MADE = datetime(2026, 1, 1, tzinfo=UTC)


def policy(**args: object) -> Policy:
    setting = PluginSetting(name="Coscheduling", args=CoschedulingArgs(**args))  # type: ignore[arg-type]
    return Policy().with_plugin(setting)


def cluster(room: int, running: int, waiting: int, **group: object) -> ClusterSnapshot:
    """A gang of four pods at least, of one CPU each."""
    said = PodGroup(namespace="default", name="g", min_member=4, **group)  # type: ignore[arg-type]
    pods = [
        Pod(name=f"m{row}", labels={LABEL: "g"}, requests={"cpu": 1000}, created=MADE)
        for row in range(running + waiting)
    ]
    there = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 1000 * (room + running), "pods": 99})],
        pending=pods[running:],
        records=[said],
    )
    return there.assume(*(pod.at("n") for pod in pods[:running]))


@pytest.mark.parametrize(
    ("match", "said", "placed"),
    [
        (MatchPolicy.ONCE_SATISFIED, "", 1),
        (MatchPolicy.ONLY_WAITING, "", 0),
        (MatchPolicy.ONLY_WAITING, MatchPolicy.ONCE_SATISFIED, 1),
    ],
)
def test_a_gang_that_names_no_match_policy_has_the_default(match: str, said: str, placed: int) -> None:
    """One of four runs and one waits: only where members that run count may it join."""
    notes = {"gang.scheduling.koordinator.sh/match-policy": str(said)} if said else {}
    there = cluster(4, 1, 1, annotations=notes)
    result = schedule(there, policy=policy(default_match_policy=match))
    assert len(result.bound) == placed
    assert verify(there, result) == ()


@pytest.mark.parametrize(("seconds", "waits"), [(None, True), (30, False)])
def test_a_gang_that_names_no_time_to_wait_has_the_default(seconds: int | None, waits: bool) -> None:
    """Three of four fit; a minute later the gang keeps their places if it may wait for two."""
    notes = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    there = cluster(3, 0, 4, annotations=notes, schedule_timeout_seconds=seconds)
    two = policy(default_timeout=120 * 10**9)
    result = schedule(there, policy=two, now=MADE + timedelta(seconds=60))
    held = len([one for one in result.decisions if isinstance(one, Waiting) and one.held])
    assert held == (3 if waits else 0)
    assert schedule(there, policy=two, now=MADE + timedelta(seconds=121)).bound == ()


def test_the_defaults_are_read_from_a_configuration_without_a_finding() -> None:
    args = {"defaultTimeout": "90s", "defaultMatchPolicy": "only-waiting"}
    plugins = {"multiPoint": {"enabled": [{"name": "Coscheduling"}]}}
    profile = {"plugins": plugins, "pluginConfig": [{"name": "Coscheduling", "args": args}]}
    (read,) = policies_from_manifest({"profiles": [profile]})
    found = read.args_of(CoschedulingArgs)
    assert (found.default_timeout, found.default_match_policy) == (90 * 10**9, "only-waiting")
