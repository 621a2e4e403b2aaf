"""Where a scheduler sits: its wires to the server, its clocks, and its death between any two calls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from koordcore.controlplane import NO_ANSWER, RESOURCES, Answer, Moment, Request
from koordcore.controlplane.requests import Object
from koordcore.simulate.world.chance import Chance
from koordcore.simulate.world.facts import preempted_for
from koordcore.simulate.world.judge import Judge
from koordcore.simulate.world.plug import (
    Act,
    Answered,
    BottledScheduler,
    ListAgain,
    Listed,
    News,
    Note,
    Post,
    Rang,
    SetBell,
    Watched,
)
from koordcore.simulate.world.profile import SECOND, FaultProfile
from koordcore.simulate.world.record import Rule
from koordcore.simulate.world.server import ApiServer, Change
from koordcore.simulate.world.timeline import Timeline

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
BUSY: Final = 503
_TIMEOUT: Final = 5 * SECOND
"""After so long nobody waits for an answer any more."""
_BOOKMARK: Final = 10 * SECOND
_OVERTAKEN: Final = SECOND
"""How much later than those after it a change arrives at most."""


@attrs.define
class _Wire:
    """The watch of one kind.

    Parameters
    ----------
    epoch
        Grows with every cut: what was under way then never arrives.
    version
        Up to here all changes have arrived.
    sent
        Of the last change that is under way.
    under_way
        Versions of the changes that are, the oldest first.
    ready
        When the last of them arrives that keeps its order.
    last
        When the last of them arrives at all.
    slow
        Until when nothing arrives.
    open, listed
        Changes are sent on; the list has arrived from which the watch goes on.
    """

    epoch: int = 0
    version: int = 0
    sent: int = 0
    under_way: dict[int, None] = attrs.Factory(dict)
    ready: int = 0
    last: int = 0
    slow: int = 0
    open: bool = False
    listed: bool = False

    def close(self) -> None:
        """Lose all that is under way, and hear nothing."""
        self.epoch += 1
        self.open = False
        self.under_way.clear()


class Seat:
    """A place for one scheduler, with everything that lies between it and the server.

    Parameters
    ----------
    number
        Which of them it is.
    make
        Makes a scheduler, for this seat.
    """

    def __init__(
        self,
        number: int,
        make: Callable[[], BottledScheduler],
        *,
        line: Timeline,
        server: ApiServer,
        judge: Judge,
        profile: FaultProfile,
        seed: int,
        tell: Callable[[str, str], None],
    ) -> None:
        self.name = f"sched-{number}"
        self.scheduler: BottledScheduler | None = None
        self._make, self._line, self._server, self._judge = make, line, server, judge
        self._profile, self._tell = profile, tell
        self._chance = Chance(seed, self.name)
        self._wires = {kind: _Wire() for kind in RESOURCES}
        self._life = 0
        self._dies_after = -1
        self._frozen = 0
        self._later: list[tuple[int, News]] = []
        self._ahead = 0
        """How far its clock is ahead that does not go back."""
        self._wall = 0
        server.listeners.append(self._changed)

    # -- life --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a scheduler here, that knows nothing."""
        self._life += 1
        self._dies_after, self._frozen = -1, 0
        self._later.clear()
        self.scheduler = self._make()
        self._tell(self.name, "starts")
        for kind in RESOURCES:
            self._list(kind)

    def kill(self) -> None:
        """End it at once; what it has sent goes its way."""
        if self.scheduler is None:
            return
        self._tell(self.name, "is killed")
        self._judge.failed()
        self._life += 1
        self._dies_after = -1
        self.scheduler = None
        for wire in self._wires.values():
            wire.close()
            wire.listed = False
        self._line.after(self._chance.between(200, 4 * SECOND), "restart", self.start)

    def kill_after(self, calls: int) -> None:
        """Kill it before one of its next calls goes out, or after some seconds."""
        self._dies_after = calls
        life = self._life

        def still() -> None:
            if self._life == life and self._dies_after >= 0:
                self.kill()

        self._line.after(3 * SECOND, "kill", still)

    def freeze(self, time: int) -> None:
        """Let it stand still; then it goes on as if nothing had happened."""
        self._tell(self.name, f"stands still for {time} ms")
        self._judge.failed()
        self._frozen = self._line.now + time
        self._line.after(time, "thaw", self._thaw, self._life)

    def _thaw(self, life: int) -> None:
        if life != self._life or self._line.now < self._frozen:
            return
        self._judge.failed()
        later, self._later = self._later, []
        for old, news in later:
            self._hear(old, news)

    def jump(self, time: int) -> None:
        """Let its clocks jump: the time of day anywhere, the one that does not go back only forward."""
        self._tell(self.name, f"its clocks jump by {time // SECOND} s")
        self._judge.failed()
        self._ahead += max(0, time)
        self._wall += time

    @property
    def ahead(self) -> int:
        """How far its time of day is ahead, in milliseconds."""
        return self._wall

    @property
    def moment(self) -> Moment:
        """What its clocks show."""
        now = self._line.now
        wall = START + timedelta(milliseconds=now + self._wall)
        return Moment((now + self._ahead) / SECOND, wall)

    # -- news --------------------------------------------------------------------------------------------

    def cut(self, kind: str, *, down: int, gone: bool) -> None:
        """Break a watch for a while; where the version is gone by then, everything is listed anew."""
        wire = self._wires[kind]
        if not wire.open or not wire.listed:
            return
        self._tell(self.name, f"its watch of {kind} is cut" + (", the version is gone" if gone else ""))
        self._judge.failed()
        wire.close()
        self._line.after(down, "reconnect", self._reconnect, kind, wire.epoch, gone)

    def stall(self, kind: str, time: int) -> None:
        """Let nothing arrive of a kind for a while."""
        self._tell(self.name, f"hears nothing of {kind} for {time} ms")
        self._judge.failed()
        wire = self._wires[kind]
        wire.slow = max(wire.slow, self._line.now + time)

    def caught_up(self) -> bool:
        """Tell whether all that has happened has arrived."""
        if self.scheduler is None or self._line.now < self._frozen:
            return False
        history = self._server.history
        return all(
            wire.open
            and wire.listed
            and not wire.under_way
            and (not history[kind] or history[kind][-1].version <= wire.version)
            for kind, wire in self._wires.items()
        )

    def _changed(self, kind: str, what: str, before: object, item: object) -> None:
        wire = self._wires.get(kind)
        if wire is not None and wire.open:
            self._send_on(kind, wire, self._server.history[kind][-1])

    def _send_on(self, kind: str, wire: _Wire, change: Change) -> None:
        now, profile = self._line.now, self._profile
        arrives = max(wire.ready, wire.slow, now + self._chance.below(profile.lag + 1))
        wire.sent = change.version
        if change.what == "BOOKMARK":
            wire.ready = arrives = max(arrives, wire.last)  # it says that all before it has been told
        else:
            wire.under_way[change.version] = None
            if profile.storms(now) and self._chance.happens(profile.overtaken):
                self._judge.failed()
                arrives += self._chance.between(1, _OVERTAKEN)
            else:
                wire.ready = arrives
        wire.last = max(wire.last, arrives)
        self._line.after(arrives - now, "news", self._deliver, kind, wire.epoch, change)

    def _deliver(self, kind: str, epoch: int, change: Change) -> None:
        wire = self._wires[kind]
        if epoch != wire.epoch:
            return
        wire.under_way.pop(change.version, None)
        wire.version = next(iter(wire.under_way), wire.sent + 1) - 1
        self._hear(self._life, Watched(kind, change.what, change.item))

    def _reconnect(self, kind: str, epoch: int, gone: bool) -> None:
        wire = self._wires[kind]
        if epoch != wire.epoch:
            return
        self._judge.failed()
        missed = None if gone else self._server.since(kind, wire.version)
        if missed is None:
            self._list(kind)
            return
        wire.open = True
        for change in missed:
            self._send_on(kind, wire, change)

    def _list(self, kind: str) -> None:
        """Ask for all objects of a kind; the watch goes on from the version of the answer."""
        wire = self._wires[kind]
        wire.close()
        wire.listed = False
        self._line.after(self._way(), "list", self._read_list, kind, wire.epoch)

    def _read_list(self, kind: str, epoch: int) -> None:
        wire = self._wires[kind]
        if epoch != wire.epoch:
            return
        if self._profile.storms(self._line.now) and self._chance.happens(self._profile.busy):
            self._judge.failed()
            self._line.after(500, "list", self._read_list, kind, epoch)
            return
        items, version = tuple(self._server.objects[kind].values()), self._server.version
        wire.open = True
        wire.sent = version
        wire.ready = max(self._line.now + self._way(), wire.slow)
        delay = wire.ready - self._line.now
        self._line.after(delay, "listing", self._give_list, kind, epoch, items, version)

    def _give_list(self, kind: str, epoch: int, items: tuple[dict[str, object], ...], version: int) -> None:
        wire = self._wires[kind]
        if epoch == wire.epoch:
            wire.version = max(wire.version, version)
            wire.listed = True
            self._hear(self._life, Listed(kind, items, str(version)))

    def bookmark(self) -> None:
        """Tell every watch how far the server is; as often as a server does."""
        for kind, wire in self._wires.items():
            if wire.open:
                mark = {"metadata": {"resourceVersion": str(self._server.version)}, "kind": kind}
                self._send_on(kind, wire, Change(self._server.version, "BOOKMARK", mark))
        self._line.after(_BOOKMARK, "bookmark", self.bookmark)

    # -- what it does ------------------------------------------------------------------------------------

    def _hear(self, life: int, news: News) -> None:
        if self.scheduler is None or life != self._life:
            return
        if self._line.now < self._frozen:
            self._later.append((life, news))
            return
        try:
            acts = list(self.scheduler.hear(news, self.moment))
        except Exception as error:
            what = f"{self.name} ended: {type(error).__name__}: {error}"
            self._judge.broken(Rule.CRASH, what)
            raise
        for act in acts:
            self._do(act)
            if life != self._life:
                return

    def _do(self, act: Act) -> None:
        match act:
            case Post(ticket, request):
                if self._dies_after == 0:
                    self.kill()
                    return
                self._dies_after -= self._dies_after > 0
                self._post(ticket, request)
            case SetBell(bell, seconds):
                delay = max(1, round(seconds * SECOND))
                self._line.after(delay, "bell", self._hear, self._life, Rang(bell))
            case ListAgain(kind):
                self._list(kind)
            case Note(text):
                self._tell(self.name, text)

    def _post(self, ticket: int, request: Request) -> None:
        """Send a request on its way: it may get lost, come late, or its answer may."""
        profile, chance, life = self._profile, self._chance, self._life
        storms = profile.storms(self._line.now)
        if storms and chance.happens(profile.lost):
            self._unknown(life, ticket, request)
        elif storms and chance.happens(profile.late):
            self._unknown(life, ticket, request)
            delay = chance.between(SECOND // 2, 2 * _TIMEOUT)
            self._line.after(delay, "late request", self._arrive, -1, ticket, request)
        elif storms and chance.happens(profile.busy):
            self._judge.failed()
            status = chance.one_of((BUSY, 429)) if request.subresource != "eviction" else BUSY
            self._line.after(
                self._way(), "answer", self._answer, life, Answered(ticket, Answer(request, status))
            )
        elif storms and chance.happens(profile.unanswered):
            self._unknown(life, ticket, request)
            self._line.after(self._way(), "request", self._arrive, -1, ticket, request)
        else:
            self._line.after(self._way(), "request", self._arrive, life, ticket, request)

    def _unknown(self, life: int, ticket: int, request: Request) -> None:
        self._judge.failed()
        unknown = Answered(ticket, Answer(request, NO_ANSWER))
        self._line.after(self._chance.between(50, _TIMEOUT), "no answer", self._answer, life, unknown)

    def _arrive(self, life: int, ticket: int, request: Request) -> None:
        """A request is at the server; it is answered where somebody waits for that (``life``)."""
        if life < 0:
            self._judge.failed()
        evicting = request.subresource == "eviction"
        self._judge.evicting = evicting
        pod = self._server.objects["Pod"].get(request.pod) if request.pod else None
        status, body = self._server.handle(request)
        self._judge.evicting = False
        if request.method != "GET" and request.subresource != "status":
            self._say(request, pod, status)
        if evicting and status == 429 and request.pod is not None:
            self._judge.refused(self._server.objects["Pod"][request.pod])
        if life >= 0:
            answer = Answered(ticket, Answer(request, status, body))
            self._line.after(self._way(), "answer", self._answer, life, answer)

    def _say(self, request: Request, pod: Object | None, status: int) -> None:
        if request.pod is None and request.path.endswith("journal"):
            what = "writes its journal"
        elif request.subresource == "binding":
            what = f"binds {request.about.rpartition('/')[2]} to {request.body['target']['name']}"
        elif request.subresource == "eviction":
            job = preempted_for(pod).rpartition("/")[2] if pod else ""
            what = f"evicts {request.about.rpartition('/')[2]}" + (f" for {job}" if job else "")
        else:
            return
        self._tell(self.name, what if status < 300 else f"{what}: refused ({status})")

    def _answer(self, life: int, news: Answered) -> None:
        self._hear(life, news)

    def _way(self) -> int:
        return 1 + self._chance.below(self._profile.latency)
