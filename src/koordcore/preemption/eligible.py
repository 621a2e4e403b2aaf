"""May this job preempt at all, and whom? Steps one to three of the workflow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod, PreemptionPolicy
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.protocol.preemption import EVICTED_REASON, PREEMPTED_REASON, is_protected

NO_PENDING: Final = "no pending pods"
NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to terminating pod on the nominated node."

StatusCode = str
"""A filter's verdict about a node, in upstream's spelling; a node without one is unresolvable."""

_FOR_OTHERS: Final = frozenset({PREEMPTED_REASON, EVICTED_REASON})
"""Why a pod leaves a node that is nominated for somebody more important (ruling 29)."""
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"


@record(kw_only=True)
class Eligibility:
    """Whether a job may preempt.

    Parameters
    ----------
    reason
        Why not, in upstream's words; empty where it may.
    terminating
        Victims of an earlier attempt that still hold a nominated node: pod key to node.
    """

    reason: str = ""
    terminating: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)

    @property
    def eligible(self) -> bool:
        """The job may preempt."""
        return not self.reason


def may_evict(preemptor: Pod, pod: Pod) -> bool:
    """Tell whether a running pod may leave for another: strictly less important, and not protected.

    A static pod is the kubelet's own; nobody else can evict it. What an unreadable one is worth nobody knows.
    Who only keeps a place at Permit runs nowhere.
    """
    if pod.priority >= preemptor.priority or is_protected(pod.labels) or pod.fixed:
        return False
    return WAITS_AT_PERMIT not in pod.annotations


def terminating_victims(
    pending: Iterable[Pod], on_node: Mapping[str, Iterable[Pod]], jobs: Collection[str] = ()
) -> dict[str, str]:
    """Find victims of an earlier attempt that are on their way out of a nominated node.

    Parameters
    ----------
    pending
        Members of the job.
    on_node
        Pods by node, in the node's order.
    jobs
        Names of the job.

    Returns
    -------
    dict
        Pod key to node: for each member the first such pod that it may evict itself or that goes for its job.
    """
    found: dict[str, str] = {}
    for member in pending:
        node = member.nominated_node
        for pod in on_node.get(node or "", ()):
            known = pod.preempted_by in jobs or may_evict(member, pod)
            if pod.leaving and pod.disruption in _FOR_OTHERS and known:
                found[str(pod.key)] = str(node)
                break
    return found


def check_eligible(
    trigger: Pod,
    pending: Iterable[Pod],
    on_node: Mapping[str, Iterable[Pod]],
    statuses: Mapping[str, StatusCode],
    jobs: Collection[str] = (),
) -> Eligibility:
    """Decide whether a job may preempt (``preempt.go: preemptionEligible``).

    Parameters
    ----------
    trigger
        The member that failed; only its policy counts.
    pending
        All members that wait for a node.
    on_node
        Pods by node, in the node's order.
    statuses
        What the filters said about the trigger, by node.
    jobs
        Names of the job.
    """
    waiting = tuple(pending)
    if not waiting:
        return Eligibility(reason=NO_PENDING)
    if trigger.preemption_policy is PreemptionPolicy.NEVER:
        return Eligibility(reason=NEVER)
    asked = [
        pod
        for pod in waiting
        # A nominated node that cannot be mended any more does not hold the trigger back.
        if pod.key != trigger.key or statuses.get(pod.nominated_node or "", UNRESOLVABLE) != UNRESOLVABLE
    ]
    terminating = terminating_victims(asked, on_node, jobs)
    if terminating:
        return Eligibility(reason=TERMINATING, terminating=immutabledict(terminating))
    return Eligibility()
