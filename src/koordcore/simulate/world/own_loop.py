"""koordcore's own loop in the bottle: the very code that ``examples/kubernetes`` puts HTTP around."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

import attrs

from koordcore.controlplane import (
    Answer,
    Await,
    Backoff,
    ControlLoop,
    Feed,
    Look,
    LoopSettings,
    Moment,
    Relist,
    Request,
    Say,
    Send,
    Steps,
)
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.quotas import QuotaPolicy
from koordcore.simulate.world.chance import Chance
from koordcore.simulate.world.load import SCHEDULER
from koordcore.simulate.world.plug import (
    Act,
    Answered,
    Books,
    ListAgain,
    Listed,
    News,
    Note,
    Post,
    Rang,
    SetBell,
    Watched,
)

_QUOTAS: Final = QuotaPolicy(monitor_all_quotas=True, delay_evict=20 * 10**9)
_IDLE: Final = 1.0
"""Seconds after which the loop looks although nothing has happened."""
_GATHER: Final = 0.02
"""Seconds in which more news may come before it looks."""
_SETTINGS: Final = LoopSettings(
    policy=Policy(name=SCHEDULER).with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=_QUOTAS)),
    quotas=_QUOTAS,
    batch=20,
    patience=2.0,
    backoff=Backoff(initial=0.5, longest=8.0, forgotten=300.0),
)


class OwnScheduler:
    """:class:`koordcore.controlplane.ControlLoop`, driven by news instead of threads.

    Parameters
    ----------
    settings
        Of the loop.
    think
        Longest time that a decision takes, in milliseconds.
    seed
        Of these times.
    """

    def __init__(self, settings: LoopSettings = _SETTINGS, *, think: int = 40, seed: int = 0) -> None:
        self.feed = Feed()
        self.loop = ControlLoop(self.feed, settings)
        self._think, self._chance = think, Chance(seed, "think")
        self._steps: Steps[Any] | None = None
        self._awaited: Await | None = None
        self._groups: dict[int, list[Request]] = {}
        self._answers: list[Answer] = []
        self._tickets = 0
        self._bell = 0

    def books(self) -> Books:
        """Give the cluster as it stands in the feed."""
        return Books(self.loop.snapshot.apply(*self.feed.pending), self.feed.mirror)

    def hear(self, news: News, moment: Moment) -> Iterator[Act]:
        """Take one piece of news, and go on as far as it lets."""
        match news:
            case Listed(kind, items, version):
                self.feed.listed(kind, items, version)
                if self._steps is None and self.feed.mirror.whole:
                    self._steps = self._life()
                    yield from self._go_on(None, moment)
                    return
            case Watched(kind, what, item):
                self.feed.watched(kind, what, item)
            case Answered(ticket, answer):
                yield from self._answered(ticket, answer, moment)
                return
            case Rang(bell):
                # What it was set for may have come before it rings.
                if bell == self._bell and self._awaited is not None:
                    self._awaited = None
                    yield from self._go_on(False, moment)
                return
        if self._awaited is not None and self._awaited.done():
            self._awaited = None
            yield from self._go_on(True, moment)

    def _life(self) -> Steps[None]:
        yield from self.loop.open()
        while True:
            seen = self.feed.mirror.changes
            if (yield from self.loop.turn()) is None:
                news: bool = yield Await(lambda seen=seen: self.feed.mirror.changes != seen, _IDLE)  # type: ignore[misc]
                if news:
                    yield Await(lambda: False, _GATHER)

    def _go_on(self, given: Any, moment: Moment) -> Iterator[Act]:
        """Let the loop take steps until it has to wait."""
        assert self._steps is not None
        while True:
            step = self._steps.send(given)
            given = None
            match step:
                case Look("decide") if self._think:
                    yield from self._wait(Await(lambda: False, self._chance.between(1, self._think) / 1000))
                    return
                case Look():
                    given = moment
                case Send(requests) if requests:
                    yield from self._send(requests)
                    return
                case Send():
                    given = ()
                case Await() if step.done():
                    given = True
                case Await():
                    yield from self._wait(step)
                    return
                case Relist(kind):
                    yield ListAgain(kind)
                case Say(text):
                    yield Note(text)

    def _wait(self, step: Await) -> Iterator[Act]:
        self._awaited = step
        self._bell += 1
        yield SetBell(self._bell, step.seconds)

    def _send(self, requests: tuple[Request, ...]) -> Iterator[Act]:
        """Send requests about different objects at the same time, those about one object in order."""
        self._answers = []
        ordered = sorted(requests, key=lambda one: one.about)
        for _, group in groupby(ordered, key=lambda one: one.about):
            self._tickets += 1
            self._groups[self._tickets] = list(group)
        for ticket, left in list(self._groups.items()):
            yield Post(ticket, left[0])

    def _answered(self, ticket: int, answer: Answer, moment: Moment) -> Iterator[Act]:
        self._answers.append(answer)
        left = self._groups[ticket]
        del left[0]
        if left and answer.done:
            yield Post(ticket, left[0])
            return
        del self._groups[ticket]
        if not self._groups:
            yield from self._go_on(tuple(self._answers), moment)


def own_scheduler(seat: int, policy: Policy | None = None) -> OwnScheduler:
    """Make koordcore's own scheduler for a seat of :func:`run_world`.

    Parameters
    ----------
    seat
        The number of the seat; the times that decisions take are drawn for it.
    policy
        How it decides; ``None`` is the default policy, with quotas that are monitored. It decides about all
        pods of the bottle. With LoadAwareScheduling give its arguments to :func:`run_world` as well.
    """
    if policy is None:
        return OwnScheduler(seed=seat)
    setting = policy.plugin("ElasticQuota")
    quotas = setting.args if setting is not None and isinstance(setting.args, QuotaPolicy) else QuotaPolicy()
    settings = attrs.evolve(_SETTINGS, policy=policy.of_all_schedulers(), quotas=quotas)
    return OwnScheduler(settings, seed=seat)
