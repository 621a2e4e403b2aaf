"""Jobs whose turns come one after the other, planned as one.

One by one, an early job takes the block that only a later one needs. Here the jobs of a run share one plan,
see :func:`~koordcore.allocators.gang.queue.plan_queue`: most jobs of the highest priority start, then of the
next, and so on, so that no job makes one of a higher priority wait. A run ends at a pod of its own, which
would take its turn between the jobs, and at a job that brings its own places or keeps what it gets while it
waits. Where jobs may evict others it also ends where the priority changes: room is made for a job before less
important ones are placed.

The plan is bound job by job in queue order. An offer that does not hold is taken away and the run is planned
again; a job that is refused wherever it would go, such as by its quota, is left out. Where that does not come
to an end the run goes one by one. Jobs that the plan leaves out take their own turns afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

import numpy as np

from koordcore._arrays import IntMatrix
from koordcore.allocators.gang.demand import GangPlacement
from koordcore.allocators.gang.objective import domains_used
from koordcore.allocators.gang.queue import QueuedGang, QueuePlan, plan_queue
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.decisions import JobPlan, JointPlan, PodDecision
from koordcore.model.gangs import GangFit, GatherRule, GatherStrategy, NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import GangTurns, Policy
from koordcore.scheduling.gang import place_job
from koordcore.scheduling.gang_binding import bind_plan
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.scheduling.gang_input import (
    Denied,
    PlanningInput,
    demand_of,
    offers_of,
    planning_input_of,
)
from koordcore.scheduling.group_plans import flat_tree
from koordcore.scheduling.network_trees import network_tree
from koordcore.scheduling.outcomes import finish, marked
from koordcore.snapshot.following import once
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree

Outcome: TypeAlias = tuple[list[PodDecision], JobPlan]

_REPLANS: Final = 8
"""Each replan takes an offer or a job away; a run that needs more goes one by one."""
_GATHERING: Final = 0.4
"""Work units spent on gathering a run; one gang at a time does most of it, and more brings little."""
_ANYWHERE: Final = NetworkTopologySpec()


class JointTurns:
    """Plans runs of jobs when the first of them has its turn.

    Parameters
    ----------
    policy
        Its profiles say whether the gangs of their pods are planned together.
    evicting
        Jobs that find no place may have others evicted.

    Attributes
    ----------
    plans
        What was planned, run after run.
    """

    def __init__(
        self, workspace: Workspace, plugins: PluginSet, policy: Policy, limits: Limits, *, evicting: bool
    ) -> None:
        self._policy = policy
        self._evicting = evicting
        self._workspace = workspace
        self._plugins = plugins
        self._limits = limits
        self._settled: dict[str, Outcome] = {}
        self._run: Sequence[Job] = ()
        self.plans: list[JointPlan] = []
        tree = once(workspace.snapshot, network_tree)
        self._tree = flat_tree(workspace) if tree is None else tree
        self._trees = {"": self._tree}
        self._whole = len(self._tree.nodes) == len(workspace.layout.names)

    def turns(self, queue: Iterable[Pod | Job], table: JobTable | None) -> Iterator[Pod | Job]:
        """Give the turns as they come; a run is planned when :meth:`settled` is asked about its first job."""
        run: list[Job] = []
        for given in queue:
            turn = given
            if isinstance(given, Job) and any(not given.ahead.isdisjoint(job.members) for job in run):
                # It waits for one of them.
                yield from self._opened(run)
                run, turn = [], given if table is None else table.renewed(given)
            if isinstance(turn, Job) and (self._joins(turn) or self._takes_nothing(turn)):
                parted = self._evicting and run and _priority(run[-1]) != _priority(turn)
                if parted or (self._joins(turn) and not self._shares_label(run, turn)):
                    yield from self._opened(run)
                    run = []
                run.append(turn)
                continue
            yield from self._opened(run)
            run = []
            yield turn
        yield from self._opened(run)

    def _opened(self, run: Sequence[Job]) -> Iterator[Job]:
        joined = [job for job in run if self._joins(job)]
        self._run = joined if len(joined) > 1 else ()
        yield from run

    @property
    def ahead(self) -> Iterator[Pod]:
        """Members of the jobs that will be planned as one when :meth:`settled` is asked next."""
        return chain.from_iterable(job.pods for job in self._run)

    def settled(self, job: Job) -> Outcome | None:
        """Give what was decided about a job when its run was planned; ``None`` for its own turn."""
        run, self._run = self._run, ()
        if run:
            self._plan_run(run)
        return self._settled.get(job.name)

    def _takes_nothing(self, job: Job) -> bool:
        return bool(job.stopped or job.lacking()) or any(pod.gated for pod in job.pods)

    def _joins(self, job: Job) -> bool:
        """Tell whether a job can be planned with others: all or nothing, and free to go anywhere."""
        return (
            not self._takes_nothing(job)
            and all(self._together(pod) for pod in job.pods)
            and job.strict
            and not job.together
            and (job.tree is None or not job.tree.children)
            and not (_key(job) and any(job.bound.values()))
            and (job.spec is not None or self._whole)
            and sum(job.least(name) for name in job.members) > 0
            and not any(pod.nominated_node for pod in job.pods)
        )

    def _shares_label(self, run: Sequence[Job], job: Job) -> bool:
        """Tell whether a job needs one value of the same label as those of a run that are planned."""
        last = next(filter(self._joins, reversed(run)), job)
        return _key(last) == _key(job)

    def _together(self, pod: Pod) -> bool:
        profile = self._policy.profile_of(pod.scheduler_name) or self._policy
        return profile.gangs is GangTurns.TOGETHER

    def _plan_run(self, jobs: Sequence[Job]) -> None:
        self._tree = self._tree_for(_key(jobs[0]))
        members = [pod for job in jobs for pod in job.pods]
        least = min(members, key=lambda pod: (pod.priority, pod.key))
        with self._plugins.nominated.assumed(least, besides={pod.key for pod in members}):
            self._plan(jobs)

    def _tree_for(self, key: str) -> NetworkTopology:
        """Give the network, or the domains of the label that the groups of a run need one of."""
        if key not in self._trees:
            states = self._workspace.snapshot.nodes
            layers = [LayerSpec(key, (key,)), LayerSpec(NODE_LAYER, (), key)]
            self._trees[key] = build_tree(layers, {one.name: one.node.labels for one in states})
        return self._trees[key]

    def _plan(self, jobs: Sequence[Job]) -> None:
        """Plan and bind; leave everything as it was where that does not work out."""
        everyone = jobs
        jobs = [job for job in jobs if self._inputs_of([job]) is not None]
        cut: dict[tuple[PodKey, int], int] = {}
        for _ in range(_REPLANS):
            inputs = self._inputs_of(jobs) if len(jobs) > 1 else None
            if inputs is None:
                return
            offers = _cut(inputs, cut, min((job.fit for job in jobs), key=list(GangFit)[::-1].index))
            if _key(jobs[0]):
                # Nodes without the label are in no domain that a group could be in.
                offers[:, self._tree.virtual[self._tree.parent[self._tree.first_node :]]] = 0
            gangs = self._gangs(jobs, inputs, offers)
            plan = plan_queue(self._tree, gangs, limits=self._limits, gathering=_GATHERING)
            mark = self._workspace.checkpoint()
            bound = self._bind(jobs, inputs, plan, np.zeros_like(offers))
            if isinstance(bound, dict):
                # What several shapes take from each other is not seen in the offers of each.
                exact = len(jobs) == len(everyone) and (not cut or len(inputs.classes) == 1)
                exact = exact and not inputs.undercounted
                if not (exact and self._settles(jobs, plan)):
                    self._workspace.rollback(mark)
                    if self._fewer(everyone, bound):
                        return
                    bound = self._bind(jobs, inputs, plan, np.zeros_like(offers))
                    assert isinstance(bound, dict), "the same plan on the same nodes is bound again"
                self._keep(everyone, plan, bound, exact=exact)
                return
            self._workspace.rollback(mark)
            job, why = bound
            if isinstance(why, Denied):
                jobs = [one for one in jobs if one is not job]
            else:
                cut |= why

    def _settles(self, jobs: Sequence[Job], plan: QueuePlan) -> bool:
        """Tell whether more jobs cannot start."""
        return not plan.waiting or plan.settles_who_starts(len({_priority(job) for job in jobs}))

    def _fewer(self, jobs: Sequence[Job], started: Collection[str]) -> bool:
        """Tell whether one by one would be better: more jobs of the highest priority where they differ."""
        mark = self._workspace.checkpoint()
        alone = {
            job.name for job in jobs if place_job(self._workspace, self._plugins, job, self._limits)[1].placed
        }
        self._workspace.rollback(mark)
        tiers = sorted({_priority(job) for job in jobs}, reverse=True)

        def numbers(names: Collection[str]) -> list[int]:
            return [sum(job.name in names for job in jobs if _priority(job) == tier) for tier in tiers]

        return numbers(alone) > numbers(started)

    def _inputs_of(self, jobs: Sequence[Job]) -> PlanningInput | None:
        """Give all members; ``None`` where one of them is refused whatever the node."""
        pods = [pod for job in jobs for pod in job.pods]
        found = planning_input_of(self._workspace, self._plugins, pods, self._tree)
        return found if isinstance(found, PlanningInput) and not found.refused else None

    def _gangs(self, jobs: Sequence[Job], inputs: PlanningInput, offers: IntMatrix) -> list[QueuedGang]:
        return [
            QueuedGang(
                name=job.name,
                demand=demand_of(self._workspace, job, _spec(job), self._tree, inputs, offers),
                priority=_priority(job),
            )
            for job in jobs
        ]

    def _bind(
        self, jobs: Sequence[Job], inputs: PlanningInput, plan: QueuePlan, taken: IntMatrix
    ) -> dict[str, dict[PodKey, PodDecision]] | tuple[Job, Denied | dict[tuple[PodKey, int], int]]:
        """Bind the plan in queue order; or name the job that fails and why: refused, or an offer to cut."""
        done: dict[str, dict[PodKey, PodDecision]] = {}
        for job in jobs:
            nodes: Mapping[str, str] = plan.placements.get(job.name, {})
            bound = bind_plan(self._workspace, self._plugins, inputs, nodes)
            if isinstance(bound, Denied):
                return job, bound
            if isinstance(bound, tuple):
                cut = {}
                for one in bound:
                    shape = next(number for number, count in enumerate(one.counts) if count)
                    some = next(pod for pod in inputs.members if inputs.shape_of[str(pod.key)] == shape)
                    cut[some.key, one.node] = int(taken[shape, one.node]) + one.counts[shape] - 1
                return job, cut
            if bound:
                done[job.name] = bound
            for key, node_name in nodes.items():
                taken[inputs.shape_of[key], self._tree.node_index[node_name]] += 1
        return done

    def _keep(
        self,
        jobs: Sequence[Job],
        plan: QueuePlan,
        bound: Mapping[str, dict[PodKey, PodDecision]],
        *,
        exact: bool,
    ) -> None:
        """Write down what was bound."""
        certificate = plan.certificate
        if not exact:
            certificate = Certificate(CertificateStatus.HEURISTIC, certificate.objective)
        for job in jobs:
            if job.name not in bound:
                continue
            nodes = plan.placements[job.name]
            rows = [self._tree.node_index[node] for node in nodes.values()]
            counts = np.bincount(rows, minlength=len(self._tree.nodes))
            domains = domains_used(self._tree, counts)
            answer = GangPlacement(nodes=nodes, certificate=certificate, domains=domains)
            decisions = marked(self._workspace, job, bound[job.name])
            self._settled[job.name] = finish(self._workspace, job, decisions, answer, cut=False)
        self.plans.append(
            JointPlan(
                jobs=tuple(job.name for job in jobs),
                started=tuple(job.name for job in jobs if job.name in bound),
                one_by_one=len(plan.in_order),
                certificate=certificate,
            )
        )


def _key(job: Job) -> str:
    """Give the label of which a group of Kubernetes needs one value; empty for none."""
    return "" if job.tree is None else job.tree.key


def _spec(job: Job) -> NetworkTopologySpec:
    key = _key(job)
    if key:
        return NetworkTopologySpec((GatherRule(key, GatherStrategy.MUST_GATHER),))
    return job.spec or _ANYWHERE


def _priority(job: Job) -> int:
    """Give what counts in the queue: the highest among the members that wait."""
    return max(pod.priority for pod in job.pods)


def _cut(inputs: PlanningInput, cut: Mapping[tuple[PodKey, int], int], fit: GangFit) -> IntMatrix:
    """Give the offers of the nodes, less what is known not to hold."""
    offers = offers_of(inputs, fit)
    for (pod, node), most in cut.items():
        shape = inputs.shape_of.get(str(pod))
        if shape is not None:
            offers[shape, node] = min(int(offers[shape, node]), most)
    return offers
