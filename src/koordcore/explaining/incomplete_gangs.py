"""What gangs lack that are not tried at all: members, or the object that configures them."""

from __future__ import annotations

from collections.abc import Iterator

from koordcore.explaining.remedy import Remedy, RemedyKind
from koordcore.scheduling.gang_groups import Job


def completing(job: Job) -> Iterator[Remedy]:
    """Yield what a gang is short of; nothing for Kubernetes' own groups, whose refusals say it themselves."""
    if job.tree is not None:
        return
    named = {name for gang in job.gangs.values() for name in gang.group}
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
