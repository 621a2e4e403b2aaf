"""The record of one scheduling attempt, in the JSON that Koordinator's scheduler dumps.

Which node refused for which reason, grouped; whether evicting pods might help; what a preemption dry run
found; what to do about it. Specification section 4.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.protocol.times import format_timestamp, moment_of
from koordcore.scheduling.cycle import open_workspace
from koordcore.snapshot import ClusterSnapshot


class StatusCode(StrEnum):
    """What a filter says about a node."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


class SuggestionType(StrEnum):
    """What a user can do about a failure."""

    EVICT_WORKLOAD_SELF = "EvictWorkloadSelf"
    WAITING_VICTIM_RELEASED = "WaitingVictimReleased"
    DELETE_CONFLICT_PVC = "DeleteConflictPVC"


@record
class NodeStatus:
    """Why one node refused.

    Parameters
    ----------
    code
        Whether evicting pods might help: always, unless it is ``UnschedulableAndUnresolvable``.
    plugin
        The plugin that refused.
    reasons
        Its words, in its order.
    """

    code: StatusCode = attrs.field(converter=StatusCode)
    plugin: str = ""
    reasons: tuple[str, ...] = ()

    @property
    def preempt_might_help(self) -> bool:
        """Evicting pods from the node may change the verdict."""
        return self.code is not StatusCode.UNSCHEDULABLE_AND_UNRESOLVABLE


@record(kw_only=True)
class NodeFailedDetail:
    """Nodes that refused alike."""

    failed_plugin: str
    reason: str
    preempt_might_help: bool
    failed_nodes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Give the record with upstream's keys; what is empty or false is left out."""
        return _filled(
            failedPlugin=self.failed_plugin,
            reason=self.reason,
            preemptMightHelp=self.preempt_might_help,
            failedNodes=list(self.failed_nodes),
        )


