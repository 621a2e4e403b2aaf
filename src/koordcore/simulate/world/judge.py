"""The rules, checked at every change by what it touches, and at every deadline that a change sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from koordcore.controlplane.requests import Object
from koordcore.simulate.world.facts import (
    PodFacts,
    Truth,
    cards_given,
    given_text,
    holds,
    preempted_for,
)
from koordcore.simulate.world.load import CARD
from koordcore.simulate.world.profile import SECOND
from koordcore.simulate.world.record import Breach, Rule
from koordcore.simulate.world.server import ApiServer, is_healthy
from koordcore.simulate.world.timeline import Timeline

STALE: Final = 60 * SECOND
"""How old news may be on which somebody still acts while things fail."""
FRESH: Final = 5 * SECOND
"""How old news may be where nothing has failed for so long."""
GRACE: Final = 45 * SECOND
"""How long half a gang, or somebody who preempts, has from the last fault on."""
_PROMISED: Final = 1 << 40
"""Counts as the priority of who starts within the ``min`` of his quota: he need not heed who only borrows."""


@attrs.define
class Promise:
    """Somebody was evicted for somebody else."""

    made: int
    victim: str
    job: str
    priority: int


class Judge:
    """Knows the truth and what has to hold of it.

    Parameters
    ----------
    server, line
        Where the truth is, and what time it is.
    exclusive
        The schedulers promise that they never decide on each other's room.
    """

    def __init__(self, server: ApiServer, line: Timeline, *, exclusive: bool) -> None:
        self._server, self._line, self._exclusive = server, line, exclusive
        self.truth = Truth()
        self.evicting = False
        """A request for an eviction is being carried out."""
        self.breaches: list[Breach] = []
        self.last_fault = -STALE
        self.evictions = 0
        self.started = 0
        """Cards, in percent, of the pods that started; a pod without cards counts as one core does."""
        self._half: dict[str, int] = {}
        self._half_last: dict[str, int] = {}
        self._above: dict[str, int] = {}
        """When each quota was last seen beyond its min."""
        self._guarded: dict[str, int] = {}
        """When an eviction from each workload was last refused by its budget."""
        self._full: dict[str, int] = {}
        self._promises: list[Promise] = []
        self._starts: list[tuple[int, int]] = []
        """When pods started lately, and their priority; a promise of a quota counts for more than any."""
        server.listeners.append(self._changed)

    @property
    def now(self) -> int:
        """What time it is."""
        return self._line.now

    # -- telling -----------------------------------------------------------------------------------------

    def failed(self) -> None:
        """Something has gone wrong that a scheduler cannot help."""
        self.last_fault = self.now

    def broken(self, rule: Rule, what: str) -> None:
        """Note that a rule does not hold."""
        self.breaches.append(Breach(rule, self.now, what))

    def refused(self, pod: Object) -> None:
        """A budget has refused an eviction."""
        self._guarded[(pod["metadata"].get("labels") or {}).get("app", "")] = self.now

    # -- changes -----------------------------------------------------------------------------------------

    def _changed(self, kind: str, what: str, before: Object | None, item: Object) -> None:
        check = _CHECKS.get(kind)
        if check is not None:
            check(self, what, before, item)

    def _pod(self, what: str, before: Object | None, item: Object) -> None:
        now = None if what == "DELETED" else item
        facts = self.truth.note_pod(before, now)
        was = before is not None and holds(before)
        if now is not None and holds(now):
            if was:
                self._steady(facts, before, now)
            else:
                self._placed(facts, now)
        if self.evicting and _leaves(before, now):
            assert before is not None
            self._evicted(facts, before)
        if facts.gang:
            self._gang(facts.gang)
        if facts.quota:
            self._note_quota(facts.quota)

    def _node(self, what: str, before: Object | None, item: Object) -> None:
        self.truth.note_node(item, there=what != "DELETED")

    def _metric(self, what: str, before: Object | None, item: Object) -> None:
        self.truth.note_report(item, self.now // SECOND * SECOND, there=what != "DELETED")

    def _quota(self, what: str, before: Object | None, item: Object) -> None:
        self.truth.note_quota(item)

    def _group(self, what: str, before: Object | None, item: Object) -> None:
        name = item["metadata"]["name"]
        if what == "DELETED":
            self.truth.minimum.pop(name, None)
        else:
            self.truth.minimum[name] = item["spec"]["minMember"]
        self._gang(name)

    # -- rules at once -----------------------------------------------------------------------------------

    def _steady(self, facts: PodFacts, before: Object | None, now: Object) -> None:
        assert before is not None
        if before["spec"]["nodeName"] != now["spec"]["nodeName"]:
            self.broken(Rule.STEADY, f"{facts.name} moved while it ran")
        if given_text(before) != given_text(now):
            self.broken(Rule.STEADY, f"{facts.name}: its cards changed while it ran")

    def _placed(self, facts: PodFacts, pod: Object) -> None:
        """A pod got a node."""
        truth, node = self.truth, pod["spec"]["nodeName"]
        self.started += facts.cards or facts.wants.get("cpu", 0) // 10
        least = truth.least.get(facts.quota, {})
        within = any(least.values()) and not truth.over(truth.held[facts.quota], least)
        self._starts.append((self.now, _PROMISED if within else facts.priority))
        full = truth.over(truth.used[node], truth.room.get(node, {}))
        twice = [minor for minor, share in truth.given[node].items() if share > 100]
        if (full or twice) and not self._exclusive:
            self._full.setdefault(node, self.now)
        else:
            if full:
                self.broken(Rule.CAPACITY, f"{node} holds {', '.join(full)}, last {facts.name}")
            if twice:
                self.broken(Rule.DEVICES, f"{node}: card {twice[0]} is given twice, last to {facts.name}")
        got = sum(share for _, share in cards_given(given_text(pod)))
        if got != facts.cards:
            self.broken(
                Rule.DEVICES, f"{facts.name} wants {facts.cards} percent of {CARD} and got {got} on {node}"
            )
        above = truth.over(truth.held[facts.quota], truth.limits.get(facts.quota, {}))
        if above and self._exclusive:
            self.broken(Rule.QUOTA, f"{facts.quota} holds {', '.join(above)}, last {facts.name}")

    def _evicted(self, facts: PodFacts, pod: Object) -> None:
        """A scheduler had a pod evicted; it stands in ``pod`` as it was before."""
        self.evictions += 1
        budget = self._server.budget_of(pod)
        if budget is not None and is_healthy(pod) and self._server.allowed(budget) < 0:
            self.broken(Rule.BUDGET, f"the eviction of {facts.name} left too few of {facts.app}")
        job = preempted_for(pod)
        oldest = self.now - (STALE if self.now - self.last_fault < STALE else FRESH)
        if job:
            self._promises.append(Promise(self.now, facts.name, job, self._priority_of(job, facts)))
        elif (
            self._half_last.get(facts.gang, -STALE) < oldest and self._above.get(facts.quota, -STALE) < oldest
        ):
            self.broken(
                Rule.REASON,
                f"{facts.name} was evicted, for nobody, from no half gang, within its quota's min",
            )

    def _priority_of(self, job: str, victim: PodFacts) -> int:
        name = job.rpartition("/")[2]
        found = [one.priority for one in self.truth.facts.values() if name in (one.name, one.gang)]
        return min(found, default=victim.priority)

    def _gang(self, gang: str) -> None:
        if self.truth.is_half(gang):
            self._half.setdefault(gang, self.now)
        elif gang in self._half:
            del self._half[gang]
            self._half_last[gang] = self.now
        if gang in self._half:
            self._half_last[gang] = self.now

    def _note_quota(self, quota: str) -> None:
        truth = self.truth
        if truth.over(truth.held.get(quota, {}), truth.least.get(quota, {})):
            self._above[quota] = self.now

    # -- rules in time -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Check what has a deadline; once a second."""
        for gang in self._half:
            self._half_last[gang] = self.now
        for quota in self.truth.held:
            self._note_quota(quota)
        quiet = self.now - self.last_fault
        for gang, since in self._half.items():
            if self._is_guarded(gang):
                self._guarded[gang] = self.now
            guarded = self._guarded.get(gang, -STALE)
            if min(self.now - since, quiet, self.now - guarded) > GRACE:
                self.broken(Rule.GANG, f"{gang} has run below its minimum for {_seconds(self.now - since)}")
        for node, since in list(self._full.items()):
            truth = self.truth
            if (
                not truth.over(truth.used[node], truth.room[node])
                and max(truth.given[node].values(), default=0) <= 100
            ):
                del self._full[node]
            elif min(self.now - since, quiet) > GRACE:
                self.broken(Rule.REPAIR, f"{node} holds more than it has for {_seconds(self.now - since)}")
        self._check_promises()

    def _is_guarded(self, gang: str) -> bool:
        """Tell whether a budget keeps some of those that run; workloads and their budgets share a name."""
        budget = self._server.find("PodDisruptionBudget", ("default", gang))
        if budget is None:
            return False
        pods = (self.truth.pods[uid] for uid in self.truth.members.get(gang, ()))
        return self._server.allowed(budget) < sum(map(is_healthy, pods))

    def _check_promises(self) -> None:
        due = [one for one in self._promises if self.now - one.made >= GRACE]
        if not due:
            return
        self._promises = [one for one in self._promises if self.now - one.made < GRACE]
        self._starts = [one for one in self._starts if one[0] >= self.now - 2 * GRACE]
        for one in due:
            if self.last_fault >= one.made - STALE:
                continue
            if any(time >= one.made and priority >= one.priority for time, priority in self._starts):
                continue
            name = one.job.rpartition("/")[2]
            if any(name in (facts.name, facts.gang) for facts in self._still_waiting()):
                self.broken(Rule.PROMISE, f"{one.victim} was evicted for {one.job}, which did not start")

    def _still_waiting(self) -> Iterator[PodFacts]:
        for uid in self.truth.waiting:
            yield self.truth.facts[uid]


_CHECKS: Final[dict[str, Callable[[Judge, str, Object | None, Object], None]]] = {
    "Pod": Judge._pod,  # noqa: SLF001 - its own
    "Node": Judge._node,  # noqa: SLF001
    "NodeMetric": Judge._metric,  # noqa: SLF001
    "ElasticQuota": Judge._quota,  # noqa: SLF001
    "PodGroup": Judge._group,  # noqa: SLF001
}


def _leaves(before: Object | None, now: Object | None) -> bool:
    if before is None or "deletionTimestamp" in before["metadata"]:
        return False
    return now is None or "deletionTimestamp" in now["metadata"]


def _seconds(time: int) -> str:
    return f"{time // SECOND} s"
