"""A run: a seed and a profile in, what happened and what was found broken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from koordcore.controlplane import RESOURCES
from koordcore.errors import ModelError
from koordcore.model.load import LoadAwareArgs
from koordcore.simulate.world.audit import audit
from koordcore.simulate.world.chance import Chance
from koordcore.simulate.world.judge import Judge
from koordcore.simulate.world.liveness import Liveness
from koordcore.simulate.world.nature import Nature
from koordcore.simulate.world.plug import BottledScheduler
from koordcore.simulate.world.profile import NEVER, SECOND, FaultProfile
from koordcore.simulate.world.record import Happening, Injection, Rule, Standing, WorldRun
from koordcore.simulate.world.seats import Seat
from koordcore.simulate.world.server import ApiServer
from koordcore.simulate.world.timeline import Timeline

_FAULTS: Final = (
    "cut", "slow", "kill", "freeze", "jump", "death", "leave", "cordon", "crash", "delete", "stale",
)  # fmt: skip
_AUDIT: Final = 10
"""The books are compared with the truth every so many seconds, when all news has arrived."""


def injections(seed: int, profile: FaultProfile) -> tuple[Injection, ...]:
    """Draw all that comes from outside, each kind from a stream of its own, in the order of time."""
    found: list[tuple[int, str, int, int]] = []
    for what in ("arrival", *_FAULTS):
        mean = getattr(profile, what)
        if mean == NEVER:
            continue
        chance, time = Chance(seed, what), 0
        while True:
            time += chance.gap(mean)
            if time >= profile.seconds * SECOND:
                break
            about, amount = chance.below(1 << 30), chance.below(1 << 30)
            if what == "arrival":
                found.append((time, "pods", about, amount))
            elif profile.storms(time):
                found.append((time, what, about, amount))
    return tuple(Injection(number, *one) for number, one in enumerate(sorted(found)))


def run_world(
    seed: int,
    profile: FaultProfile,
    make: Callable[[int], BottledScheduler],
    *,
    exclusive: bool = True,
    reported: LoadAwareArgs | None = None,
    without: frozenset[int] = frozenset(),
    until: int | None = None,
    tell: bool = False,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> WorldRun:
    """Let schedulers live through a world.

    Parameters
    ----------
    seed, profile
        What happens to them follows from these.
    make
        Makes the scheduler of a seat, anew after every kill; given is the number of the seat.
    exclusive
        The schedulers promise that they never decide on each other's room; else what several of them do to
        a node has to be repaired within a bound.
    reported
        What nodes have to report before anybody is put there, where the schedulers ask for that: room
        beyond it is not held against them.
    without
        Numbers of injections that are left out; a run without them keeps the numbers of the others.
    until
        Ends the run earlier, in milliseconds.
    tell
        Keep the story and how the cluster stood.
    progress
        Called after each second of the world with how many have passed, and of how many.

    Returns
    -------
    WorldRun
        It ends with the first rule that does not hold.

    Raises
    ------
    ModelError
        When ``without`` has a number that no injection has.

    Examples
    --------
    >>> from koordcore.simulate.world import FaultProfile, own_scheduler, run_world
    >>> calm = FaultProfile(seconds=20, nodes=2, storm=0)
    >>> run = run_world(1, calm, own_scheduler)
    >>> run.breaches, run.counts["create"] > 0
    ((), True)
    """
    return _World(seed, profile, make, exclusive, reported, without, tell).run(until, progress)


class _World:
    """One world from its first moment to its last."""

    def __init__(
        self,
        seed: int,
        profile: FaultProfile,
        make: Callable[[int], BottledScheduler],
        exclusive: bool,
        reported: LoadAwareArgs | None,
        without: frozenset[int],
        tell: bool,
    ) -> None:
        self._seed, self._profile, self._without = seed, profile, without
        self._line, self._server = Timeline(), ApiServer()
        self._judge = Judge(self._server, self._line, exclusive=exclusive)
        self._liveness = Liveness(self._judge.truth, reported)
        self._story: list[Happening] = []
        self._standings: list[Standing] = []
        self._keep = tell
        self._nature = Nature(
            line=self._line,
            server=self._server,
            judge=self._judge,
            profile=profile,
            seed=seed,
            tell=self._tell,
        )
        self._seats = [
            Seat(
                number,
                lambda number=number: make(number),  # type: ignore[misc]
                line=self._line,
                server=self._server,
                judge=self._judge,
                profile=profile,
                seed=seed,
                tell=self._tell,
            )
            for number in range(profile.schedulers)
        ]
        drawn = injections(seed, profile)
        unknown = without.difference(one.number for one in drawn)
        if unknown:
            there = f"only 0 to {len(drawn) - 1}" if drawn else "nor any other"
            raise ModelError(f"without: there is no injection {min(unknown)}, {there}")
        self._injections = tuple(one for one in drawn if one.number not in without)

    def run(self, until: int | None, progress: Callable[[int, int], None]) -> WorldRun:
        line, judge = self._line, self._judge
        self._nature.begin()
        for seat in self._seats:
            line.after(0, "start", seat.start)
            line.after(SECOND, "bookmark", seat.bookmark)
        for one in self._injections:
            line.after(one.time, one.what, self._inject, one)
        line.after(SECOND, "tick", self._tick)
        end = min(until or self._profile.seconds * SECOND, self._profile.seconds * SECOND)
        try:
            while line.now < end and not judge.breaches and line.step():
                progress(line.now // SECOND, end // SECOND)
        except Exception:
            if not judge.breaches:  # the bottle itself has failed
                raise
        return WorldRun(
            seed=self._seed,
            profile=self._profile,
            without=self._without,
            events=line.events,
            counts={**line.counts, "evictions": judge.evictions, "started percent": judge.started},
            breaches=tuple(judge.breaches),
            injections=self._injections,
            story=tuple(self._story),
            standings=tuple(self._standings),
            ended=line.now,
        )

    def _tell(self, who: str, what: str) -> None:
        if self._keep:
            self._story.append(Happening(self._line.now, who, what))

    # -- from outside ------------------------------------------------------------------------------------

    def _inject(self, one: Injection) -> None:
        seat = self._seats[one.about % len(self._seats)]
        node = one.about % self._profile.nodes
        amount = one.amount
        match one.what:
            case "pods":
                self._nature.arrive(one.number)
            case "cut":
                kind = list(RESOURCES)[amount % len(RESOURCES)] if amount & 64 else "Pod"
                gone = (amount >> 8) % 1000 < self._profile.gone
                seat.cut(kind, down=50 + (amount >> 18) % 3000, gone=gone)
            case "slow":
                kind = list(RESOURCES)[amount % len(RESOURCES)] if amount & 64 else "Pod"
                seat.stall(kind, 500 + (amount >> 8) % 6000)
            case "kill":
                seat.kill_after(amount % 8)
            case "freeze":
                seat.freeze(500 + amount % 12_000)
            case "jump":
                seat.jump((amount % (2 * self._profile.wall) - self._profile.wall) * SECOND)
            case "death":
                self._nature.die(node, amount % 20_000)
            case "leave":
                self._nature.leave(node, amount % 15_000)
            case "cordon":
                self._nature.cordon(node, 1000 + amount % 15_000)
            case "crash":
                self._nature.crash(amount)
            case "delete":
                self._nature.withdraw(amount)
            case "stale":
                self._nature.silence(node, 5000 + amount % 30_000)
            case _:
                raise ModelError(f"no such injection: {one.what}")

    # -- every second ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        line, judge = self._line, self._judge
        line.after(SECOND, "tick", self._tick)
        judge.tick()
        ahead = max(seat.ahead for seat in self._seats)
        for name in self._liveness.late(line.now, judge.last_fault, ahead)[:1]:
            judge.broken(
                Rule.LIVENESS, f"{name} has room, is the most important that waits, and does not start"
            )
        if line.now // SECOND % _AUDIT == 0:
            for what in audit(self._server, self._seats):
                judge.broken(Rule.BOOKS, what)
        if self._keep:
            truth = judge.truth
            used = {name: truth.cores(name) for name in truth.room}
            opened = frozenset(name for name, is_open in truth.open.items() if is_open)
            self._standings.append(Standing(line.now, used, len(truth.waiting), opened))
