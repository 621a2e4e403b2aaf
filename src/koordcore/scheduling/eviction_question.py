"""What is asked of the planner of evictions: the state of a call as candidates, nodes and members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import PreemptionRules
from koordcore.model.reservations import Reservation
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.running import Leaving, amounts_of
from koordcore.preemption.setup import Wanted, make_problem
from koordcore.scheduling.network_trees import network_tree
from koordcore.snapshot.following import once


@attrs.frozen(eq=False)
class EvictionQuestions:
    """Writes the questions of one call.

    Parameters
    ----------
    workspace, plugins
        The state of the call.
    rules
        For whom room is made, and how.
    minimums
        Minimum of every gang that is known, by id.
    withdrawn
        Pods that have given up in this call what was promised to them; the call adds to it.
    """

    workspace: Workspace
    plugins: PluginSet
    rules: PreemptionRules
    minimums: Mapping[str, int]
    withdrawn: Sequence[PodKey]

    def problem(
        self,
        trigger: Pod,
        pending: Mapping[str, tuple[tuple[Pod, ...], int]],
        spec: NetworkTopologySpec | None,
        bound: Sequence[str],
        gone: Collection[Leaving],
        leaving: Sequence[Pod],
        whom: BoolVector | None,
    ) -> PreemptionProblem:
        """Write one; see :func:`~koordcore.preemption.setup.make_problem`.

        Parameters
        ----------
        gone
            Victims of the plans that stand.
        """
        workspace, layout = self.workspace, self.workspace.layout
        free = workspace.free.copy()
        for key, row in sorted(gone):
            free[:, row] += amounts_of(layout, workspace.pods_on(row)[key])
        lent = [self._lent(pod) for pods, _ in pending.values() for pod in pods]
        common = lent[0]
        if common is not None and all(one is not None and np.array_equal(one, common) for one in lent):
            # Room of reservations that all members may use; that it is not used twice is for the dry run.
            free += common
        reserved = [one for one in workspace.snapshot.of(Reservation) if one.active]
        places = ((one.pod_key, layout.row_of.get(one.status.node_name)) for one in reserved)
        restart = self.rules.restart_costs
        return make_problem(
            workspace.snapshot,
            trigger,
            pending,
            minimums=self.minimums,
            own=frozenset((key, row) for key, row in places if row is not None),
            gone=gone,
            leaving=leaving,
            tree=once(workspace.snapshot, network_tree),
            spec=spec,
            bound=bound,
            wanted={pod.key: self.wanted(pod) for pods, _ in pending.values() for pod in pods},
            free=free,
            nominated=self._nominations(trigger),
            restart=(lambda pod: restart.get(str(pod.key), 0)) if restart else None,
            whom=whom,
        )

    def _nominations(self, trigger: Pod) -> list[Pod]:
        """Pods of the cluster that are nominated somewhere, count, and hold no room yet in this call."""
        waiting = [pod for pod in self.workspace.snapshot.pending if pod.nominated_node]
        if waiting and self.withdrawn:
            given_up = {*self.withdrawn}
            waiting = [pod for pod in waiting if pod.key not in given_up]
        holds, counts = self.workspace.came, self.plugins.nominated.counts
        return [pod for pod in waiting if not holds(pod.key) and counts(pod, trigger)]

    def _lent(self, pod: Pod) -> IntMatrix | None:
        scheduling_class = self.plugins.class_of(pod)
        source = scheduling_class.source if isinstance(scheduling_class, SchedulingClass) else None
        return None if source is None else source.lifted(slice(None))

    def wanted(self, pod: Pod) -> Wanted:
        """Tell what a pod asks of nodes."""
        scheduling_class = self.plugins.class_of(pod)
        assert isinstance(scheduling_class, SchedulingClass)
        return Wanted(
            id(scheduling_class), scheduling_class.may_fit_after_preemption(), scheduling_class.amounts
        )
