"""Kueue's admission, decided together with the places: a Workload gets its quota when its pods have nodes.

Quota is a tree on the library's own ledger (:mod:`koordcore.quota.kueue`), a Workload's pods are a gang of
the library's own planner. Flavors are tried in the order of the queue, and the first with quota *and* nodes
is taken; the reference looks at quota alone, or at nodes only within the flavor that quota chose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.controlplane.fair_shares import Head, fair_tree
from koordcore.controlplane.flavors import FlavorChoice, Flavors, first_choices
from koordcore.controlplane.quota_offers import Offer, Offers
from koordcore.controlplane.quota_targets import cost, opened, quota_targets, without
from koordcore.controlplane.waiting_workloads import Entry, behind, first_pods, rank, why_in_no_queue
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.decisions import JobPlan, PodDecision, Waiting
from koordcore.model.gangs import PodGroup
from koordcore.model.kueue import AdmittedWorkload, ClusterQueue, KueueWorkload, LocalQueue
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.protocol.workload_pods import admitted_pods, pod_set_of, without_gang, workload_of
from koordcore.quota.kueue import QueueLedger
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded


@record(kw_only=True)
class WorkloadDecision:
    """What became of one Workload that waited.

    Parameters
    ----------
    workload
        ``namespace/name``.
    queue
        Its ClusterQueue; empty where it has none.
    admitted
        It got quota, and its pods got nodes.
    pods, asked
        How many pods got a node; how many it has.
    flavors
        By pod set and resource, as ``podset/resource``, the flavor that it is given; empty where it waits.
    borrows
        It uses quota of its cohort's.
    reason
        Why it waits; where it is admitted by quota alone, what of it cannot start; else empty.
    passed_over
        Why flavors before those that it got were not taken, in their order.
    evicts
        Workloads that Kueue would evict so that it gets its quota; asked for by quota alone only.
    """

    workload: str
    queue: str = ""
    admitted: bool = False
    pods: int = 0
    asked: int = 0
    flavors: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    borrows: bool = False
    reason: str = ""
    passed_over: tuple[str, ...] = ()
    evicts: tuple[str, ...] = ()


@record(kw_only=True)
class AdmissionPlan:
    """Quota and places of one call.

    Parameters
    ----------
    before
        The cluster with the pods of admitted Workloads as their admission makes them: on the nodes of their
        flavors, in their gang. :func:`koordcore.verify` takes it with ``result``; or the cluster as it was
        given, but for a plan by quota alone.
    result
        Decisions about all pods that wait; those of Workloads without quota wait.
    workloads
        In the order in which they were decided.
    """

    before: ClusterSnapshot
    result: ScheduleResult
    workloads: tuple[WorkloadDecision, ...]


def admit_workloads(
    snapshot: ClusterSnapshot,
    *,
    policy: Policy = Policy(),
    now: datetime | None = None,
    limits: Limits = DEFAULT_LIMITS,
    preempt: PreemptionRules | None = None,
    by_quota_alone: bool = False,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> AdmissionPlan:
    """Decide which Workloads of Kueue start, with which flavors, and where their pods go.

    Parameters
    ----------
    snapshot
        The cluster. A pending pod belongs to the Workload that its annotation ``kueue.x-k8s.io/workload``
        names.
    policy, now, limits
        As for :func:`koordcore.schedule`.
    preempt
        For pods that belong to no Workload. Nobody is evicted for a Workload, neither for quota nor for
        nodes.
    by_quota_alone
        Take the first flavors that have the quota, as the reference does, whether or not there are nodes.
    progress
        Called with how many Workloads are decided, and of how many.

    Returns
    -------
    AdmissionPlan
        Pods of no Workload come first: they have no queue to wait in. Then, again and again, the first
        Workload of each ClusterQueue: those that borrow nothing, or from nearest, then by priority, age and
        name. Who cannot start stops those behind it where the queue is ``StrictFIFO``. Where a queue or
        cohort states its ``fairSharing``, within a cohort that Workload comes first after which its side of
        the tree borrows nothing of what it asks for, then has the smallest share by weight.
    """
    decided = _Admission(snapshot, policy, now, limits, by_quota_alone)
    decided.others(preempt)
    decided.run(progress)
    return decided.plan()


@record(eq=False)
class _Start:
    """Places for the pods of a Workload, which are no gang where they start one by one."""

    offer: Offer
    taken: Mapping[str, int]
    group: PodGroup | None
    made: tuple[Pod, ...]
    result: ScheduleResult

    @property
    def pods(self) -> int:
        """How many of them there are."""
        return len(self.result.bound)


class _Admission:
    """One call: the queues, the ledger and the cluster as they stand after each decision."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        policy: Policy,
        now: datetime | None,
        limits: Limits,
        by_quota_alone: bool,
    ) -> None:
        self._given = snapshot
        self._policy, self._now, self._limits = policy, now, limits
        self._by_quota_alone = by_quota_alone
        self._flavors = Flavors(
            {one.name: one for one in snapshot.of(ResourceFlavor)},
            {one.name: one for one in snapshot.of(KueueTopology)},
        )
        self._queues = {one.name: one for one in snapshot.of(ClusterQueue)}
        self._ledger = opened(snapshot)
        self._waiting = sorted((one for one in snapshot.of(KueueWorkload) if one.waits), key=rank)
        self._members: dict[str, list[Pod]] = {one.key: [] for one in self._waiting}
        self._free: list[Pod] = []
        for pod in snapshot.pending:
            self._members.get(workload_of(pod), self._free).append(pod)
        gone = [pod.key for members in self._members.values() for pod in members]
        self._cluster = snapshot.apply(*map(PodEnded, gone)) if gone else snapshot
        self._targets = quota_targets(snapshot, self._ledger)
        self._fair = fair_tree(snapshot)
        self._evicted: set[str] = set()
        self._results: list[ScheduleResult] = []
        self._changed: dict[str, tuple[Pod, ...]] = {}
        self._groups: list[PodGroup] = []
        self._decided: list[WorkloadDecision] = []
        self._plans: list[JobPlan] = []
        self._lines: dict[str, list[Entry]] = {}
        self._stuck: dict[str, str] = {}

    def others(self, preempt: PreemptionRules | None) -> None:
        """Decide about the pods that belong to no Workload."""
        result = self._scheduled(self._cluster, self._free, preempt)
        self._results.append(result)
        self._cluster = result.snapshot

    def run(self, progress: Callable[[int, int], None]) -> None:
        """Decide about the Workloads."""
        for one in self._waiting:
            self._enqueue(one)
        while heads := [line[0] for line in self._lines.values() if line]:
            for entry in self._in_turn(heads):
                decided = self._decide(entry)
                self._decided.append(decided)
                progress(len(self._decided), len(self._members))
                line = self._lines[entry.queue.name]
                line.pop(0)
                if not decided.admitted and entry.queue.strict:
                    why = behind(entry.workload)
                    self._decided += [self._waits(one.workload, one.queue.name, why) for one in line]
                    line.clear()

    def _in_turn(self, heads: Sequence[Entry]) -> Iterator[Entry]:
        """Give the first Workloads of the queues; with fair sharing each as shares stand then."""
        if not self._fair.stated:
            yield from sorted(heads, key=lambda one: (self._first_height(one), *rank(one.workload)))
            return
        left = {one.queue.name: one for one in heads}
        while left:
            first = {
                name: Head(
                    one.workload.key,
                    self._first_amounts(one),
                    (self._first_height(one), *rank(one.workload)),
                )
                for name, one in left.items()
            }
            yield left.pop(self._fair.first(self._ledger, first))

    def plan(self) -> AdmissionPlan:
        """Put the decisions together."""
        decision_of = {one.workload: one for one in self._decided}
        before, after = self._given, self._cluster
        waiting: list[PodDecision] = []
        if self._groups:
            before = before.with_records(*self._groups)
        before = before.with_pending(*(pod for pods in self._changed.values() for pod in pods))
        for key, members in sorted(self._members.items()):
            left = [pod for pod in members if pod.key not in after.location]
            after = after.with_pending(*left) if left else after
            why = decision_of[key].reason or "quota is there for fewer pods"
            decided = {pod.key for pod in self._changed.get(key, ())}
            waiting += [
                Waiting(pod=pod.key, reason=f"Workload {key}: {why}")
                for pod in left
                if pod.key not in decided
            ]
        parts = self._results
        decisions = [one for part in parts for one in part.decisions]
        result = ScheduleResult(
            decisions=(*decisions, *waiting),
            snapshot=after,
            jobs=(*(one for part in parts for one in part.jobs), *self._plans),
            together=tuple(one for part in parts for one in part.together),
            preemptions=tuple(one for part in parts for one in part.preemptions),
            admitted=self._admitted(),
            policy=self._policy,
            stats=_stats(parts, len(waiting)),
        )
        return AdmissionPlan(before=before, result=result, workloads=tuple(self._decided))

    def _admitted(self) -> tuple[AdmittedWorkload, ...]:
        """List who got quota; nobody by quota alone, where others may have to go first."""
        return tuple(
            AdmittedWorkload(workload=one.workload, queue=one.queue, flavors=one.flavors)
            for one in self._decided
            if one.admitted and not self._by_quota_alone
        )

    def _enqueue(self, workload: KueueWorkload) -> None:
        """Put a Workload into the line of its queue, or say why it is in none."""
        local = self._given.find(LocalQueue, workload.queue, workload.namespace)
        queue = None if local is None else self._queues.get(local.cluster_queue)
        pods = tuple(self._members[workload.key])
        name = "" if local is None else local.cluster_queue
        why = why_in_no_queue(workload, local, queue, self._given, self._now)
        why = why or self._ledger.broken.get(name, "")
        why = why or ("" if pods else "none of its pods is there") or self._stuck.get(name, "")
        if why or queue is None:
            self._decided.append(self._waits(workload, name, why))
            return
        entry = Entry(workload, queue, pods)
        options = self._flavors.options(queue, workload, entry.one_of_each())
        if isinstance(options, str):
            self._decided.append(self._waits(workload, name, options))
            if queue.strict:  # it stays the first of its queue for good
                self._stuck[name] = behind(workload)
            return
        entry = attrs.evolve(entry, choices=first_choices(options), options=options)
        self._lines.setdefault(queue.name, []).append(entry)

    def _waits(
        self, workload: KueueWorkload, queue: str, why: str, passed: Sequence[str] = ()
    ) -> WorkloadDecision:
        asked = len(self._members[workload.key])
        return WorkloadDecision(
            workload=workload.key, queue=queue, asked=asked, reason=why, passed_over=tuple(passed)
        )

    def _first_admitted(self, entry: Entry) -> dict[str, int] | None:
        """Give what it would use of the flavors that quota alone would choose; ``None`` without any."""
        for choice in Offers(entry, self._ledger).choices:
            amounts = choice.amounts(entry.asked, entry.counts())
            if isinstance(self._ledger.admit(entry.workload.key, entry.queue.name, amounts), QueueLedger):
                return amounts
        return None

    def _first_amounts(self, entry: Entry) -> dict[str, int]:
        """Do so; of the first flavors where quota allows none."""
        found = self._first_admitted(entry)
        return entry.choices[0].amounts(entry.asked, entry.counts()) if found is None else found

    def _first_height(self, entry: Entry) -> tuple[bool, int]:
        """Tell from how far up the flavors borrow that quota alone would choose; without any it is last."""
        amounts = self._first_admitted(entry)
        return amounts is None, 0 if amounts is None else self._ledger.height(entry.queue.name, amounts)

    def _decide(self, entry: Entry) -> WorkloadDecision:
        """Start a Workload with as many pods as it may, on the first flavors that allow so many."""
        offers = Offers(entry, self._ledger)
        missed: list[JobPlan | None] = []
        best: _Start | None = None
        evicts: list[str] = []
        for offer in self._offered(entry, offers, evicts):
            if best is not None and offer.pods <= best.pods:
                continue
            found = self._placed(entry, offer)
            if isinstance(found, _Start):
                best = found if best is None or found.pods > best.pods else best
                offers.whys[offer.number] = f"{offer.on}{offer.pods - found.pods} of its pods find no nodes"
            else:
                why = (found.detail or found.message) if found else "its pods find no nodes"
                offers.whys[offer.number] = offer.on + why
                missed.append(found)
            if self._by_quota_alone or (best is not None and best.pods == len(entry.pods)):
                break
        if best is not None:
            return self._started(entry, best, offers.passed(best.offer.number))
        if missed and missed[0] is not None:
            self._plans.append(missed[0])
        passed = offers.passed()
        waits = self._waits(entry.workload, entry.queue.name, "; ".join(dict.fromkeys(passed)), passed)
        return attrs.evolve(waits, evicts=tuple(evicts))

    def _offered(self, entry: Entry, offers: Offers, evicts: list[str]) -> Iterator[Offer]:
        """Give what quota there is for all pods, then for fewer; add whom Kueue would evict before that."""
        stops = self._by_quota_alone and entry.queue.stops_to_preempt
        stop = offers.stop(lambda choice: self._stops(entry, choice)) if stops else None
        yield from (one for one in offers.whole() if stop is None)
        if self._by_quota_alone:
            choices = offers.with_evictions(lambda choice: bool(self._goes_for(entry, choice)[0]))
            evicts += self._evicts(entry, choices if stop is None else (stop,))
        if not evicts:
            yield from offers.fewer()

    def _stops(self, entry: Entry, choice: FlavorChoice) -> bool:
        """Tell whether who goes makes room: without borrowing, where that comes last."""
        found, amounts = self._goes_for(entry, choice)
        if not found or not entry.queue.next_for_borrowing:
            return bool(found)
        return not cost(self._ledger, entry.queue.name, found, amounts)[1]

    def _goes_for(
        self, entry: Entry, choice: FlavorChoice
    ) -> tuple[tuple[KueueWorkload, ...], dict[str, int]]:
        """Give who would go for some flavors, and what is asked of these."""
        amounts = choice.amounts(entry.asked, entry.counts())
        found = self._targets.evicted_for(entry.workload, entry.queue, amounts, self._ledger, self._evicted)
        return found, amounts

    def _evicts(self, entry: Entry, choices: Iterable[FlavorChoice]) -> tuple[str, ...]:
        """Name whom Kueue would evict; their quota is the Workload's from then on."""
        key, queue = entry.workload.key, entry.queue.name
        offered = [one for one in (self._goes_for(entry, choice) for choice in choices) if one[0]]
        if not offered:
            return ()
        found, amounts = min(offered, key=lambda one: cost(self._ledger, queue, *one))
        self._ledger = without(self._ledger, found).with_usage(key, queue, amounts)
        self._evicted.update(one.key for one in found)
        return tuple(one.key for one in found)

    def _placed(self, entry: Entry, offer: Offer) -> _Start | JobPlan | None:
        """Place a Workload on the nodes of some flavors; else give the plan that says why not."""
        workload, choice = entry.workload, offer.choice
        pods = list(first_pods(entry, offer.counts))
        group, made = admitted_pods(pods, workload, choice.flavors, self._flavors.topologies)
        result = self._scheduled(self._cluster.with_records(group), made, None)
        if result.bound:
            bound = {one.pod for one in result.bound}
            taken = dict.fromkeys(offer.counts, 0)
            for pod in made:
                taken[pod_set_of(pod, workload)] += pod.key in bound
            # A gang counts the pod sets of one group together: none of them stands in for another.
            if any(taken[one.name] < min(one.least, offer.counts[one.name]) for one in workload.pod_sets):
                return None
            return _Start(offer, taken, group, tuple(made), result)
        if not self._by_quota_alone or self._flavors.lay_out(choice):
            return result.jobs[0] if result.jobs else None
        # Without a topology the reference asks nobody for nodes: pods are made, and start one by one.
        made = [without_gang(pod) for pod in made]
        return _Start(offer, offer.counts, None, tuple(made), self._scheduled(self._cluster, made, None))

    def _started(self, entry: Entry, start: _Start, passed: tuple[str, ...]) -> WorkloadDecision:
        """Count quota and places of a Workload as taken."""
        workload, queue, choice = entry.workload, entry.queue.name, start.offer.choice
        amounts = choice.amounts(entry.asked, start.taken)
        borrows = self._ledger.borrows(queue, amounts)
        self._ledger = self._ledger.with_usage(workload.key, queue, amounts)
        self._cluster = start.result.snapshot
        self._results.append(start.result)
        self._changed[workload.key] = start.made
        reason = ""
        if start.group is not None:
            self._groups.append(start.group)
        else:
            reason = f"{len(start.made) - start.pods} of its pods find no nodes, and its quota is used"
        flavors = {
            f"{name}/{resource}": flavor
            for name, given in choice.pod_sets.items()
            for resource, flavor in given.by_resource.items()
        }
        return WorkloadDecision(
            workload=workload.key,
            queue=queue,
            admitted=True,
            pods=start.pods,
            asked=len(entry.pods),
            flavors=immutabledict(flavors),
            borrows=borrows,
            reason=reason,
            passed_over=passed,
        )

    def _scheduled(
        self, cluster: ClusterSnapshot, pods: Iterable[Pod], preempt: PreemptionRules | None
    ) -> ScheduleResult:
        return schedule(
            cluster, pods, policy=self._policy, now=self._now, limits=self._limits, preempt=preempt
        )


def _stats(parts: Sequence[ScheduleResult], waiting: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.stats.items():
            found[name] = count if name == "nodes" else found.get(name, 0) + count
    return {**found, "pods": found["pods"] + waiting, "waiting": found["waiting"] + waiting}
