"""Reservations: room that is held for pods that are yet to come."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.affinity import Taint
from koordcore.model.checks import check_fields, check_least, names_its_fields
from koordcore.model.claims import HeldClaim
from koordcore.model.mappings import EMPTY, frozen_texts
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import NO_RESOURCES, Resources, frozen_amounts
from koordcore.model.selectors import LabelSelector


class AllocatePolicy(StrEnum):
    """How the owners of a reservation draw from it (``spec.allocatePolicy``)."""

    DEFAULT = ""
    """As Aligned, but such a reservation may not share a node with the other kinds."""
    ALIGNED = "Aligned"
    """From the reservation first, and from the node what it lacks."""
    RESTRICTED = "Restricted"
    """Of the resources that it holds, from the reservation alone."""


class ReservationPhase(StrEnum):
    """Where a reservation is in its life (``status.phase``)."""

    UNSET = ""
    PENDING = "Pending"
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"
    WAITING = "Waiting"
    FAILED = "Failed"


class PreAllocationMode(StrEnum):
    """Which running pods a reservation may be placed over."""

    DEFAULT = "Default"
    """Pods that its owners' label selectors select."""
    CLUSTER = "Cluster"
    """Pods that carry the cluster's label for it."""


class ReservationMatching(StrEnum):
    """How the pods of one call are matched with reservations that stand already."""

    SEQUENTIAL = "Sequential"
    """Pod by pod, in the order of the queue."""
    JOINT = "Joint"
    """All together, where that places more pods than one after another does."""


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@record(kw_only=True)
class ObjectReference:
    """A pod by reference; an empty field is not compared, and the kind never is."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    kind: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ControllerReference:
    """The owner of a pod by reference; an empty field is not compared.

    Parameters
    ----------
    namespace
        Of the pod.
    controller
        What the pod's owner reference must say; ``None`` is not compared.
    """

    namespace: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ReservationOwner:
    """One term of ``spec.owners``: all its parts must hold; a term without parts holds for every pod."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    selector: LabelSelector | None = None

    __attrs_post_init__ = check_fields

    def __str__(self) -> str:
        """Say in a few words which pods: ``app=demo``."""
        parts = []
        if self.object is not None:
            name = "/".join(part for part in (self.object.namespace, self.object.name) if part)
            parts.append(f"pod {name or self.object.uid}")
        if self.controller is not None:
            asked = self.controller
            words = (asked.kind, asked.name or asked.uid)
            parts.append(f"pods of {' '.join(part for part in words if part)}")
        if self.selector is not None:
            parts += [f"{key}={value}" for key, value in sorted(self.selector.match_labels.items())]
            parts += [
                " ".join((str(one.key), str(one.operator), ",".join(one.values))).strip()
                for one in self.selector.requirements
            ]
        return ", ".join(parts) or "everybody"


@record(kw_only=True)
class PreAllocationPolicy:
    """How a reservation is placed over running pods.

    Parameters
    ----------
    enable_multiple
        It may take in several pods of a node, otherwise one.
    """

    mode: PreAllocationMode = PreAllocationMode.DEFAULT
    enable_multiple: bool = False

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ReservationCondition:
    """One entry of ``status.conditions``.

    Parameters
    ----------
    kind
        ``Scheduled`` or ``Ready``.
    probed, changed
        ``lastProbeTime`` and ``lastTransitionTime``.
    """

    kind: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    probed: datetime | None = None
    changed: datetime | None = None

    __attrs_post_init__ = check_fields


@names_its_fields
@record(kw_only=True)
class ReservationStatus:
    """What became of a reservation.

    Parameters
    ----------
    node_name
        Where it holds its room; empty before it is scheduled.
    allocatable
        What it was granted; ``None`` before.
    allocated
        What its owners use, for display only: the truth is in the pods; ``None`` before the first.
    current_owners
        The pods that use it.
    """

    phase: ReservationPhase = ReservationPhase.UNSET
    node_name: str = ""
    allocatable: Resources | None = attrs.field(
        default=None, converter=attrs.converters.optional(frozen_amounts)
    )
    allocated: Resources | None = attrs.field(
        default=None, converter=attrs.converters.optional(frozen_amounts)
    )
    current_owners: tuple[ObjectReference, ...] = ()
    conditions: tuple[ReservationCondition, ...] = ()

    __attrs_post_init__ = check_fields


_TERMINAL: Final = (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)
_ACTIVE: Final = (ReservationPhase.AVAILABLE, ReservationPhase.WAITING)


