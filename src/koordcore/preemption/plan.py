"""The plan: the cheapest victims for a whole job, with a proof, and where its members go."""

from __future__ import annotations

from itertools import islice
from typing import Final, Protocol, TypeAlias

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, CertificateStatus, Limits
from koordcore.model.preemption import (
    NO_PRIORITY,
    Damage,
    Gather,
    Members,
    NotHelpful,
    PreemptionPlan,
)
from koordcore.model.proofs import EvictionEvidence
from koordcore.preemption.bounds import (
    Floor,
    eviction_problem,
    fewest_pods,
    floor_of,
    holding,
    needed_members,
    slots_up_to,
    usable_up_to,
    widest_slots,
)
from koordcore.preemption.cost import broken_jobs, close, damage_of
from koordcore.preemption.domains import depths_of, domains_at
from koordcore.preemption.evident import with_evidence
from koordcore.preemption.exact import ExactAnswer, certify_nowhere, solve_exact
from koordcore.preemption.greedy import Draft, draft_plan, spare
from koordcore.preemption.lone import Offers, is_lone
from koordcore.preemption.lone_plan import plan_alone
from koordcore.preemption.moves import nobody_moves
from koordcore.preemption.problem import Conflict, Domains, PreemptionProblem
from koordcore.preemption.victim_program import Scope
from koordcore.preemption.written import Found, write_plan

NOT_HELPFUL: Final = "preemption not helpful"
MOST_ROUNDS: Final = 64
"""Each round learns from a dry run that did not hold; plugins that count amounts need none."""
_EVIDENT: Final = 2_000
"""Candidates up to which evidence is looked for that nothing helps."""
_SPARED: Final = 32
"""Victims of a plan that is not proven of whom it is tried, one after the other, whether they could stay."""
_NO_SEARCH: Final = 1e-5
"""With a budget so small the solver would give the draft back after it had written the program down."""


Start: TypeAlias = tuple[IntMatrix, BoolVector, IntVector]
"""A plan in counts: members per class and node, who leaves, and where to."""


