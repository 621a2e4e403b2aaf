"""Places that members of NonStrict gangs keep from one turn to the next, until the others come or time is up.

They stand in memory alone, as upstream's waiting pods do: a scheduler that starts anew looks for places anew.
"""

from __future__ import annotations

from collections.abc import Iterable
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

    def note(self, snapshot: ClusterSnapshot, decisions: Iterable[PodDecision], now: datetime) -> bool:
        """Take note of what was decided; who is not among the decisions keeps what it has.

        Parameters
        ----------
        snapshot
            The cluster that was decided about, where nobody of them has a place.
        now
            When it was decided.

        Returns
        -------
        bool
            Somebody gave up a place that :meth:`ended` has not told of.
        """
        left = False
        for one in decisions:
            before = self._held.pop(one.pod, None)
            pod = snapshot.pod(one.pod)
            place = one if isinstance(one, Bound) else None
            if isinstance(one, Waiting) and one.held is not None and pod is not None:
                place = one.held
                self._held[one.pod] = (pod.uid, one.held)
            if before is not None and not _over(before[1], now):
                left |= place is None or place.node != before[1].node
        return left

    def ended(self, snapshot: ClusterSnapshot, now: datetime) -> bool:
        """Tell whether a place comes free: its keeper is gone, or time is up and the next decision says so.

        Whoever is gone, or bound, keeps none from then on.
        """
        over = False
        for key, (uid, held) in list(self._held.items()):
            pod = snapshot.pod(key)
            if pod is None or pod.uid != uid or pod.node_name or pod.deleted is not None:
                del self._held[key]
                over |= pod is None or pod.uid != uid or pod.node_name != held.node
            else:
                over |= _over(held, now)
        return over

    def kept(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        """Give the cluster with everybody on the place that it keeps, as far as the nodes are there."""
        standing: list[Pod] = []
        for key, (_, held) in sorted(self._held.items()):
            pod = snapshot.pod(key)
            if pod is not None and held.node in snapshot.layout.row_of:
                standing.append(bind(pod, held))
        return snapshot.assume(*standing) if standing else snapshot


def _over(held: Bound, now: datetime) -> bool:
    """Tell whether the time is up for which a place is kept."""
    end = kept_until(held.annotations[WAITS_AT_PERMIT])
    return end is not None and end <= moment_of(now)
