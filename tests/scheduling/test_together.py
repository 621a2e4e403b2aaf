"""Gangs that follow each other in the queue, planned as one."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, Policy, ScheduleResult, Unschedulable, schedule, verify
from koordcore.explaining import explain
from koordcore.manifests.records import result_from_record, result_record
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.policy import GangTurns
from koordcore.model.preemption import PreemptionRules
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from koordcore.simulate.record import replay_record, write_record
from tests.scheduling.test_gangs import MUST, NETWORK, cluster, members, node

TOGETHER = Policy(gangs=GangTurns.TOGETHER)

pytestmark = pytest.mark.solver


def rack(**blocks: int) -> list[Node]:
    """Nodes of one core, so many per block."""
    return [node(f"{name}-{n}", 1000, name) for name, count in blocks.items() for n in range(count)]


def queue(*sizes: int, priority: int = 0, first: int = 0, spec: str = MUST) -> list[Pod]:
    """Gangs of so many one-core members, all of them needed."""
    return [
        attrs.evolve(pod, priority=priority)
        for number, size in enumerate(sizes, start=first)
        for pod in members(f"g{number}", size, 1000, size, spec=spec)
    ]


def started(result: ScheduleResult) -> list[str]:
    return [plan.job.removeprefix("default/") for plan in result.jobs if plan.placed]


def test_all_four_start_where_one_by_one_three_do() -> None:
    snapshot = cluster(rack(a=5, b=5), queue(2, 2, 3, 3), NETWORK)
    assert started(schedule(snapshot)) == ["g0", "g1", "g2"]
    result = schedule(snapshot, policy=TOGETHER)
    assert verify(snapshot, result) == ()
    assert started(result) == ["g0", "g1", "g2", "g3"]
    (plan,) = result.together
    assert (len(plan.jobs), len(plan.started), plan.one_by_one) == (4, 4, 3)
    assert plan.certificate.status is CertificateStatus.PROVEN
    assert plan.certificate.objective == (-4, -10, 4)
    assert result.jobs[0].certificate == plan.certificate
    assert [str(one.pod) for one in result.decisions][:2] == ["default/g0-0", "default/g0-1"]


def test_whoever_is_asked_about_is_judged_before_the_run_is_there() -> None:
    """The four fill the cluster; of each is told that its node fits it, whatever its place in the run."""
    snapshot = cluster(rack(a=5, b=5), queue(2, 2, 3, 3), NETWORK)
    result = schedule(snapshot, policy=TOGETHER)
    for one in result.bound:
        told = explain(snapshot, one.pod, policy=TOGETHER)
        assert told.decision == one
        assert len(told.fitting) == 10


def test_nothing_changes_without_the_wish() -> None:
    snapshot = cluster(rack(a=5, b=5), queue(2, 2, 3, 3), NETWORK)
    assert schedule(snapshot).together == ()
    assert "together" not in result_record(schedule(snapshot))


def test_more_gangs_do_not_push_a_more_important_one_out() -> None:
    """Four small gangs would fill what the large one needs."""
    snapshot = cluster(rack(a=4), [*queue(4, priority=5), *queue(1, 1, 1, 1, first=1)], NETWORK)
    assert started(schedule(snapshot, policy=TOGETHER)) == ["g0"]


def test_a_pod_of_its_own_ends_the_run() -> None:
    """A pod between two gangs has its turn before the second of them."""
    alone = Pod(name="alone", priority=5, requests={"cpu": 1000})
    pods = [*queue(2, priority=9), alone, *queue(2, first=1)]
    result = schedule(cluster(rack(a=4), pods, NETWORK), policy=TOGETHER)
    assert {one.pod.name for one in result.bound} == {"g0-0", "g0-1", "alone"}
    assert result.together == ()


def test_plain_gangs_are_planned_too_where_there_is_no_network() -> None:
    nodes = [node("n", 4000), node("m", 3000)]
    pods = [*members("a", 2, 2000, 2), *members("b", 1, 3000, 1)]
    spread = [attrs.evolve(pods[0], requests={"cpu": 3000}), *pods[1:]]
    snapshot = cluster(nodes, spread)
    result = schedule(snapshot, policy=TOGETHER)
    assert verify(snapshot, result) == ()
    assert len(result.together) == 1
    assert len(started(result)) >= len(started(schedule(snapshot)))


def test_a_gang_that_the_quota_refuses_is_left_out() -> None:
    quota = ElasticQuota(name="team", max=make_resources({"cpu": 2000}), min=make_resources({"cpu": 2000}))
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    pods = [attrs.evolve(pod, labels=label) for pod in queue(2, 2)] + queue(2, first=2)
    snapshot = cluster(rack(a=6), pods, NETWORK, quota)
    result = schedule(snapshot, policy=TOGETHER)
    assert verify(snapshot, result) == ()
    assert started(result) == ["g0", "g2"]
    refused = result.decision(pods[2].key)
    assert isinstance(refused, Unschedulable)
    assert "quota" in refused.message.lower()


def test_a_quota_may_refuse_every_gang_of_a_run() -> None:
    quota = ElasticQuota(name="team", max=make_resources({"cpu": 0}), min=make_resources({"cpu": 0}))
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    pods = [attrs.evolve(pod, labels=label) for pod in queue(2, 2)]
    result = schedule(cluster(rack(a=6), pods, NETWORK, quota), policy=TOGETHER)
    assert started(result) == []
    assert all(isinstance(one, Unschedulable) and "quota" in one.message.lower() for one in result.decisions)


def test_who_cannot_start_says_why() -> None:
    result = schedule(cluster(rack(a=3), queue(2, 2), NETWORK), policy=TOGETHER)
    assert [plan.detail for plan in result.jobs if not plan.placed] == [
        "the best BlockLayer, a, has 1 of 2 slots; 1 more would do"
    ]


def test_room_is_made_for_a_gang_before_less_important_ones_are_placed() -> None:
    """Where jobs may evict, a run holds one priority."""
    victim = Pod(name="old", priority=-5, requests={"cpu": 1000}).at("a-0")
    pods = [*queue(2, 2, priority=9), *queue(1, 1, first=2)]
    snapshot = cluster(rack(a=4), pods, NETWORK).assume(victim)
    result = schedule(snapshot, policy=TOGETHER, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert started(result)[:1] == ["g0"]
    assert [plan.job for plan in result.preemptions] == ["default/g1"]
    assert [str(one.pod) for one in result.preemptions[0].victims] == ["default/old"]


def test_the_plan_can_be_written_read_and_replayed() -> None:
    snapshot = cluster(rack(a=5, b=5), queue(2, 2, 3, 3), NETWORK)
    result = schedule(snapshot, policy=TOGETHER)
    record = json.loads(json.dumps(result_record(result)))
    assert result_from_record(snapshot, record, policy=TOGETHER).together == result.together
    assert replay_record(write_record(snapshot, None, result, policy=TOGETHER)).same


BUDGETS = (10.0, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9)
STOPPED_EARLY = ([1, 1, 3], [(2, 3, False), (2, 3, True), (3, 0, False)])
"""Small budgets end here before the solver has loaded its objective, whose bound is then reported as 0."""


@settings(max_examples=17, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from((0, 3)), st.booleans()), min_size=2, max_size=6),
    st.sampled_from(BUDGETS),
)
@example(*STOPPED_EARLY, 1e-9)
@example(*STOPPED_EARLY, 1e-6)
@example(*STOPPED_EARLY, 1e-4)
def test_no_gang_waits_for_a_less_important_one(
    blocks: list[int], gangs: list[tuple[int, int, bool]], budget: float
) -> None:
    """Never fewer than one by one, and who waits would wait without the less important ones as well."""
    snapshot = waiting(blocks, gangs)
    result = schedule(snapshot, policy=TOGETHER, limits=Limits(budget))
    assert verify(snapshot, result) == ()
    alone = schedule(snapshot)
    for tier in (3, 0):
        names = {f"g{n}" for n, (_, priority, _) in enumerate(gangs) if priority == tier}
        joint, single = len(names & set(started(result))), len(names & set(started(alone)))
        if joint != single:
            assert joint > single
            break
    important = {f"g{n}" for n, (_, priority, _) in enumerate(gangs) if priority == 3}
    kept = [one for one in result.bound if one.pod.name.split("-")[0] in important]
    without = snapshot.assume(*(snapshot_pod(snapshot, one.pod.name).at(one.node) for one in kept))
    left = [pod for pod in without.pending if pod.name.split("-")[0] in important]
    assert started(schedule(without, left)) == []


@pytest.mark.parametrize("budget", BUDGETS[1:])
def test_a_larger_budget_beats_no_bound(budget: float) -> None:
    snapshot = waiting(*STOPPED_EARLY)
    (most,) = schedule(snapshot, policy=TOGETHER).together
    (few,) = schedule(snapshot, policy=TOGETHER, limits=Limits(budget)).together
    assert most.certificate.proven
    assert few.certificate.bound <= most.certificate.objective <= few.certificate.objective
    assert few.certificate.proven <= (few.certificate.objective == most.certificate.objective)


def waiting(blocks: list[int], gangs: list[tuple[int, int, bool]]) -> ClusterSnapshot:
    """Blocks of one-core nodes; gangs by size, priority, and whether one block must hold them."""
    free = '{"gatherStrategy": []}'
    pods = [
        attrs.evolve(pod, priority=priority)
        for number, (size, priority, gathers) in enumerate(gangs)
        for pod in members(f"g{number}", size, 1000, size, spec=MUST if gathers else free)
    ]
    return cluster(rack(**{f"b{n}": size for n, size in enumerate(blocks)}), pods, NETWORK)


def snapshot_pod(snapshot: ClusterSnapshot, name: str) -> Pod:
    return next(pod for pod in snapshot.pending if pod.name == name)


def test_a_gang_whose_members_are_not_all_of_this_scheduler_is_not_planned() -> None:
    """A member that another scheduler decides about is missing: the gang waits, and its neighbour starts."""
    strange, *others = [*members("g0", 3, 1000, 3), *members("g1", 1, 1000, 1, spec=MUST)]
    mixed = [attrs.evolve(strange, scheduler_name="other"), *others]
    snapshot = cluster([node("n", 5000, "a")], mixed, NETWORK)
    result = schedule(snapshot, policy=TOGETHER)
    assert verify(snapshot, result) == ()
    assert started(result) == ["g1"]
