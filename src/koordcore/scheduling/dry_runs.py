"""Plans of evictions tried for real: victims off, members bound as pods of their own, everything put back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.framework.nominated import assume_nominated, forget_nominated
from koordcore.framework.plugin import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPod
from koordcore.model.resources import Resources
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.problem import Conflict, Pool, PreemptionProblem
from koordcore.preemption.running import Leaving
from koordcore.preemption.written import deal_members
from koordcore.protocol.quota import quota_pod_of
from koordcore.quota.admission import limit_of
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.lenders import chain_of, staying_charged
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.plugins.quota import QuotaPlugin
from koordcore.scheduling.quota_pools import Returns, quota_pools
from koordcore.scheduling.reset import unbound

__all__ = ["Claim", "DryRuns", "key_of", "leaving_of"]


def leaving_of(problem: PreemptionProblem, chosen: BoolVector) -> list[Leaving]:
    """Name the chosen candidates, with their nodes."""
    ones = np.flatnonzero(chosen)
    keys, rows = problem.candidates.keys, problem.candidates.node[ones].tolist()
    return [(key_of(keys[one]), row) for one, row in zip(ones.tolist(), rows, strict=True)]


def key_of(text: str) -> PodKey:
    """Read ``namespace/name``."""
    return PodKey(*text.split("/", 1))


@attrs.frozen(eq=False)
class Claim:
    """A plan that stands: its members hold their room until the victims have gone.

    Parameters
    ----------
    members
        With their nodes set.
    victims
        Who leaves.
    charged
        Victims that their quotas go on counting, as far as this plan is concerned.
    """

    members: tuple[Pod, ...]
    victims: tuple[Leaving, ...]
    charged: frozenset[PodKey]


class DryRuns:
    """Dry runs for the members of one job.

    Parameters
    ----------
    workspace, plugins
        The state of the call.
    claims
        Plans of the call that stand.
    members
        Pods of the job, by ``namespace/name``.
    leaving
        Pods that leave anyhow and whose room the job may count on.
    """

    def __init__(
        self,
        workspace: Workspace,
        plugins: PluginSet,
        claims: Sequence[Claim],
        members: Mapping[str, Pod],
        leaving: Sequence[Pod],
    ) -> None:
        self._workspace, self._plugins = workspace, plugins
        self._claims, self._members = claims, members
        self.leaving = leaving
        quotas = (
            one for one, setting in plugins.everyone if isinstance(one, QuotaPlugin) and setting.filters
        )
        self._quota = next(quotas, None)

    # -- trying ----------------------------------------------------------------------------------------

    @contextmanager
    def without(self, victims: Iterable[Leaving], charged: frozenset[PodKey] = frozenset()) -> Iterator[None]:
        """Take pods off their nodes, who leaves anyhow and for earlier plans too; put all back in the end.

        Parameters
        ----------
        charged
            Those of the victims that their quotas go on counting.
        """
        workspace = self._workspace
        mark = workspace.checkpoint()
        row_of = workspace.layout.row_of
        earlier = [one for claim in self._claims for one in claim.victims]
        anyhow = [(pod.key, row_of[str(pod.node_name)]) for pod in self.leaving]
        staying = charged.union(*(claim.charged for claim in self._claims))
        for key, row in sorted({*earlier, *anyhow, *victims}):
            if key in workspace.pods_on(row):
                gone = workspace.evict(key, row)
                self._plugins.removed(gone, row)
                if self._quota is not None:
                    self._quota.evicted(gone, charged=key in staying)
        for claim in self._claims:
            # What earlier plans promised is taken for real, with cards and CPUs, on the nodes as they are.
            for held in claim.members:
                row = row_of[str(held.node_name)]
                forget_nominated(workspace, self._plugins, held)
                if place_there(workspace, self._plugins, held.at(None), row) is None:
                    assume_nominated(workspace, self._plugins, held.at(None), str(held.node_name))
        try:
            yield
        finally:
            workspace.rollback(mark)

    def try_plan(
        self, problem: PreemptionProblem, counts: IntMatrix, chosen: BoolVector, moves: IntVector
    ) -> Conflict | None:
        """Bind every member where the plan has it, without the victims, and then whoever moves."""
        victims = leaving_of(problem, chosen)
        ledger, coming = self.ledger, self._coming(problem, counts, moves)
        with self.without(victims, self.charged(victims)):
            taken = np.zeros((len(problem.all_shapes), len(problem.nodes)), dtype=np.int64)
            for pod, shape, row in coming:
                taken[shape, row] += 1
                scheduling_class = self._plugins.class_of(pod)
                if isinstance(scheduling_class, Refusal) or scheduling_class.refuse() is not None:
                    # No node is at fault: somebody else has to leave, such as another pod of the quota.
                    nowhere = np.zeros(len(problem.all_shapes), dtype=np.int64)
                    if shape >= len(problem.shapes):
                        nowhere[shape] = taken[shape].sum()
                    return Conflict(-1, nowhere, chosen | ~self._giving(problem, ledger))
                placed = place_there(self._workspace, self._plugins, pod, row)
                if placed is None or (placed.reservation and shape >= len(problem.shapes)):
                    return Conflict(row, taken[:, row], chosen, elsewhere=scheduling_class.looks_elsewhere)
        return None

    def _coming(
        self, problem: PreemptionProblem, counts: IntMatrix, moves: IntVector
    ) -> list[tuple[Pod, int, int]]:
        """Members, then pods that move, each with its shape and row."""
        nodes, _ = deal_members(problem, counts)
        shape_of = {member.key: member.shape for member in problem.members}
        row_of = self._workspace.layout.row_of
        coming = [(self._members[key], shape_of[key], row_of[node]) for key, node in nodes.items()]
        for one in np.flatnonzero(moves >= 0).tolist():
            key = key_of(problem.candidates.keys[one])
            pod = self._workspace.pods_on(int(problem.candidates.node[one]))[key]
            coming.append((unbound(pod), int(problem.shape_of_kind[one]), int(moves[one])))
        return coming

    def counted(
        self, problem: PreemptionProblem, shapes: Sequence[MemberShape], pods: Sequence[Pod], most: int
    ) -> tuple[MemberShape, ...]:
        """Add to each shape, of which a pod is given, how many the emptied nodes take.

        Amounts are the planner's own business; this is about cards, CPUs and whatever else counts by node.
        """
        classes = [self._plugins.class_of(pod) for pod in pods]
        if not any(isinstance(one, SchedulingClass) and one.counts_beyond_amounts for one in classes):
            return tuple(shapes)
        with self.without(leaving_of(problem, np.ones(len(problem.candidates), dtype=np.bool_))):
            return tuple(
                attrs.evolve(shape, most=one.local_slots(most)) if isinstance(one, SchedulingClass) else shape
                for shape, one in zip(shapes, classes, strict=True)
            )

    def fits_now(self, pod: Pod) -> BoolVector:
        """Tell which nodes take a pod once those have gone who leave anyhow, shape (N,)."""
        scheduling_class = self._plugins.class_of(pod)
        if isinstance(scheduling_class, Refusal):
            return np.zeros(len(self._workspace.layout.names), dtype=np.bool_)
        with self.without(()):
            return scheduling_class.feasible().copy()

    def emptied(self, problem: PreemptionProblem, pod: Pod, rows: IntVector) -> BoolVector:
        """Tell which of some nodes may take a pod once everybody has left them who may, shape (n,)."""
        scheduling_class = self._plugins.class_of(pod)
        if isinstance(scheduling_class, Refusal):
            return np.zeros(len(rows), dtype=np.bool_)
        chosen = np.zeros(len(problem.candidates), dtype=np.bool_)
        for row in rows.tolist():
            chosen[problem.on_node(row)] = True
        with self.without(leaving_of(problem, chosen)):
            return scheduling_class.local_fits(rows)

    # -- quotas ----------------------------------------------------------------------------------------

    @property
    def ledger(self) -> QuotaLedger | None:
        """The quotas as they stand now; None where there are none."""
        governed = bool(self._workspace.snapshot.of(ElasticQuota))
        return self._quota.ledger if governed and self._quota is not None else None

    def pools(self, problem: PreemptionProblem, *, widest: bool = False) -> tuple[Pool, ...]:
        """What the quotas still give, and what victims give back to them.

        Parameters
        ----------
        widest
            By the limits that hold once everybody has left who may; evictions from the built-in quotas, and
            of use that is guaranteed, raise them. By those of now otherwise.
        """
        if self.ledger is None:
            return ()
        with self.without(()):
            ledger = raised = self.ledger
            if widest:
                raised = Returns(ledger, problem, self._workspace.snapshot, self._asked).all_gone()
            limits = partial(_limit_in, raised)
            return quota_pools(ledger, problem, self._members, self._workspace.snapshot, limits)

    @property
    def _asked(self) -> list[QuotaPod]:
        return [quota_pod_of(pod) for pod in self._members.values()]

    def charged(self, victims: Collection[Leaving]) -> frozenset[PodKey]:
        """Give the victims within a guaranteed min: nobody may borrow more because they leave."""
        ledger = self.ledger
        if ledger is None or not victims:
            return frozenset()
        found = (self._workspace.pods_on(row).get(key) for key, row in victims)
        leaving = [quota_pod_of(pod) for pod in found if pod is not None]
        return staying_charged(ledger, leaving, *_asking(ledger, self._members.values()))

    def _giving(self, problem: PreemptionProblem, ledger: QuotaLedger | None) -> BoolVector:
        """Tell who may leave for the sake of the members' quotas, shape (V,)."""
        if ledger is None:
            return np.ones(len(problem.candidates), dtype=np.bool_)
        returns = Returns(ledger, problem, self._workspace.snapshot, self._asked)
        return returns.giving & ~returns.built_in


def _limit_in(raised: QuotaLedger, ledger: QuotaLedger, quota: str) -> Resources:
    return limit_of(raised, quota)


def _asking(ledger: QuotaLedger, members: Collection[Pod]) -> tuple[set[tuple[str, ...]], list[str]]:
    """Chains of the members' quotas, and the resources that they ask for."""
    asked = [quota_pod_of(pod) for pod in members]
    wanted = sorted({name for pod in asked for name in pod.request})
    return {chain_of(ledger, pod) for pod in asked}, wanted
