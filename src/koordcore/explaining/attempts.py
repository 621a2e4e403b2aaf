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
    """

    snapshot: ClusterSnapshot
    members: tuple[Pod, ...]
    least: int
    policy: Policy
    now: datetime | None
    limits: Limits

    def plan(
        self,
        *,
        snapshot: ClusterSnapshot | None = None,
        members: Sequence[Pod] | None = None,
        rules: PreemptionRules | None = None,
        policy: Policy | None = None,
    ) -> ScheduleResult:
        """Decide about the members on a changed cluster, or as changed pods."""
        own = self.members if members is None else tuple(members)
        cluster = self.snapshot if snapshot is None else snapshot
        there = (one.key for one in self.members if cluster.pod(one.key) is not None)
        known = cluster.apply(*map(PodEnded, there), *map(PodPending, own))
        chosen = self.policy if policy is None else policy
        return schedule(known, own, policy=chosen, now=self.now, limits=self.limits, preempt=rules)

    def places(self, result: ScheduleResult) -> dict[PodKey, str]:
        """Give the nodes of the members where enough of them are placed; empty where they are not."""
        found = {one.pod: one.node for one in result.decisions if isinstance(one, Bound)}
        if result.jobs:
            return found if all(one.placed for one in result.jobs) else {}
        return found if len(found) >= self.least else {}

    def fits(
        self,
        *,
        snapshot: ClusterSnapshot | None = None,
        members: Sequence[Pod] | None = None,
        policy: Policy | None = None,
    ) -> dict[PodKey, str]:
        """Give where the members would go; empty where they would not."""
        return self.places(self.plan(snapshot=snapshot, members=members, policy=policy))

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


def _with_least(pod: Pod, number: int) -> Pod:
    """Write a smaller minimum where a member says the minimum itself."""
    own = (ANNOTATION_MIN_AVAILABLE, ANNOTATION_TOTAL_NUMBER)
    annotations = {key: str(number) if key in own else value for key, value in pod.annotations.items()}
    labels = {
        key: str(number) if key == LABEL_LIGHTWEIGHT_MIN_AVAILABLE else value
        for key, value in pod.labels.items()
    }
    return attrs.evolve(pod, annotations=annotations, labels=labels)
