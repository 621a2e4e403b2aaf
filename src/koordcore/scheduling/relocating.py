"""Victims that run on elsewhere: where each may move, and a plan in which moves are part of the question."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import attrs
import numpy as np

from koordcore._record import record
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.decisions import Bound, Victim
from koordcore.model.pods import Pod
from koordcore.model.preemption import Move, NotHelpful, PreemptionPlan
from koordcore.preemption.bounds import usable_up_to
from koordcore.preemption.cost import damage_of
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.problem import PreemptionProblem, Refuges
from koordcore.preemption.setup import Wanted
from koordcore.scheduling.dry_runs import DryRuns
from koordcore.scheduling.freeing import key_of
from koordcore.scheduling.one_pod import place_pod, place_there
from koordcore.scheduling.reset import unbound

_MOST_MOVABLE: Final = 5000
"""Candidates among whom the planner looks for those who can move; beyond, only who leaves anyway moves."""


@record(eq=False)
class Relocator:
    """Moves victims of one job.

    Parameters
    ----------
    workspace, plugins
        The state of the call.
    runs
        Dry runs of the job.
    members
        Its pods, by ``namespace/name``.
    wanted
        Tells what a pod asks of nodes.
    """

    workspace: Workspace
    plugins: PluginSet
    runs: DryRuns
    members: dict[str, Pod]
    wanted: Callable[[Pod], Wanted]

    def relocated(
        self,
        problem: PreemptionProblem,
        plan: PreemptionPlan,
        planned: Callable[[PreemptionProblem, PreemptionPlan], PreemptionPlan | NotHelpful],
    ) -> PreemptionPlan:
        """Move victims that fit elsewhere, and prefer those who can move to those who cannot.

        First whoever leaves anyway is moved where possible; from there the planner goes on, with moves as
        part of the question.
        """
        plan = self._moved(problem, plan)
        useful = int(usable_up_to(problem, None).sum())
        aware = planned(self._with_refuges(problem), plan) if useful <= _MOST_MOVABLE else None
        if isinstance(aware, PreemptionPlan) and aware.damage <= plan.damage:
            return attrs.evolve(aware, job=plan.job, alternative=plan.alternative)
        return plan

    def _with_refuges(self, problem: PreemptionProblem) -> PreemptionProblem:
        """Say where each candidate may move by its own constraints."""
        kinds: dict[Hashable, tuple[int, MemberShape, Pod]] = {}
        kind = np.full(len(problem.candidates), -1, dtype=np.int64)
        for one, key in enumerate(problem.candidates.keys):
            pod = self.workspace.pods_on(int(problem.candidates.node[one]))[key_of(key)]
            if pod.fixed or pod.daemon:
                continue
            free = unbound(pod)
            if not isinstance(self.plugins.class_of(free), SchedulingClass):
                continue
            number, allowed, amounts = self.wanted(free)
            heeded = self.plugins.nominated.others_against(free)
            known = (number, problem.candidates.amounts[:, one].tobytes(), heeded)
            if known not in kinds:
                kinds[known] = (len(kinds), MemberShape(request=amounts, allowed=allowed), free)
            kind[one] = kinds[known][0]
        shapes, pods = [shape for _, shape, _ in kinds.values()], [pod for *_, pod in kinds.values()]
        counted = self.runs.counted(problem, shapes, pods, len(problem.candidates))
        return attrs.evolve(problem, refuges=Refuges(kind, counted))

    def _moved(self, problem: PreemptionProblem, plan: PreemptionPlan) -> PreemptionPlan:
        """Find other nodes for victims by their own constraints; of a broken gang its minimum or nobody."""
        workspace = self.workspace
        moves: list[Move] = []
        least = dict(zip(problem.jobs.names, problem.jobs.least.tolist(), strict=True))
        row_of = workspace.layout.row_of
        with self.runs.without([(victim.pod, row_of[victim.node]) for victim in plan.victims]):
            for key, node in plan.nominations.items():
                place_there(workspace, self.plugins, self.members[key], workspace.layout.row_of[node])
            groups: dict[str, list[Victim]] = {}
            for victim in plan.victims:
                name = victim.job if victim.job in plan.broken else str(victim.pod)
                groups.setdefault(name, []).append(victim)
            for name in sorted(groups):
                mark = workspace.checkpoint()
                some = [self._elsewhere(one, whole=name in plan.broken) for one in groups[name]]
                found = [move for move in some if move is not None]
                if len(found) >= (least[name] if name in plan.broken else 1):
                    moves += found
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

        What is lent is not taken: it may be the very one for which the victim leaves.
        """
        pod = self.workspace.snapshot.pod(victim.pod)
        if pod is None or pod.fixed or pod.daemon:
            return None
        mark = self.workspace.checkpoint()
        with self.plugins.nominated.for_others():
            decision = place_pod(self.workspace, self.plugins, unbound(pod))
        if isinstance(decision, Bound) and not decision.on_loan and (whole or decision.node != victim.node):
            return Move(victim, decision.node)
        self.workspace.rollback(mark)
        return None
