"""Plans for members that count who is elsewhere: spread over nodes, or in company.

What a node takes of them hangs on where the others are by then, so no number of slots per node says it. They
are placed one after another, each where it scores best, in one domain after another; the planner is then
asked about just these places, and says whether that is what the gang wants.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix
from koordcore.allocators.gang.demand import GangDemand, GangPlacement
from koordcore.allocators.gang.planner import place_gang
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import PodDecision
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.gang_input import PlanningInput
from koordcore.scheduling.one_pod import feasible_nodes, place_there
from koordcore.topology.network import NetworkTopology

_MOST_DOMAINS: Final = 16
"""Domains of one layer that are tried, those with most room first."""
_MOST_STEPS: Final = 2048
"""Members that are placed in all tries together, some seconds on thousands of nodes."""

Step: TypeAlias = tuple[Pod, int]
"""A member, and the row of its node."""


class OneAfterAnother:
    """Looks for a plan of one gang.

    Parameters
    ----------
    workspace, plugins
        The state of the call; it is as before where no plan is found.
    tree, inputs, offers
        The network, the members, and how many of each shape every node of the tree takes by itself.
    ask
        Writes the demand over offers per shape and node.
    limits
        Budget and seed of the solver.

    Attributes
    ----------
    reached
        ``(shapes, nodes)``: most members that tries in its smallest domain have put on each node; what it
        offers, where nobody tried.
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
        self._nothing: IntMatrix = np.zeros((len(inputs.classes), len(inputs.rows)), np.int64)
        self._ask, self._limits = ask, limits
        self._left = _MOST_STEPS
        self.reached = offers.copy()
        self._tried = np.zeros(len(inputs.rows), np.bool_)

    def found(self) -> tuple[dict[PodKey, PodDecision], GangPlacement] | None:
        """Bind the members in the first domain that holds enough of them; ``None`` where none does."""
        for depth, rows in self._places():
            mark = self._workspace.checkpoint()
            steps = self._steps(rows)
            self._workspace.rollback(mark)
            offers = self._offered(steps)
            if depth == self._deepest:
                here = rows[self._inputs.rows]
                self.reached[:, here & ~self._tried] = 0
                self._tried |= here
                np.maximum(self.reached, offers, out=self.reached)
            answer = place_gang(self._tree, self._ask(offers), limits=self._limits)
            if isinstance(answer, GangPlacement) and answer.nodes:
                bound = self._bound(steps, answer)
                if bound is not None:
                    return bound, answer
                self._workspace.rollback(mark)
            if self._left <= 0:
                return None
        return None

    def _places(self) -> Iterator[tuple[int, BoolVector]]:
        """Give the nodes among which to try, ``(N,)``, each set once, with the depth of their domain.

        Whoever looks for company stays in the zone, or whatever it is, where the first member went. That one
        goes where it scores best, so each zone is tried for itself.
        """
        seen = set[bytes]()
        for depth, rows in self._domains():
            for some in (rows, *(rows & zone for zone in self._zones if (rows & zone).any())):
                if some.tobytes() not in seen:
                    seen.add(some.tobytes())
                    yield depth, some

    @cached_property
    def _zones(self) -> list[BoolVector]:
        """The nodes that share a value of a label by which members look for company, ``(N,)``."""
        keys = sorted({key for one in self._inputs.classes for key in _company_keys(one.pod)})
        nodes = self._workspace.layout.nodes
        found = []
        for key in keys:
            values = [node.labels.get(key) for node in nodes]
            for value in sorted({one for one in values if one is not None}):
                found.append(np.array([one == value for one in values], np.bool_))
        return found

    def _domains(self) -> Iterator[tuple[int, BoolVector]]:
        """Give the nodes of domains with room for all, ``(N,)``, with the depth: the deepest layers first."""
        tree = self._tree
        number, demand = len(self._inputs.members), self._ask(self._nothing)
        # By amounts and whatever else counts on a node by itself.
        slots = np.stack([one.local_slots(number) for one in self._inputs.classes]).max(axis=0)
        room = tree.sum_up(slots[self._inputs.rows])
        parts = demand.units or demand.quorums or demand.min_roles is not None
        least = 1 if parts else sum(max(0, role.min_available) for role in demand.roles)
        for depth in range(self._deepest, -1, -1):
            domains = [one for one in tree.domains_at(depth) if room[one] >= max(1, least)]
            domains.sort(key=lambda one: (-int(room[one]), tree.names[one]))
            for domain in domains[:_MOST_DOMAINS]:
                rows = np.zeros(len(self._workspace.layout.names), np.bool_)
                rows[self._inputs.rows[tree.ancestors[depth] == domain]] = True
                yield depth, rows

    def _steps(self, rows: BoolVector) -> list[Step]:
        """Place one member after another on some nodes, ``(N,)``; who finds none may once others have."""
        steps: list[Step] = []
        stuck = set[int]()  # shapes that found no place since anybody else came
        left, waiting = [*self._inputs.members], list[Pod]()
        while left:
            for pod in left:
                shape = self._inputs.shape_of[str(pod.key)]
                row = -1 if shape in stuck or self._left <= 0 else self._place(pod, rows)
                if row < 0:
                    stuck.add(shape)
                    waiting.append(pod)
                else:
                    stuck.clear()
                    steps.append((pod, row))
            left, waiting = waiting if len(waiting) < len(left) else [], []
        return steps

    def _place(self, pod: Pod, rows: BoolVector) -> int:
        """Place a member on the best of some nodes, ``(N,)``; gives the row, -1 for none."""
        self._left -= 1
        own = self._plugins.class_of(pod)
        if isinstance(own, Refusal) or own.refuse() is not None:
            return -1
        choice = own.best_of(feasible_nodes(self._plugins, own, pod) & rows)
        if choice.row < 0 or place_there(self._workspace, self._plugins, pod, choice.row, own) is None:
            return -1
        return choice.row

    @property
    def _deepest(self) -> int:
        """The layer above the nodes; the cluster, where there is none."""
        return max(0, len(self._tree.layers) - 1)

    def _offered(self, steps: Sequence[Step]) -> IntMatrix:
        """Offer just the places that were found, ``(shapes, nodes)``."""
        position = {int(row): at for at, row in enumerate(self._inputs.rows.tolist())}
        offers = self._nothing.copy()
        for pod, row in steps:
            offers[self._inputs.shape_of[str(pod.key)], position[row]] += 1
        return offers

    def _bound(self, steps: Sequence[Step], answer: GangPlacement) -> dict[PodKey, PodDecision] | None:
        """Bind the members of a plan in the order in which its places were found."""
        inputs, names = self._inputs, self._workspace.layout.names
        there: dict[tuple[int, str], deque[Pod]] = defaultdict(deque)
        for key, node in answer.nodes.items():
            there[inputs.shape_of[key], node].append(inputs.pod_of[key])
        bound: dict[PodKey, PodDecision] = {}
        for like, row in steps:
            waiting = there[inputs.shape_of[str(like.key)], names[row]]
            if not waiting:
                continue  # the plan leaves one out here
            pod = waiting.popleft()
            decision = place_there(self._workspace, self._plugins, pod, row)
            if decision is None:
                return None
            bound[pod.key] = decision
        return bound


def _company_keys(pod: Pod) -> list[str]:
    """Name the labels by which a pod has to be near others."""
    affinity = None if pod.affinity is None else pod.affinity.pod
    return [] if affinity is None else [term.topology_key for term in affinity.required]
