"""What goes on in a cluster beside scheduling: metrics and heartbeats at their rate, pods that end."""

from __future__ import annotations

import random  # noqa: TID251  # seeded; a tool for people, not the library
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

from examples.kubernetes.api import Api, Object, RefusedError
from koordcore.controlplane import RESOURCES

__all__ = ["Traffic"]

_MERGE: Final = "application/merge-patch+json"
_METRICS_EVERY: Final = 60.0
"""Seconds between two NodeMetrics of a node."""
_HEARTBEAT_EVERY: Final = 300.0
"""Seconds between two statuses of a node that say nothing new; leases are read by nobody here."""


class Traffic:
    """Runs beside a scenario for as long as the block lasts.

    Parameters
    ----------
    api
        Whom to write to.
    nodes
        Names of the nodes.
    end
        Ends a running pod; called so many times a second.
    """

    def __init__(
        self, api: Api, nodes: list[str], *, seed: int, end: Callable[[], None], ends: float
    ) -> None:
        self._api, self._nodes, self._end = api, nodes, end
        self._chance = random.Random(seed)
        self._pool = ThreadPoolExecutor(4)
        self._stopped = threading.Event()
        self._rates = (
            (len(nodes) / _METRICS_EVERY, self._metric),
            (len(nodes) / _HEARTBEAT_EVERY, self._heartbeat),
            (ends, lambda number: self._end()),
        )
        self.sent = 0

    def open(self) -> None:
        """Make the NodeMetric of every node."""
        made = [{"metadata": {"name": name}, **_usage(self._chance)} for name in self._nodes]
        list(self._pool.map(lambda item: self._ask("POST", RESOURCES["NodeMetric"], _typed(item)), made))

    def __enter__(self) -> Traffic:
        for rate, what in self._rates:
            threading.Thread(target=self._run, args=(rate, what), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, rate: float, what: Callable[[int], None]) -> None:
        number = 0
        while rate and not self._stopped.wait(1 / rate):
            if not self._stopped.is_set():
                self._pool.submit(what, number)
            number += 1

    def _metric(self, number: int) -> None:
        name = self._nodes[number % len(self._nodes)]
        self._ask("PATCH", f"{RESOURCES['NodeMetric']}/{name}", _usage(self._chance), _MERGE)

    def _heartbeat(self, number: int) -> None:
        name = self._nodes[number % len(self._nodes)]
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": _now()}
        body = {"status": {"conditions": [beat]}}
        self._ask(
            "PATCH", f"{RESOURCES['Node']}/{name}/status", body, "application/strategic-merge-patch+json"
        )

    def _ask(self, method: str, path: str, body: Object, kind: str = "") -> None:
        try:
            self._api.send(method, path, body, kind)
            self.sent += 1
        except RefusedError as error:
            if error.status not in (404, 409):
                raise


def _usage(chance: random.Random) -> Object:
    usage = {"cpu": f"{chance.randrange(500, 20000)}m", "memory": f"{chance.randrange(1, 90)}Gi"}
    report = {"aggregatePolicy": {"durations": ["5m"]}, "reportIntervalSeconds": int(_METRICS_EVERY)}
    return {
        "spec": {"metricCollectPolicy": report},
        "status": {"updateTime": _now(), "nodeMetric": {"nodeUsage": {"resources": usage}}},
    }


def _typed(item: Object) -> Object:
    return {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", **item}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
