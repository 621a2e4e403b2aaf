"""What is asked of the planner of evictions: the state of a call as candidates, nodes and members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix
from koordcore._record import record
from koordcore.framework.class_sources import lifted_in
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.sources import Source
from koordcore.framework.workspace import Workspace
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import PreemptionRules
from koordcore.model.reservations import Reservation
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.running import Leaving, amounts_of
from koordcore.preemption.setup import Wanted, make_problem
from koordcore.scheduling.gang_book import GangBook, Minimums
from koordcore.scheduling.network_trees import network_tree
from koordcore.snapshot.following import once


@record(eq=False)
class EvictionQuestions:
    """Writes the questions of one call.

    Parameters
    ----------
    workspace, plugins
        The state of the call.
    rules
        For whom room is made, and how.
    book
        All gangs: at least so many of each stay or none, and nobody leaves for members of his own job.
    withdrawn
        Pods that have given up in this call what was promised to them; the call adds to it.
    """

    workspace: Workspace
    plugins: PluginSet
    rules: PreemptionRules
    book: GangBook
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
        *,
        certain: bool = False,
    ) -> PreemptionProblem:
        """Write one; see :func:`~koordcore.preemption.setup.make_problem`.

        Room of reservations counts on their nodes, for whichever member, as much as they may use together: no
        plan is missed, and who may use it, and that it is not used twice, is for the dry run.

        Parameters
        ----------
        gone
            Victims of the plans that stand.
        certain
            Count only what all members may use.
        """
        workspace, layout = self.workspace, self.workspace.layout
        free = workspace.free.copy()
        for key, row in sorted(gone):
            free[:, row] += amounts_of(layout, workspace.pods_on(row)[key])
        lent = self._lent(pending, certain=certain)
        if lent is not None:
            free += lent
        reserved = [one for one in workspace.snapshot.of(Reservation) if one.active]
        members = [pod for pods, _ in pending.values() for pod in pods]
        places = [
            *((one.pod_key, layout.row_of.get(one.status.node_name)) for one in reserved),
            *((one.key, layout.row_of.get(str(one.node_name))) for one in self.book.running_beside(members)),
        ]
        restart = self.rules.restart_costs
        return make_problem(
            workspace.snapshot,
            trigger,
            pending,
            minimums=Minimums(self.book.records),
            own=frozenset((key, row) for key, row in places if row is not None),
            gone=gone,
            leaving=leaving,
            tree=once(workspace.snapshot, network_tree),
            spec=spec,
            bound=bound,
            wanted={pod.key: self.wanted(pod) for pod in members},
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

    def lends_unequally(self, pending: Mapping[str, tuple[tuple[Pod, ...], int]]) -> bool:
        """Tell whether some members may use room of reservations that others may not."""
        return len(self._sources(pending)) > 1

    def _lent(self, pending: Mapping[str, tuple[tuple[Pod, ...], int]], *, certain: bool) -> IntMatrix | None:
        """Give the room of reservations that counts, shape (R, N)."""
        sources = self._sources(pending)
        if not certain:
            return lifted_in(sources)
        lent = [None if one is None else one.lifted(slice(None)) for one in sources]
        lifted = [one for one in lent if one is not None]
        return np.minimum.reduce(lifted) if len(lifted) == len(lent) else None

    def _sources(self, pending: Mapping[str, tuple[tuple[Pod, ...], int]]) -> list[Source | None]:
        """List where members may draw from beside what is free; ``None`` for nowhere; those alike once."""
        found: dict[object, Source | None] = {}
        members = (pod for pods, _ in pending.values() for pod in pods)
        for one in dict.fromkeys(map(self.plugins.class_of, members)):
            source = one.source if isinstance(one, SchedulingClass) else None
            found.setdefault(None if source is None else source.gone, source)
        return list(found.values())

    def hopeless(self, pending: Mapping[str, tuple[tuple[Pod, ...], int]]) -> bool:
        """Tell whether fewer members than are needed fit nodes on which nobody runs."""
        offers = self.workspace.layout.offers
        known: dict[int, bool] = {}

        def fits(pod: Pod) -> bool:
            scheduling_class = self.plugins.class_of(pod)
            assert isinstance(scheduling_class, SchedulingClass)
            kind = id(scheduling_class)
            if kind not in known:
                amounts = scheduling_class.amounts
                asked = np.flatnonzero(amounts > 0).tolist()
                known[kind] = offers.suffice({resource: int(amounts[resource]) for resource in asked})
            return known[kind]

        return any(sum(map(fits, pods)) < least for pods, least in pending.values())

    def wanted(self, pod: Pod) -> Wanted:
        """Tell what a pod asks of nodes."""
        scheduling_class = self.plugins.class_of(pod)
        assert isinstance(scheduling_class, SchedulingClass)
        return Wanted(
            id(scheduling_class), scheduling_class.may_fit_after_preemption(), scheduling_class.amounts
        )


def unresolvable(scheduling_class: SchedulingClass | Refusal) -> bool:
    """Tell that a pod is refused whoever leaves, and whatever the node."""
    if isinstance(scheduling_class, Refusal):
        return True
    refused = scheduling_class.refuse()
    return refused is not None and not refused[1].resolvable
