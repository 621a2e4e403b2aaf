"""Small clusters with reservations."""

from __future__ import annotations

from typing import Any

from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.reservations import (
    AllocatePolicy,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.reservation import RESERVATION_AFFINITY, RESERVATION_ALLOCATED, RESERVATION_IGNORED

GIB = 2**30
POLICY = Policy().with_plugin(PluginSetting(name="Reservation", weight=5000))
DAY = 24 * 3600 * 10**9


def node(name: str, cpu: int = 8, **amounts: int) -> Node:
    """A node with CPUs, 32 GiB and 110 pods."""
    return Node(name=name, allocatable={"cpu": 1000 * cpu, "memory": 32 * GIB, "pods": 110, **amounts})


def pod(name: str, cpu: int, app: str = "", **fields: Any) -> Pod:
    """A pod that asks for CPUs."""
    labels = {"app": app} if app else {}
    return Pod(
        name=name,
        uid=f"uid-{name}",
        requests={"cpu": 1000 * cpu, **fields.pop("amounts", {})},
        labels={**labels, **fields.pop("labels", {})},
        **fields,
    )


def must(text: str = "{}") -> dict[str, str]:
    """Annotations of a pod that has to use a reservation."""
    return {RESERVATION_AFFINITY: text}


def uses(name: str) -> dict[str, str]:
    """Annotations of a pod that uses a reservation."""
    return {RESERVATION_ALLOCATED: f'{{"name":"{name}","uid":"uid-{name}"}}'}


IGNORES = {RESERVATION_IGNORED: "true"}


def reservation(
    name: str,
    cpu: int,
    on: str = "",
    app: str = "a",
    policy: AllocatePolicy = AllocatePolicy.ALIGNED,
    **fields: Any,
) -> Reservation:
    """A reservation of CPUs; available where a node is given, and pending otherwise."""
    amounts = {"cpu": 1000 * cpu, **fields.pop("amounts", {})}
    phase = ReservationPhase.AVAILABLE if on else ReservationPhase.PENDING
    return Reservation(
        name=name,
        uid=f"uid-{name}",
        template=Pod(name=name, requests=amounts),
        ttl=DAY,
        allocate_policy=policy,
        status=ReservationStatus(phase=phase, node_name=on, allocatable=amounts if on else None),
        **{
            "allocate_once": False,
            "owners": (ReservationOwner(selector=LabelSelector({"app": app})),),
            **fields,
        },
    )
