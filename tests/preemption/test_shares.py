"""Which roles of a tree of groups start: those for whom the least important leave, and no part of a group."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from koordcore.allocators.gang.demand import Member, Role, Unit
from koordcore.model.preemption import PreemptionPlan
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.shares import Shares
from tests.preemption.test_jobs_of_several import planned, victims
from tests.preemption.worlds import problem_of

# -- which roles start ---------------------------------------------------------------------------------------


def shared(
    running: Sequence[tuple[int, tuple[int, ...], int, str]],
    roles: Sequence[tuple[int, int, int]],
    *,
    chosen: set[int],
    units: tuple[Unit, ...] = (Unit(name="all", least=1),),
) -> PreemptionProblem:
    """Let other roles start than those that were chosen, as many and with as many members.

    Each role is given by the number and size of its members, all of which it needs, and its unit.
    """
    sizes = sorted({size for _, size, _ in roles})
    rows = 1 + max(row for row, *_ in running)
    problem = problem_of([[0]] * rows, running, [(size,) for size in sizes])
    own = tuple(
        Role(
            name=f"default/r{number}",
            members=tuple(Member(f"default/r{number}-{one}", sizes.index(size)) for one in range(count)),
            min_available=count,
            unit=unit,
        )
        for number, (count, size, unit) in enumerate(roles)
    )
    asked = tuple(
        attrs.evolve(role, min_available=role.min_available if number in chosen else 0)
        for number, role in enumerate(own)
    )
    members = sum(role.min_available for role in asked)
    shares = Shares(roles=own, units=units, starting=len(chosen), members=members)
    return attrs.evolve(problem, roles=asked, shares=shares)


def started(plan: PreemptionPlan) -> set[str]:
    return {key.removeprefix("default/").split("-")[0] for key in plan.nominations}


def test_those_roles_start_for_whom_the_least_important_leave() -> None:
    """Two small members cost less than two large ones; one role of four would not be as good as two."""
    roles = [(2, 2, 0), (2, 4, 0), (2, 4, 0), (4, 2, 0)]
    pods = [(0, (12,), 0, ""), (1, (16,), 7, ""), (2, (8,), -5, "")]
    plan = planned(shared(pods, roles, chosen={1, 2}))
    assert victims(plan) == ["v0"]
    assert len(started(plan)) == 2
    assert len(plan.nominations) >= 4


def test_roles_below_a_group_that_does_not_start_are_left_out() -> None:
    """The first role would need the least room, but for the second, without which it does not start."""
    units = (
        Unit(name="all", least=1),
        Unit(name="pair", least=2, parent=0),
        Unit(name="single", least=1, parent=0),
    )
    pods = [(0, (4,), 0, ""), (1, (8,), 3, ""), (2, (20,), 7, "")]
    plan = planned(shared(pods, [(2, 2, 1), (4, 4, 1), (2, 4, 2)], chosen={2}, units=units))
    assert victims(plan) == ["v1"]
    assert started(plan) == {"r2"}
    pods = [(0, (8,), 0, ""), (1, (12,), 3, ""), (2, (24,), 7, "")]
    plan = planned(shared(pods, [(2, 2, 1), (4, 4, 1), (2, 2, 2), (2, 4, 2)], chosen={2, 3}, units=units))
    assert victims(plan) == ["v1"]
    assert started(plan) == {"r2", "r3"}


def test_a_group_starts_where_all_that_it_needs_is_the_cheapest() -> None:
    units = (Unit(name="all", least=1), Unit(name="pair", least=2, parent=0))
    pods = [(0, (8,), 0, ""), (1, (16,), 3, "")]
    plan = planned(shared(pods, [(2, 2, 1), (2, 2, 1), (4, 4, 0)], chosen={0, 1}, units=units))
    assert victims(plan) == ["v0"]
    assert started(plan) == {"r0", "r1"}
