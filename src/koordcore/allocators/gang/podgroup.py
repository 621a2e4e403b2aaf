"""Phases of a PodGroup, from what is known of its members."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs

from koordcore._record import record
from koordcore.model.gangs import PodGroup, PodGroupPhase, PodGroupStatus

_FORGOTTEN_AFTER: Final = timedelta(hours=48)


@record(kw_only=True)
class MemberPhase:
    """One member as the phase machine sees it.

    Parameters
    ----------
    key
        ``namespace/name``.
    phase
        The pod's phase, such as ``Running``.
    bound
        The gang knows it as bound.
    owners
        ``namespace/name`` of its owners.
    """

    key: str
    phase: str = "Pending"
    bound: bool = False
    owners: tuple[str, ...] = ()


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def examined(pod_group: PodGroup) -> bool:
    """Tell whether the group is looked at again: not when it is over, or was left for two days."""
    status = pod_group.status
    if status.phase in (PodGroupPhase.FINISHED, PodGroupPhase.FAILED):
        return False
    if status.scheduled != pod_group.min_member or status.running != 0:
        return True
    if status.schedule_start_time is None or pod_group.created is None:
        return True
    return _time(status.schedule_start_time) - _time(pod_group.created) <= _FORGOTTEN_AFTER


def next_status(pod_group: PodGroup, members: Sequence[MemberPhase], *, now: str) -> PodGroupStatus | None:
    """Compute the status of a PodGroup one step on.

    Parameters
    ----------
    pod_group
        The object with its previous status.
    members
        The pods that its gang knows.
    now
        The time to write as ``scheduleStartTime`` when scheduling starts (RFC 3339).

    Returns
    -------
    PodGroupStatus or None
        None when the group is not examined any more; equal to the previous status when nothing changes.
    """
    if not examined(pod_group):
        return None
    status, least = pod_group.status, pod_group.min_member
    if status.phase == PodGroupPhase.NONE:
        return attrs.evolve(status, phase=PodGroupPhase.PENDING)
    if status.phase == PodGroupPhase.PENDING:
        if least <= 0 or len(members) < least:
            return status
        owners = next((m.owners for m in sorted(members, key=lambda member: member.key) if m.owners), ())
        return attrs.evolve(
            status,
            phase=PodGroupPhase.PRE_SCHEDULING,
            occupied_by=",".join(sorted(owners)) or status.occupied_by,
        )
    if not members:
        return attrs.evolve(status, phase=PodGroupPhase.PENDING)
    return _progress(status, least, members, now)


def _progress(status: PodGroupStatus, least: int, members: Sequence[MemberPhase], now: str) -> PodGroupStatus:
    phases = [member.phase for member in members]
    running, succeeded, failed = (phases.count(phase) for phase in ("Running", "Succeeded", "Failed"))
    scheduled = sum(member.bound for member in members)
    start = status.schedule_start_time
    if scheduled < least:
        phase, start = PodGroupPhase.SCHEDULING, start or now
    else:
        phase = PodGroupPhase.SCHEDULED
        if succeeded + running >= least:
            phase = PodGroupPhase.RUNNING
    if failed > 0 and failed + running + succeeded >= least:
        phase = PodGroupPhase.FAILED
    if succeeded >= least:
        phase = PodGroupPhase.FINISHED
    return PodGroupStatus(
        phase=phase,
        occupied_by=status.occupied_by,
        scheduled=scheduled,
        running=running,
        succeeded=succeeded,
        failed=failed,
        schedule_start_time=start,
    )
