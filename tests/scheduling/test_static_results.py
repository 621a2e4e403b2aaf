"""What static plugins say is kept for all classes that ask the same, and for nobody else."""

from __future__ import annotations

import numpy as np

from koordcore import ClusterSnapshot, Node
from koordcore._arrays import BoolVector
from koordcore.framework.evaluator import Evaluator
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.static_result import Part, StaticResults
from koordcore.framework.workspace import Workspace
from koordcore.model.policy import PluginSetting


class Says(Evaluator):
    """Every node fits, or none."""

    def __init__(self, fits: bool) -> None:
        self._fits = fits

    def fits(self, view: NodeView) -> BoolVector:
        return np.full(view.size, self._fits)


def test_a_part_that_is_gone_lends_nobody_what_it_said() -> None:
    """Of two parts of one key the first is shared; the second goes with its class, and others come."""
    workspace = Workspace(ClusterSnapshot(nodes=[Node(name="n")]))
    plugin, setting = Plugin(workspace), PluginSetting(name="Own")
    results = StaticResults(workspace)

    def asked(number: int, fits: bool) -> bool:
        return bool(results.of([Part(plugin, setting, Says(fits), (number, "wish"))]).mask.all())

    assert asked(0, True)
    assert not asked(0, False)
    assert [asked(number, True) for number in range(1, 20)] == [True] * 19
