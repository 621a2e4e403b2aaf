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

import attrs

from examples.kubernetes.api import Api
from examples.kubernetes.follower import Follower
from examples.kubernetes.journal import Journal, send_all
from koordcore import (
    ClusterSnapshot,
    PluginSetting,
    Pod,
    Policy,
    PreemptionRules,
    ScheduleResult,
    schedule,
    verify,
)
from koordcore.controlplane import Backoff, Overdue, SchedulingQueue, is_news, orders
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
    backoff
        How long a pod pauses after its first refusal; the pause doubles with each further one.
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
    backoff: float = 1.0
    retry: float = 300.0
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
    ``waiting`` counts the pods that the queue still has.
    ``cpu`` are seconds of the whole process since the turn before, the others are those of the clock.
    """

    finished: int = 0
    asked: int = 0
    bound: int = 0
    nominated: int = 0
    evicted: int = 0
    lost: bool = False
    waiting: int = 0
    read: float = 0.0
    decide: float = 0.0
    verify: float = 0.0
    write: float = 0.0
    cpu: float = 0.0

    @property
    def line(self) -> str:
        """The turn in one line for people."""
        if not self.asked and not self.evicted:
            return f"finished {self.finished} calls that somebody had left"
        spent = ", ".join(
            f"{name} {1000 * getattr(self, name):.0f}" for name in ("read", "decide", "verify", "write")
        )
        lost = "; a rival came first" if self.lost else ""
        return (
            f"asked {self.asked}: bound {self.bound}, nominated {self.nominated}, evicted {self.evicted}, "
            f"waiting {self.waiting}{lost} ({spent} ms)"
        )


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
        self.follower = Follower(api)
        self._pool = ThreadPoolExecutor(settings.threads)
        self.journal = Journal(api, self.follower, self._pool, patience=settings.patience)
        backoff = Backoff(initial=settings.backoff, forgotten=settings.retry)
        self._queue = SchedulingQueue(settings.policy, limit=settings.batch, backoff=backoff)
        self._snapshot = ClusterSnapshot()
        self._cpu = 0.0
        self._overdue = Overdue(patience=settings.patience, quotas=settings.quotas)
        self._left_out: frozenset[str] = frozenset()

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Schedule until told to stop."""
        self.open()
        mirror = self.follower.mirror
        while not stopped():
            seen = mirror.changes
            cycle = self.turn()
            if cycle is None:
                self.follower.wait(lambda seen=seen: mirror.changes != seen, self._settings.idle)  # type: ignore[misc]
            else:
                self._report(cycle)

    def open(self) -> None:
        """Look around, and finish what the journal says."""
        self.follower.start()
        self._cpu = time.process_time()
        self._report(Cycle(finished=self.journal.open()))

    def turn(self) -> Cycle | None:
        """Take one turn; ``None`` where there is nothing to do."""
        cycle = Cycle()
        clock = _Clock(cycle)
        now = time.monotonic()
        self._look(now)
        going = self._overdue.look(self._snapshot, now=now)
        pods = self._queue.take(self._snapshot, now=now)
        clock.took("read")
        if not pods and not going:
            return None
        for key, reason in going.items():
            _log.info("evicting %s: %s", key, reason)
        result = self._decide(self._snapshot, pods, clock)
        todo = orders(self._snapshot, result, going, now=datetime.now(UTC))
        cycle.asked, cycle.bound = len(pods), len(result.bound)
        cycle.nominated = result.stats.get("nominated", 0)
        cycle.evicted = sum(one.subresource == "eviction" for one in todo.requests)
        if todo.requests and not self.journal.commit(todo.requests):
            cycle.lost = True
        else:
            self.journal.carry_out()
            self._queue.done(result.decisions, now=time.monotonic())
            remarks = [one for one in todo.remarks if is_news(one, self.follower.mirror)]
            send_all(self._api, self._pool, remarks)
        cycle.waiting = len(self._queue)
        clock.took("write")
        cpu = time.process_time()
        cycle.cpu, self._cpu = cpu - self._cpu, cpu
        return cycle

    def _look(self, now: float) -> None:
        """Take in what the watches have shown."""
        changes, problems = self.follower.take()
        if not changes:
            return
        self._snapshot = self._snapshot.apply(*changes)
        self._queue.notice(changes, now=now)
        left_out = frozenset(map(str, problems))
        for problem in sorted(left_out - self._left_out):
            _log.error("left out: %s", problem)
        self._left_out = left_out

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


class _Clock:
    """Books the time since the last look under a name."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._last = time.perf_counter()

    def took(self, what: str) -> None:
        now = time.perf_counter()
        setattr(self._cycle, what, getattr(self._cycle, what) + now - self._last)
        self._last = now
