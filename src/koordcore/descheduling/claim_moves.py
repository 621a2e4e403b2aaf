"""The fewest moves after which a waiting pod fits: others make way with their claims, and go on elsewhere.

On every node the sets of pods are known of which one has to leave
(:meth:`koordcore.framework.plugin.Plugin.ways`). The smallest come first; one whose pods all find another
place, together, beside the pod that waits, is the answer. They may stay on their node with other devices: a
partition that stands in the way of a larger one is made anew on the next card. Where one of them finds no
place, others make way for it in turn, and the set grows by theirs. Where amounts are what a pod lacks, no
such sets are known, and the planner of room for shapes is asked for one slot of its size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.checking.moves import verify_moves
from koordcore.descheduling.checked_moves import CheckedMoves
from koordcore.descheduling.evict import CycleEvictor
from koordcore.descheduling.plans import DEFAULT_RULES, MoveRules, Moving, plan_room, problem_of_rooms
from koordcore.descheduling.wanted import Wanted
from koordcore.errors import ModelError
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, CertificateStatus, Limits
from koordcore.model.decisions import Bound
from koordcore.model.moves import Move
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import PODS, make_resources
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.entry import schedule
from koordcore.scheduling.one_pod import place_pod, place_there
from koordcore.scheduling.reset import unbound
from koordcore.snapshot import ClusterSnapshot

_MOST_TRIES: Final = 64
_GANG: Final = "gang.scheduling.koordinator.sh/"


@record(kw_only=True)
class RoomForPod:
    """Who moves where so that a pod fits.

    Parameters
    ----------
    moves
        All at once; a pod may stay on its node with other devices.
    place
        What the pod gets then; ``None`` where no moves were found that make it fit.
    certificate
        Objective: pods that do not fit, moves, cost of the moves.
    """

    moves: tuple[Move, ...]
    place: Bound | None
    certificate: Certificate


@record(eq=False)
class _Way:
    """Pods on one node; none of them may stay if the pod that waits is to come."""

    cost: int
    row: int
    pods: tuple[Pod, ...]


def plan_room_for(
    snapshot: ClusterSnapshot,
    pod: Pod,
    *,
    rules: MoveRules = DEFAULT_RULES,
    budget: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> Moving[RoomForPod]:
    """Plan the fewest moves after which a pod fits, with its claims and wherever it may run.

    For a pod with claims those move who stand in its way, and those who stand in theirs. The plan is proven
    where it has no more moves than the smallest set of pods that stand in its own way. A member of a gang is
    taken for a pod by itself.

    Parameters
    ----------
    snapshot
        The cluster.
    pod
        Who waits.
    rules
        Which pods may be moved, where to, and limits.
    budget
        Of the solver, where amounts are what the pod lacks.
    progress
        Called with how many sets of pods that stand in the way have been tried, and how many will be at most;
        where amounts are what the pod lacks, as for :func:`plan_room`.

    Raises
    ------
    ModelError
        When no move can help: the pod is refused wherever it is.
    """
    workspace = open_workspace(snapshot, rules.policy, rules.now)
    plugins = PluginSet(workspace, rules.policy)
    found = plugins.class_of(pod)
    refused = found if isinstance(found, Refusal) else (found.refuse() or (None, None))[1]
    if refused is not None:
        raise ModelError(f"{pod.key}: {refused.reason}")
    moving = partial(Moving, snapshot, problem_of_rooms(snapshot, rules))
    now = place_pod(workspace, plugins, pod)
    if isinstance(now, Bound):
        plan = RoomForPod(moves=(), place=now, certificate=Certificate.make_proven((0, 0, 0)))
        return moving(plan, CheckedMoves((), snapshot))
    every = list(_ways(workspace, plugins, pod, rules))
    known = sorted(
        (one for one in every if one is not None), key=lambda way: (len(way.pods), way.cost, way.row)
    )
    bound = (0, len(known[0].pods), known[0].cost) if known and None not in every else (0, 0, 0)
    made = _Chains(snapshot, pod, rules).search(known, progress)
    if made is not None:
        moves, place, checked = made
        objective = (0, len(moves), sum(rules.costs.get(move.pod, 1) for move in moves))
        plan = RoomForPod(moves=moves, place=place, certificate=Certificate.make_bounded(objective, bound))
        return moving(plan, checked)
    if None in every:
        amounts = _by_amounts(snapshot, pod, rules, budget, progress)
        if amounts is not None:
            return amounts
    nothing = Certificate(CertificateStatus.HEURISTIC if every else CertificateStatus.INFEASIBLE)
    return moving(RoomForPod(moves=(), place=None, certificate=nothing), CheckedMoves((), snapshot))


def _ways(
    workspace: Workspace,
    plugins: PluginSet,
    pod: Pod,
    rules: MoveRules,
    staying: Collection[PodKey] = (),
) -> Iterator[_Way | None]:
    """Give the least sets of pods of which one has to make way; ``None`` for a node where nobody knows."""
    evictor = CycleEvictor(rules.evictor)
    for row in range(len(workspace.layout.names)):
        there = workspace.pods_on(row)
        going = [one for key, one in sorted(there.items()) if key not in staying and evictor.admits(one)]
        answers = (plugin.ways([pod], row, going) for plugin in plugins.deciding([pod]))
        ways = next((one for one in answers if one is not None), None)
        if ways is None:
            yield None
            continue
        for keys in ways:
            pods = tuple(there[key] for key in sorted(keys))
            yield _Way(sum(rules.costs.get(key, 1) for key in keys), row, pods)


def _by_amounts(
    snapshot: ClusterSnapshot,
    pod: Pod,
    rules: MoveRules,
    budget: Limits,
    progress: Callable[[int, int], None],
) -> Moving[RoomForPod] | None:
    """Make room for as much as the pod asks for on nodes that would take it; ``None`` where that fails."""
    nodes = nodes_without_others(snapshot, [pod], rules)
    if not nodes:
        return None
    shape = make_resources({PODS: 1, **pod.requests})
    wanted = Wanted(requests=shape, nodes=nodes)
    moving = plan_room(snapshot, wanted, rules=rules, budget=budget, progress=progress)
    if not moving.plan.moves or moving.plan.missing or not moving.legal:
        return None
    workspace = open_workspace(moving.checked.snapshot, rules.policy, rules.now)
    place = place_pod(workspace, PluginSet(workspace, rules.policy), pod)
    if not isinstance(place, Bound):
        return None
    plan = RoomForPod(moves=moving.plan.moves, place=place, certificate=moving.plan.certificate)
    checked = attrs.evolve(moving.checked, snapshot=workspace.freeze())
    return Moving(snapshot, moving.problem, plan, checked)


def nodes_without_others(snapshot: ClusterSnapshot, pods: Sequence[Pod], rules: MoveRules) -> tuple[str, ...]:
    """Name the nodes that would take each of these pods if everybody who may move had left.

    Returns
    -------
    tuple of str
        In the order of the snapshot: on no other node can moves make room for them. All nodes where a pod
        looks at who else runs, as it may lack what has left.
    """
    if any(one.spread_constraints or (one.affinity is not None and one.affinity.pod) for one in pods):
        return tuple(snapshot.layout.names)
    evictor = CycleEvictor(rules.evictor)
    gone = [one.key for one in snapshot.bound_pods() if evictor.admits(one)]
    workspace = open_workspace(snapshot.forget(*gone), rules.policy, rules.now)
    plugins = PluginSet(workspace, rules.policy)
    fitting: set[str] | None = None
    for pod in pods:
        found = plugins.class_of(pod)
        if isinstance(found, Refusal):
            return ()
        fits = zip(workspace.layout.names, found.feasible().tolist(), strict=True)
        names = {name for name, taken in fits if taken}
        fitting = names if fitting is None else fitting & names
    return tuple(name for name in workspace.layout.names if name in (fitting or ()))


_Size: TypeAlias = tuple[int, int, int, tuple[PodKey, ...]]


def _size_of(way: _Way) -> _Size:
    """Give how much a set moves, the smaller the better; no two sets are equal in it."""
    return len(way.pods), way.cost, way.row, tuple(one.key for one in way.pods)


_Made: TypeAlias = tuple[tuple[Move, ...], Bound, CheckedMoves]


class _Chains:
    """Sets of pods that make way, the smallest first; one that does not do grows by who is in its way."""

    def __init__(self, snapshot: ClusterSnapshot, pod: Pod, rules: MoveRules) -> None:
        self._snapshot = snapshot
        self._pod = pod
        self._rules = rules

    def search(self, ways: Sequence[_Way], progress: Callable[[int, int], None]) -> _Made | None:
        """Find the first set whose pods all go on; ``None`` where none is found in the tries there are."""
        known: dict[_Size, _Way] = {_size_of(one): one for one in ways[:_MOST_TRIES]}
        sizes = list(known)
        heapify(sizes)
        for tried in range(_MOST_TRIES):
            if not sizes:
                break
            progress(tried, _MOST_TRIES)
            made = self._carried_out(known[heappop(sizes)])
            if isinstance(made, tuple):
                return made
            for more in made or ():
                size = _size_of(more)
                if size not in known:
                    known[size] = more
                    heappush(sizes, size)
        return None

    def _carried_out(self, way: _Way) -> _Made | list[_Way] | None:
        """Let pods make way, place the one that waits, and then all of them; else tell larger sets."""
        rules = self._rules
        rest = self._snapshot.forget(*(one.key for one in way.pods))
        workspace = open_workspace(rest, rules.policy, rules.now)
        place = place_there(workspace, PluginSet(workspace, rules.policy), self._pod, way.row)
        if place is None:
            return None
        with_pod = workspace.freeze()
        placed = schedule(with_pod, _together(way.pods), policy=rules.policy, now=rules.now)
        given = {one.pod: one for one in placed.bound}
        if len(given) < len(way.pods):
            # What the one that waits took by itself may be what another needs.
            placed = schedule(rest, _together((self._pod, *way.pods)), policy=rules.policy, now=rules.now)
            given = {one.pod: one for one in placed.bound}
            if len(given) <= len(way.pods):
                return self._larger(with_pod, way)
            place = _unmarked(given[self._pod.key])
        moves = tuple(
            Move(pod=one.key, source=one.node_name or "", target=given[one.key].node)
            for one in sorted(way.pods, key=lambda one: one.key)
        )
        decided = tuple(_unmarked(given[move.pod]) for move in moves)
        wrong = verify_moves(
            self._snapshot,
            moves,
            decided,
            policy=rules.policy,
            args=rules.migration,
            limits=rules.limits,
            now=rules.now,
        )
        return None if wrong else (moves, place, CheckedMoves(decided, placed.snapshot))

    def _larger(self, with_pod: ClusterSnapshot, way: _Way) -> list[_Way]:
        """Give the set with those who would have to make way for the first of it who finds no place."""
        rules = self._rules
        workspace = open_workspace(with_pod, rules.policy, rules.now)
        plugins = PluginSet(workspace, rules.policy)
        left = None
        for one in way.pods:
            if not isinstance(place_pod(workspace, plugins, unbound(one)), Bound):
                left = left or unbound(one)
        if left is None:
            return []
        staying = {self._pod.key, *(one.key for one in way.pods)}
        found = []
        for more in _ways(workspace, plugins, left, rules, staying):
            if more is not None and more.pods:
                pods = tuple(sorted((*way.pods, *more.pods), key=lambda one: one.key))
                found.append(_Way(way.cost + more.cost, way.row, pods))
        return found


def _together(pods: Sequence[Pod]) -> list[Pod]:
    """Make the pods anew as one gang: all of them find a place, or none does."""
    gang = {f"{_GANG}name": "moving", f"{_GANG}min-available": str(len(pods))}
    return [attrs.evolve(unbound(one), annotations={**unbound(one).annotations, **gang}) for one in pods]


def _unmarked(decision: Bound) -> Bound:
    kept = {key: text for key, text in decision.annotations.items() if not key.startswith(_GANG)}
    return attrs.evolve(decision, annotations=kept)


def claims_of(place: Bound) -> list[str]:
    """Name the devices that a placed pod gets by its claims."""
    return [str(one.id) for held in place.claims for one in held.allocation.results]
