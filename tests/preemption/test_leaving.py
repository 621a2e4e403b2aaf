"""Pods that leave already: they cost nothing, are not evicted again, and are waited for (ruling 29)."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest

from koordcore.checking import verify
from koordcore.manifests.encode import pod_manifest
from koordcore.manifests.pods import pod_from_manifest
from koordcore.model.decisions import Nominated, Unschedulable, Victim
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import Pod
from koordcore.model.preemption import NO_DAMAGE, PreemptionRules
from koordcore.result import with_victims_leaving
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.preemption.test_flow import node, pod, victims

RULES = PreemptionRules()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def dying(one: Pod, disruption: str = "") -> Pod:
    return attrs.evolve(one, deleted=NOW, disruption=disruption)


def test_a_second_call_preempts_nobody_more() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, pod("la", 4000, 1)), node("b", 4000, pod("lb", 4000, 1))],
        pending=[pod("w", 4000, 100)],
    )
    first = schedule(snapshot, preempt=RULES)
    (victim,) = first.preemptions[0].victims
    told = first.snapshot.pod(victim.pod)
    assert told is not None
    assert (told.preempted_by, told.leaving) == ("default/w", True)
    second = schedule(first.snapshot, preempt=RULES)
    assert second.preemptions == ()
    assert second.snapshot == first.snapshot
    assert verify(snapshot, first) == verify(first.snapshot, second) == ()


@pytest.mark.parametrize("reason", ["", "PreemptionByScheduler", "EvictionByEvictionAPI"])
def test_a_gang_waits_for_its_victims_whoever_took_them_away(reason: str) -> None:
    """Evictions through the API write a reason of their own; cheaper pods elsewhere stay."""
    leaving = [dying(pod(f"l{number}", 4000, 10), reason) for number in range(2)]
    members = [
        attrs.evolve(pod(f"m{number}", 3000, 1000, "big"), nominated_node="ab"[number]) for number in range(2)
    ]
    snapshot = ClusterSnapshot(
        nodes=[
            node("a", 4000, leaving[0]),
            node("b", 4000, leaving[1]),
            *(node(name, 4000, pod(f"new-{name}", 4000, 5)) for name in "cd"),
        ],
        pending=members,
        records=[PodGroup(namespace="default", name="big", min_member=2)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == []
    assert [one.nominated_node for one in result.snapshot.pending] == ["a", "b"]
    assert verify(snapshot, result) == ()


def test_room_that_comes_free_anyhow_costs_nothing() -> None:
    """To evict ``cheap`` would do as well; ``gone`` is more important and terminates."""
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, pod("cheap", 4000)), node("b", 4000, dying(pod("gone", 4000, 50)))],
        pending=[pod("p", 4000, 100)],
    )
    result = schedule(snapshot, preempt=RULES)
    (plan,) = result.preemptions
    assert [(one.pod.name, one.node) for one in plan.leaving] == [("gone", "b")]
    assert (plan.victims, plan.damage, plan.certificate.proven) == ((), NO_DAMAGE, True)
    assert [type(one) for one in result.decisions] == [Nominated]
    assert verify(snapshot, result) == ()


def test_what_a_leaving_pod_gives_up_is_taken_once() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, pod("low", 4000)), node("b", 4000, dying(pod("gone", 4000)))],
        pending=[pod("p", 4000, 100), pod("q", 4000, 90), pod("r", 4000, 80)],
    )
    result = schedule(snapshot, preempt=RULES)
    assert [type(one) for one in result.decisions] == [Nominated, Nominated, Unschedulable]
    assert victims(result) == ["low"]
    assert verify(snapshot, result) == ()


def test_a_gang_member_that_leaves_does_not_count_as_running() -> None:
    """Two of three run on, as many as the gang needs: none of them can be spared."""
    group = PodGroup(namespace="default", name="g", min_member=2)
    snapshot = ClusterSnapshot(
        nodes=[
            node("a", 2000, pod("g0", 2000, 0, "g")),
            node("b", 2000, pod("g1", 2000, 0, "g")),
            node("c", 1000, dying(pod("g2", 1000, 0, "g"))),
            node("d", 2000, pod("lone", 2000, 5)),
        ],
        pending=[pod("p", 2000, 10)],
        records=[group],
    )
    result = schedule(snapshot, preempt=RULES)
    assert victims(result) == ["g0", "g1"]
    assert result.preemptions[0].broken == ("default/g",)
    assert verify(snapshot, result) == ()


def test_the_checker_names_who_is_evicted_again() -> None:
    snapshot = ClusterSnapshot(nodes=[node("b", 4000, dying(pod("gone", 4000)))], pending=[pod("p", 4000, 1)])
    result = schedule(snapshot, preempt=RULES)
    (decision,), (plan,) = result.decisions, result.preemptions
    assert isinstance(decision, Nominated)
    again = (Victim(snapshot.nodes[0].pods[0].key, "b", 0, "default/gone"),)
    changed = attrs.evolve(plan, victims=again)
    forged = attrs.evolve(
        result,
        decisions=(attrs.evolve(decision, victims=again),),
        preemptions=(changed,),
        snapshot=with_victims_leaving(result.snapshot, (changed,)),
    )
    assert "leaves anyhow and is evicted again" in [one.message for one in verify(snapshot, forged)]


def test_the_manifest_says_for_whom_a_pod_leaves() -> None:
    told = attrs.evolve(pod("a", 1000).at("n"), disruption="PreemptionByScheduler", preempted_by="default/w")
    read = pod_from_manifest(pod_manifest(told))
    assert (read.disruption, read.preempted_by) == ("PreemptionByScheduler", "default/w")


def test_members_of_one_gang_count_on_whom_each_of_them_could_evict() -> None:
    """The less important one comes last, and has somebody leave beside the one that goes for the other."""
    gang = PodGroup(namespace="default", name="big", min_member=1)
    snapshot = ClusterSnapshot(
        nodes=[node("a", 4000, dying(pod("old", 2000, 5)), pod("low", 2000, 0))],
        pending=[pod("m0", 2000, 1, "big"), pod("m1", 2000, 9, "big")],
        records=[gang],
    )
    result = schedule(snapshot, preempt=PreemptionRules(members="each"))
    nominated = [one for one in result.decisions if isinstance(one, Nominated)]
    told = {one.pod.name: [victim.pod.name for victim in one.victims] for one in nominated}
    assert told == {"m1": [], "m0": ["low"]}
    assert verify(snapshot, result) == ()
    spared = tuple(attrs.evolve(one, victims=()) for one in nominated)
    found = verify(snapshot, attrs.evolve(result, decisions=spared, preemptions=()))
    assert "cpu: 6000 once the victims have gone, 4000 allocatable" in [one.message for one in found]
