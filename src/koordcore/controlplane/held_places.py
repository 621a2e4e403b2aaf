"""Places that members of NonStrict gangs keep from one turn to the next, until the others come or time is up.

They stand in memory alone, as upstream's waiting pods do: a scheduler that starts anew looks for places anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from koordcore.model.decisions import Bound, PodDecision, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.protocol.times import moment_of
from koordcore.scheduling.permit_holds import kept_until
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.cluster import bind


class HeldPlaces:
    """Who keeps which place."""

    def __init__(self) -> None:
        self._held: dict[PodKey, tuple[str, Bound]] = {}

    def note(self, snapshot: ClusterSnapshot, decisions: Iterable[PodDecision]) -> None:
        """Take note of what was decided; who is not among the decisions keeps what it has.

        Parameters
        ----------
        snapshot
            The cluster that was decided about, where nobody of them has a place.
        """
        for one in decisions:
            pod = snapshot.pod(one.pod)
            if isinstance(one, Waiting) and one.held is not None and pod is not None:
                self._held[one.pod] = (pod.uid, one.held)
            else:
                self._held.pop(one.pod, None)

    def ended(self, now: datetime) -> bool:
        """Tell whether somebody's time is up: the next decision takes the place away."""
        moment = moment_of(now)
        ends = (kept_until(held.annotations[WAITS_AT_PERMIT]) for _, held in self._held.values())
        return any(end is not None and end <= moment for end in ends)

    def kept(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Give the cluster with everybody on the place that it keeps; who is gone or bound keeps none."""
        standing: list[Pod] = []
        for key, (uid, held) in sorted(self._held.items()):
            pod = snapshot.pod(key)
            if pod is None or pod.uid != uid or pod.node_name or pod.deleted is not None:
                del self._held[key]
            elif held.node in snapshot.layout.row_of:
                standing.append(bind(pod, held))
        return snapshot.assume(*standing) if standing else snapshot

    def others(self, snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> Sequence[Pod]:
        """Leave out those who have their place in a cluster: they are decided about with their gang."""
        return [pod for pod in pods if pod.key not in snapshot.location]