@record(kw_only=True)
class ScheduleDiagnosis:
    """How far the attempt came.

    Parameters
    ----------
    already_wait_for_bound
        Pods of the same job that wait for the rest.
    node_offer_slot
        How many of them each node holds.
    node_failed_details
        Refusals, grouped.
    """

    already_wait_for_bound: int = 0
    node_offer_slot: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    node_failed_details: tuple[NodeFailedDetail, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the record with upstream's keys."""
        return {
            "alreadyWaitForBound": self.already_wait_for_bound,
            **_filled(
                nodeOfferSlot=dict(sorted(self.node_offer_slot.items())),
                nodeFailedDetails=[one.to_json() for one in self.node_failed_details],
            ),
        }


@record(kw_only=True)
class PreemptionDiagnosis:
    """What a dry run without the possible victims found."""

    dry_run: ScheduleDiagnosis = ScheduleDiagnosis()
    other: str = ""
    failed_message: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the record with upstream's keys."""
        return {
            "dryRunFilterDiagnosis": self.dry_run.to_json(),
            **_filled(otherDiagnosis=self.other, failedMessage=self.failed_message),
        }


@record
class Suggestion:
    """What would help."""

    type: SuggestionType = attrs.field(converter=SuggestionType)
    message: str = ""

    def __str__(self) -> str:
        return f"Suggestion: {{type: {self.type}, message: {self.message}}}"


@record(kw_only=True)
class Diagnosis:
    """One scheduling attempt.

    Parameters
    ----------
    timestamp
        When, in nanoseconds since 1970.
    questioned_key
        Whom it is about: ``namespace/name`` of a pod, or the name of a reservation.
    nominated_node
        Where room was made for it.
    pre_filter_message
        Why no node was asked; there are no refusals of nodes then.
    topology_key_to_explain
        The topology layer that the answer is about.
    is_root_cause_pod
        The pod that stopped its job.
    schedule, preemption, suggestion
        The findings.
    """

    timestamp: int
    questioned_key: str
    nominated_node: str = ""
    pre_filter_message: str = ""
    topology_key_to_explain: str = ""
    is_root_cause_pod: bool = True
    schedule: ScheduleDiagnosis = ScheduleDiagnosis()
    preemption: PreemptionDiagnosis | None = None
    suggestion: Suggestion | None = None

    def to_json(self) -> dict[str, Any]:
        """Give the record with upstream's keys."""
        suggestion = self.suggestion
        return {
            "timestamp": format_timestamp(self.timestamp),
            "questionedKey": self.questioned_key,
            "isRootCausePod": self.is_root_cause_pod,
            "scheduleDiagnosis": self.schedule.to_json(),
            **_filled(
                nominatedNode=self.nominated_node,
                preFilterMessage=self.pre_filter_message,
                topologyKeyToExplain=self.topology_key_to_explain,
                preemptionDiagnosis=None if self.preemption is None else self.preemption.to_json(),
                suggestion=None
                if suggestion is None
                else {"type": str(suggestion.type), "message": suggestion.message},
            ),
        }


def _filled(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value}


def group_failures(statuses: Mapping[str, NodeStatus]) -> tuple[NodeFailedDetail, ...]:
    """Group nodes that gave the same reasons, by the same plugin, with the same hope for preemption.

    Groups are in the order of plugin and reason, those that preemption might change first; nodes within a
    group by name.
    """
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for node in sorted(statuses):
        status = statuses[node]
        key = (status.plugin, ", ".join(status.reasons), not status.preempt_might_help)
        groups.setdefault(key, []).append(node)
    return tuple(
        NodeFailedDetail(
            failed_plugin=plugin,
            reason=reason,
            preempt_might_help=not unresolvable,
            failed_nodes=tuple(nodes),
        )
        for (plugin, reason, unresolvable), nodes in sorted(groups.items())
    )


def offered_slots(waiting: Iterable[str]) -> immutabledict[str, int]:
    """Count the nodes on which pods of a job wait."""
    return immutabledict(sorted(Counter(waiting).items()))


def node_statuses(scheduling_class: SchedulingClass, names: Sequence[str]) -> dict[str, NodeStatus]:
    """Give the first refusal of every node that cannot take pods of a class."""
    found: dict[str, NodeStatus] = {}
    alive = np.ones(len(names), np.bool_)
    for part in scheduling_class.parts:
        mask = part.evaluator.fits(scheduling_class.view()) if part.setting.filters else None
        if mask is None or mask[alive].all():
            continue
        unresolvable = part.evaluator.unresolvable(scheduling_class.view())
        reasons = part.evaluator.reasons(scheduling_class.view())
        for row in np.flatnonzero(alive & ~mask).tolist():
            final = unresolvable is not None and bool(unresolvable[row])
            code = StatusCode.UNSCHEDULABLE_AND_UNRESOLVABLE if final else StatusCode.UNSCHEDULABLE
            own_reasons = tuple(text for text, holds in reasons if holds[row])
            found[names[row]] = NodeStatus(code, part.plugin.name, own_reasons)
        alive &= mask
    return found


def diagnose(
    snapshot: ClusterSnapshot,
    pod: Pod,
    *,
    now: datetime,
    policy: Policy = Policy(),
    waiting: Sequence[str] = (),
) -> Diagnosis:
    """Try a pod on every node and record why it does not fit.

    Parameters
    ----------
    snapshot
        The cluster; it is not changed.
    pod
        Who asks.
    now
        The clock of the attempt.
    policy
        What decides.
    waiting
        Node of each pod that waits for the rest of the same job.
    """
    workspace = open_workspace(snapshot, policy, now)
    scheduling_class = PluginSet(workspace, policy).class_of(pod)
    message = ""
    details: tuple[NodeFailedDetail, ...] = ()
    if isinstance(scheduling_class, Refusal):
        message = scheduling_class.reason
    else:
        refused = scheduling_class.refuse()
        if refused is not None:
            message = refused[1].reason
        else:
            details = group_failures(node_statuses(scheduling_class, workspace.layout.names))
    return Diagnosis(
        timestamp=moment_of(now),
        questioned_key=str(pod.key),
        nominated_node=pod.nominated_node or "",
        pre_filter_message=message,
        schedule=ScheduleDiagnosis(
            already_wait_for_bound=len(waiting),
            node_offer_slot=offered_slots(waiting),
            node_failed_details=details,
        ),
    )
