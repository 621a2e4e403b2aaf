"""The cheapest plan that was not taken, as far as a draft tells."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix
from koordcore.model.preemption import Alternative, Members, PreemptionPlan
from koordcore.preemption.bounds import floor_of
from koordcore.preemption.cost import close, damage_of
from koordcore.preemption.domains import domains_at
from koordcore.preemption.greedy import draft_plan
from koordcore.preemption.moves import nobody_moves
from koordcore.preemption.plan import DryRun
from koordcore.preemption.problem import Domains, PreemptionProblem


def rejected_alternative(
    problem: PreemptionProblem,
    plan: PreemptionPlan,
    *,
    members: Members = Members.MINIMUM,
    dry_run: DryRun | None = None,
) -> Alternative | None:
    """Draft the cheapest plan elsewhere: in another domain of the plan's layer, or on other nodes.

    Parameters
    ----------
    plan
        What is going to be done.
    members
        For whom room is made.
    dry_run
        Tries it; one that does not hold is not told.

    Returns
    -------
    Alternative or None
        A legal plan without a proof; None when nobody leaves, and when none was found.
    """
    if not plan.victims:
        return None
    used = np.isin(np.array(problem.nodes), sorted(set(plan.nominations.values())))
    tree = problem.tree
    depth = tree.depth_of(plan.layer) if tree is not None else 0
    if tree is not None and depth:
        domains = domains_at(problem, depth)
        kept = np.ones(domains.count, dtype=bool)
        kept[domains.home[used & (domains.home >= 0)]] = False
        domains = domains.only(kept)
    else:
        hit = used & np.isin(np.array(problem.nodes), sorted({victim.node for victim in plan.victims}))
        domains = Domains(np.where(hit, -1, 0), 1)
        if not floor_of(problem, domains, members).vector:
            # There is not enough elsewhere; then at least one node less.
            hit[np.flatnonzero(hit)[1:]] = False
            domains = Domains(np.where(hit, -1, 0), 1)
    found = _drafted(problem, domains, members)
    if found is None:
        return None
    counts, chosen = found
    if dry_run is not None and dry_run(counts, chosen, nobody_moves(problem)) is not None:
        return None
    damage = damage_of(problem, chosen)
    rows = np.flatnonzero(counts.sum(axis=0)).tolist()
    if not rows:
        return None  # there it is best that nobody comes
    if tree is not None and depth:
        return Alternative(damage, tree.label(int(tree.ancestors[depth][problem.place[rows[0]]])))
    names = [problem.nodes[row] for row in rows]
    more = f" and {len(names) - 3} more" if len(names) > 4 else ""
    return Alternative(damage, ", ".join(names[:3] if more else names) + more)


def _drafted(
    problem: PreemptionProblem, domains: Domains, members: Members
) -> tuple[IntMatrix, BoolVector] | None:
    """Draft a plan in some domains: members per class and node, and who leaves."""
    draft = draft_plan(problem, domains, members, floor_of(problem, domains, members))
    if draft is None or close(problem, draft.chosen) is None:
        return None
    return draft.counts, draft.chosen
