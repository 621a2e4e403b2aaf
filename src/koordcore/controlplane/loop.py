"""The loop of a scheduler: look, decide, write down, do; again and again.

It remembers nothing that matters for long. What is taken follows from the pods, what is about to be taken
from the journal, and so a kill at any moment loses no more than the time since the last look, and the places
that members of NonStrict gangs keep until the others come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Final

import attrs

from koordcore._blame import names_its_arguments
from koordcore._record import record
from koordcore.checking import verify
from koordcore.controlplane.feed import Feed
from koordcore.controlplane.held_places import HeldPlaces
from koordcore.controlplane.overdue import Overdue
from koordcore.controlplane.queue import Backoff, SchedulingQueue
from koordcore.controlplane.requests import Request
from koordcore.controlplane.steps import Look, Moment, Say, Send, Steps
from koordcore.controlplane.together import units
from koordcore.controlplane.turn import dated, is_news, orders
from koordcore.controlplane.unreported import UnreportedNodes
from koordcore.controlplane.writing import Journal
from koordcore.errors import SolverError
from koordcore.model.checks import check_fields, check_least
from koordcore.model.decisions import Unschedulable
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.quotas import QuotaPolicy
from koordcore.result import ScheduleResult
from koordcore.scheduling.entry import schedule
from koordcore.snapshot import ClusterSnapshot, NodeReplaced

_RULES: Final = PreemptionRules(within_budgets=True)
"""The server refuses evictions beyond a budget, and those before them would have gone for nothing."""
_SAID_AGAIN: Final = 60.0
"""Seconds after which a remark that no watch has shown is sent again: it may be lost."""


@record(kw_only=True)
class LoopSettings:
    """What a cluster's owner decides; times in seconds.

    Parameters
    ----------
    policy
        Whose pods are decided, and by which plugins.
    quotas
        How quotas are enforced.
    batch
        How many pods are decided at once; it bounds the size of the journal too.
    patience
        How long others are given to finish what they began.
    backoff
        How long refused pods pause.
    """

    policy: Policy = Policy()
    quotas: QuotaPolicy = attrs.field(factory=QuotaPolicy)
    batch: int = 500
    patience: float = 2.0
    backoff: Backoff = attrs.field(factory=Backoff)

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        check_least(self, 1, "batch")
        check_least(self, 0, "patience")


@record(kw_only=True)
class Turn:
    """What one turn did.

    Parameters
    ----------
    finished
        Calls of a batch that somebody had left.
    asked, bound, nominated, evicted
        Pods.
    lost
        A rival's batch came first, and nothing of this turn was done.
    waiting
        Pods that the queue still has.
    """

    finished: int = 0
    asked: int = 0
    bound: int = 0
    nominated: int = 0
    evicted: int = 0
    lost: bool = False
    waiting: int = 0


class ControlLoop:
    """A scheduler of one cluster, as steps for whoever drives it.

    Parameters
    ----------
    feed
        Where its news come in; all kinds have been listed before :meth:`open`.
    """

    @names_its_arguments
    def __init__(self, feed: Feed, settings: LoopSettings) -> None:
        self._feed, self._settings = feed, settings
        self.journal = Journal(feed, patience=settings.patience)
        self._queue = SchedulingQueue(settings.policy, limit=settings.batch, backoff=settings.backoff)
        self._overdue = Overdue(patience=settings.patience, quotas=settings.quotas)
        self._left_out: frozenset[str] = frozenset()
        self._unreported = UnreportedNodes()
        self._places = HeldPlaces()
        self._said: dict[tuple[str, ...], float] = {}
        self.snapshot = ClusterSnapshot()
        """The cluster as it was when it was last looked at."""

    def open(self) -> Steps[Turn]:
        """Finish what the journal says."""
        return Turn(finished=(yield from self.journal.open()))

    def turn(self) -> Steps[Turn | None]:
        """Take one turn; ``None`` where there is nothing to do."""
        moment: Moment = yield Look()
        yield from self._read(moment.now)
        going = self._overdue.look(self.snapshot, now=moment.now)
        decided = moment.wall
        ended = self._places.ended(self.snapshot, decided)
        if ended:
            self._queue.room_freed(now=moment.now)
        pods = self._queue.take(self.snapshot, now=moment.now)
        yield Look("read")
        if not (pods or going or ended):
            return None
        for key, reason in going.items():
            yield Say(f"evicting {key}: {reason}")
        result = yield from self._decide(pods, moment.wall)
        todo = orders(self.snapshot, result, going, now=moment.wall)
        turn = Turn(
            asked=len(result.decisions),
            bound=len(result.bound),
            nominated=result.stats.get("nominated", 0),
            evicted=sum(one.subresource == "eviction" for one in todo.requests),
            waiting=len(self._queue),
        )
        if todo.requests and not (yield from self.journal.commit(todo.requests)):
            yield Look("write")
            return attrs.evolve(turn, lost=True)
        yield from self.journal.carry_out()
        moment = yield Look("write")
        self._queue.done(result.decisions, now=moment.now)
        if self._places.note(self.snapshot, result.decisions, decided):
            self._queue.room_freed(now=moment.now)
        remarks = self._unsaid(todo.remarks, moment.now)
        if remarks:
            yield Send(remarks)
        yield Look("write")
        return attrs.evolve(turn, waiting=len(self._queue))

    def _decide(self, pods: Sequence[Pod], wall: datetime) -> Steps[ScheduleResult]:
        """Decide about pods, or about the first of them alone where a plan for all of them is not legal.

        That is a defect of the library, and it must not stop everybody: halves are tried until whoever
        the defect befalls is alone. The others are asked about in the next turns.
        """
        policy = self._settings.policy
        snapshot = self._places.kept(self._unreported.closed(self.snapshot))
        while True:
            result, fault = None, ""
            try:
                result = schedule(snapshot, pods, policy=policy, now=wall, preempt=_RULES)
            except SolverError as error:
                fault = str(error)
            yield Look("decide")
            if result is not None:
                fault = next(map(str, verify(snapshot, result, now=wall)), "")
                yield Look("verify")
                if not fault:
                    return result
            yield Say(f"no legal plan for {len(pods)} pods, nothing of it is done: {fault}", grave=True)
            apart = units(snapshot, pods)
            if len(apart) < 2:
                why = f"no legal plan was found: {fault}"
                refused = [Unschedulable(pod=pod.key, nodes=len(snapshot.nodes), refusal=why) for pod in pods]
                return ScheduleResult(decisions=tuple(refused), snapshot=snapshot, policy=policy)
            pods = [pod for unit in apart[: len(apart) // 2] for pod in unit]

    def _unsaid(self, remarks: Iterable[Request], now: float) -> tuple[Request, ...]:
        """Leave out what the pods' conditions say already, and what was sent a moment ago."""
        said, mirror = self._said, self._feed.mirror
        for words in list(takewhile(lambda words: now - said[words] >= _SAID_AGAIN, said)):
            del said[words]  # they stand in the order in which they were said
        news = [one for one in remarks if is_news(one, mirror) and _words(one) not in said]
        said.update((_words(one), now) for one in news)
        return tuple(dated(one, mirror) for one in news)

    def _read(self, now: float) -> Steps[None]:
        """Take in what the watches have shown."""
        changes, problems = self._feed.take()
        if not changes:
            return
        self.snapshot = self.snapshot.apply(*changes)
        opened = [self.snapshot.node(name).node for name in self._unreported.notice(changes)]
        self._queue.notice([*changes, *map(NodeReplaced, opened)], now=now)
        left_out = frozenset(map(str, problems))
        for problem in sorted(left_out - self._left_out):
            yield Say(f"left out: {problem}", grave=True)
        self._left_out = left_out


def _words(remark: Request) -> tuple[str, ...]:
    """Give what a remark says, and about whom; when it was made is left out."""
    said = ("type", "status", "reason", "message")
    conditions = remark.body["status"]["conditions"]
    return (remark.about, *(one.get(name, "") for one in conditions for name in said))
