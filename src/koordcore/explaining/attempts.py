"""Would it fit, if? Pods that go together, tried out on a changed cluster or as changed pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs

from koordcore._record import record
from koordcore.model.certificates import Limits
from koordcore.model.decisions import Bound
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.protocol.gang import (
    ANNOTATION_MIN_AVAILABLE,
    ANNOTATION_TOTAL_NUMBER,
    LABEL_LIGHTWEIGHT_MIN_AVAILABLE,
)
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.reservation import RESERVATION_NAME
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded, PodPending


@record
class Attempts:
    """Pods that are decided together, in their turn.

    Parameters
    ----------
    snapshot
        The cluster when their turn comes; nobody else waits there but who has a nomination.
    members
        Who waits.
    least
        How many of them have to be placed.
    policy, now, limits
        As for :func:`koordcore.schedule`.
    refused
        Who has a turn before them and gets no node: something that helps them may help these first.
    served
        Who gets a node before them, as they wait; in ``snapshot`` they have it.
    queue
        The cluster before the call, with everybody who waits; ``None`` where nobody else does.
    """

    snapshot: ClusterSnapshot
    members: tuple[Pod, ...]
    least: int
    policy: Policy
    now: datetime | None
    limits: Limits
    refused: tuple[Pod, ...] = ()
    served: tuple[Pod, ...] = ()
    queue: ClusterSnapshot | None = None

    def plan(
        self,
        *,
        snapshot: ClusterSnapshot | None = None,
        members: Sequence[Pod] | None = None,
        rules: PreemptionRules | None = None,
        policy: Policy | None = None,
        before: bool = False,
    ) -> ScheduleResult:
        """Decide about the members on a changed cluster, or as changed pods.

        Parameters
        ----------
        snapshot, members, policy
            What is changed.
        rules
            Whether others may be evicted, as for :func:`koordcore.schedule`.
        before
            Decide about those before them anew, in the same call; not about those of them who had a node and
            have gone since.
        """
        own = self.members if members is None else tuple(members)
        cluster = self.snapshot if snapshot is None else snapshot
        again: list[Pod] = []
        if before:
            placed = [one for one in self.served if one.key in cluster.location]
            cluster = cluster.forget(*(one.key for one in placed)) if placed else cluster
            again = [*self.refused, *placed]
        there = (one.key for one in self.members if cluster.pod(one.key) is not None)
        known = cluster.apply(*map(PodEnded, there), *map(PodPending, (*again, *own)))
        chosen = self.policy if policy is None else policy
        return schedule(known, (*again, *own), policy=chosen, now=self.now, limits=self.limits, preempt=rules)

    def places(self, result: ScheduleResult, members: Sequence[Pod] | None = None) -> dict[PodKey, str]:
        """Give the nodes of the members where enough of them are placed; empty where they are not."""
        own = {one.key for one in (self.members if members is None else members)}
        found = {one.pod: one.node for one in result.decisions if isinstance(one, Bound) and one.pod in own}
        jobs = [one for one in result.jobs if _has(result, one.job, own)]
        if jobs:
            return found if all(one.placed for one in jobs) else {}
        return found if len(found) >= self.least else {}

    def fits(
        self,
        *,
        snapshot: ClusterSnapshot | None = None,
        members: Sequence[Pod] | None = None,
        policy: Policy | None = None,
    ) -> dict[PodKey, str]:
        """Give where the members would go, those before them served first; empty where they would not."""
        # Most of what does not help does not help them alone either, which is told sooner.
        alone = self.places(self.plan(snapshot=snapshot, members=members, policy=policy), members)
        if not alone or not (self.refused or self.served):
            return alone
        together = self.plan(snapshot=snapshot, members=members, policy=policy, before=True)
        return self.places(together, members)

    def alone(self) -> Attempts:
        """Give the same question as if nobody had a turn before."""
        return attrs.evolve(self, refused=(), served=(), queue=None)

    def first(self, snapshot: ClusterSnapshot) -> str:
        """Say who before them, refused so far, gets a node on a changed cluster; empty where nobody does."""
        if not self.refused:
            return ""
        bound = {one.pod for one in self.plan(snapshot=snapshot, before=True).bound}
        helped = [named(one) for one in self.refused if one.key in bound]
        if len(helped) > 1:
            return f"; {len(helped)} pods before it in the queue get theirs first"
        return f"; {helped[0]}, before it in the queue, gets its own first" if helped else ""

    def most_members(self) -> int:
        """Count the members of a gang that would fit if fewer had to start together; 0 for a pod alone."""
        if len(self.members) < 2:
            return 0
        fitting, failing = 0, self.least
        while failing - fitting > 1:
            middle = (fitting + failing) // 2
            if self._fewer(middle):
                fitting = middle
            else:
                failing = middle
        return fitting

    def _fewer(self, number: int) -> bool:
        ids = {f"{one.namespace}/{gang_name(one.labels, one.annotations)}" for one in self.members}
        groups = [attrs.evolve(one, min_member=number) for one in self.snapshot.of(PodGroup) if one.id in ids]
        chosen = [_with_least(one, number) for one in self.members[:number]]
        return bool(self.fits(snapshot=self.snapshot.with_records(*groups), members=chosen))


def named(pod: Pod) -> str:
    """Name who waits: a pod, or the reservation that it stands for."""
    return f"reservation {pod.annotations[RESERVATION_NAME]}" if is_reserve_pod(pod) else str(pod.key)


def _with_least(pod: Pod, number: int) -> Pod:
    """Write a smaller minimum where a member says the minimum itself."""
    own = (ANNOTATION_MIN_AVAILABLE, ANNOTATION_TOTAL_NUMBER)
    annotations = {key: str(number) if key in own else value for key, value in pod.annotations.items()}
    labels = {
        key: str(number) if key == LABEL_LIGHTWEIGHT_MIN_AVAILABLE else value
        for key, value in pod.labels.items()
    }
    return attrs.evolve(pod, annotations=annotations, labels=labels)


def _has(result: ScheduleResult, job: str, own: set[PodKey]) -> bool:
    """Tell whether pods belong to one of the gangs of a job."""
    ids = set(job.split(","))
    for key in own:
        pod = result.snapshot.pod(key)
        if pod is not None and f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}" in ids:
            return True
    return False
