"""Jobs that move one pod each, as the migration controller keeps them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.mappings import EMPTY, frozen_texts
from koordcore.model.pods import PodKey


class JobPhase(StrEnum):
    """Where a job is in its life; ``NONE`` is one that no controller has seen."""

    NONE = ""
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ABORTED = "Aborted"


class JobMode(StrEnum):
    """Whether room is reserved before the pod is evicted."""

    RESERVATION_FIRST = "ReservationFirst"
    EVICT_DIRECTLY = "EvictDirectly"

    @property
    def keeps_room(self) -> bool:
        """Whether room is kept for the pod before it is evicted."""
        return self is JobMode.RESERVATION_FIRST


DEFAULT_JOB_MODE: Final = JobMode.RESERVATION_FIRST


_ACTIVE = (JobPhase.NONE, JobPhase.PENDING, JobPhase.RUNNING)


@record(kw_only=True)
class PodMigrationJob:
    """The migration of one pod.

    Parameters
    ----------
    name, uid, annotations, created
        Identity and metadata; the namespace of a job is always empty.
    pod, pod_uid
        Which pod; ``None`` for a job without reference, which concerns nobody.
    mode, ttl
        How it is done, and after how many nanoseconds it is given up; ``None`` stands for the default.
    paused
        The job waits until it is released.
    reservation
        Name of the Reservation that keeps room for the pod; empty where the job names none.
    phase, status, reason, message
        What became of it.
    """

    name: str
    uid: str = ""
    namespace: str = ""
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    created: datetime | None = None
    pod: PodKey | None = None
    pod_uid: str = ""
    mode: JobMode | None = None
    ttl: int | None = None
    paused: bool = False
    reservation: str = ""
    phase: JobPhase = JobPhase.NONE
    status: str = ""
    reason: str = ""
    message: str = ""

    __attrs_post_init__ = check_fields

    @property
    def active(self) -> bool:
        """The job refers to a pod and has not come to an end."""
        return self.pod is not None and self.phase in _ACTIVE
