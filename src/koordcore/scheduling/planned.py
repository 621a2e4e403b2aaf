"""A plan and its binding in turns: what does not hold when it is bound is not offered again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore._arrays import IntMatrix
from koordcore._record import record
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, GangShortfall, Limit
from koordcore.allocators.gang.planner import place_gang
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.decisions import PodDecision, Unschedulable, refused_likewise
from koordcore.model.pods import PodKey
from koordcore.scheduling.beyond_limits import beyond, falls_short, limits_of, without
from koordcore.scheduling.gang_binding import bind_plan, never_together, wherever
from koordcore.scheduling.gang_input import Conflict, Denied, PlanningInput
from koordcore.scheduling.one_after_another import OneAfterAnother
from koordcore.scheduling.outcomes import NO_REFUSALS, weakened
from koordcore.scheduling.shared_devices import SharedDevices
from koordcore.topology.network import NetworkTopology

_REPLANS: Final = 64
"""Each replan takes an offer away that did not hold; plugins that count by node need none."""

_FEW: Final = 3
"""Plans whose own nodes alone are asked what they do not take together; then all are, which takes long, and
only if any of those knew."""

_UNCOUNTED: Final = "no plan was found, and not every way in which nodes take members together was tried"

Ask: TypeAlias = Callable[[IntMatrix, Sequence[Conflict]], GangDemand]
"""Writes the demand of a job over offers per shape and node, and what nodes do not take together."""


@record(eq=False)
class Planned:
    """A plan whose members are bound.

    Parameters
    ----------
    bound, answer
        The plan.
    cut
        An offer was lowered more than proven, so that its bound is not known.
    refused
        Members that were left out of it, which no node is at fault for.
    """

    bound: dict[PodKey, PodDecision]
    answer: GangPlacement
    cut: bool
    refused: Mapping[PodKey, Unschedulable] = NO_REFUSALS


@record(eq=False)
class Failed:
    """No plan: the member that is refused wherever it would go, or what is missing."""

    message: str = ""
    detail: str = ""
    refused: Unschedulable | None = None
    certificate: Certificate | None = None


def plan_and_bind(
    workspace: Workspace,
    plugins: PluginSet,
    tree: NetworkTopology,
    inputs: PlanningInput,
    offers: IntMatrix,
    ask: Ask,
    limits: Limits,
    fit: str = "",
) -> Planned | Failed:
    """Plan and bind until both agree.

    Parameters
    ----------
    inputs, offers
        Of the nodes of the tree; ``offers`` are lowered where they do not hold.
    fit
        What the filters said over all nodes, for the message of a failure.
    """
    # What a node takes of members that spread hangs on where the others are: that no slots say. For these
    # a few plans have to do, and for others whom somebody elsewhere may refuse, it is tried in the end.
    counting = inputs.needs_company
    mark, at_first = workspace.checkpoint(), offers.copy()
    found = _Agreement(workspace, plugins, tree, inputs, offers, ask, limits, fit).reach(
        _FEW if counting else _REPLANS
    )
    if isinstance(found, Planned) or not (counting or any(one.looks_elsewhere for one in inputs.classes)):
        return found
    workspace.rollback(mark)

    def places(these: IntMatrix) -> GangDemand:
        return without(ask(these, ()), inputs.refused)

    if not (found.certificate is not None and found.certificate.proven):
        sharing = SharedDevices(workspace, plugins, tree, inputs, at_first, places, limits)
        if sharing.concerned():
            plan = sharing.found()
            if plan is not None:
                return Planned(*plan, cut=True, refused=inputs.refused)
            found = _short_of_shared(found, sharing, inputs)
            if sharing.exhausted:
                return found
    search = OneAfterAnother(workspace, plugins, tree, inputs, at_first, places, limits)
    other = search.found()
    if other is not None:
        return Planned(*other, cut=True, refused=inputs.refused)
    if not counting or found.certificate is not None:
        return found
    if len(inputs.classes) > 1:
        return _Agreement(workspace, plugins, tree, inputs, at_first, ask, limits, fit).reach(_REPLANS)
    if inputs.refused:
        return found
    answer = place_gang(tree, places(search.reached), fit_error=fit, limits=limits)
    if isinstance(answer, GangPlacement):
        return found
    return Failed(answer.message, answer.detail, None, weakened(answer.certificate))


def _short_of_shared(found: Failed, sharing: SharedDevices, inputs: PlanningInput) -> Failed:
    """Say of a job that its members are short of what nodes share, and not of slots of any node."""
    if found.refused is not None:
        return found
    if not sharing.exhausted:
        detail = "no choice of nodes was found that leaves devices for all members: nodes share some of them"
        return attrs.evolve(found, detail=detail)
    detail = "no choice of nodes leaves devices for all members: nodes share some of them"
    return attrs.evolve(found, detail=detail, certificate=Certificate.make_infeasible())


class _Agreement:
    """Plans, each made with what binding the one before it has shown."""

    def __init__(
        self,
        workspace: Workspace,
        plugins: PluginSet,
        tree: NetworkTopology,
        inputs: PlanningInput,
        offers: IntMatrix,
        ask: Ask,
        limits: Limits,
        fit: str,
    ) -> None:
        self._workspace, self._plugins, self._tree, self._inputs = workspace, plugins, tree, inputs
        self._offers, self._ask, self._limits, self._fit = offers, ask, limits, fit
        self._conflicts: list[Conflict] = []
        self._refused = dict(inputs.refused)
        # Who looks for company, or spreads, may go once others are there where the offers say no.
        self._doubtful = inputs.ties is None or inputs.undercounted
        # What a node refuses beside those who are bound elsewhere it may take without them.
        self._elsewhere = any(one.looks_elsewhere for one in inputs.classes)
        # Nodes that were asked what they do not take together, and whether any of them knew.
        self._asked, self._informed = set[int](), False
        self._probed = set[tuple[int, ...]]()
        # The member that was denied first, and what all share that denied it, while plans heed that.
        self._denied: Denied | None = None
        self._shared: tuple[Limit, ...] = ()

    def reach(self, turns: int) -> Planned | Failed:
        """Plan and bind, at most so many times."""
        for turn in range(turns):
            demand = self._demand()
            cut = self._doubtful
            if not demand.size or (self._refused and falls_short(demand)):
                break
            answer = self._plan(demand)
            if isinstance(answer, GangShortfall):
                if len(self._refused) > len(self._inputs.refused):
                    break
                if self._shared and self._denied is not None:
                    # What is left may move with who asks: what it leaves nobody for is tried without it too.
                    self._leave_out(demand, self._denied)
                    continue
                return self._failed(answer, cut)
            mark = self._workspace.checkpoint()
            bound = bind_plan(self._workspace, self._plugins, self._inputs, answer.nodes)
            if isinstance(bound, dict):
                if self._shared:
                    self._refused |= _still_refused(self._inputs, answer.left_out)
                return Planned(bound, answer, cut, self._refused)
            self._workspace.rollback(mark)
            if isinstance(bound, Denied):
                self._heed_denial(demand, bound)
            else:
                self._heed_conflicts(answer, bound, turn)
        if self._refused:
            return Failed(refused=list(self._refused.values())[-1])
        return Failed("no plan was found whose members can all be bound")

    def _demand(self) -> GangDemand:
        demand = without(self._ask(self._offers, self._conflicts), self._refused)
        return attrs.evolve(demand, limits=self._shared) if self._shared else demand

    def _plan(self, demand: GangDemand) -> GangPlacement | GangShortfall:
        answer = place_gang(self._tree, demand, fit_error=self._fit, limits=self._limits)
        if isinstance(answer, GangPlacement) and not answer.nodes:
            # The minimum runs already, and nobody fits beside it: asked for one more, the planner says why.
            return place_gang(self._tree, _one_more(demand), fit_error=self._fit, limits=self._limits)
        return answer

    def _failed(self, answer: GangShortfall, cut: bool) -> Failed:
        """Say why there is no plan; ``cut`` is whether there might be one after all."""
        certificate = weakened(answer.certificate) if cut else answer.certificate
        first = next(iter(self._refused.values()), None)
        detail = _UNCOUNTED if any(one.undercounts for one in self._inputs.classes) else answer.detail
        return Failed("" if self._refused else answer.message, detail, first, certificate)

    def _leave_out(self, demand: GangDemand, denied: Denied) -> None:
        """Plan on without those that go beyond what all share, and without a word of that."""
        self._shared = ()
        self._refused |= {key: refused_likewise(denied.why, key) for key in beyond(demand, denied)}

    def _heed_denial(self, demand: GangDemand, denied: Denied) -> None:
        """Somebody was denied wherever he would go."""
        self._doubtful = True
        if self._denied is None and not demand.uniform:
            # Several kinds of members share what is left: which of them go is a part of the question.
            self._denied, self._shared = denied, limits_of(self._plugins, self._inputs)
            if self._shared:
                return
        self._leave_out(demand, denied)

    def _heed_conflicts(self, answer: GangPlacement, bound: tuple[Conflict, ...], turn: int) -> None:
        """Some nodes do not take together whom they got."""
        inputs, plugins, offers = self._inputs, self._plugins, self._offers
        if turn < _FEW or self._informed:
            used = {self._tree.node_index[name] for name in answer.nodes.values()}
            tried = used if turn < _FEW else set(range(len(self._tree.nodes)))
            found = never_together(plugins, inputs, offers, tried - self._asked)
            self._conflicts += found
            self._asked |= tried
            self._informed = self._informed or bool(found)
        if turn >= _FEW and not self._informed:
            fresh = [one for one in bound if one.counts not in self._probed]
            self._probed |= {one.counts for one in fresh}
            bound = (*bound, *(wherever(self._workspace, plugins, inputs, offers, one) for one in fresh))
        # Whoever goes to one node together has nobody elsewhere.
        beside = self._elsewhere and len({*answer.nodes.values()}) > 1
        for one in bound:
            self._doubtful = self._doubtful or one.doubtful or beside
            if one.alone is None:
                self._conflicts.append(one)
                continue
            for node in one.nodes:
                offers[one.alone, node] = min(int(offers[one.alone, node]), one.counts[one.alone] - 1)


def _still_refused(inputs: PlanningInput, left_out: Sequence[str]) -> dict[PodKey, Unschedulable]:
    """Say which members without a place are refused whatever the node, now that others have theirs."""
    found = {}
    for key in left_out:
        one, pod = inputs.classes[inputs.shape_of[key]], inputs.pod_of[key]
        refused = one.refuse()
        if refused is not None:
            nodes, (by, why) = len(one.feasible()), refused
            found[pod.key] = Unschedulable(pod=pod.key, nodes=nodes, refusal=why.reason, refused_by=by.name)
    return found


def _one_more(demand: GangDemand) -> GangDemand:
    first = next(number for number, role in enumerate(demand.roles) if role.members)
    roles = [
        attrs.evolve(role, min_available=int(number == first)) for number, role in enumerate(demand.roles)
    ]
    return attrs.evolve(demand, roles=tuple(roles))
