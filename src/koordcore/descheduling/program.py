"""Moves as an integer program: pairs of pod and target, limits, amounts on every node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from koordcore._cpsat import Program
from koordcore.descheduling.excess import permille, share
from koordcore.descheduling.moves import Movable, MoveProblem
from koordcore.model.pods import PodKey
from koordcore.model.resources import NO_RESOURCES, Resources


def add_pairs(
    program: Program, problem: MoveProblem, pods: Sequence[Movable], targets: Sequence[str]
) -> dict[tuple[PodKey, str], int]:
    """Add a variable for each pod and node that it may move to; each pod moves once, each group its most."""
    pairs: dict[tuple[PodKey, str], int] = {}
    moved: dict[PodKey, list[tuple[int, int]]] = {}
    for one in pods:
        own = moved.setdefault(one.pod, [])
        for target in targets:
            if target != one.node and problem.allows(one.pod, target):
                pairs[one.pod, target] = program.boolean()
                own.append((pairs[one.pod, target], 1))
        program.require(own, at_most=1)
    for group in problem.groups:
        inside = [term for pod in group.pods for term in moved.get(pod, ())]
        program.require(inside, at_most=max(0, group.most))
    return pairs


def bind_amounts(
    program: Program,
    problem: MoveProblem,
    pods: Sequence[Movable],
    pairs: Mapping[tuple[PodKey, str], int],
    hot: Collection[str] = (),
    slots: Mapping[str, int] | None = None,
    slot: Resources = NO_RESOURCES,
    serving: Mapping[str, int] = NO_RESOURCES,
) -> dict[str, int]:
    """Bind usage and requests of every node; gives the variable "stays hot" of each hot node.

    ``hot`` are the hot nodes that are to be cooled; any other may stay so, and then takes no pod.
    ``slots`` are variables that count, on some nodes, how many more requests of ``slot`` must fit there;
    ``serving`` has a boolean for each such node that is overdrawn, which is set where it counts any.
    """
    leaving: dict[str, list[tuple[Movable, int]]] = {}
    coming: dict[str, list[tuple[Movable, int]]] = {}
    movable = {one.pod: one for one in pods}
    for (pod, target), variable in pairs.items():
        leaving.setdefault(movable[pod].node, []).append((movable[pod], variable))
        coming.setdefault(target, []).append((movable[pod], variable))
    over = {}
    for host in problem.hosts:
        out, into = leaving.get(host.name, []), coming.get(host.name, [])
        stays: tuple[int, ...] = ()
        if host.name in hot:
            over[host.name] = program.boolean()
            stays = (over[host.name],)
            for _, variable in into if host.spared else ():
                program.require([(variable, 1), (over[host.name], 1)], at_most=1)
        for name, limit in host.high.items():
            terms = [(variable, -one.usage.get(name, 0)) for one, variable in out]
            terms += [(variable, one.usage.get(name, 0)) for one, variable in into]
            room = limit - host.usage.get(name, 0)
            if room >= 0 or stays:
                program.require(terms, at_most=room, unless=stays)
                continue
            # Nobody asks for this node to be cooled: it may stay hot, but then takes nobody.
            for _, variable in into:
                program.require(terms, at_most=room, when=(variable,))
        kept = (slots or {}).get(host.name)
        asked = {name for one, _ in into for name, amount in one.requests.items() if amount}
        for name in sorted(asked if kept is None else {*asked, *slot}):
            terms = [(variable, -one.requests.get(name, 0)) for one, variable in out]
            terms += [(variable, one.requests.get(name, 0)) for one, variable in into]
            if kept is not None:
                terms.append((kept, slot.get(name, 0)))
            free = host.allocatable.get(name, 0) - host.requested.get(name, 0)
            if free >= 0:
                program.require(terms, at_most=free)
                continue
            # A node that is overdrawn already may stay so, but then takes nothing that asks for it.
            for one, variable in into:
                if one.requests.get(name, 0):
                    program.require(terms, at_most=free, when=(variable,))
            if host.name in serving and slot.get(name, 0):
                program.require(terms, at_most=free, when=(serving[host.name],))
    return over


def add_excess(
    program: Program,
    problem: MoveProblem,
    pods: Sequence[Movable],
    pairs: Mapping[tuple[PodKey, str], int],
    hot: Collection[str],
) -> dict[tuple[str, str], int]:
    """Add a variable for each hot node and resource: by how much it stays above its limit, in permille."""
    movable = {one.pod: one for one in pods}
    terms: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for (pod, target), variable in pairs.items():
        for name, amount in movable[pod].usage.items():
            for node, sign in ((movable[pod].node, -1), (target, 1)):
                terms.setdefault((node, name), []).append((variable, sign * amount * 1000))
    excess = {}
    for host in problem.hosts:
        for name, limit in host.high.items() if host.name in hot else ():
            over = host.usage.get(name, 0) - limit
            moved = terms.get((host.name, name), [])
            most = over + sum(coefficient for _, coefficient in moved if coefficient > 0) // 1000
            if most <= 0:
                continue
            slack = program.integer(0, permille(host, name, most))
            program.require([*moved, (slack, -share(host, name))], at_most=-1000 * over)
            excess[host.name, name] = slack
    return excess
