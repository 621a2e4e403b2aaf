"""Small objects of the cluster that several rooms read: namespaces, priority classes, budgets, workloads."""

from __future__ import annotations

from datetime import datetime

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.mappings import EMPTY, frozen_texts
from koordcore.model.pods import OwnerReference, PreemptionPolicy
from koordcore.model.selectors import NOTHING, LabelSelector


@record
class Namespace:
    """A namespace with its labels and annotations."""

    name: str
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record
class ConfigMap:
    """A ConfigMap that configures the control plane, as texts by key."""

    name: str
    namespace: str
    data: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PriorityClass:
    """A named priority."""

    name: str
    value: int
    global_default: bool = False
    preemption_policy: PreemptionPolicy = PreemptionPolicy.PREEMPT_LOWER_PRIORITY
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PodDisruptionBudget:
    """How many pods of a set may be away at once.

    Parameters
    ----------
    selector
        Which pods; ``None`` in the object selects none.
    min_available, max_unavailable
        A count, or a share in text form such as ``"50%"``; at most one of the two.
    disruptions_allowed
        ``status.disruptionsAllowed``: how many more may go now.
    disrupted_pods
        Names of pods whose eviction is under way and already counted.
    """

    name: str
    namespace: str = "default"
    selector: LabelSelector = NOTHING
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    disruptions_allowed: int = 0
    expected_pods: int = 0
    disrupted_pods: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class Workload:
    """An object that owns pods: Deployment, ReplicaSet, StatefulSet, Job, CronJob, DaemonSet or another.

    Parameters
    ----------
    api_version
        Tells kinds of the same name apart, such as the Jobs of ``batch/v1`` and of other groups.
    replicas
        Pods wanted; ``None`` where the kind has no such number.
    active_deadline, started
        Seconds after which a Job is ended with all its pods, counted from its start; ``None`` for never.
    """

    kind: str
    name: str
    namespace: str = "default"
    api_version: str = ""
    uid: str = ""
    replicas: int | None = None
    selector: LabelSelector | None = None
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    owners: tuple[OwnerReference, ...] = ()
    active_deadline: int | None = None
    started: datetime | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class RawObject:
    """An object of a kind that no plugin reads; kept as it came, as canonical JSON text."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    text: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class Unreadable:
    """An object that cannot be read: nothing of it counts, and whoever looks at a plan is told of it.

    Parameters
    ----------
    kind, group
        What it says it is; empty where it does not.
    why
        What cannot be read, with the path inside the object.
    """

    kind: str
    name: str
    namespace: str = ""
    group: str = ""
    why: str

    __attrs_post_init__ = check_fields
