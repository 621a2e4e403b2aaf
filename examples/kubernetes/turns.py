"""Whose turn it is: pods that have not been tried since something changed for them, gangs together."""

from __future__ import annotations

from collections.abc import Iterable

from koordcore import ClusterSnapshot, Pod, queue_order
from koordcore.protocol import gang_name
from koordcore.reservations import pending_reserve_pods
from koordcore.scheduling.gang_groups import gang_state

__all__ = ["Turns"]


class Turns:
    """Remembers who has been tried in vain.

    Parameters
    ----------
    scheduler_name
        Whose pods these are.
    limit
        How many pods are decided at once; a gang that has begun is completed.
    retry
        Seconds after which everybody may try again, whether there are news or not.
    """

    def __init__(self, scheduler_name: str, *, limit: int, retry: float) -> None:
        self._name = scheduler_name
        self._limit, self._retry = limit, retry
        self._tried: set[str] = set()
        self._news = -1
        self._since = 0.0

    def take(self, snapshot: ClusterSnapshot, news: int, now: float) -> list[Pod]:
        """Give the pods that are decided next; a pod may stand for a reservation that wants a node.

        Pods that were nominated come every time: while they are asked about, nobody else gets their room.
        """
        if news != self._news or now - self._since >= self._retry:
            self._tried.clear()
            self._news, self._since = news, now
        mine = [pod for pod in snapshot.pending if pod.scheduler_name == self._name and pod.deleted is None]
        mine += pending_reserve_pods(snapshot)
        fresh = queue_order(pod for pod in mine if pod.uid not in self._tried and not pod.gated)
        if not fresh:
            return []
        chosen = {
            pod.key: pod for pod in (*fresh[: self._limit], *(pod for pod in mine if pod.nominated_node))
        }
        groups = {group for pod in chosen.values() if (group := _group(snapshot, pod))}
        chosen |= {pod.key: pod for pod in mine if _group(snapshot, pod) in groups}
        return list(chosen.values())

    def done(self, pods: Iterable[Pod]) -> None:
        """Let these wait until there are news; who was bound is not among the pending ones any more."""
        self._tried.update(pod.uid for pod in pods)


def _group(snapshot: ClusterSnapshot, pod: Pod) -> tuple[str, ...]:
    """Ids of the gangs that start together with a pod; none without a gang."""
    name = gang_name(pod.labels, pod.annotations)
    if not name:
        return ()
    gang_id = f"{pod.namespace}/{name}"
    record = snapshot.once(gang_state).gangs.get(gang_id)
    return (gang_id,) if record is None else tuple(record.gang.group)
