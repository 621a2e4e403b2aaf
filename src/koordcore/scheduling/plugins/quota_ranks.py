"""Who has a part of what his quota is promised: the most important of a quota come first.

Such a part counts for more than priority: whoever has one keeps, against all who have none, the room that
was made for him, and need not heed room that was made for them. So what quotas use of their promises does not
fall by who happens to ask first (``docs/loops.md``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from koordcore._arrays import BoolVector
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import BUILTIN_QUOTAS, QuotaPod
from koordcore.preemption.running import running_on
from koordcore.protocol.preemption import is_protected
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.reclaim import kept_floor
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once


def _nominated(snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
    return tuple(pod for pod in snapshot.pending if pod.nominated_node)


def _rank(pod: Pod) -> tuple[int, bool, PodKey]:
    return -pod.priority, not pod.nominated_node, pod.key


class _Line(NamedTuple):
    """Who is nominated in a quota: ranks, ascending; the number of each; what the first so many ask for."""

    ranks: list[tuple[int, bool, PodKey]]
    place: dict[PodKey, int]
    sums: list[Counter[str]]


class QuotaRanks:
    """Answers for one ledger after the other, as the call goes on.

    Parameters
    ----------
    workspace
        The state of the call.
    read
        Gives a pod as quotas see it.
    """

    def __init__(self, workspace: Workspace, read: Callable[[Pod], QuotaPod]) -> None:
        self._workspace, self._read = workspace, read
        self._ledger: QuotaLedger | None = None
        self._known: dict[PodKey, dict[str, bool]] = {}
        self._net = Counter[PodKey]()
        self._moved: dict[PodKey, Pod] = {}
        self._cursor = workspace.began
        self._snapshot: ClusterSnapshot | None = None
        self._seen: dict[PodKey, tuple[Pod, QuotaPod, str | None]] = {}
        self._waiting: dict[str | None, list[Pod]] = {}
        self._teams: dict[str, BoolVector] = {}
        self._lines: dict[str, _Line] = {}
        self._held: dict[tuple[str, int], Counter[str]] = {}

    def promised(self, ledger: QuotaLedger, pod: Pod, other: Pod) -> bool:
        """Tell whether those before a pod leave it a part of its quota's promise, wherever it stands now.

        Before it are those of its quota who run and may not be evicted, then the more important; of those as
        important who runs, who is nominated, and who only waits, and of these again the first by name. Who
        has to go runs no more.

        It has to have a part of all that both pods ask for: whose quota is beyond its promise in one of these
        may be evicted for the other, and would else come back before that is there.
        """
        self._look_at(ledger)
        if pod.key not in self._known:
            self._known[pod.key] = self._answer(ledger, pod)
        parts = self._known[pod.key]
        wanted = self._asks(ledger, other)[0].request if parts else {}
        both = [has for name, has in parts.items() if wanted.get(name, 0)]
        return bool(both) and all(both)

    def _answer(self, ledger: QuotaLedger, pod: Pod) -> dict[str, bool]:
        """Tell for what a pod asks for, and its quota limits, whether it has a part of the promise."""
        asked, name = self._asks(ledger, pod)
        if name is None or name in BUILTIN_QUOTAS:
            return {}
        wanted = {key for key, amount in asked.request.items() if amount and key in ledger.max_of(name)}
        # Quotas above have no say: what is promised to one is promised to those below it first, and whoever
        # else below it uses that has to give (``docs/loops.md``).
        floor = kept_floor(ledger, name)
        if not any(floor.get(key, 0) for key in wanted):
            return {}
        before = self._before(ledger, pod, asked, name)
        return {key: before[key] < floor.get(key, 0) for key in sorted(wanted)}

    def _before(self, ledger: QuotaLedger, pod: Pod, asked: QuotaPod, name: str) -> Counter[str]:
        """Add up what the pods before one hold of its quota, or wait for on a node."""
        self._follow()
        used = Counter(ledger.used_of(name))
        if self._net[pod.key] > 0:
            used.subtract(asked.request)
        used.subtract(self._behind(ledger, name, pod.priority))
        line = self._line(ledger, name)
        ahead = bisect_left(line.ranks, _rank(pod))
        used.update(line.sums[ahead])
        if line.place.get(pod.key, ahead) < ahead:
            used.subtract(asked.request)
        return used

    def _behind(self, ledger: QuotaLedger, name: str, priority: int) -> Counter[str]:
        """Add up what those of a quota hold who are less important and may be evicted, or have to go."""
        known = self._held.get((name, priority))
        if known is not None:
            return known
        held = Counter[str]()
        running = running_on(self._workspace.snapshot)
        lower = (running.priority < priority) & running.evictable
        less = self._team(ledger, name) & (lower | running.leaving)
        for one in np.flatnonzero(less).tolist():
            other = running.pods[one]
            if self._net[other.key] >= 0:
                held.update(self._asks(ledger, other)[0].request)
        for key, other in self._moved.items():
            stays = other.priority >= priority or is_protected(other.labels) or other.fixed
            if self._net[key] > 0 and (other.leaving or not stays):
                request, quota = self._asks(ledger, other)
                held.update(request.request if quota == name else {})
        self._held[name, priority] = held
        return held

    def _look_at(self, ledger: QuotaLedger) -> None:
        """Forget what another ledger said; which pods are of which quota stays for a snapshot."""
        if ledger is self._ledger:
            return
        snapshot = self._workspace.snapshot
        if snapshot is not self._snapshot or self._ledger is None or ledger.quotas is not self._ledger.quotas:
            self._snapshot, self._seen, self._waiting, self._teams = snapshot, {}, {}, {}
        self._ledger, self._known, self._lines, self._held = ledger, {}, {}, {}

    def _asks(self, ledger: QuotaLedger, pod: Pod) -> tuple[QuotaPod, str | None]:
        """Give a pod as quotas see it, and its quota."""
        seen = self._seen.get(pod.key)
        if seen is None or seen[0] is not pod:
            asked = self._read(pod)
            seen = self._seen[pod.key] = (pod, asked, ledger.resolve(asked))
        return seen[1:]

    def _nominated(self, ledger: QuotaLedger, name: str) -> list[Pod]:
        """List who is nominated in a quota, by rank."""
        if not self._waiting:
            for pod in sorted(once(self._workspace.snapshot, _nominated), key=_rank):
                self._waiting.setdefault(self._asks(ledger, pod)[1], []).append(pod)
        return self._waiting.get(name, [])

    def _line(self, ledger: QuotaLedger, name: str) -> _Line:
        """Add up, one by one, what those ask for who are nominated in a quota and are not there yet."""
        if name not in self._lines:
            pods = [pod for pod in self._nominated(ledger, name) if self._net[pod.key] <= 0]
            sums = [Counter[str]()]
            for pod in pods:
                sums.append(sums[-1].copy())
                sums[-1].update(self._asks(ledger, pod)[0].request)
            place = {pod.key: number for number, pod in enumerate(pods)}
            self._lines[name] = _Line([*map(_rank, pods)], place, sums)
        return self._lines[name]

    def _team(self, ledger: QuotaLedger, name: str) -> BoolVector:
        """Tell which of the running pods are of a quota, shape (V,)."""
        if name not in self._teams:
            running = running_on(self._workspace.snapshot)
            teams = [
                number
                for number, (quota, space) in enumerate(running.teams)
                if ledger.resolve(QuotaPod(key=PodKey(space, "-"), quota=quota)) == name
            ]
            self._teams[name] = np.isin(running.team, teams)
        return self._teams[name]

    def _follow(self) -> None:
        """Read who came and left in this call."""
        journal, began = self._workspace.journal, self._workspace.began
        if self._cursor < began:
            self._net.clear()
            self._moved.clear()
            self._cursor = began
        for pod, _, sign in journal[self._cursor :]:
            self._net[pod.key] += sign
            self._moved[pod.key] = pod
        self._cursor = len(journal)
