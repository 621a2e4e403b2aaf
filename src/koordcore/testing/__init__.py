"""A kit for plugins of one's own: :func:`check_plugin` tests one against the contract.

It needs no test framework. The contract is what :mod:`koordcore.framework` says of
:class:`~koordcore.framework.Plugin` and :class:`~koordcore.framework.Evaluator`; the framework relies on it
when it asks about few nodes instead of all, shares answers among equal pods, and takes back what a dry run
tried.
"""

from koordcore.testing.check import check_plugin
from koordcore.testing.snapshots import varied_snapshots
from koordcore.testing.violation import BrokenContractError, Clause, ContractViolation

__all__ = ["BrokenContractError", "Clause", "ContractViolation", "check_plugin", "varied_snapshots"]
