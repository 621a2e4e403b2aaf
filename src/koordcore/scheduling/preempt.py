"""Preemption in the flow: what the plugins know of pods and nodes, put to the planner.

The planner counts amounts. What amounts do not tell (cards, CPUs, ports, spreading) is found by a dry run:
the victims are taken off a scratch state, every member is bound as a pod of its own would be, and a node that
does not take its members is planned around.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._arrays import BoolVector
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.decisions import Bound, Nominated, PodDecision, Unschedulable, Victim
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import Members, NotHelpful, PreemptionPlan, PreemptionRules, Relocation
from koordcore.preemption.alternative import rejected_alternative
from koordcore.preemption.eligible import check_eligible, terminating_victims
from koordcore.preemption.identify import PreemptingJob, at_least, identify_job, triggering
from koordcore.preemption.lone import is_lone
from koordcore.preemption.plan import MOST_ROUNDS, plan_preemption
from koordcore.preemption.problem import Pool, PreemptionProblem
from koordcore.preemption.running import Leaving, running_on
from koordcore.preemption.setup import leaving_pods
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.scheduling.dry_runs import DryRuns, leaving_of, with_offers, with_present
from koordcore.scheduling.eviction_question import EvictionQuestions, unresolvable
from koordcore.scheduling.freeing import with_amounts, with_reaching
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.scheduling.gang_roles import (
    JobPart,
    missing_members,
    parts_of,
    with_hope,
    with_places,
)
from koordcore.scheduling.gang_wish import asked_for, own_layers, serving, starts_later
from koordcore.scheduling.group_goals import Answer, Ask, fewer
from koordcore.scheduling.nominating import counted_on, nominated_by
from koordcore.scheduling.relocating import Relocator
from koordcore.scheduling.standing_plans import StandingPlans, joined

_MOVED: Final = 16
"""Plans with moves that are tried: one that holds is there already, and the first ones mostly do."""


class Preemptor:
    """Preempts for the jobs of one scheduling call.

    Parameters
    ----------
    workspace, plugins
        The state of the call.
    table
        Its gangs.
    rules
        For whom, and how.
    limits
        Budget and seed of the solver.
    """

    def __init__(
        self,
        workspace: Workspace,
        plugins: PluginSet,
        table: JobTable,
        rules: PreemptionRules,
        limits: Limits,
    ) -> None:
        self._workspace, self._plugins = workspace, plugins
        self._rules, self._limits = rules, limits
        self._table = table
        self._standing = StandingPlans(workspace, plugins)
        self.withdrawn: list[PodKey] = []
        """Pods that have given up in this call what was promised to them."""
        self._questions = EvictionQuestions(workspace, plugins, rules, table.book, self.withdrawn)

    @property
    def plans(self) -> Sequence[PreemptionPlan]:
        """The plans that stand."""
        return self._standing.plans

    def _runs(self, job: PreemptingJob) -> DryRuns:
        leaving = leaving_pods(self._workspace.snapshot, job.trigger, self._gone)
        pods = {str(pod.key): pod for pod in job.pending}
        return DryRuns(self._workspace, self._plugins, self._standing.claims, pods, leaving)

    @property
    def _gone(self) -> frozenset[Leaving]:
        """Who leaves by the plans that stand, with the rows of their nodes."""
        return frozenset(one for claim in self._standing.claims for one in claim.victims)

    def release(self) -> None:
        """Take the members of all plans off again: they are nominated, not bound."""
        self._standing.release()

    def withdraw(self, found: Sequence[PodDecision], names: Collection[str]) -> None:
        """Give up what was promised to a unit that finds no place and no room, unless its victims still go.

        Else it would hold room for ever that it cannot use, against who is more important as well.

        Parameters
        ----------
        found, names
            What was decided about the unit, and the names under which others may have been evicted for it.
        """
        nominated = self._plugins.nominated
        promised = nominated.of([one.pod for one in found if isinstance(one, Unschedulable)])
        if promised:
            pods_on = self._workspace.pods_on
            there = {str(pod.nominated_node): tuple(pods_on(row).values()) for pod, row in promised}
            if not terminating_victims((pod for pod, _ in promised), there, names):
                self.withdrawn += [pod.key for pod, _ in promised]
                nominated.forget(pod.key for pod, _ in promised)

    def for_pod(self, pod: Pod) -> list[Nominated] | None:
        """Make room for a pod without a gang, where every plugin lets it."""
        if not all(one.may_preempt(pod) for one, _ in self._plugins.everyone):
            return None
        if self._rules.members is Members.MINIMUM and self._table.beyond_minimum(pod.key):
            return None
        found = self._preempt_or_reclaim(identify_job(pod), None, ())
        if found:
            self._table.placed(pod.key)
        return found

    def for_job(self, job: Job, decisions: Sequence[PodDecision]) -> list[Nominated]:
        """Make room for a gang group that has no place, or for what its members beyond the minimum lack.

        Parameters
        ----------
        decisions
            About its members.
        """
        if job.lacking() or any(pod.gated for pod in job.pods):
            return []  # nobody's leaving helps
        placed = {one.pod: one.node for one in decisions if isinstance(one, Bound)}
        job = with_hope(job, {pod.key for pod in job.pods if unresolvable(self._plugins.class_of(pod))})
        if job.tree is not None:
            # Who starts now evicts nobody now: the rest may in the next cycle.
            return [] if placed or not job.pods else self._for_groups(job)
        bound = [node for nodes in job.bound.values() for node in nodes]
        found: list[Nominated] = []
        if job.pods and not placed:
            needs = any(map(job.least, job.members)) or any(part.least for part in parts_of(job))
            if not needs and self._rules.members is Members.MINIMUM:
                # It has started: who is missing from its minimum is worth an eviction for itself.
                for part, pod in missing_members(job):
                    found += self._for_one(job, part, pod, {one.pod: one.node for one in found}, str(pod.key))
                return found
            spec = job.spec or (NetworkTopologySpec() if job.together else None)
            everybody = self._rules.members is Members.ALL
            for asked in asked_for(self._workspace, self._plugins, job, everybody=everybody):
                with self._plugins.nominated.only_against(asked.trigger):
                    found += self._preempt_or_reclaim(asked, spec, bound, own_layers(job)) or ()
                    if not found and spec is None:
                        found += self._one_by_one(asked, bound)
                if found:
                    break
        if self._rules.members is not Members.EACH or not starts_later(job, placed):
            return found
        for part in parts_of(job):
            for pod in part.pods:
                there = {**placed, **{one.pod: one.node for one in found}}
                ready = pod.key not in there and part.started_with({**there, pod.key: ""})
                if ready and (job.optional or job.started_with(there)):
                    found += self._for_one(job, part, pod, there, job.name)
        return found

    def _one_by_one(self, job: PreemptingJob, bound: Sequence[str]) -> list[Nominated]:
        """Make room for one member after another, where it hangs on the others which nodes take it."""
        classes = map(self._plugins.class_of, job.pending)
        like = all(pod.priority == job.trigger.priority for pod in job.pending)  # all may evict the same pods
        if not like or not any(isinstance(one, SchedulingClass) and one.looks_elsewhere for one in classes):
            return []
        number, held, needed = len(self.plans), set[PodKey](), 0
        for name, (pods, least) in job.parts.items():
            needed += len(pods) if self._rules.members is Members.ALL else max(0, least)
            for pod in (*pods, *pods):  # who finds no place may find one once others have
                if len(held) < needed and pod.key not in held:
                    part = immutabledict({name: ((pod,), 1)})
                    one = attrs.evolve(identify_job(pod), preemptor=job.preemptor, parts=part, partly=True)
                    if self._preempt_or_reclaim(one, None, bound):
                        held.add(pod.key)
        plans = self._standing.take_back(number)
        all_held = len(held) == needed and any(one.victims for one in plans)
        plan = joined(plans, job.pending) if all_held else None
        if plan is None or not job.serves(plan.nominations):
            return []
        self._standing.stand(plan, self._runs(job), {str(pod.key): pod for pod in job.pending})
        return nominated_by(plan)

    def _for_one(
        self, job: Job, part: JobPart, pod: Pod, there: Mapping[PodKey, str], name: str
    ) -> list[Nominated]:
        """Make room for one member beside those that run or have a place now."""
        parted = immutabledict({part.name: ((pod,), 1)})
        serves, now = serving(self._workspace, job, there), with_places(job, there)
        one = attrs.evolve(identify_job(pod), preemptor=name, parts=parted, serves=serves)
        bound = [node for nodes in now.bound.values() for node in nodes]
        spec = job.spec or (NetworkTopologySpec() if job.parts else None)
        with self._plugins.nominated.only_against(pod):
            return self._preempt(one, spec, bound, own_layers(now)) or []

    def _for_groups(self, job: Job) -> list[Nominated]:
        """Make room for Kubernetes' own groups: for as many of them as could start at all."""
        from koordcore.scheduling.group_preemption import aim  # only who has such groups pays for them

        def aimed(problem: PreemptionProblem, runs: DryRuns) -> PreemptionProblem | None:
            with runs.without(leaving_of(problem, problem.usable)):
                return aim(self._workspace, self._plugins, job, problem, self._limits)

        def lowered(problem: PreemptionProblem, found: Answer, ask: Ask) -> Answer:
            return fewer(job, problem, self._rules, found, ask)

        identified = PreemptingJob(
            preemptor=job.name,
            trigger=triggering(job.pods),
            pending=job.pods,
            parts=immutabledict({name: (pods, 0) for name, pods in job.members.items()}),
        )
        return self._preempt(identified, None, (), aimed, lowered) or []

    # -- planning --------------------------------------------------------------------------------------

    def _preempt_or_reclaim(
        self,
        job: PreemptingJob,
        spec: NetworkTopologySpec | None,
        bound: Sequence[str],
        aimed: Callable[[PreemptionProblem, DryRuns], PreemptionProblem | None] | None = None,
    ) -> list[Nominated] | None:
        """Evict less important pods; where that does not help, pods of quotas that borrow."""
        found = self._preempt(job, spec, bound, aimed)
        if found is None and self._rules.reclaim and not is_reserve_pod(job.trigger):
            found = self._preempt(job, spec, bound, aimed, reclaiming=True)
        return found

    def _preempt(
        self,
        job: PreemptingJob,
        spec: NetworkTopologySpec | None,
        bound: Sequence[str],
        aimed: Callable[[PreemptionProblem, DryRuns], PreemptionProblem | None] | None = None,
        lowered: Callable[[PreemptionProblem, Answer, Ask], Answer] | None = None,
        *,
        reclaiming: bool = False,
    ) -> list[Nominated] | None:
        members, trigger = job.pending, job.trigger
        if not members or any(pod.gated for pod in members) or not self._workspace.layout.names:
            return None
        classes = {pod.key: self._plugins.class_of(pod) for pod in members}
        if any(map(unresolvable, classes.values())) or self._questions.hopeless(job.parts):
            return None
        pods = {str(pod.key): pod for pod in members}
        names = frozenset((job.preemptor, *pods))
        if not self._eligible(trigger, members, classes, names):
            return None
        gone, runs = self._gone, self._runs(job)
        leaving = runs.leaving
        with runs.opened():
            whom = self._whom(runs, job, reclaiming=reclaiming) if self._rules.reclaim else None
            least = at_least(job) if reclaiming else job
            unpromised = least.pending != members and runs.givers(members) != runs.givers(least.pending)
        if reclaiming and (whom is None or not whom.any()):
            return None
        if unpromised:  # nobody leaves for what is not promised: the other members take what is free later
            return self._preempt(least, spec, bound, aimed, reclaiming=True)
        beyond_amounts = any(
            isinstance(one, SchedulingClass) and one.counts_beyond_amounts for one in classes.values()
        )

        def ask(problem: PreemptionProblem) -> Answer:
            with runs.opened():
                return self._planned(problem, runs, trigger, pods, beyond_amounts=beyond_amounts)

        def planned(*, certain: bool) -> Answer | None:
            asked = self._questions.problem(
                trigger, job.parts, spec, bound, gone, leaving, whom, certain=certain
            )
            problem = asked if aimed is None else aimed(asked, runs)
            if problem is None:
                return None
            answer = ask(problem)
            return answer if lowered is None else lowered(problem, answer, ask)

        found = planned(certain=False)
        if found is None:
            return None
        problem, plan = found
        if (
            isinstance(plan, NotHelpful)
            and not plan.certificate.proven
            and self._questions.lends_unequally(job.parts)
        ):
            # Who may draw from what was too much to find out: without what not all of them may draw from.
            problem, plan = planned(certain=True) or found
            if isinstance(plan, PreemptionPlan):
                unknown = Certificate(CertificateStatus.HEURISTIC, plan.certificate.objective)
                plan = attrs.evolve(plan, certificate=unknown)
        freed = job.partly or self._standing.claims or leaving or self._plugins.nominated.fewer
        if isinstance(plan, NotHelpful) or not (plan.nominations and (plan.victims or freed)):
            return None
        plan = self._completed(problem, plan, runs, pods)
        if not job.serves(plan.nominations):
            return None
        plan = attrs.evolve(plan, job=job.preemptor, leaving=counted_on(plan, leaving))
        if reclaiming:
            going = {victim.pod: self._running(victim) for victim in plan.victims}
            plan = attrs.evolve(plan, borrowers=runs.borrowers(going))
        self._standing.stand(plan, runs, pods)
        return nominated_by(plan)

    def _planned(
        self,
        problem: PreemptionProblem,
        runs: DryRuns,
        trigger: Pod,
        pods: Mapping[str, Pod],
        *,
        beyond_amounts: bool,
    ) -> Answer:
        """Plan with what plugins have to say, also beyond amounts; gives what was asked in the end, too."""
        if self._rules.relocation is Relocation.NEVER:
            problem = with_amounts(self._workspace, self._plugins, problem, pods)
        problem = with_reaching(self._workspace, self._plugins, problem, [*pods.values()])
        if is_lone(problem):
            own = self._plugins.class_of(trigger)
            elsewhere = isinstance(own, SchedulingClass) and own.looks_elsewhere
            problem = with_present(problem, runs.fits_now(trigger), elsewhere=elsewhere)
        elif beyond_amounts:
            # Mostly amounts tell enough; to count cards and CPUs on emptied nodes takes far longer.
            plan = self._plan(problem, runs, trigger, rounds=1)
            if plan.certificate.proven:
                return problem, plan
            problem = with_offers(problem, runs, pods)
        return problem, self._plan(problem, runs, trigger)

    def _whom(self, runs: DryRuns, job: PreemptingJob, *, reclaiming: bool) -> BoolVector | None:
        """Tell who may leave, shape (V,); ``None`` for all less important ones, or nobody to reclaim from.

        Who stays within his quota's min preempts any of these, and reclaims from who is beyond. Who does
        not takes nothing that lies within the min of others. What is promised to pods that wait counts
        against them, and makes nobody a borrower.
        """
        if not runs.budgets:
            return None
        asked = at_least(job).pending
        priority = job.trigger.priority
        below = runs.givers(asked) if reclaiming else None
        if below is None and (reclaiming or runs.entitled(asked)):
            return None
        with self._plugins.nominated.set_aside():
            theirs, beyond = runs.lent(asked, priority, below)
        if reclaiming:
            return beyond
        less = running_on(self._workspace.snapshot).priority < priority
        spared = less & theirs & ~beyond
        return less & ~spared if spared.any() else None

    def _running(self, victim: Victim) -> Pod:
        return self._workspace.pods_on(self._workspace.layout.row_of[victim.node])[victim.pod]

    def _completed(
        self, problem: PreemptionProblem, plan: PreemptionPlan, runs: DryRuns, pods: dict[str, Pod]
    ) -> PreemptionPlan:
        """Add the cheapest plan elsewhere, and let victims move where that is asked for."""
        if plan.alternative is None and not (is_lone(problem) and not runs.budgets):
            with runs.opened():
                other = rejected_alternative(
                    problem,
                    plan,
                    members=self._rules.members,
                    dry_run=lambda *draft: runs.try_plan(problem, *draft),
                )
            plan = attrs.evolve(plan, alternative=other)
        if self._rules.relocation is not Relocation.FIRST or not plan.victims:
            return plan
        relocator = Relocator(self._workspace, self._plugins, runs, pods, self._questions.wanted)
        trigger = next(iter(pods.values()))
        return relocator.relocated(
            problem, plan, lambda asked, start: self._plan(asked, runs, trigger, start, _MOVED)
        )

    def _plan(
        self,
        problem: PreemptionProblem,
        runs: DryRuns,
        trigger: Pod,
        start: PreemptionPlan | None = None,
        rounds: int = MOST_ROUNDS,
    ) -> PreemptionPlan | NotHelpful:
        """Plan within what the quotas may use now, and where evictions may raise that, within the most.

        By how much they do only the dry run knows.
        """

        def find(pools: tuple[Pool, ...]) -> PreemptionPlan | NotHelpful:
            asked = attrs.evolve(problem, pools=pools) if pools else problem
            return plan_preemption(
                asked,
                members=self._rules.members,
                gather=self._rules.gather,
                within_budgets=self._rules.within_budgets,
                limits=self._limits,
                dry_run=lambda *plan: runs.try_plan(asked, *plan),
                start=start,
                rounds=rounds,
                offers=lambda rows: runs.emptied(asked, trigger, rows),
            )

        now, most = runs.pools(problem), runs.pools(problem, widest=True)
        plan = find(now)
        if len(now) == len(most) and all(map(Pool.binds_like, now, most)):
            return plan
        wider = find(most)
        if isinstance(plan, NotHelpful) or (isinstance(wider, PreemptionPlan) and wider.damage < plan.damage):
            return wider
        if isinstance(wider, PreemptionPlan) and wider.certificate.proven:
            return plan
        known = Certificate(CertificateStatus.HEURISTIC, plan.certificate.objective)
        return attrs.evolve(plan, certificate=known)

    def _eligible(
        self,
        trigger: Pod,
        members: Sequence[Pod],
        classes: Mapping[PodKey, SchedulingClass | Refusal],
        jobs: Collection[str],
    ) -> bool:
        workspace, row_of = self._workspace, self._workspace.layout.row_of
        nodes = sorted({str(pod.nominated_node) for pod in members if pod.nominated_node in row_of})
        on_node = {node: tuple(workspace.pods_on(row_of[node]).values()) for node in nodes}
        own = classes[trigger.key]
        statuses = {}
        if isinstance(own, SchedulingClass) and on_node:
            mask = own.may_fit_after_preemption()
            statuses = {node: "Unschedulable" for node in on_node if mask[row_of[node]]}
        return check_eligible(trigger, members, on_node, statuses, jobs).eligible
