"""Who has to go although nobody asks for his room: half gangs, and pods beyond their quota's share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from operator import attrgetter

import attrs

from koordcore._vector import Vector
from koordcore.model.checks import refuse_below
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.gangs import DEFAULT_ARGS
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
from koordcore.scheduling.gang_book import NO_MEMBERS, gang_book
from koordcore.scheduling.gang_states import gang_id_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, derived

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

    Raises
    ------
    ModelError
        When the patience is below 0, or has no end.
    """

    def __init__(self, *, patience: float, quotas: QuotaPolicy) -> None:
        refuse_below(0, patience, "Overdue: patience")
        self._patience = patience
        self._quotas = attrs.evolve(quotas, enable_min_quota_scale=False)
        self._half_since: dict[str, float] = {}
        self._monitors: Mapping[str, OveruseMonitor] = {}

    def look(self, snapshot: ClusterSnapshot, *, now: float) -> dict[PodKey, str]:
        """Give who has to go now, with the reason; ``now`` in seconds."""
        going: dict[PodKey, str] = {}
        half = half_gangs(snapshot)
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
    book = gang_book(snapshot, DEFAULT_ARGS)
    gangs = book.records
    # Whoever runs on a node that is not there is a record, and no member to the scheduler.
    strays: dict[str, list[Pod]] = defaultdict(list)
    for pod in derived(snapshot, _strays, _strays_again, replaced=True).values():
        strays[gang_id_of(pod)].append(pod)

    def started(gang_id: str) -> list[Pod]:
        members = book.members.get(gang_id, NO_MEMBERS).values()
        return [*(one.pod for one in members if one.started), *strays.get(gang_id, ())]

    half: dict[str, list[Pod]] = {}
    for name in sorted((book.half | strays.keys()) & gangs.keys()):
        group = gangs[name].gang.group
        running = [pod for pod in started(name) if not pod.finished]
        short = any(one in gangs and len(started(one)) < gangs[one].gang.min_available for one in group)
        if running and short:
            half.setdefault(",".join(group), []).extend(sorted(running, key=attrgetter("key")))
    return half


def _strays(snapshot: ClusterSnapshot) -> dict[PodKey, Pod]:
    """Give the members of gangs that run where no node is known."""
    return {pod.key: pod for pod in snapshot.of(Pod) if _is_stray(pod)}


def _strays_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    value: dict[PodKey, Pod],
    snapshot: ClusterSnapshot,
) -> dict[PodKey, Pod]:
    del nodes
    found = dict(value)
    for before, after in changed_records(snapshot, records):
        if isinstance(before, Pod):
            found.pop(before.key, None)
        if isinstance(after, Pod) and _is_stray(after):
            found[after.key] = after
    return found


def _is_stray(pod: Pod) -> bool:
    return not pod.finished and pod.deleted is None and bool(gang_name(pod.labels, pod.annotations))
