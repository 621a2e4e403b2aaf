"""Kubernetes' own groups (``scheduling.k8s.io``): PodGroup, CompositePodGroup and Workload of every version.

The versions differ in spelling; the records are what they have in common, as the newest one means it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.pods import Pod, PreemptionPolicy

NO_MINIMUMS: Final[immutabledict[str, int | None]] = immutabledict()


class DisruptionMode(StrEnum):
    """What evicting a member means for the others."""

    SINGLE = "single"
    ALL = "all"


@record
class WorkloadRef:
    """The template of a Workload that a group was made from; says nothing that scheduling reads."""

    workload_name: str
    template_name: str

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class GroupClaim:
    """One entry of a PodGroup's ``spec.resourceClaims``; ``claim`` is what is used, made or named."""

    name: str
    claim: str = ""
    template: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class GroupCondition:
    """A condition of a group's status; ``status`` is ``True``, ``False`` or ``Unknown``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class SchedulingPodGroup:
    """A PodGroup of ``scheduling.k8s.io``: v1beta1, v1alpha3 or v1alpha2.

    Parameters
    ----------
    api_version
        As on the object; patches go to that version.
    min_count
        Members that must be assigned together (``gang``); ``None`` for policy ``basic``, of which one does.
    parent
        CompositePodGroup that it belongs to; empty for a group of its own.
    topology_keys
        Labels of which all members need nodes with one value each.
    priority
        Resolved number; ``None`` where the object says none.
    preemption_policy
        ``None`` where the object says none.
    claims
        Claims that members share.
    """

    name: str
    namespace: str = "default"
    api_version: str = "scheduling.k8s.io/v1beta1"
    uid: str = ""
    generation: int = 0
    created: datetime | None = None
    parent: str = ""
    workload: WorkloadRef | None = None
    min_count: int | None = None
    topology_keys: tuple[str, ...] = ()
    disruption: DisruptionMode = DisruptionMode.SINGLE
    priority: int | None = None
    priority_class: str = ""
    preemption_policy: PreemptionPolicy | None = None
    claims: tuple[GroupClaim, ...] = ()
    conditions: tuple[GroupCondition, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def id(self) -> str:
        """Tell it from groups of other kinds and namespaces."""
        return f"podgroup:{self.namespace}/{self.name}"

    @property
    def parent_id(self) -> str:
        """Id of the group above; empty for none."""
        return f"compositepodgroup:{self.namespace}/{self.parent}" if self.parent else ""


@record(kw_only=True)
class CompositePodGroup:
    """A group of groups; the fields mean what they mean for a PodGroup.

    Parameters
    ----------
    min_groups
        Children that must succeed together; ``None`` for policy ``basic``, of which one does.
    """

    name: str
    namespace: str = "default"
    api_version: str = "scheduling.k8s.io/v1alpha3"
    uid: str = ""
    generation: int = 0
    created: datetime | None = None
    parent: str = ""
    workload: WorkloadRef | None = None
    min_groups: int | None = None
    topology_keys: tuple[str, ...] = ()
    disruption: DisruptionMode = DisruptionMode.SINGLE
    priority: int | None = None
    priority_class: str = ""
    preemption_policy: PreemptionPolicy | None = None
    conditions: tuple[GroupCondition, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def id(self) -> str:
        """Tell it from groups of other kinds and namespaces."""
        return f"compositepodgroup:{self.namespace}/{self.name}"

    @property
    def parent_id(self) -> str:
        """Id of the group above; empty for none."""
        return f"compositepodgroup:{self.namespace}/{self.parent}" if self.parent else ""


@record(kw_only=True)
class SchedulingWorkload:
    """A Workload of ``scheduling.k8s.io``.

    Parameters
    ----------
    pod_groups
        Of v1alpha1: the minimum of each of its groups by name, ``None`` for policy ``basic``; pods name one
        of them by ``spec.workloadRef``.
    templates
        Of later versions: names of the templates that controllers make groups from; informative.
    """

    name: str
    namespace: str = "default"
    api_version: str = "scheduling.k8s.io/v1beta1"
    uid: str = ""
    pod_groups: immutabledict[str, int | None] = NO_MINIMUMS
    templates: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


def leaf_id(pod: Pod) -> str:
    """Give the id of the group that a pod names; the pod must name one."""
    group = pod.scheduling_group
    assert group is not None, f"{pod.key} names no group"
    if group.workload:
        return f"workload:{pod.namespace}/{group.workload}/{group.pod_group}/{group.replica}"
    return f"podgroup:{pod.namespace}/{group.pod_group}"
