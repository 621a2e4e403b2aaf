"""Until when a member of a NonStrict gang keeps its place while the others are missing."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from koordcore.allocators.gang.state import LONGEST_WAIT
from koordcore.errors import ManifestError
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import Pod
from koordcore.protocol.times import moment_of, parse_timestamp
from koordcore.scheduling.gang_groups import Job
from koordcore.scheduling.gang_states import gang_id_of
from koordcore.snapshot import ClusterSnapshot


def wait_ends(snapshot: ClusterSnapshot, job: Job, pod: Pod, now: datetime | None) -> int | None:
    """Give the moment (nanoseconds since 1970) at which a member's wait at Permit is over.

    A call sees only what the objects say, so the wait begins when it could begin: when the member and as many
    others as its gang needs were made, and not before the PodGroup says that scheduling began. Where neither
    says so it begins now. It lasts for the gang's ``scheduleTimeoutSeconds`` or waiting time, 15 minutes at
    most. ``None`` where nothing says when it began, and the call has no clock either.
    """
    gang = job.gangs[gang_id_of(pod)]
    begins = []
    if pod.created is not None:
        known = sorted(one.created for one in job.members[gang.id] if one.created is not None)
        enough = known[min(len(known), max(1, job.least(gang.id))) - 1]
        begins.append(moment_of(max(pod.created, enough)))
    namespace, name = gang.id.split("/", 1)
    group = snapshot.find(PodGroup, name, namespace)
    if group is not None and group.status.schedule_start_time is not None:
        with suppress(ManifestError):  # a status is informative: the members' own times stand
            begins.append(parse_timestamp(group.status.schedule_start_time))
    if not begins and now is not None:
        begins.append(moment_of(now))
    return max(begins) + min(gang.wait_time, LONGEST_WAIT) if begins else None
