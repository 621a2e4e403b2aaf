"""The rules of the model are those of the library: whom it places and evicts, and when it does neither."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import attrs
import pytest

from koordcore import ClusterSnapshot, PreemptionRules, schedule, verify
from koordcore.model import QuotaPolicy
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.policy import PluginSetting
from koordcore.protocol.preemption import PREEMPTED_REASON
from koordcore.simulate import KNOWN_RULES, LoopPod, LoopWorld
from koordcore.simulate.loop_moves import LoopMoves, starts
from koordcore.simulate.loop_search import nested_worlds, small_worlds
from koordcore.simulate.loop_worlds import (
    LEAVING,
    NOMINATED,
    WAITS,
    State,
)
from tests.simulate.test_loops import POLICY as GUARDED, real

OURS = KNOWN_RULES["koordcore"]
LIMITS = QuotaPolicy(
    monitor_all_quotas=True,
    enable_runtime_quota=False,
    enable_min_quota_scale=False,
    enable_check_parent_quota=True,
)
POLICY = GUARDED.with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=LIMITS))
"""The model knows ``min`` and ``max``, not how what is left over is shared at the moment."""


def snapshot_of(world: LoopWorld, state: State) -> ClusterSnapshot:
    placed = {pod: at % LEAVING for pod, at in enumerate(state) if 0 <= at < NOMINATED}
    snapshot = real(world, placed)
    for pod in snapshot.bound_pods():
        if state[int(pod.name[1:])] >= LEAVING:
            told = attrs.evolve(pod, preempted_by="default/somebody", disruption=PREEMPTED_REASON)
            snapshot = snapshot.forget(pod.key).assume(told)
    promised = {f"p{pod}": f"n{at - NOMINATED}" for pod, at in enumerate(state) if at >= NOMINATED}
    waiting = [attrs.evolve(pod, nominated_node=promised.get(pod.name)) for pod in snapshot.pending]
    return snapshot.with_pending(*waiting)


def reached(moves: LoopMoves) -> list[State]:
    seen: set[State] = set()
    todo = list(starts(moves.world))
    while todo:
        state = todo.pop()
        if state not in seen:
            seen.add(state)
            todo += [step.after for step in moves.steps(state)]
    return sorted(seen)


def decided(snapshot: ClusterSnapshot, pod: int) -> tuple[str, int, tuple[int, ...]] | None:
    (waiting,) = (one for one in snapshot.pending if one.name == f"p{pod}")
    result = schedule(snapshot, [waiting], policy=POLICY, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    (one,) = (each for each in result.decisions if each.pod == waiting.key)
    if isinstance(one, Bound):
        return "places", int(one.node[1:]), ()
    if not isinstance(one, Nominated):
        return None
    victims = tuple(sorted(int(victim.pod.name[1:]) for victim in one.victims))
    if not victims:
        return "awaits", int(one.node[1:]), ()
    (plan,) = result.preemptions
    return "reclaims" if plan.borrowers else "preempts", int(one.node[1:]), victims


@pytest.mark.parametrize(
    ("pods", "every", "worlds_of"),
    [(2, 11, small_worlds), (3, 509, small_worlds), (4, 15013, small_worlds), (3, 7507, nested_worlds)],
)
def test_the_library_does_what_the_model_lets_it_and_nothing_where_that_has_nothing(
    pods: int, every: int, worlds_of: Callable[[int], Iterator[LoopWorld]]
) -> None:
    """Every pod that waits, in two of the states that each world of a sample can come to."""
    luck = random.Random(pods)
    worlds = [world for world in worlds_of(pods) if len(world.pods) == pods]
    seen = Counter[str]()
    for world in worlds[::every]:
        moves = LoopMoves(world, OURS)
        states = [state for state in reached(moves) if WAITS in state]
        for state in luck.sample(states, min(2, len(states))):
            for pod in (pod for pod, at in enumerate(state) if at == WAITS):
                allowed = [(step.rule, step.node, step.evicted) for step in moves.comes(state, pod)]
                found = decided(snapshot_of(world, state), pod)
                assert found in allowed if found else not allowed, (world, state, pod, found, allowed)
                seen[found[0] if found else "waits"] += 1
    assert min(seen[rule] for rule in ("places", "preempts", "reclaims", "waits")) > 0, seen


def test_who_is_promised_room_need_not_leave_any_to_a_borrower_that_waits() -> None:
    """``p1`` was made room for and only borrows; ``p2`` is within its min, and reclaims from who runs."""
    world = LoopWorld(
        (1, 2), ((0, 4), (2, 2)), (LoopPod(1, 0), LoopPod(2, 1, 0), LoopPod(2, 1, 1), LoopPod(2, 2, 0))
    )
    assert decided(snapshot_of(world, (WAITS, NOMINATED + 1, WAITS, 1)), 2) == ("reclaims", 1, (3,))


def test_nobody_of_less_importance_loses_his_part_of_a_min_to_a_borrower() -> None:
    """``p1`` runs within the min of its quota in part; ``p2`` is more important and has no min."""
    world = LoopWorld((2,), ((1, 2), (0, 2)), (LoopPod(1, 0, 0), LoopPod(2, 1, 0), LoopPod(2, 2, 1)))
    assert decided(snapshot_of(world, (WAITS, 0, WAITS)), 2) is None
    # Once p1 has a place of its own by promise, p2 leaves it its room, too.
    assert decided(snapshot_of(world, (WAITS, NOMINATED, WAITS)), 2) is None


@pytest.mark.parametrize(("priority", "leaves"), [(0, True), (1, True), (2, False)])
def test_what_lies_within_a_min_in_part_is_had_back_from_who_is_no_more_important(
    priority: int, leaves: bool
) -> None:
    """``p0`` uses two of which one is promised to its quota; ``p1`` is promised two."""
    world = LoopWorld((2,), ((1, 2), (2, 2)), (LoopPod(2, priority, 0), LoopPod(2, 1, 1)))
    assert (decided(snapshot_of(world, (0, WAITS)), 1) is not None) is leaves


def test_who_is_promised_room_by_his_own_quota_keeps_it_although_the_one_above_has_used_up_its_own() -> None:
    """``p1`` was made room for by the eviction of ``p2``, who is more important and only borrows."""
    pods = (LoopPod(1, 0, 0), LoopPod(1, 1, 1), LoopPod(1, 2, 0))
    world = LoopWorld((2,), ((0, 2), (1, 1), (1, 3)), pods, (2, 2, -1))
    assert decided(snapshot_of(world, (0, NOMINATED, WAITS)), 2) == ("preempts", 0, (0,))
    assert decided(snapshot_of(world, (0, NOMINATED, WAITS)), 1) == ("places", 0, ())


def test_the_library_does_so_beside_those_who_have_to_go_and_still_hold_their_room() -> None:
    """Whom the library evicts, and whom it lets in, while evictions take their time."""
    graceful = attrs.evolve(OURS, graceful=True)
    luck = random.Random(5)
    seen = Counter[str]()
    for world in [world for world in small_worlds(3) if len(world.pods) == 3][::307]:
        moves = LoopMoves(world, graceful)
        states = [one for one in reached(moves) if WAITS in one and leaving(one)]
        for state in luck.sample(states, min(2, len(states))):
            for pod in (pod for pod, at in enumerate(state) if at == WAITS):
                allowed = [(step.rule, step.node, step.evicted) for step in moves.comes(state, pod)]
                found = decided(snapshot_of(world, state), pod)
                # Nobody has to count on who goes and is no less important, nor to ask for a promise of it.
                mine = world.pods[pod].priority
                hoped = {node for one, node in leaving(state).items() if world.pods[one].priority >= mine}
                waits = all(
                    rule == "awaits" or (rule != "places" and node in hoped) for rule, node, _ in allowed
                )
                assert found in allowed if found else waits, (world, state, pod, found, allowed)
                seen[found[0] if found else "waits"] += 1
    assert min(seen[rule] for rule in ("places", "awaits", "waits")) > 0, seen


def leaving(state: State) -> dict[int, int]:
    """Tell who has to go, and from where."""
    return {one: at - LEAVING for one, at in enumerate(state) if LEAVING <= at < NOMINATED}


def left_for(snapshot: ClusterSnapshot, name: str, whom: str) -> ClusterSnapshot:
    """Tell a pod to go for another one."""
    pod = snapshot.pod(f"default/{name}")
    assert pod is not None
    told = attrs.evolve(pod, preempted_by=f"default/{whom}", disruption=PREEMPTED_REASON)
    return snapshot.forget(pod.key).assume(told)


def test_nobody_takes_the_quota_of_who_waits_for_his_room_to_become_free() -> None:
    """``p1`` was evicted for the quota of ``p2``, which waits for ``p0`` to go: it would be so again."""
    world = LoopWorld((2, 1), ((0, 2),), (LoopPod(2, 0), LoopPod(1, 0, 0), LoopPod(2, 1, 0)))
    waiting = left_for(snapshot_of(world, (0, WAITS, NOMINATED)), "p0", "p2")
    assert decided(waiting, 1) is None
    # Without p2 it starts at once.
    assert decided(left_for(snapshot_of(world, (0, WAITS, WAITS)), "p0", "p2"), 1) == ("places", 1, ())


def test_nobody_reclaims_twice_while_the_first_takes_its_time() -> None:
    """``p2`` is promised two; who goes for it is more important than it is, and only borrows."""
    world = LoopWorld((4,), ((0, 4), (2, 4)), (LoopPod(2, 1, 0), LoopPod(2, 1, 0), LoopPod(2, 0, 1)))
    assert decided(snapshot_of(world, (0, 0, WAITS)), 2) == ("reclaims", 0, (0,))
    assert decided(left_for(snapshot_of(world, (0, 0, NOMINATED)), "p0", "p2"), 2) is None


def test_who_has_to_go_uses_nothing_of_what_his_quota_is_promised() -> None:
    """``p2`` goes; ``p0`` alone lies within the min of their quota then, and ``p1`` waits for that room."""
    pods = (LoopPod(1, 0, 0), LoopPod(1, 0, 1), LoopPod(2, 0, 0))
    world = LoopWorld((1, 2), ((1, 2), (1, 1)), pods)
    assert decided(left_for(snapshot_of(world, (0, WAITS, 1)), "p2", "somebody"), 1) == ("awaits", 1, ())
