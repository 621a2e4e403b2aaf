"""What a run is: what was injected, what happened, what was found broken."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import attrs

from koordcore._record import record
from koordcore.model.mappings import EMPTY, frozen
from koordcore.simulate.world.profile import SECOND, FaultProfile


@record
class Injection:
    """Something that comes from outside: load or a fault.

    Parameters
    ----------
    number
        Among those of the run; what is left out of a run is named by it.
    time
        In milliseconds.
    what
        Its kind, such as ``pods``, ``kill`` or ``death``.
    about
        Which of those that there are, as a number that is drawn anew for each.
    amount
        How long, how much, or after how many calls.
    """

    number: int
    time: int
    what: str
    about: int = 0
    amount: int = 0


class Rule(StrEnum):
    """What has to hold."""

    CAPACITY = "capacity"
    """No node holds more than it has."""
    DEVICES = "devices"
    """No card is given twice, and every pod has the cards that it wants."""
    QUOTA = "quota"
    """No quota uses more than its ``max``."""
    GANG = "gang"
    """No gang runs below its minimum once its grace is over."""
    REASON = "reason"
    """Who is evicted makes room for somebody, is of half a gang, or of a quota beyond its ``min``."""
    BUDGET = "budget"
    """No eviction takes a workload below its disruption budget."""
    PROMISE = "promise"
    """Whoever preempts starts, or somebody as important, unless something failed meanwhile."""
    LIVENESS = "liveness"
    """What has room and is the most important that waits starts."""
    REPAIR = "repair"
    """What a node cannot hold, since several decided on stale views, is gone within the bound."""
    BOOKS = "books"
    """The books of a scheduler equal the truth when the news has arrived."""
    STEADY = "steady"
    """A running pod keeps its node and its cards."""
    CRASH = "crash"
    """No scheduler ends by itself."""


@record
class Breach:
    """A rule that does not hold.

    Parameters
    ----------
    time
        When it was found, in milliseconds.
    what
        What was found, in words.
    """

    rule: Rule
    time: int
    what: str


@record
class Happening:
    """One line of a story: when, who, what."""

    time: int
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.time // SECOND:5d}.{self.time % SECOND // 100}  {self.who:<10.10}  {self.what}"


@record(eq=False)
class Standing:
    """How the cluster stood at a moment: milli-cards or milli-cores by node, and pods that wait."""

    time: int
    used: Mapping[str, int]
    waiting: int
    open: frozenset[str]


@record(kw_only=True)
class WorldRun:
    """One run, which follows from its seed, its profile and what is left out.

    Parameters
    ----------
    without
        Numbers of injections that were left out.
    events
        How many things happened.
    counts
        How often what happened.
    breaches
        What was found broken, in the order of time; the run ends with the first.
    story
        What happened, where it was asked for.
    standings
        How the cluster stood, every second, where it was asked for.
    ended
        When the run was over, in milliseconds.
    """

    seed: int
    profile: FaultProfile
    without: frozenset[int] = frozenset()
    events: int = 0
    counts: Mapping[str, int] = attrs.field(default=EMPTY, converter=frozen)
    breaches: tuple[Breach, ...] = ()
    injections: tuple[Injection, ...] = ()
    story: tuple[Happening, ...] = attrs.field(default=(), repr=False)
    standings: tuple[Standing, ...] = attrs.field(default=(), repr=False, eq=False)
    ended: int = 0
