"""Room that is promised: a pod that is nominated, or that moves, counts on its node before it is there."""

from __future__ import annotations

from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod

__all__ = ["hold", "let_go"]


def hold(workspace: Workspace, plugins: PluginSet, pod: Pod, node: str) -> Pod:
    """Count a pod on a node as if it ran there, ports, neighbours and quota included; cards are not chosen.

    The node may be overcommitted by it: whoever has to leave is still there.
    """
    held = pod.at(node)
    row = workspace.layout.row_of[node]
    workspace.bind(held, row)
    for plugin in plugins.plugins:
        plugin.promised(held, row)
    return held


def let_go(workspace: Workspace, plugins: PluginSet, held: Pod) -> None:
    """Take back what :func:`hold` did; the pod still asks for its quota."""
    row = workspace.layout.row_of[str(held.node_name)]
    workspace.evict(held.key, row)
    for plugin in plugins.plugins:
        plugin.withdrawn(held, row)
