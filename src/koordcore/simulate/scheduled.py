"""The general replay: pods over time on a snapshot, placed by ``schedule`` with any policy.

Slower than :mod:`koordcore.simulate.engine` by far, and true to everything that ``schedule`` knows: quotas,
gangs, devices, NUMA nodes, spread. All that happens in one second is taken in, and then the pending pods are
asked about once.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields
from koordcore.model.device_slices import ResourceSlice
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU, MEMORY
from koordcore.protocol.times import moment_of
from koordcore.reservations.lifecycle import controlled, known_ends
from koordcore.scheduling import schedule
from koordcore.scheduling.gang_states import gang_id_of
from koordcore.scheduling.permit_holds import kept_places
from koordcore.simulate.claimed_cards import CountedCards, PublishedCards, counted_cards, published_cards
from koordcore.simulate.course import Placement
from koordcore.simulate.events import Departure, NodeDrained, NodeFailed, refuse_duration, timely
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


@names_its_fields
@record
class PodArrival:
    """A pod is created.

    Parameters
    ----------
    time
        Seconds since the start.
    pod
        Unbound; its creation time becomes that of the arrival unless it has one.
    duration
        Seconds that it runs once bound; ``None``: until a :class:`Departure` names it (``namespace/name``).
    """

    time: int
    pod: Pod
    duration: int | None = None

    def __attrs_post_init__(self) -> None:
        refuse_duration(self.duration, f"pod {self.pod.key}")


@record
class NodeJoined:
    """A node is new, or comes back after it failed or was drained; a drained one keeps its pods.

    One that is unschedulable at the start counts as drained.
    """

    time: int
    node: Node


ClusterEvent: TypeAlias = PodArrival | Departure | NodeJoined | NodeDrained | NodeFailed


@record(eq=False, kw_only=True)
class ScheduledReplay:
    """What a policy made of a stream of pods.

    Parameters
    ----------
    time
        ``(E,)``: the seconds at which something happened.
    pending
        ``(E,)``: pods that wait after each, members of NonStrict gangs that keep places among them.
    waited
        ``(E,)``: seconds that the pods bound then had waited, added up.
    resources, requested
        Names, and ``(R, E)`` what the bound pods ask for, and those that keep places, in the resource's unit.
    cards, in_use
        Cards, and ``(E,)`` the thousandths of one that are held after each: of those that drivers publish by
        claims; where none does, of those of the nodes at the start by what pods ask for.
    placements
        Every binding, in order; ``slots`` is empty, what a pod holds is told by its annotations.
    snapshot
        The cluster at the end, with the pods that still wait; who keeps a place stands on its node.
    """

    time: NDArray[np.int64]
    pending: NDArray[np.int64]
    waited: NDArray[np.int64]
    resources: tuple[str, ...]
    requested: NDArray[np.int64]
    cards: int
    in_use: NDArray[np.int64]
    placements: tuple[Placement, ...]
    snapshot: ClusterSnapshot

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all bindings in canonical form."""
        rows = [[one.task, one.node, one.time] for one in self.placements]
        return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode("ascii")).hexdigest()


