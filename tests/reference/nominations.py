"""Nominated pods: who counts on a node before it is there, and what becomes of a nomination."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import Final, TypeAlias

import attrs

from koordcore.model.pods import Pod

__all__ = [
    "JOB_PREEMPTION_FAILURE",
    "JOB_PREEMPTION_SUCCESS",
    "JOB_REJECT",
    "NodeVerdict",
    "NominatingMode",
    "Nomination",
    "counted_nominations",
    "filter_with_nominations",
    "renominate",
]

JOB_PREEMPTION_SUCCESS: Final = "JobPreemptionSuccessPlugin"
JOB_PREEMPTION_FAILURE: Final = "JobPreemptionFailurePlugin"
JOB_REJECT: Final = "JobRejectPlugin"
UNSCHEDULABLE: Final = "Unschedulable"


def counted_nominations(
    pod: Pod,
    nominated: Iterable[Pod],
    *,
    node: str,
    same_job: Collection[str] = (),
    local_schedulers: Collection[str] | None = None,
    cross_scheduler: bool = False,
) -> tuple[Pod, ...]:
    """Tell which nominated pods a pod has to leave room for on a node.

    Parameters
    ----------
    nominated
        Pods with a nominated node, in any order.
    same_job
        Uids of the pending pods of the same job: they do not stand in each other's way.
    local_schedulers
        Schedulers whose nominations bind from equal priority on; None for all.
    cross_scheduler
        Whether nominations of other schedulers count too; they need strictly higher priority.

    Returns
    -------
    tuple of Pod
        In the order given.
    """
    counted = []
    for other in nominated:
        if other.nominated_node != node or other.key == pod.key or (other.uid and other.uid == pod.uid):
            continue
        if other.uid in same_job or str(other.key) in same_job:
            continue
        local = local_schedulers is None or other.scheduler_name in local_schedulers
        if other.priority >= pod.priority if local else cross_scheduler and other.priority > pod.priority:
            counted.append(other)
    return tuple(counted)


@attrs.frozen(kw_only=True)
class NodeVerdict:
    """What the filters say about a pod and a node.

    Parameters
    ----------
    code
        ``Success``, ``Unschedulable`` or ``UnschedulableAndUnresolvable``.
    reasons
        Of the first pass that failed.
    added
        Nominated pods that were counted.
    passes
        How often the filters ran.
    """

    code: str = "Success"
    reasons: tuple[str, ...] = ()
    added: tuple[Pod, ...] = ()
    passes: int = 1


Filter: TypeAlias = Callable[[tuple[Pod, ...]], tuple[str, tuple[str, ...]]]
"""Runs the filters with some more pods on the node: code and reasons."""


def filter_with_nominations(added: tuple[Pod, ...], run: Filter, *, single_pass: bool = False) -> NodeVerdict:
    """Filter with the nominated pods and, where that passes, without them.

    Both have to pass: a nominated pod takes room, and it may also be what an affinity needs but never come.

    Parameters
    ----------
    added
        What :func:`counted_nominations` gave.
    run
        The filters.
    single_pass
        Upstream's gate SkipFilterWithNominatedPods: the first pass alone.
    """
    code, reasons = run(added)
    if code != "Success" or not added or single_pass:
        return NodeVerdict(code=code, reasons=reasons, added=added)
    code, reasons = run(())
    return NodeVerdict(code=code, reasons=reasons, added=added, passes=2)


class NominatingMode(StrEnum):
    """What is done to the nomination that a pod has."""

    NOOP = "Noop"
    OVERRIDE = "Override"


@attrs.frozen
class Nomination:
    """What becomes of a nomination.

    Parameters
    ----------
    mode
        Leave it, or set it.
    node
        Node to set; empty clears.
    rejecter
        Who rejected the pod, as far as one can be told.
    """

    mode: NominatingMode
    node: str = ""
    rejecter: str = ""


def renominate(
    default: Nomination, *, code: str | None, rejecters: Collection[str], assumed_node: str
) -> Nomination:
    """Decide about the nomination of a pod that was rejected while it waited at Permit.

    Parameters
    ----------
    default
        What the framework would do.
    code
        Code of the rejection; None without one.
    rejecters
        Plugins that the rejection or its fit error names; only a single one is told apart.
    assumed_node
        Node that the pod held.

    Notes
    -----
    A success of the job's preemption keeps the node, its failure clears it, the rejection of the gang leaves
    the nomination as it is. The rejecter counts wherever the scheduler has stored it.
    """
    if code != UNSCHEDULABLE or len(rejecters) != 1:
        return default
    (rejecter,) = rejecters
    match rejecter:
        case "JobPreemptionSuccessPlugin":
            return Nomination(NominatingMode.OVERRIDE, assumed_node, rejecter)
        case "JobRejectPlugin":
            return Nomination(NominatingMode.NOOP, "", rejecter)
        case "JobPreemptionFailurePlugin":
            return Nomination(NominatingMode.OVERRIDE, "", rejecter)
        case _:
            return attrs.evolve(default, rejecter=rejecter)
