"""Plans of evictions that stand in one call: their members hold their room until the victims have gone."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from koordcore.framework.nominated import assume_nominated, forget_nominated
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.preemption import PreemptionPlan
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
        charged = runs.charged(victims)
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

    def release(self) -> None:
        """Take the members off again: they are nominated, not bound."""
        self._plugins.nominated.claimed.clear()
        for claim in self.claims:
            for pod in claim.members:
                forget_nominated(self._workspace, self._plugins, pod)
