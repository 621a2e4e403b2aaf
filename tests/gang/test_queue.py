"""Several gangs planned together."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape
from koordcore.allocators.gang.queue import QueuedGang, plan_in_order, plan_queue, queue_objective
from koordcore.errors import ModelError
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.topology.network import NetworkTopology
from tests.property.gang_strategies import tree_of
from tests.reference.gang_queue import Waiting, best_queue

pytestmark = pytest.mark.solver


def blocks(*sizes: int) -> NetworkTopology:
    """One spine with blocks of so many nodes."""
    return tree_of(
        tuple(
            ("s", f"b{block}", f"n{block}-{node}") for block, size in enumerate(sizes) for node in range(size)
        )
    )


def gang(
    tree: NetworkTopology, name: str, size: int, *, priority: int = 0, slots: int = 1, gathers: bool = True
) -> QueuedGang:
    members = tuple(Member(f"d/{name}-{number}", 0, number) for number in range(size))
    demand = GangDemand(
        roles=(Role(name=name, members=members, min_available=size),),
        shapes=(Shape(slots=np.full(len(tree.nodes), slots), request=np.array([1])),),
        free=np.full((1, len(tree.nodes)), slots),
        spec=NetworkTopologySpec((GatherRule("BlockLayer", "MustGather" if gathers else "PreferGather"),)),
    )
    return QueuedGang(name=name, demand=demand, priority=priority)


def test_together_all_four_start_where_one_by_one_three_do() -> None:
    tree = blocks(5, 5)
    queue = [gang(tree, name, size) for name, size in zip("abcd", (2, 2, 3, 3), strict=True)]
    assert plan_in_order(tree, queue).waiting == ("d",)
    plan = plan_queue(tree, queue)
    assert plan.waiting == ()
    assert plan.certificate.objective == (-4, -10, 4, 4)
    assert plan.certificate.status is CertificateStatus.PROVEN


def test_a_higher_priority_comes_before_numbers() -> None:
    tree = blocks(4)
    queue = [gang(tree, "a", 2), gang(tree, "b", 2), gang(tree, "c", 4, priority=9)]
    assert plan_queue(tree, queue).waiting == ("a", "b")


def test_of_equal_gangs_the_earlier_one_starts() -> None:
    tree = blocks(3)
    assert plan_queue(tree, [gang(tree, name, 2) for name in "xyz"]).waiting == ("y", "z")


def test_gangs_that_need_more_members_than_they_have_wait() -> None:
    tree = blocks(3)
    queue = [gang(tree, name, 1) for name in "xyz"]
    for number in (0, 2):
        (own,) = queue[number].demand.roles
        demand = attrs.evolve(queue[number].demand, roles=(attrs.evolve(own, min_available=2),))
        queue[number] = attrs.evolve(queue[number], demand=demand)
    assert plan_queue(tree, queue).waiting == ("x", "z")


def test_gangs_must_share_what_is_free() -> None:
    tree = blocks(3)
    with pytest.raises(ModelError, match="does not share"):
        plan_queue(tree, [gang(tree, "a", 1), gang(tree, "b", 1, slots=2)])
    with pytest.raises(ModelError, match="twice"):
        plan_queue(tree, [gang(tree, "a", 1), gang(tree, "a", 1)])


def test_an_empty_queue_is_planned() -> None:
    assert plan_queue(blocks(1), []).placements == {}


@settings(max_examples=17, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(("s", "t")), st.integers(1, 4)), min_size=1, max_size=3),
    st.lists(
        st.builds(Waiting, st.integers(1, 4), st.booleans(), st.sampled_from((0, 0, 5))),
        min_size=1,
        max_size=4,
    ),
)
def test_as_good_as_trying_everything(sizes: list[tuple[str, int]], waiting: list[Waiting]) -> None:
    tree = tree_of(
        tuple(
            (spine, f"{spine}b{block}", f"n{block}-{node}")
            for block, (spine, size) in enumerate(sizes)
            for node in range(size)
        )
    )
    queue = [
        gang(tree, f"g{number}", one.size, priority=one.priority, gathers=one.gathers)
        for number, one in enumerate(waiting)
    ]
    plan = plan_queue(tree, queue)
    assert plan.certificate.status is CertificateStatus.PROVEN
    assert plan.certificate.objective == best_queue(tuple(sizes), tuple(waiting))


def test_alike_gangs_of_two_shapes_keep_to_their_block() -> None:
    tree = blocks(4, 4, 2)
    queue = [
        attrs.evolve(one, demand=_with_loader(one.demand, len(tree.nodes)))
        for one in (gang(tree, f"g{number}", 3) for number in range(5))
    ]
    plan = plan_queue(tree, queue)
    assert list(plan.placements) == ["g0", "g1"]
    assert all(len({node[:3] for node in nodes.values()}) == 1 for nodes in plan.placements.values())
    assert plan.certificate.status is CertificateStatus.PROVEN


def _with_loader(demand: GangDemand, nodes: int) -> GangDemand:
    """Let the last member take a whole node and the others half of one."""
    members = [attrs.evolve(m, shape=int(m.rank == 2)) for m in demand.members]
    members += [Member(f"{members[0].key}-more", 1, 3), Member(f"{members[0].key}-most", 1, 4)]
    role = attrs.evolve(demand.roles[0], members=tuple(members), min_available=5)
    shapes = tuple(
        Shape(slots=np.full(nodes, 2 // size), request=np.array([size], dtype=np.int64)) for size in (1, 2)
    )
    return attrs.evolve(demand, roles=(role,), shapes=shapes, free=np.full((1, nodes), 2))


def test_a_multiple_on_the_nodes_of_a_later_gang_holds() -> None:
    tree = blocks(2, 2)
    rule = GatherRule("NodeTopologyLayer", "PreferGather", 2)
    first, second = gang(tree, "a", 3, slots=3), gang(tree, "b", 2, slots=3)
    second = attrs.evolve(second, demand=attrs.evolve(second.demand, spec=NetworkTopologySpec((rule,))))
    plan = plan_queue(tree, [first, second])
    assert plan.waiting == ()
    assert len(set(plan.placements["b"].values())) == 1


@pytest.mark.parametrize(("needed", "waiting"), [(2, ("b",)), (1, ())])
@pytest.mark.parametrize("alike", [True, False])
def test_a_gang_that_starts_has_as_many_of_its_roles_as_it_must(
    needed: int, waiting: tuple[str, ...], alike: bool
) -> None:
    """Three replicas of two, each in a block, and two blocks; another gang gets one that is not needed."""
    tree = blocks(2, 2)
    several, other = gang(tree, "a", 6, gathers=False), gang(tree, "b", 2)
    members = several.demand.members
    roles = tuple(
        Role(
            name=f"r{number}",
            members=members[2 * number : 2 * number + 2],
            min_available=2 if alike or number else 1,
            must_layer="BlockLayer",
        )
        for number in range(3)
    )
    several = attrs.evolve(several, demand=attrs.evolve(several.demand, roles=roles, min_roles=needed))
    plan = plan_queue(tree, [several, other])
    assert plan.waiting == waiting
    assert len(plan.placements["a"]) == 2 * needed
    assert plan.certificate.status is CertificateStatus.PROVEN


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(st.integers(1, 4), min_size=1, max_size=5)
)
def test_never_worse_than_one_by_one(sizes: list[int], gangs: list[int]) -> None:
    tree = blocks(*sizes)
    queue = [gang(tree, f"g{number}", size) for number, size in enumerate(gangs)]
    before, after = plan_in_order(tree, queue), plan_queue(tree, queue, limits=Limits(2.0))
    assert after.certificate.objective <= before.certificate.objective
    assert after.certificate.objective == queue_objective(tree, queue, after.placements)
    assert plan_queue(tree, queue, limits=Limits(2.0)) == after


def test_no_budget_claims_a_bound_that_a_larger_one_beats() -> None:
    """Large enough for the solver to end before it has loaded its objective."""
    tree = blocks(*(3 + 5 * block % 8 for block in range(12)))
    queue = [
        gang(tree, f"g{n}", 2 + 3 * n % 7, priority=n % 3, gathers=n % 4 != 1, slots=2) for n in range(16)
    ]
    plans = [plan_queue(tree, queue, limits=Limits(budget)) for budget in (1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 2.0)]
    best = min(plan.certificate.objective for plan in plans)
    assert all(plan.certificate.bound <= best for plan in plans)
    assert all(not plan.certificate.proven or plan.certificate.objective == best for plan in plans)


def two_kinds(
    tree: NetworkTopology, slots: tuple[list[int], list[int]], needs: list[int]
) -> list[QueuedGang]:
    """Gangs of one kind of members each; the first kind and the second fit on different nodes."""
    shapes = tuple(Shape(slots=np.array(one), request=np.array([1])) for one in slots)
    free = np.maximum(*(shape.slots for shape in shapes))[None, :]
    queue = []
    for number, size in enumerate(needs):
        members = tuple(Member(f"d/g{number}-{rank}", number % 2, rank) for rank in range(size))
        role = Role(name=f"g{number}", members=members, min_available=1)
        queue.append(
            QueuedGang(name=f"g{number}", demand=GangDemand(roles=(role,), shapes=shapes, free=free))
        )
    return queue


def test_nodes_that_only_a_later_gang_can_use_count() -> None:
    """The first gang cannot use the first node at all; the second fills it."""
    tree = blocks(1, 1)
    plan = plan_queue(tree, two_kinds(tree, ([0, 2], [3, 2]), [1, 2]))
    assert plan.certificate.objective[:2] == (-2, -3)
    assert plan.certificate.proven
    assert plan.placements["g0"] == {"d/g0-0": "n1-0"}


@settings(max_examples=17)
@given(st.data())
def test_no_order_of_the_gangs_beats_what_is_proven(data: st.DataObject) -> None:
    """Gangs of two kinds that fit on different nodes, placed one by one in any order."""
    tree = blocks(*data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=3)))
    room = st.lists(st.integers(0, 2), min_size=len(tree.nodes), max_size=len(tree.nodes))
    slots = data.draw(room), data.draw(room)
    queue = two_kinds(tree, slots, data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=4)))
    plan = plan_queue(tree, queue)
    assert plan.certificate.proven
    for order in (queue, queue[::-1], queue[1:] + queue[:1]):
        assert plan.certificate.objective <= plan_in_order(tree, order).certificate.objective
