"""Can pods that wait only gain when others leave? Then the first moment that brings room can be bisected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

import attrs

from koordcore.framework.registry import PLUGINS
from koordcore.model.affinity import UnsatisfiableAction
from koordcore.model.cluster import Workload
from koordcore.model.plugin_args import SpreadArgs
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import PluginSetting, Policy
from koordcore.protocol.gang_names import gang_name
from koordcore.scheduling.cycle import queue_order
from koordcore.scheduling.gang_groups import JobTable
from koordcore.snapshot import ClusterSnapshot

_OF_ONE: Final = (
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "statefulset.kubernetes.io/pod-name",
)
"""Labels and annotations by which workloads number their pods."""


def gains_only(
    snapshot: ClusterSnapshot, pods: Iterable[Pod], ends: Mapping[PodKey, datetime], policy: Policy
) -> bool:
    """Tell whether pods that fit at one moment fit at every later one, whoever has left until then.

    They look for no neighbours, spread over none, by their own rules or by those of the policy, lose no
    members, leave each other the same room wherever they go, and meet no plugin but the library's. Who lends
    them room the caller looks at.

    Parameters
    ----------
    snapshot
        The cluster, in which they wait.
    pods
        Who is to be placed together.
    ends
        When running pods will be gone.
    policy
        As for :func:`koordcore.schedule`.
    """
    asked = tuple(pods)
    if any(one.plugin is not None or one.name not in PLUGINS for one in _settings(policy)):
        return False
    if any(_looks_around(snapshot, pod, policy) for pod in asked):
        return False
    return _all_alike(snapshot, asked, policy) and not _members_leave(snapshot, asked, ends)


def _settings(policy: Policy) -> Iterable[PluginSetting]:
    return (setting for profile in policy.profiles for setting in profile.plugins)


def _looks_around(snapshot: ClusterSnapshot, pod: Pod, policy: Policy) -> bool:
    """Tell whether a pod needs neighbours, or spreads: who leaves elsewhere may keep it off."""
    near = pod.affinity.pod if pod.affinity is not None else None
    if pod.spread_constraints or (near is not None and near.required):
        return True
    profile = policy.profile_of(pod.scheduler_name)
    settings = () if profile is None else profile.plugins
    defaults = chain.from_iterable(
        one.args.default_constraints for one in settings if one.filters and isinstance(one.args, SpreadArgs)
    )
    binding = any(one.when_unsatisfiable is UnsatisfiableAction.DO_NOT_SCHEDULE for one in defaults)
    return binding and (pod.controller is not None or _served(snapshot, pod.namespace))


def _served(snapshot: ClusterSnapshot, namespace: str) -> bool:
    return any(one.kind == "Service" and one.namespace == namespace for one in snapshot.of(Workload))


def _all_alike(snapshot: ClusterSnapshot, pods: Sequence[Pod], policy: Policy) -> bool:
    """Tell whether pods are decided as one, or are alike, so that it is no matter which room each takes."""
    turns = tuple(JobTable(snapshot, policy).turns(queue_order(pods)))
    if len(turns) < 2:
        return True
    alone = [turn for turn in turns if isinstance(turn, Pod)]
    return len(alone) == len(turns) and all(_like(one) == _like(alone[0]) for one in alone[1:])


def _like(pod: Pod) -> Pod:
    """Give a pod without what tells it from others of its template."""
    texts = [
        {key: value for key, value in known.items() if key not in _OF_ONE}
        for known in (pod.labels, pod.annotations)
    ]
    return attrs.evolve(
        pod, name="pod", uid="", created=None, initialized=None, labels=texts[0], annotations=texts[1]
    )


def _members_leave(snapshot: ClusterSnapshot, pods: Iterable[Pod], ends: Mapping[PodKey, datetime]) -> bool:
    """Tell whether running pods may leave that count for the minimum of a gang or group of these pods."""
    spaces = {pod.namespace for pod in pods if _in_group(pod)}
    leaving = (snapshot.pod(key) for key in ends if key.namespace in spaces)
    return any(pod is not None and _in_group(pod) for pod in leaving)


def _in_group(pod: Pod) -> bool:
    return pod.scheduling_group is not None or bool(gang_name(pod.labels, pod.annotations))
