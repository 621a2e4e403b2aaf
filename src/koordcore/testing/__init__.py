"""A kit for plugins of one's own: :func:`check_plugin` tests one against the contract.

It needs no test framework. The contract is what :mod:`koordcore.framework` says of
:class:`~koordcore.framework.Plugin` and :class:`~koordcore.framework.Evaluator`; the framework relies on it
when it asks about few nodes instead of all, shares answers among equal pods, and takes back what a dry run
tried.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.testing.check import check_plugin as check_plugin
    from koordcore.testing.snapshots import varied_snapshots as varied_snapshots
    from koordcore.testing.violation import BrokenContractError as BrokenContractError
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.testing.check": ("check_plugin",),
            "koordcore.testing.snapshots": ("varied_snapshots",),
            "koordcore.testing.violation": ("BrokenContractError",),
        },
    )
