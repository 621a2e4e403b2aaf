"""Evictions that give a quota back what it has lent: only from who borrows, only to who is promised it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from koordcore.checking.quota_sums import NOBODY, Elsewhere, QuotaSums, in_force, specs_in
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound, Nominated, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import PreemptionPlan
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.resources import total
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_reclaims(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    elsewhere: Elsewhere = NOBODY,
    kept: Collection[PodKey] = (),
) -> Iterator[Violation]:
    """Whoever reclaims is within its min at its turn, and the quotas of its victims are beyond theirs.

    Parameters
    ----------
    elsewhere
        What pods hold that the snapshot does not show.
    kept
        Who had a place before anybody had a turn, as a member of a gang that still waits.
    """
    plans = {key: plan for plan in result.preemptions if plan.borrowers for key in plan.nominations}
    if not plans:
        return
    turns = _Turns(snapshot, result, elsewhere)
    seen: set[str] = set()
    moving = {move.victim.pod for plan in result.preemptions for move in plan.moves}
    for key in kept:
        turns.comes(key)
    for one in result.decisions:
        if isinstance(one, Bound) or (isinstance(one, Waiting) and one.held is not None):
            turns.comes(one.pod)
        elif isinstance(one, Nominated):
            plan = plans.get(str(one.pod))
            if plan is not None and plan.job not in seen:
                seen.add(plan.job)
                yield from turns.check(plan)
            for victim in one.victims:
                if victim.pod not in moving:  # else it uses elsewhere what it used
                    turns.leaves(victim.pod)
            turns.comes(one.pod)
        elif one.pod in kept:
            turns.leaves(one.pod)


class _Turns:
    """What quotas hold, from decision to decision."""

    def __init__(self, snapshot: ClusterSnapshot, result: ScheduleResult, elsewhere: Elsewhere) -> None:
        setting, after = result.policy.plugin("ElasticQuota"), result.snapshot
        args = setting.args if setting is not None else None
        args = args if isinstance(args, QuotaPolicy) else QuotaPolicy()
        self._guaranteed = args.guarantee_usage
        self._quotas = in_force(snapshot.of(ElasticQuota))
        self._specs = specs_in(snapshot)
        self._none = partial(QuotaSums, self._quotas, self._specs, args)
        self._sums, self._elsewhere = self._none(), elsewhere.under(args)
        known = (*snapshot.pending, *after.pending, *after.bound_pods())
        self._pods = {pod.key: pod for pod in known}
        self._holding: dict[PodKey, Pod] = {}
        for pod in snapshot.bound_pods():
            self._holding[pod.key] = pod
            self._sums.count(pod)

    def comes(self, key: PodKey) -> None:
        """A pod is placed, keeps a place for its gang, or is nominated."""
        if key in self._pods and key not in self._holding:
            self._holding[key] = self._pods[key]
            self._sums.count(self._pods[key])

    def leaves(self, key: PodKey) -> None:
        """A pod is evicted."""
        pod = self._holding.pop(key, None)
        if pod is not None:
            self._sums.count(pod, -1)

    def _used(self, name: str, resource: str) -> int:
        here = self._sums.whole[name][resource] if name in self._sums.whole else 0
        return here + self._elsewhere.held(name).get(resource, 0)

    def check(self, plan: PreemptionPlan) -> Iterator[Violation]:
        """Look at one plan, before it is carried out."""
        members = [self._pods[key] for key in map(PodKey.of, plan.nominations) if key in self._pods]
        coming = self._none()
        for pod in members:
            coming.count(pod)
        going = self._going(min((pod.priority for pod in members), default=0))
        wanted = {name for pod in members for name, amount in pod.requests.items() if amount}
        leaves = {self._sums.chain(pod)[0] for pod in members}
        for name in sorted(coming.whole.keys() & self._quotas.keys()):
            # What a quota's max does not name is not counted against it.
            for resource in sorted(wanted & self._quotas[name].max.keys()):
                after = self._used(name, resource) + coming.whole[name][resource]
                after -= going.whole[name][resource] if name in going.whole else 0
                bound = self._quotas[name].min.get(resource, 0)
                if coming.whole[name][resource] and after > bound and not self._guaranteed:
                    if name not in leaves and self._give_below(plan, name):
                        continue
                    message = f"reclaims for {plan.job} and would use {after} of {resource}, {bound} promised"
                    yield Violation(ViolationKind.VICTIM, name, message)
        # Nor is it promised what its max does not name: nobody has that to give back.
        promised = {name for leaf in leaves & self._quotas.keys() for name in self._quotas[leaf].max}
        yield from self._check_victims(plan, set(coming.whole), wanted & promised)

    def _going(self, priority: int | None = None) -> QuotaSums:
        """Add up who leaves: everybody, or who is less important or goes for some job (ruling 29)."""
        going = self._none()
        for pod in self._holding.values():
            if pod.leaving and (priority is None or pod.priority < priority or pod.preempted_by):
                going.count(pod)
        return going

    def _give_below(self, plan: PreemptionPlan, name: str) -> bool:
        """Tell whether all who leave are of quotas below one: its children share out what it is promised."""
        known = (self._holding.get(victim.pod) for victim in plan.victims)
        return all(pod is None or name in self._sums.chain(pod) for pod in known)

    def _check_victims(self, plan: PreemptionPlan, mine: set[str], wanted: set[str]) -> Iterator[Violation]:
        units: dict[str, dict[str, list[Pod]]] = defaultdict(lambda: defaultdict(list))
        going = self._going()
        for victim in plan.victims:
            pod = self._holding.get(victim.pod)
            if pod is not None:
                unit = victim.job if victim.job in plan.broken else str(victim.pod)
                units[self._sums.chain(pod)[0]][unit].append(pod)
        for name, leaving in sorted(units.items()):
            if name not in plan.borrowers or name in mine or name not in self._quotas:
                yield Violation(
                    ViolationKind.VICTIM, name, f"gives back to {plan.job} and is no borrower of it"
                )
            elif not any(self._beyond(name, list(leaving.values()), one, going) for one in wanted):
                message = f"is within its min before the last of its victims leaves for {plan.job}"
                yield Violation(ViolationKind.VICTIM, name, message)

    def _beyond(self, name: str, units: Sequence[Sequence[Pod]], resource: str, going: QuotaSums) -> bool:
        """Tell whether a quota is beyond its min until the last of some units leaves, the largest one."""
        amounts = [total(pod.requests for pod in unit).get(resource, 0) for unit in units]
        before_last = self._used(name, resource) - (sum(amounts) - max(amounts))
        before_last -= going.whole[name][resource] if name in going.whole else 0
        return before_last > self._quotas[name].min.get(resource, 0)
