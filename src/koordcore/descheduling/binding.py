"""Why a node stays hot: the limit that binds, or what its pods lack elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordcore.descheduling.moves import Host, Movable, MoveProblem
from koordcore.descheduling.placing import Room
from koordcore.model.pods import PodKey


def why_hot(
    problem: MoveProblem, hot: Sequence[Host], targets: Mapping[PodKey, str]
) -> dict[str, tuple[str, ...]]:
    """Say of nodes that stay hot what keeps each pod that stays on them, once a plan is carried out.

    Parameters
    ----------
    hot
        Nodes that are hot after the plan.
    targets
        The plan: pod to the node that it moves to.

    Returns
    -------
    dict
        Name of the node to reasons, each with the number of pods that it is about, most pods first.
    """
    room = Room(problem)
    movable = {one.pod: one for one in problem.movable}
    for pod, target in sorted(targets.items()):
        room.move(movable[pod], target)
    return {host.name: tuple(_reasons(problem, room, host, targets)) for host in hot}


def _reasons(problem: MoveProblem, room: Room, host: Host, targets: Mapping[PodKey, str]) -> list[str]:
    here = [one for one in problem.movable if one.node == host.name]
    if not here:
        return ["no pod on it may be evicted"]
    staying = [one for one in here if one.pod not in targets]
    over = {name for name, limit in host.high.items() if host.usage.get(name, 0) > limit}
    useful = [one for one in staying if any(one.usage.get(name, 0) for name in over)]
    if not useful:
        return ["what may be evicted uses too little of what is scarce"]
    counts: dict[str, int] = {}
    for one in useful:
        for reason in _keeps(problem, room, one, targets):
            counts[reason] = counts.get(reason, 0) + 1
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [f"{count} pod{'s' * (count > 1)}: {reason}" for reason, count in ordered]


def _keeps(problem: MoveProblem, room: Room, one: Movable, targets: Mapping[PodKey, str]) -> list[str]:
    spent = [
        f"{group.name} lets {group.most} of {len(group.pods)} move"
        for group in problem.groups
        if one.pod in group.pods and sum(pod in targets for pod in group.pods) >= group.most
    ]
    if spent:
        return spent
    others = [host for host in problem.hosts if host.name != one.node]
    taking = [host for host in others if host.receives]
    if not taking:
        return ["no other node takes pods"]
    allowed = [host for host in taking if problem.allows(one.pod, host.name)]
    if not allowed:
        return ["may run on no other node that takes pods"]
    if next(room.candidates(one), None) is None:
        return ["no node that it may run on has room for it and stays cool"]
    return ["moving it as well would cost more than it cools"]
