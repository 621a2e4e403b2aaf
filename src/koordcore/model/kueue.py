"""Kueue's queues and workloads: who may use how much of which flavor, and what waits for it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.mappings import frozen_texts
from koordcore.model.resources import NO_RESOURCES, Resources, frozen_amounts
from koordcore.model.selectors import NOTHING, LabelSelector

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Label of a job, or of a pod: the LocalQueue that it waits in."""
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/workload"
"""Annotation of a pod: the Workload that it belongs to."""
POD_SET_LABEL: Final = "kueue.x-k8s.io/podset"
"""Label of a pod: its pod set within the Workload."""
GATES: Final = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
"""Scheduling gates that Kueue lifts."""
PODS: Final = "pods"
"""Resource of a queue that counts pods."""
_NO_TEXTS: Final[immutabledict[str, str]] = immutabledict()


@record(kw_only=True)
class FlavorQuota:
    """What a queue or cohort has of one flavor.

    Parameters
    ----------
    flavor
        Name of the ResourceFlavor.
    nominal
        Its own, by resource (milli-CPU, bytes, counts).
    borrowing
        How much more than that it may use of its cohort's; a resource that is absent has no such bound.
    lending
        How much of it others may use; a resource that is absent is lent whole.
    """

    flavor: str
    nominal: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    borrowing: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    lending: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ResourceGroup:
    """Resources that take their flavors together: of each of them a pod set gets the same flavor.

    Parameters
    ----------
    resources
        Names of the resources.
    flavors
        In the order in which they are tried.
    """

    resources: tuple[str, ...]
    flavors: tuple[FlavorQuota, ...] = ()

    __attrs_post_init__ = check_fields


class QueuePreemption(StrEnum):
    """Which Workloads a queue may evict for quota: of its own, and of those that borrow in its cohort."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


@record(kw_only=True)
class ClusterQueue:
    """A ClusterQueue.

    Parameters
    ----------
    name
        Of the object.
    cohort
        Whom it shares with; empty for nobody.
    groups
        What it may use.
    namespace_selector
        Namespaces that may use it; none where it is absent.
    strict
        ``StrictFIFO``: who cannot be admitted stops those behind it.
    stopped
        ``stopPolicy`` is ``Hold`` or ``HoldAndDrain``.
    next_for_borrowing
        ``flavorFungibility.whenCanBorrow`` is ``TryNextFlavor``: a flavor without borrowing comes first.
    stops_to_preempt
        ``flavorFungibility.whenCanPreempt`` is ``MayStopSearch``: where somebody can be evicted for a flavor
        the next is not looked at; told, not done.
    checks
        Admission checks; nobody here asks them.
    within, reclaim
        ``preemption.withinClusterQueue`` and ``preemption.reclaimWithinCohort``: told, not done.
    borrow
        ``preemption.borrowWithinCohort.policy`` is ``LowerPriority``: it may take back from others what is
        beyond its own, too; told, not done.
    borrow_threshold
        Its ``maxPriorityThreshold``: who is more important does not go for that; ``None`` for no bound.
    weight
        Of its share of the cohort's, in billionths; ``None`` where it states no ``fairSharing``.
    """

    name: str
    cohort: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    namespace_selector: LabelSelector = NOTHING
    strict: bool = False
    stopped: bool = False
    next_for_borrowing: bool = False
    stops_to_preempt: bool = False
    checks: tuple[str, ...] = ()
    within: QueuePreemption = QueuePreemption.NEVER
    reclaim: QueuePreemption = QueuePreemption.NEVER
    borrow: bool = False
    borrow_threshold: int | None = None
    weight: int | None = None
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class Cohort:
    """A Cohort; one that queues name and nobody declares has no quota of its own and no parent.

    Parameters
    ----------
    name
        Of the object.
    parent
        The cohort above it; empty for none.
    groups
        What it has beside its queues.
    weight
        Of its share of its parent's, in billionths; ``None`` where it states no ``fairSharing``.
    """

    name: str
    parent: str = ""
    groups: tuple[ResourceGroup, ...] = ()
    weight: int | None = None
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class LocalQueue:
    """A LocalQueue: the way of a namespace into a ClusterQueue."""

    name: str
    namespace: str = "default"
    cluster_queue: str = ""
    stopped: bool = False

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class TopologyRequest:
    """Where the pods of a pod set want to lie, in labels of the flavor's Topology.

    Parameters
    ----------
    required
        Level of which one domain has to hold all of them; empty for none.
    preferred
        Level from which upwards one domain should hold them.
    slice_level, slice_size
        Level of which one domain has to hold every slice of so many pods.
    group
        Pod sets of one group get one flavor, and are gathered as one.
    unconstrained
        The Topology's nodes, in any arrangement.
    """

    required: str = ""
    preferred: str = ""
    slice_level: str = ""
    slice_size: int = 0
    group: str = ""
    unconstrained: bool = False

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PodSet:
    """Pods of a Workload that are alike.

    Parameters
    ----------
    name
        Unique within the Workload.
    count
        How many pods.
    least
        How many of them are enough (``minCount``).
    topology
        Where they want to lie.
    """

    name: str
    count: int
    least: int
    topology: TopologyRequest = TopologyRequest()

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PodSetAssignment:
    """What Kueue has given a pod set.

    Parameters
    ----------
    name
        Of the pod set.
    flavors
        By resource.
    usage
        Of all its pods together.
    """

    name: str
    flavors: immutabledict[str, str] = attrs.field(default=_NO_TEXTS, converter=frozen_texts)
    usage: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class KueueWorkload:
    """A Workload of Kueue. Its pods, where there are any, name it in an annotation.

    Parameters
    ----------
    name, namespace
        Of the object.
    queue
        LocalQueue in its namespace.
    priority
        Its own, which may differ from its pods'.
    created
        When it was made, or since when its age counts anew: it was evicted because its pods did not get
        ready, or by an admission check.
    pod_sets
        What it consists of.
    active, finished
        Whether it may be admitted; whether it has ended.
    held_back
        It was evicted and is not in its queue again (``Requeued`` is false).
    requeue_at
        When it is queued again after that; ``None`` where nobody says.
    admitted_by
        ClusterQueue in which quota is reserved for it; empty while it waits.
    assignments
        What is reserved.
    reserved
        Since when; ``None`` where nobody says.
    leaving
        It is being evicted, and holds its quota until its pods are gone.
    """

    name: str
    namespace: str = "default"
    queue: str = ""
    priority: int = 0
    created: datetime | None = None
    pod_sets: tuple[PodSet, ...] = ()
    active: bool = True
    finished: bool = False
    held_back: bool = False
    requeue_at: datetime | None = None
    admitted_by: str = ""
    assignments: tuple[PodSetAssignment, ...] = ()
    reserved: datetime | None = None
    leaving: bool = False

    __attrs_post_init__ = check_fields

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def waits(self) -> bool:
        """Whether it waits for quota."""
        return not (self.finished or self.admitted_by)


@record(kw_only=True)
class AdmittedWorkload:
    """A Workload that a plan gives its quota.

    Parameters
    ----------
    workload
        ``namespace/name``.
    queue
        Its ClusterQueue.
    flavors
        By pod set and resource, as ``podset/resource``, the flavor that it is given.
    """

    workload: str
    queue: str
    flavors: immutabledict[str, str] = attrs.field(default=_NO_TEXTS, converter=frozen_texts)

    __attrs_post_init__ = check_fields
