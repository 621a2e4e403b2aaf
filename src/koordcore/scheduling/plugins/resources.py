"""Resource plugins: NodeResourcesFit and BalancedAllocation.

Filter and formulas as in the Kubernetes 1.35 scheduler libraries and Koordinator's plugins of those names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from koordcore._arrays import (
    AMOUNT_LIMIT,
    FIRST_RESOURCES,
    PODS_ROW,
    BoolVector,
    FloatMatrix,
    IntMatrix,
    IntVector,
    Rows,
    as_rows,
)
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.hints import ROOM
from koordcore.framework.lacks import Lack
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import FREE, REQUESTED, SCORED, SPARE, NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.plugin_args import BalancedArgs, FitArgs, ScoringStrategy
from koordcore.model.pods import Pod
from koordcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, counted
from koordcore.scoring.resources import (
    HALF,
    Capacity,
    least_percent,
    most_percent,
    ratio_table,
    score_balanced,
    score_ratio,
    weighted_mean,
)
from koordcore.snapshot.following import ChangeReader

OFFERS = frozenset(("allocatable", "annotations"))
"""Fields of a node that say what it offers."""
NATIVE = (CPU, MEMORY, EPHEMERAL_STORAGE)


def _ignored(args: FitArgs, name: str) -> bool:
    return name not in NATIVE and (name in args.ignored or name.split("/", 1)[0] in args.ignored_groups)


def _looked_at(
    resources: Iterable[tuple[str, int]], requests: Mapping[str, int]
) -> tuple[tuple[str, int], ...]:
    """Leave out, with its weight, a scalar that the pod does not ask for."""
    return tuple([one for one in resources if one[0] in NATIVE or requests.get(one[0], 0) > 0])


def amounts_column(requests: Mapping[str, int], names: Sequence[str]) -> IntMatrix:
    """Give a pod's amounts of some resources as a column: ``(K, 1)``."""
    return np.array([min(requests.get(name, 0), AMOUNT_LIMIT) for name in names], np.int64)[:, None]


