"""Pods that move, nodes that take them, and the limits that hold for a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields
from koordcore.model.pods import PodKey
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources

Allows: TypeAlias = Callable[[PodKey, str], bool]
"""Whether a pod may run on a node, apart from amounts: labels, taints, affinity, devices, topology."""


def anywhere(pod: PodKey, node: str) -> bool:
    """Allow every pod on every node."""
    return True


@names_its_fields
@record(kw_only=True)
class Movable:
    """A pod that may be moved.

    Parameters
    ----------
    pod, node
        Who and from where.
    requests, usage
        What goes with it (milli-CPU, bytes, counts).
    cost
        Price of moving it, at least 1.
    """

    pod: PodKey
    node: str
    requests: Resources = attrs.field(default=NO_RESOURCES, converter=make_resources)
    usage: Resources = attrs.field(default=NO_RESOURCES, converter=make_resources)
    cost: int = 1

    def __attrs_post_init__(self) -> None:
        if self.cost < 1:
            raise ModelError(f"moving {self.pod} must cost at least 1, not {self.cost}")


@names_its_fields
@record(kw_only=True)
class Host:
    """A node with all that runs on it, movable or not.

    Parameters
    ----------
    name
        Unique.
    requested, allocatable
        A node that takes a pod must end with requests within allocatable, in what the pod asks for.
    usage, high
        The node is hot while it uses more than ``high`` of something; a resource without a limit never
        makes it hot.
    spared
        A node that stays hot takes no pod. Where it may, a plan can give one node up to spare others.
    receives
        Pods may come here: by a move, or into the slots of a wanted shape.
    measured
        Its usage is known; where it is not, nobody knows whether the node is hot.
    leaving
        Pods that leave it without this plan; ``usage`` is what is left then.
    """

    name: str
    requested: Resources = attrs.field(default=NO_RESOURCES, converter=make_resources)
    allocatable: Resources = attrs.field(default=NO_RESOURCES, converter=make_resources)
    usage: Resources = attrs.field(default=NO_RESOURCES, converter=make_resources)
    high: Resources = attrs.field(default=NO_RESOURCES, converter=make_resources)
    spared: bool = False
    receives: bool = True
    measured: bool = True
    leaving: tuple[PodKey, ...] = ()


@names_its_fields
@record
class Group:
    """Pods of which at most so many may be moved: a workload, a gang, a disruption budget, a node."""

    name: str
    pods: tuple[PodKey, ...]
    most: int


@names_its_fields
@record(kw_only=True)
class MoveProblem:
    """Everything that a planner of moves looks at.

    Parameters
    ----------
    hosts, movable
        By name and by key.
    groups
        Limits on what a plan moves in all.
    at_once
        Limits on what is on its way at any moment, each at least 1.
    allows
        Where a pod may run.
    """

    hosts: tuple[Host, ...]
    movable: tuple[Movable, ...]
    groups: tuple[Group, ...] = ()
    at_once: tuple[Group, ...] = ()
    allows: Allows = anywhere

    def __attrs_post_init__(self) -> None:
        names = {host.name for host in self.hosts}
        if len(names) < len(self.hosts):
            raise ModelError("two hosts have the same name")
        if len({one.pod for one in self.movable}) < len(self.movable):
            raise ModelError("a pod stands twice among the movable ones")
        for group in self.at_once:
            if group.most < 1:
                raise ModelError(f"{group.name}: a limit of {group.most} at once lets nothing move")
        for one in self.movable:
            if one.node not in names:
                raise ModelError(f"{one.pod} is on {one.node}, which is not among the hosts")


def hot_hosts(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """List the hosts that use more of something than they should."""
    return tuple(host for host in hosts if _excess(host.usage, host.high))


def _excess(usage: Mapping[str, int], high: Mapping[str, int]) -> dict[str, int]:
    return {name: usage.get(name, 0) - limit for name, limit in high.items() if usage.get(name, 0) > limit}


def fewest_leaving(amounts: Sequence[Mapping[str, int]], excess: Mapping[str, int]) -> int | None:
    """Bound from below how many pods must go so that an excess goes with them.

    The bound is the largest over single resources and over the sum of all, each pod counting at most the
    whole excess of a resource; it is exact for one resource.

    Returns
    -------
    int or None
        ``None`` when all of them together are not enough.
    """
    if not excess:
        return 0
    count = 0
    for name, needed in excess.items():
        reached = _reach(sorted((one.get(name, 0) for one in amounts), reverse=True), needed)
        if reached is None:
            return None
        count = max(count, reached)
    if len(excess) > 1:
        scale = 1
        for needed in excess.values():
            scale *= needed
        joint = [
            sum(min(one.get(name, 0), needed) * (scale // needed) for name, needed in excess.items())
            for one in amounts
        ]
        reached = _reach(sorted(joint, reverse=True), scale * len(excess))
        count = max(count, reached or 0)
    return count


def _reach(descending: Sequence[int], needed: int) -> int | None:
    total = 0
    for count, amount in enumerate(descending, 1):
        total += amount
        if total >= needed:
            return count
    return None


_MOST_SETS: Final = 20_000
_MOST_PODS: Final = 24
"""Beyond these a node's sets of pods are not looked through any further."""


def covering_sets(
    pods: Sequence[Movable], amounts: Sequence[Mapping[str, int]], excess: Mapping[str, int]
) -> Iterable[tuple[Movable, ...]]:
    """Give sets of pods that take an excess away, small ones first, cheap ones first among equals.

    Parameters
    ----------
    pods, amounts
        Candidates, and what goes with each.
    excess
        What must go.
    """
    least = fewest_leaving(amounts, excess)
    if least is None:
        return
    useful = sorted(
        range(len(pods)),
        key=lambda index: (
            -sum(min(amounts[index].get(name, 0) * 1000 // over, 1000) for name, over in excess.items()),
            pods[index].cost,
            pods[index].pod,
        ),
    )[:_MOST_PODS]
    seen = 0
    for count in range(least, len(useful) + 1):
        found = []
        for chosen in combinations(useful, count):
            seen += 1
            if seen > _MOST_SETS:
                break
            if all(
                sum(amounts[index].get(name, 0) for index in chosen) >= over for name, over in excess.items()
            ):
                found.append(chosen)
        found.sort(key=lambda chosen: sum(pods[index].cost for index in chosen))
        yield from (tuple(pods[index] for index in chosen) for chosen in found)
        if seen > _MOST_SETS:
            return


def cheapest_cover(
    pods: Sequence[Movable], amounts: Sequence[Mapping[str, int]], excess: Mapping[str, int], count: int
) -> int:
    """Bound from below what so many pods cost that take an excess away.

    Exact where all sets of that size are looked through; else the cheapest pods, whether they cover or not.
    """
    if len(pods) <= _MOST_PODS and comb(len(pods), count) <= _MOST_SETS:
        first = next(iter(covering_sets(pods, amounts, excess)), ())
        if len(first) == count:
            return sum(one.cost for one in first)
    return sum(sorted(one.cost for one in pods)[:count])
