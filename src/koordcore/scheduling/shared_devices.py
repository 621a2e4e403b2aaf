"""Plans for members that take devices which several nodes reach.

What one member takes on its node may be lacking on that of another, so that no number of slots per node says
which nodes go together. The choices of nodes are gone through in order of the scores; plugins say of every
beginning of one whether it leaves enough for all. In the end a plan is found, or it is proven that there is
none, as long as there are not too many choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from koordcore._arrays import IntMatrix
from koordcore.allocators.gang.demand import GangDemand, GangPlacement
from koordcore.allocators.gang.planner import place_gang
from koordcore.framework.plugin import Plugin
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import PodDecision
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.gang_binding import bind_plan
from koordcore.scheduling.gang_input import PlanningInput
from koordcore.topology.network import NetworkTopology

_MOST_STEPS: Final = 1000
"""Beginnings of plans that are looked at."""
_MOST_MEMBERS: Final = 64
"""Members of a gang for which it is tried."""

Bindings: TypeAlias = tuple[dict[PodKey, PodDecision], GangPlacement]
"""The members of a plan, bound, and the plan."""


class SharedDevices:
    """Looks for a plan of one gang.

    Parameters
    ----------
    workspace, plugins
        The state of the call; it is as before where no plan is found.
    tree, inputs, offers
        The network, the members, and how many of each shape every node of the tree takes by itself; of those
        that look for company it is asked again what nodes have for them.
    ask
        Writes the demand over offers per shape and node.
    limits
        Budget and seed of the solver.

    Attributes
    ----------
    exhausted
        All choices of nodes were looked at, so that there is no plan where none was found.
    """

    def __init__(
        self,
        workspace: Workspace,
        plugins: PluginSet,
        tree: NetworkTopology,
        inputs: PlanningInput,
        offers: IntMatrix,
        ask: Callable[[IntMatrix], GangDemand],
        limits: Limits,
    ) -> None:
        self._workspace, self._plugins = workspace, plugins
        self._tree, self._inputs = tree, inputs
        offers = self._offers = np.stack(
            [
                one.local_slots(len(inputs.members))[inputs.rows] if one.needs_company else slots
                for one, slots in zip(inputs.classes, offers, strict=True)
            ]
        )
        self._ask, self._limits = ask, limits
        self._demand = ask(offers)
        own = plugins.deciding(inputs.members)
        self._choosing = [one for one in own if type(one).on_nodes is not Plugin.on_nodes]
        self._left = _MOST_STEPS
        self._doubtful = False
        self.exhausted = False
        placed = {member.key for member in self._demand.members}
        able = (offers > 0).sum(axis=1)
        # Who has the fewest nodes comes first; members of one shape stand together.
        self._members = sorted(
            (pod for pod in inputs.members if str(pod.key) in placed),
            key=lambda pod: (int(able[self._shape(pod)]), self._shape(pod)),
        )
        self._order = [
            sorted(
                np.flatnonzero(offers[shape] > 0).tolist(),
                key=lambda at: (-int(inputs.scores[shape, at]), at),
            )
            for shape in range(len(offers))
        ]
        self._counts: IntMatrix = np.zeros_like(offers)
        self._used: IntMatrix = np.zeros_like(self._demand.free)

    def _shape(self, pod: Pod) -> int:
        return self._inputs.shape_of[str(pod.key)]

    def concerned(self) -> bool:
        """Tell whether a plugin chooses for members on several nodes, or some share what these reach."""
        if not self._choosing or len(self._members) > _MOST_MEMBERS:
            return False
        if any(one.source is not None for one in self._inputs.classes):
            return False
        firsts = [
            (pod, int(self._inputs.rows[order[0]]))
            for pod in self._members
            if (order := self._order[self._shape(pod)])
        ]
        if self._inputs.ties is None:
            return True
        return any(one.on_nodes(firsts, whole=True) is not None for one in self._choosing)

    def found(self) -> Bindings | None:
        """Bind as many members as can be; ``None`` where no plan was found."""
        for spared in range(len(self._members) - self._demand.least + 1):
            plan = self._extend([], spared)
            if plan is not None:
                return plan
        self.exhausted = self._left > 0 and not self._doubtful
        return None

    def _extend(self, steps: list[tuple[Pod, int]], spared: int) -> Bindings | None:
        """Give the members behind those with a place theirs, and leave just so many out."""
        number = len(steps)
        if number == len(self._members):
            # Whoever is left out at the end was not asked about.
            goes = not spared and (not steps or steps[-1][1] >= 0 or self._goes(steps))
            return self._bound() if goes else None
        pod = self._members[number]
        shape = self._shape(pod)
        order = self._order[shape]
        # Members of one shape are told apart by nothing: each goes no further forward than the one before.
        start = 0
        if number and self._shape(steps[-1][0]) == shape:
            start = len(order) if steps[-1][1] < 0 else order.index(steps[-1][1])
        for at in order[start:]:
            if self._left <= 0:
                return None
            if not self._takes(shape, at):
                continue
            self._put(shape, at, 1)
            steps.append((pod, at))
            plan = self._extend(steps, spared) if self._goes(steps) else None
            steps.pop()
            self._put(shape, at, -1)
            if plan is not None:
                return plan
        if not spared:
            return None
        steps.append((pod, -1))
        plan = self._extend(steps, spared - 1)
        steps.pop()
        return plan

    def _takes(self, shape: int, at: int) -> bool:
        if self._counts[shape, at] >= self._offers[shape, at]:
            return False
        if not self._used.size:
            return True
        request = self._demand.shapes[shape].request[: len(self._used)]
        return not ((self._used[:, at] + request > self._demand.free[:, at]) & (request > 0)).any()

    def _put(self, shape: int, at: int, sign: int) -> None:
        self._counts[shape, at] += sign
        if self._used.size:
            self._used[:, at] += sign * self._demand.shapes[shape].request[: len(self._used)]

    def _goes(self, steps: Sequence[tuple[Pod, int]]) -> bool:
        """Tell whether there is enough for all who have a place, as far as plugins know."""
        self._left -= 1
        rows = self._inputs.rows
        members = [(pod, int(rows[at])) for pod, at in steps if at >= 0]
        whole = len(steps) == len(self._members)
        known = (one.on_nodes(members, whole=whole) for one in self._choosing)
        return all(one is None or len(one) for one in known)

    def _bound(self) -> Bindings | None:
        """Bind a plan on just these places."""
        self._left -= 1
        answer = place_gang(self._tree, self._ask(self._counts.copy()), limits=self._limits)
        if not isinstance(answer, GangPlacement) or not answer.nodes:
            # A budget that ran out says nothing of these places.
            self._doubtful |= isinstance(answer, GangPlacement) or not answer.certificate.infeasible
            return None
        mark = self._workspace.checkpoint()
        bound = bind_plan(self._workspace, self._plugins, self._inputs, answer.nodes)
        if isinstance(bound, dict):
            return bound, answer
        self._workspace.rollback(mark)
        self._doubtful = True  # something else is in the way, of which this search knows nothing
        return None
