"""A control plane in sixty lines: watch events in, calls of the API server out; the rest is koordcore.

``tests/examples/test_control_plane.py`` plays the server. What is left out is in ``examples/kubernetes``:
HTTP, the journal against kills and rivals, the patience with gangs that were halved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from koordcore import ClusterSnapshot, Policy, PreemptionRules, ScheduleResult, schedule, verify
from koordcore.controlplane import Request, SchedulingQueue, orders, version_of
from koordcore.manifests import EventReader
from koordcore.snapshot import Change

Object = Mapping[str, Any]
DEFAULT = Policy()


class ControlPlane:
    """Follows a cluster and decides about its pods, a batch at a time.

    Parameters
    ----------
    send
        Sends a request to the server.
    policy
        As for :func:`koordcore.schedule`.
    """

    def __init__(self, send: Callable[[Request], None], policy: Policy = DEFAULT) -> None:
        self._send, self._policy = send, policy
        self._reader = EventReader()
        self._queue = SchedulingQueue(policy, limit=500)
        self.cluster = ClusterSnapshot()

    def listed(self, kind: str, items: Iterable[Object], now: float) -> None:
        """Take all objects of a kind: at the start, and when a watch was cut."""
        self._follow(self._reader.relist(version_of(kind), kind, items), now)

    def watched(self, what: str, item: Object, now: float) -> None:
        """Take one event of a watch."""
        self._follow(self._reader.event(what, item), now)

    def turn(self, now: float) -> ScheduleResult | None:
        """Decide about whoever has a turn; None where nobody has one."""
        asked = self._queue.take(self.cluster, now=now)
        if not asked:
            return None
        time = datetime.fromtimestamp(now, UTC)
        result = schedule(self.cluster, asked, policy=self._policy, now=time, preempt=PreemptionRules())
        assert verify(self.cluster, result) == ()
        todo = orders(self.cluster, result, {}, now=time)
        self._queue.done(result.decisions, now=now)
        self._follow(self._reader.assume(*result.bound), now)  # the watch will say so, too
        for request in (*todo.requests, *todo.remarks):
            self._send(request)
        return result

    def refused(self, pod: str, now: float) -> None:
        """The server would not bind a pod, ``namespace/name``: it waits again."""
        self._follow(self._reader.forget(pod), now)

    def _follow(self, changes: Iterable[Change], now: float) -> None:
        changes = tuple(changes)
        self.cluster = self.cluster.apply(*changes)
        self._queue.notice(changes, now=now)
