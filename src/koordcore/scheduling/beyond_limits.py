"""Members that a plan is made without, because no node is at fault for their refusal."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from koordcore.allocators.gang.demand import GangDemand, Limit, Role, rank_order
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.pods import PodKey
from koordcore.scheduling.gang_input import Denied, PlanningInput


def limits_of(plugins: PluginSet, inputs: PlanningInput) -> tuple[Limit, ...]:
    """Give what the members share beside the nodes, such as a quota, as it stands now."""
    found = []
    for budget in (one.budget() for one in plugins.deciding(inputs.members)):
        for taken, room in [] if budget is None else budget.left(inputs.pod_of):
            uses = {inputs.shape_of[key]: amount for key, amount in taken.items()}
            found.append(Limit(tuple(uses.get(shape, 0) for shape in range(len(inputs.classes))), room))
    return tuple(found)


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


def falls_short(demand: GangDemand) -> bool:
    """Tell whether fewer members are left than have to start together."""
    if demand.least > demand.size:
        return True
    every = not demand.units and demand.min_roles is None
    return every and any(len(role.members) < role.min_available for role in demand.roles)


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
