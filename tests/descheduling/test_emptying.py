"""Emptying nodes by plan."""

from __future__ import annotations

import attrs
from hypothesis import given, settings

from koordcore.checking.certificates import check_certificate
from koordcore.descheduling.emptying import plan_emptying
from koordcore.descheduling.moves import Host, Movable, MoveProblem
from koordcore.model.pods import PodKey
from tests.property.test_rebalance_laws import after, problems, replay
from tests.reference.rebalance_moves import amounts, assignments


def made(nodes: dict[str, tuple[int, ...]], fixed: dict[str, int] | None = None) -> MoveProblem:
    return MoveProblem(
        hosts=tuple(
            Host(name=name, requested={"cpu": sum(pods) + (fixed or {}).get(name, 0)}, allocatable={"cpu": 8})
            for name, pods in nodes.items()
        ),
        movable=tuple(
            Movable(pod=PodKey("d", f"{name}{index}"), node=name, requests={"cpu": size})
            for name, pods in nodes.items()
            for index, size in enumerate(pods)
        ),
    )


def test_the_cheapest_node_is_emptied_into_the_tightest_place() -> None:
    """One pod moves where it just fits; the node that took it stays."""
    plan = plan_emptying(made({"a": (2,), "b": (3, 3), "c": (4, 1, 1)}))
    assert plan.emptied == ("a",)
    assert [(move.pod.name, move.target) for move in plan.moves] == [("a0", "b")]


def test_a_node_that_holds_more_cannot_be_emptied() -> None:
    """What is not movable stays, so the movable pods stay, too."""
    assert plan_emptying(made({"a": (1,), "b": (4,)}, {"a": 1})).emptied == ("b",)


def test_a_node_that_is_empty_stays_empty() -> None:
    """To empty one node by filling another gains nothing, and the same would be planned for ever."""
    problem = made({"a": (1,), "b": ()})
    plan = plan_emptying(problem)
    assert (plan.moves, plan.emptied, plan.certificate.objective) == ((), (), (0, 0, 0))
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted
    # Nor are two emptied into one: what is in use takes what it can.
    crowded = made({"a": (2,), "b": (2,), "c": (5,), "d": ()})
    plan = plan_emptying(crowded)
    assert [(move.pod.name, move.target) for move in plan.moves] == [("a0", "c")]
    assert plan_emptying(after(crowded, plan.moves)).emptied == ()


def test_no_more_than_asked_for() -> None:
    """A limit on the nodes."""
    nodes = {"a": (1,), "b": (1,), "c": (1,), "z": (2, 2)}
    assert len(plan_emptying(made(nodes)).emptied) == 3
    assert len(plan_emptying(made(nodes), most=1).emptied) == 1


@settings(max_examples=17, deadline=None)
@given(problems())
def test_emptying_is_legal_at_every_step(problem: MoveProblem) -> None:
    """Waves replay, limits hold, and nothing stays on or comes to an emptied node."""
    plan = plan_emptying(problem)
    replay(problem, plan.moves)
    moved = {move.pod for move in plan.moves}
    assert all(len(moved & set(group.pods)) <= max(0, group.most) for group in problem.groups)
    assert not {move.target for move in plan.moves} & set(plan.emptied)
    assert all(one.pod in moved for one in problem.movable if one.node in plan.emptied)
    assert not {move.target for move in plan.moves} & empty(problem)
    assert not plan.certificate.proven or plan_emptying(after(problem, plan.moves)).moves == ()
    assert not plan.gains or plan.gains[-1] == len(plan.emptied)
    assert sum(plan.prices) == plan.certificate.objective[2]
    # Usage plays a part in neither: all that could be emptied is what trying everything empties.
    calm = attrs.evolve(problem, hosts=tuple(attrs.evolve(host, high={}) for host in problem.hosts))
    certificate = plan_emptying(calm).certificate
    assert certificate.bound <= best_emptying(calm) <= certificate.objective


def empty(problem: MoveProblem) -> set[str]:
    """Name the nodes that nothing runs on."""
    idle = {host.name for host in problem.hosts if not any(host.requested.values())}
    return idle - {one.node for one in problem.movable}


def best_emptying(problem: MoveProblem) -> tuple[int, int, int]:
    """Try every set of moves that leaves nodes empty, touches no others and fills none that is empty."""
    costs = {one.pod: one.cost for one in problem.movable}
    found = []
    for moved in assignments(problem):
        if empty(problem) & {*moved.values()}:
            continue
        left = amounts(problem, moved, "requests")
        sources = {one.node for one in problem.movable if one.pod in moved}
        whole = all(one.pod in moved for one in problem.movable if one.node in sources)
        if whole and all(not any(left[name].values()) and name not in moved.values() for name in sources):
            found.append((-len(sources), len(moved), sum(costs[pod] for pod in moved)))
    return min(found)
