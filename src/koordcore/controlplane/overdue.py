"""Who has to go although nobody asks for his room: half gangs, and pods beyond their quota's share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import attrs

from koordcore._vector import Vector
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.records import ClusterRecord
from koordcore.preemption.running import covers
from koordcore.protocol.gang_names import gang_name
from koordcore.quota import plan_revoke
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.overuse import OveruseMonitor
from koordcore.scheduling.gang_states import gang_state
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once, shared

_SECOND = 10**9


class Overdue:
    """Watches from one look to the next.

    Parameters
    ----------
    patience
        Seconds that a half gang is given to become whole, such as by a pod that is made anew.
    quotas
        How long a quota may stay beyond its runtime, among others. Minima count whole (as without
        ``enableMinQuotaScale``): who is within his stays, however many nodes have just gone.
    """

    def __init__(self, *, patience: float, quotas: QuotaPolicy) -> None:
        self._patience = patience
        self._quotas = attrs.evolve(quotas, enable_min_quota_scale=False)
        self._half_since: dict[str, float] = {}
        self._monitors: Mapping[str, OveruseMonitor] = {}
        self._seen: tuple[Vector[NodeState], Vector[ClusterRecord]] | None = None
        self._half: dict[str, list[Pod]] = {}

    def look(self, snapshot: ClusterSnapshot, *, now: float) -> dict[PodKey, str]:
        """Give who has to go now, with the reason; ``now`` in seconds."""
        going: dict[PodKey, str] = {}
        if self._gangs_changed(snapshot):
            self._half = half_gangs(snapshot)
        half = self._half
        self._half_since = {name: self._half_since.get(name, now) for name in half}
        for name, pods in half.items():
            if now - self._half_since[name] >= self._patience and _may_all_go(snapshot, pods):
                self._half_since[name] = now  # and once more if they do not go
                going |= dict.fromkeys((pod.key for pod in pods), f"gang {name} did not start whole")
        if not snapshot.of(ElasticQuota):
            self._monitors = {}
            return going
        plan = plan_revoke(
            cluster_ledger(snapshot, policy=self._quotas),
            map(quota_reader(snapshot), snapshot.bound_pods()),
            self._monitors,
            now=int(now * _SECOND),
        )
        self._monitors = plan.monitors
        for quota, victims in plan.victims.items():
            going |= dict.fromkeys((pod.key for pod in victims), f"quota {quota} uses more than its share")
        return going

    def _gangs_changed(self, snapshot: ClusterSnapshot) -> bool:
        """Tell whether a member or a PodGroup has come, left or changed since the last look."""
        before, self._seen = self._seen, shared(snapshot)
        if before is None or any(len(old) != len(new) for old, new in zip(before, self._seen, strict=True)):
            return True
        records = (one for some in before[1].apart(self._seen[1]) for one in some)
        if any(isinstance(one, PodGroup | Pod) for one in records):
            return True
        for old, new in zip(*before[0].apart(self._seen[0]), strict=True):
            same = {id(pod) for pod in old.pods} & {id(pod) for pod in new.pods}
            for pod in (*old.pods, *new.pods):
                if id(pod) not in same and gang_name(pod.labels, pod.annotations):
                    return True
        return False


def _may_all_go(snapshot: ClusterSnapshot, pods: list[Pod]) -> bool:
    """Tell whether no disruption budget keeps some of them, who would stay half and call the others back."""
    for budget in snapshot.of(PodDisruptionBudget):
        guarded = sum(covers(budget, pod) for pod in pods)
        if guarded > max(0, budget.disruptions_allowed):
            return False
    return True


def half_gangs(snapshot: ClusterSnapshot) -> dict[str, list[Pod]]:
    """Give the running members of gang groups that run in part, by the name of the group.

    A member that has finished has run, and counts.
    """
    running: dict[str, list[Pod]] = defaultdict(list)
    started: dict[str, int] = defaultdict(int)
    for pod in (*snapshot.bound_pods(), *snapshot.of(Pod)):
        name = gang_name(pod.labels, pod.annotations)
        if name and (pod.finished or pod.deleted is None):
            started[f"{pod.namespace}/{name}"] += 1
            if not pod.finished:
                running[f"{pod.namespace}/{name}"].append(pod)
    gangs = {name: record.gang for name, record in once(snapshot, gang_state).gangs.items()}
    half: dict[str, list[Pod]] = {}
    for name in sorted(running.keys() & gangs.keys()):
        group = gangs[name].group
        if any(one in gangs and started[one] < gangs[one].min_available for one in group):
            half.setdefault(",".join(group), []).extend(running[name])
    return half
