"""Whose turn it is: pods that may find a place, those that pause, and those that nothing has helped yet.

The three queues of upstream's scheduler: *active* pods are asked about next; a refused pod goes to the
*unschedulable* ones until a change comes that one of the plugins which refused it names as a help, or until
it has waited for long; who comes back before its pause is over *backs off* for the rest of it. A pause
doubles with every attempt. The clock is an argument; a turn in which nothing can have changed costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

import attrs

from koordcore._blame import names_its_arguments, shown
from koordcore._record import record
from koordcore.controlplane.together import gang_of, starting_together
from koordcore.errors import ModelError
from koordcore.framework.hints import ChangeKind, could_help, kind_of, kinds_of, kinds_of_promise
from koordcore.framework.requests import kinds_with
from koordcore.model.checks import check_fields, check_least
from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.scheduling.cycle import queue_order, stand_ins
from koordcore.snapshot import Change, ClusterSnapshot, PodBound, PodEnded, PodPending, PodUpdated
from koordcore.snapshot.changes import with_next

Helped: TypeAlias = frozenset[str] | None
"""Kinds of changes that help; ``None`` for any."""
_ANY: Final[Helped] = None
_NEVER: Final[Helped] = frozenset()


@record(kw_only=True)
class Backoff:
    """How long refused pods pause, in seconds; upstream's defaults.

    Parameters
    ----------
    initial, longest
        Pause after the first attempt, which doubles with each further one, and the longest pause; 0 for none.
    forgotten
        After so long every refused pod is asked about again, whatever has changed; infinity for never.

    Raises
    ------
    ModelError
        When one is negative or no number, a pause has no end, or the longest is shorter than the first.
    """

    initial: float = 1.0
    longest: float = 10.0
    forgotten: float = 300.0

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        check_least(self, 0, "initial", "longest")
        if not self.forgotten >= 0:  # so NaN
            raise ModelError(f"Backoff: forgotten: must be at least 0, got {self.forgotten}")
        if self.longest < self.initial:
            raise ModelError(f"Backoff: longest: {self.longest:g} is less than initial, {self.initial:g}")

    def pause(self, attempts: int) -> float:
        """Give the pause after a number of attempts."""
        return min(self.longest, self.initial * 2.0 ** min(attempts - 1, 60)) if attempts else 0.0


@attrs.define(eq=False)
class _Entry:
    """A pod that waits."""

    pod: Pod
    gang: str = ""
    attempts: int = 0
    ready: float = 0.0
    """When its pause is over."""
    news: bool = True
    """Something is new about the pod itself since it was taken."""
    tried: float = 0.0
    helped: Helped = _ANY


class _Placed(NamedTuple):
    """A pod that was bound, and what it took until then."""

    uid: str
    node: str | None
    attempts: int
    tried: float


class SchedulingQueue:
    """The pods of one control plane that wait for a node.

    Parameters
    ----------
    policy
        Whose pods these are, and which plugins refuse.
    limit
        How many pods are decided at once; a gang that has begun is completed.
    backoff
        How long refused pods pause.

    Raises
    ------
    ModelError
        When no pod may be decided.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot, Node, Pod, schedule
    >>> from koordcore.snapshot import NodeAdded, PodPending
    >>> queue, snapshot = SchedulingQueue(Policy()), ClusterSnapshot(nodes=[Node(name="a")])
    >>> came = PodPending(Pod(name="p", requests={"cpu": 1000}))
    >>> snapshot = snapshot.apply(came)
    >>> queue.notice([came], now=0.0)
    >>> asked = queue.take(snapshot, now=0.0)
    >>> queue.done(schedule(snapshot, asked).decisions, now=0.0)
    >>> queue.take(snapshot, now=60.0)
    []
    >>> queue.notice([NodeAdded(Node(name="b"))], now=61.0)
    >>> [pod.name for pod in queue.take(snapshot, now=61.0)]
    ['p']
    """

    def __init__(self, policy: Policy, *, limit: int = 500, backoff: Backoff | None = None) -> None:
        if type(limit) is not int or limit < 1:
            raise ModelError(f"SchedulingQueue: limit: must be at least 1, got {shown(limit)}")
        self._policy, self._limit, self._backoff = policy, limit, backoff or Backoff()
        self._entries: dict[PodKey, _Entry] = {}
        self._active: dict[PodKey, _Entry] = {}
        self._pausing: list[tuple[float, int, PodKey]] = []
        self._refused: dict[Helped, dict[PodKey, _Entry]] = {}
        self._gangs: dict[str, dict[PodKey, None]] = {}
        self._nominated: dict[PodKey, None] = {}
        # Pods that were promised a node and are not ours.
        self._promised: dict[PodKey, Pod] = {}
        # Those that were bound, until it is said again or they go: a bind that is refused was an attempt.
        self._bound: dict[PodKey, _Placed] = {}
        # Pods that stand for what plugins place, for which records they may, and whether such a one changed.
        self._stand_ins: frozenset[PodKey] = frozenset()
        self._stood_for = _stood_for(policy)
        self._stale = True
        self._number = 0
        self._oldest = 0.0
        self._since: set[str] = set()
        """Kinds of changes since pods were last taken: they may help who is refused in that turn."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def counts(self) -> dict[str, int]:
        """How many pods are active, pause, and wait for help."""
        refused = sum(map(len, self._refused.values()))
        active = len(self._active)
        return {"active": active, "backoff": len(self._entries) - active - refused, "unschedulable": refused}

    # -- what happens ----------------------------------------------------------------------------------

    @names_its_arguments
    def notice(self, changes: Iterable[Change], *, now: float) -> None:
        """Take note of what has changed in the cluster.

        Parameters
        ----------
        changes
            As :meth:`koordcore.ClusterSnapshot.apply` takes them; at the start a ``PodPending`` for each pod
            that waits.
        now
            Seconds on any clock that does not go back.
        """
        kinds: set[str] = set()
        for change, then in with_next(list(changes)):
            match change:
                case PodPending(pod):
                    known = self._entries.get(pod.key)
                    before = self._promised.pop(pod.key, None) if known is None else known.pod
                    kinds |= kinds_of_promise(before, pod)
                    if not self._pend(pod, now):
                        continue
                    if known is not None or pod.key not in self._entries:
                        kinds.add(ChangeKind.POD_WITHDRAWN)  # what it asked for before
                case PodBound(pod):
                    if self._confirms(pod):
                        continue
                    self._stale |= bool(self._stand_ins)  # it may use what they stand for
                    before = self._promised.pop(pod.key, None)
                    known = self._entries.get(pod.key)
                    if known is not None:
                        before = known.pod
                        self._remove(pod.key)
                        placed_here = _Placed(pod.uid, pod.node_name, known.attempts, known.tried)
                        self._bound[pod.key] = placed_here
                    if before is not None and before.nominated_node not in (None, pod.node_name):
                        kinds.add(ChangeKind.POD_ENDED)  # the room that it was promised is free
                case PodEnded(key):
                    if isinstance(then, PodBound) and (key in self._entries or self._confirms(then.pod)):
                        continue  # it goes on where it is bound
                    if not isinstance(then, PodPending):
                        self._bound.pop(key, None)
                    self._promised.pop(key, None)
                    waited = self._entries.get(key)
                    self._remove(key)
                    if waited is not None and waited.pod.nominated_node is None:
                        kinds.add(ChangeKind.POD_WITHDRAWN)
                        continue  # who waited and was promised nothing leaves no room
                case PodUpdated(pod) if pod.key in self._entries:
                    kinds |= kinds_of_promise(self._entries[pod.key].pod, pod)
                    self._pend(pod, now)
                    continue
                case _:
                    pass
            self._stale |= kind_of(change) in self._stood_for
            kinds |= kinds_of(change)
        if kinds:
            self._since |= kinds
            self._help(kinds, now)

    def room_freed(self, *, now: float) -> None:
        """Take note of room that comes free without any change of the cluster."""
        self._since.add(ChangeKind.POD_ENDED)
        self._help({ChangeKind.POD_ENDED}, now)

    def _pend(self, pod: Pod, now: float) -> bool:
        """Let a pod wait; False where nothing is new about it that could matter."""
        known = self._entries.get(pod.key)
        if pod.deleted is not None or self._policy.profile_of(pod.scheduler_name) is None:
            self._remove(pod.key)
            if pod.nominated_node:
                self._promised[pod.key] = pod
            return True
        if known is not None and known.pod.uid == pod.uid:
            same = known.pod == attrs.evolve(pod, nominated_node=known.pod.nominated_node)
            known.pod = pod
            self._promise(pod)
            if not same:
                known.news = True
                self._join(pod.key, known, gang_of(pod))
                self._activate(pod.key, known, now)
            return not same
        self._remove(pod.key)
        entry, earlier = _Entry(pod), self._bound.pop(pod.key, None)
        if earlier is not None and earlier.uid == pod.uid:
            entry.attempts = earlier.attempts
            entry.ready = earlier.tried + self._backoff.pause(earlier.attempts)
        self._entries[pod.key] = entry
        self._activate(pod.key, entry, now)
        self._join(pod.key, entry, gang_of(pod))
        self._promise(pod)
        return True

    def _confirms(self, pod: Pod) -> bool:
        """Tell whether a pod is said to be bound where we know it to be."""
        known = self._bound.get(pod.key)
        return known is not None and (known.uid, known.node) == (pod.uid, pod.node_name)

    def _join(self, key: PodKey, entry: _Entry, gang: str) -> None:
        """Count a pod with the gang that it says now; none is empty."""
        if entry.gang == gang:
            return
        if entry.gang:
            del self._gangs[entry.gang][key]
            if not self._gangs[entry.gang]:
                del self._gangs[entry.gang]
        if gang:
            self._gangs.setdefault(gang, {})[key] = None
        entry.gang = gang

    def _promise(self, pod: Pod) -> None:
        if pod.nominated_node:
            self._nominated[pod.key] = None
        else:
            self._nominated.pop(pod.key, None)

    def _remove(self, key: PodKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._leave(key, entry)
        self._nominated.pop(key, None)
        self._join(key, entry, "")

    def _leave(self, key: PodKey, entry: _Entry) -> None:
        """Take a pod out of the queue that it is in."""
        self._active.pop(key, None)
        group = self._refused.get(entry.helped)
        if group is not None and group.pop(key, None) is not None and not group:
            del self._refused[entry.helped]

    def _help(self, kinds: set[str], now: float) -> None:
        """Let those come back whom one of some kinds of changes helps."""
        for helped in [one for one in self._refused if one is None or one & kinds]:
            for key, entry in self._refused.pop(helped).items():
                self._activate(key, entry, now)

    def _activate(self, key: PodKey, entry: _Entry, now: float) -> None:
        """Let a pod be asked about as soon as its pause is over; behind a gate only it itself can help."""
        self._leave(key, entry)
        if entry.pod.gated:
            entry.helped = _NEVER
            self._refused.setdefault(_NEVER, {})[key] = entry
        elif entry.ready <= now:
            self._active[key] = entry
        else:
            self._pause(key, entry)

    def _pause(self, key: PodKey, entry: _Entry) -> None:
        self._number += 1
        heappush(self._pausing, (entry.ready, self._number, key))

    # -- turns -----------------------------------------------------------------------------------------

    @names_its_arguments
    def take(self, snapshot: ClusterSnapshot, *, now: float) -> list[Pod]:
        """Give the pods that are decided next, in the order of the queue; none where nobody may be helped.

        Gangs come whole. Pods that were nominated come along every time: while they are asked about, nobody
        else gets their room. Pods may stand for what plugins place.
        """
        if self._stale:
            self._follow_stand_ins(snapshot, now)
        self._wake(now)
        if not self._active:
            return []
        fresh = queue_order(entry.pod for entry in self._active.values())
        keys = dict.fromkeys(pod.key for pod in fresh[: self._limit])
        keys |= self._nominated
        for gang in sorted({self._entries[key].gang for key in keys} - {""}):
            for name in starting_together(snapshot, gang, [self._entries[key].pod for key in keys]):
                keys |= self._gangs.get(name, {})
        self._since = set()
        taken = [self._entries[key] for key in keys]
        for entry in taken:
            entry.news = False
        return queue_order(entry.pod for entry in taken)

    @names_its_arguments
    def done(self, decisions: Iterable[PodDecision], *, now: float) -> None:
        """Take note of what was decided about the pods that were taken.

        Who was bound is gone when the cluster shows it (``PodBound``), and comes back after a pause if it
        never does.
        """
        for decision in decisions:
            entry = self._entries.get(decision.pod)
            if entry is None:
                continue
            self._leave(decision.pod, entry)
            entry.attempts += 1
            entry.tried = now
            entry.ready = now + self._backoff.pause(entry.attempts)
            entry.helped = self._helped(entry.pod, decision)
            if isinstance(decision, Bound):
                entry.ready = now + self._backoff.longest
                self._pause(decision.pod, entry)
            elif entry.news or (self._since and (entry.helped is None or entry.helped & self._since)):
                self._pause(decision.pod, entry)
            else:
                self._refused.setdefault(entry.helped, {})[decision.pod] = entry

    def _helped(self, pod: Pod, decision: PodDecision) -> Helped:
        match decision:
            case Unschedulable():
                return could_help(decision, self._policy.profile_of(pod.scheduler_name) or self._policy, pod)
            case Waiting() | Nominated() | Bound():
                return _ANY
            case NotOurs():
                return _NEVER

    def _wake(self, now: float) -> None:
        """Let those come whose pause is over, and those that have waited for long."""
        while self._pausing and self._pausing[0][0] <= now:
            _, _, key = heappop(self._pausing)
            entry = self._entries.get(key)
            if entry is not None and entry.ready <= now and not self._waits_for_help(key, entry):
                self._active[key] = entry
        if now - self._oldest >= self._backoff.forgotten:
            self._oldest = now
            for group in list(self._refused.values()):
                for key, entry in list(group.items()):
                    if now - entry.tried >= self._backoff.forgotten:
                        entry.tried = now
                        self._activate(key, entry, now)
                    else:
                        self._oldest = min(self._oldest, entry.tried)

    def _waits_for_help(self, key: PodKey, entry: _Entry) -> bool:
        return key in self._refused.get(entry.helped, {})

    def _follow_stand_ins(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Let the pods wait that stand for what plugins place, and no others of that kind."""
        self._stale = False
        there = {pod.key: pod for pod in stand_ins(snapshot, self._policy)}
        for key in sorted(self._stand_ins.difference(there)):
            self._remove(key)
        self._stand_ins = frozenset(there)
        for pod in there.values():
            self._pend(pod, now)


def _stood_for(policy: Policy) -> frozenset[str]:
    """Name the types of records for which pods of a policy's plugins may stand."""
    kinds = kinds_with(policy, "waiting")
    return frozenset(record.__name__ for kind in kinds for record in kind.reads or ())