@attrs.define
class _Clock:
    """One replay from the first second to the last."""

    snapshot: ClusterSnapshot
    policy: Policy
    start: datetime
    resources: tuple[str, ...]
    known: PublishedCards | CountedCards
    ends: list[tuple[int, int, PodKey]] = attrs.Factory(list)
    arrived: dict[PodKey, PodArrival] = attrs.Factory(dict)
    since: dict[PodKey, int] = attrs.Factory(dict)
    runs: dict[PodKey, int] = attrs.Factory(dict)
    gone: set[PodKey] = attrs.Factory(set)
    placements: list[Placement] = attrs.Factory(list)
    rows: list[tuple[int, int, int]] = attrs.Factory(list)
    used: list[list[int]] = attrs.Factory(list)
    in_use: list[int] = attrs.Factory(list)
    over: set[PodKey] = attrs.Factory(set)
    """Whose time to keep a place has been looked at: it ends once."""

    def play(self, events: Sequence[ClusterEvent], progress: Callable[[int, int], None]) -> None:
        if events:
            self.begin(events[0].time)
        position = 0
        while True:
            while self.ends and self.runs.get(self.ends[0][2]) != self.ends[0][1]:
                heapq.heappop(self.ends)  # it left earlier
            moments = [self.ends[0][0]] if self.ends else []
            if position < len(events):
                moments.append(events[position].time)
            moments += self.given_back()
            given_up = self.given_up(on=bool(moments))
            if not moments and not given_up:
                break
            now = min([*moments, *given_up.values()])
            self.over |= {key for key, time in given_up.items() if time <= now}
            while self.ends and self.ends[0][0] == now:
                _, run, key = heapq.heappop(self.ends)
                if self.runs.get(key) == run:
                    self.forget(key)
            while position < len(events) and events[position].time == now:
                self.happen(events[position])
                position += 1
            self.decide(now)
            progress(position, len(events))

    def given_back(self) -> list[int]:
        """Tell when the next reservation is over, if somebody waits who may want its room."""
        if not self.rows or not self.asks():  # nothing has happened yet, or nobody is asked about
            return []
        # It holds to its last moment, so its room is there in the second that follows.
        seconds = ((end - self.start) // _SECOND + 1 for end in known_ends(self.snapshot).values())
        last, latest = self.rows[-1][0], _seconds(_LAST) - _seconds(self.start)
        return [min(later)] if (later := [one for one in seconds if last < one <= latest]) else []

    def asks(self) -> bool:
        """Tell whether somebody is to be asked about, a reservation without a node among them."""
        return self.waiting() > 0 or any(one.pending for one in self.snapshot.of(Reservation))

    def given_up(self, *, on: bool) -> dict[PodKey, int]:
        """Tell when places that are kept are given up; where nothing goes ``on``, if somebody else waits."""
        begun = moment_of(self.start)
        return {
            one.pod.key: -((begun - one.until) // 10**9)
            for one in kept_places(self.snapshot)
            if one.until is not None and one.pod.key not in self.over and (on or self.others_wait(one.pod))
        }

    def others_wait(self, keeper: Pod) -> bool:
        """Tell whether somebody waits who is not of the gang of one who keeps a place."""
        return any(gang_id_of(pod) != gang_id_of(keeper) for pod in self.snapshot.pending)

    def begin(self, first: int) -> None:
        """Take those who wait at the start for arrivals, none of them later than the first event."""
        keeping = (one.pod for one in kept_places(self.snapshot))
        for pod in (*self.snapshot.pending, *keeping):
            made = 0 if pod.created is None else (pod.created - self.start) // _SECOND
            time = min(max(made, 0), first)
            self.arrived[pod.key] = PodArrival(time, pod)
            self.since[pod.key] = time

    def happen(self, event: ClusterEvent) -> None:
        match event:
            case PodArrival(time, pod):
                created = pod.created or self.start + timedelta(seconds=time)
                pod = attrs.evolve(pod, created=created)
                if self.snapshot.pod(pod.key):
                    raise ModelError(f"pod {pod.key} is there already")
                self.arrived[pod.key] = attrs.evolve(event, pod=pod)
                self.since[pod.key] = time
                self.snapshot = self.snapshot.with_pending(pod)
            case Departure(_, name):
                key = PodKey(*name.split("/", 1)) if "/" in name else PodKey("default", name)
                if self.snapshot.pod(key):
                    self.forget(key)
                elif key not in self.gone:
                    raise ModelError(f"no pod {key}")
            case NodeJoined(_, node):
                known = node.name in self.snapshot.layout.row_of
                if known and not self.snapshot.node(node.name).node.unschedulable:
                    raise ModelError(f"node {node.name} is there already")
                pods = self.snapshot.node(node.name).pods if known else ()
                self.snapshot = self.snapshot.with_nodes(NodeState(node, pods))
            case NodeDrained(_, name):
                state = self.snapshot.node(name)
                closed = attrs.evolve(state.node, unschedulable=True)
                self.snapshot = self.snapshot.with_nodes(NodeState(closed, state.pods))
            case NodeFailed(time, name):
                self.fail(time, name)
            case _:
                raise ModelError(f"events: {type(event).__name__} is for `replay`, or for none")

    def forget(self, key: PodKey) -> None:
        for known in (self.runs, self.arrived, self.since):
            known.pop(key, None)
        self.gone.add(key)
        self.snapshot = self.snapshot.forget(key)

    def fail(self, time: int, name: str) -> None:
        """Take a node away; its pods ask for a place again unless they were bound at the start."""
        gone = [pod.key for pod in self.snapshot.node(name).pods]
        lost = [key for key in gone if key in self.arrived]
        self.gone.update(gone)
        self.snapshot = self.snapshot.forget(*gone).without_nodes(name)
        for key in lost:
            if self.runs.pop(key, None) is not None:  # who only kept a place goes on waiting
                self.since[key] = time
            self.snapshot = self.snapshot.with_pending(self.arrived[key].pod)

    def waiting(self) -> int:
        """Count those who wait, on places that they keep or without one."""
        return len(self.snapshot.pending) + len(kept_places(self.snapshot))

    def decide(self, now: int) -> None:
        """Ask about the pending pods, once, and note how things stand."""
        waited = 0
        moment = self.start + timedelta(seconds=now)
        if self.snapshot.of(Reservation):
            self.snapshot = controlled(self.snapshot, moment)
        if self.asks():
            result = schedule(self.snapshot, policy=self.policy, now=moment)
            self.snapshot = result.snapshot
            for one in result.bound:
                if one.pod not in result.snapshot.location:
                    continue  # it stood for a reservation
                since = self.since.get(one.pod, now)
                waited += now - since
                self.runs[one.pod] = len(self.placements)
                arrival = self.arrived.get(one.pod)
                lasts = None if arrival is None else arrival.duration
                # Whoever runs beyond all calendars stays.
                if lasts is not None and now + lasts <= _seconds(_LAST) - _seconds(self.start):
                    heapq.heappush(self.ends, (now + lasts, len(self.placements), one.pod))
                self.placements.append(Placement(str(one.pod), one.node, (), now, now - since))
        self.rows.append((now, self.waiting(), waited))
        index, columns = self.snapshot.layout.index, self.snapshot.columns
        self.used.append(
            [int(columns.requested[index[name]].sum()) if name in index else 0 for name in self.resources]
        )
        self.in_use.append(self.known.in_use(self.snapshot) if self.known.cards else 0)


def replay_schedule(
    snapshot: ClusterSnapshot,
    events: Iterable[ClusterEvent],
    *,
    policy: Policy = Policy(),
    start: datetime = EPOCH,
    resources: Sequence[str] = (CPU, MEMORY),
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> ScheduledReplay:
    """Let ``schedule`` place a stream of pods.

    Parameters
    ----------
    snapshot
        The cluster at the start. Its pending pods are asked about at the first event, and have waited from
        second 0 on, or from their creation where that is later; once bound they are as any that arrived.
        Pods that are bound at the start stay until they are named, and vanish with their node when that
        fails. Its reservations live as their controller has it, one turn before each question, and one that
        is over while somebody waits is a reason to ask; one without a creation time is new at the start.
    events
        In the order of time, in seconds since the start. At equal times runs end before anything else.
    policy
        Who decides.
    start
        The moment of second 0, for plugins that look at the age of things.
    resources
        Whose use is noted.
    progress
        Called after each moment with how many events have happened, and of how many.

    Raises
    ------
    ModelError
        When events are out of order, at no whole second or of another replay, a pod or node arrives that is
        there already, or one is named that is not there or, if a pod, never was: one that has ended by itself
        may be let depart once more.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot, Node, Pod
    >>> from koordcore.simulate import PodArrival
    >>> cluster = ClusterSnapshot(nodes=[Node(name="n", allocatable={"cpu": 1000, "pods": 9})])
    >>> pods = [Pod(name=name, requests={"cpu": 1000}) for name in ("a", "b")]
    >>> run = replay_schedule(cluster, [PodArrival(0, pods[0], 60), PodArrival(5, pods[1], 60)])
    >>> [(one.task, one.time, one.waited) for one in run.placements]
    [('default/a', 0, 0), ('default/b', 60, 55)]
    """
    if isinstance(resources, str):
        raise ModelError(f"resources: expected names, got {resources!r:.60}")
    stream = list(timely(events, _seconds(_FIRST) - _seconds(start), _seconds(_LAST) - _seconds(start)))
    fresh = [attrs.evolve(one, created=start) for one in snapshot.of(Reservation) if one.created is None]
    if fresh:
        snapshot = snapshot.with_records(*fresh)
    published = published_cards(snapshot.of(ResourceSlice))
    known = published if published.cards else counted_cards(snapshot)
    clock = _Clock(snapshot, policy, start, tuple(resources), known)
    clock.play(stream, progress)
    table = np.array(clock.rows, np.int64).reshape(len(clock.rows), 3)
    used = np.array(clock.used, np.int64).reshape(len(clock.rows), len(clock.resources))
    return ScheduledReplay(
        time=table[:, 0],
        pending=table[:, 1],
        waited=table[:, 2],
        resources=clock.resources,
        requested=used.T,
        cards=known.cards,
        in_use=np.array(clock.in_use, np.int64),
        placements=tuple(clock.placements),
        snapshot=clock.snapshot,
    )


def stream_of(
    snapshot: ClusterSnapshot, ends: Mapping[PodKey, datetime], durations: Mapping[PodKey, timedelta]
) -> tuple[ClusterSnapshot, tuple[ClusterEvent, ...]]:
    """Let the pending pods of a snapshot arrive when they were created, at seconds since 1970.

    Parameters
    ----------
    snapshot
        The cluster; a pod without a creation time comes first.
    ends
        When pods that run are gone.
    durations
        How long pods run once they are bound; who is not named stays.

    Returns
    -------
    tuple
        The cluster with nobody waiting, and what happens to it, as :func:`replay_schedule` takes both.
    """
    begin = snapshot.apply(*(PodEnded(pod.key) for pod in snapshot.pending))
    events: list[tuple[int, PodKey, ClusterEvent]] = []
    for pod in snapshot.pending:
        second = _seconds(pod.created) if pod.created else 0
        lasts = durations.get(pod.key)
        # What a pod says of itself may be less than nothing, as a deadline may: it ends at once.
        whole = None if lasts is None else max(0, -(-lasts // _SECOND))
        events.append((second, pod.key, PodArrival(second, pod, whole)))
    for key, end in ends.items():
        events.append((_seconds(end), key, Departure(_seconds(end), str(key))))
    return begin, tuple(event for _, _, event in sorted(events, key=lambda one: one[:2]))


def _seconds(moment: datetime) -> int:
    return (moment - EPOCH) // _SECOND
