"""Which nodes can be emptied, and by which moves: bin-packing down by plan.

Nodes with the cheapest pods are emptied first, each into the tightest places among the nodes that stay. The
answer is legal at every step but not proven; :mod:`koordcore.rebalance.empty` has the reference's ranking.
"""

from __future__ import annotations

import attrs

from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.moves import Move
from koordcore.rebalance.moves import Movable, MoveProblem
from koordcore.rebalance.placing import Room
from koordcore.rebalance.waves import in_waves

__all__ = ["EmptyingPlan", "plan_emptying"]


@attrs.frozen(kw_only=True)
class EmptyingPlan:
    """Nodes that nothing movable stays on.

    Parameters
    ----------
    moves
        By wave.
    emptied
        Names of the nodes that were emptied, in the order in which that was decided.
    certificate
        Objective: emptied nodes (negative), moves, cost.
    """

    moves: tuple[Move, ...]
    emptied: tuple[str, ...]
    certificate: Certificate


def plan_emptying(problem: MoveProblem, *, most: int | None = None) -> EmptyingPlan:
    """Plan to empty nodes, those with the cheapest pods first.

    A node counts as emptied when everything that it is asked for leaves with its movable pods; one that
    holds anything else, or nothing at all, is left alone. No pod moves twice, and none onto a node that is
    to be emptied.

    Parameters
    ----------
    problem
        Hosts, movable pods, limits, and where pods may run.
    most
        Empty at most so many nodes; ``None`` as many as possible.
    """
    by_node: dict[str, list[Movable]] = {}
    for one in problem.movable:
        by_node.setdefault(one.node, []).append(one)
    candidates = []
    for host in problem.hosts:
        own = by_node.get(host.name, [])
        leaving = {name: sum(one.requests.get(name, 0) for one in own) for name in host.requested}
        if own and all(leaving[name] == amount for name, amount in host.requested.items()):
            candidates.append((sum(one.cost for one in own), len(own), host.name))
    room, filled = Room(problem), set[str]()
    emptied: list[str] = []
    for _, _, name in sorted(candidates):
        if most is not None and len(emptied) >= most:
            break
        # A node that took pods of another is in use, and emptying it would move them twice.
        if name not in filled and room.place(by_node[name], [*emptied, name]):
            emptied.append(name)
            filled = set(room.targets.values())
    cost = sum(one.cost for one in problem.movable if one.pod in room.targets)
    return EmptyingPlan(
        moves=in_waves(problem, room.targets) or (),
        emptied=tuple(emptied),
        certificate=Certificate(CertificateStatus.HEURISTIC, (-len(emptied), len(room.targets), cost)),
    )