class DryRun(Protocol):
    """Tries a plan with every filter and allocator; given by whoever owns them."""

    def __call__(self, counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        """Say where the plan does not hold, or None.

        Parameters
        ----------
        counts
            Members per class and node, shape (C, N).
        chosen
            Candidates that have left, shape (V,).
        moves
            Row of the node to which each of them moves, -1 for none, shape (V,).
        """


def plan_preemption(
    problem: PreemptionProblem,
    *,
    members: Members = Members.MINIMUM,
    gather: Gather = Gather.DEEPEST,
    within_budgets: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    dry_run: DryRun | None = None,
    start: PreemptionPlan | None = None,
    rounds: int = MOST_ROUNDS,
    offers: Offers | None = None,
) -> PreemptionPlan | NotHelpful:
    """Find who has to leave so that a whole job fits, at the least damage.

    Parameters
    ----------
    problem
        Members, nodes, and who may leave.
    members, gather
        For whom room is made, and how a wish for gathering competes with damage (rulings 14 and 15).
    within_budgets
        Plans that need more evictions than disruption budgets allow do not count.
    limits
        Budget and seed of the solver. When it ends the best plan so far is returned with its bound.
    dry_run
        Tries each plan; what does not hold is learnt and planned again.
    start
        A plan that holds, where candidates may move; the answer is never worse.
    rounds
        How many plans are tried; if none of them holds, nothing is known. For one member the budget says.
    offers
        Tells which nodes would take a single member if everybody had left them.

    Returns
    -------
    PreemptionPlan or NotHelpful
        Nobody is named where that would not help, and nobody who is not needed.
    """
    depths = depths_of(problem)
    given = None if start is None else _arrays_of(problem, start)
    proven = True
    plans: list[Found] = []
    for depth in depths:
        if is_lone(problem):
            found = _alone_at_depth(problem, depth, limits, dry_run, offers)
        else:
            found = _at_depth(problem, depth, members, limits, dry_run, given, rounds)
        if isinstance(found, CertificateStatus):
            proven = proven and found is CertificateStatus.INFEASIBLE
            continue
        if within_budgets and found.damage.violations:
            proven = False  # that it needs so many is not shown again
            continue
        plans.append(found)
        if gather is Gather.DEEPEST:
            break
    if not plans:
        certificate = Certificate(CertificateStatus.HEURISTIC)
        if proven:
            certificate = _nowhere(problem, depths, members, limits)
        return NotHelpful(reason=NOT_HELPFUL, message="", certificate=certificate)
    best = min(plans, key=lambda found: found.damage)
    # Whatever is gathered in a smaller domain lies in one of the widest as well.
    certificate = plans[-1].certificate
    if certificate.objective != best.damage.vector:
        # But for nobody: the widest may hold running members that want one more for their multiple.
        bound = min(certificate.bound, best.damage.vector)
        certificate = Certificate.make_bounded(best.damage.vector, bound)
    if not proven:
        certificate = Certificate(CertificateStatus.HEURISTIC, best.damage.vector)
    return write_plan(problem, attrs.evolve(best, certificate=certificate))


def _nowhere(
    problem: PreemptionProblem, depths: tuple[int, ...], members: Members, limits: Limits
) -> Certificate:
    """Certify that no eviction helps: where the widest domains hold too little, counting shows it."""
    widest = domains_at(problem, depths[-1]) if depths else Domains(np.full(len(problem.nodes), -1), 0)
    usable = usable_up_to(problem, None)
    counted = eviction_problem(problem, widest, members)
    if counted is not None and not holding(problem, widest_slots(problem, usable), widest, members).any():
        return Certificate.make_infeasible(counted)
    if limits.deterministic_time <= _NO_SEARCH or len(problem.candidates) > _EVIDENT:
        return Certificate.make_infeasible()
    return certify_nowhere(problem, Scope(domains=widest, usable=usable, members=members), limits)


def _arrays_of(problem: PreemptionProblem, plan: PreemptionPlan) -> Start:
    """Write a plan in counts."""
    row_of = {name: row for row, name in enumerate(problem.nodes)}
    number = {pair: position for position, pair in enumerate(problem.classes)}
    role_of = {member.key: index for index, role in enumerate(problem.roles) for member in role.members}
    counts = np.zeros((len(number), len(row_of)), dtype=np.int64)
    for member in problem.members:
        if member.key in plan.nominations:
            counts[number[role_of[member.key], member.shape], row_of[plan.nominations[member.key]]] += 1
    at = {key: one for one, key in enumerate(problem.candidates.keys)}
    chosen, moves = np.zeros(len(at), dtype=bool), nobody_moves(problem).copy()
    chosen[[at[str(victim.pod)] for victim in plan.victims]] = True
    for move in plan.moves:
        moves[at[str(move.victim.pod)]] = row_of[move.node]
    return counts, chosen, moves


def _at_depth(
    problem: PreemptionProblem,
    depth: int,
    members: Members,
    limits: Limits,
    dry_run: DryRun | None,
    given: Start | None,
    rounds: int,
) -> Found | CertificateStatus:
    """Find the cheapest plan that gathers in one domain of a depth."""
    domains = domains_at(problem, depth)
    everybody = usable_up_to(problem, None)
    domains = domains.only(holding(problem, widest_slots(problem, everybody), domains, members))
    if not domains.count:
        return CertificateStatus.INFEASIBLE
    conflicts: list[Conflict] = []
    bound: tuple[int, ...] | None = None
    doubtful = False
    for _ in range(rounds):
        if problem.refuges is None:
            answer = _cheapest(problem, domains, members, tuple(conflicts), limits)
        else:
            answer = _cheapest_with_moves(problem, domains, members, tuple(conflicts), limits, given)
        if isinstance(answer, CertificateStatus):
            return CertificateStatus.HEURISTIC if doubtful else answer
        bound = answer.certificate.bound if bound is None else bound
        conflict = dry_run(answer.counts, answer.chosen, answer.moves) if dry_run is not None else None
        if conflict is None:
            kept = _doubted(answer, bound) if doubtful else answer.with_evidence()
            return _found(problem, kept, depth, dry_run)
        # A cut leaves out parts of the plan as well: they cost less, and have been looked at, if it is the
        # cheapest, and if what others do elsewhere makes no difference to its node.
        several = bool(problem.pools) or int(np.count_nonzero(answer.counts.sum(axis=0))) > 1
        several = several or conflict.unnamed
        doubtful = doubtful or not answer.certificate.proven or (conflict.elsewhere and several)
        conflicts += [conflict, *(one for one in conflict.others if one not in conflicts)]
    return CertificateStatus.HEURISTIC


def _doubted(answer: ExactAnswer, bound: tuple[int, ...]) -> ExactAnswer:
    """Claim no more than what was known before any plan was cut out."""
    objective = answer.certificate.objective
    known = Certificate.make_bounded(objective, min(bound, objective)) if bound else answer.certificate
    return attrs.evolve(answer, certificate=known)


def _alone_at_depth(
    problem: PreemptionProblem, depth: int, limits: Limits, dry_run: DryRun | None, offers: Offers | None
) -> Found | CertificateStatus:
    """Find the cheapest plan for one member."""
    domains = domains_at(problem, depth)
    found = plan_alone(problem, domains, limits, dry_run, offers)
    if isinstance(found, CertificateStatus):
        return found
    answer, other = found
    certificate = with_evidence(problem, domains, answer, limits)
    damage = Damage(*certificate.objective)
    return Found(answer.counts, answer.chosen, answer.moves, damage, certificate, depth, other)


def _cheapest(
    problem: PreemptionProblem,
    domains: Domains,
    members: Members,
    conflicts: tuple[Conflict, ...],
    limits: Limits,
) -> ExactAnswer | CertificateStatus:
    """Greedy first, bound second, solver third."""
    floor = floor_of(problem, domains, members)
    draft = None
    if not conflicts and (problem.shares is None or problem.shares.drafted):
        draft = draft_plan(problem, domains, members, floor)
        if draft is not None and not problem.gathered(draft.counts):
            draft = None
    if draft is not None:
        settled = _settled(problem, draft, _raised(problem, domains, members, floor, draft), domains, members)
        if settled is not None:
            return settled
        if limits.deterministic_time <= _NO_SEARCH:
            return _bounded(problem, draft, floor)
    scope = _scope(problem, domains, members, conflicts, floor, draft)
    start = None if draft is None else (draft.counts, draft.chosen, nobody_moves(problem))
    answer = solve_exact(problem, scope, start=start, limits=limits)
    if answer is CertificateStatus.FEASIBLE and draft is not None:
        return _bounded(problem, draft, floor)
    return answer


def _cheapest_with_moves(
    problem: PreemptionProblem,
    domains: Domains,
    members: Members,
    conflicts: tuple[Conflict, ...],
    limits: Limits,
    given: Start | None,
) -> ExactAnswer | CertificateStatus:
    """Ask the solver where nobody needs to be evicted for good, or whom it hurts least.

    Bounds on priorities do not hold here: a more important pod may be the one that can move.
    """
    usable = usable_up_to(problem, None)
    if given is not None and not conflicts:
        counts, chosen, moves = given
        damage = damage_of(problem, chosen, moves >= 0)
        if damage.vector == _least_with_moves(problem, domains, usable):
            certificate = Certificate.make_proven(damage.vector)
            return ExactAnswer(counts=counts, chosen=chosen, moves=moves, certificate=certificate)
    scope = Scope(domains=domains, usable=usable, members=members, conflicts=conflicts, floor=(0,))
    return solve_exact(problem, scope, start=given, limits=limits)


def _least_with_moves(problem: PreemptionProblem, domains: Domains, usable: BoolVector) -> tuple[int, ...]:
    """Bound the damage where all members are alike: nobody evicted, the fewest moves; empty for no bound."""
    needed = sum(max(0, role.min_available) for role in problem.roles)
    if len(problem.classes) != 1 or needed < len(problem.members):
        return ()
    slots = np.where(domains.home >= 0, widest_slots(problem, usable), 0)
    if int(slots.sum()) < needed:
        return ()
    return (0, NO_PRIORITY, 0, 0, 0, 0, fewest_pods(problem, usable, slots, needed))


def _raised(
    problem: PreemptionProblem, domains: Domains, members: Members, floor: Floor, draft: Draft
) -> Floor:
    """Bound the rest of the damage where no job is lost and it is a matter of counting pods."""
    damage, counting = draft.damage, len(problem.classes) == 1 and draft.whole
    if not counting or len(floor.vector) != 2 or damage.violations or damage.jobs or damage.restarts:
        return floor
    least = floor.vector[1]
    usable = usable_up_to(problem, least)
    if damage.highest != least or not usable.any() or problem.restart.any():
        return floor
    slots = np.where(domains.home >= 0, widest_slots(problem, usable), 0)
    pods = fewest_pods(problem, usable, slots, needed_members(problem, members))
    lowest = int(problem.candidates.priority[usable].min())
    priorities = least + (pods - 1) * lowest
    if pods != damage.pods or priorities != damage.priorities:
        return floor
    return Floor((0, least, 0, pods, priorities, 0, 0), floor.open)


def _settled(
    problem: PreemptionProblem, draft: Draft, floor: Floor, domains: Domains, members: Members
) -> ExactAnswer | None:
    """Take the draft where it reaches the bound."""
    if not draft.whole or draft.damage.vector[: len(floor.vector)] != floor.vector:
        return None
    if len(floor.vector) < len(draft.damage.vector):
        return None
    asked = eviction_problem(problem, domains, members)
    leaving = EvictionEvidence(tuple(np.flatnonzero(draft.chosen).tolist()))
    return _drafted(problem, draft, Certificate.make_proven(draft.damage.vector, asked, leaving))


def _drafted(problem: PreemptionProblem, draft: Draft, certificate: Certificate) -> ExactAnswer:
    moves = nobody_moves(problem)
    return ExactAnswer(counts=draft.counts, chosen=draft.chosen, moves=moves, certificate=certificate)


def _bounded(problem: PreemptionProblem, draft: Draft, floor: Floor) -> ExactAnswer:
    vector = draft.damage.vector
    bound = (*floor.vector, *[-(2**62)] * (len(vector) - len(floor.vector)))
    certificate = Certificate.make_bounded(vector, min(bound, vector))
    return _drafted(problem, draft, certificate)


def _scope(
    problem: PreemptionProblem,
    domains: Domains,
    members: Members,
    conflicts: tuple[Conflict, ...],
    floor: Floor,
    draft: Draft | None,
) -> Scope:
    """Leave out what cannot be part of a plan that is at least as good as the draft."""
    usable = usable_up_to(problem, None)
    if draft is not None and draft.damage.violations == 0:
        highest = draft.damage.highest
        usable = usable_up_to(problem, highest)
        domains = domains.only(holding(problem, slots_up_to(problem, highest), domains, members))
    return Scope(domains=domains, usable=usable, members=members, conflicts=conflicts, floor=floor.vector)


def _found(problem: PreemptionProblem, answer: ExactAnswer, depth: int, dry_run: DryRun | None) -> Found:
    chosen, moves, certificate = answer.chosen, answer.moves, answer.certificate
    if not certificate.proven:
        chosen = _spared(problem, answer, dry_run)
        moves = np.where(chosen, moves, -1)
    damage = damage_of(problem, chosen, moves >= 0)
    if damage.vector != certificate.objective:
        bound = min(certificate.bound, damage.vector)
        certificate = Certificate.make_bounded(damage.vector, bound)
    return Found(answer.counts, chosen, moves, damage, certificate, depth)


def _spared(problem: PreemptionProblem, answer: ExactAnswer, dry_run: DryRun | None) -> BoolVector:
    """Let those stay whom nobody needs to leave, shape (V,).

    Amounts may not be the only reason why somebody leaves: where not all can stay whom they let, one after
    the other is tried, the dearest first, and of a gang that breaks all that are left of it.
    """
    chosen, table = answer.chosen, problem.candidates

    def holds(some: BoolVector) -> bool:
        return dry_run is None or dry_run(answer.counts, some, np.where(some, answer.moves, -1)) is None

    fewer = spare(problem, answer.counts, chosen, answer.moves)
    staying = np.flatnonzero(chosen & ~fewer).tolist()
    if not staying or holds(fewer):
        return fewer
    broken = broken_jobs(problem, chosen)
    units: dict[int, list[int]] = {}
    for one in sorted(staying, key=lambda one: (-table.priority[one], table.keys[one])):
        job = int(table.job[one])
        units.setdefault(job if broken[job] else ~one, []).append(one)
    for ones in islice(units.values(), _SPARED):
        some = chosen.copy()
        some[ones] = False
        closed = close(problem, some)
        if closed is not None and (closed == some).all() and holds(some):
            chosen = some
    return chosen


# -- writing the plan ----------------------------------------------------------------------------------------
