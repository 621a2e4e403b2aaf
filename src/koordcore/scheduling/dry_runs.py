"""Plans of evictions tried for real: victims off, members bound as pods of their own, everything put back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import chain
from typing import TypeAlias

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._record import record
from koordcore.framework.evaluator import Refusal
from koordcore.framework.extended_resources import asks_by_claims, served_by_classes
from koordcore.framework.nominated import assume_nominated, forget_nominated
from koordcore.framework.plugin import Plugin
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import HeldClaim
from koordcore.model.decisions import Unschedulable
from koordcore.model.pods import Pod, PodKey
from koordcore.preemption.moves import movers
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.problem import Conflict, Pool, PreemptionProblem
from koordcore.preemption.running import Leaving, running_on
from koordcore.preemption.written import deal_members
from koordcore.scheduling.eviction_budget import EvictionBudget
from koordcore.scheduling.freeing import Freeing, key_of
from koordcore.scheduling.gang_binding import bind_plan
from koordcore.scheduling.gang_input import Denied, planning_input_of
from koordcore.scheduling.gang_roles import counts_beyond_amounts
from koordcore.scheduling.group_plans import flat_tree
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.promised_claims import promised_claims
from koordcore.scheduling.reset import unbound

Coming: TypeAlias = tuple[Pod, int, int]
"""A pod that is to be bound, its shape, and the row of its node."""


def leaving_of(problem: PreemptionProblem, chosen: BoolVector) -> list[Leaving]:
    """Name the chosen candidates, with their nodes."""
    ones = np.flatnonzero(chosen)
    keys, rows = problem.candidates.keys, problem.candidates.node[ones].tolist()
    return [(key_of(keys[one]), row) for one, row in zip(ones.tolist(), rows, strict=True)]


@record(eq=False)
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
        limiting = (one for one, setting in plugins.everyone if setting.filters)
        self._limiting = [one for one in limiting if type(one).budget is not Plugin.budget]
        plain = (held for claim in claims for held in claim.members if self._is_plain(held))
        self._plain = frozenset(held.key for held in plain)
        """Pods of standing plans who hold on their nodes all that they would get there."""
        self._open = False
        self.budgets = self._budgets()
        """What plugins limit, as it stands before any dry run."""

    def _is_plain(self, held: Pod) -> bool:
        """Tell whether only the amounts of a pod count: no cards, CPUs, room lent to it, or neighbours."""
        own = self._plugins.class_of(held)
        if isinstance(own, Refusal) or own.source is not None:
            return False
        return not (own.counts_beyond_amounts or own.looks_elsewhere)

    # -- trying ----------------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Stay where all dry runs of the job begin: without those who leave anyhow or for earlier plans.

        What earlier plans promised is taken for real, with cards and CPUs, on nodes as they are. Each dry run
        within goes on from there, instead of doing all this for itself.
        """
        if self._open:
            yield
            return
        workspace = self._workspace
        mark = workspace.checkpoint()
        row_of = workspace.layout.row_of
        anyhow = [(pod.key, row_of[str(pod.node_name)]) for pod in self.leaving]
        self._leave(
            [*self._earlier(), *anyhow], frozenset().union(*(claim.charged for claim in self._claims))
        )
        with self._plugins.nominated.taken():
            members = [one for claim in self._claims for one in claim.members if one.key not in self._plain]
            if members:
                with self._plugins.nominated.set_aside():
                    for held in members:
                        self._take(held)
            self._open = True
            try:
                yield
            finally:
                self._open = False
                workspace.rollback(mark)

    @contextmanager
    def without(self, victims: Iterable[Leaving], charged: frozenset[PodKey] = frozenset()) -> Iterator[None]:
        """Take pods off their nodes, who leaves anyhow and for earlier plans too; put all back in the end.

        Parameters
        ----------
        charged
            Those of the victims that their quotas go on counting.
        """
        with self.opened():
            mark = self._workspace.checkpoint()
            self._leave(victims, charged)
            try:
                yield
            finally:
                self._workspace.rollback(mark)

    def promised(
        self, nominations: Mapping[str, str], victims: Iterable[Leaving]
    ) -> Mapping[PodKey, tuple[HeldClaim, ...]]:
        """Give what the claims of members will be allocated once the victims of a plan have left."""
        served = served_by_classes(self._workspace.snapshot)
        if not any(asks_by_claims(self._members[key], served) for key in nominations):
            return {}
        row_of = self._workspace.layout.row_of
        members = [(self._members[key], row_of[node]) for key, node in nominations.items()]
        with self.without(victims):
            return promised_claims(self._workspace, self._plugins, members)

    def _earlier(self) -> frozenset[Leaving]:
        """Give who leaves by plans that stand."""
        return frozenset(one for claim in self._claims for one in claim.victims)

    def _leave(self, pods: Iterable[Leaving], charged: frozenset[PodKey]) -> None:
        for key, row in sorted({*pods}):
            if key in self._workspace.pods_on(row):
                gone = self._workspace.evict(key, row)
                self._plugins.removed(gone, row)
                for plugin in self._limiting:
                    plugin.evicted(gone, charged=key in charged)

    def _take(self, held: Pod) -> None:
        """Put one to whom room is promised there like any other; where that fails it counts as before."""
        workspace, plugins = self._workspace, self._plugins
        forget_nominated(workspace, plugins, held)
        there = workspace.layout.row_of[str(held.node_name)]
        if place_there(workspace, plugins, held.at(None), there, tried=True) is None:
            assume_nominated(workspace, plugins, held.at(None), str(held.node_name), held.held_claims)

    def try_plan(
        self, problem: PreemptionProblem, counts: IntMatrix, chosen: BoolVector, moves: IntVector
    ) -> Conflict | None:
        """Bind every member where the plan has it, without the victims, and then whoever moves."""
        victims = leaving_of(problem, chosen)
        coming = self._coming(problem, counts, moves)
        moving = {key_of(problem.candidates.keys[one]) for one in movers(moves).tolist()}
        with self.without(victims, self.charged(victims) - moving):
            mark = self._workspace.checkpoint()
            conflict = self._in_turn(problem, coming, chosen)
            if conflict is not None and conflict.node >= 0 and not moving:
                self._workspace.rollback(mark)
                conflict = self._together(problem, coming, conflict)
        if conflict is None or conflict.node < 0 or moving:
            return conflict
        left, some = conflict.counts.tolist(), []
        for pod, shape, row in coming:
            if row == conflict.node and left[shape]:
                left[shape] -= 1
                some.append(pod)
        found = self._freeing.explained(problem, conflict, some)
        if found.ways is not None or not (found.elsewhere and self._compete(coming)):
            return found
        # Those on other nodes may have taken what was lacking here.
        return attrs.evolve(found, beside=_beside(problem, coming, found.node))

    def _in_turn(
        self, problem: PreemptionProblem, coming: Sequence[Coming], chosen: BoolVector
    ) -> Conflict | None:
        """Bind one after the other; or say who did not fit beside whom.

        Where it hangs on the others whether a node takes one, its turn may come after theirs.
        """
        taken = np.zeros((len(problem.all_shapes), len(problem.nodes)), dtype=np.int64)
        budgets = self._budgets()
        left, waiting = [*coming], list[Coming]()
        while left:
            for pod, shape, row in left:
                taken[shape, row] += 1
                scheduling_class = self._plugins.class_of(pod)
                if isinstance(scheduling_class, Refusal) or scheduling_class.refuse() is not None:
                    # No node is at fault: somebody else has to leave, such as another pod of the quota.
                    nowhere = np.zeros(len(problem.all_shapes), dtype=np.int64)
                    if shape >= len(problem.shapes):
                        nowhere[shape] = taken[shape].sum()
                    return Conflict(-1, nowhere, chosen | ~self._giving(problem, budgets))
                moves = shape >= len(problem.shapes)
                with self._plugins.nominated.for_others() if moves else nullcontext():
                    placed = place_there(self._workspace, self._plugins, pod, row, tried=True)
                if placed is not None and not (placed.on_loan and moves):
                    continue
                elsewhere = scheduling_class.looks_elsewhere
                if placed is not None or not elsewhere or len(waiting) + 1 == len(left):
                    unnamed = scheduling_class.heeds_unnamed
                    return Conflict(row, taken[:, row], chosen, elsewhere, unnamed=unnamed)
                taken[shape, row] -= 1
                waiting.append((pod, shape, row))
            left, waiting = waiting, []
        return None

    def _together(
        self, problem: PreemptionProblem, coming: Sequence[Coming], conflict: Conflict
    ) -> Conflict | None:
        """Bind the members of each node at once, in whatever order, with whichever cards serve them all."""
        pods = [pod for pod, _, _ in coming]
        beside = sum(row == conflict.node or conflict.elsewhere for _, _, row in coming)
        if beside < 2 or not any(counts_beyond_amounts(self._plugins, [pod]) for pod in pods):
            return conflict
        inputs = planning_input_of(self._workspace, self._plugins, pods, flat_tree(self._workspace))
        if isinstance(inputs, Unschedulable) or inputs.refused:
            return conflict
        names = self._workspace.layout.names
        nodes = {str(pod.key): names[row] for pod, _, row in coming}
        bound = bind_plan(self._workspace, self._plugins, inputs, nodes)
        if isinstance(bound, dict):
            return None
        if isinstance(bound, Denied):
            return conflict
        (first, *_), shape_of = bound, {str(pod.key): shape for pod, shape, _ in coming}
        counts = np.zeros(len(problem.all_shapes), dtype=np.int64)
        for key, own in inputs.shape_of.items():
            counts[shape_of[key]] = first.counts[own]
        row = int(inputs.rows[first.node])
        return attrs.evolve(conflict, node=row, counts=counts, elsewhere=conflict.elsewhere or first.doubtful)

    def _compete(self, coming: Sequence[Coming]) -> bool:
        """Tell whether a plugin chooses for pods on several nodes: one may take what another needs."""
        members = [(pod, row) for pod, _, row in coming]
        own = self._plugins.deciding(pod for pod, _ in members)
        choosing = (one for one in own if type(one).on_nodes is not Plugin.on_nodes)
        return any(one.on_nodes(members) is not None for one in choosing)

    @cached_property
    def _freeing(self) -> Freeing:
        return Freeing(self._workspace, self._plugins, self._members, lambda: self.without(()))

    def _coming(self, problem: PreemptionProblem, counts: IntMatrix, moves: IntVector) -> list[Coming]:
        """Members, then pods that move."""
        nodes, _ = deal_members(problem, counts)
        shape_of = {member.key: member.shape for member in problem.members}
        row_of = self._workspace.layout.row_of
        coming = [(self._members[key], shape_of[key], row_of[node]) for key, node in nodes.items()]
        for one in movers(moves).tolist():
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
            return scheduling_class.feasible()

    def emptied(self, problem: PreemptionProblem, pod: Pod, rows: IntVector) -> BoolVector:
        """Tell which of some nodes may take a pod once everybody has left them who may, shape (n,)."""
        scheduling_class = self._plugins.class_of(pod)
        if isinstance(scheduling_class, Refusal):
            return np.zeros(len(rows), dtype=np.bool_)
        chosen = problem.reaching.copy()
        for row in rows.tolist():
            chosen[problem.on_node(row)] = True
        with self.without(leaving_of(problem, chosen)):
            return scheduling_class.local_fits(rows)

    # -- limits over the whole cluster -----------------------------------------------------------------

    def _budgets(self) -> list[EvictionBudget]:
        """Give what plugins limit now."""
        found = (one.budget() for one in self._limiting)
        return [one for one in found if one is not None]

    def pools(self, problem: PreemptionProblem, *, widest: bool = False) -> tuple[Pool, ...]:
        """What the limits still give, and what victims give back to them.

        Parameters
        ----------
        problem
            The question, with the candidates.
        widest
            By the limits that hold once everybody has left who may; by those of now otherwise.
        """
        if not self.budgets:
            return ()
        with self.without(()):
            found = (one.pools(problem, self._members, widest=widest) for one in self._budgets())
            return tuple(chain.from_iterable(found))

    def charged(self, victims: Collection[Leaving]) -> frozenset[PodKey]:
        """Give the victims that go on counting: nobody gets more because they leave."""
        budgets = self.budgets if victims else []
        found = (self._workspace.pods_on(row).get(key) for key, row in victims)
        leaving = [pod for pod in found if pod is not None]
        members = list(self._members.values())
        return frozenset[PodKey]().union(*(one.charged(leaving, members) for one in budgets))

    def entitled(self, members: Sequence[Pod]) -> bool:
        """Tell whether some pods stay within what they are promised, once earlier victims have gone."""
        with self.without(()):
            return any(one.entitled(members) for one in self._budgets())

    def givers(self, members: Sequence[Pod]) -> frozenset[str] | None:
        """Name the limits below which others have to give; ``None`` where some pods may not reclaim."""
        with self.without(()):
            found = (one.givers(members) for one in self._budgets())
            return next((one for one in found if one is not None), None)

    def lent(
        self, members: Sequence[Pod], priority: int, below: frozenset[str] | None
    ) -> tuple[BoolVector, BoolVector]:
        """Tell which pods others have made promises to, and who of them runs beyond these."""
        running, row_of = running_on(self._workspace.snapshot), self._workspace.layout.row_of
        going = [running.pods[one] for one in np.flatnonzero(running.leaving).tolist()]
        # Nobody who has to go uses what is promised, whoever may count on his room.
        with self.without((pod.key, row_of[str(pod.node_name)]) for pod in going):
            found = [one.lent(members, priority, below, self._earlier()) for one in self._budgets()]
            return found[0]

    def borrowers(self, gone: Mapping[PodKey, Pod]) -> tuple[str, ...]:
        """Name those that give back what they have borrowed when some pods leave."""
        return tuple(chain.from_iterable(one.borrowers(gone) for one in self.budgets))

    def _giving(self, problem: PreemptionProblem, budgets: Sequence[EvictionBudget]) -> BoolVector:
        """Tell who may leave for the sake of the members' limits, shape (V,)."""
        giving = np.ones(len(problem.candidates), dtype=np.bool_)
        for one in budgets:
            giving &= one.giving(problem, list(self._members.values()))
        return giving


