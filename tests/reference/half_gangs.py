"""Gangs that run in part, told from all pods."""

from __future__ import annotations

from collections import defaultdict

from koordcore import ClusterSnapshot, Pod
from koordcore.protocol.gang_names import gang_name
from koordcore.scheduling.gang_states import gang_state


def half_gangs(snapshot: ClusterSnapshot) -> dict[str, set[Pod]]:
    """Give the running members of gang groups of which a gang has not started, by the name of the group."""
    running: dict[str, set[Pod]] = defaultdict(set)
    started: dict[str, int] = defaultdict(int)
    for pod in (*snapshot.bound_pods(), *snapshot.of(Pod)):
        name = gang_name(pod.labels, pod.annotations)
        if name and (pod.finished or pod.deleted is None):
            started[f"{pod.namespace}/{name}"] += 1
            if not pod.finished:
                running[f"{pod.namespace}/{name}"].add(pod)
    gangs = {name: record.gang for name, record in gang_state(snapshot).gangs.items()}
    half: dict[str, set[Pod]] = defaultdict(set)
    for name in running.keys() & gangs.keys():
        group = gangs[name].group
        if any(one in gangs and started[one] < gangs[one].min_available for one in group):
            half[",".join(group)] |= running[name]
    return half
