"""Room that would do, held by reservations for others: whose it is."""

from __future__ import annotations

from koordcore._workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation, ReservationOwner
from koordcore.model.resources import PODS, counted
from koordcore.schedule.reserved import ReservationLedger

__all__ = ["describe_owners", "reserved_room"]


def reserved_room(workspace: Workspace, pod: Pod, row: int) -> tuple[str, ...]:
    """Name the reservations of a node with whose room the pod would fit there, and whom they belong to.

    Only amounts are looked at; whether the pod is an owner is not.
    """
    ledger = workspace.once(ReservationLedger)
    index = workspace.layout.index
    asked = {
        name: amount for name, amount in pod.requests.items() if amount > 0 and name != PODS and counted(name)
    }
    if any(name not in index for name in asked):
        return ()
    free = {name: int(workspace.free[index[name], row]) for name in asked}
    if all(amount <= free[name] for name, amount in asked.items()):
        return ()
    found = []
    for number in ledger.by_row.get(row, ()):
        if not ledger.open[number]:
            continue
        left = ledger.states[number].available
        if all(amount <= free[name] + left.get(name, 0) for name, amount in asked.items()):
            one = ledger.states[number].reservation
            found.append(f"fits only inside reservation {one.name}, which belongs to {describe_owners(one)}")
    return tuple(found)


def describe_owners(one: Reservation) -> str:
    """Say in a few words whom a reservation is for: ``app=demo``."""
    return " or ".join(map(_term, one.owners)) or "nobody"


def _term(term: ReservationOwner) -> str:
    parts = []
    if term.object is not None:
        name = "/".join(part for part in (term.object.namespace, term.object.name) if part)
        parts.append(f"pod {name or term.object.uid}")
    if term.controller is not None:
        asked = term.controller
        parts.append(f"pods of {' '.join(part for part in (asked.kind, asked.name or asked.uid) if part)}")
    if term.selector is not None:
        parts += [f"{key}={value}" for key, value in sorted(term.selector.match_labels.items())]
        parts += [
            " ".join((str(one.key), str(one.operator), ",".join(one.values))).strip()
            for one in term.selector.requirements
        ]
    return ", ".join(parts) or "everybody"
