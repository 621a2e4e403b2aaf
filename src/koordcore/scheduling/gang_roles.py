"""The roles of a job: its gangs, or the parts of them that have a minimum and a place of their own."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice, product
from typing import Any, Final

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import IntVector
from koordcore._record import record
from koordcore.allocators.gang.demand import Member, Quorum, Role, Unit
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.gang_groups import Job, rank_of
from koordcore.topology.network import NODE_LAYER, NetworkTopology

MOST_CHOICES: Final = 256
"""Choices of parts of a gang that are looked at, and of gangs of a group."""


@record(kw_only=True)
class JobPart:
    """Members of a job that need a minimum of their own.

    Parameters
    ----------
    name
        Id of the gang, with the part's name behind a colon where the gang has parts.
    gang
        Id of the gang.
    entry
        Position of the part's entry among those of its gang; -1 where the gang has no parts, and for members
        that belong to none of them.
    pods
        Members that wait.
    least
        How many of them have to be placed.
    started
        It has its minimum already.
    spec
        What binds them beside the wish of the whole job; ``None`` for nothing.
    nodes
        Nodes of the members that run, one entry each.
    """

    name: str
    gang: str
    entry: int
    pods: tuple[Pod, ...]
    least: int
    started: bool
    spec: NetworkTopologySpec | None
    nodes: tuple[str, ...]

    def started_with(self, there: Mapping[PodKey, str]) -> bool:
        """Tell whether it has its minimum with those who have a place now."""
        return sum(pod.key in there for pod in self.pods) >= self.least


@record(kw_only=True)
class Roles:
    """How the planner takes the parts of a job; see :class:`koordcore.allocators.gang.demand.GangDemand`."""

    roles: tuple[Role, ...]
    units: tuple[Unit, ...] = ()
    quorums: tuple[Quorum, ...] = ()


def parts_of(job: Job) -> list[JobPart]:
    """List the parts of a job, gang after gang."""
    return list(chain.from_iterable(_of_gang(job, gang) for gang in job.members))


def _of_gang(job: Job, gang: str) -> Iterator[JobPart]:
    own, least = job.own_specs.get(gang), job.least(gang)
    if gang not in job.parts:
        yield JobPart(
            name=gang,
            gang=gang,
            entry=-1,
            pods=job.members[gang],
            least=least,
            started=least <= 0,
            spec=own,
            nodes=job.bound[gang],
        )
        return
    waiting = {pod.key for pod in job.members[gang]}
    groups = job.gangs[gang].sub_groups
    assert groups is not None, "only gangs with parts have parts"
    for part in job.parts[gang]:
        wait = tuple(pod for pod in part.members if pod.key in waiting)
        needed = max(0, part.least - (len(part.members) - len(wait)))
        started = job.repaired(gang) or (part.entry >= 0 and needed <= 0)
        yield JobPart(
            name=f"{gang}:{part.name}" if part.name else f"{gang}:",
            gang=gang,
            entry=part.entry,
            pods=wait,
            least=0 if started else needed,
            started=started,
            spec=groups.entries[part.entry].spec if part.entry >= 0 else None,
            nodes=tuple(job.there[pod.key] for pod in part.members if pod.key in job.there),
        )


def with_hope(job: Job, hopeless: Container[PodKey]) -> Job:
    """Leave out members that are refused whoever leaves: others may be enough."""

    def able(pods: Iterable[Pod]) -> tuple[Pod, ...]:
        return tuple(pod for pod in pods if pod.key not in hopeless)

    parts = {
        gang: tuple(attrs.evolve(part, members=able(part.members)) for part in ones)
        for gang, ones in job.parts.items()
    }
    return attrs.evolve(job, members={gang: able(pods) for gang, pods in job.members.items()}, parts=parts)


def with_places(job: Job, there: Mapping[PodKey, str]) -> Job:
    """Count waiting members that have a place now as if they ran there."""
    came = {
        gang: (*job.bound[gang], *(there[pod.key] for pod in pods if pod.key in there))
        for gang, pods in job.members.items()
    }
    return attrs.evolve(job, bound={**job.bound, **came}, there={**job.there, **there})


def missing_members(job: Job) -> Iterator[tuple[JobPart, Pod]]:
    """List who of gangs that have started is missing from their minimum, each with its part."""
    missing = {gang: job.gangs[gang].min_available - len(job.bound[gang]) for gang in job.members}
    for part in parts_of(job):
        for pod in part.pods:
            if missing[part.gang] > 0:
                missing[part.gang] -= 1
                yield part, pod


def needed_parts(job: Job, *, everybody: bool = False) -> Iterator[list[JobPart]]:
    """List in turn the parts that room may be made for: all, or some that are enough; nothing for too few.

    The first choice is of those that need nobody more, else of the first ones; it comes twice. Where the
    parts of a gang need fewer members than the gang does, the first of them get what is missing.

    Parameters
    ----------
    everybody
        Take all parts, also where fewer would do.
    """
    parts = parts_of(job)
    optional = job.optional and not everybody
    most = job.optional + len(job.free) if optional else len(job.members)
    able = []
    for gang in job.members:
        choices = _enough_of(job, gang, [part for part in parts if part.gang == gang], everybody=everybody)
        first = next(choices, None)
        if first is not None:
            able.append((gang, first))
    if optional:
        able.sort(key=lambda one: any(part.least for part in one[1]))  # keeps the order of equals
    if len(able) < most:
        return
    yield list(chain.from_iterable(first for _, first in able[:most]))  # others are seldom asked for
    gangs = [gang for gang, _ in able]
    # Fewer do whatever more do, but where they come in multiples.
    sizes = range(most, len(able) + 1) if optional and _in_multiples(job) else (most,)
    for some in islice(chain.from_iterable(combinations(gangs, size) for size in sizes), MOST_CHOICES):
        ones = [[part for part in parts if part.gang == gang] for gang in some]
        chosen = [
            list(islice(_enough_of(job, gang, own, everybody=everybody), MOST_CHOICES))
            for gang, own in zip(some, ones, strict=True)
        ]
        for choice in product(*chosen):
            yield list(chain.from_iterable(choice))


def _enough_of(job: Job, gang: str, parts: list[JobPart], *, everybody: bool) -> Iterator[list[JobPart]]:
    """List in turn the parts of a gang that are enough of it; nothing where not enough can start."""
    able = [part for part in parts if len(part.pods) >= part.least]
    groups = job.gangs[gang].sub_groups
    if everybody or gang not in job.parts or groups is None or job.repaired(gang):
        if len(able) == len(parts):
            yield able
        return
    entries = []
    for number, entry in enumerate(groups.entries):
        ones = sorted((part for part in able if part.entry == number), key=_needs)
        count = entry.min_replicas or sum(part.entry == number for part in parts)
        if len(ones) >= max(1, count):
            entries.append((count, ones))
    entries.sort(key=lambda one: any(map(_needs, one[1][: one[0]])))
    for needed in combinations(entries, groups.least or len(groups.entries)):
        for some in product(*(islice(combinations(ones, count), MOST_CHOICES) for count, ones in needed)):
            first = list(chain.from_iterable(some))
            rest = [part for _, ones in entries for part in ones if part not in first]
            found = _filled(parts, first, [part for part in able if part.entry < 0], rest, job.least(gang))
            if found is not None:
                yield found


def _in_multiples(job: Job) -> bool:
    """Tell whether members come in multiples per domain of the network."""
    return any(spec is not None and spec.multiples for spec in (job.spec, *job.own_specs.values()))


def _needs(part: JobPart) -> bool:
    return part.least > 0


def _filled(
    parts: list[JobPart], first: list[JobPart], free: list[JobPart], rest: list[JobPart], least: int
) -> list[JobPart] | None:
    """Let some parts place as many members as a gang needs; ``None`` where they have too few."""
    chosen = {part.name: part.least for part in (*first, *free)}
    missing = least - sum(chosen.values())
    for part in (*free, *first, *rest):  # who is free is most easily placed
        own = chosen.get(part.name, 0)
        more = min(max(0, missing), len(part.pods) - own)
        missing -= more
        if more:
            chosen[part.name] = max(part.least, own + more)
    if missing > 0:
        return None
    return [attrs.evolve(part, least=chosen[part.name]) for part in parts if part.name in chosen]


def roles_of(job: Job, tree: NetworkTopology, shape_of: Mapping[str, int]) -> Roles:
    """Write the parts of a job as roles; with units where not all of them have to start."""
    parts = parts_of(job)
    held = [gang for gang in job.parts if gang in job.own_specs]
    plain = not (job.optional or held or any(_some(job, gang) for gang in job.parts))
    roles = tuple(
        Role(
            name=part.name,
            members=tuple(
                Member(key, shape_of[key], rank_of(pod))
                for key, pod in zip(map(str, (one.key for one in part.pods)), part.pods, strict=True)
                if key in shape_of
            ),
            min_available=part.least,
            started=part.started and not plain,
            **_own_rules(part, tree),
        )
        for part in parts
    )
    if plain:
        return Roles(roles=roles, quorums=tuple(_quorums(job, parts, {})))
    return _with_units(job, parts, roles, tree)


def with_ties(found: Roles, ties: Sequence[frozenset[str]]) -> Roles:
    """Split roles so that members that have to be on one node are roles of their own.

    A role that is bound to a domain of its own is left as it is: whoever binds its plan finds out. So is one
    that needs more members than it has, which cannot start.

    Parameters
    ----------
    ties
        Keys of the members that have to be on one node.
    """
    if not ties:
        return found
    roles: list[Role] = []
    quorums: list[Quorum] = []
    places: list[tuple[int, ...]] = []
    for role in found.roles:
        parts = [role]
        short = role.min_available > len(role.members)
        if not (short or role.must_layer or role.multiples or len(role.home)):
            parts = list(_split(role, ties))
        places.append(tuple(range(len(roles), len(roles) + len(parts))))
        roles += parts
        if len(parts) > 1 and 0 < role.min_available < len(role.members):
            quorums.append(Quorum(roles=places[-1], least=role.min_available, unit=role.unit))
    moved = [
        attrs.evolve(one, roles=tuple(chain.from_iterable(places[number] for number in one.roles)))
        for one in found.quorums
    ]
    return Roles(roles=tuple(roles), units=found.units, quorums=(*moved, *quorums))


def _split(role: Role, ties: Sequence[frozenset[str]]) -> Iterator[Role]:
    every = role.min_available == len(role.members)
    tied: set[str] = set()
    for number, keys in enumerate(ties):
        members = tuple(one for one in role.members if one.key in keys)
        if len(members) > 1:
            tied |= keys
            whole = len(members) == len(role.members)
            least = len(members) if every else role.min_available if whole else 0
            name = f"{role.name}~{number}"
            yield attrs.evolve(role, name=name, members=members, min_available=least, must_layer=NODE_LAYER)
    rest = tuple(one for one in role.members if one.key not in tied)
    if rest or not tied:
        least = len(rest) if every else 0 if tied else role.min_available
        yield attrs.evolve(role, members=rest, min_available=least)


def _some(job: Job, gang: str) -> bool:
    """Tell whether not all parts of a gang have to start."""
    groups = job.gangs[gang].sub_groups
    if groups is None or job.repaired(gang):
        return False
    numbers = [sum(part.entry == number for part in job.parts[gang]) for number in range(len(groups.entries))]
    fewer = any(0 < one.min_replicas != number for one, number in zip(groups.entries, numbers, strict=True))
    return fewer or 0 < groups.least < len(groups.entries) or 0 in numbers


def _with_units(job: Job, parts: list[JobPart], roles: tuple[Role, ...], tree: NetworkTopology) -> Roles:
    """Make a group of every gang, and of every entry of parts that has several."""
    gangs = list(job.members)
    # One that nobody lists is no success of the others.
    units = [Unit(name=job.name, least=job.optional + len(job.free) if job.optional else len(gangs))]
    home: dict[tuple[str, int], int] = {}
    of_gang: dict[str, int] = {}
    for gang in gangs:
        groups = job.gangs[gang].sub_groups
        if gang not in job.parts or groups is None:
            home[gang, -1] = 0
            continue
        own = of_gang[gang] = len(units)
        free = any(part.gang == gang and part.entry < 0 for part in parts)
        entries = len(groups.entries)
        least = 0 if job.repaired(gang) else groups.least or entries
        units.append(Unit(name=gang, least=least + free, parent=0, **_home(job, gang, tree)))
        home[gang, -1] = own
        for number, entry in enumerate(groups.entries):
            several = sum(part.gang == gang and part.entry == number for part in parts)
            if not (entry.by or entry.size):
                home[gang, number] = own
                continue
            home[gang, number] = len(units)
            needed = 0 if job.repaired(gang) else entry.min_replicas or max(1, several)
            units.append(Unit(name=f"{gang}:{entry.name}", least=needed, parent=own))
    placed = tuple(
        attrs.evolve(
            role,
            unit=home[part.gang, part.entry],
            started=role.started or (part.entry < 0 and part.gang in job.parts),
        )
        for part, role in zip(parts, roles, strict=True)
    )
    return Roles(roles=placed, units=tuple(units), quorums=tuple(_quorums(job, parts, of_gang)))


def _home(job: Job, gang: str, tree: NetworkTopology) -> dict[str, Any]:
    """Give the domains one of which all parts of a gang share, and the multiples that they come in."""
    spec = job.own_specs.get(gang)
    if spec is None:
        return {}
    bound, layer = per_node(tree, job.bound[gang]), spec.must_layer(tree.layers)
    found = {"multiples": immutabledict(spec.multiples), "bound": bound}
    if not layer:
        return found
    depth = tree.depth_of(layer)
    if depth is None:
        return {**found, "home": np.full(len(tree.nodes), -1, dtype=np.int64)}
    home = tree.ancestors[depth] - tree.layer_start[depth]
    used = home[np.flatnonzero(bound)]
    return {**found, "home": home, "fixed": int(used[0]) if len(used) else -1}


def _quorums(job: Job, parts: list[JobPart], of_gang: Mapping[str, int]) -> Iterator[Quorum]:
    """The minimum of a gang holds over all its parts, where theirs do not come to as many."""
    for gang in job.parts:
        mine = [number for number, part in enumerate(parts) if part.gang == gang]
        least = job.least(gang)
        if least > sum(parts[number].least for number in mine) or (gang in of_gang and least > 0):
            yield Quorum(roles=tuple(mine), least=least, unit=of_gang.get(gang, -1))


def _own_rules(part: JobPart, tree: NetworkTopology) -> dict[str, Any]:
    """Give what binds the members of one part beside the wish of the job."""
    if part.spec is None:
        return {}
    return {
        "must_layer": part.spec.must_layer(tree.layers),
        "multiples": immutabledict(part.spec.multiples),
        "bound": per_node(tree, part.nodes),
    }


def per_node(tree: NetworkTopology, nodes: Iterable[str]) -> IntVector:
    """Count entries per node of the tree, shape (nodes,)."""
    counts = np.zeros(len(tree.nodes), np.int64)
    for node in nodes:
        if node in tree.node_index:
            counts[tree.node_index[node]] += 1
    return counts


def counts_beyond_amounts(plugins: PluginSet, pods: Sequence[Pod]) -> bool:
    """Tell of equal members whether cards or CPUs of one may be what another needs, and not only amounts."""
    classes = (plugins.class_of(pod) for pod in pods[:1])
    return any(isinstance(one, SchedulingClass) and one.counts_beyond_amounts for one in classes)
