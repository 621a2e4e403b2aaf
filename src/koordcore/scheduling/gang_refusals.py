"""Why gangs that start together may not start at all, whatever their members ask for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from koordcore.allocators.gang.cycle import NO_TOPOLOGY
from koordcore.allocators.gang.state import GangRecord, worth_requeue
from koordcore.model.gangs import Gang


def needs_network(gang: Gang) -> bool:
    """Tell whether the wish of members for their places is about more than nodes."""
    spec = gang.topology_spec
    return (spec is not None and spec.needs_network) or (
        gang.sub_groups is not None and gang.sub_groups.gathered
    )


def gathered(gang: Gang) -> bool:
    """Tell whether members have a wish for their places."""
    return gang.topology_spec is not None or (gang.sub_groups is not None and gang.sub_groups.gathered)


def fewest_gangs(gangs: Iterable[Gang]) -> int:
    """Give how many gangs have to start; 0 for all, as where they do not all list the same ones."""
    known = [gang for gang in gangs if gang.initialised]
    lists = {frozenset(gang.group) for gang in known}
    if len(lists) != 1:
        return 0
    least = max(gang.min_groups for gang in known)
    return least if least < len(*lists) else 0


def refused_as_group(
    gangs: Mapping[str, Gang],
    starting: Collection[str],
    needed: Collection[str],
    records: Mapping[str, GangRecord],
    least: int,
    *,
    topology_known: bool,
) -> str | None:
    """Say why a group of gangs may not start; ``None`` where each gang says that for itself.

    Parameters
    ----------
    gangs
        Those that start together, and those that they wait for.
    starting
        The former.
    needed
        Gangs that others, or they themselves, list.
    records
        How far each gang has come.
    least
        How many of them have to start; 0 for all.
    topology_known
        There is a network.
    """
    malformed = next((gangs[name].malformed for name in starting if gangs[name].malformed), "")
    if malformed:
        return malformed
    if least:
        ready = sum(worth_requeue(records[name]) for name in gangs if name in needed and name in records)
        if ready < least:
            return f"{ready} of at least {least} gangs have members enough"
        if topology_known:
            return ""
    specs = [gang.topology_spec for gang in gangs.values() if gang.topology_spec is not None]
    parts = [gang.sub_groups for gang in gangs.values() if gang.sub_groups is not None]
    binds = any(spec.binds for spec in specs) or any(one.gathered for one in parts)
    if not topology_known and binds:
        return NO_TOPOLOGY  # also to members of a gang that has started
    return None
