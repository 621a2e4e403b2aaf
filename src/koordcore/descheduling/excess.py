"""By how much a node is above its limits, in permille of what it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordcore.descheduling.moves import Host, MoveProblem
from koordcore.model.pods import PodKey


def share(host: Host, name: str) -> int:
    """Give what the permille of a resource are taken of: what the node has, at least 1."""
    # What prod pods use of a resource is an amount of its own, of the same resource.
    there = host.allocatable.get(name.rpartition(" ")[2], 0)
    return max(1, there or host.high.get(name, 0))


def permille(host: Host, name: str, amount: int) -> int:
    """Give an amount above a limit in permille, rounded up; 0 for none."""
    return max(0, -(-1000 * amount // share(host, name)))


def excess_after(
    problem: MoveProblem, hot: Sequence[Host], targets: Mapping[PodKey, str]
) -> dict[tuple[str, str], int]:
    """Give what is left of the excess of hot nodes once some pods have moved, by node and resource."""
    usage = {host.name: dict(host.usage) for host in hot}
    for one in problem.movable:
        target = targets.get(one.pod)
        if target is None:
            continue
        for node, sign in ((one.node, -1), (target, 1)):
            if node in usage:
                for name, amount in one.usage.items():
                    usage[node][name] = usage[node].get(name, 0) + sign * amount
    return {
        (host.name, name): over
        for host in hot
        for name, limit in host.high.items()
        if (over := permille(host, name, usage[host.name].get(name, 0) - limit))
    }
