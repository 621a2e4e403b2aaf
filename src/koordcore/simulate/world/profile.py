"""What can go wrong, how often, and on how large a cluster: the frozen question that a seed is drawn for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError

SECOND: Final = 1000
"""Milliseconds: the bottle's clock counts these."""
NEVER: Final = 0


def _check(profile: FaultProfile) -> None:
    for field in attrs.fields(FaultProfile):
        value = getattr(profile, field.name)
        if field.name != "name" and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise ModelError(f"{field.name}: a whole number that is not negative is needed, got {value!r}")
    for name in ("nodes", "schedulers", "seconds", "arrival", "wall"):
        if not getattr(profile, name):
            raise ModelError(f"{name}: at least 1 is needed")


@record(kw_only=True)
class FaultProfile:
    """A kind of world: its size, its load, and its faults.

    Times are in milliseconds unless a name says otherwise, shares in thousandths. A fault is given by the
    mean time between two of its kind while it storms; 0 means never.

    Parameters
    ----------
    name
        What it is called in what is printed.
    seconds
        For how long a run lasts; the last ``calm`` of it are without faults.
    storm, calm
        Faults come for so many seconds, then none for so many, in turns.
    nodes, cards
        Nodes, and the cards of every second one.
    schedulers
        How many run at once.
    arrival, most
        Mean time between two workloads; how many there are at a time at most, for five nodes.
    gangs, quotas, budgets
        Share of workloads that start together, that count against a quota, and that a disruption budget
        protects.
    metrics
        Time between two reports of a node's usage.
    latency
        Longest time that a request is under way, each way.
    lag
        Longest time that a change needs to a watcher; kinds of objects overtake each other.
    think
        Longest time that a decision takes.
    lost, unanswered, busy, late
        Requests that never arrive, whose answer is lost, that the server has no time for, and that arrive
        after seconds; while it storms.
    cut, gone
        Watches that break; share of those whose version the server has forgotten then.
    overtaken
        Share of changes that arrive after later ones of their kind while it storms. No server does this to a
        watch, and rivals count on it: a scheduler that has heard of one change knows all before it.
    slow
        Watches of one kind that stand still for some seconds.
    kill
        Schedulers that are killed, after any of their next calls.
    freeze
        Schedulers that stand still for some seconds and go on as if nothing had happened.
    jump
        Clocks of schedulers that jump.
    wall
        How far the time of day jumps at most, in seconds; a clock that does not go back only jumps forward.
    death, leave, cordon
        Nodes that die, that are removed with their pods, that are closed; all come back.
    crash, delete
        Pods that fail, and that a user deletes.
    drain
        Longest grace period of a pod.
    stuck
        Share of pods that stay for seconds beyond it, for a finalizer.
    stale
        Nodes whose reports stop for a while.
    """

    name: str = "custom"
    seconds: int = 240
    storm: int = 40
    calm: int = 50
    nodes: int = 5
    cards: int = 4
    schedulers: int = 1
    arrival: int = 1500
    most: int = 6
    gangs: int = 300
    quotas: int = 500
    budgets: int = 200
    metrics: int = NEVER
    latency: int = 20
    lag: int = 60
    think: int = 40
    lost: int = 0
    unanswered: int = 0
    busy: int = 0
    late: int = 0
    cut: int = NEVER
    gone: int = 300
    overtaken: int = 0
    slow: int = NEVER
    kill: int = NEVER
    freeze: int = NEVER
    jump: int = NEVER
    wall: int = 600
    death: int = NEVER
    leave: int = NEVER
    cordon: int = NEVER
    crash: int = NEVER
    delete: int = NEVER
    drain: int = 3000
    stuck: int = 0
    stale: int = NEVER

    __attrs_post_init__ = _check

    def storms(self, time: int) -> bool:
        """Tell whether faults come at a moment, in milliseconds."""
        if time >= (self.seconds - self.calm) * SECOND:
            return False
        return self.storm > 0 and time % ((self.storm + self.calm) * SECOND) < self.storm * SECOND


_STORM: Final = FaultProfile(
    name="storm",
    lost=30,
    unanswered=30,
    busy=40,
    late=20,
    cut=3000,
    overtaken=50,
    slow=8000,
    kill=6000,
    freeze=15_000,
    jump=15_000,
    death=20_000,
    leave=30_000,
    cordon=15_000,
    crash=6000,
    delete=5000,
    stuck=150,
    metrics=5000,
    stale=15_000,
)
PROFILES: Final[Mapping[str, FaultProfile]] = immutabledict(
    {
        one.name: one
        for one in (
            FaultProfile(name="calm"),
            FaultProfile(name="network", lost=40, unanswered=40, busy=60, late=30, cut=1500, slow=4000),
            FaultProfile(name="nodes", death=8000, leave=12_000, cordon=8000, crash=3000, stuck=300),
            FaultProfile(name="kills", kill=1500, unanswered=10),
            FaultProfile(
                name="rivals", schedulers=3, kill=6000, freeze=6000, unanswered=20, slow=6000, cut=4000
            ),
            _STORM,
            attrs.evolve(
                _STORM,
                name="hurricane",
                schedulers=2,
                overtaken=0,
                kill=3000,
                freeze=8000,
                delete=2000,
                cut=1500,
            ),
        )
    }
)
"""Kinds of worlds by name; ``storm`` has every fault."""


def named_profile(name: str) -> FaultProfile:
    """Give a profile by its name.

    Raises
    ------
    ModelError
        When none is called that; the message lists those that there are.
    """
    if name not in PROFILES:
        raise ModelError(f"no profile {name}; there are {', '.join(PROFILES)}")
    return PROFILES[name]
