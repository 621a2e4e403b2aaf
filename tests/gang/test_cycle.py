"""The gang cycle: who is admitted, waits, is released or given up."""

from __future__ import annotations

import pytest

from koordcore.allocators.gang.cycle import before_pre_filter, permit
from koordcore.allocators.gang.events import add_pod, add_pod_group, post_bind
from koordcore.allocators.gang.state import LONGEST_WAIT, Code, GangState, worth_requeue
from koordcore.model.durations import MINUTE, SECOND
from koordcore.model.gangs import Gang, GangMode, GangPod, GangSource, MatchPolicy
from tests.reference.gang_cycle import (
    after_post_filter,
    binding_group,
    next_pod,
    pre_enqueue,
    timeout,
    unreserve,
)
from tests.reference.gang_events import delete_pod, delete_pod_group, update_pod, update_pod_group


def configured(
    name: str = "a/g",
    least: int = 2,
    *,
    mode: GangMode = GangMode.STRICT,
    policy: str = MatchPolicy.ONCE_SATISFIED,
    group: tuple[str, ...] | None = None,
    wait: int = 30 * SECOND,
) -> Gang:
    return Gang(
        id=name,
        source=GangSource.POD_GROUP,
        initialised=True,
        min_available=least,
        total=least,
        mode=mode,
        match_policy=policy,
        wait_time=wait,
        group=group or (name,),
    )


def pod(name: str, gang: str = "a/g", node: str = "") -> GangPod:
    return GangPod(key=f"a/{name}", uid=f"u-{name}", gang_id=gang, by_crd=True, node_name=node)


def state_of(*gangs: Gang, pods: tuple[GangPod, ...] = ()) -> GangState:
    state = GangState()
    for gang in gangs:
        state = add_pod_group(state, gang).state
    for member in pods:
        state = add_pod(state, member).state
    return state


P1, P2, P3 = pod("p1"), pod("p2"), pod("p3")


def test_a_pod_without_gang_is_nobodys_business() -> None:
    lone = GangPod(key="a/x")
    state = add_pod(GangState(), lone).state
    assert state == GangState()
    for step in (pre_enqueue(state, lone), before_pre_filter(state, lone), permit(state, lone, now=0)):
        assert step.code is Code.SUCCESS


def test_members_wait_and_are_released_together() -> None:
    state = state_of(configured(), pods=(P1, P2))
    state = before_pre_filter(state, P1).state
    first = permit(state, P1, now=5)
    assert (first.code, first.wait) == (Code.WAIT, 30 * SECOND)
    assert next_pod(first.state).pod == "a/p2"
    last = permit(next_pod(first.state).state, P2, now=6)
    assert (last.code, last.released) == (Code.SUCCESS, ("a/p1",))
    assert last.state.cycle is None
    assert last.state.permits == {}
    assert binding_group(last.state, P1) == (("a/g",), 2)
    bound = post_bind(post_bind(last.state, P1).state, P2).state
    assert bound.groups["a/g"].satisfied
    assert binding_group(bound, P1) is None


def test_strict_failure_gives_up_whoever_waits_and_fails_the_rest_fast() -> None:
    state = state_of(configured(least=3), pods=(P1, P2, P3))
    state = permit(before_pre_filter(state, P1).state, P1, now=0).state
    failed = after_post_filter(next_pod(state).state, P2, "0/1 nodes are available.")
    assert failed.rejected == ("a/p1",)
    assert "alreadyWaitForBound: 1" in failed.reject_reason
    again = before_pre_filter(failed.state, P3)
    assert (again.code, again.root_cause) == (Code.UNRESOLVABLE, False)
    assert again.message == failed.reject_reason


def test_non_strict_keeps_what_waits_and_tries_the_rest() -> None:
    state = state_of(configured(least=3, mode=GangMode.NON_STRICT), pods=(P1, P2, P3))
    state = permit(before_pre_filter(state, P1).state, P1, now=0).state
    failed = after_post_filter(next_pod(state).state, P2, "0/1 nodes are available.")
    assert (failed.rejected, failed.message) == ((), "")
    third = next_pod(failed.state)
    assert third.pod == "a/p3"
    assert before_pre_filter(third.state, P3).code is Code.SUCCESS
    end = next_pod(third.state)
    assert (end.pod, end.rejected) == (None, ())
    assert "a/p1" in end.state.permits


def test_the_end_of_a_strict_cycle_gives_up_whoever_waits() -> None:
    state = state_of(configured(least=2), pods=(P1, P2))
    state = permit(before_pre_filter(state, P1).state, P1, now=0).state
    step = next_pod(next_pod(state).state)
    assert step.rejected == ("a/p1",)
    assert step.reject_reason == "all pending pods is already been attempted"


def test_a_failed_bind_of_a_strict_member_gives_up_the_others() -> None:
    state = state_of(configured(least=3), pods=(P1, P2, P3))
    for member in (P1, P2):
        state = permit(state, member, now=0).state
    step = unreserve(state, P1)
    assert step.rejected == ("a/p2",)
    assert step.state.gangs["a/g"].pending == {"a/p1", "a/p3"}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MatchPolicy.ONLY_WAITING, Code.WAIT),
        (MatchPolicy.WAITING_AND_RUNNING, Code.SUCCESS),
        (MatchPolicy.ONCE_SATISFIED, Code.SUCCESS),
    ],
)
def test_policies_count_the_bound_member_differently(policy: str, expected: Code) -> None:
    state = state_of(configured(policy=policy), pods=(pod("p0", node="n1"), P1))
    assert permit(state, P1, now=0).code is expected


