"""The fewest moves after which a waiting pod fits: others make way with their claims, and go on elsewhere.

On every node the sets of pods are known of which one has to leave
(:meth:`koordcore.framework.plugin.Plugin.ways`). The smallest come first; one whose pods all find another
place, together, beside the pod that waits, is the answer. They may stay on their node with other devices: a
partition that stands in the way of a larger one is made anew on the next card.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import attrs

from koordcore.checking.moves import verify_moves
from koordcore.descheduling.checked_moves import CheckedMoves
from koordcore.descheduling.evict import CycleEvictor
from koordcore.descheduling.plans import DEFAULT_RULES, MoveRules, Moving, problem_of_rooms
from koordcore.errors import ModelError
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.decisions import Bound
from koordcore.model.moves import Move
from koordcore.model.pods import Pod
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.entry import schedule
from koordcore.scheduling.one_pod import place_pod, place_there
from koordcore.scheduling.reset import unbound
from koordcore.snapshot import ClusterSnapshot

_MOST_TRIES: Final = 64
_GANG: Final = "gang.scheduling.koordinator.sh/"


@attrs.frozen(kw_only=True)
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


@attrs.frozen(eq=False)
class _Way:
    """Pods on one node; none of them may stay if the pod that waits is to come."""

    cost: int
    row: int
    pods: tuple[Pod, ...]


def plan_room_for(
    snapshot: ClusterSnapshot, pod: Pod, *, rules: MoveRules = DEFAULT_RULES
) -> Moving[RoomForPod]:
    """Plan the fewest moves after which a pod fits with its claims.

    Only pods that stand in its way move; that a third pod would have to make way for them is not looked at,
    and then the plan says what is proven without it.

    Parameters
    ----------
    snapshot
        The cluster.
    pod
        Who waits.
    rules
        Which pods may be moved, where to, and limits.

    Raises
    ------
    ModelError
        When no move can help: the pod is refused wherever it is.
    """
    workspace = open_workspace(snapshot, rules.policy)
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
    for way in known[:_MOST_TRIES]:
        made = _carried_out(snapshot, pod, way, rules)
        if made is not None:
            moves, place, checked = made
            objective = (0, len(way.pods), way.cost)
            plan = RoomForPod(
                moves=moves, place=place, certificate=Certificate.make_bounded(objective, bound)
            )
            return moving(plan, checked)
    nothing = Certificate(CertificateStatus.HEURISTIC if every else CertificateStatus.INFEASIBLE)
    return moving(RoomForPod(moves=(), place=None, certificate=nothing), CheckedMoves((), snapshot))


def _ways(workspace: Workspace, plugins: PluginSet, pod: Pod, rules: MoveRules) -> Iterator[_Way | None]:
    """Give the least sets of pods of which one has to make way; ``None`` for a node where nobody knows."""
    evictor = CycleEvictor(rules.evictor)
    for row in range(len(workspace.layout.names)):
        there = workspace.pods_on(row)
        going = [one for key, one in sorted(there.items()) if evictor.admits(one)]
        told = (plugin.ways([pod], row, going) for plugin in plugins.plugins)
        ways = next((one for one in told if one is not None), None)
        if ways is None:
            yield None
            continue
        for keys in ways:
            pods = tuple(there[key] for key in sorted(keys))
            yield _Way(sum(rules.costs.get(key, 1) for key in keys), row, pods)


def _carried_out(
    snapshot: ClusterSnapshot, pod: Pod, way: _Way, rules: MoveRules
) -> tuple[tuple[Move, ...], Bound, CheckedMoves] | None:
    """Let pods make way, place the one that waits, and then all of them; ``None`` if any is left."""
    rest = snapshot.forget(*(one.key for one in way.pods))
    workspace = open_workspace(rest, rules.policy)
    plugins = PluginSet(workspace, rules.policy)
    place = place_there(workspace, plugins, pod, way.row)
    if place is None:
        return None
    with_pod = workspace.freeze()
    placed = schedule(with_pod, _together(way.pods), policy=rules.policy)
    given = {one.pod: one for one in placed.bound}
    if len(given) < len(way.pods):
        return None
    source = workspace.layout.names[way.row]
    moves = tuple(
        Move(pod=one.key, source=source, target=given[one.key].node)
        for one in sorted(way.pods, key=lambda one: one.key)
    )
    decided = tuple(_unmarked(given[move.pod]) for move in moves)
    wrong = verify_moves(
        snapshot, moves, decided, policy=rules.policy, args=rules.migration, limits=rules.limits
    )
    if wrong:
        return None
    return moves, place, CheckedMoves(decided, placed.snapshot)


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
