"""Who has a part of what his quota is promised: the most important of a quota come first.

Such a part counts for more than priority: whoever has one keeps, against all who have none, the room that
was made for him, and need not heed room that was made for them. So what quotas use of their promises does not
fall by who happens to ask first (``docs/loops.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import BUILTIN_QUOTAS, QuotaPod
from koordcore.preemption.running import running_on
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.reclaim import kept_floor
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once


def _nominated(snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
    return tuple(pod for pod in snapshot.pending if pod.nominated_node)


def _rank(pod: Pod) -> tuple[int, bool, PodKey]:
    return -pod.priority, not pod.nominated_node, pod.key


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

    def promised(self, ledger: QuotaLedger, pod: Pod, other: Pod) -> bool:
        """Tell whether those before a pod leave it a part of its quota's promise, wherever it stands now.

        Before it are the more important of its quota; of those as important who runs, who is nominated, and
        who only waits, and of these again the first by name. Who has to go runs no more.

        It has to have a part of all that both pods ask for: whose quota is beyond its promise in one of these
        may be evicted for the other, and would else come back before that is there.
        """
        if ledger is not self._ledger:
            self._ledger, self._known = ledger, {}
        if pod.key not in self._known:
            self._known[pod.key] = self._answer(ledger, pod)
        parts = self._known[pod.key]
        wanted = self._read(other).request if parts else {}
        both = [has for name, has in parts.items() if wanted.get(name, 0)]
        return bool(both) and all(both)

    def _answer(self, ledger: QuotaLedger, pod: Pod) -> dict[str, bool]:
        """Tell for what a pod asks for, and its quota limits, whether it has a part of the promise."""
        asked = self._read(pod)
        name = ledger.resolve(asked)
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
        snapshot = self._workspace.snapshot
        used = Counter(ledger.used_of(name))
        if self._net[pod.key] > 0:
            used.subtract(asked.request)
        running = running_on(snapshot)
        teams = [
            number
            for number, (quota, space) in enumerate(running.teams)
            if ledger.resolve(QuotaPod(key=PodKey(space, "-"), quota=quota)) == name
        ]
        less = np.isin(running.team, teams) & ((running.priority < pod.priority) | running.leaving)
        for one in np.flatnonzero(less).tolist():
            other = running.pods[one]
            if self._net[other.key] >= 0:
                used.subtract(self._read(other).request)
        for key, other in self._moved.items():
            behind = other.priority < pod.priority or other.leaving
            if self._net[key] > 0 and behind and self._is_of(ledger, other, name):
                used.subtract(self._read(other).request)
        rank = _rank(pod)
        for other in once(snapshot, _nominated):
            if other.key != pod.key and self._net[other.key] <= 0 and _rank(other) < rank:
                used.update(self._read(other).request if self._is_of(ledger, other, name) else {})
        return used

    def _is_of(self, ledger: QuotaLedger, pod: Pod, name: str) -> bool:
        return ledger.resolve(self._read(pod)) == name

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
