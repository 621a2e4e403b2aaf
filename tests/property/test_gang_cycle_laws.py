"""Laws of the gang cycle, driven as a scheduler drives it.

A gang is never released below its minimum; whatever a Strict gang gives up no longer waits; a member is
pending, waiting or bound, never two of them; the state before an event is untouched; the same events lead to
the same state.
"""

from __future__ import annotations

from hypothesis import given, strategies as st

from koordcore.allocators.gang.cycle import before_pre_filter, permit
from koordcore.allocators.gang.events import add_pod, add_pod_group, post_bind
from koordcore.allocators.gang.state import Code, GangState, Step, exempt
from koordcore.model.gangs import Gang, GangMode, GangPod, GangSource, MatchPolicy
from tests.reference.gang_cycle import after_post_filter, next_pod, pre_enqueue, timeout, unreserve
from tests.reference.gang_events import delete_pod

EVENTS = ("turn", "next", "fail", "permit", "bind", "unreserve", "delete", "tick", "enqueue")


@st.composite
def scripts(draw: st.DrawFn) -> tuple[tuple[Gang, ...], tuple[GangPod, ...], list[tuple[str, int]]]:
    names = ("a/g", "a/h")[: draw(st.integers(1, 2))]
    group = names if draw(st.booleans()) else None
    gangs = tuple(
        Gang(
            id=name,
            source=GangSource.POD_GROUP,
            initialised=True,
            min_available=draw(st.integers(1, 3)),
            mode=draw(st.sampled_from(GangMode)),
            match_policy=draw(st.sampled_from(MatchPolicy)),
            wait_time=draw(st.integers(1, 5)),
            group=group or (name,),
        )
        for name in names
    )
    pods = tuple(
        GangPod(key=f"a/p{number}", uid=f"u{number}", gang_id=draw(st.sampled_from(names)), by_crd=True)
        for number in range(draw(st.integers(1, 6)))
    )
    events = draw(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5)), max_size=25))
    return gangs, pods, events


def start(gangs: tuple[Gang, ...], pods: tuple[GangPod, ...]) -> GangState:
    state = GangState()
    for gang in gangs:
        state = add_pod_group(state, gang).state
    for pod in pods:
        state = add_pod(state, pod).state
    return state


def apply(state: GangState, event: str, pod: GangPod, now: int) -> Step:
    match event:
        case "turn":
            return before_pre_filter(state, pod)
        case "next":
            return next_pod(state)
        case "fail":
            return after_post_filter(state, pod, "0/1 nodes are available.")
        case "permit":
            return permit(state, pod, now=now)
        case "bind":
            return post_bind(state, pod)
        case "unreserve":
            return unreserve(state, pod)
        case "delete":
            return delete_pod(state, pod)
        case "tick":
            return timeout(state, now=now)
        case _:
            return pre_enqueue(state, pod)


@given(scripts())
def test_no_gang_is_left_half_bound(
    script: tuple[tuple[Gang, ...], tuple[GangPod, ...], list[tuple[str, int]]],
) -> None:
    gangs, pods, events = script
    state = start(gangs, pods)
    trail, done = [state], list[tuple[str, GangPod]]()
    for now, (wanted, choice) in enumerate(events):
        pod = pods[choice % len(pods)]
        event = wanted
        if event == "permit" and pod.key not in state.gangs[pod.gang_id].pending:
            event = "enqueue"  # only a member without a place can find one
        before, seen = state, repr(state)
        known = state.gangs[pod.gang_id]
        step = apply(state, event, pod, now)
        assert repr(before) == seen
        state = step.state
        trail.append(state)
        done.append((event, pod))
        if event == "permit" and step.code is Code.SUCCESS and not exempt(before, known):
            for gang_id in known.gang.group:
                record = state.gangs[gang_id]
                gathered = len(record.waiting)
                if record.gang.match_policy == MatchPolicy.WAITING_AND_RUNNING:
                    gathered += len(record.bound)
                satisfied = before.group_of(before.gangs[gang_id]).satisfied
                once = record.gang.match_policy == MatchPolicy.ONCE_SATISFIED and satisfied
                assert once or gathered >= record.gang.min_available
        assert not frozenset(step.rejected) & state.permits.keys()
        assert not frozenset(step.released) & state.permits.keys()
        for record in state.gangs.values():
            assert not record.pending & record.waiting.keys()
            assert not record.pending & record.bound
    replay = start(gangs, pods)
    for now, (event, pod) in enumerate(done):
        replay = apply(replay, event, pod, now).state
        assert replay == trail[now + 1]