def test_groups_over_two_namespaces_go_together() -> None:
    group = ("a/c", "b/d")
    c, d = pod("c1", "a/c"), pod("d1", "b/d")
    state = state_of(configured("a/c", 1, group=group), configured("b/d", 1, group=group), pods=(c, d))
    waiting = permit(state, c, now=0)
    assert waiting.code is Code.WAIT
    assert permit(waiting.state, d, now=0).released == ("a/c1",)


def test_one_representative_per_group() -> None:
    state = pre_enqueue(state_of(configured(), pods=(P1, P2)), P1).state
    assert pre_enqueue(state, P2).message == "representative pod a/p1 of gangGroupID a/g already exists"
    assert pre_enqueue(delete_pod(state, P1).state, P2).code is Code.UNRESOLVABLE  # too few are left
    assert pre_enqueue(add_pod(delete_pod(state, P1).state, P3).state, P2).code is Code.SUCCESS


def test_a_pod_of_another_group_neither_joins_nor_ends_a_cycle() -> None:
    other = pod("q1", "a/h")
    state = state_of(configured(), configured("a/h", 1), pods=(P1, P2, other))
    state = before_pre_filter(state, P1).state
    passed = permit(before_pre_filter(state, other).state, other, now=0)
    assert passed.code is Code.SUCCESS
    assert next_pod(passed.state).pod == "a/p2"


def test_waits_end_at_their_deadline_and_never_after_fifteen_minutes() -> None:
    state = state_of(configured(wait=20 * MINUTE), configured("a/h", 2, wait=SECOND), pods=(P1, P2))
    state = add_pod(add_pod(state, pod("q1", "a/h")).state, pod("q2", "a/h")).state
    state = permit(permit(state, P1, now=0).state, pod("q1", "a/h"), now=0).state
    early = timeout(state, now=SECOND)
    assert early.timed_out == ("a/q1",)
    assert timeout(early.state, now=LONGEST_WAIT - 1).timed_out == ()
    assert timeout(early.state, now=LONGEST_WAIT).timed_out == ("a/p1",)


def test_a_topology_gang_needs_a_topology() -> None:
    from koordcore.model.gangs import NetworkTopologySpec

    gang = configured(least=1)
    import attrs

    state = state_of(attrs.evolve(gang, topology_spec=NetworkTopologySpec()), pods=(P1,))
    assert before_pre_filter(state, P1, topology_known=False).message == "no cluster network topology"
    assert before_pre_filter(state, P1).code is Code.SUCCESS


def test_a_member_bound_before_its_pod_group_satisfies_the_group() -> None:
    state = add_pod(GangState(), pod("p0", node="n1")).state
    assert not state.groups
    state = add_pod_group(state, configured(group=("a/g", "a/h"))).state
    assert state.groups["a/g,a/h"].satisfied


def test_the_record_follows_the_group_id() -> None:
    state = pre_enqueue(state_of(configured(least=1), pods=(P1,)), P1).state
    state = update_pod_group(state, configured(least=1, group=("a/g", "a/h"))).state
    assert set(state.groups) == {"a/g,a/h"}
    assert update_pod_group(state, configured("a/unknown")).state == state


def test_a_record_stays_while_another_gang_of_the_group_uses_it() -> None:
    both = ("a/g", "a/h")
    state = state_of(configured(group=both), configured("a/h", group=both))
    state = update_pod_group(state, configured(group=("a/g",))).state
    assert set(state.groups) == {"a/g", "a/g,a/h"}
    assert set(update_pod_group(state, configured("a/h", group=("a/h",))).state.groups) == {"a/g", "a/h"}


def test_a_raised_minimum_that_is_reached_again_activates_one_pod() -> None:
    state = state_of(configured(least=3), pods=(P1, P2))
    assert update_pod_group(state, configured(least=2)).activate == ("a/p1",)
    assert update_pod_group(state_of(configured(), pods=(P1, P2)), configured()).activate == ()


def test_annotation_gangs_go_with_their_last_pod_and_pod_groups_stay() -> None:
    own = Gang(id="a/g", initialised=True, min_available=1)
    lone = GangPod(key="a/p1", gang_id="a/g", config=own)
    state = add_pod(GangState(), lone).state
    assert state.gangs["a/g"].gang == own
    assert delete_pod(state, lone).state == GangState()
    kept = delete_pod(state_of(configured(), pods=(P1,)), P1).state
    assert list(kept.gangs) == ["a/g"]
    assert delete_pod_group(kept, "a/g").state == GangState()


def test_terminated_pods_keep_what_is_known() -> None:
    state = state_of(configured(), pods=(P1,))
    gone = GangPod(key="a/p1", gang_id="a/g", by_crd=True, node_name="n1", terminated=True)
    assert update_pod(state, gone).state == state
    assert not worth_requeue(state.gangs["a/g"])
