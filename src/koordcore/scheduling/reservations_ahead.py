"""A start that backfill keeps free, written down as Reservations."""

from __future__ import annotations

import attrs

from koordcore.model.reservations import (
    AllocatePolicy,
    ObjectReference,
    Reservation,
    ReservationOwner,
)
from koordcore.scheduling.backfilling import EarliestStart


def future_reservations(plan: EarliestStart) -> tuple[Reservation, ...]:
    """Write a start down as reservations, one for each pod, pinned to its node and used once by that pod.

    A controller creates them once the node's room is there, at the latest at ``plan.start``.
    """
    by_key = {pod.key: pod for pod in plan.pods}
    made = []
    for key in sorted(plan.nodes):
        pod = by_key[key]
        owner = ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid)
        made.append(
            Reservation(
                name=f"start-{pod.namespace}-{pod.name}",
                template=attrs.evolve(pod, node_name=plan.nodes[key]),
                template_priority=pod.priority,
                owners=(ReservationOwner(object=owner),),
                ttl=0,
                allocate_once=True,
                allocate_policy=AllocatePolicy.RESTRICTED,
                created=plan.start,
            )
        )
    return tuple(made)
