"""The scheduler: look, decide, write down, do; again and again.

It remembers nothing that matters. What is taken follows from the pods, what is about to be taken from the
journal, and so a kill at any moment loses no more than the time since the last look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import attrs

from examples.kubernetes.api import Api, Object, Request
from examples.kubernetes.cluster import read
from examples.kubernetes.journal import Journal, send_all
from examples.kubernetes.mirror import Mirror
from examples.kubernetes.overdue import Overdue
from examples.kubernetes.turns import Turns
from koordcore import (
    ClusterSnapshot,
    PluginSetting,
    Pod,
    PodKey,
    Policy,
    PreemptionRules,
    ScheduleResult,
    patches,
    schedule,
    verify,
)
from koordcore.model import QuotaPolicy

__all__ = ["Cycle", "Scheduler", "Settings"]

_log = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Settings:
    """What a cluster's owner may want otherwise; times in seconds.

    Parameters
    ----------
    name
        Whose pods are scheduled (``spec.schedulerName``).
    batch
        How many pods are decided at once; it bounds the size of the journal too.
    patience
        How long others are given to finish what they began.
    revoke
        How long a quota may use more than its runtime.
    retry
        How long a pod without a place waits where nothing seems to change.
    idle
        How often to look where nothing happens.
    threads
        Requests under way at the same time.
    """

    name: str = "koord-scheduler"
    batch: int = 500
    patience: float = 2.0
    revoke: float = 120.0
    retry: float = 30.0
    idle: float = 1.0
    threads: int = 16

    @property
    def quotas(self) -> QuotaPolicy:
        """How quotas are enforced."""
        return QuotaPolicy(monitor_all_quotas=True, delay_evict=int(self.revoke * 10**9))

    @property
    def policy(self) -> Policy:
        """Which plugins decide."""
        quota = PluginSetting(name="ElasticQuota", scores=False, args=self.quotas)
        return Policy(name=self.name).with_plugin(quota)


@attrs.define(kw_only=True)
class Cycle:
    """What one turn did, and the seconds that each step took.

    ``finished`` counts calls of a batch that somebody had left; ``lost`` says that a rival's came first.
    ``cpu`` are seconds of the whole process since the turn before, the others are those of the clock.
    """

    finished: int = 0
    asked: int = 0
    bound: int = 0
    nominated: int = 0
    evicted: int = 0
    lost: bool = False
    read: float = 0.0
    decide: float = 0.0
    verify: float = 0.0
    write: float = 0.0
    cpu: float = 0.0


class Scheduler:
    """A scheduler of one cluster.

    Parameters
    ----------
    api
        The cluster.
    report
        Told about every cycle.
    """

    def __init__(self, api: Api, settings: Settings, report: Callable[[Cycle], None]) -> None:
        self._api, self._settings, self._report = api, settings, report
        self.mirror = Mirror(api)
        self._pool = ThreadPoolExecutor(settings.threads)
        self.journal = Journal(api, self.mirror, self._pool, patience=settings.patience)
        self._turns = Turns(settings.name, limit=settings.batch, retry=settings.retry)
        self._read: tuple[int, ClusterSnapshot] | None = None
        self._cpu = 0.0
        self._overdue = Overdue(patience=settings.patience, quotas=settings.quotas)

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Schedule until told to stop."""
        self.open()
        while not stopped():
            seen = self.mirror.changes
            cycle = self.turn()
            if cycle is None:
                self.mirror.wait(lambda seen=seen: self.mirror.changes != seen, self._settings.idle)  # type: ignore[misc]
            else:
                self._report(cycle)

    def open(self) -> None:
        """Look around, and finish what the journal says."""
        self.mirror.start()
        self._cpu = time.process_time()
        self._report(Cycle(finished=self.journal.open()))

    def turn(self) -> Cycle | None:
        """Take one turn; ``None`` where there is nothing to do."""
        cycle = Cycle()
        clock = _Clock(cycle)
        news, changes = self.mirror.news, self.mirror.changes
        if self._read is None or self._read[0] != changes:
            self._read = changes, read(self.mirror.objects())
        snapshot = self._read[1]
        clock.took("read")
        going = self._overdue.look(snapshot, time.monotonic())
        pods = self._turns.take(snapshot, news, time.monotonic())
        if not pods and not going:
            return None
        for key, reason in going.items():
            _log.info("evicting %s: %s", key, reason)
        result = self._decide(snapshot, pods, clock)
        requests, remarks = _requests(snapshot, result, going)
        cycle.asked, cycle.bound = len(pods), len(result.bound)
        cycle.nominated = result.stats.get("nominated", 0)
        cycle.evicted = sum(one.subresource == "eviction" for one in requests)
        if requests and not self.journal.commit(requests):
            cycle.lost = True
        else:
            self.journal.carry_out()
            self._turns.done(pods)
            send_all(self._api, self._pool, [one for one in remarks if self._is_new(one)])
        clock.took("write")
        cpu = time.process_time()
        cycle.cpu, self._cpu = cpu - self._cpu, cpu
        return cycle

    def _decide(self, snapshot: ClusterSnapshot, pods: list[Pod], clock: _Clock) -> ScheduleResult:
        result = schedule(
            snapshot,
            pods,
            policy=self._settings.policy,
            now=datetime.now(UTC),
            preempt=PreemptionRules(),
        )
        clock.took("decide")
        if broken := verify(snapshot, result):
            raise RuntimeError(f"the plan is not legal: {broken[0]}")
        clock.took("verify")
        return result

    def _is_new(self, remark: Request) -> bool:
        """Tell whether a pod's condition says something else so far."""
        namespace, name = remark.pod or ("", "")
        pod = self.mirror.find("Pod", name, namespace)
        (wanted,) = remark.body["status"]["conditions"]
        known = (pod or {}).get("status", {}).get("conditions", ())
        return not any(
            one["type"] == wanted["type"] and one.get("message") == wanted["message"] for one in known
        )


