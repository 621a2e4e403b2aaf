"""Every assignment of pods to nodes, tried: what the planners of moves must reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from koordcore.descheduling.defrag import Wanted
from koordcore.descheduling.moves import MoveProblem
from koordcore.model.pods import PodKey


def assignments(problem: MoveProblem) -> Iterator[dict[PodKey, str]]:
    """Give every legal set of moves, all carried out together."""
    receiving = [host.name for host in problem.hosts if host.receives]
    choices = [
        [one.node, *(t for t in receiving if t != one.node and problem.allows(one.pod, t))]
        for one in problem.movable
    ]
    for places in product(*choices):
        moved = {
            one.pod: place for one, place in zip(problem.movable, places, strict=True) if place != one.node
        }
        if within(problem, moved) and fits(problem, moved) and heats_nobody(problem, moved):
            yield moved


def within(problem: MoveProblem, moved: Mapping[PodKey, str]) -> bool:
    """Tell whether no group loses more than it may."""
    return all(sum(pod in moved for pod in group.pods) <= max(0, group.most) for group in problem.groups)


def amounts(problem: MoveProblem, moved: Mapping[PodKey, str], kind: str) -> dict[str, dict[str, int]]:
    """Sum requests or usage per node after the moves."""
    start = {host.name: dict(host.requested if kind == "requests" else host.usage) for host in problem.hosts}
    for one in problem.movable:
        if one.pod in moved:
            for name, amount in (one.requests if kind == "requests" else one.usage).items():
                for node, sign in ((one.node, -1), (moved[one.pod], 1)):
                    start[node][name] = start[node].get(name, 0) + sign * amount
    return start


def fits(problem: MoveProblem, moved: Mapping[PodKey, str]) -> bool:
    """Tell whether each node that takes a pod has what that pod asks for."""
    after = amounts(problem, moved, "requests")
    hosts = {host.name: host for host in problem.hosts}
    return all(
        after[moved[one.pod]].get(name, 0) <= hosts[moved[one.pod]].allocatable.get(name, 0)
        for one in problem.movable
        if one.pod in moved
        for name, amount in one.requests.items()
        if amount
    )


def hot(problem: MoveProblem, moved: Mapping[PodKey, str]) -> set[str]:
    """Name the hot nodes after the moves."""
    after = amounts(problem, moved, "usage")
    return {
        host.name
        for host in problem.hosts
        if any(after[host.name].get(name, 0) > limit for name, limit in host.high.items())
    }


def heats_nobody(problem: MoveProblem, moved: Mapping[PodKey, str]) -> bool:
    """Tell whether no node becomes hot, and none that is spared takes a pod and stays so."""
    staying, spared = hot(problem, moved), {host.name for host in problem.hosts if host.spared}
    return staying <= hot(problem, {}) and not staying & spared & {*moved.values()}


def excess(problem: MoveProblem, moved: Mapping[PodKey, str]) -> int:
    """Add up by how many permille, rounded up, the nodes that were hot are above their limits."""
    after, before = amounts(problem, moved, "usage"), hot(problem, {})
    found = 0
    for host in problem.hosts:
        for name, limit in host.high.items() if host.name in before else ():
            there = host.allocatable.get(name.split()[-1], 0) or limit
            found += max(0, -((-1000 * (after[host.name].get(name, 0) - limit)) // max(1, there)))
    return found


def fewest_to_cool(problem: MoveProblem) -> tuple[int, int, int, int]:
    """Give the least hot nodes, excess, moves, cost."""
    costs = {one.pod: one.cost for one in problem.movable}
    return min(
        (len(hot(problem, moved)), excess(problem, moved), len(moved), sum(costs[pod] for pod in moved))
        for moved in assignments(problem)
    )


def fewest_to_fit(problem: MoveProblem, wanted: Wanted) -> tuple[int, int, int]:
    """Give the least missing slots, moves, cost."""
    costs = {one.pod: one.cost for one in problem.movable}
    best = (wanted.count, 0, 0)
    names = set(wanted.blocks.values()) if wanted.blocks else {""}
    for moved in assignments(problem):
        after = amounts(problem, moved, "requests")
        for block in names:
            slots = 0
            for host in problem.hosts:
                if not host.receives or (wanted.blocks and wanted.blocks.get(host.name) != block):
                    continue
                count = min(
                    max(0, host.allocatable.get(name, 0) - after[host.name].get(name, 0)) // amount
                    for name, amount in wanted.requests.items()
                    if amount
                )
                count = min(count, wanted.at_most.get(host.name, count))
                slots += count if wanted.per_node is None else min(count, wanted.per_node)
            price = (max(0, wanted.count - slots), len(moved), sum(costs[pod] for pod in moved))
            best = min(best, price)
    return best