@record(kw_only=True)
class Reservation:
    """Room that is held on a node, or is yet to be found, for pods that match its owners.

    Parameters
    ----------
    name, uid, labels, annotations
        As on the object; it belongs to the whole cluster. What it holds in particular (cards, CPUs) is told
        by the same annotations as on a pod.
    template
        The pod whose room it holds; ``None`` where the object has none. Its ``node_name`` pins the node.
    template_priority
        ``spec.template.spec.priority``; ``None`` where the template does not say.
    owners
        Whom it is for; none of the terms, nobody.
    owners_error
        Why the owners cannot be read; then it matches nobody. Empty for nothing wrong.
    ttl
        Nanoseconds after creation; 0 turns expiry off altogether, ``None`` is no limit of this kind.
    expires
        When it ends at the latest.
    allocate_once
        It ends with its first owner.
    pre_allocation, pre_allocation_policy
        It may be placed over running pods, and how.
    unschedulable
        No new owner is admitted.
    deleted
        Set while it is being deleted.
    claims
        Devices that its template's claims were allocated; nobody but its owners may have them.
    unreadable
        What of its object cannot be read; empty for nothing. What it is known to hold on its node stays held,
        for nobody but those who use it already.
    """

    name: str
    uid: str = ""
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    claims: tuple[HeldClaim, ...] = ()
    template: Pod | None = None
    template_priority: int | None = None
    owners: tuple[ReservationOwner, ...] = ()
    owners_error: str = ""
    ttl: int | None = None
    expires: datetime | None = None
    allocate_once: bool = True
    allocate_policy: AllocatePolicy = AllocatePolicy.DEFAULT
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy = PreAllocationPolicy()
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    created: datetime | None = None
    deleted: datetime | None = None
    status: ReservationStatus = ReservationStatus()
    namespace: str = ""
    unreadable: str = ""

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if not self.name:
            raise ModelError("a reservation needs a name")

    @property
    def pod_key(self) -> PodKey:
        """Key of the pod that stands for it while it is scheduled, and under which it is decided about."""
        namespace = "default" if self.template is None else self.template.namespace
        return PodKey(namespace, self.uid or f"reservation-{self.name}")

    @property
    def owners_text(self) -> str:
        """Whom it is for, in a few words."""
        return " or ".join(map(str, self.owners)) or "nobody"

    @property
    def requests(self) -> Resources:
        """What its template asks for."""
        return NO_RESOURCES if self.template is None else self.template.requests

    @property
    def active(self) -> bool:
        """It has a node and holds room there."""
        return bool(self.status.node_name) and self.status.phase in _ACTIVE

    @property
    def available(self) -> bool:
        """It has a node and may be used there."""
        return bool(self.status.node_name) and self.status.phase is ReservationPhase.AVAILABLE

    @property
    def succeeded(self) -> bool:
        """It was used and is over."""
        return self.status.phase is ReservationPhase.SUCCEEDED

    @property
    def failed(self) -> bool:
        """It is over for another reason."""
        return self.status.phase is ReservationPhase.FAILED

    @property
    def over(self) -> bool:
        """It holds nothing any more."""
        return self.status.phase in _TERMINAL

    @property
    def pending(self) -> bool:
        """It waits for a node."""
        return not self.over and not self.status.node_name

    @property
    def expired(self) -> bool:
        """It failed because its time was up; the first Ready condition says so."""
        ready = next((one for one in self.status.conditions if one.kind == "Ready"), None)
        return (
            self.failed
            and ready is not None
            and ready.status is ConditionStatus.FALSE
            and ready.reason == "Expired"
        )

    @property
    def admits_nobody(self) -> bool:
        """It is marked unschedulable, or is being deleted."""
        return self.unschedulable or self.deleted is not None

    @property
    def problem(self) -> str:
        """What makes the object invalid, in upstream's words; empty for nothing (``ValidateReservation``)."""
        if self.template is None:
            return "the reservation misses the template spec"
        if not self.owners and not self.owners_error:
            return "the reservation misses the owner spec"
        if self.ttl is None and self.expires is None:
            return "the reservation misses the expiration spec"
        return ""


@record(kw_only=True)
class PreAllocationArgs:
    """Arguments of placing reservations over running pods.

    Parameters
    ----------
    cluster_mode
        Pods that carry ``label`` may be taken in.
    label, priority_annotation
        Keys of cluster mode.
    prefer_none
        Where a node has room, no pod is taken in.
    """

    cluster_mode: bool = False
    label: str = "pod.koordinator.sh/is-pre-allocatable"
    priority_annotation: str = "pod.koordinator.sh/pre-allocatable-priority"
    prefer_none: bool = False

    __attrs_post_init__ = check_fields


@names_its_fields
@record(kw_only=True)
class ReservationArgs:
    """Arguments of the Reservation plugin (``ReservationArgs``).

    Parameters
    ----------
    enable_preemption
        Pods and reservations may evict pods of lower priority.
    min_candidate_nodes_percentage, min_candidate_nodes_absolute
        How many nodes preemption looks at, at least.
    gc_duration, gc_interval, resync_interval
        Seconds.
    ignored_resources, ignored_groups
        Extended resources, by name or by the part before the slash, that are not looked at.
    skip_fits_node
        The gate ``SkipReservationFitsNode``: a single match is not held against its node.
    matching
        Ours: how ``schedule`` matches pods with reservations.
    """

    enable_preemption: bool = False
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    controller_workers: int = 1
    gc_duration: int = 86400
    gc_interval: int = 60
    disable_garbage_collection: bool = False
    resync_interval: int = 60
    pre_allocation: PreAllocationArgs = PreAllocationArgs()
    ignored_resources: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()
    skip_fits_node: bool = False
    matching: ReservationMatching = attrs.field(
        default=ReservationMatching.SEQUENTIAL, converter=ReservationMatching
    )

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        check_least(self, 0, "min_candidate_nodes_percentage", "min_candidate_nodes_absolute")
        check_least(self, 0, "controller_workers", "gc_duration", "gc_interval", "resync_interval")
        if self.min_candidate_nodes_percentage > 100:
            share = self.min_candidate_nodes_percentage
            raise ModelError(f"ReservationArgs: min_candidate_nodes_percentage: at most 100, got {share}")

    def ignores(self, name: str) -> bool:
        """Tell whether an extended resource is not looked at; the others always are."""
        group, slash, _ = name.partition("/")
        return bool(slash) and (
            name in self.ignored_resources or (bool(group) and group in self.ignored_groups)
        )


DEFAULT_RESERVATION_ARGS: Final = ReservationArgs()
"""Upstream's defaults."""
