"""Plans of evictions that stand in one call: their members hold their room until the victims have gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
from immutabledict import immutabledict

from koordcore.framework.nominated import assume_nominated, forget_nominated
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.decisions import Victim
from koordcore.model.pods import Pod
from koordcore.model.preemption import Damage, PreemptionPlan
from koordcore.scheduling.dry_runs import Claim, DryRuns
from koordcore.scheduling.reset import unbound


class StandingPlans:
    """The plans of one call.

    Attributes
    ----------
    claims
        What each of them holds.
    plans
        The plans themselves.
    """

    def __init__(self, workspace: Workspace, plugins: PluginSet) -> None:
        self._workspace, self._plugins = workspace, plugins
        self.claims: list[Claim] = []
        self.plans: list[PreemptionPlan] = []

    def stand(self, plan: PreemptionPlan, runs: DryRuns, pods: Mapping[str, Pod]) -> None:
        """Hold the members' room: until the victims have gone nobody else may count on it."""
        workspace = self._workspace
        row_of = workspace.layout.row_of
        victims = tuple((victim.pod, row_of[victim.node]) for victim in plan.victims)
        charged = runs.charged(victims) - {move.victim.pod for move in plan.moves}
        kept = runs.promised(plan.nominations, victims)
        members = [
            assume_nominated(workspace, self._plugins, pods[key], node, kept.get(pods[key].key, ()))
            for key, node in plan.nominations.items()
        ]
        for move in plan.moves:
            pod = workspace.pods_on(row_of[move.victim.node])[move.victim.pod]
            # It runs where it ran until it is made anew, under a name of its own.
            anew = attrs.evolve(unbound(pod), name=f"{pod.name}~moved", uid="")
            members.append(assume_nominated(workspace, self._plugins, anew, move.node))
        self.claims.append(Claim(tuple(members), victims, charged))
        self._plugins.nominated.claimed += members
        self.plans.append(plan)

    def take_back(self, number: int) -> list[PreemptionPlan]:
        """Let all plans but so many first ones stand no more; gives them."""
        gone = [pod for claim in self.claims[number:] for pod in claim.members]
        claimed = self._plugins.nominated.claimed
        del claimed[len(claimed) - len(gone) :]
        for pod in gone:
            forget_nominated(self._workspace, self._plugins, pod)
        plans = self.plans[number:]
        del self.claims[number:], self.plans[number:]
        return plans

    def release(self) -> None:
        """Take the members off again: they are nominated, not bound."""
        self._plugins.nominated.claimed.clear()
        for claim in self.claims:
            for pod in claim.members:
                forget_nominated(self._workspace, self._plugins, pod)


def joined(plans: Sequence[PreemptionPlan], members: Iterable[Pod]) -> PreemptionPlan:
    """Give the plan for several members of one job to which plans for each of them in turn come.

    Nothing is known of how good it is: another order of the members may have asked for less.
    """
    nominations = {key: node for plan in plans for key, node in plan.nominations.items()}
    damages = [attrs.astuple(plan.damage) for plan in plans]
    highest = max(plan.damage.highest for plan in plans)
    damage = attrs.evolve(Damage(*map(sum, zip(*damages, strict=True))), highest=highest)
    return PreemptionPlan(
        nominations=immutabledict(nominations),
        left_out=tuple(str(pod.key) for pod in members if str(pod.key) not in nominations),
        victims=_sorted(victim for plan in plans for victim in plan.victims),
        broken=tuple(sorted({one for plan in plans for one in plan.broken})),
        damage=damage,
        certificate=Certificate(CertificateStatus.HEURISTIC, attrs.astuple(damage)),
        moves=tuple(
            sorted(
                (move for plan in plans for move in plan.moves),
                key=lambda one: (one.victim.node, one.victim.pod),
            )
        ),
        leaving=_sorted({victim for plan in plans for victim in plan.leaving}),
        job=plans[0].job,
        borrowers=tuple(sorted({one for plan in plans for one in plan.borrowers})),
    )


def _sorted(victims: Iterable[Victim]) -> tuple[Victim, ...]:
    return tuple(sorted(victims, key=lambda victim: (victim.node, victim.pod)))
