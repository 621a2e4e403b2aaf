"""The scheduler: HTTP, threads and a clock around :class:`koordcore.controlplane.ControlLoop`."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

import attrs

from examples.kubernetes.api import Api, GoneError, RefusedError, UnreachableError
from examples.kubernetes.follower import Follower
from koordcore import PluginSetting, Policy
from koordcore.controlplane import (
    NO_ANSWER,
    Answer,
    Await,
    Backoff,
    ControlLoop,
    Look,
    LoopSettings,
    Moment,
    Relist,
    Request,
    Say,
    Send,
    Step,
    Steps,
)
from koordcore.model import ClaimArgs, QuotaPolicy

__all__ = ["Cycle", "Scheduler", "Settings"]

_log = logging.getLogger(__name__)
T = TypeVar("T")


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
        claims = PluginSetting(name="DynamicResources", args=ClaimArgs(await_claims=True))
        mine = Policy(name=self.name, scheduler_names=(self.name,))  # others have schedulers of their own
        return mine.with_plugin(quota).with_plugin(claims)

    @property
    def loop(self) -> LoopSettings:
        """What concerns the loop."""
        return LoopSettings(
            policy=self.policy,
            quotas=self.quotas,
            batch=self.batch,
            patience=self.patience,
            backoff=Backoff(initial=self.backoff, forgotten=self.retry),
        )


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
        self.loop = ControlLoop(self.follower.feed, settings.loop)
        self._cpu = 0.0

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
        turn, _ = self._drive(self.loop.open())
        self._report(Cycle(finished=turn.finished))

    def turn(self) -> Cycle | None:
        """Take one turn; ``None`` where there is nothing to do."""
        turn, spent = self._drive(self.loop.turn())
        if turn is None:
            return None
        cpu = time.process_time()
        cycle = Cycle(**attrs.asdict(turn), cpu=cpu - self._cpu)
        for name, seconds in spent.items():
            setattr(cycle, name, seconds)
        self._cpu = cpu
        return cycle

    def _drive(self, steps: Steps[T]) -> tuple[T, dict[str, float]]:
        """Carry out steps; gives what they end in, and the seconds that each kind of thing took."""
        spent: dict[str, float] = defaultdict(float)
        last, given = time.perf_counter(), None
        while True:
            try:
                with self.follower.lock:  # what the loop computes, it computes on one state of the feed
                    step = steps.send(given)
            except StopIteration as end:
                return end.value, spent
            now = time.perf_counter()
            if isinstance(step, Look) and step.after:
                spent[step.after] += now - last
                last = now
            given = self._carry_out(step)

    def _carry_out(self, step: Step) -> Any:
        match step:
            case Send(requests):
                return self._send(requests)
            case Await(done, seconds):
                return self.follower.wait(done, seconds)
            case Look():
                return Moment(time.monotonic(), datetime.now(UTC))
            case Relist(kind):
                return self.follower.refresh(kind)
            case Say(text, grave):
                return _log.log(logging.WARNING if grave else logging.INFO, "%s", text)

    def _send(self, requests: Sequence[Request]) -> tuple[Answer, ...]:
        def send(group: list[Request]) -> list[Answer]:
            answers: list[Answer] = []
            for request in group:
                answers.append(_answer(self._api, request))
                if not answers[-1].done:
                    break
            return answers

        ordered = sorted(requests, key=lambda one: one.about)
        groups = [list(group) for _, group in groupby(ordered, key=lambda one: one.about)]
        return tuple(answer for answers in self._pool.map(send, groups) for answer in answers)


def _answer(api: Api, request: Request) -> Answer:
    try:
        body = api.send(request.method, request.path, request.body, request.content_type)
    except RefusedError as error:
        _log.info("%s %s: %s", request.method, request.path, error)
        return Answer(request, error.status)
    except (UnreachableError, GoneError) as error:
        _log.info("%s %s: %s", request.method, request.path, error)
        return Answer(request, NO_ANSWER)
    return Answer(request, 200, body)