def _beside(
    problem: PreemptionProblem, coming: Sequence[Coming], node: int
) -> tuple[tuple[int, IntVector], ...]:
    """Count the members of each shape on every node but one, by row."""
    counts: dict[int, IntVector] = {}
    for _, shape, row in coming:
        if row != node:
            some = counts.setdefault(row, np.zeros(len(problem.all_shapes), dtype=np.int64))
            some[shape] += 1
    return tuple(sorted(counts.items(), key=lambda one: one[0]))


def with_present(problem: PreemptionProblem, now: BoolVector, *, elsewhere: bool) -> PreemptionProblem:
    """Say where a single member would fit without any eviction, and whether that hangs on other nodes."""
    (shape,) = problem.shapes
    return attrs.evolve(problem, shapes=(attrs.evolve(shape, now=now, elsewhere=elsewhere),))


def with_offers(problem: PreemptionProblem, runs: DryRuns, pods: Mapping[str, Pod]) -> PreemptionProblem:
    """Ask the plugins themselves what the nodes would take once everybody had left."""
    by_shape = {member.shape: member.key for member in problem.members}
    asked = [pods[by_shape[number]] for number in range(len(problem.shapes))]
    shapes = runs.counted(problem, problem.shapes, asked, len(problem.members))
    return attrs.evolve(problem, shapes=shapes)
