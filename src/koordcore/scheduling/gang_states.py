"""How far every gang of a snapshot has come."""

from __future__ import annotations

from koordcore.allocators.gang.state import GangState
from koordcore.model.gangs import DEFAULT_ARGS
from koordcore.model.pods import Pod
from koordcore.protocol.gang_names import gang_name
from koordcore.scheduling.gang_book import gang_book
from koordcore.snapshot import ClusterSnapshot


def gang_id_of(pod: Pod) -> str:
    """Give the id of a pod's gang; that of a pod without a gang ends in a slash."""
    return f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}"


def gang_state(snapshot: ClusterSnapshot) -> GangState:
    """Give the state of all gangs."""
    return gang_book(snapshot, DEFAULT_ARGS).state
