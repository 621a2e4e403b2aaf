"""What plugins answer, and what is worked out once for classes of equal pods and nodes in equal states.

A plugin of one's own subclasses :class:`Plugin` and makes an :class:`Evaluator` per class of equal pods; hand
it to a policy as ``PluginSetting(plugin=Mine)``. :mod:`koordcore.testing` tests it against the contract.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.framework.evaluator import (
        Evaluator as Evaluator,
        Refusal as Refusal,
        Reserved as Reserved,
        Scope as Scope,
    )
    from koordcore.framework.node_view import NodeView as NodeView
    from koordcore.framework.plugin import Plugin as Plugin
    from koordcore.framework.registry import PLUGINS as PLUGINS
    from koordcore.framework.workspace import Workspace as Workspace
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.framework.node_view": ("NodeView",),
            "koordcore.framework.evaluator": ("Evaluator", "Refusal", "Reserved", "Scope"),
            "koordcore.framework.plugin": ("Plugin",),
            "koordcore.framework.registry": ("PLUGINS",),
            "koordcore.framework.workspace": ("Workspace",),
        },
    )
