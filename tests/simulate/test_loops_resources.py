"""With several resources nothing goes round either: who is beyond his promise in one of them has to give."""

from __future__ import annotations

import random

import attrs

from koordcore import ClusterSnapshot, Node, Pod, PreemptionRules, schedule
from koordcore.model import ElasticQuota
from koordcore.model.decisions import Nominated, Unschedulable
from koordcore.model.quotas import ROOT_QUOTA
from tests.simulate.test_loops import POLICY, lived

RESOURCES = ("cpu", "memory")
QUOTA = "quota.scheduling.koordinator.sh/name"


def node(name: str, cpu: int, memory: int) -> Node:
    return Node(name=name, allocatable={"cpu": cpu, "memory": memory, "pods": 9})


def quota(name: str, least: dict[str, int], most: dict[str, int]) -> ElasticQuota:
    return ElasticQuota(name=name, namespace="q", parent=ROOT_QUOTA, min=least, max=most)


def test_who_was_evicted_for_want_of_cores_does_not_come_back_for_promised_memory() -> None:
    """``team`` is promised memory and no cores; ``big`` takes its cores, which are kept for it."""
    team = quota("team", {"memory": 1000}, {"cpu": 9000, "memory": 9000})
    asked = {"cpu": 1000, "memory": 1}
    lent = Pod(name="lent", requests=asked, labels={QUOTA: "team"})
    big = Pod(name="big", requests=asked, priority=9)
    snapshot = ClusterSnapshot(nodes=[node("n0", 1000, 1000)]).with_records(team)

    (first,) = schedule(
        snapshot.assume(lent.at("n0")), [big], policy=POLICY, preempt=PreemptionRules()
    ).decisions
    assert isinstance(first, Nominated)
    assert [victim.pod for victim in first.victims] == [lent.key]

    waiting = snapshot.with_pending(attrs.evolve(big, nominated_node="n0"), lent)
    (again,) = schedule(waiting, [lent], policy=POLICY).decisions
    assert isinstance(again, Unschedulable)


def test_what_a_quota_does_not_name_it_has_not_been_promised_and_gets_from_nobody() -> None:
    """``cores`` says nothing of memory; that ``team`` has borrowed some is no reason to give it to ``p2``."""
    quotas = (
        quota("team", {"memory": 2000}, {"memory": 3000}),
        quota("cores", {"cpu": 1000}, {"cpu": 3000}),
    )
    p1 = Pod(name="p1", requests={"memory": 3000}, labels={QUOTA: "team"})
    p2 = Pod(name="p2", requests={"memory": 3000}, labels={QUOTA: "cores"})
    snapshot = ClusterSnapshot(nodes=[node("n0", 3000, 3000)]).with_records(*quotas).assume(p1.at("n0"))
    (one,) = schedule(snapshot, [p2], policy=POLICY, preempt=PreemptionRules()).decisions
    assert isinstance(one, Unschedulable)


def test_the_library_comes_to_rest_in_worlds_of_two_resources() -> None:
    luck = random.Random(2)
    for _ in range(80):
        assert lived(drawn(luck)) is None


def drawn(luck: random.Random) -> ClusterSnapshot:
    """Draw nodes, quotas that promise and limit some resources, and pods that ask for some."""
    nodes = [node(f"n{one}", luck.randint(1, 4), luck.randint(1, 4)) for one in range(luck.randint(1, 2))]
    quotas = []
    for name in "abc"[: luck.randint(1, 3)]:
        least = {one: luck.randint(0, 3) for one in RESOURCES if luck.random() < 0.8}
        named = [one for one in RESOURCES if one in least or luck.random() < 0.7]
        quotas.append(quota(name, least, {one: least.get(one, 0) + luck.randint(0, 4) for one in named}))
    snapshot = ClusterSnapshot(nodes=nodes).with_records(*quotas)
    left = {one.name: dict(one.allocatable) for one in nodes}
    for number in range(luck.randint(2, 6)):
        asked = {one: luck.randint(1, 3) for one in RESOURCES if luck.random() < 0.8}
        own = luck.choice(["", *(one.name for one in quotas)])
        pod = Pod(
            name=f"p{number}",
            requests=asked,
            priority=luck.randint(0, 2),
            labels={QUOTA: own} if own else {},
        )
        fitting = [name for name, room in left.items() if all(room[one] >= asked[one] for one in asked)]
        if fitting and luck.random() < 0.6:
            where = luck.choice(fitting)
            left[where] = {one: room - asked.get(one, 0) for one, room in left[where].items()}
            snapshot = snapshot.assume(pod.at(where))
        else:
            snapshot = snapshot.with_pending(pod)
    return snapshot
