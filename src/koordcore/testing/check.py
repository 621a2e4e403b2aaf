"""Asking a plugin everything that the contract says, on small clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from koordcore.framework.plugin import Plugin
from koordcore.framework.registry import plugin_of
from koordcore.model.policy import PluginSetting
from koordcore.snapshot import ClusterSnapshot
from koordcore.testing.answers import MisshapenError
from koordcore.testing.bench import Bench
from koordcore.testing.changes import CHANGES
from koordcore.testing.nodes import NODES
from koordcore.testing.questions import QUESTIONS, Finding
from koordcore.testing.snapshots import varied_snapshots
from koordcore.testing.violation import BrokenContractError, Clause, ContractViolation

_LAST: Final = (Clause.SHAPE, Clause.REQUEST)
"""With these broken no other question can be asked."""


def check_plugin(
    plugin: type[Plugin] | str,
    args: Any = None,
    *,
    snapshots: Iterable[ClusterSnapshot] = (),
    raises: bool = False,
) -> tuple[ContractViolation, ...]:
    """Check a plugin against the contract of :mod:`koordcore.framework`.

    Each clause is asked about on small clusters with pods that wait and pods that run: what stands in the
    members of :class:`Clause`. The answer is the same at every call.

    Parameters
    ----------
    plugin
        The class of a plugin of one's own; or a name that a policy may use.
    args
        Its arguments, as in ``PluginSetting``.
    snapshots
        Clusters of one's own, asked about before those of the kit (:func:`varied_snapshots`). A plugin that
        reads its own labels or records needs some in which they occur: a few nodes, some pods that wait and
        concern it, and some that run.
    raises
        Raise what was found instead of returning it.

    Returns
    -------
    tuple of ContractViolation
        At most one for each clause and snapshot; empty for a plugin that keeps the contract.

    Raises
    ------
    BrokenContractError
        With ``raises``, when a clause is broken; it is an ``AssertionError`` and carries the violations.
    ModelError
        When the plugin is no subclass of ``Plugin``, or no policy knows it by that name.

    Examples
    --------
    >>> from koordcore.testing import check_plugin
    >>> check_plugin("NodeUnschedulable")
    ()
    """
    setting = PluginSetting(name=plugin) if isinstance(plugin, str) else PluginSetting(plugin=plugin)
    setting = PluginSetting(plugin=plugin_of(setting), name=setting.name, args=args)
    every = (*snapshots, *varied_snapshots())
    found = [one for number, snapshot in enumerate(every) for one in _check(snapshot, number, setting)]
    if not found and not any(_concerned(snapshot, setting) for snapshot in every):
        message = (
            "no pod that waits in the snapshots concerns it, so nothing was tested: hand over some that do"
        )
        found.append(ContractViolation(Clause.CONCERN, setting.name, -1, message))
    if found and raises:
        raise BrokenContractError(found)
    return tuple(found)


def _concerned(snapshot: ClusterSnapshot, setting: PluginSetting) -> bool:
    return next(Bench(snapshot, setting).concerns(), None) is not None


def _check(snapshot: ClusterSnapshot, number: int, setting: PluginSetting) -> list[ContractViolation]:
    """Ask about one snapshot; what is broken for good ends the questions."""
    found: dict[Clause, ContractViolation] = {}
    for check in (*QUESTIONS, *CHANGES, *NODES):
        for clause, message in _findings(check, snapshot, setting):
            found.setdefault(clause, ContractViolation(clause, setting.name, number, message))
        if any(clause in found for clause in _LAST):
            break
    return list(found.values())


def _findings(
    check: Callable[[Bench], Iterator[Finding]], snapshot: ClusterSnapshot, setting: PluginSetting
) -> Iterator[Finding]:
    """Do one check on a bench of its own, so that what one check finds does not spoil the next."""
    try:
        yield from check(Bench(snapshot, setting))
    except MisshapenError as error:
        yield Clause.SHAPE, str(error)
    except Exception as error:  # whatever the plugin raises is what is looked for
        message = check.__name__.removeprefix("check_").replace("_", " ")
        yield Clause.ERROR, f"{type(error).__name__} while asking about {message}: {error}"
