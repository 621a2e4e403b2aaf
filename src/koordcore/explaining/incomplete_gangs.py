"""What gangs lack that are not tried at all: members, or the object that configures them."""

from __future__ import annotations

from collections.abc import Iterator

from koordcore.explaining.remedy import Remedy, RemedyKind
from koordcore.model.policy import Policy
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.snapshot import ClusterSnapshot


def lacks_of(job: Job) -> str:
    """Say in a line what a gang is short of that is not tried; empty where that is not why."""
    return "; ".join(one.text for one in completing(job)) if job.refusal else ""


def lacking(snapshot: ClusterSnapshot, policy: Policy) -> dict[str, str]:
    """Say of each gang that is not tried what it is short of, by the name that decisions give it."""
    jobs = (turn for turn in JobTable(snapshot, policy).turns(snapshot.pending) if isinstance(turn, Job))
    return {job.name: lacks for job in jobs if (lacks := lacks_of(job))}


def completing(job: Job) -> Iterator[Remedy]:
    """Yield what a gang is short of; nothing for Kubernetes' own groups, whose refusals say it themselves."""
    if job.tree is not None:
        return
    named = {listed for name in job.own for listed in job.gangs[name].group}
    for name in sorted(named | set(job.gangs)):
        gang = job.gangs.get(name)
        if gang is None or not gang.initialised:
            text = f"the dump has no PodGroup {name}, nor a pod that says how large this gang is"
            yield Remedy(kind=RemedyKind.COMPLETE, text=text)
            continue
        there = len(job.members[name]) + len(job.bound[name]) + job.ended.get(name, 0)
        short = gang.min_available - there
        if short > 0:
            more = f"{short} more pod{'s' * (short > 1)} of {name}"
            text = f"{more}: {there} of at least {gang.min_available} exist"
            yield Remedy(kind=RemedyKind.COMPLETE, text=text)
