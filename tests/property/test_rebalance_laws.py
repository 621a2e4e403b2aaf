"""Laws of the planners of moves.

Optimal: the certificate says what trying everything says. Legal at every step: replayed wave by wave, no node
is asked for more than it has, and no group loses more than it may. Finished: planning on the result moves
nothing. Repeatable: the same problem gives the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given, settings, strategies as st

from koordcore.checking.certificates import check_certificate
from koordcore.descheduling.anomaly import Detector, DetectorState
from koordcore.descheduling.defrag import Wanted, plan_defragmentation
from koordcore.descheduling.fragments import Fragments, FragmentsPlan, plan_fragments
from koordcore.descheduling.load_problem import spared
from koordcore.descheduling.migration.max_unavailable import max_unavailable
from koordcore.descheduling.moves import Group, Host, Movable, MoveProblem, covering_sets, fewest_leaving
from koordcore.descheduling.plan import plan_rebalance
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey
from koordcore.model.resources import make_resources
from koordcore.scoring.gpu_share import first_free_slots
from tests.descheduling.fragment_worlds import random_cards
from tests.reference.rebalance_fragments import least_fragments
from tests.reference.rebalance_moves import amounts, assignments, fewest_to_cool, fewest_to_fit, hot

CAPACITY = 10


@st.composite
def problems(draw: st.DrawFn) -> MoveProblem:
    """Make up to three nodes with up to five pods, often tight, with one limit on some of them."""
    count = draw(st.integers(2, 3))
    movable: list[Movable] = []
    fixed = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    for index in range(draw(st.integers(0, 5))):
        used = draw(st.integers(0, 5))
        asked = {"cpu": draw(st.integers(0, 5)), "memory": draw(st.integers(0, 4))}
        movable.append(
            Movable(
                pod=PodKey("d", f"p{index}"),
                node=f"n{draw(st.integers(0, count - 1))}",
                requests=make_resources(asked),
                usage=make_resources({"cpu": used, "memory": draw(st.integers(0, 4))}),
                cost=draw(st.integers(1, 3)),
            )
        )
    hosts = []
    for index in range(count):
        own = [one for one in movable if one.node == f"n{index}"]
        sums = {
            kind: make_resources(
                {
                    name: fixed[index] + sum(getattr(one, kind).get(name, 0) for one in own)
                    for name in ("cpu", "memory")
                }
            )
            for kind in ("requests", "usage")
        }
        hosts.append(
            Host(
                name=f"n{index}",
                requested=sums["requests"],
                allocatable=make_resources({"cpu": CAPACITY, "memory": draw(st.integers(6, 12))}),
                usage=sums["usage"],
                high=make_resources({"cpu": draw(st.integers(3, 8)), "memory": 8}),
                receives=draw(st.integers(0, 4)) > 0,
            )
        )
    keys = tuple(one.pod for one in movable)
    group = Group("some", keys[: draw(st.integers(0, len(keys)))], draw(st.integers(0, 2)))
    banned = draw(
        st.sets(st.tuples(st.sampled_from(["p0", "p1"]), st.sampled_from(["n0", "n1"])), max_size=2)
    )
    return MoveProblem(
        hosts=tuple(hosts),
        movable=tuple(movable),
        groups=(group,) if group.pods else (),
        allows=lambda pod, node: (pod.name, node) not in banned,
    )


def replay(problem: MoveProblem, moves: Sequence[Move]) -> None:
    """Carry the waves out: arrivals before departures within a wave, and no node ends overdrawn."""
    hosts = {host.name: host for host in problem.hosts}
    movable = {one.pod: one for one in problem.movable}
    asked = {host.name: dict(host.requested) for host in problem.hosts}
    for wave in range(max((move.arrives for move in moves), default=-1) + 1):
        for move in moves:
            if move.leaves < move.arrives and move.leaves == wave:
                for name, amount in movable[move.pod].requests.items():
                    asked[move.source][name] -= amount
        for move in moves:
            if move.arrives == wave:
                for name, amount in movable[move.pod].requests.items():
                    asked[move.target][name] = asked[move.target].get(name, 0) + amount
                    if amount:
                        assert asked[move.target][name] <= hosts[move.target].allocatable.get(name, 0)
        for move in moves:
            if move.leaves == move.arrives == wave:
                for name, amount in movable[move.pod].requests.items():
                    asked[move.source][name] -= amount


def after(problem: MoveProblem, moves: Sequence[Move]) -> MoveProblem:
    """Give the problem that is left once the moves are done."""
    moved = {move.pod: move.target for move in moves}
    requests, usage = amounts(problem, moved, "requests"), amounts(problem, moved, "usage")
    hosts = tuple(
        attrs.evolve(
            host, requested=make_resources(requests[host.name]), usage=make_resources(usage[host.name])
        )
        for host in problem.hosts
    )
    movable = tuple(attrs.evolve(one, node=moved.get(one.pod, one.node)) for one in problem.movable)
    groups = tuple(
        Group(one.name, one.pods, one.most - sum(pod in moved for pod in one.pods)) for one in problem.groups
    )
    return MoveProblem(hosts=hosts, movable=movable, groups=groups, allows=problem.allows)


@settings(max_examples=10, deadline=None)
@given(problems(), st.booleans())
def test_cooling_is_optimal_legal_and_finished(problem: MoveProblem, sparing: bool) -> None:
    """The plan is the best of all, can be carried out, and leaves nothing to do within the same limits."""
    problem = spared(problem) if sparing else problem
    plan = plan_rebalance(problem)
    assert plan.certificate.proven
    assert plan.certificate.objective == fewest_to_cool(problem)
    assert set(plan.after) == hot(problem, {move.pod: move.target for move in plan.moves})
    replay(problem, plan.moves)
    moved = {move.pod for move in plan.moves}
    assert all(len(moved & set(group.pods)) <= max(0, group.most) for group in problem.groups)
    assert plan == plan_rebalance(problem)
    left = after(problem, plan.moves)
    if not plan.after:
        assert plan_rebalance(left).moves == ()


@settings(max_examples=23, deadline=None)
@given(
    problems(),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([None, 1, 2]),
    st.dictionaries(st.sampled_from(["n0", "n1"]), st.integers(0, 2)),
    st.booleans(),
)
def test_defragmentation_is_optimal_legal_and_finished(
    problem: MoveProblem,
    size: int,
    count: int,
    per_node: int | None,
    at_most: dict[str, int],
    in_blocks: bool,
) -> None:
    """The same for a wanted shape, anywhere or in one block."""
    blocks = {"n0": "x", "n1": "y", "n2": "x"} if in_blocks else {}
    shape = make_resources({"cpu": size})
    wanted = Wanted(requests=shape, count=count, per_node=per_node, at_most=at_most, blocks=blocks)
    # Usage plays no part where nobody has a threshold.
    problem = attrs.evolve(
        problem, hosts=tuple(attrs.evolve(host, high=make_resources({})) for host in problem.hosts)
    )
    plan = plan_defragmentation(problem, wanted)
    assert plan.certificate.proven
    assert plan.certificate.objective == fewest_to_fit(problem, wanted)
    assert sum(slots for _, slots in plan.places) == wanted.count - plan.missing
    assert all(slots <= at_most.get(node, slots) for node, slots in plan.places)
    if plan.certificate.problem is not None:
        assert check_certificate(plan.certificate.problem, plan.certificate).accepted
    replay(problem, plan.moves)
    assert plan == plan_defragmentation(problem, wanted)
    again = plan_defragmentation(after(problem, plan.moves), wanted)
    assert again.moves == ()
    assert again.missing == plan.missing


@settings(max_examples=15, deadline=None)
@given(problems(), st.integers(1, 6), st.integers(1, 3))
def test_room_is_made_as_well_as_can_be_where_nodes_are_hot(
    problem: MoveProblem, size: int, count: int
) -> None:
    """A node that stays hot takes nobody and no other gets hot; nothing else is asked of usage."""
    problem, wanted = spared(problem), Wanted(requests=make_resources({"cpu": size}), count=count)
    plan = plan_defragmentation(problem, wanted)
    moved = {move.pod: move.target for move in plan.moves}
    assert moved in list(assignments(problem))
    assert plan.certificate.proven
    assert plan.certificate.objective == fewest_to_fit(problem, wanted)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_the_bound_never_exceeds_what_suffices(pods: list[tuple[int, int]], cpu: int, memory: int) -> None:
    """The first covering set is no smaller than the bound, and every one covers."""
    movable = [
        Movable(pod=PodKey("d", f"p{index}"), node="n", requests=make_resources({"cpu": c, "memory": m}))
        for index, (c, m) in enumerate(pods)
    ]
    excess = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    least = fewest_leaving([one.requests for one in movable], excess)
    sets = list(covering_sets(movable, [one.requests for one in movable], excess))
    assert (least is None) <= (not sets)
    for chosen in sets:
        assert least is not None
        assert len(chosen) >= least
        assert all(sum(one.requests.get(name, 0) for one in chosen) >= over for name, over in excess.items())


@given(
    st.integers(0, 300), st.one_of(st.none(), st.integers(0, 400), st.integers(0, 200).map(lambda n: f"{n}%"))
)
def test_some_pod_may_always_go(replicas: int, share: int | str | None) -> None:
    """Rounding never forbids everything, and never allows more than there is."""
    most = max_unavailable(replicas, share)
    assert (most >= 1) == (replicas >= 1)
    assert most <= replicas


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=30))
def test_a_detector_needs_enough_sightings(steps: list[tuple[bool, int]]) -> None:
    """An anomaly begins at a hot sighting that has more than the allowed number before it, never else."""
    detector, now, row = Detector(), 0, 0
    for abnormal, seconds in steps:
        now += seconds * 10**9
        before = detector.at(now).state
        detector = detector.seen(abnormal=abnormal, now=now)
        row = row + 1 if abnormal else 0
        if before is DetectorState.OK and detector.state is DetectorState.ANOMALY:
            assert abnormal
            assert row > detector.condition.consecutive_abnormalities


def with_moves_done(aim: Fragments, plan: FragmentsPlan) -> Fragments:
    """Give the cards once the moves are done, each pod on the lowest cards that are free."""
    nodes = {node.name: node for node in aim.nodes}
    slots = dict(aim.slots)
    for move in plan.moves:
        nodes[move.source] = nodes[move.source].give_back(aim.demands[move.pod], slots[move.pod])
    for move in plan.moves:
        demand = aim.demands[move.pod]
        slots[move.pod] = first_free_slots(nodes[move.target], demand)
        nodes[move.target] = nodes[move.target].take(demand, slots[move.pod])
    return attrs.evolve(aim, nodes=tuple(nodes.values()), slots=slots)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_fewer_fragments_are_optimal_legal_and_finished(seed: int) -> None:
    """For whole cards nothing beats the plan, and planning on the result moves nothing."""
    problem, aim = random_cards(seed, shares=False)
    plan = plan_fragments(problem, aim)
    assert plan.certificate.proven
    assert plan.certificate.objective == least_fragments(problem, aim)
    assert plan == plan_fragments(problem, aim)
    replay(problem, plan.moves)
    if aim.most is None:
        again = plan_fragments(after(problem, plan.moves), with_moves_done(aim, plan))
        assert (again.moves, again.before) == ((), plan.after)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_shares_of_cards_move_only_for_a_gain(seed: int) -> None:
    """Every move is paid for, the bound holds, and the gains end where the plan says."""
    problem, aim = random_cards(seed, shares=True)
    plan = plan_fragments(problem, aim)
    replay(problem, plan.moves)
    assert plan == plan_fragments(problem, aim)
    assert plan.certificate.bound <= plan.certificate.objective
    assert plan.before - plan.after >= aim.worth * len(plan.moves)
    assert sum(plan.prices) == len(plan.moves)
    assert not plan.gains or plan.gains[-1] == plan.before - plan.after
