"""Better places for some gangs of a plan while the others stay where they are.

One gang at a time is taken off and placed as well as what is left allows; that is quick, never worse, and
gives the joint program a good start for its last objectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from immutabledict import immutabledict

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangPlacement, IntMatrix
from koordcore.allocators.gang.planner import place_gang
from koordcore.allocators.gang.rivals import QueuedGang, after_members, count_members, queue_objective
from koordcore.topology.network import NetworkTopology

Placements: TypeAlias = Mapping[str, Mapping[str, str]]

_ROUNDS: Final = 4


def gather_again(
    tree: NetworkTopology, gangs: Sequence[QueuedGang], placements: Placements, loose: Sequence[QueuedGang]
) -> dict[str, Mapping[str, str]]:
    """Gather the ``loose`` gangs of a plan better; equal members only, the others stay.

    Parameters
    ----------
    placements
        A legal plan: node per member key, by gang.
    loose
        Gangs that may move. Nobody starts or waits because of it, and everyone keeps as many members.
    """
    movable = [gang for gang in loose if gang.demand.uniform and placements.get(gang.name)]
    movable.sort(key=lambda gang: (-len(placements[gang.name]), gang.name))
    plans = [_improved(tree, gangs, placements, movable)]
    fresh = _placed_anew(tree, gangs, placements, movable)
    if fresh is not None:
        plans.append(_improved(tree, gangs, fresh, movable))
    return min(plans, key=lambda plan: queue_objective(tree, gangs, plan))


def _used(tree: NetworkTopology, gangs: Sequence[QueuedGang], placements: Placements) -> IntMatrix:
    used = np.zeros((len(gangs[0].demand.shapes), len(tree.nodes)), dtype=np.int64)
    for gang in gangs:
        count_members(tree, gang.demand, placements.get(gang.name, {}), used)
    return used


def _placed_anew(
    tree: NetworkTopology, gangs: Sequence[QueuedGang], placements: Placements, movable: Sequence[QueuedGang]
) -> dict[str, Mapping[str, str]] | None:
    """Take all of them off and place the largest first; None when one finds less room than it had."""
    names = {gang.name for gang in movable}
    plan = {name: nodes for name, nodes in placements.items() if name not in names}
    used = _used(tree, gangs, plan)
    for gang in movable:
        placed = place_gang(tree, after_members(gang.demand, used))
        if not isinstance(placed, GangPlacement) or len(placed.nodes) != len(placements[gang.name]):
            return None
        plan[gang.name] = placed.nodes
        count_members(tree, gang.demand, placed.nodes, used)
    return plan


def _improved(
    tree: NetworkTopology, gangs: Sequence[QueuedGang], placements: Placements, movable: Sequence[QueuedGang]
) -> dict[str, Mapping[str, str]]:
    """Place one after the other anew until nobody gains."""
    plan = dict(placements)
    used = _used(tree, gangs, plan)
    for _ in range(_ROUNDS):
        gained = False
        for gang in movable:
            before: Mapping[str, str] = immutabledict(plan[gang.name])
            own = np.zeros_like(used)
            count_members(tree, gang.demand, before, own)
            used -= own
            placed = place_gang(tree, after_members(gang.demand, used))
            if isinstance(placed, GangPlacement) and queue_objective(
                tree, [gang], {gang.name: placed.nodes}
            ) < queue_objective(tree, [gang], {gang.name: before}):
                plan[gang.name], gained = placed.nodes, True
            count_members(tree, gang.demand, plan[gang.name], used)
        if not gained:
            break
    return plan


def let_in(
    tree: NetworkTopology, gangs: Sequence[QueuedGang], placements: Placements
) -> dict[str, Mapping[str, str]]:
    """Start whoever waits for room that gangs of a lower priority have got, and place those anew."""
    plan = {name: nodes for name, nodes in placements.items() if nodes}
    waiting = [gang for gang in gangs if gang.name not in plan]
    for gang in sorted(waiting, key=lambda one: -one.priority):
        if gang.name in plan:
            continue
        higher = [one for one in gangs if one.priority >= gang.priority and one.name in plan]
        kept = {one.name: plan[one.name] for one in higher}
        used = _used(tree, gangs, kept)
        placed = place_gang(tree, after_members(gang.demand, used))
        if not isinstance(placed, GangPlacement) or not placed.nodes:
            continue
        kept[gang.name] = placed.nodes
        count_members(tree, gang.demand, placed.nodes, used)
        for lower in (one for one in gangs if one.priority < gang.priority):
            nodes = plan.get(lower.name, {})
            left = after_members(lower.demand, used)
            if not nodes or placement_violations(tree, left, nodes):
                anew = place_gang(tree, left)
                nodes = anew.nodes if isinstance(anew, GangPlacement) else {}
            if nodes:
                kept[lower.name] = nodes
                count_members(tree, lower.demand, nodes, used)
        plan = kept
    return plan