class FreeFloor:
    """A lower bound of what is free on every node, so that most pods need not compare them all."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._floor: list[int] = workspace.free.min(axis=1, initial=AMOUNT_LIMIT).tolist()
        self._changes = ChangeReader(workspace.touched)

    def suffices(self, asked: Iterable[tuple[str, int, int]]) -> bool:
        """Tell whether every node has room, by ``(name, resource, amount)``."""
        workspace = self._workspace
        came = self._changes.unread()
        if len(came) == 1:
            self._floor = list(map(min, self._floor, workspace.free[:, came[0]].tolist()))
        elif len(came):
            least = workspace.free[:, np.array(came, np.int64)].min(axis=1)
            self._floor = list(map(min, self._floor, least.tolist()))
        for _, resource, amount in asked:
            if self._floor[resource] < amount:
                self._floor[resource] = int(workspace.free[resource].min(initial=AMOUNT_LIMIT))
                if self._floor[resource] < amount:
                    return False
        return True


class FitColumns:
    """Where the resources stand that some pods ask for; the same for all who name the same resources.

    Attributes
    ----------
    present
        Name and row of those that some node has.
    absent
        Names of the others.
    scored
        What the score looks at.
    """

    def __init__(self, workspace: Workspace, names: Sequence[str], args: FitArgs) -> None:
        index = workspace.layout.index
        asked = [name for name in names if name != PODS and counted(name) and not _ignored(args, name)]
        self.present = [(name, index[name]) for name in asked if name in index]
        self.absent = [name for name in asked if name not in index]
        looked_at = _looked_at(args.resources, dict.fromkeys(names, 1))
        self.scored = ScoredResources(workspace, looked_at, args)


class FitEvaluator(Evaluator):
    """Filter and score of one pod class."""

    scope = Scope.NODE
    amounts_only = True

    def __init__(
        self,
        workspace: Workspace,
        requests: Mapping[str, int],
        scored_requests: Mapping[str, int],
        args: FitArgs,
        columns: FitColumns,
    ) -> None:
        self._workspace = workspace
        self._args = args
        self._absent = {name: min(requests[name], AMOUNT_LIMIT) for name in columns.absent}
        self._asked = [(PODS, PODS_ROW, 1)]
        self._asked += [(name, row, min(requests[name], AMOUNT_LIMIT)) for name, row in columns.present]
        self._scored = columns.scored
        self._scored_requests = scored_requests
        spent = [100.0 * scored_requests.get(name, 0) - HALF for name in columns.scored.names]
        self.spent: FloatMatrix = np.array(spent).reshape(-1, 1)

    def moved(self) -> bool:
        return True

    @property
    def amounts(self) -> IntVector:
        """What counts against a node: milli-CPU, bytes and counts by resource, one of ``pods``: ``(R,)``."""
        amounts = np.zeros(len(self._workspace.layout.resources), np.int64)
        for _, resource, amount in self._asked:
            amounts[resource] = amount
        return amounts

    def _free(self, view: NodeView) -> IntMatrix:
        """Give what is free: ``(R, n)``, to be read only."""
        free: IntMatrix = view.amounts[FREE]
        return free

    def _whole(self, view: NodeView) -> IntMatrix:
        """Give what is free where nobody runs: ``(R, n)``, to be read only."""
        whole: IntMatrix = self._workspace.layout.allocatable[:, view.rows]
        return whole

    def fits(self, view: NodeView) -> BoolVector:
        return self._all_fit(self._free(view))

    def fits_everywhere(self) -> bool:
        # What counts as gone makes no less room.
        return not self._absent and self._workspace.once(FreeFloor).suffices(self._asked)

    @cached_property
    def needed(self) -> IntMatrix:
        """The least of each resource that has to be free, ``(R', 1)``, as far as the last one asked for."""
        needed = [-(2**63)] * (1 + max(resource for _, resource, _ in self._asked))
        for _, resource, amount in self._asked:
            needed[resource] = amount
        if self._absent:
            needed[PODS_ROW] = 2**63 - 1
        return np.array(needed, np.int64).reshape(-1, 1)

    def _all_fit(self, free: IntMatrix) -> BoolVector:
        # One comparison of a block is cheaper than one for each resource; what is not asked for always fits.
        fitting: BoolVector = np.logical_and.reduce(free[: self.needed.shape[-2]] >= self.needed, axis=-2)
        return fitting

    @property
    def batch_key(self) -> Hashable:
        least = self._args.strategy is ScoringStrategy.LEAST_ALLOCATED and self._scored.capacity.exact
        return (id(self._scored), len(self.needed)) if least else None

    def together(self, ones: Sequence[FitEvaluator]) -> FitEvaluator:
        made = copy(self)
        made.spent = np.stack([one.spent for one in ones])
        made.needed = np.stack([one.needed for one in ones])
        return made

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        free = self._free(view)
        found = [(_reason(name), free[resource] < amount) for name, resource, amount in self._asked]
        found += [(_reason(name), np.ones_like(found[0][1])) for name in self._absent]
        return found

    def unresolvable(self, view: NodeView) -> BoolVector:
        whole = self._whole(view)
        never = np.full(whole[0].shape, bool(self._absent))
        for _, resource, amount in self._asked[1:]:
            never |= whole[resource] < amount
        return never

    def lacks(self, view: NodeView) -> Sequence[Lack]:
        free, whole = self._free(view), self._whole(view)
        found = []
        for name, resource, amount in self._asked:
            unresolvable = None if name == PODS else whole[resource] < amount
            # Of what a node does not offer it has none, whoever held some of it there before it went.
            none = (whole[resource] == 0) & (name not in FIRST_RESOURCES)
            available = np.where(none, 0, free[resource])
            found.append(Lack(free[resource] < amount, _reason(name), name, amount, available, unresolvable))
        nothing = np.zeros_like(free[PODS_ROW])
        found += [
            Lack(nothing < amount, _reason(name), name, amount, nothing, nothing < amount)
            for name, amount in self._absent.items()
        ]
        # By name: whether a resource has a column depends on nodes that have left a line of snapshots since.
        return sorted(found, key=lambda one: (one.resource != PODS, one.resource))

    def slots(self, view: NodeView, most: int) -> IntVector:
        free = self._free(view)
        number = np.full(free.shape[1], 0 if self._absent else most, np.int64)
        for _, resource, amount in self._asked:
            # Division is what takes time, and few nodes have less than all of them need.
            short = (free[resource] < amount * most).nonzero()[0]
            if not len(short):
                continue
            number[short] = np.minimum(number[short], free[resource, short] // amount)
        return np.maximum(number, 0, out=number)

    def scores(self, view: NodeView) -> IntVector:
        scored = self._scored
        capacity = scored.capacity.at(view.rows)
        least = self._args.strategy is ScoringStrategy.LEAST_ALLOCATED
        if least and capacity.exact:
            hundredfold = scored.hundredfold_spare(view) - self.spent
            return scored.mean(capacity.share(hundredfold), view.rows)
        used = view.amounts[SCORED][scored.index] + amounts_column(self._scored_requests, scored.names)
        match self._args.strategy:
            case ScoringStrategy.LEAST_ALLOCATED:
                return scored.mean(least_percent(used, capacity), view.rows)
            case ScoringStrategy.MOST_ALLOCATED:
                return scored.mean(most_percent(used, capacity), view.rows)
            case ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO:
                return score_ratio(used, capacity, scored.weights_at(view.rows), scored.table)


def _reason(name: str) -> str:
    return "Too many pods" if name == PODS else f"Insufficient {name}"


class Capacities:
    """One :class:`Capacity` for each list of names, whoever asks; kept while nodes offer the same."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._of = workspace, workspace.layout.offers
        self._made: dict[tuple[str, ...], Capacity] = {}
        self._before: dict[tuple[str, ...], Capacity] = {}

    def of(self, names: tuple[str, ...], numbers: Sequence[int]) -> Capacity:
        """Give the capacities of some resources, by name and row, on the nodes as they are now."""
        offers = self._workspace.layout.offers
        if self._of is not offers:
            self._of, self._made, self._before = offers, {}, self._made
        if names not in self._made:
            found = self._before.get(names)
            if found is None or not found.stands_for(map(offers.alike, numbers)):
                found = Capacity(offers.matrix[as_rows(numbers)])
            self._made[names] = found
        return self._made[names]

    def moved(self, moves: NodeMoves) -> bool:
        """Go on where nodes joined and left."""
        return True


class ScoredResources:
    """The resources that a score looks at, on all nodes; shared by all classes that ask for the same names.

    Parameters
    ----------
    workspace
        Where the nodes are.
    resources
        Resource names with weights; names that no node has are left out.
    args
        Where the shape of a broken line comes from.
    """

    def __init__(self, workspace: Workspace, resources: Iterable[tuple[str, int]], args: FitArgs) -> None:
        self._workspace, layout = workspace, workspace.layout
        kept = [(name, weight) for name, weight in resources if name in layout.index]
        self.names, self._numbers = tuple(name for name, _ in kept), [layout.index[name] for name, _ in kept]
        self.index = as_rows(self._numbers)
        self._capacities = workspace.once(Capacities)
        self._capacity, self._offered = self._capacities.of(self.names, self._numbers), layout.offers
        self._weights: IntMatrix = np.array([weight for _, weight in kept], np.int64)[:, None]
        self._same = len({weight for _, weight in kept}) == 1
        self.table = ratio_table(args.shape) if args.shape else np.zeros(101, np.int64)

    @property
    def capacity(self) -> Capacity:
        """What nodes have of them now."""
        offers = self._workspace.layout.offers
        if self._offered is not offers:
            self._capacity, self._offered = self._capacities.of(self.names, self._numbers), offers
        return self._capacity

    def hundredfold_spare(self, view: NodeView) -> FloatMatrix:
        """Give a hundred times what is spare, to be read only: ``(K, n)``."""
        amounts = self._workspace.real[1] if view.all_plain else view.amounts[SPARE] * 100.0
        spare: FloatMatrix = amounts[self.index]
        return spare

    def requested(self, view: NodeView) -> IntMatrix | FloatMatrix:
        """Give what is requested, to be read only: ``(K, n)``."""
        amounts = self._workspace.real[0] if view.all_plain else view.amounts[REQUESTED]
        requested: IntMatrix | FloatMatrix = amounts[self.index]
        return requested

    def weights_at(self, rows: Rows) -> IntMatrix:
        """Give the weights on some nodes, 0 for what a node does not have: ``(K, n)`` or ``(K, 1)``."""
        capacity = self.capacity.at(rows)
        return self._weights if capacity.everywhere else np.where(capacity.present, self._weights, 0)

    def mean(self, scores: IntMatrix | FloatMatrix, rows: Rows) -> IntVector:
        """Average whole scores by weight, rounded down, leaving out what a node does not have.

        The scores are overwritten: arrays that are in the cache already are the fastest to write.
        """
        if not (self._same and self.capacity.everywhere):
            return weighted_mean(scores.astype(np.int64), self.weights_at(rows))
        # Halving is exact, and of sums this small division gives no quotient on the wrong side of an integer.
        number = len(self.names)
        if number == 2:
            total = scores[..., 0, :]
            total += scores[..., 1, :]
            mean: FloatMatrix = np.multiply(total, 0.5, out=total if total.dtype == np.float64 else None)
        else:
            mean = np.true_divide(np.add.reduce(scores, axis=-2), number)
        return mean.astype(np.int64)


class ResourceFit(Plugin):
    """Enough of every resource is free; free or used room is better, as the strategy says."""

    name = "NodeResourcesFit"
    by_template = True
    helped_by = ROOM | {"DeviceClass"}
    follows_pods = False
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = OFFERS
    amounts = True
    arguments = FitArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._settings: FitArgs = args or FitArgs()
        # By how many resources are counted as well: they stand elsewhere once another one has come in.
        self._columns: dict[tuple[int, tuple[str, ...]], FitColumns] = {}

    def request_of(self, pod: Pod) -> Hashable:
        if not self.served or self.served.isdisjoint(pod.requests):
            return (tuple(pod.requests.items()), tuple(pod.scored_requests.items()))
        served = self.served.difference(self.workspace.layout.index)
        counted_here = tuple([one for one in pod.requests.items() if one[0] not in served])
        return (counted_here, tuple(pod.scored_requests.items()))

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        # Plain dictionaries: asking a frozen one for what it lacks takes ten times as long.
        requests, scored_requests = dict(request[0]), dict(request[1])
        names = tuple([name for name, amount in request[0] if amount > 0])
        key = len(self.workspace.layout.index), names
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = FitColumns(self.workspace, names, self._settings)
        if not self.served.isdisjoint(names):
            from koordcore.scheduling.plugins.partly_served import PartlyServedFit  # few clusters have them

            made = PartlyServedFit(self.workspace, requests, scored_requests, self._settings, columns)
            made.served = tuple(row for name, row in columns.present if name in self.served)
            return made
        return FitEvaluator(self.workspace, requests, scored_requests, self._settings, columns)


class BalancedEvaluator(Evaluator):
    """Score of one pod class."""

    scope = Scope.NODE
    amounts_only = True

    def __init__(self, requests: Mapping[str, int], scored: ScoredResources) -> None:
        self._scored = scored
        self.own: FloatMatrix = np.array([float(requests.get(name, 0)) for name in scored.names])[:, None]

    def moved(self) -> bool:
        return True

    @property
    def batch_key(self) -> Hashable:
        return id(self._scored)

    def together(self, ones: Sequence[BalancedEvaluator]) -> BalancedEvaluator:
        made = copy(self)
        made.own = np.stack([one.own for one in ones])
        return made

    def scores(self, view: NodeView) -> IntVector:
        used = self._scored.requested(view) + self.own
        return score_balanced(used, self._scored.capacity.at(view.rows))


class BalancedAllocation(Plugin):
    """Nodes whose resources are used evenly are better; silent about pods that ask for none of them."""

    name = "NodeResourcesBalancedAllocation"
    by_template = True
    follows_pods = False
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = OFFERS
    arguments = BalancedArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._settings: BalancedArgs = args or BalancedArgs()
        self._names = tuple(name for name, _ in self._settings.resources)
        self._resources = tuple((name, 1) for name in self._names)
        self._scored: dict[tuple[object, ...], ScoredResources] = {}

    def request_of(self, pod: Pod) -> Hashable | None:
        request = tuple(pod.requests.items())
        for name, amount in request:  # a generator takes as long as all else that a plain pod is asked here
            if amount and name in self._names:
                return request
        return None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        requests = dict(request)
        names = _looked_at(self._resources, requests)
        key = len(self.workspace.layout.index), *names
        scored = self._scored.get(key)
        if scored is None:
            scored = self._scored[key] = ScoredResources(self.workspace, names, FitArgs())
        return BalancedEvaluator(requests, scored)
