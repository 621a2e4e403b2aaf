"""Preemption in the flow: what the plugins know of pods and nodes, put to the planner.

The planner counts amounts. What amounts do not tell (cards, CPUs, ports, spreading) is found by a dry run:
the victims are taken off a scratch state, every member is bound as a pod of its own would be, and a node that
does not take its members is planned around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntMatrix, IntVector
from koordcore.framework.nominated import assume_nominated, forget_nominated
from koordcore.framework.plugin import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.decisions import Bound, Nominated, Victim
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import Move, NotHelpful, PreemptionPlan, PreemptionRules, Relocation
from koordcore.model.quotas import BUILTIN_QUOTAS, ElasticQuota
from koordcore.model.reservations import Reservation
from koordcore.model.resources import Resources
from koordcore.preemption.bounds import usable_up_to
from koordcore.preemption.cost import damage_of
from koordcore.preemption.eligible import check_eligible
from koordcore.preemption.identify import PreemptingJob, identify_job
from koordcore.preemption.plan import MOST_ROUNDS, deal_members, plan_preemption, rejected_alternative
from koordcore.preemption.problem import Conflict, MemberShape, Pool, PreemptionProblem, Refuges
from koordcore.preemption.setup import make_problem
from koordcore.preemption.victims import amounts_of
from koordcore.protocol.quota import quota_pod_of
from koordcore.protocol.reservation import RESERVATION_NAME, is_reserve_pod, label_priority
from koordcore.quota.admission import limit_of
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.lenders import chain_of, gives_back, staying_charged
from koordcore.scheduling.gang_groups import Job, JobTable, network_tree
from koordcore.scheduling.one_pod import place_pod, place_there
from koordcore.scheduling.plugins.quota import QuotaPlugin
from koordcore.scheduling.plugins.reservation import ReservationPlugin
from koordcore.scheduling.plugins.resources import FitEvaluator
from koordcore.scheduling.quota_pools import quota_pools
from koordcore.scheduling.reset import unbound

__all__ = ["Preemptor"]

_MOST_MOVABLE: Final = 5000
"""Candidates among whom the planner looks for those who can move; beyond, only who leaves anyway moves."""


@attrs.frozen(eq=False)
class _Claim:
    """A plan that stands: its members hold their room until the victims have gone."""

    members: tuple[Pod, ...]
    """With their nodes set."""
    victims: tuple[PodKey, ...]
    charged: frozenset[PodKey]
    """Victims that their quotas go on counting, as far as this plan is concerned."""


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
        self._minimums = table.minimums()
        self._quota = next((one for one in plugins.plugins if isinstance(one, QuotaPlugin)), None)
        known = (one for one in plugins.plugins if isinstance(one, ReservationPlugin))
        self._reserving = any(one.args.enable_preemption for one in known)
        self._claims: list[_Claim] = []
        self.plans: list[PreemptionPlan] = []

    def for_pod(self, pod: Pod) -> list[Nominated] | None:
        """Make room for a pod without a gang, or for a reservation that may preempt."""
        if is_reserve_pod(pod) and not self._reservation_may(pod):
            return None
        return self._preempt(identify_job(pod), None, ())

    def _reservation_may(self, pod: Pod) -> bool:
        """One without a priority of its own ranks above everything: then the policy has to say so."""
        one = self._workspace.snapshot.find(Reservation, pod.annotations.get(RESERVATION_NAME, ""))
        if one is None:
            return False
        stated = one.template_priority is not None or label_priority(one.labels) is not None
        return stated or self._reserving

    def for_job(self, job: Job) -> list[Nominated] | None:
        """Make room for a gang group; None where that does not help, or is not allowed."""
        if not job.pods:
            return None
        least = {name: job.least(name) for name in job.members}
        trigger = min(job.pods, key=lambda pod: (pod.priority, pod.key))
        identified = identify_job(trigger, group=tuple(job.members), pending=job.pods, minimums=least)
        bound = tuple(node for nodes in job.bound.values() for node in nodes)
        return self._preempt(identified, job.spec, bound)

    # -- planning --------------------------------------------------------------------------------------

    def _preempt(
        self, job: PreemptingJob, spec: NetworkTopologySpec | None, bound: Sequence[str]
    ) -> list[Nominated] | None:
        members, trigger = job.pending, job.trigger
        if any(pod.gated for pod in members) or not self._workspace.layout.names:
            return None
        classes = {pod.key: self._plugins.class_of(pod) for pod in members}
        if any(isinstance(one, Refusal) for one in classes.values()):
            return None
        if not self._eligible(trigger, members, classes):
            return None
        pods = {str(pod.key): pod for pod in members}
        problem = self._problem(trigger, job.parts, spec, bound)
        if any(isinstance(one, SchedulingClass) and one.counts_beyond_amounts for one in classes.values()):
            # Mostly amounts tell enough; to count cards and CPUs on emptied nodes takes far longer.
            plan = self._plan(problem, pods, rounds=1)
            if not plan.certificate.proven:
                problem = self._offers(problem, members)
                plan = self._plan(problem, pods)
        else:
            plan = self._plan(problem, pods)
        if isinstance(plan, NotHelpful) or not plan.nominations or not (plan.victims or self._claims):
            return None
        plan = attrs.evolve(
            plan,
            job=job.preemptor,
            alternative=rejected_alternative(
                problem,
                plan,
                members=self._rules.members,
                dry_run=lambda *draft: self._try(problem, pods, *draft),
            ),
        )
        if self._rules.relocation is Relocation.FIRST and plan.victims:
            plan = self._relocated(problem, plan, pods)
        self._claim(plan, pods)
        return _nominated(plan)

    def _plan(
        self,
        problem: PreemptionProblem,
        pods: Mapping[str, Pod],
        start: PreemptionPlan | None = None,
        rounds: int = MOST_ROUNDS,
    ) -> PreemptionPlan | NotHelpful:
        """Plan within what the quotas may use now; if that fails, or may not be all, within their max.

        Evicting pods of other quotas may raise a runtime quota, by how much only the dry run knows.
        """

        def find(pools: tuple[Pool, ...]) -> PreemptionPlan | NotHelpful:
            asked = attrs.evolve(problem, pools=pools)
            return plan_preemption(
                asked,
                members=self._rules.members,
                gather=self._rules.gather,
                limits=self._limits,
                dry_run=lambda *plan: self._try(asked, pods, *plan),
                start=start,
                rounds=rounds,
            )

        now, most = self._pools(problem, pods, limit_of), self._pools(problem, pods, QuotaLedger.max_of)
        plan = find(now)
        if len(now) == len(most) and all(map(_alike, now, most)):
            return plan
        wider = find(most)
        if isinstance(plan, NotHelpful) or (isinstance(wider, PreemptionPlan) and wider.damage < plan.damage):
            return wider
        if isinstance(wider, PreemptionPlan) and wider.certificate.proven:
            return plan
        known = Certificate(CertificateStatus.HEURISTIC, plan.certificate.objective)
        return attrs.evolve(plan, certificate=known)

    def _eligible(
        self, trigger: Pod, members: Sequence[Pod], classes: Mapping[PodKey, SchedulingClass | Refusal]
    ) -> bool:
        workspace = self._workspace
        nodes = {pod.nominated_node for pod in members if pod.nominated_node in workspace.layout.row_of}
        on_node = {
            str(node): tuple(workspace.pods_on(workspace.layout.row_of[str(node)]).values())
            for node in sorted(map(str, nodes))
        }
        own = classes[trigger.key]
        statuses = {}
        if isinstance(own, SchedulingClass):
            mask = own.mendable()
            statuses = {node: "Unschedulable" for node in on_node if mask[workspace.layout.row_of[node]]}
        return check_eligible(trigger, members, on_node, statuses).eligible

    def _problem(
        self,
        trigger: Pod,
        pending: Mapping[str, tuple[tuple[Pod, ...], int]],
        spec: NetworkTopologySpec | None,
        bound: Sequence[str],
    ) -> PreemptionProblem:
        workspace, layout = self._workspace, self._workspace.layout
        leaving = {key for claim in self._claims for key in claim.victims}
        free = workspace.free.copy()
        for key in sorted(leaving):
            pod = workspace.snapshot.pod(key)
            if pod is not None:
                free[:, layout.row_of[str(pod.node_name)]] += amounts_of(layout, pod)
        lent = [self._lent(pod) for pods, _ in pending.values() for pod in pods]
        common = lent[0]
        if common is not None and all(one is not None and np.array_equal(one, common) for one in lent):
            # Room of reservations that all members may use; that it is not used twice is for the dry run.
            free += common
        holders = [one.pod_key for one in workspace.snapshot.of(Reservation) if one.active]
        restart = self._rules.restart_costs
        return make_problem(
            workspace.snapshot,
            trigger,
            pending,
            minimums=self._minimums,
            own=frozenset(holders),
            gone=frozenset(leaving),
            tree=workspace.snapshot.once(network_tree),
            spec=spec,
            bound=bound,
            mask=self._mask,
            free=free,
            nominated=self._nominations(),
            restart=(lambda pod: restart.get(str(pod.key), 0)) if restart else None,
        )

    def _nominations(self) -> list[Pod]:
        """Pods of the cluster that are nominated somewhere and hold no room yet in this call."""
        held: Counter[PodKey] = Counter()
        for pod, _, sign in self._workspace.journal[self._workspace.began :]:
            held[pod.key] += sign
        waiting = self._workspace.snapshot.pending
        return [pod for pod in waiting if pod.nominated_node and held[pod.key] <= 0]

    def _lent(self, pod: Pod) -> IntMatrix | None:
        scheduling_class = self._plugins.class_of(pod)
        parts = scheduling_class.parts if isinstance(scheduling_class, SchedulingClass) else []
        fits = (part.evaluator for part in parts if isinstance(part.evaluator, FitEvaluator))
        return next((one.lent for one in fits), None)

    def _mask(self, pod: Pod) -> tuple[Hashable, BoolVector, IntVector]:
        scheduling_class = self._plugins.class_of(pod)
        assert isinstance(scheduling_class, SchedulingClass)
        amounts = np.zeros(len(self._workspace.layout.resources), dtype=np.int64)
        amounts[PODS_ROW] = 1
        for part in scheduling_class.parts:
            if isinstance(part.evaluator, FitEvaluator) and part.setting.filters:
                amounts = part.evaluator.amounts
        return id(scheduling_class), scheduling_class.mendable(), amounts

    def _offers(self, problem: PreemptionProblem, members: Sequence[Pod]) -> PreemptionProblem:
        """Ask the plugins themselves what the nodes would take once everybody had left.

        Amounts are the planner's own business; this is about cards, CPUs and whatever else counts by node.
        """
        by_shape = {member.shape: member.key for member in problem.members}
        pods = {str(pod.key): pod for pod in members}
        asked = [pods[by_shape[number]] for number in range(len(problem.shapes))]
        shapes = self._counted(problem, problem.shapes, asked, len(problem.members))
        return attrs.evolve(problem, shapes=shapes)

    def _counted(
        self, problem: PreemptionProblem, shapes: Sequence[MemberShape], pods: Sequence[Pod], most: int
    ) -> tuple[MemberShape, ...]:
        """Add to each shape, of which a pod is given, how many the emptied nodes take."""
        classes = [self._plugins.class_of(pod) for pod in pods]
        if not any(isinstance(one, SchedulingClass) and one.counts_beyond_amounts for one in classes):
            return tuple(shapes)
        with self._without([_key(key) for key in problem.candidates.keys]):
            return tuple(
                attrs.evolve(shape, most=one.local_slots(most)) if isinstance(one, SchedulingClass) else shape
                for shape, one in zip(shapes, classes, strict=True)
            )

    def _pools(
        self,
        problem: PreemptionProblem,
        members: Mapping[str, Pod],
        limit: Callable[[QuotaLedger, str], Resources],
    ) -> tuple[Pool, ...]:
        """What the quotas still give, and what victims give back to them."""
        if self._ledger is None:
            return ()
        with self._without(()):
            return quota_pools(self._ledger, problem, members, self._workspace.snapshot, limit)

    # -- dry runs --------------------------------------------------------------------------------------

    @contextmanager
    def _without(self, victims: Sequence[PodKey], charged: frozenset[PodKey] = frozenset()) -> Iterator[None]:
        """Take pods off their nodes, those of earlier plans too, and put everything back in the end.

        Parameters
        ----------
        charged
            Those of the victims that their quotas go on counting.
        """
        workspace = self._workspace
        mark = workspace.checkpoint()
        earlier = [key for claim in self._claims for key in claim.victims]
        staying = charged.union(*(claim.charged for claim in self._claims))
        for key in sorted({*earlier, *victims}):
            pod = workspace.snapshot.pod(key)
            row = workspace.layout.row_of[str(pod.node_name)] if pod is not None else -1
            if row >= 0 and key in workspace.pods_on(row):
                gone = workspace.evict(key, row)
                self._plugins.removed(gone, row)
                if key in staying and self._quota is not None:
                    self._quota.charge(gone)
        for claim in self._claims:
            # What earlier plans promised is taken for real, with cards and CPUs, on the nodes as they are.
            for held in claim.members:
                row = workspace.layout.row_of[str(held.node_name)]
                forget_nominated(workspace, self._plugins, held)
                if place_there(workspace, self._plugins, held.at(None), row) is None:
                    assume_nominated(workspace, self._plugins, held.at(None), str(held.node_name))
        try:
            yield
        finally:
            workspace.rollback(mark)

    def _try(
        self,
        problem: PreemptionProblem,
        pods: Mapping[str, Pod],
        counts: IntMatrix,
        chosen: BoolVector,
        moves: IntVector,
    ) -> Conflict | None:
        """Bind every member where the plan has it, without the victims, and then whoever moves."""
        keys = [_key(problem.candidates.keys[one]) for one in np.flatnonzero(chosen)]
        nodes, _ = deal_members(problem, counts)
        shape_of = {member.key: member.shape for member in problem.members}
        row_of = self._workspace.layout.row_of
        coming = [(pods[key], shape_of[key], row_of[node]) for key, node in nodes.items()]
        for one in np.flatnonzero(moves >= 0).tolist():
            pod = self._workspace.snapshot.pod(_key(problem.candidates.keys[one]))
            assert pod is not None
            coming.append((unbound(pod), int(problem.shape_of_kind[one]), int(moves[one])))
        ledger = self._ledger
        with self._without(keys, self._charged(keys, pods.values())):
            taken = np.zeros((len(problem.all_shapes), len(row_of)), dtype=np.int64)
            for pod, shape, row in coming:
                taken[shape, row] += 1
                scheduling_class = self._plugins.class_of(pod)
                if isinstance(scheduling_class, Refusal) or scheduling_class.refuse() is not None:
                    # No node is at fault: somebody else has to leave, such as another pod of the quota.
                    nowhere = np.zeros(len(problem.all_shapes), dtype=np.int64)
                    if shape >= len(problem.shapes):
                        nowhere[shape] = taken[shape].sum()
                    return Conflict(-1, nowhere, chosen | ~self._giving(problem, pods.values(), ledger))
                placed = place_there(self._workspace, self._plugins, pod, row)
                if placed is None or (placed.reservation and shape >= len(problem.shapes)):
                    return Conflict(row, taken[:, row], chosen)
        return None

    def _charged(self, victims: Sequence[PodKey], members: Collection[Pod]) -> frozenset[PodKey]:
        """Give the victims within a guaranteed min: nobody may borrow more because they leave."""
        ledger = self._ledger
        if ledger is None or not victims:
            return frozenset()
        found = (self._workspace.snapshot.pod(key) for key in victims)
        leaving = [quota_pod_of(pod) for pod in found if pod is not None]
        return staying_charged(ledger, leaving, *_asking(ledger, members))

    def _giving(
        self, problem: PreemptionProblem, members: Collection[Pod], ledger: QuotaLedger | None
    ) -> BoolVector:
        """Tell who may leave for the sake of the members' quotas, shape (V,)."""
        if ledger is None:
            return np.ones(len(problem.candidates), dtype=np.bool_)
        mine, wanted = _asking(ledger, members)
        pods = (self._workspace.snapshot.pod(_key(key)) for key in problem.candidates.keys)
        asked = (None if pod is None else quota_pod_of(pod) for pod in pods)
        given = (
            pod is not None
            and ledger.resolve(pod) not in BUILTIN_QUOTAS
            and gives_back(ledger, pod, mine, wanted)
            for pod in asked
        )
        return np.fromiter(given, np.bool_, len(problem.candidates))

    @property
    def _ledger(self) -> QuotaLedger | None:
        """The quotas as they stand now; None where there are none."""
        governed = self._quota is not None and bool(self._workspace.snapshot.of(ElasticQuota))
        return self._quota.ledger if governed and self._quota is not None else None

    def _relocated(
        self, problem: PreemptionProblem, plan: PreemptionPlan, pods: Mapping[str, Pod]
    ) -> PreemptionPlan:
        """Move victims that fit elsewhere, and prefer those who can move to those who cannot.

        First whoever leaves anyway is moved where possible; from there the planner goes on, with moves as
        part of the question.
        """
        plan = self._moved(problem, plan, pods)
        useful = int(usable_up_to(problem, None).sum())
        aware = self._plan(self._with_refuges(problem), pods, plan) if useful <= _MOST_MOVABLE else None
        if isinstance(aware, PreemptionPlan) and aware.damage <= plan.damage:
            return attrs.evolve(aware, job=plan.job, alternative=plan.alternative)
        return plan

    def _with_refuges(self, problem: PreemptionProblem) -> PreemptionProblem:
        """Say where each candidate may move by its own constraints."""
        kinds: dict[Hashable, tuple[int, MemberShape, Pod]] = {}
        kind = np.full(len(problem.candidates), -1, dtype=np.int64)
        for one, key in enumerate(problem.candidates.keys):
            pod = self._workspace.snapshot.pod(_key(key))
            if pod is None or pod.static or pod.daemon:
                continue
            free = unbound(pod)
            if not isinstance(self._plugins.class_of(free), SchedulingClass):
                continue
            number, allowed, amounts = self._mask(free)
            known = (number, problem.candidates.amounts[:, one].tobytes())
            if known not in kinds:
                kinds[known] = (len(kinds), MemberShape(request=amounts, allowed=allowed), free)
            kind[one] = kinds[known][0]
        shapes, pods = [shape for _, shape, _ in kinds.values()], [pod for *_, pod in kinds.values()]
        counted = self._counted(problem, shapes, pods, len(problem.candidates))
        return attrs.evolve(problem, refuges=Refuges(kind, counted))

    def _moved(
        self, problem: PreemptionProblem, plan: PreemptionPlan, pods: Mapping[str, Pod]
    ) -> PreemptionPlan:
        """Find other nodes for victims by their own constraints; a broken gang moves whole or not at all."""
        workspace = self._workspace
        moves: list[Move] = []
        with self._without([victim.pod for victim in plan.victims]):
            for key, node in plan.nominations.items():
                place_there(workspace, self._plugins, pods[key], workspace.layout.row_of[node])
            groups: dict[str, list[Victim]] = {}
            for victim in plan.victims:
                name = victim.job if victim.job in plan.broken else str(victim.pod)
                groups.setdefault(name, []).append(victim)
            for name in sorted(groups):
                mark = workspace.checkpoint()
                found = [self._elsewhere(one, whole=name in plan.broken) for one in groups[name]]
                if all(found):
                    moves += [move for move in found if move is not None]
                else:
                    workspace.rollback(mark)
        keys = problem.candidates.keys
        gone, going = {str(one.pod) for one in plan.victims}, {str(one.victim.pod) for one in moves}
        damage = damage_of(
            problem, np.array([key in gone for key in keys]), np.array([key in going for key in keys])
        )
        return attrs.evolve(
            plan,
            moves=tuple(sorted(moves, key=lambda move: move.victim.pod)),
            damage=damage,
            certificate=Certificate(CertificateStatus.HEURISTIC, damage.vector),
        )

    def _elsewhere(self, victim: Victim, *, whole: bool) -> Move | None:
        """Find another node; one that moves with its gang may also start anew where it was.

        What a reservation holds is not taken: it may be the very one for which the victim leaves.
        """
        pod = self._workspace.snapshot.pod(victim.pod)
        if pod is None or pod.static or pod.daemon:
            return None
        mark = self._workspace.checkpoint()
        decision = place_pod(self._workspace, self._plugins, unbound(pod))
        if (
            isinstance(decision, Bound)
            and not decision.reservation
            and (whole or decision.node != victim.node)
        ):
            return Move(victim, decision.node)
        self._workspace.rollback(mark)
        return None

    # -- standing plans --------------------------------------------------------------------------------

    def _claim(self, plan: PreemptionPlan, pods: Mapping[str, Pod]) -> None:
        """Hold the members' room: until the victims have gone nobody else may count on it."""
        workspace = self._workspace
        members = []
        for key, node in plan.nominations.items():
            members.append(assume_nominated(workspace, self._plugins, pods[key], node))
        for move in plan.moves:
            pod = workspace.snapshot.pod(move.victim.pod)
            assert pod is not None
            # It runs where it ran until it is made anew, under a name of its own.
            anew = attrs.evolve(unbound(pod), name=f"{pod.name}~moved", uid="")
            members.append(assume_nominated(workspace, self._plugins, anew, move.node))
        victims = tuple(victim.pod for victim in plan.victims)
        self._claims.append(_Claim(tuple(members), victims, self._charged(victims, pods.values())))
        self.plans.append(plan)

    def release(self) -> None:
        """Take the members off again: they are nominated, not bound."""
        for claim in self._claims:
            for pod in claim.members:
                forget_nominated(self._workspace, self._plugins, pod)


def _key(text: str) -> PodKey:
    return PodKey(*text.split("/", 1))


def _asking(ledger: QuotaLedger, members: Iterable[Pod]) -> tuple[set[tuple[str, ...]], list[str]]:
    """Chains of the members' quotas, and the resources that they ask for."""
    asked = [quota_pod_of(pod) for pod in members]
    wanted = sorted({name for pod in asked for name in pod.request})
    return {chain_of(ledger, pod) for pod in asked}, wanted


def _alike(one: Pool, other: Pool) -> bool:
    return np.array_equal(one.room, other.room) and np.array_equal(one.uses, other.uses)


def _nominated(plan: PreemptionPlan) -> list[Nominated]:
    """One decision per member; each victim is named once, if possible by a member that takes its node."""
    first: dict[str, str] = {}
    for key, node in plan.nominations.items():
        first.setdefault(node, key)
    somebody = next(iter(plan.nominations))
    by_member: dict[str, list[Victim]] = {}
    for victim in plan.victims:
        by_member.setdefault(first.get(victim.node, somebody), []).append(victim)
    return [
        Nominated(pod=_key(key), node=node, victims=tuple(by_member.get(key, ())))
        for key, node in plan.nominations.items()
    ]
