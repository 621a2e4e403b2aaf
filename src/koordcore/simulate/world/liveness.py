"""Whether those start that could: seen from outside, with a plain idea of what fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from koordcore.model.load import LoadAwareArgs
from koordcore.model.resources import fits
from koordcore.simulate.world.facts import PodFacts, Truth
from koordcore.simulate.world.profile import SECOND

PATIENCE: Final = 30 * SECOND
"""How long somebody may wait who has had room all the time, from the last fault on."""


class Liveness:
    """Follows who could start, from second to second.

    Parameters
    ----------
    truth
        What there is.
    reported
        What nodes have to report before anybody is put there; ``None`` where schedulers do not ask.
    """

    def __init__(self, truth: Truth, reported: LoadAwareArgs | None = None) -> None:
        self._truth, self._reported = truth, reported
        self._since: dict[str, int] = {}

    def late(self, now: int, last_fault: int, ahead: int = 0) -> list[str]:
        """Name who has had room for too long; asked once a second.

        ``ahead`` is how far the clock is ahead that the oldest reports look oldest on.
        """
        if not self._truth.waiting or now - last_fault < 10 * SECOND:
            self._since.clear()
            return []
        ready = set(self._could_start(now + ahead))
        self._since = {name: self._since.get(name, now) for name in ready}
        return sorted(name for name, since in self._since.items() if now - since > PATIENCE)

    def _could_start(self, now: int) -> Iterable[str]:
        """Name the most important gangs and pods that wait and would fit, each on its own."""
        truth = self._truth
        waiting = [truth.facts[uid] for uid in truth.waiting if not _gone(truth, uid)]
        if not waiting:
            return
        top = max(one.priority for one in waiting)
        # Who was promised room holds it against those who are no more important.
        nominated = [
            (truth.pods[one.uid]["status"]["nominatedNodeName"], one)
            for one in waiting
            if truth.pods[one.uid]["status"].get("nominatedNodeName")
        ]
        groups: dict[str, list[PodFacts]] = {}
        for one in waiting:
            if one.priority == top:
                groups.setdefault((one.gang and f"gang {one.gang}") or one.name, []).append(one)
        for name, pods in sorted(groups.items()):
            gang = pods[0].gang
            if gang and len(truth.members[gang]) < truth.minimum.get(gang, len(truth.members[gang]) + 1):
                continue
            others = [pair for pair in nominated if pair[1] not in pods and pair[1].priority >= top]
            if self._within_min(pods) and self._fit(pods, others, now):
                yield name

    def _within_min(self, pods: list[PodFacts]) -> bool:
        quota = pods[0].quota
        if not quota:
            return True
        # Those of the quota that wait for room they were promised count, too.
        held = Counter(self._truth.held.get(quota, {}))
        for uid in self._truth.waiting:
            if self._truth.facts[uid].quota == quota:
                held.update(self._truth.facts[uid].wants)
        return not self._truth.over(held, self._truth.least[quota])

    def _fit(self, pods: list[PodFacts], others: Iterable[tuple[str, PodFacts]], now: int) -> bool:
        truth = self._truth
        free = {name: Counter(truth.room[name]) for name, is_open in sorted(truth.open.items()) if is_open}
        for name, left in free.items():
            left.subtract(truth.used.get(name, {}))
            if self._reported is not None:
                _cap(left, self._cool(name, self._reported, now))
        for name, one in others:
            if name in free:
                free[name].subtract(one.wants)
        for pod in sorted(pods, key=lambda one: (-one.cards, -one.wants.get("cpu", 0), one.name)):
            node = next((name for name, left in free.items() if fits(pod.wants, left)), None)
            if node is None:
                return False
            free[node].subtract(pod.wants)
        return True

    def _cool(self, node: str, reported: LoadAwareArgs, now: int) -> dict[str, int]:
        """Give what a node takes before it counts as hot, at most; nothing where its report is too old."""
        if node not in self._truth.reports:
            return {}
        time, usage = self._truth.reports[node]
        if now - time >= reported.node_metric_expiration_seconds * SECOND:
            return {"pods": 0}
        room, used = self._truth.room[node], self._truth.used.get(node, Counter())
        # Pods that have come since the report are expected to use no more than they ask for.
        return {
            name: room[name] * percent // 100 - max(usage.get(name, 0), used.get(name, 0))
            for name, percent in reported.usage_thresholds.items()
            if percent
        }


def _cap(left: Counter[str], most: Mapping[str, int]) -> None:
    for name, value in most.items():
        left[name] = min(left[name], value)


def _gone(truth: Truth, uid: str) -> bool:
    return "deletionTimestamp" in truth.pods[uid]["metadata"]
