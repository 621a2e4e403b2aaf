"""Room that would do, held by reservations for others: whose it is."""

from __future__ import annotations

from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.resources import PODS, counted
from koordcore.reservations.cache import ReservationLedger


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
            found.append(f"fits only inside reservation {one.name}, which belongs to {one.owners_text}")
    return tuple(found)
