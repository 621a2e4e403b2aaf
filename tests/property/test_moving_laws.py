"""Laws of plans of moves on whole clusters: devices, gangs, budgets, workloads, affinity, limits.

Legal: the independent checker finds nothing wrong with any step, and no budget or limit is passed at any
moment. Finished: where everything was reached, planning on the result plans nothing. Repeatable: the same
cluster gives the same plan.
"""

from __future__ import annotations

from typing import TypeVar

import attrs
from hypothesis import given, settings, strategies as st

from koordcore.checking.moves import verify_moves
from koordcore.descheduling.card_moves import fragmented_milli, fragments_of, plan_less_fragmentation
from koordcore.descheduling.checked_moves import Plan
from koordcore.descheduling.defrag import Wanted
from koordcore.descheduling.plans import MoveRules, Moving, plan_cooling, plan_empty_nodes, plan_room
from koordcore.model.certificates import Limits
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.decisions import Bound
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric
from koordcore.model.moves import Move
from koordcore.model.resources import make_resources
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.cluster import bind
from tests.scheduling.moving_worlds import GANG, HOT, NOW, random_world

P = TypeVar("P", bound=Plan)

seeds = st.integers(0, 10**6)
few = settings(max_examples=8, deadline=None)
BUDGET = Limits(1.0)
WANTED = (
    Wanted(requests=make_resources({"cpu": 8000, "pods": 1})),
    Wanted(requests=make_resources({"koordinator.sh/gpu-core": 200, "pods": 1}), count=2, per_node=1),
)


def assert_legal(snapshot: ClusterSnapshot, moving: Moving[P], rules: MoveRules) -> None:
    """Ask the checker again, and count the budgets by hand."""
    moves, bound = moving.plan.moves, moving.checked.bound
    assert moving.legal
    assert moving.checked.violations == ()
    found = verify_moves(
        snapshot, moves, bound, policy=rules.policy, args=rules.migration, limits=rules.limits
    )
    assert found == ()
    assert [one.pod for one in bound] == [move.pod for move in moves]
    if rules.limits.total is not None:
        assert len(moves) <= rules.limits.total
    most = rules.migration.max_migrating_globally
    members = {pod.key for pod in snapshot.bound_pods() if GANG in pod.labels}
    for wave in range(max((move.arrives for move in moves), default=-1) + 1):
        away = {move.pod for move in moves if move.leaves <= wave <= move.arrives}
        assert most is None or len(away) <= most
        for budget in snapshot.of(PodDisruptionBudget):
            pods = [snapshot.pod(key) for key in away]
            gone = sum(pod is not None and budget.selector.matches(pod.labels) for pod in pods)
            assert gone <= budget.disruptions_allowed
        for group in snapshot.of(PodGroup):
            assert not away & members or len(members - away) >= group.min_member


def carried_out(
    snapshot: ClusterSnapshot, moves: tuple[Move, ...], bound: tuple[Bound, ...]
) -> ClusterSnapshot:
    """Give the cluster afterwards; reports follow the pods."""
    pods = {move.pod: snapshot.pod(move.pod) for move in moves}
    made = []
    for one in bound:
        pod = pods[one.pod]
        assert pod is not None
        kept = {key: text for key, text in pod.annotations.items() if key != DEVICE_ALLOCATED}
        made.append(bind(attrs.evolve(pod, node_name=None, annotations=kept), one))
    after = snapshot.forget(*pods).assume(*made)
    reports = {(one.namespace, one.name): one for old in snapshot.of(NodeMetric) for one in old.pods}
    return after.with_records(
        *(
            attrs.evolve(
                old, pods=tuple(reports[pod.namespace, pod.name] for pod in after.node(old.node).pods)
            )
            for old in snapshot.of(NodeMetric)
        )
    )


@few
@given(seeds)
def test_every_step_of_cooling_is_legal(seed: int) -> None:
    snapshot, rules = random_world(seed)
    moving = plan_cooling(snapshot, HOT, now=NOW, rules=rules, budget=BUDGET)
    assert_legal(snapshot, moving, rules)
    assert moving.plan == plan_cooling(snapshot, HOT, now=NOW, rules=rules, budget=BUDGET).plan
    assert set(moving.plan.after) <= set(moving.plan.before)
    if not moving.plan.after:
        left = carried_out(snapshot, moving.plan.moves, moving.checked.bound)
        again = plan_cooling(left, HOT, now=NOW, rules=rules, budget=BUDGET)
        assert (again.plan.before, again.plan.moves) == ((), ())


@few
@given(seeds, st.sampled_from(WANTED))
def test_every_step_of_making_room_is_legal(seed: int, wanted: Wanted) -> None:
    snapshot, rules = random_world(seed)
    moving = plan_room(snapshot, wanted, rules=rules, budget=BUDGET)
    assert_legal(snapshot, moving, rules)
    if not moving.plan.missing:
        left = carried_out(snapshot, moving.plan.moves, moving.checked.bound)
        again = plan_room(left, wanted, rules=rules, budget=BUDGET)
        assert (again.plan.missing, again.plan.moves) == (0, ())


@few
@given(seeds)
def test_every_step_of_emptying_is_legal(seed: int) -> None:
    snapshot, rules = random_world(seed)
    moving = plan_empty_nodes(snapshot, rules=rules)
    assert_legal(snapshot, moving, rules)
    left = carried_out(snapshot, moving.plan.moves, moving.checked.bound)
    assert all(not left.node(name).pods for name in moving.plan.emptied)
    before = {state.name for state in snapshot.nodes if not state.pods}
    assert all(not left.node(name).pods for name in before)
    if moving.plan.certificate.proven:
        assert plan_empty_nodes(left, rules=rules).plan.moves == ()


@few
@given(seeds)
def test_every_step_of_tidying_cards_is_legal(seed: int) -> None:
    snapshot, rules = random_world(seed)
    aim = fragments_of(snapshot, worth=300)
    moving = plan_less_fragmentation(snapshot, aim, rules=rules, budget=BUDGET)
    assert_legal(snapshot, moving, rules)
    assert moving.plan.before == fragmented_milli(snapshot, aim.mix)
    if all(not aim.demands[move.pod].shared for move in moving.plan.moves):
        assert moving.plan.after == fragmented_milli(moving.checked.snapshot, aim.mix)
