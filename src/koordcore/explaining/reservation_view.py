"""The reservations of a node as the debug endpoint of upstream's Reservation plugin shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from koordcore.model.pods import HostPort, Pod
from koordcore.model.reservations import Reservation, ReservationOwner
from koordcore.model.resources import format_resources
from koordcore.model.selectors import LabelSelector
from koordcore.reservations.state import (
    ReservationState,
    owners_of,
    reservation_state,
    uid_of,
    used_reservations,
)
from koordcore.snapshot import ClusterSnapshot


def reservation_view(snapshot: ClusterSnapshot, name: str) -> dict[str, Any]:
    """Show the reservations that hold room on a node: ``…/Reservation/nodeReservations/:node``.

    Amounts are quantities, by resource. ``availableResource`` is what further users may draw,
    ``allocatedResource`` what the present ones ask for. Ports are listed, since a table keyed by them cannot
    be written as JSON.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    snapshot.node(name)
    here = [one for one in snapshot.of(Reservation) if one.active and one.status.node_name == name]
    users = used_reservations(snapshot.node(name).pods) if here else {}
    return {"items": [_item(one, owners_of(one, users)) for one in here]}


def _item(one: Reservation, pods: tuple[Pod, ...]) -> dict[str, Any]:
    state = reservation_state(one, pods)
    return {
        "name": one.name,
        "namespace": one.namespace,
        "uid": one.uid,
        "kind": "Reservation",
        "available": one.available,
        "allocateOnce": one.allocate_once,
        "allocatable": format_resources(state.allocatable),
        "reserved": format_resources(state.reserved),
        "allocated": format_resources(state.allocated),
        "allocatablePorts": _ports(() if one.template is None else one.template.host_ports),
        "allocatedPorts": _ports(port for used in state.assigned for port in used.ports),
        "availableResource": format_resources(state.available),
        "allocatedResource": format_resources(state.allocated),
        "owners": [_owner(term) for term in one.owners],
        "allocatePolicy": str(one.allocate_policy),
        "assignedPods": _assigned(state, pods),
    }


def _assigned(state: ReservationState, pods: tuple[Pod, ...]) -> list[dict[str, Any]]:
    by_uid = {uid_of(pod): pod for pod in pods}
    return [
        {
            "Namespace": by_uid[used.uid].namespace,
            "Name": by_uid[used.uid].name,
            "UID": used.uid,
            "Requests": format_resources(used.requests),
            "Ports": _ports(used.ports),
        }
        for used in sorted(state.assigned, key=lambda one: by_uid[one.uid].key)
    ]


def _ports(ports: Iterable[HostPort]) -> list[dict[str, Any]]:
    distinct = {(one.ip, one.protocol, one.port) for one in ports}
    return [{"hostIP": ip, "protocol": protocol, "port": port} for ip, protocol, port in sorted(distinct)]


def _owner(term: ReservationOwner) -> dict[str, Any]:
    view: dict[str, Any] = {}
    for key, reference in (("object", term.object), ("controller", term.controller)):
        if reference is not None:
            fields = attrs.asdict(reference)
            view[key] = {_camel(name): value for name, value in fields.items() if value not in ("", None)}
    if term.selector is not None:
        view["labelSelector"] = _selector(term.selector)
    return view


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _selector(selector: LabelSelector) -> dict[str, Any]:
    view: dict[str, Any] = {}
    if selector.match_labels:
        view["matchLabels"] = dict(sorted(selector.match_labels.items()))
    if selector.requirements:
        view["matchExpressions"] = [
            {"key": one.key, "operator": str(one.operator), "values": list(one.values)}
            for one in selector.requirements
        ]
    return view
