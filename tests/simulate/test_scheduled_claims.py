"""Pods with claims over time, placed by ``schedule``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs

from benchmarks.claims_data import CLASSES, claim, mig_cards, request
from koordcore.model.claims import ClaimConsumer, ResourceClaim, ResourceClaimTemplate
from koordcore.simulate import Departure, NodeFailed, PodArrival, replay_schedule
from koordcore.simulate.scheduled import ClusterEvent, ScheduledReplay, stream_of
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_claims import ONE, cluster, node, pod, taken


def places(result: ScheduledReplay) -> list[tuple[str, str, int]]:
    return [(one.task.removeprefix("default/"), one.node, one.time) for one in result.placements]


def test_devices_are_taken_at_the_start_of_a_pod_and_free_at_its_end() -> None:
    events = [PodArrival(number, pod(f"p{number}"), 10) for number in range(3)]
    result = replay_schedule(cluster({"a": 2}), events)
    assert places(result) == [("p0", "a", 0), ("p1", "a", 1), ("p2", "a", 10)]
    assert result.cards == 2
    assert result.in_use.tolist() == [1000, 2000, 2000, 2000, 1000, 0]


def test_a_claim_that_is_an_object_is_given_back_with_its_last_user() -> None:
    shared = ResourceClaim(name="shared", spec=ONE)
    events = [
        PodArrival(0, pod("p", claim="shared"), 10),
        PodArrival(1, pod("q", claim="shared"), 20),
        PodArrival(2, pod("r")),
    ]
    result = replay_schedule(cluster({"a": 1}, shared), events)
    assert places(result) == [("p", "a", 0), ("q", "a", 1), ("r", "a", 21)]
    (claim,) = result.snapshot.of(ResourceClaim)
    assert (claim.allocation, claim.reserved_for) == (None, ())


def test_a_claim_that_nobody_known_uses_stays() -> None:
    held = attrs.evolve(taken("c", "gpu-0"), reserved_for=(ClaimConsumer("elsewhere"),))
    result = replay_schedule(cluster({"a": 1}, held), [PodArrival(0, pod("p"))])
    assert places(result) == []
    assert result.in_use.tolist() == [1000]


def test_who_loses_his_node_gets_devices_of_another() -> None:
    mine = ResourceClaim(name="mine", spec=ONE)
    events: list[ClusterEvent] = [PodArrival(0, pod("p", claim="mine")), NodeFailed(5, "a")]
    result = replay_schedule(cluster({"a": 1, "b": 1}, mine), events)
    assert places(result) == [("p", "a", 0), ("p", "b", 5)]


def test_partitions_count_by_the_part_of_their_card_that_they_take() -> None:
    templates = [
        ResourceClaimTemplate(name=name, spec=claim("c", [request("r", "mig", 1, name)]).spec)
        for name in ("1g.10gb", "3g.40gb", "7g.80gb")
    ]
    cards = ClusterSnapshot(nodes=[node("a")], records=[*CLASSES.values(), *templates, *mig_cards("a", 2)])
    events: list[ClusterEvent] = [
        PodArrival(0, pod("large", "7g.80gb"), 9),
        PodArrival(1, pod("half", "3g.40gb")),
        PodArrival(2, pod("small", "1g.10gb")),
        Departure(3, "half"),
    ]
    result = replay_schedule(cards, events)
    assert result.cards == 2
    assert result.in_use.tolist() == [1000, 1500, 1642, 1142, 142]


def test_the_pods_of_a_snapshot_arrive_when_they_were_created_and_run_as_long_as_they_say() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    waiting = [
        attrs.evolve(pod(f"p{number}"), created=begin + timedelta(seconds=5 * number)) for number in range(2)
    ]
    running = pod("runs", claim="c").at("a")
    held = taken("c", "gpu-0", "runs")
    start = cluster({"a": 1}, held, pending=waiting).assume(running)
    ends = {running.key: begin + timedelta(seconds=7)}
    lasting = {waiting[0].key: timedelta(milliseconds=2500)}
    snapshot, events = stream_of(start, ends, lasting)
    assert snapshot.pending == ()
    result = replay_schedule(snapshot, events)
    zero = int(begin.timestamp())
    assert [(name, time - zero) for name, _, time in places(result)] == [("p0", 7), ("p1", 10)]
