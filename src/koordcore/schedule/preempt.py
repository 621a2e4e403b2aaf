"""Preemption in the flow: what the features know of pods and nodes, put to the planner.

The planner counts amounts. What amounts do not tell (cards, CPUs, ports, spreading) is found by a dry run:
the victims are taken off a scratch state, every member is bound as a pod of its own would be, and a node that
does not take its members is planned around.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntMatrix, IntVector
from koordcore._workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.decisions import Bound, Nominated, Victim
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import Move, NotHelpful, PreemptionPlan, PreemptionRules, Relocation
from koordcore.model.quotas import ElasticQuota, QuotaPod
from koordcore.model.reservations import Reservation
from koordcore.model.resources import Resources
from koordcore.preemption.eligible import check_eligible
from koordcore.preemption.plan import deal_members, plan_preemption, rejected_alternative
from koordcore.preemption.problem import Conflict, Pool, PreemptionProblem
from koordcore.preemption.setup import make_problem
from koordcore.preemption.victims import amounts_of
from koordcore.protocol.quota import quota_pod_of
from koordcore.protocol.reservation import RESERVATION_NAME, is_reserve_pod, label_priority
from koordcore.quota.admission import limit_of
from koordcore.quota.ledger import QuotaLedger
from koordcore.schedule.classes import FeatureSet, PodClass
from koordcore.schedule.feature import Refusal
from koordcore.schedule.features.quota import QuotaFeature
from koordcore.schedule.features.reservation import ReservationFeature
from koordcore.schedule.features.resources import FitEvaluator
from koordcore.schedule.holds import hold, let_go
from koordcore.schedule.jobs import Job, JobTable, network_tree
from koordcore.schedule.place import place_pod, place_there
from koordcore.snapshot import ClusterSnapshot

__all__ = ["Preemptor"]


@attrs.frozen(eq=False)
class _Claim:
    """A plan that stands: its members hold their room until the victims have gone."""

    members: tuple[Pod, ...]
    """With their nodes set."""
    victims: tuple[PodKey, ...]


class Preemptor:
    """Preempts for the jobs of one scheduling call.

    Parameters
    ----------
    workspace, features
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
        features: FeatureSet,
        table: JobTable,
        rules: PreemptionRules,
        limits: Limits,
    ) -> None:
        self._workspace, self._features = workspace, features
        self._rules, self._limits = rules, limits
        self._minimums = table.minimums()
        self._quota = next((one for one in features.features if isinstance(one, QuotaFeature)), None)
        known = (one for one in features.features if isinstance(one, ReservationFeature))
        self._reserving = any(one.args.enable_preemption for one in known)
        self._claims: list[_Claim] = []
        self.plans: list[PreemptionPlan] = []

    def for_pod(self, pod: Pod) -> list[Nominated] | None:
        """Make room for a pod without a gang, or for a reservation that may preempt."""
        if is_reserve_pod(pod) and not self._reservation_may(pod):
            return None
        return self._preempt(str(pod.key), {str(pod.key): ((pod,), 1)}, None, ())

    def _reservation_may(self, pod: Pod) -> bool:
        """One without a priority of its own ranks above everything: then the policy has to say so."""
        one = self._workspace.snapshot.find(Reservation, pod.annotations.get(RESERVATION_NAME, ""))
        if one is None:
            return False
        stated = one.template_priority is not None or label_priority(one.labels) is not None
        return stated or self._reserving

    def for_job(self, job: Job) -> list[Nominated] | None:
        """Make room for a gang group; None where that does not help, or is not allowed."""
        pending = {name: (pods, job.least(name)) for name, pods in job.members.items()}
        bound = tuple(node for nodes in job.bound.values() for node in nodes)
        return self._preempt(job.name, pending, job.spec, bound)

    # -- planning --------------------------------------------------------------------------------------

    def _preempt(
        self,
        name: str,
        pending: Mapping[str, tuple[tuple[Pod, ...], int]],
        spec: NetworkTopologySpec | None,
        bound: Sequence[str],
    ) -> list[Nominated] | None:
        members = [pod for pods, _ in pending.values() for pod in pods]
        if not members or any(pod.gated for pod in members):
            return None
        trigger = min(members, key=lambda pod: (pod.priority, pod.key))
        classes = {pod.key: self._features.class_of(pod) for pod in members}
        if any(isinstance(one, Refusal) for one in classes.values()):
            return None
        if not self._eligible(trigger, members, classes):
            return None
        problem = self._offers(self._problem(trigger, pending, spec, bound), members)
        pods = {str(pod.key): pod for pod in members}
        plan = self._plan(problem, pods)
        if isinstance(plan, NotHelpful) or not (plan.victims or self._claims):
            return None
        plan = attrs.evolve(
            plan,
            job=name,
            alternative=rejected_alternative(problem, plan, members=self._rules.members),
        )
        if self._rules.relocation is Relocation.FIRST:
            plan = self._relocated(plan, pods)
        self._claim(plan, pods)
        return _nominated(plan)

    def _plan(self, problem: PreemptionProblem, pods: Mapping[str, Pod]) -> PreemptionPlan | NotHelpful:
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
                dry_run=lambda counts, chosen: self._try(asked, pods, counts, chosen),
            )

        now, most = self._pools(problem, pods, limit_of), self._pools(problem, pods, QuotaLedger.max_of)
        plan = find(now)
        same = all(np.array_equal(one.room, other.room) for one, other in zip(now, most, strict=True))
        if same:
            return plan
        wider = find(most)
        if isinstance(plan, NotHelpful) or (isinstance(wider, PreemptionPlan) and wider.damage < plan.damage):
            return wider
        if isinstance(wider, PreemptionPlan) and wider.certificate.proven:
            return plan
        known = Certificate(CertificateStatus.HEURISTIC, plan.certificate.objective)
        return attrs.evolve(plan, certificate=known)

    def _eligible(
        self, trigger: Pod, members: Sequence[Pod], classes: Mapping[PodKey, PodClass | Refusal]
    ) -> bool:
        workspace = self._workspace
        nodes = {pod.nominated_node for pod in members if pod.nominated_node in workspace.layout.row_of}
        on_node = {
            str(node): tuple(workspace.pods_on(workspace.layout.row_of[str(node)]).values())
            for node in sorted(map(str, nodes))
        }
        own = classes[trigger.key]
        statuses = {}
        if isinstance(own, PodClass):
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
        holders = [pod.key for pod in workspace.snapshot.bound_pods() if is_reserve_pod(pod)]
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
        for pod, _, sign in self._workspace.journal:
            held[pod.key] += sign
        waiting = self._workspace.snapshot.pending
        return [pod for pod in waiting if pod.nominated_node and held[pod.key] <= 0]

    def _lent(self, pod: Pod) -> IntMatrix | None:
        pod_class = self._features.class_of(pod)
        parts = pod_class.parts if isinstance(pod_class, PodClass) else []
        fits = (part.evaluator for part in parts if isinstance(part.evaluator, FitEvaluator))
        return next((one.lent for one in fits), None)

    def _mask(self, pod: Pod) -> tuple[Hashable, BoolVector, IntVector]:
        pod_class = self._features.class_of(pod)
        assert isinstance(pod_class, PodClass)
        amounts = np.zeros(len(self._workspace.layout.resources), dtype=np.int64)
        amounts[PODS_ROW] = 1
        for part in pod_class.parts:
            if isinstance(part.evaluator, FitEvaluator) and part.setting.filters:
                amounts = part.evaluator.amounts
        return id(pod_class), pod_class.mendable(), amounts

    def _offers(self, problem: PreemptionProblem, members: Sequence[Pod]) -> PreemptionProblem:
        """Ask the features themselves what the nodes would take once everybody had left.

        Amounts are the planner's own business; this is about cards, CPUs and whatever else counts by node.
        """
        by_shape = {member.shape: member.key for member in problem.members}
        pods = {str(pod.key): pod for pod in members}
        classes = {shape: self._features.class_of(pods[key]) for shape, key in by_shape.items()}
        if not any(isinstance(one, PodClass) and one.counts_beyond_amounts for one in classes.values()):
            return problem
        most = len(problem.members)
        with self._without([PodKey(*key.split("/", 1)) for key in problem.candidates.keys]):
            slots = {shape: one.slots(most) for shape, one in classes.items() if isinstance(one, PodClass)}
        shapes = tuple(
            attrs.evolve(shape, most=slots[number]) if number in slots else shape
            for number, shape in enumerate(problem.shapes)
        )
        return attrs.evolve(problem, shapes=shapes)

    def _pools(
        self,
        problem: PreemptionProblem,
        members: Mapping[str, Pod],
        limit: Callable[[QuotaLedger, str], Resources],
    ) -> tuple[Pool, ...]:
        """What the quotas still give, and what victims give back to them."""
        if self._quota is None or not self._workspace.snapshot.of(ElasticQuota):
            return ()
        with self._without(()):
            return quota_pools(self._quota.ledger, problem, members, self._workspace.snapshot, limit)

    # -- dry runs --------------------------------------------------------------------------------------

    @contextmanager
    def _without(self, victims: Sequence[PodKey]) -> Iterator[None]:
        """Take pods off their nodes, those of earlier plans too, and put everything back in the end."""
        workspace = self._workspace
        mark = workspace.checkpoint()
        earlier = [key for claim in self._claims for key in claim.victims]
        for key in sorted({*earlier, *victims}):
            pod = workspace.snapshot.pod(key)
            row = workspace.layout.row_of[str(pod.node_name)] if pod is not None else -1
            if row >= 0 and key in workspace.pods_on(row):
                self._features.removed(workspace.evict(key, row), row)
        for claim in self._claims:
            # What earlier plans promised is taken for real, with cards and CPUs, on the nodes as they are.
            for held in claim.members:
                row = workspace.layout.row_of[str(held.node_name)]
                let_go(workspace, self._features, held)
                place_there(workspace, self._features, held.at(None), row)
        try:
            yield
        finally:
            workspace.rollback(mark)

    def _try(
        self, problem: PreemptionProblem, pods: Mapping[str, Pod], counts: IntMatrix, chosen: BoolVector
    ) -> Conflict | None:
        """Bind every member where the plan has it, without the victims."""
        keys = [PodKey(*problem.candidates.keys[one].split("/", 1)) for one in np.flatnonzero(chosen)]
        nodes, _ = deal_members(problem, counts)
        shape_of = {member.key: member.shape for member in problem.members}
        with self._without(keys):
            taken: Counter[tuple[int, int]] = Counter()
            for key, node in nodes.items():
                row = self._workspace.layout.row_of[node]
                pod_class = self._features.class_of(pods[key])
                if isinstance(pod_class, Refusal) or pod_class.refuse() is not None:
                    # No node is at fault: somebody else has to leave, such as another pod of the quota.
                    return Conflict(-1, np.zeros(len(problem.shapes), dtype=np.int64), chosen)
                if place_there(self._workspace, self._features, pods[key], row) is None:
                    held = np.array(
                        [taken[row, shape] for shape in range(len(problem.shapes))], dtype=np.int64
                    )
                    held[shape_of[key]] += 1
                    return Conflict(row, held, chosen)
                taken[row, shape_of[key]] += 1
        return None

    def _relocated(self, plan: PreemptionPlan, pods: Mapping[str, Pod]) -> PreemptionPlan:
        """Find other nodes for victims by their own constraints; a broken gang moves whole or not at all."""
        workspace = self._workspace
        moves: list[Move] = []
        with self._without([victim.pod for victim in plan.victims]):
            for key, node in plan.nominations.items():
                place_there(workspace, self._features, pods[key], workspace.layout.row_of[node])
            groups: dict[str, list[Victim]] = {}
            for victim in plan.victims:
                name = victim.job if victim.job in plan.broken else str(victim.pod)
                groups.setdefault(name, []).append(victim)
            for name in sorted(groups):
                mark = workspace.checkpoint()
                found = [self._elsewhere(victim) for victim in groups[name]]
                if all(found):
                    moves += [move for move in found if move is not None]
                else:
                    workspace.rollback(mark)
        moved = {move.victim.pod for move in moves}
        return (
            attrs.evolve(plan, moves=tuple(sorted(moves, key=lambda move: move.victim.pod)))
            if moved
            else plan
        )

    def _elsewhere(self, victim: Victim) -> Move | None:
        pod = self._workspace.snapshot.pod(victim.pod)
        if pod is None or pod.static or pod.daemon:
            return None
        decision = place_pod(self._workspace, self._features, pod.at(None))
        return Move(victim, decision.node) if isinstance(decision, Bound) else None

    # -- standing plans --------------------------------------------------------------------------------

    def _claim(self, plan: PreemptionPlan, pods: Mapping[str, Pod]) -> None:
        """Hold the members' room: until the victims have gone nobody else may count on it."""
        workspace = self._workspace
        members = []
        for key, node in plan.nominations.items():
            members.append(hold(workspace, self._features, pods[key], node))
        self._claims.append(_Claim(tuple(members), tuple(victim.pod for victim in plan.victims)))
        self.plans.append(plan)

    def release(self) -> None:
        """Take the members off again: they are nominated, not bound."""
        for claim in self._claims:
            for pod in claim.members:
                let_go(self._workspace, self._features, pod)


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
        Nominated(pod=PodKey(*key.split("/", 1)), node=node, victims=tuple(by_member.get(key, ())))
        for key, node in plan.nominations.items()
    ]


