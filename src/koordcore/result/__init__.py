"""What a scheduling call returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from immutabledict import immutabledict

from koordcore import model
from koordcore._blame import names_its_arguments
from koordcore._notebook import html_table
from koordcore._record import record
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.decisions import Bound, JobPlan, JointPlan, PodDecision
from koordcore.model.kueue import AdmittedWorkload
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.protocol.preemption import PREEMPTED_REASON
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.forking import with_pods

if TYPE_CHECKING:
    from koordcore.result.left_out import LeftOut

__all__ = ["ScheduleResult", "with_victims_leaving"]


@names_its_fields
@record(kw_only=True, repr=False)
class ScheduleResult:
    """What one call decided.

    Parameters
    ----------
    decisions
        One per pod, in the order in which they were taken.
    snapshot
        The cluster afterwards.
    jobs
        One plan per gang group, in the order in which they were taken.
    together
        Runs of gang groups that were planned as one, where the policy asks for that.
    preemptions
        Who leaves for whom, where preemption was asked for; the members are nominated, nobody has left yet.
    withdrawn
        Pods that were nominated before, found no place, and wait for no victim any more: they hold no room
        now. Only where preemption was asked for.
    admitted
        Workloads of Kueue that get quota, with their flavors: their pods go where these allow.
    policy
        What was asked of the decisions; :func:`koordcore.verify` holds them to it.
    stats
        Counts and deterministic work units by name; no wall time. ``pods`` is how many were asked about.
    """

    decisions: tuple[PodDecision, ...]
    snapshot: ClusterSnapshot
    jobs: tuple[JobPlan, ...] = ()
    together: tuple[JointPlan, ...] = ()
    preemptions: tuple[model.PreemptionPlan, ...] = ()
    withdrawn: tuple[PodKey, ...] = ()
    admitted: tuple[AdmittedWorkload, ...] = ()
    policy: Policy = Policy()
    stats: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)

    __attrs_post_init__ = check_fields

    def __repr__(self) -> str:
        """Count the decisions by kind; the tuples say it all."""
        kinds = Counter(type(one).__name__ for one in self.decisions)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return f"<ScheduleResult: {counts or 'nobody was asked about'}; {self.snapshot!r}>"

    def _repr_html_(self) -> str:
        """Show the decisions in a notebook."""
        plans = [f"{one.job}: {one.placed or one.held} of {one.members} members placed" for one in self.jobs]
        return html_table(repr(self)[1:-1], self.table(), plans)

    def table(self) -> dict[str, list[Any]]:
        """Give the decisions as columns by name, as pandas, polars and pyarrow take them.

        Returns
        -------
        dict
            ``namespace``, ``pod``, ``outcome`` (bound, nominated, waiting, unschedulable or not ours),
            ``node`` (empty for none), ``score`` (``None`` for none) and ``why``; in the order of decisions.
        """
        from koordcore.result.tables import decision_table  # who looks at no table does not load it

        return decision_table(self.decisions)

    @property
    def bound(self) -> tuple[Bound, ...]:
        """The pods that got a node."""
        return tuple(one for one in self.decisions if isinstance(one, Bound))

    @property
    def not_looked_at(self) -> tuple[LeftOut, ...]:
        """What bears on the places of pods and no decision looked at, because the policy leaves it out.

        Worked out from the snapshot afterwards, in time that goes with nodes and decisions.
        """
        # Kinds of objects that a plain call never meets; who does not ask does not load them.
        from koordcore.result.left_out import left_out

        found = (self.snapshot.pod(one.pod) for one in self.decisions)
        pods = [pod for pod in found if pod is not None]
        return left_out(self.snapshot, self.policy, pods, preempting="nominated" in self.stats)

    @names_its_arguments
    def decision(self, pod: Pod | PodKey | str) -> PodDecision | None:
        """Give one pod's decision; ``None`` when it was not asked about. A text is ``"namespace/name"``."""
        key = pod.key if isinstance(pod, Pod) else PodKey.of(pod)
        return next((one for one in self.decisions if one.pod == key), None)


def with_victims_leaving(snapshot: ClusterSnapshot, plans: Iterable[model.PreemptionPlan]) -> ClusterSnapshot:
    """Write on the victims of some plans that they are to leave, and for whom; they are still there."""
    leaving = [(victim, plan.job) for plan in plans for victim in plan.victims]
    job_of = {victim.pod: job for victim, job in leaving}
    nodes = (
        {victim.node for victim, _ in leaving if victim.node in snapshot.layout.row_of} if leaving else set()
    )
    if not nodes:
        return snapshot
    pods = {
        name: tuple(_leaving(pod, job_of) if pod.key in job_of else pod for pod in snapshot.node(name).pods)
        for name in sorted(nodes)
    }
    return with_pods(snapshot, pods, snapshot.pending)


def _leaving(pod: Pod, job_of: Mapping[PodKey, str]) -> Pod:
    return attrs.evolve(pod, disruption=PREEMPTED_REASON, preempted_by=job_of[pod.key])
