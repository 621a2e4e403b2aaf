"""Devices that nominated pods will get by their claims: nobody who is less important takes them meanwhile.

The amounts of a nominated pod count as if it ran. Devices are chosen when a pod is placed; until then those
are kept for it that it would get once everybody has gone who leaves.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import HeldClaim
from koordcore.model.pods import Pod, PodKey
from koordcore.preemption.setup import leaving_pods
from koordcore.scheduling.one_pod import place_there


def promised_claims(
    workspace: Workspace, plugins: PluginSet, members: Iterable[tuple[Pod, int]]
) -> dict[PodKey, tuple[HeldClaim, ...]]:
    """Give what the claims of pods would be allocated as things stand, one pod after another.

    Parameters
    ----------
    members
        Pods that are not there, each with the row of its node; who does not fit there gets nothing.
    """
    found: dict[PodKey, tuple[HeldClaim, ...]] = {}
    mark = workspace.checkpoint()
    for pod, row in members:
        if place_there(workspace, plugins, pod, row, tried=True) is not None:
            held = (one for one in workspace.pods_on(row)[pod.key].held_claims if one.fresh)
            found[pod.key] = tuple(attrs.evolve(one, promised=True) for one in held)
    workspace.rollback(mark)
    return found


def keep_for_nominated(workspace: Workspace, plugins: PluginSet) -> None:
    """Keep for pods that were nominated before the call what their claims will be allocated."""
    nominated = plugins.nominated
    pods = sorted(nominated.claiming(), key=lambda pair: (-pair[0].priority, pair[0].key))
    if not pods:
        return
    snapshot, row_of = workspace.snapshot, workspace.layout.row_of
    going = {gone.key: row_of[str(gone.node_name)] for pod, _ in pods for gone in leaving_pods(snapshot, pod)}
    mark = workspace.checkpoint()
    for key, row in sorted(going.items()):
        plugins.removed(workspace.evict(key, row), row)
    with nominated.nobody():
        nominated.claims = promised_claims(workspace, plugins, pods)
    workspace.rollback(mark)
