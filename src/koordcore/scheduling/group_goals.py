"""For fewer members than could start if everybody left: where not all who may leave can leave together.

A gang that spares some, and of which a member stays, gives up so many and no more; whichever these are. And
disruption budgets may be a limit. How many members find room then only the planner of evictions knows, so
that it is asked: first for groups, then for members, the most that it can place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from koordcore.allocators.gang.demand import Role
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.preemption import Members, NotHelpful, PreemptionPlan, PreemptionRules
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.shares import Shares
from koordcore.scheduling.gang_groups import Job
from koordcore.scheduling.group_tree import GroupTree, units_of

Answer: TypeAlias = tuple[PreemptionProblem, PreemptionPlan | NotHelpful]
"""What was asked in the end, and what was found."""
Ask: TypeAlias = Callable[[PreemptionProblem], Answer]


def fewer(job: Job, problem: PreemptionProblem, rules: PreemptionRules, answer: Answer, ask: Ask) -> Answer:
    """Ask for as many members as there can be room for, where there is none for those aimed at.

    Parameters
    ----------
    problem, answer
        What was aimed at, and what came of it.
    ask
        Finds the cheapest plan for a problem.
    """
    if isinstance(answer[1], PreemptionPlan) or not _limited(problem, rules):
        return answer
    assert job.tree is not None, "only groups of Kubernetes aim"
    tree, roles = job.tree, problem.roles
    proven, best = answer[1].certificate.proven, answer
    idle = [number for number, role in enumerate(roles) if role.members]

    def most(low: int, high: int, asked: Callable[[int], PreemptionProblem]) -> int:
        """Give the largest number that there is a plan for, one below the least where there is none."""
        nonlocal best, proven
        low -= 1
        while low < high:
            middle = (low + high + 1) // 2
            found = ask(asked(middle))
            if isinstance(found[1], PreemptionPlan):
                low, best = middle, found
            else:
                high, proven = middle - 1, proven and found[1].certificate.proven
        return low

    if len(idle) == 1:
        (only,) = idle
        role = roles[only]
        least = next(leaf.least for leaf in tree.leaves if leaf.id == role.name) - len(job.bound[role.name])

        def alone(count: int) -> PreemptionProblem:
            one = attrs.evolve(role, min_available=count)
            return attrs.evolve(problem, roles=(*roles[:only], one, *roles[only + 1 :]))

        most(max(1, least), role.min_available - 1, alone)
    else:

        def started(count: int, members: int = 1) -> PreemptionProblem:
            return attrs.evolve(problem, shares=shares_of(job, tree, roles, count, members, drafted=False))

        whole = shares_of(job, tree, roles)
        groups = most(0, whole.starting, started)
        if groups >= 0:
            most(2, sum(len(role.members) for role in roles), lambda count: started(groups, count))
    plan = best[1]
    if isinstance(plan, PreemptionPlan) and not proven:
        # There may be room for more.
        unknown = Certificate(CertificateStatus.HEURISTIC, plan.certificate.objective)
        best = best[0], attrs.evolve(plan, certificate=unknown)
    return best


def _limited(problem: PreemptionProblem, rules: PreemptionRules) -> bool:
    """Tell whether not everybody who may leave can leave together."""
    if rules.members is Members.ALL:
        return False
    jobs = problem.jobs
    some = jobs.spares & ~jobs.breakable & (jobs.slack < jobs.running - jobs.protected)
    return bool(some.any()) or (rules.within_budgets and len(problem.budgets) > 0)


def shares_of(
    job: Job,
    tree: GroupTree,
    roles: tuple[Role, ...],
    starting: int | None = None,
    members: int | None = None,
    *,
    drafted: bool = True,
) -> Shares:
    """Say that so many groups of a tree start, with so many members, whichever they are.

    Parameters
    ----------
    roles
        With the members of each that one choice places.
    starting, members
        As many as in that choice when left out.
    drafted
        That choice is one that does.
    """
    units, above = units_of(tree)
    least = {leaf.id: leaf.least - len(job.bound[leaf.id]) for leaf in tree.leaves}
    own = tuple(
        attrs.evolve(
            role,
            min_available=max(0, least[role.name]),
            unit=above[role.name],
            started=least[role.name] <= 0,
        )
        for role in roles
    )
    if starting is None:
        starting = sum(role.min_available > 0 and least[role.name] > 0 for role in roles)
    if members is None:
        members = sum(role.min_available for role in roles)
    return Shares(roles=own, units=units, starting=starting, members=members, drafted=drafted)