def quota_pools(
    ledger: QuotaLedger,
    problem: PreemptionProblem,
    members: Mapping[str, Pod],
    snapshot: ClusterSnapshot,
    limit_for: Callable[[QuotaLedger, str], Resources] = limit_of,
) -> tuple[Pool, ...]:
    """Write the limits of the members' quotas as pools.

    Parameters
    ----------
    ledger
        Use and limits now.
    members
        Pods of the job, by ``namespace/name``.
    limit_for
        What a quota may use: what it may use now, or at most.

    Notes
    -----
    Runtime quotas move with what is asked for, so whoever uses this tries the plan in the end.
    """
    shape_of = {member.key: member.shape for member in problem.members}
    chains = {key: _chain(ledger, quota_pod_of(pod)) for key, pod in members.items()}
    leaving = [snapshot.pod(PodKey(*key.split("/", 1))) for key in problem.candidates.keys]
    given = [(quota_pod_of(pod), pod) if pod is not None else None for pod in leaving]
    homes = [_chain(ledger, one[0], whole=True) if one is not None else () for one in given]
    pools = []
    for quota in sorted({name for chain in chains.values() for name in chain}):
        limit, used = limit_for(ledger, quota), ledger.used_of(quota)
        names = sorted(limit)
        uses = np.zeros((len(problem.shapes), len(names)), dtype=np.int64)
        for key, chain in chains.items():
            if quota in chain:
                request = quota_pod_of(members[key]).request
                uses[shape_of[key]] = [request.get(name, 0) for name in names]
        gives = np.zeros((len(names), len(leaving)), dtype=np.int64)
        for number, (one, home) in enumerate(zip(given, homes, strict=True)):
            if one is not None and quota in home:
                gives[:, number] = [one[0].request.get(name, 0) for name in names]
        room = np.array([limit[name] - used.get(name, 0) for name in names], dtype=np.int64)
        pools.append(Pool(room=room, uses=uses, gives=gives))
    return tuple(pools)


def _chain(ledger: QuotaLedger, pod: QuotaPod, *, whole: bool = False) -> tuple[str, ...]:
    """The quota of a pod and, where they are asked (or always), those above it."""
    name = ledger.resolve(pod)
    if name is None:
        return ()
    chain = [name]
    while (whole or ledger.policy.enable_check_parent_quota) and name in ledger.quotas:
        name = ledger.quotas[name].parent
        if name in chain or name not in ledger.quotas:
            break
        chain.append(name)
    return tuple(chain)