class _Clock:
    """Books the time since the last look under a name."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._last = time.perf_counter()

    def took(self, what: str) -> None:
        now = time.perf_counter()
        setattr(self._cycle, what, getattr(self._cycle, what) + now - self._last)
        self._last = now


def _requests(
    snapshot: ClusterSnapshot, result: ScheduleResult, going: dict[PodKey, str]
) -> tuple[list[Request], list[Request]]:
    """Give what has to be done, and what is only said: why pods wait."""
    requests: list[Request] = []
    remarks: list[Request] = []
    for call in patches(result, now=datetime.now(UTC)):
        one = Request.of(call)
        if one.pod is not None:
            one = _pinned(one, snapshot)
        told = one.body["status"].get("conditions", ()) if one.subresource == "status" and one.pod else ()
        said = any(condition["type"] == "PodScheduled" for condition in told)
        (remarks if said else requests).append(one)
    leaving = {one.pod for one in requests if one.subresource == "eviction"}
    for key in going:
        if (key.namespace, key.name) in leaving:
            continue
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/eviction"
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key.name, "namespace": key.namespace},
        }
        requests.append(_pinned(Request(method="POST", path=path, body=body), snapshot))
    return requests, remarks


def _pinned(request: Request, snapshot: ClusterSnapshot) -> Request:
    """Make sure that a request never meets a later pod of the same name."""
    assert request.pod is not None
    pod = snapshot.pod(PodKey(*request.pod))
    assert pod is not None
    body: dict[str, Any] = dict(request.body)
    if request.subresource == "eviction":
        body["deleteOptions"] = {"preconditions": {"uid": pod.uid}}
    else:
        body["metadata"] = {**body.get("metadata", {}), "uid": pod.uid}
    return attrs.evolve(request, body=body)
