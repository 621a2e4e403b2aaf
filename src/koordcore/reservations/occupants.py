"""Room that would do, held by reservations: whose it is, or why the pod that owns it gets none."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.errors import ManifestError
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation
from koordcore.model.resources import PODS, counted
from koordcore.protocol.reservation import reservation_wish
from koordcore.reservations.cache import ReservationLedger
from koordcore.reservations.match import MatchReason, judge_match
from koordcore.reservations.state import ReservationState, reservation_state
from koordcore.snapshot import ClusterSnapshot


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
            state = ledger.states[number]
            labels = workspace.layout.nodes[row].labels
            found.append(
                f"fits only inside reservation {state.reservation.name}, {_why_not(pod, state, labels)}"
            )
    return tuple(found)


def unserving(snapshot: ClusterSnapshot, pod: Pod) -> tuple[str, ...]:
    """Say of each reservation that a pod owns, and that holds room on a node, why it does not serve it.

    Raises
    ------
    ManifestError
        When what the pod says about reservations cannot be read.
    """
    nodes = {state.name: state.node for state in snapshot.nodes}
    wish = reservation_wish(pod.labels, pod.annotations)
    found = []
    for one in snapshot.of(Reservation):
        node = nodes.get(one.status.node_name) if one.active else None
        if node is None:
            continue
        state = reservation_state(one)
        match = judge_match(pod, wish, state, node.labels)
        if not match.matched and match.reason is not MatchReason.OWNER_UNMATCHED:
            found.append(f"{node.name}: reservation {one.name}, {_why_not(pod, state, node.labels)}")
    return tuple(found)


def _why_not(pod: Pod, state: ReservationState, node_labels: Mapping[str, str]) -> str:
    """Say what keeps a pod from a reservation."""
    one = state.reservation
    try:
        wish = reservation_wish(pod.labels, pod.annotations)
        match = judge_match(pod, wish, state, node_labels)
    except ManifestError:
        return f"which belongs to {one.owners_text}"
    match match.reason:
        case MatchReason.UNSCHEDULABLE:
            return (
                f"which takes no new owner: it is {'unschedulable' if one.unschedulable else 'being deleted'}"
            )
        case MatchReason.TAINTS_UNMATCHED:
            return f"whose taint {match.taint} the pod's reservation affinity does not tolerate"
        case MatchReason.AFFINITY_UNMATCHED | MatchReason.NAME_UNMATCHED:
            return "which the pod's reservation affinity does not choose"
        case MatchReason.NOT_EXACT:
            return "which is for pods that ask for exactly what it holds"
        case _:
            return f"which belongs to {one.owners_text}"
