"""A plugin over a workspace of its own, as one call of ``schedule`` has it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.framework.evaluator import Evaluator, Refusal
from koordcore.framework.guarded import bare
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.snapshot import ClusterSnapshot
from koordcore.testing.answers import Answers, ask


@record(eq=False)
class Concern:
    """A pod that concerns a plugin, and the evaluator of its class.

    Parameters
    ----------
    place
        Number of the plugin on its bench: a policy's name may have another plugin behind it.
    """

    place: int
    plugin: Plugin
    pod: Pod
    request: Hashable
    evaluator: Evaluator

    def answers(self, view: NodeView) -> Answers:
        """Ask about the nodes of a view."""
        return ask(self.evaluator, view)

    def again(self) -> Evaluator:
        """Make another evaluator of the same class."""
        return self.plugin.evaluator(self.pod, self.request)

    def __str__(self) -> str:
        return f"pod {self.pod.key}"


class Bench:
    """One plugin of a policy that has no other, over a snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, setting: PluginSetting) -> None:
        self.snapshot = snapshot
        self.setting = setting
        self.workspace = Workspace(snapshot)
        self.plugins = PluginSet(self.workspace, Policy(plugins=(setting,)))
        for one in self.plugins.plugins:
            bare(one)  # what it does wrongly is what is looked for

    @property
    def view(self) -> NodeView:
        """All nodes as they are now."""
        return NodeView(self.workspace)

    def request(self, place: int, pod: Pod) -> Any:
        """Read what a pod wants of a plugin; ``None`` where it is refused or not concerned."""
        try:
            request = self.plugins.plugins[place].request_of(pod)
        except ManifestError:
            return None
        return None if isinstance(request, Refusal) else request

    def concerns(self) -> Iterator[Concern]:
        """Give every pod that waits with the evaluators that it gets, each made for this pod."""
        for pod in self.snapshot.pending:
            for place, plugin in enumerate(self.plugins.plugins):
                request = self.request(place, pod)
                if request is not None:
                    yield Concern(place, plugin, pod, request, plugin.evaluator(pod, request))

    def answers_to(self, concern: Concern) -> Answers:
        """Answer about all nodes what another bench was asked about the same pod."""
        request = self.request(concern.place, concern.pod)
        evaluator = self.plugins.plugins[concern.place].evaluator(concern.pod, request)
        return ask(evaluator, self.view)
