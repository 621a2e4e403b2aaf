"""What is decided and said about gangs: their order, what they keep, who is named, and what is proven."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Members,
    Node,
    Pod,
    Policy,
    PreemptionRules,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.model.certificates import CertificateStatus
from koordcore.model.pods import HostPort
from koordcore.model.policy import GangTurns
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.snapshot.changes import NodeAdded, PodEnded
from tests.scheduling.test_gangs import MUST, NETWORK, SPEC, WAIT, cluster, members, node
from tests.scheduling.test_groups import group, pods as of_group

RANK = "gang.scheduling.koordinator.sh/network-topology-index"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOGETHER = Policy(gangs=GangTurns.TOGETHER)


def noted(pod: Pod, **annotations: str) -> Pod:
    names = {"rank": RANK, "wait": WAIT, "spec": SPEC}
    more = {names[key]: value for key, value in annotations.items()}
    return attrs.evolve(pod, annotations={**pod.annotations, **more})


def ported(pods: list[Pod]) -> list[Pod]:
    return [attrs.evolve(pod, host_ports=(HostPort(80),)) for pod in pods]


def places(snapshot: ClusterSnapshot, policy: Policy | None = None) -> dict[str, str]:
    result = schedule(snapshot) if policy is None else schedule(snapshot, policy=policy)
    assert verify(snapshot, result) == ()
    return {one.pod.name: one.node for one in result.bound}


def test_members_go_by_their_ranks_and_those_without_one_last() -> None:
    """The emptiest node goes to who comes first, and again to who comes third."""
    nodes = [node("big", 6000), node("mid", 4000), node("small", 3000)]
    first, second, third = members("g", 3, 1000, 3)
    ranked = [noted(first, rank="1"), noted(second, rank="0"), third]
    assert places(cluster(nodes, ranked)) == {"g-0": "mid", "g-1": "big", "g-2": "big"}


def test_of_several_gated_members_the_first_is_named() -> None:
    pods = members("g", 3, 1000, 3)
    gated = [pods[0], *(attrs.evolve(pod, gates=("x",)) for pod in pods[1:])]
    result = schedule(cluster([node("n", 9000)], gated))
    assert result.jobs[0].message == 'waiting for pod "default/g-1", which is gated'


def test_that_every_member_of_a_plain_gang_has_a_place_is_proven() -> None:
    (plan,) = schedule(cluster([node("n", 9000)], members("g", 3, 1000, 3))).jobs
    assert plan.certificate is not None
    assert plan.certificate.proven
    assert plan.certificate.objective == (-3,)


# -- places that are kept ------------------------------------------------------------------------------------


def kept_by(snapshot: ClusterSnapshot) -> list[str]:
    return sorted(pod.name for pod in snapshot.bound_pods() if WAITS_AT_PERMIT in pod.annotations)


def test_members_that_keep_places_start_with_the_last_one_once_a_node_joins() -> None:
    first = schedule(cluster([node("n", 2000)], members("g", 3, 1000, 3, mode="NonStrict")))
    assert kept_by(first.snapshot) == ["g-0", "g-1"]
    then = first.snapshot.apply(NodeAdded(node("m", 1000)))
    second = schedule(then)
    assert {one.pod.name: one.node for one in second.bound} == {"g-0": "n", "g-1": "n", "g-2": "m"}
    assert kept_by(second.snapshot) == []


def test_a_member_that_ends_while_it_keeps_a_place_is_not_decided_about_again() -> None:
    first = schedule(cluster([node("n", 2000)], members("g", 3, 1000, 3, mode="NonStrict")))
    second = schedule(first.snapshot.apply(PodEnded("default/g-0")))
    assert sorted(one.pod.name for one in second.decisions) == ["g-1", "g-2"]
    third = schedule(second.snapshot)
    assert sorted(one.pod.name for one in third.decisions) == ["g-1", "g-2"]


def test_a_call_about_another_gang_leaves_a_place_that_is_kept_alone() -> None:
    """Two of the three who wait are not asked about, so nothing is said of the one that keeps a place."""
    kept = schedule(cluster([node("n", 2000)], members("g", 3, 1000, 3, mode="NonStrict"))).snapshot
    others = members("h", 2, 1000, 2)
    for asked in (others, [Pod(name="alone", requests={"cpu": 1000})]):
        result = schedule(kept.with_pending(*asked), asked)
        assert {one.pod.name for one in result.decisions} == {one.name for one in asked}
        assert kept_by(result.snapshot) == ["g-0", "g-1"]
        assert verify(kept.with_pending(*asked), result) == ()


def test_members_that_keep_places_can_be_asked_about_by_name() -> None:
    pods = members("g", 3, 1000, 3, mode="NonStrict")
    kept = schedule(cluster([node("n", 2000)], pods)).snapshot.apply(NodeAdded(node("m", 1000)))
    for asked in (pods, pods[1:], pods[2:]):
        result = schedule(kept, asked)
        assert {one.pod.name: one.node for one in result.bound} == {"g-0": "n", "g-1": "n", "g-2": "m"}
        assert verify(kept, result) == ()


def test_who_keeps_a_place_is_promised_no_other_beside_it() -> None:
    """Asked about by name it may say that it was nominated; a gang before it has a less important member."""
    kept = schedule(cluster([node("n", 2000)], members("g", 3, 1000, 3, mode="NonStrict"))).snapshot
    promised = attrs.evolve(members("g", 1, 1000, 3, mode="NonStrict")[0], nominated_node="n", priority=5)
    first, second = members("h", 2, 9000, 2)
    asked = [attrs.evolve(first, priority=9), promised, second]
    result = schedule(kept, asked, preempt=PreemptionRules())
    assert [type(one) for one in result.decisions[:2]] == [Unschedulable, Unschedulable]
    assert verify(kept, result) == ()


def test_the_time_of_a_gang_is_over_also_where_a_member_found_no_place() -> None:
    """Both were made long ago; one of them has a place and may not keep it."""
    pods = [
        attrs.evolve(noted(pod, wait="10s"), created=NOW - timedelta(minutes=1))
        for pod in members("g", 2, 1000, 2, mode="NonStrict")
    ]
    result = schedule(cluster([node("n", 1000)], pods), now=NOW)
    assert result.jobs[0].message == "its time to wait is over"
    assert all(isinstance(one, Unschedulable) for one in result.decisions)


# -- plans ---------------------------------------------------------------------------------------------------


def test_the_last_two_places_of_a_node_are_two_places_for_members_of_two_kinds() -> None:
    """Each kind fits once by what it asks for, and both together by all of that."""
    one, other = (noted(pod, spec=MUST) for pod in members("g", 2, 0, 2))
    pods = [
        attrs.evolve(one, requests={"cpu": 3000, "memory": 1 << 30}),
        attrs.evolve(other, requests={"cpu": 1000, "memory": 3 << 30}),
    ]
    room = {"cpu": 4000, "memory": 4 << 30, "pods": 2}
    only = Node(name="n", labels={"block": "b"}, allocatable=room)
    assert places(cluster([only], pods, NETWORK)) == {"g-0": "n", "g-1": "n"}


def test_gangs_of_which_one_takes_the_ports_of_others_are_not_said_to_be_planned_best() -> None:
    """The two small ones could start instead of the large one; what was found is a plan and no proof."""
    pods = [*members("a", 2, 2000, 2), *members("b", 1, 3000, 1), *members("c", 1, 3000, 1)]
    snapshot = cluster([node("n", 9000), node("m", 9000)], ported(pods))
    result = schedule(snapshot, policy=TOGETHER)
    assert verify(snapshot, result) == ()
    (plan,) = result.together
    assert plan.started == ("default/a",)
    assert plan.certificate.status is CertificateStatus.HEURISTIC


def test_more_gangs_of_two_kinds_start_where_the_ports_allow_it() -> None:
    pods = [*members("a", 2, 2000, 2), *members("b", 1, 3000, 1), *members("c", 1, 3000, 1)]
    nodes = [node("n", 9000), node("m", 9000), node("o", 3000)]
    assert places(cluster(nodes, ported(pods)), TOGETHER) == {"a-0": "m", "a-1": "n", "b-0": "o"}


def test_gangs_of_profiles_that_go_one_by_one_are_not_planned_with_others() -> None:
    """One member of the second gang is of a scheduler whose gangs have turns of their own."""
    own = attrs.evolve(Policy(), name="own", scheduler_names=("own",))
    policy = attrs.evolve(TOGETHER, others=(own,))
    first, second = members("a", 2, 1000, 2), members("b", 2, 1000, 2)
    mixed = [attrs.evolve(second[0], scheduler_name="own"), second[1]]
    (plan,) = schedule(cluster([node("n", 9000)], [*first, *second]), policy=policy).together
    assert plan.jobs == ("default/a", "default/b")
    assert schedule(cluster([node("n", 9000)], [*first, *mixed]), policy=policy).together == ()


@pytest.mark.parametrize("running", [0, 1])
def test_a_group_says_how_many_more_members_it_needs(running: int) -> None:
    pods = of_group("g", 4)
    snapshot = cluster([node("n", 3000, "b")], pods[running:], group("g", 3, "block"))
    snapshot = snapshot.assume(*(pod.at("n") for pod in pods[:running]))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    (plan,) = result.jobs
    assert plan.least == 3 - running
    assert plan.placed == 3 - running


def test_a_domain_that_could_not_be_tried_to_the_end_leaves_a_later_one_unproven() -> None:
    """The one node of the first rack is said to take both, whose port is the same."""
    first, second = ported(of_group("g", 2))
    pods = [first, attrs.evolve(second, requests={"cpu": 1500})]
    nodes = [
        Node(name=name, labels={"rack": rack}, allocatable={"cpu": cpu, "pods": 9})
        for name, rack, cpu in (("n1", "a", 9000), ("n2", "b", 4000), ("n3", "b", 4000))
    ]
    snapshot = cluster(nodes, pods, group("g", 2, "rack"))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert [one.node for one in result.bound] == ["n2", "n3"]
    assert result.jobs[0].certificate is not None
    assert result.jobs[0].certificate.status is CertificateStatus.HEURISTIC


# -- room that is made ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gathered", [False, True])
@pytest.mark.parametrize(("runs", "plans"), [(1, 1), (2, 0), (0, 1)])
def test_members_beyond_the_minimum_of_a_gang_that_has_started_evict_nobody(
    runs: int, plans: int, gathered: bool
) -> None:
    """Two are needed: room is made for who is missing, whether all of them wait or one by one."""
    pods = [attrs.evolve(pod, priority=9) for pod in members("g", 3, 1000, 2)]
    pods = [noted(pod, spec=MUST) for pod in pods] if gathered else pods
    low = [Pod(name=f"low-{place}", requests={"cpu": 1000}).at("n") for place in range(3 - runs)]
    there = [pod.at("n") for pod in pods[:runs]]
    snapshot = cluster([node("n", 3000, "b")], pods[runs:], NETWORK).assume(*there, *low)
    result = schedule(snapshot, preempt=PreemptionRules(members=Members.MINIMUM))
    assert verify(snapshot, result) == ()
    assert len(result.preemptions) == plans
    assert sum(len(plan.victims) for plan in result.preemptions) == 2 - runs
