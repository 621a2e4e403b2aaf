"""Members that a plan is made without, because no node is at fault for their refusal."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from koordcore.allocators.gang.demand import GangDemand, Role, rank_order
from koordcore.model.pods import PodKey
from koordcore.scheduling.gang_input import Denied


def without(demand: GangDemand, refused: Collection[PodKey]) -> GangDemand:
    """Take members out of a demand; what their roles need stays."""
    if not refused:
        return demand
    names = set(map(str, refused))
    roles = tuple(
        attrs.evolve(role, members=tuple(one for one in role.members if one.key not in names))
        for role in demand.roles
    )
    return attrs.evolve(demand, roles=roles)


def beyond(demand: GangDemand, denied: Denied) -> list[PodKey]:
    """List the members that go beyond a limit that took so many of their shape and no more.

    What the most roles need is kept, those first that need least; then the lowest ranks.
    """
    shape = next(one.shape for one in demand.members if one.key == str(denied.why.pod))
    before = set(map(str, denied.before))
    room = sum(one.shape == shape and one.key in before for one in demand.members)
    spare: list[str] = []
    kept: set[str] = set()
    for _, role in sorted(enumerate(demand.roles), key=lambda pair: (_least(pair[1], shape), pair[0])):
        own = [one.key for one in rank_order(role.members) if one.shape == shape]
        needed = _least(role, shape)
        if len(kept) + needed <= room:
            kept.update(own[:needed])
            spare += own[needed:]
    kept.update(spare[: room - len(kept)])
    return [_key(one.key) for one in demand.members if one.shape == shape and one.key not in kept]


def _least(role: Role, shape: int) -> int:
    """Count the members of a shape without which a role does not start."""
    own = sum(one.shape == shape for one in role.members)
    return min(own, max(0, role.min_available - (len(role.members) - own)))


def _key(name: str) -> PodKey:
    return PodKey(*name.split("/", 1))
