"""When a job can start first: the moment before, reservations that end, and gangs that run already."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from koordcore import ClusterSnapshot, Node, Pod, PodKey, named_policy, schedule
from koordcore.model.quotas import ElasticQuota
from koordcore.scheduling.backfilling import EarliestStart, earliest_start
from tests.reservations.worlds import must, node, pod, reservation, uses
from tests.scheduling.test_gangs import POLICY, members

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def key(name: str) -> PodKey:
    return PodKey("default", name)


def test_the_moment_before_the_start_is_named_at_which_the_job_did_not_fit_yet() -> None:
    running = [pod("one", 4, node_name="n1"), pod("two", 2, node_name="n1"), pod("three", 2, node_name="n1")]
    snapshot = ClusterSnapshot(nodes=[node("n1")], pending=[pod("p", 7)]).assume(*running)
    ends = {key("one"): NOW + HOUR, key("two"): NOW + 2 * HOUR, key("three"): NOW + 3 * HOUR}
    found = earliest_start(snapshot, ["default/p"], ends, now=NOW)
    assert isinstance(found, EarliestStart)
    assert (found.start, found.too_early) == (NOW + 3 * HOUR, NOW + 2 * HOUR)


def test_whose_end_is_not_needed_is_not_waited_for() -> None:
    """Two of seven are free and five are asked for: who holds one need not go, nor who is elsewhere."""
    running = [
        pod("small", 1, node_name="n1"),
        pod("large", 4, node_name="n1"),
        pod("else", 5, node_name="n2"),
        pod("stays", 2, node_name="n2"),
    ]
    nodes = [node("n1", cpu=7), node("n2", cpu=7)]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[pod("p", 5)]).assume(*running)
    ends = {"default/small": NOW + HOUR, "default/large": NOW + 2 * HOUR, "default/else": NOW + 2 * HOUR}
    found = earliest_start(snapshot, ["default/p"], ends, now=NOW)
    assert isinstance(found, EarliestStart)
    assert (found.start, dict(found.nodes), found.waits_for) == (
        NOW + 2 * HOUR,
        {key("p"): "n1"},
        (key("large"),),
    )


def test_nobody_is_waited_for_where_the_end_of_a_reservation_alone_makes_room() -> None:
    held = attrs.evolve(reservation("r", 6, on="n1"), expires=NOW + HOUR, ttl=None)
    snapshot = ClusterSnapshot(nodes=[node("n1")], pending=[pod("p", 7)], records=[held]).assume(
        pod("one", 1, node_name="n1")
    )
    found = earliest_start(
        snapshot, ["default/p"], {key("one"): NOW + HOUR}, now=NOW, policy=named_policy("koordinator")
    )
    assert isinstance(found, EarliestStart)
    assert (found.start, found.waits_for, found.expired) == (NOW + HOUR, (), ("r",))


def test_who_has_to_leave_a_quota_is_waited_for_wherever_he_runs() -> None:
    """The node of the start is empty; the quota is used up by two on another, of whom one has to end."""
    quota = ElasticQuota(name="q", min={"cpu": 2000}, max={"cpu": 2000})
    own = {"quota.scheduling.koordinator.sh/name": "q"}
    used = [pod(name, 1, node_name="n1", labels=own) for name in ("one", "two")]
    snapshot = ClusterSnapshot(
        nodes=[node("n1", cpu=4), node("n2")], pending=[pod("p", 1, labels=own)], records=[quota]
    ).assume(*used, pod("stays", 2, node_name="n1"))
    ends = {key("one"): NOW + HOUR, key("two"): NOW + HOUR}
    policy = named_policy("koordinator")
    found = earliest_start(snapshot, ["default/p"], ends, now=NOW, policy=policy)
    assert isinstance(found, EarliestStart)
    assert (dict(found.nodes), found.waits_for) == ({key("p"): "n2"}, (key("two"),))


@pytest.mark.parametrize("seed", range(12))
def test_those_that_are_waited_for_are_enough_and_nobody_of_them_can_stay(seed: int) -> None:
    drawn = random.Random(seed)
    nodes = [Node(name=f"n{row}", allocatable={"cpu": 8000, "pods": 20}) for row in range(3)]
    running = [
        Pod(name=f"r{number}", requests={"cpu": 1000 * drawn.randint(1, 3)}).at(f"n{number % 3}")
        for number in range(9)
    ]
    ends = {one.key: NOW + drawn.randint(1, 4) * HOUR for one in running[:7]}
    pods = members("g", 2, 1000 * drawn.randint(5, 7), 2)
    snapshot = ClusterSnapshot(nodes=nodes, pending=pods).assume(*running)
    found = earliest_start(snapshot, pods, ends, now=NOW)
    if not isinstance(found, EarliestStart) or found.start == NOW:
        return

    def starts(*gone: PodKey) -> bool:
        return len(schedule(snapshot.forget(*gone)).bound) == 2

    assert starts(*found.waits_for)
    for one in found.waits_for:
        assert ends[one] <= found.start
        assert not starts(*(other for other in found.waits_for if other != one))


def test_who_needs_a_reservation_starts_while_it_stands_although_another_has_ended() -> None:
    """One reservation has ended, the other serves from the end of its user to its own end."""
    stands = attrs.evolve(reservation("r", 4, on="n1"), expires=NOW + 3 * HOUR, ttl=None)
    ended = attrs.evolve(reservation("old", 1, on="n2"), expires=NOW - HOUR, ttl=None)
    user = pod("user", 4, app="a", annotations=uses("r"), node_name="n1")
    asks = pod("asks", 4, app="a", annotations=must())
    snapshot = ClusterSnapshot(
        nodes=[node("n1"), node("n2")], pending=[asks], records=[stands, ended]
    ).assume(user, pod("rest", 4, node_name="n1"))
    policy = named_policy("koordinator")
    found = earliest_start(snapshot, [asks], {key("user"): NOW + HOUR}, now=NOW, policy=policy)
    assert isinstance(found, EarliestStart)
    assert found.start == NOW + HOUR


@pytest.mark.parametrize("policy", ["once-satisfied", "waiting-and-running"])
def test_one_more_member_of_a_gang_that_runs_starts_when_it_gets_a_node(policy: str) -> None:
    """Its minimum runs already: that alone gives the further member no place."""
    first, second, third = (
        attrs.evolve(one, annotations={**one.annotations, POLICY: policy}) for one in members("g", 3, 1000, 2)
    )
    large = Pod(name="large", requests={"cpu": 1000}).at("n")
    snapshot = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 3000, "pods": 10})], pending=[third]
    ).assume(first.at("n"), second.at("n"), large)
    found = earliest_start(snapshot, [third], {key("large"): NOW + HOUR}, now=NOW)
    assert isinstance(found, EarliestStart)
    assert (found.start, dict(found.nodes)) == (NOW + HOUR, {third.key: "n"})


def test_a_gang_starts_although_ends_are_told_of_pods_that_are_gone_already() -> None:
    pods = members("g", 2, 1000, 2)
    large = Pod(name="large", requests={"cpu": 2000}).at("n")
    snapshot = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 2000, "pods": 10})], pending=pods
    ).assume(large)
    found = earliest_start(snapshot, pods, {key("gone"): NOW + 2 * HOUR, key("large"): NOW + HOUR}, now=NOW)
    assert isinstance(found, EarliestStart)
    assert found.start == NOW + HOUR


@pytest.mark.parametrize("others", [members("h", 2, 1000, 2), [pod("lone", 2)]], ids=["gang", "pod"])
def test_a_gang_does_not_start_before_the_others_that_are_asked_about_with_it(others: list[Pod]) -> None:
    """There is room for the gang at once, and for the others too once a running pod has gone."""
    pods = [*members("g", 2, 1000, 2), *others]
    running = Pod(name="old", requests={"cpu": 2000}).at("n")
    snapshot = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 4000, "memory": 2**40, "pods": 10})], pending=pods
    ).assume(running)
    found = earliest_start(snapshot, pods, {key("old"): NOW + HOUR}, now=NOW)
    assert isinstance(found, EarliestStart)
    assert (found.start, found.too_early) == (NOW + HOUR, NOW)
    assert set(found.nodes) == {one.key for one in pods}
