"""What plugins answer, and what is worked out once for classes of equal pods and nodes in equal states.

A plugin of one's own subclasses :class:`Plugin` and makes an :class:`Evaluator` per class of equal pods; hand
it to a policy as ``PluginSetting(plugin=Mine)``. :mod:`koordcore.testing` tests it against the contract.
"""

from koordcore.framework.node_view import ALL_ROWS, NodeView
from koordcore.framework.plugin import Evaluator, Plugin, Refusal, Reserved, Scope
from koordcore.framework.workspace import Workspace

__all__ = ["ALL_ROWS", "Evaluator", "NodeView", "Plugin", "Refusal", "Reserved", "Scope", "Workspace"]
